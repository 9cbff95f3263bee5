//! A learner on its way to a vote: waited for only as long as it lives.
//!
//! In: its peer URL. Out: its vote, or why its etcd does not stay up, in the words of its own journal. Copying gigabytes takes minutes, and
//! so the wait for it is long; a disk that is full shows within seconds.

use super::act::{Actuator, failed, unexpected};
use super::walk::StepError;
use crate::model::desired::Role;
use crate::model::facts::UnitFact;
use crate::model::names::{HostName, PeerUrl, UnitName};
use crate::protocol::{MemberChange, ObserveAsk, Op, Reply};
use std::time::Duration;

/// Between two looks at its unit.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Found without a process in so many looks, it does not stay up: one that copies keys runs all the while.
const MOST_AWAY: usize = 5;

impl Actuator {
    /// Makes a learner vote, once it has caught up.
    pub(super) async fn promote(&self, index: usize, peer: &PeerUrl, timeout: Duration) -> Result<(), StepError> {
        let promoted = self.change_members(index, MemberChange::Promote(peer.clone()), timeout);
        let mut hosts = self.desired.with(Role::Etcd);
        let Some(host) = hosts.find(|h| &h.peer_url() == peer && self.machines.contains_key(&h.name)) else {
            return promoted.await;
        };
        tokio::select! {
            done = promoted => done,
            why = self.does_not_stay_up(index, &host.name, timeout) => Err(why),
        }
    }

    /// Ends when the member on a host is found without a process again and again, with the end of its journal.
    async fn does_not_stay_up(&self, index: usize, host: &HostName, timeout: Duration) -> StepError {
        let unit = crate::plan::etcd_unit();
        let mut away = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A look that fails says nothing about the member.
            let Ok(seen) = self.unit(index, host, unit.clone(), timeout).await else { continue };
            away += usize::from(seen.0.started_ms == 0);
            if away > MOST_AWAY {
                match self.call(index, host, Op::Blame { unit: unit.clone() }, timeout).await {
                    Err(why) => return why,
                    Ok(other) => return unexpected(&other),
                }
            }
        }
    }

    /// A unit of a host, as its systemd shows it, and that host's clock, milliseconds since 1970.
    pub(super) async fn unit(
        &self,
        index: usize,
        host: &HostName,
        unit: UnitName,
        timeout: Duration,
    ) -> Result<(UnitFact, i64), StepError> {
        let ask = ObserveAsk { units: vec![unit.clone()], ..ObserveAsk::default() };
        match self.call(index, host, Op::Observe(Box::new(ask)), timeout).await? {
            Reply::Facts(facts) => {
                let found = facts.units.get(&unit).cloned().ok_or_else(|| failed(format!("{host} has no {unit}")));
                found.map(|found| (found, facts.now_ms))
            }
            other => Err(unexpected(&other)),
        }
    }
}
