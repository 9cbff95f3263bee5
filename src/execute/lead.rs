//! etcd's lead, handed over so that no write is lost.
//!
//! In: who leads, and who is to. Out: the other leads. A leader that hands over drops what is proposed to it meanwhile: who asked itself is
//! told, but a follower that passed a write on waits for 7 s (5 s and two elections), and so does whoever wrote. So for that moment
//! nothing is proposed: the balancers in front of etcd stand still on all hosts at once. Whoever asks then waits for some tenths of a second.

use super::act::{Actuator, failed};
use super::precondition;
use super::walk::StepError;
use crate::model::event::Event;
use crate::model::names::{HostName, PeerUrl};
use crate::protocol::{Balancing, MemberChange, Op};
use std::time::Duration;

/// How long the balancers stand still at most, milliseconds: below the second within which everybody is answered.
const MOST_MS: u32 = 800;
/// How long a host may take to stop its balancer. One that is slower goes on passing on what it is asked, and the others do not wait for it.
const STOPPED: Duration = Duration::from_millis(400);
/// How long a host may take to let its balancer run again, which it does by itself otherwise.
const RUNS: Duration = Duration::from_secs(1);
/// How long a step that is about something else waits for a lead to be handed over.
const LATE: Duration = Duration::from_secs(15);

impl Actuator {
    /// The lead may have come to a member since the plan was made, as others were restarted: it hands over before it is disturbed, too.
    pub(super) async fn must_not_lead(&self, index: usize, host: &HostName) -> Result<(), StepError> {
        let handing = async {
            if precondition::leads(self, host).await { self.hand_over(index, host, None, LATE).await } else { Ok(()) }
        };
        match tokio::time::timeout(LATE, handing).await {
            Ok(handed) => handed,
            Err(_) => {
                self.stays(host, &format!("it could not be handed over within {LATE:?}"));
                Ok(())
            }
        }
    }

    /// Where the lead cannot be handed over it stays, for an election is no reason to leave undone what comes next: that has a guard of its own.
    fn stays(&self, host: &HostName, why: &str) {
        let text = format!("etcd's lead stays on {host}: {why}. Writers may wait for an election");
        self.sink.emit(Event::Warning { text });
    }

    /// The member on a host hands over the lead, while nobody writes.
    pub(super) async fn hand_over(
        &self,
        index: usize,
        host: &HostName,
        to: Option<&PeerUrl>,
        timeout: Duration,
    ) -> Result<(), StepError> {
        let etcd = self.queries.etcd(host).ok_or_else(|| failed(format!("{host} is no etcd host")))?;
        // Whoever was to take it may have died since.
        let Some(to) = precondition::heir(self, host, to).await else {
            self.stays(host, "no other member that stays is well");
            return Ok(());
        };
        // One that does not stand still costs a write at worst, which fails after seven seconds.
        self.balancers(index, STOPPED, &Balancing::Pause { most_ms: MOST_MS }).await;
        let done = self.call(index, host, Op::ChangeMembers { etcd, change: MemberChange::Lead(to) }, timeout).await;
        self.balancers(index, RUNS, &Balancing::Resume).await;
        match done {
            Err(StepError::Failed { what, .. }) => {
                self.stays(host, &what);
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
