//! Tests of when a guard switches the power of a host.

use super::super::local_repair::decide as decide_any;
use super::*;
use crate::model::desired::sample;
use crate::model::fault::FaultKind;
use crate::model::healing::{Mode, Reboot};
use crate::model::repair::Outcome;
use crate::model::repair::Power;
use crate::plan::votes::Votes;
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: i64 = 1_700_000_000_000;
const MINUTE: i64 = 60_000;
const STEP: LocalStep = LocalStep::Power;
/// By default, a host is unreachable after three minutes and dead after ten.
const DEAD: i64 = 10 * MINUTE + AGREED_MS;

fn name(host: usize) -> HostName {
    format!("cp{host}").parse().unwrap()
}

/// Hosts that may vote, each with a plug-in.
fn policy(hosts: u8) -> Policy {
    let mut desired = sample(hosts);
    (desired.healing.mode, desired.healing.reboot) = (Mode::On, Reboot::Power);
    for host in &mut desired.hosts {
        host.power = Some("bmc".parse().unwrap());
    }
    Policy::of(&desired)
}

/// What a [`Situation`] refers to: cp3 gives no sign of life.
struct World {
    policy: Policy,
    held: bool,
    runs: Runs,
    serve: Vec<usize>,
    silent: Silent,
    records: Vec<RepairRecord>,
    retry_ms: i64,
    now_ms: i64,
}

fn record(ago: i64, switched: Switched) -> RepairRecord {
    let outcome = if switched == Switched::Nothing { Outcome::Failed("x".to_owned()) } else { Outcome::Done };
    let power = Some(Power { host: name(3), switched });
    RepairRecord { kind: FaultKind::PowerDue, step: STEP, begun_ms: NOW - ago, after_ms: 0, outcome, power }
}

/// The decision in a world in which the power is switched, once `change` has spoilt it.
fn decided(change: impl FnOnce(&mut World)) -> Decision {
    let mut world = World {
        policy: policy(3),
        held: false,
        runs: Runs::Stopped(NOW),
        serve: vec![1, 2],
        silent: Silent { host: name(3), since_ms: NOW - 4 * MINUTE, booted_ms: 0, held_until_ms: 0, healer: None },
        records: vec![],
        retry_ms: i64::MIN,
        now_ms: NOW,
    };
    change(&mut world);
    let etcd: BTreeMap<_, _> = world.serve.iter().map(|host| (name(*host), true)).collect();
    let situation = Situation {
        policy: &world.policy,
        own: &world.policy.guards[0],
        held: world.held,
        runs: Some(world.runs),
        etcd: &etcd,
        usable: true,
        unwell: None,
        flaps: false,
        healer: None,
        silent: std::slice::from_ref(&world.silent),
        votes: &Votes::default(),
        repairing: &BTreeMap::new(),
        waited_ms: 0,
        records: &world.records,
        retry_ms: world.retry_ms,
        now_ms: world.now_ms,
    };
    let fault = Fault { host: name(3), kind: FaultKind::PowerDue, since_ms: NOW, evidence: String::new() };
    decide_any(&fault, &situation)
}

fn with(records: &[RepairRecord]) -> Decision {
    decided(|world| world.records = records.to_vec())
}

const ACT: Decision = Decision::Act { step: STEP };

fn wait(until_ms: i64, why: Delay) -> Decision {
    Decision::Wait { step: STEP, until_ms, why }
}

fn held_back(gate: Gate) -> Decision {
    Decision::HeldBack { step: STEP, gate }
}

