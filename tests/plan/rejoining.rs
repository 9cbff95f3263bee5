//! Repairs of etcd members by guards: a host whose disk is lost becomes a voter again. Planned from what a guard stores
//! on a host, run with the real executor, judged after every effect.

use crate::sim::{Broken, Chaos, Ended, Script, World, config, make};
use crate::spec::spec;
use crate::{SHAPES, Shape, check, converged};
use hactl::model::desired::Role;
use hactl::model::facts::Facts;
use hactl::model::names::HostName;
use hactl::model::plan::Plan;
use hactl::model::refusal::Refusal;
use hactl::plan::{Intent, NotRejoined, rejoin};
use hactl::reconcile::{EtcdPast, RepairSpec};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What a guard plans for a host, from what it reads in the file on its own host.
fn plan(world: &mut World, host: &HostName) -> Result<Plan, NotRejoined> {
    let facts = world.observe();
    by_facts(world, facts, host)
}

/// The same, from these facts.
pub fn by_facts(world: &World, facts: Facts, host: &HostName) -> Result<Plan, NotRejoined> {
    replacing(world, facts, host, None)
}

/// The same; the keys of this member of the host differ from those of the others.
fn replacing(world: &World, mut facts: Facts, host: &HostName, odd: Option<u64>) -> Result<Plan, NotRejoined> {
    let written = RepairSpec::of(spec(world), EtcdPast::of(&world.intent));
    let read: RepairSpec = serde_json::from_str(&written.to_text()).expect("it can be read");
    assert_eq!(read, written);
    facts.hosts.retain(|host, _| read.spec.desired.host(host).is_some());
    let replace = odd.into_iter().map(|member| (host.clone(), member)).collect();
    rejoin(&read.spec.desired, &read.spec.target, &facts, &Intent { replace, ..read.intent() }, host)
}

/// One repair of a host.
fn heal(world: &mut World, host: &HostName, script: &Script) -> Result<Option<Ended>, Broken> {
    match plan(world, host) {
        Err(_) => Ok(None),
        Ok(plan) if plan.is_empty() => Ok(Some(Ended::Converged)),
        Ok(plan) => world.run(&plan, script).map(Some),
    }
}

/// Whether the member of a host serves in a cluster with a quorum.
fn serves(world: &World, host: &HostName) -> bool {
    let Some(living) = world.living() else { return false };
    let member = world.clusters[&living].by_peer(&world.peer(host));
    member.is_some_and(|(id, member)| !member.learner && world.member_alive(&living, id))
}

/// Repairs each host until none needs it; `Err`: the first that does not serve.
fn healed(world: &mut World) -> Result<(), String> {
    let members = world.with(Role::Etcd);
    for round in 0..3 {
        for host in &members {
            let script = Script { order: round, ..Script::default() };
            heal(world, host, &script).map_err(|broken| format!("{broken:?}"))?;
        }
    }
    match members.iter().find(|host| !serves(world, host)) {
        Some(host) => Err(format!("{host} does not serve: {:?}", plan(world, host))),
        None => Ok(()),
    }
}

#[test]
fn a_member_whose_disk_is_lost_votes_again_also_if_its_healer_is_killed_after_any_effect() {
    for shape in [Shape::Stacked(3), Shape::Stacked(5), Shape::Apart] {
        let mut start = converged(shape);
        let host = start.with(Role::Etcd)[1].clone();
        start.lose_data(&host);
        for crash in 0.. {
            let mut world = start.clone();
            let script = Script { order: u64::from(crash), crash_after: Some(crash), ..Script::default() };
            let end = heal(&mut world, &host, &script).unwrap_or_else(|broken| panic!("after {crash}: {broken:?}"));
            assert_eq!(healed(&mut world), Ok(()), "{shape:?}, killed after {crash}");
            if end != Some(Ended::Crashed) {
                let over = world.hosts.values().map(|host| &host.passed_over);
                assert!(over.clone().all(BTreeSet::is_empty), "{shape:?}: balancers use it again: {over:?}");
                assert!(crash >= 5, "{shape:?}: removed, added, started, promoted, marked; only {crash} effects");
                break;
            }
        }
    }
}

#[test]
fn a_member_that_another_tool_removed_and_one_that_lies_stopped_are_repaired_too() {
    let mut world = converged(Shape::Stacked(3));
    world.suffer(Chaos::ForeignRemoval(1));
    assert_eq!(healed(&mut world), Ok(()));
    world.suffer(Chaos::StopEtcd(2));
    assert_eq!(healed(&mut world), Ok(()));
}

#[test]
fn a_member_that_serves_with_other_keys_joins_again_also_if_it_leads() {
    for shape in [Shape::Stacked(3), Shape::Stacked(5), Shape::Apart] {
        let start = converged(shape);
        let mut led = 0;
        for host in start.with(Role::Etcd) {
            let mut world = start.clone();
            let facts = world.observe();
            let view = facts.host(&host).and_then(|facts| facts.etcd.as_ref()?.view.clone()).expect("it serves");
            led += usize::from(view.leads());
            let plan = replacing(&world, facts, &host, Some(view.member)).expect("a plan");
            let ended = world.run(&plan, &Script::default()).unwrap_or_else(|broken| panic!("{host}: {broken:?}"));
            assert!(matches!(ended, Ended::Done(_)), "{host}: {ended:?}");
            assert!(serves(&world, &host), "{host}");
            let now = world.observe().host(&host).and_then(|facts| Some(facts.etcd.as_ref()?.view.as_ref()?.member));
            assert!(now.is_some_and(|id| id != view.member), "{host}: a new member");
        }
        assert_eq!(led, 1, "{shape:?}: one of them leads");
    }
}

