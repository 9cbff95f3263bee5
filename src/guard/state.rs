//! What a guard knows: its own faults, the heartbeats of the others, and what it concludes from both.
//!
//! In: findings of probes, heartbeats and answers of ports, each with the present. Out: the own heartbeat, the report,
//! and changes of faults. Performs no I/O.

mod compared;
mod spared;

use super::disk::Speed;
use super::figures::Figures;
use super::ledger::{Change, Ledger, Now};
use crate::model::desired::Role;
use crate::model::fault::{Class, Fault, FaultKind};
use crate::model::guard_report::{GuardReport, Other};
use crate::model::healing::{GuardedHost, Mode, Policy, Reboot};
use crate::model::heartbeat::{Heartbeat, Sight, evidence};
use crate::model::hold::{Annotated, Hold};
use crate::model::names::{Digest, HostName};
use crate::model::positions::Position;
use crate::model::repair::{Decided, Outcome, RepairRecord};
use crate::model::standby::Voters;
use crate::plan::local_repair::{self, BETWEEN_MS};
use crate::plan::power::{self, Silent};
use crate::plan::triage::{self, Presumed, Sights};
use crate::plan::votes::{self, Votes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A guard is heard as long as its last heartbeat is not older than this: five were missed.
const MISSED: Duration = Duration::from_secs(5);
/// For so long after its start a guard does not yet know which others it hears.
const LEARNING: Duration = Duration::from_secs(10);
/// The most repairs in a report.
const SHOWN: usize = 10;

/// The kinds that are concluded about hosts from the words of several.
const PRESUMED: &[FaultKind] = &[
    FaultKind::HostUnreachable,
    FaultKind::PowerDue,
    FaultKind::Partitioned,
    FaultKind::GuardDown,
    FaultKind::VipMissing,
    FaultKind::VipDuplicate,
    FaultKind::EtcdQuorumLost,
];
/// The kinds that the comparison with others shows about the own host.
const BY_COMPARISON: &[FaultKind] = &[
    FaultKind::ClockSkew,
    FaultKind::NeedsUp,
    FaultKind::EtcdVoteFree,
    FaultKind::EtcdVotersGone,
    FaultKind::EtcdSlowLeader,
    FaultKind::Flapping,
];

/// Another guard.
#[derive(Debug, Default)]
struct Seen {
    heartbeat: Option<Heartbeat>,
    /// When its last heartbeat arrived.
    heard: Option<Duration>,
    /// How far its clock is ahead, milliseconds.
    ahead_ms: i64,
    /// Whether a port of its host answered, at the last attempt.
    answers: bool,
    /// Since when it is seen as it is, milliseconds since 1970.
    since_ms: i64,
    sight: Option<Sight>,
    /// When it was first heard after a boot, milliseconds since 1970; 0: never.
    booted_ms: i64,
    /// Why its heartbeats are not used.
    refused: String,
    /// Why ours do not reach it.
    unsent: String,
}

/// The constant part of a guard.
#[derive(Debug)]
pub struct Setup {
    /// The own host.
    pub own: GuardedHost,
    /// The policy.
    pub policy: Policy,
    /// The digest of the program.
    pub release: Digest,
    /// The boot of the host.
    pub boot: String,
    /// When the guard started.
    pub started: Now,
}

/// Everything that a guard knows.
#[derive(Debug)]
pub struct State {
    setup: Setup,
    digest: Digest,
    ledger: Ledger,
    others: BTreeMap<HostName, Seen>,
    vip: bool,
    /// Whether the own member serves linearizable reads.
    serves: Option<bool>,
    /// Who votes in etcd; `None`: it is unknown now.
    voters: Option<Voters>,
    /// Who voted when it was last known.
    voted: Option<Voters>,
    /// How far the data of the own host goes, and the newest entries that it remembers of all members; only asked while no
    /// member serves.
    reach: (Option<Position>, Vec<Position>),
    /// The hosts that give no sign of life, each with the time since when.
    silent: BTreeMap<HostName, Duration>,
    decided: Vec<Decided>,
    hold: Option<Hold>,
    /// How fast the disk of the own member is.
    speed: Speed,
    annotated: Annotated,
    /// What else may repair a host.
    healers: BTreeMap<HostName, String>,
    repairs: Vec<RepairRecord>,
    repairing: Vec<FaultKind>,
    /// What only the metrics show.
    pub figures: Figures,
}

/// What a guard sees of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdSeen {
    /// Whether the own member serves linearizable reads.
    pub serves: bool,
    /// How many members etcd has by the policy.
    pub members: usize,
    /// How many more of those that vote now may fail before the quorum is lost.
    pub tolerated: usize,
}

