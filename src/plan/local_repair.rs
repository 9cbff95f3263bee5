//! What a guard does about a fault of its own host: restart what is frozen, start what is stopped, and start the program
//! by which an etcd member that lost its data joins again. `power` decides about the power of other hosts.
//!
//! In: a fault that is raised and still seen, and the [`Situation`] of the host. Out: a [`Decision`], with the numbers
//! that were weighed. Pure. A step of the guard itself changes neither etcd's members nor any value, and disturbs nothing
//! that works: what it ends does not answer, and quorum does not depend on it. Only the program that it starts changes
//! members.

use super::power::{self, Silent};
use super::votes::Votes;
use crate::model::desired::Role;
use crate::model::fault::{Fault, FaultKind};
use crate::model::healing::{GuardedHost, Mode, Policy, Reboot};
use crate::model::names::HostName;
use crate::model::repair::{Decision, Delay, Gate, LocalStep, RepairRecord, Runs};
use std::collections::BTreeMap;

/// Between two attempts, milliseconds: what was started has time to answer, and the guard to see it.
pub const BETWEEN_MS: i64 = 60_000;
/// So many attempts for one kind of fault in this time, milliseconds; more wait, also if each of them helped.
pub const WINDOW_MS: i64 = 600_000;
/// A member whose keys differ again within this time is left to a person, milliseconds.
pub(super) const DAY_MS: i64 = 86_400_000;
/// After this time a component that a person stopped is started again, milliseconds.
pub const STOPPED_FOR_MS: i64 = 900_000;
/// A process younger than this may still be starting, milliseconds.
const YOUNG_MS: i64 = 30_000;
/// Without any quorum, a frozen member is restarted after this time, milliseconds.
const ALONE_MS: i64 = 60_000;
/// For so long a host that stands by leaves a free vote to the one before it, milliseconds.
const YIELDS_MS: i64 = 300_000;
/// A host is rebooted, and its power is switched, at most once in this time, milliseconds.
pub const HOUR_MS: i64 = 3_600_000;
/// Hosts with the same fault act in turns: time is divided into slots of this length, one for each host in the order of
/// the policy, milliseconds. An attempt begins in the first half of a slot; in the second half, heartbeats tell the
/// others about it.
const SLOT_MS: i64 = 4_000;

/// Everything about the host that is weighed.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The own host.
    pub own: &'a GuardedHost,
    /// Whether a person holds the host.
    pub held: bool,
    /// How the component of the fault runs; `None`: the fault is about none.
    pub runs: Option<Runs>,
    /// Each host with etcd that is heard, the own one included: whether its member serves linearizable reads.
    pub etcd: &'a BTreeMap<HostName, bool>,
    /// Another host that is not heard, or has a fault.
    pub unwell: Option<&'a HostName>,
    /// Whether the fault comes and goes.
    pub flaps: bool,
    /// What else may repair this host, or those that the fault is about.
    pub healer: Option<String>,
    /// The hosts that give no sign of life, and whose power this one may switch.
    pub silent: &'a [Silent],
    /// What the member list tells about this host's vote.
    pub votes: &'a Votes,
    /// Whether the load balancer of the host has a usable API server.
    pub usable: bool,
    /// Other hosts that are heard, with the faults for which they have just acted.
    pub repairing: &'a BTreeMap<HostName, Vec<FaultKind>>,
    /// For how long the repairs of others have held this one back, milliseconds.
    pub waited_ms: i64,
    /// What was done on this host.
    pub records: &'a [RepairRecord],
    /// Attempts before this time do not count, milliseconds since 1970.
    pub retry_ms: i64,
    /// The present, by the host's clock, milliseconds since 1970.
    pub now_ms: i64,
}

