//! etcd's lead, handed over so that no write is lost.
//!
//! In: who leads, and who is to. Out: the other leads. A leader that hands over drops what is proposed to it meanwhile: who asked itself is
//! told, but a follower that passed a write on waits for 7 s (5 s and two elections), and so does whoever wrote. So for that moment
//! nothing is proposed: the balancers in front of etcd stand still on all hosts at once. Whoever asks then waits for some tenths of a second.

use super::act::{Hands, failed};
use super::guard;
use super::walk::StepError;
use crate::host::op::{MemberChange, Op};
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::names::{HostName, PeerUrl};
use crate::plan::etcd_balancer_unit;
use futures::future::join_all;
use std::time::Duration;
use tokio::time::timeout;

/// How long the balancers stand still at most, milliseconds: below the second within which everybody is answered.
const MOST_MS: u32 = 800;
/// How long a host may take to stop its balancer. One that is slower goes on passing on what it is asked, and the others do not wait for it.
const STOPPED: Duration = Duration::from_millis(400);
/// How long a host may take to let its balancer run again, which it does by itself otherwise.
const RUNS: Duration = Duration::from_secs(1);

impl Hands {
    /// The lead may have come to a member since the plan was made, as others were restarted: it hands over before a step disturbs or
    /// removes it, too.
    pub(super) async fn must_not_lead(
        &self,
        index: usize,
        host: &HostName,
        patience: Duration,
    ) -> Result<(), StepError> {
        if guard::leads(self, host).await { self.hand_over(index, host, None, patience).await } else { Ok(()) }
    }

    /// The member on a host hands over the lead, while nobody writes. Where that cannot be done the lead stays, for an election is no reason
    /// to leave undone what comes next: that has a guard of its own.
    pub(super) async fn hand_over(
        &self,
        index: usize,
        host: &HostName,
        to: Option<&PeerUrl>,
        patience: Duration,
    ) -> Result<(), StepError> {
        let etcd = self.asks.etcd(host).ok_or_else(|| failed(format!("{host} is no etcd host")))?;
        let stays = |why: String| {
            let text = format!("etcd's lead stays on {host}: {why}. Writers may wait for an election");
            self.sink.emit(Event::Warning { text });
            Ok(())
        };
        // Whoever was to take it may have died since.
        let Some(to) = guard::heir(self, host, to).await else {
            return stays("no other member that stays is well".to_owned());
        };
        let unit = etcd_balancer_unit();
        self.balancers(index, STOPPED, || Op::Pause { unit: unit.clone(), most_ms: MOST_MS }).await;
        let done = self.call(index, host, Op::ChangeMembers { etcd, change: MemberChange::Lead(to) }, patience).await;
        self.balancers(index, RUNS, || Op::Resume { unit: unit.clone() }).await;
        match done {
            Err(StepError::Failed { what, .. }) => stays(what),
            other => other.map(drop),
        }
    }

    /// Asks the same of every host that has an API server, leaving ones too. One that cannot do it costs a write at worst, which fails after
    /// seven seconds.
    async fn balancers(&self, index: usize, within: Duration, op: impl Fn() -> Op) {
        let serve = |name: &HostName| self.machines.contains_key(name);
        let hosts = self.desired.entered().filter(|host| host.is(Role::ControlPlane) && serve(&host.name));
        join_all(hosts.map(|host| timeout(within, self.call(index, &host.name, op(), within)))).await;
    }
}