impl State {
    /// At the start.
    pub fn new(setup: Setup) -> Self {
        let fresh = || Seen { since_ms: setup.started.wall_ms, ..Seen::default() };
        let others = setup.policy.others(&setup.own.name).map(|guard| (guard.name.clone(), fresh())).collect();
        let (digest, ledger) = (setup.policy.digest(), Ledger::new(setup.policy.healing.after));
        let repairs = setup.policy.healing.mode == Mode::On;
        Self {
            setup,
            digest,
            ledger,
            others,
            vip: false,
            serves: None,
            voters: None,
            voted: None,
            reach: (None, vec![]),
            silent: BTreeMap::new(),
            decided: Vec::new(),
            hold: None,
            speed: Speed::default(),
            annotated: Annotated::default(),
            healers: BTreeMap::new(),
            repairs: Vec::new(),
            repairing: Vec::new(),
            figures: if repairs { Figures::of_repairs() } else { Figures::default() },
        }
    }

    /// Records what a probe of the own host found.
    pub fn probed(&mut self, kinds: &[FaultKind], found: &[(FaultKind, String)], now: Now) -> Vec<Change> {
        self.ledger.note(&self.setup.own.name, kinds, found, now)
    }

    /// Records whether the host has the VIP.
    pub fn has_vip(&mut self, has: bool) {
        self.vip = has;
    }

    /// Records whether the own etcd member serves linearizable reads; `None`: there is none.
    pub fn serves(&mut self, serves: Option<bool>) {
        self.serves = serves;
    }

    /// Whether the own member votes by its own word: it serves linearizable reads, which a removed one does not, and is no
    /// learner.
    pub fn votes_by_own_word(&self) -> bool {
        self.serves == Some(true) && self.speed.votes
    }

    /// Whether every guard is heard, every member that votes serves, and it is known who votes: only a person changes that
    /// then.
    pub fn is_calm(&self, now: Now) -> bool {
        let all = self.heard(now).count() == self.others.len() && self.around(now).0.into_values().all(|serves| serves);
        all && self.voters.is_some() && self.votes_by_own_word()
    }

    /// Records who votes in etcd; `None`: it is unknown.
    pub fn vote(&mut self, voters: Option<Voters>) {
        self.voted = voters.clone().or(self.voted.take());
        self.voters = voters;
    }

    /// Records how far the data of the host goes, and what it remembers of all members.
    pub fn reaches(&mut self, own: Option<Position>, known: Vec<Position>) {
        self.reach = (own, known);
    }

    /// What the member list tells about the vote of the own host.
    pub fn votes(&self, now: Now) -> Votes {
        let Some(voters) = &self.voters else { return Votes::default() };
        votes::votes(&self.setup.policy, &self.setup.own.name, voters, &self.hosts(now))
    }

    fn hosts(&self, now: Now) -> votes::Around {
        let heard = self.heard(now).map(|(host, _)| host).chain([&self.setup.own.name]).cloned().collect();
        let dead = Duration::from_secs(self.setup.policy.healing.after.host_dead_s.into());
        // A person works on a host that is held.
        let held = |host: &HostName| self.annotated.hold(host).is_some();
        let is_gone =
            |(host, since): &(&HostName, &Duration)| now.steady.saturating_sub(**since) >= dead && !held(host);
        let gone = self.silent.iter().filter(is_gone);
        votes::Around { gone: gone.map(|(host, _)| host.clone()).collect(), heard }
    }

    /// What the guard sees of etcd; `None`: this host has no member, or it was not asked yet.
    pub fn etcd(&self, now: Now) -> Option<EtcdSeen> {
        let members = self.setup.policy.guards.iter().filter(|guard| guard.has_etcd()).count();
        // The list is read only where votes may move.
        let votes = self.voters.as_ref().map_or(members, |voters| voters.hosts.len() + voters.strangers);
        let serving = self.around(now).0.into_values().filter(|serves| *serves).count();
        let tolerated = serving.saturating_sub(votes / 2 + 1);
        self.serves.map(|serves| EtcdSeen { serves, members, tolerated })
    }

    /// Records how fast the disk of the own member is.
    pub fn speed(&mut self, speed: Speed) {
        self.speed = speed;
    }

    /// Records the holds by annotations.
    pub fn annotates(&mut self, annotated: Annotated) {
        self.annotated = annotated;
    }