/// The step for a kind of fault; `None`: only more than one host, or a person, can repair it.
pub fn step(kind: FaultKind) -> Option<LocalStep> {
    match kind {
        FaultKind::EtcdStopped => Some(LocalStep::Start),
        FaultKind::EtcdFrozen
        | FaultKind::ApiFrozen
        | FaultKind::KubeletFrozen
        | FaultKind::NodeMissing
        | FaultKind::RuntimeFrozen
        | FaultKind::BalancerFrozen
        | FaultKind::EtcdBalancerFrozen
        | FaultKind::KeepalivedFrozen
        | FaultKind::VipMissing
        | FaultKind::VipDuplicate => Some(LocalStep::Restart),
        FaultKind::DiskFull => Some(LocalStep::FreeSpace),
        FaultKind::ClockSkew => Some(LocalStep::RestartTimeService),
        FaultKind::CertificateExpiring => Some(LocalStep::RenewCertificates),
        FaultKind::EtcdDataLost
        | FaultKind::EtcdDamaged
        | FaultKind::EtcdFenced
        | FaultKind::EtcdNotVoting
        | FaultKind::EtcdVoteFree
        | FaultKind::EtcdVotersGone
        | FaultKind::EtcdDiverged => Some(LocalStep::Rejoin),
        FaultKind::EtcdFull => Some(LocalStep::FreeEtcdSpace),
        FaultKind::EtcdSlowLeader => Some(LocalStep::HandOverLead),
        FaultKind::PowerDue => Some(LocalStep::Power),
        FaultKind::EtcdCorrupt
        | FaultKind::EtcdQuorumLost
        | FaultKind::HostUnreachable
        | FaultKind::Partitioned
        | FaultKind::GuardDown
        | FaultKind::ForeignHealer
        | FaultKind::EtcdDiskStalled
        | FaultKind::ApiCrashLoop
        | FaultKind::Flapping
        | FaultKind::NeedsUp => None,
    }
}

/// What the guard does about a fault of its host.
pub fn decide(fault: &Fault, situation: &Situation<'_>) -> Decision {
    let mode = situation.policy.healing.mode;
    let is_its = fault.host == situation.own.name || fault.kind == FaultKind::PowerDue;
    let Some(step) = step(fault.kind).filter(|_| mode == Mode::On && is_its) else {
        return Decision::Person;
    };
    if step == LocalStep::Power {
        return power::decide(fault, situation);
    }
    let held_back = |gate| Decision::HeldBack { step, gate };
    let wait = |until_ms, why| Decision::Wait { step, until_ms, why };
    if situation.held {
        return held_back(Gate::Hold);
    }
    if step == LocalStep::Rejoin && matches!(situation.runs, Some(Runs::Since(_) | Runs::Changing)) {
        return held_back(Gate::Underway);
    }
    if let Some(gate) = by_votes(fault, situation) {
        return held_back(gate);
    }
    if step == LocalStep::Rejoin && situation.flaps {
        return held_back(Gate::Flapping);
    }
    if let Some(by) = situation.healer.clone().filter(|_| is_about_others(fault.kind)) {
        return held_back(Gate::Foreign { by });
    }
    if let Some(decision) = by_attempts(step, fault, situation) {
        let gave_up = matches!(decision, Decision::GaveUp { .. });
        return if gave_up { reboot(fault, situation).unwrap_or(decision) } else { decision };
    }
    let now_ms = situation.now_ms;
    let until = |since_ms: i64, lasts_ms: i64| since_ms.saturating_add(lasts_ms);
    let later = |until_ms: i64| (until_ms > now_ms).then_some(until_ms);
    match situation.runs {
        Some(Runs::Absent) => return held_back(Gate::Absent),
        Some(Runs::Changing) => return held_back(Gate::Starting),
        Some(Runs::Disabled) => return held_back(Gate::Disabled),
        Some(Runs::Fenced) => return held_back(Gate::Fenced),
        // The program of an earlier repair.
        Some(Runs::Stopped(_) | Runs::Failed) if step == LocalStep::Rejoin => {}
        Some(Runs::Stopped(at_ms)) => {
            if let Some(until_ms) = later(until(at_ms, STOPPED_FOR_MS)) {
                return wait(until_ms, Delay::Stopped);
            }
        }
        Some(Runs::Since(at_ms)) => {
            if let Some(until_ms) = later(until(at_ms, YOUNG_MS)) {
                return wait(until_ms, Delay::Started);
            }
        }
        Some(Runs::Suspended | Runs::Failed) | None => {}
    }
    if let Some(gate) = by_others(fault, situation) {
        let known = situation.etcd.keys().filter(|host| **host != situation.own.name).count();
        let all_say_no = known + 1 == voters(situation);
        return match gate {
            gate if step == LocalStep::Rejoin => held_back(gate),
            // A member that may be needed for quorum is not needed if there is none. A host that is not heard may have it.
            Gate::Quorum { others: 0, .. } if all_say_no && now_ms.saturating_sub(fault.since_ms) >= ALONE_MS => {
                Decision::Act { step }
            }
            Gate::Quorum { others: 0, .. } if all_say_no => wait(until(fault.since_ms, ALONE_MS), Delay::NoQuorum),
            gate => held_back(gate),
        };
    }
    if takes_turns(fault.kind) && situation.runs != Some(Runs::Suspended) {
        let all_ms: i64 = situation.policy.guards.iter().map(|_| BETWEEN_MS).sum();
        let same = |kinds: &Vec<FaultKind>| kinds.contains(&fault.kind);
        // A guard that says this without end delays the others, but does not prevent them.
        if let Some((host, _)) = situation.repairing.iter().find(|(_, kinds)| same(kinds))
            && situation.waited_ms < all_ms
        {
            return held_back(Gate::Turn { host: host.clone() });
        }
        if let Some(until_ms) = turn(situation) {
            return wait(until_ms, Delay::Turn);
        }
    }
    Decision::Act { step }
}

