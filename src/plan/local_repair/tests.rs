//! Tests of what a guard does about faults of its own host.

use super::*;
use crate::model::desired::sample;
use crate::model::repair::{Outcome, Power, Switched};
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
    RepairRecord { kind, step: step(kind).unwrap(), begun_ms, after_ms: 0, outcome: Outcome::Done, power: None }
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
    flaps: bool,
    healer: Option<String>,
    silent: Vec<Silent>,
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
        flaps: false,
        healer: None,
        silent: vec![Silent {
            host: fault.host.clone(),
            since_ms: fault.since_ms,
            booted_ms: 0,
            held_until_ms: 0,
            healer: None,
        }],
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
        flaps: world.flaps,
        healer: world.healer.clone(),
        silent: &world.silent,
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
            if matches!(step(*kind), Some(LocalStep::Rejoin | LocalStep::Power)) {
                world.runs = Runs::Stopped(NOW);
            }
        };
        assert_eq!(on(*kind, idle), expected, "{kind}");
        assert_eq!(decided(Mode::Watch, &fault(*kind), |_| ()), Decision::Person, "{kind}: guards only watch");
        let of_another = Fault { host: name("cp2"), ..fault(*kind) };
        if *kind != FaultKind::PowerDue {
            assert_eq!(decided(Mode::On, &of_another, |_| ()), Decision::Person, "{kind}: of another host");
        }
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
        let needed = if matches!(kind, FaultKind::EtcdFenced | FaultKind::EtcdVotersGone) { 1 } else { 2 };
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
    assert_eq!(of(kind, &|world| world.records.push(earlier(HOUR_MS - 1))), gave_up(3), "not twice");
    assert_eq!(of(kind, &|world| world.records.push(earlier(HOUR_MS))), Decision::Act { step });
    assert_eq!(of(kind, &|world| world.held = true), held_back(Gate::Hold));
    let held = |gate| Decision::HeldBack { step, gate };
    assert_eq!(of(kind, &|world| world.unwell = Some(name("cp3"))), held(Gate::Unwell { host: name("cp3") }));
    let by = || "the NodeHealthCheck nhc selects its Node".to_owned();
    assert_eq!(of(kind, &|world| world.healer = Some(by())), held(Gate::Foreign { by: by() }));
    assert_eq!(of(kind, &|world| world.flaps = true), held(Gate::Flapping));
    let two = |world: &mut World| world.etcd = members(&["cp1", "cp2", "cp3"], &["cp1", "cp2"]);
    assert_eq!(of(kind, &two), held(Gate::Quorum { others: 1, needed: 2 }), "all others have to serve");
    let busy = |world: &mut World| world.repairing = [(name("cp2"), vec![FaultKind::DiskFull])].into();
    assert_eq!(of(kind, &busy), held(Gate::Turn { host: name("cp2") }));
    assert_eq!(of(kind, &|world| world.policy.guards.truncate(1)), held(Gate::Last));
    let later = of(kind, &|world| world.now_ms = NOW + SLOT_MS / 2);
    assert!(matches!(later, Decision::Wait { why: Delay::Turn, .. }), "{later:?}");
}

#[test]
fn another_healer_and_a_fault_that_comes_and_goes_hold_back_what_is_more_than_a_restart() {
    let by = || "the NodeHealthCheck nhc selects its Node".to_owned();
    // The power of other hosts has tests of its own.
    let here = |kind: &FaultKind| super::step(*kind).is_some_and(|step| step != LocalStep::Power);
    for kind in FaultKind::ALL.iter().copied().filter(here) {
        let step = super::step(kind).unwrap();
        let with = |change: &dyn Fn(&mut World)| {
            on(kind, |world| {
                if step == LocalStep::Rejoin {
                    world.runs = Runs::Failed;
                }
                change(world);
            })
        };
        let held = |gate| Decision::HeldBack { step, gate };
        let of_others = matches!(kind, FaultKind::EtcdVoteFree | FaultKind::EtcdVotersGone);
        let expected = if of_others { held(Gate::Foreign { by: by() }) } else { Decision::Act { step } };
        assert_eq!(with(&|world| world.healer = Some(by())), expected, "{kind}");
        let expected = if step == LocalStep::Rejoin { held(Gate::Flapping) } else { Decision::Act { step } };
        assert_eq!(with(&|world| world.flaps = true), expected, "{kind}");
    }
}

#[test]
fn a_host_without_a_vote_joins_only_if_one_is_free_for_it() {
    let step = LocalStep::Rejoin;
    let with = |kind, taken, free: Option<Option<HostName>>, waited_ms| {
        on(kind, |world| {
            (world.runs, world.waited_ms) = (Runs::Failed, waited_ms);
            world.votes = Votes { taken, listed: Some(3), free: free.map(|by| Free { of: name("cp3"), by }) };
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
    assert_eq!(unheard, held_back(Gate::Quorum { others: 0, needed: 2 }), "cp2 is not heard, and may have a quorum");
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
        assert_eq!(decision, if into_ms < SLOT_MS / 2 { RESTART } else { wait }, "{into_ms} ms after its turn began");
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
    let once = |begun_ms| on(FaultKind::DiskFull, |world| world.records = vec![record(FaultKind::DiskFull, begun_ms)]);
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
                let on = || Power { host: fault.host.clone(), switched: Switched::On };
                let power = (step == LocalStep::Power).then(on);
                let outcome = Outcome::Done;
                records.push(RepairRecord { kind, step, begun_ms: now_ms, after_ms: 0, outcome, power });
            }
        }
        let begun: Vec<i64> = records.iter().map(|record| record.begun_ms).collect();
        prop_assert!(begun.len() <= 3, "one fault is given up after three steps: {begun:?}");
        prop_assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= BETWEEN_MS), "{begun:?}");
    }
}
