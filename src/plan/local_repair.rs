//! What a guard does about a fault of its own host: restart what is frozen, start what is stopped, and start the program
//! by which an etcd member that lost its data joins again.
//!
//! In: a fault that is raised and still seen, and the [`Situation`] of the host. Out: a [`Decision`], with the numbers
//! that were weighed. Pure. A step of the guard itself changes neither etcd's members nor any value, and disturbs nothing
//! that works: what it ends does not answer, and quorum does not depend on it. Only the program that it starts changes
//! members.

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
const DAY_MS: i64 = 86_400_000;
/// After this time a component that a person stopped is started again, milliseconds.
pub const STOPPED_FOR_MS: i64 = 900_000;
/// A process younger than this may still be starting, milliseconds.
const YOUNG_MS: i64 = 30_000;
/// Without any quorum, a frozen member is restarted after this time, milliseconds.
const ALONE_MS: i64 = 60_000;
/// For so long a host that stands by leaves a free vote to the one before it, milliseconds.
const YIELDS_MS: i64 = 300_000;
/// A host is rebooted at most once in this time, milliseconds.
const REBOOT_EVERY_MS: i64 = 3_600_000;
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
        FaultKind::EtcdCorrupt
        | FaultKind::HostUnreachable
        | FaultKind::Partitioned
        | FaultKind::GuardDown
        | FaultKind::NeedsUp => None,
    }
}

