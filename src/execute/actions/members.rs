//! Changes of the member list, through any member with a quorum behind it.
//!
//! A learner is promoted once it has caught up. In: its peer URL. Out: a voter, or the end of its journal, which shows
//! why its etcd does not stay up. Copying
//! gigabytes takes minutes, so the timeout is long; a full disk shows within seconds.

use crate::execute::act::{Doing, failed, unexpected};
use crate::execute::precondition;
use crate::execute::walk::StepError;
use crate::model::desired::{Host, Role};
use crate::model::facts::UnitFact;
use crate::model::names::{HostName, PeerUrl, UnitName};
use crate::protocol::{MemberChange, ObserveAsk, Op, Reply};
use std::time::Duration;

/// The interval at which its unit is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After more checks without a process, it does not stay up: a member that copies data runs all the time.
const MOST_AWAY: usize = 5;

impl Doing<'_> {
    /// Asks one host after the other to change the list, until one has done it.
    pub(super) async fn change_members(&self, change: MemberChange) -> Result<(), StepError> {
        let mut last = None;
        // A host that gave up the role may have the only member still. A member that is removed is asked last: it ends
        // before it can tell.
        let goes = |host: &&Host| matches!(&change, MemberChange::Remove(peer) if &host.peer_url() == peer);
        let mut hosts: Vec<&Host> = self.desired.entered().collect();
        hosts.sort_by_key(goes);
        for host in hosts.into_iter().map(|host| &host.name) {
            let Some(etcd) = self.queries.etcd(host) else { continue };
            if !self.machines.contains_key(host) || !precondition::speaks(self, host).await {
                continue;
            }
            match self.call(host, Op::ChangeMembers { etcd, change: change.clone() }).await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| failed("no member with a quorum behind it could be asked".to_owned())))
    }

    /// Promotes a learner to a voter, once it has caught up.
    pub(super) async fn promote(&self, peer: &PeerUrl) -> Result<(), StepError> {
        let promoted = self.change_members(MemberChange::Promote(peer.clone()));
        let mut hosts = self.desired.with(Role::Etcd);
        let Some(host) = hosts.find(|h| &h.peer_url() == peer && self.machines.contains_key(&h.name)) else {
            return promoted.await;
        };
        tokio::select! {
            done = promoted => done,
            why = self.does_not_stay_up(&host.name) => Err(why),
        }
    }

    /// Returns the end of the member's journal once it was repeatedly found without a process.
    async fn does_not_stay_up(&self, host: &HostName) -> StepError {
        let unit = crate::plan::etcd_unit();
        let mut away = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A failed check shows nothing about the member.
            let Ok(seen) = self.unit(host, unit.clone()).await else { continue };
            away += usize::from(seen.0.started_ms == 0);
            if away > MOST_AWAY {
                match self.call(host, Op::Blame { unit: unit.clone() }).await {
                    Err(why) => return why,
                    Ok(other) => return unexpected(&other),
                }
            }
        }
    }

    /// The state of a systemd unit on a host, and that host's clock, milliseconds since 1970.
    pub(super) async fn unit(&self, host: &HostName, unit: UnitName) -> Result<(UnitFact, i64), StepError> {
        let ask = ObserveAsk { units: vec![unit.clone()], ..ObserveAsk::default() };
        match self.call(host, Op::Observe(Box::new(ask))).await? {
            Reply::Facts(facts) => {
                let found = facts.units.get(&unit).cloned().ok_or_else(|| failed(format!("{host} has no {unit}")));
                found.map(|found| (found, facts.now_ms))
            }
            other => Err(unexpected(&other)),
        }
    }
}
