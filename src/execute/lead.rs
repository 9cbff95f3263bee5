//! etcd's lead, handed over so that no write is lost.
//!
//! In: who leads, and who is to. Out: the other leads. A leader that hands over drops what is proposed to it meanwhile, and tells nobody: a
//! follower that passed a write on waits for 7 s (5 s and two elections), and so does whoever wrote. So for that moment nothing is
//! proposed: the balancers in front of etcd stand still on all hosts at once. Whoever asks then waits for some tenths of a second.

use super::act::{Hands, failed};
use super::walk::StepError;
use crate::host::op::{MemberChange, Op};
use crate::model::desired::Role;
use crate::model::names::{HostName, PeerUrl};
use crate::plan::etcd_balancer_unit;
use futures::future::join_all;
use std::time::Duration;

/// How long the balancers stand still at most, milliseconds: well below the second within which everybody is answered. A host that is too
/// slow for it passes on what it is asked meanwhile, as all do where nobody holds anything.
const MOST_MS: u32 = 600;

impl Hands {
    /// The member on a host hands over the lead, while nobody writes.
    pub(super) async fn hand_over(
        &self,
        index: usize,
        host: &HostName,
        to: &PeerUrl,
        patience: Duration,
    ) -> Result<(), StepError> {
        let etcd = self.asks.etcd(host).ok_or_else(|| failed(format!("{host} is no etcd host")))?;
        let change = Op::ChangeMembers { etcd, change: MemberChange::Lead(to.clone()) };
        let unit = etcd_balancer_unit();
        self.balancers(index, patience, || Op::Pause { unit: unit.clone(), most_ms: MOST_MS }).await;
        let done = self.call(index, host, change, patience).await.map(drop);
        self.balancers(index, patience, || Op::Resume { unit: unit.clone() }).await;
        done
    }

    /// Asks the same of every host that has an API server. One that cannot do it costs a write that is lost at worst, which its writer is
    /// told; it is no reason to keep the lead where it is.
    async fn balancers(&self, index: usize, patience: Duration, op: impl Fn() -> Op) {
        let hosts = self.desired.with(Role::ControlPlane).filter(|host| self.machines.contains_key(&host.name));
        join_all(hosts.map(|host| self.call(index, &host.name, op(), patience))).await;
    }
}