    /// Records what else may repair hosts.
    pub fn healed_by(&mut self, healers: BTreeMap<HostName, String>, now: Now) -> Vec<Change> {
        let own = self.setup.own.name.clone();
        let found: Vec<_> = healers.get(&own).map(|by| (FaultKind::ForeignHealer, by.clone())).into_iter().collect();
        self.healers = healers;
        self.ledger.note(&own, &[FaultKind::ForeignHealer], &found, now)
    }

    /// What else may repair the own host, or, for a fault about hosts that are gone, one of them.
    pub fn healer(&self, kind: FaultKind, now: Now) -> Option<String> {
        let gone = if local_repair::is_about_others(kind) { self.hosts(now).gone } else { BTreeSet::new() };
        gone.iter().chain([&self.setup.own.name]).find_map(|host| self.healers.get(host).cloned())
    }

    /// Records what the guard does about the faults of its host.
    pub fn decides(&mut self, decided: Vec<Decided>, hold: Option<Hold>) {
        (self.decided, self.hold) = (decided, hold);
    }

    /// Records what the guard has done on its host, and what it is doing.
    pub fn repairs(&mut self, records: &[RepairRecord], now_ms: i64) {
        let recent = |record: &&RepairRecord| {
            let age_ms = now_ms.saturating_sub(record.begun_ms);
            (0..BETWEEN_MS).contains(&age_ms) && !matches!(record.outcome, Outcome::Helped(_))
        };
        self.repairing = records.iter().filter(recent).map(|record| record.kind).collect();
        self.repairs = records[records.len().saturating_sub(SHOWN)..].to_vec();
    }

    /// Whether the own host decides what to do about a fault.
    fn is_here(&self, fault: &Fault) -> bool {
        fault.host == self.setup.own.name || fault.kind == FaultKind::PowerDue
    }

    /// The raised faults that the own host decides about and that have lasted up to now.
    pub fn lasting_here(&self) -> Vec<Fault> {
        self.ledger.lasting().filter(|fault| self.is_here(fault)).cloned().collect()
    }

    /// The kinds of those that the last look found.
    pub fn seen_here(&self) -> Vec<FaultKind> {
        self.ledger.seen().filter(|fault| self.is_here(fault)).map(|fault| fault.kind).collect()
    }

    /// Until when a person holds another host: by an annotation, or as its own guard said last, milliseconds since 1970.
    fn held_until_ms(&self, host: &HostName) -> i64 {
        let said = || self.others.get(host)?.heartbeat.as_ref().map(|beat| beat.held_until_ms);
        if self.annotated.hold(host).is_some() { i64::MAX } else { said().unwrap_or(0) }
    }

    /// The hosts that are unreachable, and whose power the own host is to switch.
    pub fn silent(&self, now: Now) -> Vec<Silent> {
        let (policy, own, heard) = (&self.setup.policy, &self.setup.own.name, self.hosts(now).heard);
        let delay = Duration::from_secs(policy.healing.after.host_unreachable_s.into());
        let all = self.silent.iter().map(|(host, since)| (host, now.steady.saturating_sub(*since)));
        let due = all.filter(|(host, lasts)| *lasts >= delay && power::is_due_here(policy, own, &heard, host));
        due.map(|(host, lasts)| {
            let lasts_ms = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
            Silent {
                host: host.clone(),
                since_ms: now.wall_ms.saturating_sub(lasts_ms),
                booted_ms: self.others.get(host).map_or(0, |seen| seen.booted_ms),
                held_until_ms: self.held_until_ms(host),
                healer: self.healers.get(host).cloned(),
            }
        })
        .collect()
    }

    /// Of each host with etcd that is heard, and of the own one, whether its member serves linearizable reads; and of
    /// the others that are heard, the faults for which they have just acted.
    pub fn around(&self, now: Now) -> (BTreeMap<HostName, bool>, BTreeMap<HostName, Vec<FaultKind>>) {
        let has_etcd = |host: &HostName| self.setup.policy.guard(host).is_some_and(GuardedHost::may_vote);
        // One whose vote another host has tells nothing about the quorum.
        let votes = |host: &HostName| self.voters.as_ref().is_none_or(|voters| voters.hosts.contains(host));
        let members = self.heard(now).filter(|(host, _)| has_etcd(host) && votes(host));
        let mut etcd: BTreeMap<HostName, bool> =
            members.filter_map(|(host, beat)| Some((host.clone(), beat.etcd?))).collect();
        etcd.extend(self.serves.map(|serves| (self.setup.own.name.clone(), serves)));
        let acting = self.heard(now).filter(|(_, beat)| !beat.repairing.is_empty());
        (etcd, acting.map(|(host, beat)| (host.clone(), beat.repairing.clone())).collect())
    }

