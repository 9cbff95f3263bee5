//! Transfers etcd's leadership without failing a write.
//!
//! In: the leader, and its successor. Out: the successor leads. During a transfer the leader drops proposals: its own
//! clients get an error, but a follower that forwarded a write waits for 7 s (5 s and two elections), and so does its
//! client. So nothing is proposed during the transfer: the load balancers in front of etcd pause on all hosts at once,
//! and clients wait for some tenths of a second.

use super::act::{Doing, failed};
use super::precondition;
use super::walk::StepError;
use crate::model::event::Event;
use crate::model::names::{HostName, PeerUrl};
use crate::protocol::{Balancing, MemberChange, Op, PAUSE_MS, PAUSED_WITHIN, RESUMED_WITHIN};
use std::time::Duration;

/// How long another step waits for a transfer of leadership.
const LATE: Duration = Duration::from_secs(15);

impl Doing<'_> {
    /// Transfers leadership away from a member before it is disrupted: it may have become the leader after the plan was
    /// made, when others restarted.
    pub(super) async fn must_not_lead(&self, host: &HostName) -> Result<(), StepError> {
        let handing = async {
            if precondition::leads(self, host).await { self.within(LATE).hand_over(host, None).await } else { Ok(()) }
        };
        match tokio::time::timeout(LATE, handing).await {
            Ok(handed) => handed,
            Err(_) => {
                self.stays(host, &format!("the transfer took more than {LATE:?}"));
                Ok(())
            }
        }
    }

    /// Warns that leadership could not be transferred. The run continues: an election is no reason to skip the next
    /// step, which has its own precondition.
    fn stays(&self, host: &HostName, why: &str) {
        let text = format!("etcd's leader stays on {host}: {why}. Writes may wait for an election");
        self.sink.emit(Event::Warning { text });
    }

    /// Transfers leadership from the member on a host, while writes are paused.
    pub(super) async fn hand_over(&self, host: &HostName, to: Option<&PeerUrl>) -> Result<(), StepError> {
        let etcd = self.queries.etcd(host).ok_or_else(|| failed(format!("{host} is no etcd host")))?;
        // The planned successor may have failed since.
        let Some(to) = precondition::heir(self, host, to).await else {
            self.stays(host, "no other permanent member is healthy");
            return Ok(());
        };
        // At worst, a balancer that does not pause costs a write, which fails after seven seconds.
        self.balancers(PAUSED_WITHIN, &Balancing::Pause { most_ms: PAUSE_MS }).await;
        let done = self.call(host, Op::ChangeMembers { etcd, change: MemberChange::Lead(to) }).await;
        self.balancers(RESUMED_WITHIN, &Balancing::Resume).await;
        match done {
            Err(StepError::Failed { what, .. }) => {
                self.stays(host, &what);
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