/// Whether the step is about hosts that are gone, and not about the own member.
pub fn is_about_others(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::EtcdVoteFree | FaultKind::EtcdVotersGone)
}

/// Whether the host is rebooted, because restarts of a component did not help; `None`: the policy does not say so, it was
/// done already, or the component is one that a reboot is not worth.
fn reboot(fault: &Fault, situation: &Situation<'_>) -> Option<Decision> {
    use FaultKind::{ApiFrozen, EtcdFrozen, KubeletFrozen, RuntimeFrozen};
    let step = LocalStep::Reboot;
    let is_worth_it = matches!(fault.kind, EtcdFrozen | ApiFrozen | KubeletFrozen | RuntimeFrozen);
    if situation.policy.healing.reboot == Reboot::Never || !is_worth_it {
        return None;
    }
    let now_ms = situation.now_ms;
    let recent = |record: &&RepairRecord| {
        let age_ms = now_ms.saturating_sub(record.begun_ms);
        record.step == step && (0..HOUR_MS).contains(&age_ms) && record.begun_ms > situation.retry_ms
    };
    if situation.records.iter().any(|record| recent(&record)) {
        return None;
    }
    let held_back = |gate| Some(Decision::HeldBack { step, gate });
    let (own, policy) = (situation.own, situation.policy);
    let others = |role| policy.others(&own.name).filter(|guard| guard.is(role)).count();
    let alone = |role| own.is(role) && others(role) == 0;
    if alone(Role::ControlPlane) || alone(Role::Etcd) || alone(Role::LoadBalancer) {
        return held_back(Gate::Last);
    }
    if situation.flaps {
        return held_back(Gate::Flapping);
    }
    if let Some(by) = situation.healer.clone() {
        return held_back(Gate::Foreign { by });
    }
    if let Some(host) = situation.unwell {
        return held_back(Gate::Unwell { host: host.clone() });
    }
    if own.may_vote() {
        let serve = situation.etcd.iter().filter(|(host, serves)| **serves && **host != own.name).count();
        let needed = voters(situation).saturating_sub(1);
        if serve < needed {
            return held_back(Gate::Quorum { others: serve, needed });
        }
    }
    if let Some(host) = situation.repairing.keys().next() {
        return held_back(Gate::Turn { host: host.clone() });
    }
    match turn(situation) {
        Some(until_ms) => Some(Decision::Wait { step, until_ms, why: Delay::Turn }),
        None => Some(Decision::Act { step }),
    }
}

/// When the slot of the own host begins; `None`: now.
fn turn(situation: &Situation<'_>) -> Option<i64> {
    let places = || situation.policy.guards.iter().zip(0_i64..);
    let place = places().find(|(guard, _)| guard.name == situation.own.name).map_or(0, |(_, place)| place);
    let round_ms = SLOT_MS * places().map(|_| 1).sum::<i64>();
    let into_ms = situation.now_ms.saturating_sub(SLOT_MS * place).rem_euclid(round_ms);
    (into_ms >= SLOT_MS / 2).then(|| situation.now_ms.saturating_add(round_ms - into_ms))
}

