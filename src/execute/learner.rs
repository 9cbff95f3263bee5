//! Promotes a learner, and stops waiting if its etcd does not stay up.
//!
//! In: its peer URL. Out: a voter, or the end of its journal, which shows why its etcd does not stay up. Copying
//! gigabytes takes minutes, so the timeout is long; a full disk shows within seconds.

use super::act::{Actuator, failed, unexpected};
use super::walk::StepError;
use crate::model::desired::Role;
use crate::model::facts::UnitFact;
use crate::model::names::{HostName, PeerUrl, UnitName};
use crate::protocol::{MemberChange, ObserveAsk, Op, Reply};
use std::time::Duration;

/// The interval at which its unit is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After more checks without a process, it does not stay up: a member that copies data runs all the time.
const MOST_AWAY: usize = 5;

impl Actuator {
    /// Promotes a learner to a voter, once it has caught up.
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

    /// Returns the end of the member's journal once it was repeatedly found without a process.
    async fn does_not_stay_up(&self, index: usize, host: &HostName, timeout: Duration) -> StepError {
        let unit = crate::plan::etcd_unit();
        let mut away = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A failed check shows nothing about the member.
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

    /// The state of a systemd unit on a host, and that host's clock, milliseconds since 1970.
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
