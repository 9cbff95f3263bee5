//! What a guard concludes from a comparison of its own host with those that it hears.
//!
//! In: the state: own findings, and the heartbeats of others. Out: faults of the own host or of the cluster, before their
//! delays.

use super::State;
use crate::guard::ledger::Now;
use crate::model::fault::FaultKind;
use crate::model::guard_report::ahead_of_median;
use crate::model::healing::GuardedHost;
use crate::model::heartbeat::Heartbeat;
use crate::model::listed::listed;
use crate::model::names::HostName;
use crate::model::positions::Position;
use crate::plan::quorum::{self, Members};
use crate::plan::triage::{self, Presumed};
use crate::plan::votes;
use std::collections::BTreeMap;

/// A clock that differs by more from the median of all is wrong, milliseconds.
const SKEW_MS: i64 = 2000;

/// A leader whose syncs take longer is slow, milliseconds: etcd's followers start an election after a second.
const SLOW_MS: u32 = 512;
/// A member is fast if nine of ten syncs take at most so long, milliseconds: etcd's metrics count up to this limit.
const FAST_MS: u32 = 128;

impl State {
    /// What the comparison shows about the own host.
    pub(super) fn compared(&self, now: Now) -> Vec<(FaultKind, String)> {
        let compared = [self.skew(now), self.other_policy(now), self.vote_free(now), self.voters_gone(now)];
        compared.into_iter().chain([self.slow_leader(now), self.flapping(now)]).flatten().collect()
    }

    /// What it shows about the cluster.
    pub(super) fn of_cluster(&self, now: Now) -> impl Iterator<Item = Presumed> {
        self.of_vip(now).into_iter().chain(self.of_quorum(now))
    }

    /// Whether the own clock differs from the median of all, the own one included.
    fn skew(&self, now: Now) -> Option<(FaultKind, String)> {
        let heard = self.others.values().filter(|seen| seen.is_heard(now));
        let ahead = ahead_of_median(heard.map(|seen| seen.ahead_ms))?;
        #[allow(clippy::cast_precision_loss, reason = "shown with a tenth of a second")]
        let words = || format!("its clock is {:.1} s {} those of the others", ahead.abs() as f64 / 1000.0, side(ahead));
        (ahead.abs() > SKEW_MS).then(|| (FaultKind::ClockSkew, words()))
    }

    /// Whether most of the guards that are heard have another policy.
    fn other_policy(&self, now: Now) -> Option<(FaultKind, String)> {
        let heard: Vec<(&HostName, bool)> =
            self.heard(now).map(|(host, beat)| (host, beat.policy == self.digest)).collect();
        let others: Vec<&str> = heard.iter().filter(|(_, same)| !same).map(|(host, _)| host.as_str()).collect();
        let most = !others.is_empty() && 2 * others.len() >= heard.len();
        most.then(|| (FaultKind::NeedsUp, format!("its policy is not that of {}", others.join(", "))))
    }

    /// Whether a vote is free, and the own host stands by for it.
    fn vote_free(&self, now: Now) -> Option<(FaultKind, String)> {
        let free = self.votes(now).free?;
        Some((FaultKind::EtcdVoteFree, format!("{} gives no sign of life, by the word of all that are heard", free.of)))
    }

    /// Whether several voters are gone, and the own host is the one that removes their members.
    fn voters_gone(&self, now: Now) -> Option<(FaultKind, String)> {
        let (own, voters) = (&self.setup.own.name, self.voters.as_ref()?);
        let gone = votes::superfluous(&self.setup.policy, own, voters, &self.hosts(now));
        let names: Vec<&str> = gone.iter().map(HostName::as_str).collect();
        let why = || format!("{} give no sign of life, by the word of all that are heard", listed(&names));
        (!gone.is_empty()).then(|| (FaultKind::EtcdVotersGone, why()))
    }

