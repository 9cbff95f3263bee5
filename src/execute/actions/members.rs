//! Changes of the member list, through any member with a quorum behind it. A short loss of the leader only delays them.
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
use crate::transport::{HostError, Payload};
use std::time::Duration;
use tokio::time::Instant;

/// The interval at which its unit is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After more checks without a process, it does not stay up: a member that copies data runs all the time.
const MOST_AWAY: usize = 5;
/// How long no member may be found with a quorum behind it before that is believed. On a busy machine an election takes
/// several attempts.
const LEADERLESS: Duration = Duration::from_secs(30);

impl Doing<'_> {
    /// Has the list changed. While etcd elects a leader, or its members are busy, it waits: every change is idempotent,
    /// so that asking again changes nothing twice.
    pub(super) async fn change_members(&self, change: MemberChange) -> Result<(), StepError> {
        // A host that gave up the role may have the only member still. A member that is removed is asked last: it ends
        // before it can tell.
        let goes = |host: &&Host| matches!(&change, MemberChange::Remove(peer) if &host.peer_url() == peer);
        let mut hosts: Vec<&Host> = self.desired.entered().collect();
        hosts.sort_by_key(goes);
        let until = Instant::now() + LEADERLESS;
        loop {
            let Err(error) = self.changed_by_one_of(&hosts, &change).await else { return Ok(()) };
            let may_pass = error.as_ref().is_none_or(HostError::is_temporary);
            if !may_pass || Instant::now() >= until {
                let leaderless = || {
                    let waited = LEADERLESS.as_secs();
                    failed(format!("no etcd member with a quorum behind it answered within {waited} s"))
                };
                return Err(error.map_or_else(leaderless, StepError::from));
            }
            self.waiting("an etcd member with a quorum behind it".to_owned());
            tokio::time::sleep(precondition::BETWEEN_LOOKS).await;
        }
    }

    /// Asks one host after the other to change the list, until one has done it. `Err(None)`: on none of them does a
    /// member have a quorum behind it.
    async fn changed_by_one_of(&self, hosts: &[&Host], change: &MemberChange) -> Result<(), Option<HostError>> {
        let mut last = None;
        for host in hosts.iter().map(|host| &host.name) {
            let (Some(etcd), Some(machine)) = (self.queries.etcd(host), self.machines.get(host)) else { continue };
            if !precondition::speaks(self, host).await {
                continue;
            }
            let op = Op::ChangeMembers { etcd, change: change.clone() };
            match self.ask(&**machine, op, Payload::None).await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last)
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