/// What the guard does about a fault of its host.
pub fn decide(fault: &Fault, situation: &Situation<'_>) -> Decision {
    let mode = situation.policy.healing.mode;
    let Some(step) = step(fault.kind).filter(|_| mode == Mode::On && fault.host == situation.own.name) else {
        return Decision::Person;
    };
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
        record.step == step && (0..REBOOT_EVERY_MS).contains(&age_ms) && record.begun_ms > situation.retry_ms
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

/// How many members etcd should have.
fn voters(situation: &Situation<'_>) -> usize {
    situation.policy.guards.iter().filter(|guard| guard.has_etcd()).count()
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
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::repair::Outcome;
    use crate::plan::votes::Free;
    use proptest::prelude::*;

    /// The first host's turn begins.
    const NOW: i64 = 833_333 * 12_000;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn policy(mode: Mode) -> Policy {
        let mut desired = sample(3);
        desired.healing.mode = mode;
        Policy::of(&desired)
    }

    fn fault(kind: FaultKind) -> Fault {
        Fault { host: name("cp1"), kind, since_ms: NOW - 40_000, evidence: String::new() }
    }

    fn record(kind: FaultKind, begun_ms: i64) -> RepairRecord {
        RepairRecord { kind, step: step(kind).unwrap(), begun_ms, after_ms: 0, outcome: Outcome::Done }
    }

    /// What a [`Situation`] refers to.
    struct World {
        policy: Policy,
        own: usize,
        held: bool,
        runs: Runs,
        etcd: BTreeMap<HostName, bool>,
        usable: bool,
        unwell: Option<HostName>,
        votes: Votes,
        repairing: BTreeMap<HostName, Vec<FaultKind>>,
        waited_ms: i64,
        records: Vec<RepairRecord>,
        retry_ms: i64,
        now_ms: i64,
    }

    /// Each member, and whether it is one of those that serve reads.
    fn members(all: &[&str], serve: &[&str]) -> BTreeMap<HostName, bool> {
        all.iter().map(|host| (name(host), serve.contains(host))).collect()
    }

    /// The decision in a world in which every step is taken, once `change` has spoilt it.
    fn decided(mode: Mode, fault: &Fault, change: impl FnOnce(&mut World)) -> Decision {
        let mut world = World {
            policy: policy(mode),
            own: 0,
            held: false,
            runs: Runs::Since(NOW - 1_000_000),
            etcd: members(&["cp1", "cp2", "cp3"], &["cp2", "cp3"]),
            usable: true,
            unwell: None,
            votes: Votes::default(),
            repairing: BTreeMap::new(),
            waited_ms: 0,
            records: vec![],
            retry_ms: i64::MIN,
            now_ms: NOW,
        };
        change(&mut world);
        let situation = Situation {
            policy: &world.policy,
            own: &world.policy.guards[world.own],
            held: world.held,
            runs: Some(world.runs),
            etcd: &world.etcd,
            usable: world.usable,
            unwell: world.unwell.as_ref(),
            votes: &world.votes,
            repairing: &world.repairing,
            waited_ms: world.waited_ms,
            records: &world.records,
            retry_ms: world.retry_ms,
            now_ms: world.now_ms,
        };
        decide(fault, &situation)
    }

    fn on(kind: FaultKind, change: impl FnOnce(&mut World)) -> Decision {
        decided(Mode::On, &fault(kind), change)
    }

    fn held_back(gate: Gate) -> Decision {
        Decision::HeldBack { step: LocalStep::Restart, gate }
    }

    const RESTART: Decision = Decision::Act { step: LocalStep::Restart };

    #[test]
    fn each_kind_has_its_step_and_others_are_for_a_person() {
        for kind in FaultKind::ALL {
            let expected = step(*kind).map_or(Decision::Person, |step| Decision::Act { step });
            // The program by which a member joins again does not run yet.
            let idle = |world: &mut World| {
                if step(*kind) == Some(LocalStep::Rejoin) {
                    world.runs = Runs::Stopped(NOW);
                }
            };
            assert_eq!(on(*kind, idle), expected, "{kind}");
            assert_eq!(decided(Mode::Watch, &fault(*kind), |_| ()), Decision::Person, "{kind}: guards only watch");
            let of_another = Fault { host: name("cp2"), ..fault(*kind) };
            assert_eq!(decided(Mode::On, &of_another, |_| ()), Decision::Person, "{kind}: of another host");
        }
    }

    #[test]
    fn a_member_joins_again_only_while_the_others_are_a_quorum_of_those_that_would_be_left() {
        let step = LocalStep::Rejoin;
        for kind in FaultKind::ALL.iter().copied().filter(|kind| super::step(*kind) == Some(step)) {
            let with = |change: &dyn Fn(&mut World)| {
                on(kind, |world| {
                    world.runs = Runs::Failed;
                    change(world);
                })
            };
            assert_eq!(with(&|_| ()), Decision::Act { step });
            let serve = |others: [bool; 2]| {
                with(&|world| {
                    world.etcd = [("cp1", false), ("cp2", others[0]), ("cp3", others[1])]
                        .map(|(host, serves)| (name(host), serves))
                        .into();
                })
            };
            assert_eq!(serve([true, true]), Decision::Act { step });
            let needed = if kind == FaultKind::EtcdFenced { 1 } else { 2 };
            let one = if needed == 1 {
                Decision::Act { step }
            } else {
                Decision::HeldBack { step, gate: Gate::Quorum { others: 1, needed } }
            };
            assert_eq!(serve([true, false]), one, "{kind}");
            // Unlike a frozen member, it is never started without a quorum, however long there is none.
            let gate = Gate::Quorum { others: 0, needed };
            assert_eq!(serve([false, false]), Decision::HeldBack { step, gate });
            let under_way = Decision::HeldBack { step, gate: Gate::Underway };
            assert_eq!(with(&|world| world.runs = Runs::Since(NOW)), under_way);
            assert_eq!(with(&|world| world.held = true), Decision::HeldBack { step, gate: Gate::Hold });
            let tried = |times: i64| {
                with(&|world| {
                    let at = |n| record(kind, NOW - 39_000 + n);
                    world.records = (0..times).map(at).collect();
                })
            };
            assert!(matches!(tried(1), Decision::Wait { why: Delay::Attempts, .. }), "{:?}", tried(1));
            let tries = step.tries(kind);
            assert!(tries >= 2);
            assert_eq!(tried(i64::try_from(tries).unwrap()), Decision::GaveUp { step, tries }, "{kind}");
        }
    }

    #[test]
    fn a_host_is_rebooted_once_restarts_did_not_help_and_every_other_host_is_well() {
        let kind = FaultKind::KubeletFrozen;
        let step = LocalStep::Reboot;
        let since_ms = NOW - 400_000;
        let of = |kind: FaultKind, change: &dyn Fn(&mut World)| {
            let fault = Fault { since_ms, ..fault(kind) };
            decided(Mode::On, &fault, |world| {
                world.policy.healing.reboot = Reboot::Systemd;
                world.records = [300_000, 200_000, 100_000].map(|ago| record(kind, NOW - ago)).into();
                change(world);
            })
        };
        assert_eq!(of(kind, &|_| ()), Decision::Act { step });
        let gave_up = |tries| Decision::GaveUp { step: LocalStep::Restart, tries };
        assert_eq!(of(kind, &|world| world.policy.healing.reboot = Reboot::Never), gave_up(3));
        assert_eq!(of(FaultKind::BalancerFrozen, &|_| ()), gave_up(3), "another host has the VIP");
        let earlier = |ago: i64| RepairRecord { step, ..record(FaultKind::RuntimeFrozen, NOW - ago) };
        assert_eq!(of(kind, &|world| world.records.push(earlier(REBOOT_EVERY_MS - 1))), gave_up(3), "not twice");
        assert_eq!(of(kind, &|world| world.records.push(earlier(REBOOT_EVERY_MS))), Decision::Act { step });
        assert_eq!(of(kind, &|world| world.held = true), held_back(Gate::Hold));
        let held = |gate| Decision::HeldBack { step, gate };
        assert_eq!(of(kind, &|world| world.unwell = Some(name("cp3"))), held(Gate::Unwell { host: name("cp3") }));
        let two = |world: &mut World| world.etcd = members(&["cp1", "cp2", "cp3"], &["cp1", "cp2"]);
        assert_eq!(of(kind, &two), held(Gate::Quorum { others: 1, needed: 2 }), "all others have to serve");
        let busy = |world: &mut World| world.repairing = [(name("cp2"), vec![FaultKind::DiskFull])].into();
        assert_eq!(of(kind, &busy), held(Gate::Turn { host: name("cp2") }));
        assert_eq!(of(kind, &|world| world.policy.guards.truncate(1)), held(Gate::Last));
        let later = of(kind, &|world| world.now_ms = NOW + SLOT_MS / 2);
        assert!(matches!(later, Decision::Wait { why: Delay::Turn, .. }), "{later:?}");
    }

    #[test]
    fn a_host_without_a_vote_joins_only_if_one_is_free_for_it() {
        let step = LocalStep::Rejoin;
        let with = |kind, taken, free: Option<Option<HostName>>, waited_ms| {
            on(kind, |world| {
                (world.runs, world.waited_ms) = (Runs::Failed, waited_ms);
                world.votes = Votes { taken, free: free.map(|by| Free { of: name("cp3"), by }) };
            })
        };
        for kind in [FaultKind::EtcdNotVoting, FaultKind::EtcdDataLost, FaultKind::EtcdFenced] {
            let all_taken = Decision::HeldBack { step, gate: Gate::Votes { of: 3 } };
            assert_eq!(with(kind, Some(3), None, 0), all_taken);
            assert_eq!(with(kind, Some(3), Some(None), 0), all_taken, "{kind} does not wait as long as a free vote");
            assert_eq!(with(kind, None, None, 0), Decision::Act { step });
        }
        let kind = FaultKind::EtcdVoteFree;
        assert_eq!(with(kind, Some(3), Some(None), 0), Decision::Act { step });
        let other = Some(Some(name("cp2")));
        let turn = Decision::HeldBack { step, gate: Gate::Turn { host: name("cp2") } };
        assert_eq!(with(kind, Some(3), other.clone(), YIELDS_MS - 1), turn);
        assert_eq!(with(kind, Some(3), other, YIELDS_MS), Decision::Act { step });
    }

    #[test]
    fn a_hold_and_how_the_component_runs_hold_a_step_back() {
        let kind = FaultKind::KubeletFrozen;
        let runs = |runs| on(kind, |world| world.runs = runs);
        assert_eq!(on(kind, |world| world.held = true), held_back(Gate::Hold));
        assert_eq!(runs(Runs::Disabled), held_back(Gate::Disabled));
        assert_eq!(runs(Runs::Absent), held_back(Gate::Absent));
        assert_eq!(runs(Runs::Changing), held_back(Gate::Starting));
        assert_eq!(runs(Runs::Fenced), held_back(Gate::Fenced));
        for due in [Runs::Suspended, Runs::Failed, Runs::Stopped(NOW - STOPPED_FOR_MS)] {
            assert_eq!(runs(due), RESTART, "{due:?}");
        }
        let wait = |until_ms, why| Decision::Wait { step: LocalStep::Restart, until_ms, why };
        assert_eq!(runs(Runs::Stopped(NOW - 1000)), wait(NOW - 1000 + STOPPED_FOR_MS, Delay::Stopped));
        assert_eq!(runs(Runs::Since(NOW - 1000)), wait(NOW - 1000 + YOUNG_MS, Delay::Started));
    }

    #[test]
    fn a_member_that_may_be_needed_for_quorum_is_not_restarted_unless_it_is_suspended() {
        let kind = FaultKind::EtcdFrozen;
        let serving = |hosts: &[&str], runs, since_ms| {
            let fault = Fault { since_ms, ..fault(kind) };
            let etcd = members(&["cp1", "cp2", "cp3"], hosts);
            decided(Mode::On, &fault, |world| (world.etcd, world.runs) = (etcd, runs))
        };
        let (old, long) = (Runs::Since(0), NOW - 40_000);
        assert_eq!(serving(&["cp2", "cp3"], old, long), RESTART);
        assert_eq!(serving(&["cp2"], old, long), held_back(Gate::Quorum { others: 1, needed: 2 }));
        assert_eq!(serving(&["cp2"], Runs::Suspended, long), RESTART, "it serves nobody");
        assert_eq!(serving(&["cp1", "cp2"], old, long), held_back(Gate::Quorum { others: 1, needed: 2 }));
        let wait = Decision::Wait { step: LocalStep::Restart, until_ms: long + ALONE_MS, why: Delay::NoQuorum };
        assert_eq!(serving(&[], old, long), wait, "without any quorum it is not needed for one, but not at once");
        assert_eq!(serving(&[], old, NOW - ALONE_MS), RESTART);
        let unheard = Fault { since_ms: NOW - 10 * ALONE_MS, ..fault(kind) };
        let unheard = decided(Mode::On, &unheard, |world| world.etcd = members(&["cp1", "cp3"], &[]));
        assert_eq!(
            unheard,
            held_back(Gate::Quorum { others: 0, needed: 2 }),
            "cp2 is not heard, and may have a quorum"
        );
    }

    #[test]
    fn a_cause_elsewhere_is_not_repaired_here() {
        let no_quorum = |kind| on(kind, |world| world.etcd = members(&["cp1", "cp2"], &[]));
        assert_eq!(no_quorum(FaultKind::ApiFrozen), held_back(Gate::NoQuorum));
        let step = LocalStep::FreeEtcdSpace;
        assert_eq!(no_quorum(FaultKind::EtcdFull), Decision::HeldBack { step, gate: Gate::NoQuorum });
        assert_eq!(on(FaultKind::VipMissing, |world| world.usable = false), held_back(Gate::NotUsable));
        assert_eq!(on(FaultKind::KeepalivedFrozen, |world| world.usable = false), RESTART);
    }

    #[test]
    fn hosts_with_the_same_fault_take_turns_and_one_that_says_so_without_end_only_delays() {
        let kind = FaultKind::ApiFrozen;
        let busy = || BTreeMap::from([(name("cp2"), vec![kind])]);
        assert_eq!(on(kind, |world| world.repairing = busy()), held_back(Gate::Turn { host: name("cp2") }));
        assert_eq!(on(FaultKind::KubeletFrozen, |world| world.repairing = busy()), RESTART);
        let suspended = on(kind, |world| (world.repairing, world.runs) = (busy(), Runs::Suspended));
        assert_eq!(suspended, RESTART);
        // Of each round, the third host begins in its last third only.
        let round_ms = 3 * SLOT_MS;
        let begins_ms = NOW - NOW % round_ms + 2 * SLOT_MS;
        let of_third = Fault { host: name("cp3"), ..fault(kind) };
        for into_ms in (0..round_ms).step_by(500) {
            let now_ms = begins_ms + into_ms;
            let decision = decided(Mode::On, &of_third, |world| (world.own, world.now_ms) = (2, now_ms));
            let until_ms = begins_ms + round_ms;
            let wait = Decision::Wait { step: LocalStep::Restart, until_ms, why: Delay::Turn };
            assert_eq!(
                decision,
                if into_ms < SLOT_MS / 2 { RESTART } else { wait },
                "{into_ms} ms after its turn began"
            );
        }
        let long = on(kind, |world| (world.repairing, world.waited_ms) = (busy(), 3 * BETWEEN_MS));
        assert_eq!(long, RESTART);
    }

    #[test]
    fn a_member_whose_keys_differ_for_the_third_time_in_a_day_is_left_to_a_person() {
        let step = LocalStep::Rejoin;
        let of = |kind: FaultKind, hours_ago: &[i64]| {
            on(kind, |world| {
                world.runs = Runs::Failed;
                world.records = hours_ago.iter().map(|hours| record(kind, NOW - hours * 3_600_000)).collect();
            })
        };
        assert_eq!(of(FaultKind::EtcdDiverged, &[20, 5]), Decision::GaveUp { step, tries: 2 });
        assert_eq!(of(FaultKind::EtcdDiverged, &[30, 5]), Decision::Act { step });
        assert_eq!(of(FaultKind::EtcdDataLost, &[20, 5, 1]), Decision::Act { step }, "lost data harms nobody else");
    }

    #[test]
    fn attempts_are_a_minute_apart_and_given_up_after_three_until_a_person_says_again() {
        let kind = FaultKind::RuntimeFrozen;
        let since_ms = NOW - 200_000;
        let of = |begun: &[i64], retry_ms| {
            let records: Vec<RepairRecord> = begun.iter().map(|begun_ms| record(kind, *begun_ms)).collect();
            let fault = Fault { since_ms, ..fault(kind) };
            decided(Mode::On, &fault, |world| (world.records, world.retry_ms) = (records, retry_ms))
        };
        let wait = |until_ms| Decision::Wait { step: LocalStep::Restart, until_ms, why: Delay::Attempts };
        assert_eq!(of(&[NOW - 10_000], i64::MIN), wait(NOW - 10_000 + BETWEEN_MS));
        assert_eq!(of(&[NOW - 70_000], i64::MIN), RESTART);
        let three = [NOW - 190_000, NOW - 130_000, NOW - 70_000];
        assert_eq!(of(&three, i64::MIN), Decision::GaveUp { step: LocalStep::Restart, tries: 3 });
        assert_eq!(of(&three, NOW - 5_000), RESTART, "a person has mended the cause");
        // Each of these helped, but the component freezes again and again.
        let before = [NOW - 500_000, NOW - 400_000, NOW - 300_000];
        assert_eq!(of(&before, i64::MIN), wait(NOW - 500_000 + WINDOW_MS));
        assert_eq!(of(&[NOW + 900_000; 3], i64::MIN), RESTART, "the clock was set back");
        let once =
            |begun_ms| on(FaultKind::DiskFull, |world| world.records = vec![record(FaultKind::DiskFull, begun_ms)]);
        assert_eq!(once(NOW - 10_000), Decision::GaveUp { step: LocalStep::FreeSpace, tries: 1 });
    }

    fn runs() -> impl Strategy<Value = Runs> {
        prop_oneof![
            (0..NOW).prop_map(Runs::Since),
            Just(Runs::Suspended),
            Just(Runs::Changing),
            (0..NOW).prop_map(Runs::Stopped),
            Just(Runs::Failed),
            Just(Runs::Disabled),
            Just(Runs::Fenced),
            Just(Runs::Absent),
        ]
    }

    proptest! {
        /// A guard that acts as often as it may, whatever the world looks like each second: at most three steps of one
        /// kind in ten minutes, a minute between two; none while the host is held, for a disabled unit, or for a member
        /// that runs and may be needed for quorum.
        #[test]
        fn no_world_makes_a_guard_act_more_often_than_it_may(
            kind in prop::sample::select(FaultKind::ALL),
            looks in prop::collection::vec((1_000_i64..90_000, runs(), any::<bool>(), 0_usize..3), 1..60),
            since_ms in 0_i64..NOW,
        ) {
            let fault = Fault { since_ms, ..fault(kind) };
            let (mut records, mut now_ms) = (Vec::<RepairRecord>::new(), NOW);
            for (pause_ms, runs, held, serving) in looks {
                now_ms += pause_ms;
                let decision = decided(Mode::On, &fault, |world| {
                    (world.records, world.now_ms, world.held, world.runs) = (records.clone(), now_ms, held, runs);
                    world.etcd = members(&["cp2", "cp3"], &["cp2", "cp3"][..serving]);
                });
                if let Decision::Act { step } = decision {
                    prop_assert!(!held && runs != Runs::Disabled && runs != Runs::Changing);
                    let needed = kind == FaultKind::EtcdFrozen && runs != Runs::Suspended && serving == 1;
                    prop_assert!(!needed, "{runs:?}");
                    let record = RepairRecord { kind, step, begun_ms: now_ms, after_ms: 0, outcome: Outcome::Done };
                    records.push(record);
                }
            }
            let begun: Vec<i64> = records.iter().map(|record| record.begun_ms).collect();
            prop_assert!(begun.len() <= 3, "one fault is given up after three steps: {begun:?}");
            prop_assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= BETWEEN_MS), "{begun:?}");
        }
    }
}