#[test]
fn a_member_that_serves_is_left_alone() {
    for shape in SHAPES {
        let mut world = converged(shape);
        for host in world.with(Role::Etcd) {
            assert_eq!(plan(&mut world, &host).map(|plan| plan.steps), Ok(vec![]), "{host}");
        }
    }
}

#[test]
fn without_a_quorum_nothing_is_planned() {
    let mut world = converged(Shape::Stacked(3));
    let [first, second] = [0, 1].map(|n: usize| world.with(Role::Etcd)[n].clone());
    world.lose_data(&first);
    world.power_off(&second);
    let refused = plan(&mut world, &first);
    assert!(matches!(refused, Err(NotRejoined::Refused(Refusal::NoQuorum { .. }))), "{refused:?}");
}

#[test]
fn a_member_stays_in_the_list_while_something_would_keep_the_host_from_voting_again() {
    let lost = |cause: &dyn Fn(&mut World)| {
        let mut world = converged(Shape::Stacked(3));
        let host = make::host_name("cp2");
        world.lose_data(&host);
        assert!(plan(&mut world, &host).is_ok_and(|plan| plan.changes_members()));
        cause(&mut world);
        plan(&mut world, &host).unwrap_err().to_string()
    };
    // A learner of another tool: etcd admits no second one.
    let learner = lost(&|world| world.suffer(Chaos::ForeignLearner));
    assert!(learner.ends_with("; `hactl up` does it"), "{learner}");
    // The files that it would start with are others than those of the last complete run.
    let files = lost(&|world| world.release(|release| release.etcd += 1));
    assert!(files.contains("has to wait: it requires") && files.ends_with("; `hactl up` does it"), "{files}");
    // The whole disk of the host is empty.
    let wiped = lost(&|world| world.wipe(&make::host_name("cp2")));
    assert!(wiped.ends_with("; `hactl up` does it"), "{wiped}");
}

#[test]
fn a_host_without_a_member_is_refused() {
    let mut world = converged(Shape::Stacked(3));
    let worker = world.desired.hosts.iter().find(|host| !host.is(Role::Etcd)).expect("a worker").name.clone();
    assert_eq!(plan(&mut world, &worker), Err(NotRejoined::NoMember(worker)));
}

/// What happens to a cluster whose guards repair members.
#[derive(Debug, Clone)]
enum Act {
    Happens(Chaos),
    Heals { host: u8, order: u64, crash_after: Option<u16>, meanwhile: Vec<(u16, Chaos)> },
}

/// Failures; a host keeps its files.
fn failure() -> impl Strategy<Value = Chaos> {
    prop_oneof![
        3 => (0..7_u8).prop_map(Chaos::PowerOff),
        4 => (0..7_u8).prop_map(Chaos::PowerOn),
        3 => (0..7_u8).prop_map(Chaos::LoseData),
        2 => (0..7_u8).prop_map(Chaos::Cut),
        2 => (0..7_u8).prop_map(Chaos::Mend),
        2 => (0..7_u8).prop_map(Chaos::StopEtcd),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let heals = (0..7_u8, any::<u64>(), option::of(0..12_u16), vec((0..10_u16, failure()), 0..3));
    prop_oneof![
        2 => failure().prop_map(Act::Happens),
        3 => heals.prop_map(|(host, order, crash_after, meanwhile)| Act::Heals { host, order, crash_after, meanwhile }),
    ]
}

proptest! {
    #![proptest_config(config(300, 2000))]

    #[test]
    fn guards_that_repair_members_break_no_law_change_no_member_that_serves_and_end_with_all_if_a_quorum_is_left(
        shape in prop::sample::select(vec![Shape::Stacked(3), Shape::Stacked(5), Shape::Stacked(7), Shape::Apart]),
        acts in vec(act(), 1..8),
    ) {
        let mut world = converged(shape);
        let members = world.with(Role::Etcd);
        for act in acts {
            match act {
                Act::Happens(chaos) => world.suffer(chaos),
                Act::Heals { host, order, crash_after, meanwhile } => {
                    let host = &members[usize::from(host) % members.len()];
                    if serves(&world, host) && world.host(host).answers() {
                        let planned = plan(&mut world, host).map_or(0, |plan| plan.steps.len());
                        prop_assert_eq!(planned, 0, "{} serves", host);
                    }
                    let script = Script { order, crash_after, meanwhile, ..Script::default() };
                    heal(&mut world, host, &script).map_err(|broken| TestCaseError::fail(format!("{broken:?}")))?;
                }
            }
        }
        world.mend_everything();
        // Without a quorum that can start by itself, a person decides.
        if !world.lost_for_good() && world.living().is_some() {
            check(healed(&mut world))?;
        }
    }
}