    /// Of the other voters whose disks are fast, the host with the fastest one. Whether they serve linearizable reads does
    /// not matter: these wait for the leader, too. A member tells how fast it is only while it writes what the leader sends.
    pub fn fast(&self, now: Now) -> Option<HostName> {
        let fast = |(host, beat): (&HostName, &Heartbeat)| {
            let is_learner = beat.faults.iter().any(|fault| fault.kind == FaultKind::EtcdNotVoting);
            let sync_ms = beat.sync_ms.filter(|ms| *ms <= FAST_MS && !is_learner && self.has_vote(host))?;
            Some((sync_ms, host.clone()))
        };
        self.heard(now).filter_map(fast).min().map(|(_, host)| host)
    }

    /// Whether a host has a vote: by the member list, if votes move, otherwise by the policy.
    fn has_vote(&self, host: &HostName) -> bool {
        match &self.voted {
            Some(voters) => voters.hosts.contains(host),
            None => self.setup.policy.guard(host).is_some_and(GuardedHost::has_etcd),
        }
    }

    /// Whether the own member leads although its disk is slow and another one's is not.
    fn slow_leader(&self, now: Now) -> Option<(FaultKind, String)> {
        let slow_ms = self.speed.sync_ms.filter(|ms| self.speed.leads && *ms > SLOW_MS)?;
        let fast = self.fast(now)?;
        let slow = if slow_ms == u32::MAX { "many seconds".to_owned() } else { format!("{slow_ms} ms") };
        let why = format!("a sync of its log takes up to {slow}, on {fast} at most {FAST_MS} ms");
        Some((FaultKind::EtcdSlowLeader, why))
    }

    /// The first fault of the own host that comes and goes.
    fn flapping(&self, now: Now) -> Option<(FaultKind, String)> {
        let (kind, times) = self.ledger.flapping(&self.setup.own.name, now).next()?;
        Some((FaultKind::Flapping, format!("{kind} was reported {times} times in half an hour")))
    }

    /// Whether a fault of the own host comes and goes.
    pub fn flaps(&self, kind: FaultKind, now: Now) -> bool {
        self.ledger.flapping(&self.setup.own.name, now).any(|(other, _)| other == kind)
    }

    /// Whether etcd has no quorum, by all that are heard. All guards name the same host: the first with etcd.
    fn of_quorum(&self, now: Now) -> Option<Presumed> {
        let host = self.setup.policy.guards.iter().find(|guard| guard.has_etcd())?.name.clone();
        Some(Presumed { host, kind: FaultKind::EtcdQuorumLost, evidence: self.quorum_lost(now)? })
    }

    fn of_vip(&self, now: Now) -> Option<Presumed> {
        let own = &self.setup.own;
        let balances = |host: &HostName| self.setup.policy.guard(host).is_some_and(|guard| guard.balances);
        let heard = self.heard(now).filter(|(host, _)| balances(host));
        let mut holders: BTreeMap<HostName, bool> = heard.map(|(host, beat)| (host.clone(), beat.vip)).collect();
        holders.insert(own.name.clone(), self.vip);
        triage::of_vip(&self.setup.policy, &own.name, &holders)
    }

    /// What is known about etcd, if no member serves that is heard.
    pub fn quorum_lost(&self, now: Now) -> Option<String> {
        let (serve, _) = self.around(now);
        let voters: Vec<&HostName> =
            self.setup.policy.guards.iter().map(|guard| &guard.name).filter(|host| self.has_vote(host)).collect();
        let mut reach: BTreeMap<HostName, Position> =
            self.heard(now).filter_map(|(host, beat)| Some((host.clone(), beat.reach.clone()?))).collect();
        reach.extend(self.reach.0.clone().map(|own| (self.setup.own.name.clone(), own)));
        // All members of the own cluster number the same log.
        let known = self.reach.1.iter().max_by_key(|position| (position.term, position.index));
        quorum::lost(Members { voters: &voters, serve: &serve, reach: &reach, known })
    }
}

/// On which side of the others a clock is.
fn side(ahead_ms: i64) -> &'static str {
    if ahead_ms < 0 { "behind" } else { "ahead of" }
}