    /// The first other host that is not heard, or reports a fault that makes its components fail; only asked for reboots.
    pub fn unwell(&self, now: Now) -> Option<HostName> {
        if self.setup.policy.healing.reboot == Reboot::Never {
            return None;
        }
        let is_well = |name: &HostName| {
            let beats = self.heard(now).find(|(host, _)| *host == name).map(|(_, beat)| beat);
            beats.is_some_and(|beat| beat.faults.iter().all(|fault| fault.kind.is_warning()))
        };
        let others = self.setup.policy.others(&self.setup.own.name).map(|guard| &guard.name);
        others.into_iter().find(|name| !is_well(name)).cloned()
    }

    /// Records a heartbeat. One that is not plausible is refused, with a sentence.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn received(&mut self, from: &HostName, heartbeat: Heartbeat, now: Now) -> Result<(), String> {
        let Some(seen) = self.others.get_mut(from) else { return Err(format!("{from} has no guard by the policy")) };
        match heartbeat.plausible(from, &self.setup.policy) {
            Ok(heartbeat) => {
                seen.ahead_ms = heartbeat.now_ms.saturating_sub(now.wall_ms);
                seen.answers = true;
                if seen.heartbeat.as_ref().is_some_and(|last| last.boot != heartbeat.boot) {
                    seen.booted_ms = now.wall_ms;
                }
                (seen.heard, seen.heartbeat) = (Some(now.steady), Some(heartbeat));
                seen.refused.clear();
                Ok(())
            }
            Err(why) => {
                seen.refused = evidence(&why.to_string());
                Err(seen.refused.clone())
            }
        }
    }

    /// Records whether any port of a host answers.
    pub fn dialled(&mut self, host: &HostName, answers: bool) {
        if let Some(seen) = self.others.get_mut(host) {
            seen.answers = answers;
        }
    }

    /// Records why heartbeats do not reach a host; empty: they do. Returns whether that is news.
    pub fn sent(&mut self, host: &HostName, trouble: &str) -> bool {
        let Some(seen) = self.others.get_mut(host) else { return false };
        let trouble = evidence(trouble);
        let news = seen.unsent != trouble;
        seen.unsent = trouble;
        news
    }

    /// Whether a guard is heard now.
    pub fn hears(&self, host: &HostName, now: Now) -> bool {
        self.others.get(host).is_some_and(|seen| seen.is_heard(now))
    }

    /// Whether this guard makes an Event of a fault: of its own host, or, of others, if it is the first with an API server
    /// that is heard.
    pub fn speaks_for(&self, fault: &Fault, now: Now) -> bool {
        let own = &self.setup.own.name;
        let is_heard = |host: &HostName| host == own || self.hears(host, now);
        let of_all = fault.kind.is_of_the_cluster();
        let speaks = |guard: &&GuardedHost| {
            guard.is(Role::ControlPlane) && (of_all || guard.name != fault.host) && is_heard(&guard.name)
        };
        let first = self.setup.policy.guards.iter().find(speaks);
        // Only the guard that switches the power of a host has this fault.
        fault.kind == FaultKind::PowerDue
            || !of_all && &fault.host == own
            || first.is_some_and(|guard| &guard.name == own)
    }

    /// How the own guard sees the others; one that it has not met yet is left out for some seconds.
    fn sees(&self, now: Now) -> BTreeMap<HostName, Sight> {
        let learning = now.steady.saturating_sub(self.setup.started.steady) < LEARNING;
        let all = self.others.iter().filter(|(_, seen)| seen.heard.is_some() || !learning);
        all.map(|(host, seen)| (host.clone(), seen.sight(now))).collect()
    }

    /// Concludes what can be concluded now.
    pub fn judge(&mut self, now: Now) -> Vec<Change> {
        for seen in self.others.values_mut() {
            let sight = seen.sight(now);
            if seen.sight != Some(sight) {
                (seen.sight, seen.since_ms) = (Some(sight), now.wall_ms);
            }
        }
        let own = self.setup.own.name.clone();
        let mut sights: Sights = self.heard(now).map(|(host, beat)| (host.clone(), beat.sees.clone())).collect();
        sights.insert(own.clone(), self.sees(now));
        let mut presumed = triage::presumed(&self.setup.policy, &own, &sights);
        let silent = presumed.iter().filter(|fault| fault.kind == FaultKind::HostUnreachable);
        let silent: BTreeSet<HostName> = silent.map(|fault| fault.host.clone()).collect();
        self.silent.retain(|host, _| silent.contains(host));
        for host in silent {
            self.silent.entry(host).or_insert(now.steady);
        }
        presumed.extend(self.of_cluster(now));
        presumed.extend(self.silent(now).iter().map(|silent| self.power_due(silent)));
        let mut changes = Vec::new();
        for guard in &self.setup.policy.guards {
            let of_host = presumed.iter().filter(|fault| fault.host == guard.name);
            let found: Vec<_> = of_host.map(|fault| (fault.kind, fault.evidence.clone())).collect();
            changes.extend(self.ledger.note(&guard.name, PRESUMED, &found, now));
        }
        let found = self.compared(now);
        changes.extend(self.ledger.note(&own, BY_COMPARISON, &found, now));
        changes
    }

    /// The guards that are heard, with their last heartbeats.
    fn heard(&self, now: Now) -> impl Iterator<Item = (&HostName, &Heartbeat)> {
        let heard = self.others.iter().filter(move |(_, seen)| seen.is_heard(now));
        heard.filter_map(|(host, seen)| Some((host, seen.heartbeat.as_ref()?)))
    }

    /// A host whose power the own one is to switch, and why the last attempt failed.
    fn power_due(&self, silent: &Silent) -> Presumed {
        let host = &silent.host;
        let failed = |record: &RepairRecord| match (&record.power, &record.outcome) {
            (Some(power), Outcome::Failed(why)) if &power.host == host && record.begun_ms >= silent.since_ms => {
                Some(format!("; the last attempt failed: {why}"))
            }
            _ => None,
        };
        let plugin = self.setup.policy.switchable(host).map_or("", |(_, plugin)| plugin.as_str());
        let why = self.repairs.last().and_then(failed).unwrap_or_default();
        let evidence = format!("{} switches it by its plug-in {plugin}{why}", self.setup.own.name);
        Presumed { host: host.clone(), kind: FaultKind::PowerDue, evidence }
    }

    /// The heartbeat to send now.
    pub fn heartbeat(&self, now: Now) -> Heartbeat {
        Heartbeat {
            release: self.setup.release,
            policy: self.digest,
            boot: self.setup.boot.clone(),
            now_ms: now.wall_ms,
            faults: self.own_faults(),
            vip: self.vip,
            sees: self.sees(now),
            etcd: self.serves,
            repairing: self.repairing.clone(),
            reach: self.reach.0.clone(),
            sync_ms: self.speed.sync_ms,
            // Others read annotations themselves, and see when one is gone, also if this host is dead by then.
            held_until_ms: self
                .hold
                .as_ref()
                .filter(|hold| !hold.annotated)
                .map_or(0, |hold| hold.until_ms.unwrap_or(i64::MAX)),
        }
    }

    fn own_faults(&self) -> Vec<Fault> {
        let own = |fault: &&Fault| fault.host == self.setup.own.name && fault.kind.class() == Class::Confirmed;
        self.ledger.raised().filter(own).cloned().collect()
    }

    /// The report to write now.
    pub fn report(&self, now: Now) -> GuardReport {
        let other = |host: &HostName, seen: &Seen| Other {
            sight: seen.sight(now),
            since_ms: seen.since_ms,
            ahead_ms: seen.is_heard(now).then_some(seen.ahead_ms),
            booted_ms: seen.booted_ms,
            held_until_ms: self.held_until_ms(host),
            trouble: if seen.refused.is_empty() { seen.unsent.clone() } else { seen.refused.clone() },
        };
        GuardReport {
            host: self.setup.own.name.clone(),
            at_ms: now.wall_ms,
            started_ms: self.setup.started.wall_ms,
            release: self.setup.release,
            policy: self.digest,
            mode: self.setup.policy.healing.mode,
            own: self.own_faults(),
            presumed: self.ledger.raised().filter(|fault| fault.kind.class() == Class::Presumed).cloned().collect(),
            pending: self.ledger.pending(now),
            others: self.others.iter().map(|(host, seen)| (host.clone(), other(host, seen))).collect(),
            decided: self.decided.clone(),
            hold: self.hold.clone(),
            repairs: self.repairs.clone(),
        }
    }
}

impl Seen {
    fn is_heard(&self, now: Now) -> bool {
        self.heard.is_some_and(|heard| now.steady.saturating_sub(heard) <= MISSED)
    }
    fn sight(&self, now: Now) -> Sight {
        match (self.is_heard(now), self.answers) {
            (true, _) => Sight::Heard,
            (false, true) => Sight::Answers,
            (false, false) => Sight::Silent,
        }
    }
}