/// Whether hosts with this fault at the same time act one after the other: their components may share the load, and be
/// slow by it. A member that is defragmented answers nothing meanwhile.
fn takes_turns(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::EtcdFrozen | FaultKind::EtcdFull | FaultKind::ApiFrozen)
}

/// Whether earlier attempts prevent or delay this one.
fn by_attempts(step: LocalStep, fault: &Fault, situation: &Situation<'_>) -> Option<Decision> {
    let now_ms = situation.now_ms;
    // A record from the future was written before the clock was set back.
    let counts = |record: &&RepairRecord| {
        record.kind == fault.kind && record.begun_ms > situation.retry_ms && record.begun_ms <= now_ms
    };
    let attempts: Vec<i64> = situation.records.iter().filter(counts).map(|record| record.begun_ms).collect();
    let for_this = attempts.iter().filter(|begun_ms| **begun_ms >= fault.since_ms).count();
    if for_this >= step.tries(fault.kind) {
        return Some(Decision::GaveUp { step, tries: for_this });
    }
    // Each time, no member accepts writes.
    let of_the_day = attempts.iter().filter(|begun_ms| **begun_ms > now_ms.saturating_sub(DAY_MS)).count();
    if fault.kind == FaultKind::EtcdDiverged && of_the_day >= step.tries(fault.kind) {
        return Some(Decision::GaveUp { step, tries: of_the_day });
    }
    let mut latest = attempts.iter().rev();
    let last_ms = latest.clone().next()?.saturating_add(BETWEEN_MS);
    let oldest_ms =
        latest.nth(step.tries(fault.kind) - 1).map_or(i64::MIN, |begun_ms| begun_ms.saturating_add(WINDOW_MS));
    let until_ms = last_ms.max(oldest_ms);
    (until_ms > now_ms).then_some(Decision::Wait { step, until_ms, why: Delay::Attempts })
}

/// Whether the votes of other hosts prevent the step.
fn by_votes(fault: &Fault, situation: &Situation<'_>) -> Option<Gate> {
    if fault.kind == FaultKind::EtcdVoteFree {
        // One that does not take it over, although it could, is not waited for without end.
        let first = situation.votes.free.as_ref()?.by.clone().filter(|_| situation.waited_ms < YIELDS_MS);
        return first.map(|host| Gate::Turn { host });
    }
    let of = situation.votes.taken.filter(|_| step(fault.kind) == Some(LocalStep::Rejoin))?;
    Some(Gate::Votes { of })
}

/// How many members vote; if the list is not known, how many should.
pub(super) fn voters(situation: &Situation<'_>) -> usize {
    let by_policy = || situation.policy.guards.iter().filter(|guard| guard.has_etcd()).count();
    situation.votes.listed.unwrap_or_else(by_policy)
}

/// Whether the state of etcd, or of the load balancer, prevents the step.
fn by_others(fault: &Fault, situation: &Situation<'_>) -> Option<Gate> {
    let serves = |(host, serves): &(&HostName, &bool)| **serves && **host != situation.own.name;
    let others = situation.etcd.iter().filter(serves).count();
    match fault.kind {
        FaultKind::EtcdFrozen if situation.runs != Some(Runs::Suspended) => {
            let needed = voters(situation) / 2 + 1;
            (others < needed).then_some(Gate::Quorum { others, needed })
        }
        // Its own member is one of those that have a quorum.
        FaultKind::EtcdVotersGone => {
            let needed = voters(situation) / 2;
            (others < needed).then_some(Gate::Quorum { others, needed })
        }
        // Without it, the others have to be a quorum of all but one.
        // After a recovery without this host, the list may name a single other member; the program reads it.
        FaultKind::EtcdFenced => (others == 0).then_some(Gate::Quorum { others, needed: 1 }),
        kind if step(kind) == Some(LocalStep::Rejoin) => {
            let needed = voters(situation).saturating_sub(1) / 2 + 1;
            (others < needed).then_some(Gate::Quorum { others, needed })
        }
        FaultKind::ApiFrozen | FaultKind::EtcdFull if situation.runs != Some(Runs::Suspended) => {
            (!situation.etcd.values().any(|serves| *serves)).then_some(Gate::NoQuorum)
        }
        FaultKind::VipMissing => (!situation.usable).then_some(Gate::NotUsable),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