#[test]
fn the_first_host_that_may_vote_and_is_heard_acts_but_never_for_itself() {
    let policy = policy(5);
    let acts = |own: usize, heard: &[usize], host: usize| {
        is_due_here(&policy, &name(own), &heard.iter().map(|host| name(*host)).collect(), &name(host))
    };
    assert!(acts(1, &[1, 2, 3, 4], 5) && !acts(2, &[1, 2, 3, 4], 5));
    assert!(acts(2, &[2, 3, 4, 5], 1), "the first one is gone");
    assert!(acts(2, &[2, 3, 4], 5), "the first one is not heard");
    assert!(!acts(1, &[1, 2, 3], 1) && acts(2, &[1, 2, 3], 1), "also if it is heard after all");
    let mut some = policy.clone();
    some.guards[4].power = None;
    some.guards[0].roles.retain(|role| *role != crate::model::desired::Role::Etcd);
    let acts = |own: usize, host: usize| is_due_here(&some, &name(own), &(1..=5).map(name).collect(), &name(host));
    assert!(!acts(1, 4) && acts(2, 4), "cp1 may not vote");
    assert!(!acts(2, 5), "cp5 has no plug-in");
    for (mode, reboot) in [(Mode::On, Reboot::Systemd), (Mode::Watch, Reboot::Power)] {
        let mut other = policy.clone();
        (other.healing.mode, other.healing.reboot) = (mode, reboot);
        assert!(!is_due_here(&other, &name(1), &(1..=4).map(name).collect(), &name(5)), "{reboot:?}");
    }
}

#[test]
fn a_person_a_program_that_runs_and_a_missing_quorum_hold_it_back() {
    assert_eq!(decided(|_| ()), ACT);
    assert_eq!(decided(|world| world.held = true), held_back(Gate::Hold));
    assert_eq!(decided(|world| world.silent.held_until_ms = NOW + 1), held_back(Gate::Hold), "its guard said so");
    assert_eq!(decided(|world| world.silent.held_until_ms = NOW), ACT, "the hold is over");
    let by = "Cluster API".to_owned();
    assert_eq!(decided(|world| world.silent.healer = Some(by.clone())), held_back(Gate::Foreign { by: by.clone() }));
    assert_eq!(decided(|world| world.runs = Runs::Since(NOW - MINUTE)), held_back(Gate::Underway));
    assert_eq!(decided(|world| world.runs = Runs::Disabled), held_back(Gate::Disabled));
    assert_eq!(decided(|world| world.runs = Runs::Absent), held_back(Gate::Absent));
    let quorum = |others| held_back(Gate::Quorum { others, needed: 2 });
    assert_eq!(decided(|world| world.serve = vec![1]), quorum(1));
    assert_eq!(decided(|world| world.serve = vec![1, 3]), quorum(1), "its own member does not count");
    assert_eq!(decided(|world| world.policy.healing.mode = Mode::Watch), Decision::Person);
    assert_eq!(decided(|world| world.silent.host = name(2)), Decision::Person, "it is heard again");
}

#[test]
fn a_host_whose_power_is_on_is_left_alone_until_it_counts_as_dead_and_has_had_an_hour_to_boot() {
    let left = |silent_for: i64, booted_ago: i64| {
        decided(|world| {
            world.silent.since_ms = NOW - silent_for;
            world.silent.booted_ms = if booted_ago == 0 { 0 } else { NOW - booted_ago };
            world.records = vec![record(2 * MINUTE, Switched::LeftOn)];
        })
    };
    assert_eq!(left(4 * MINUTE, 0), wait(NOW - 4 * MINUTE + DEAD, Delay::Boot));
    assert_eq!(left(DEAD, 0), ACT);
    assert_eq!(left(DEAD, 20 * MINUTE), wait(NOW + 40 * MINUTE, Delay::Boot), "it has booted 20 minutes ago");
    assert_eq!(left(DEAD, 60 * MINUTE), ACT);
    let standby = decided(|world| {
        world.policy.guards[1].standby = true;
        world.silent.since_ms = NOW - DEAD;
        world.records = vec![record(2 * MINUTE, Switched::LeftOn)];
    });
    assert_eq!(standby, wait(NOW + STANDBY_FIRST_MS, Delay::Boot), "the host that stands by goes first");
    // That of an earlier silence says nothing.
    let earlier = decided(|world| {
        world.silent.since_ms = NOW - MINUTE;
        world.records = vec![record(2 * MINUTE, Switched::LeftOn)];
    });
    assert_eq!(earlier, ACT);
}

#[test]
fn power_is_switched_once_an_hour_and_twice_in_all_until_a_person_says_again() {
    for switched in [Switched::On, Switched::Cycled] {
        assert_eq!(with(&[record(10 * MINUTE, switched)]), wait(NOW + 50 * MINUTE, Delay::Switched), "{switched:?}");
        assert_eq!(with(&[record(60 * MINUTE, switched)]), ACT);
    }
    let twice = [record(130 * MINUTE, Switched::On), record(65 * MINUTE, Switched::Cycled)];
    assert_eq!(with(&twice), Decision::GaveUp { step: STEP, tries: 2 });
    let again = decided(|world| (world.records, world.retry_ms) = (twice.to_vec(), NOW - MINUTE));
    assert_eq!(again, ACT);
    let long_ago = [record(DAY_MS + 2 * MINUTE, Switched::On), record(DAY_MS + MINUTE, Switched::On)];
    assert_eq!(with(&long_ago), ACT, "another day, another silence");
    let still = decided(|world| {
        (world.records, world.silent.since_ms) = (long_ago.to_vec(), NOW - DAY_MS - 9 * MINUTE);
    });
    assert_eq!(still, Decision::GaveUp { step: STEP, tries: 2 }, "it is the same silence");
    let other = RepairRecord {
        power: Some(Power { host: name(2), switched: Switched::On }),
        ..record(10 * MINUTE, Switched::On)
    };
    assert_eq!(with(&[other]), ACT, "that was another host");
}

#[test]
fn a_host_that_was_left_off_is_switched_on_without_the_rest_of_an_hour() {
    for switched in [Switched::Off, Switched::Unknown] {
        assert_eq!(with(&[record(MINUTE, switched)]), ACT, "{switched:?}");
        assert_eq!(with(&[record(MINUTE - 1, switched)]), wait(NOW + 1, Delay::Attempts));
        assert!(was_switched([record(MINUTE, switched)].iter(), &name(3), NOW), "and not off again");
        assert!(!was_switched([record(MINUTE, switched)].iter(), &name(2), NOW));
        assert!(!was_switched([record(60 * MINUTE, switched)].iter(), &name(3), NOW));
    }
    assert!(!was_switched([record(MINUTE, Switched::LeftOn)].iter(), &name(3), NOW));
}

#[test]
fn attempts_that_did_nothing_become_rarer_and_are_never_given_up() {
    let failed = |times: i64| {
        decided(|world| {
            world.silent.since_ms = NOW - 1000 * MINUTE;
            world.records = (0..times).rev().map(|n| record(10 + n, Switched::Nothing)).collect();
        })
    };
    for (times, minutes) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (50, 60)] {
        assert_eq!(failed(times), wait(NOW - 10 + minutes * MINUTE, Delay::Attempts), "{times}");
    }
}

fn switched() -> impl Strategy<Value = Switched> {
    use Switched::{Cycled, LeftOn, Nothing, Off, On, Unknown};
    prop::sample::select(vec![Unknown, Nothing, LeftOn, On, Off, Cycled])
}

proptest! {
    /// Whatever each attempt does: power is switched at most twice in a day, and none rests for less than a minute.
    #[test]
    fn no_world_makes_a_guard_switch_power_more_often_than_it_may(
        looks in prop::collection::vec((1_000_i64..90 * MINUTE, switched()), 1..60),
    ) {
        let (mut records, mut now_ms) = (Vec::<RepairRecord>::new(), NOW);
        for (pause_ms, switched) in looks {
            now_ms += pause_ms;
            let decision = decided(|world| (world.records, world.now_ms) = (records.clone(), now_ms));
            if decision == ACT {
                records.push(RepairRecord { begun_ms: now_ms, ..record(0, switched) });
            }
        }
        let begun: Vec<i64> = records.iter().map(|record| record.begun_ms).collect();
        prop_assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= BETWEEN_MS), "{begun:?}");
        let changing: Vec<_> = records.iter().filter(|record| changed(record)).collect();
        prop_assert!(changing.len() <= 2, "it stays silent all the time: {changing:?}");
        for pair in changing.windows(2) {
            let is_on = matches!(pair[0].power.as_ref().unwrap().switched, Switched::On | Switched::Cycled);
            prop_assert!(!is_on || pair[1].begun_ms - pair[0].begun_ms >= HOUR_MS);
        }
    }
}
