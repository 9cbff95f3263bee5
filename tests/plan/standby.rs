//! A host that stands by takes over the vote of an etcd host that is gone: planned from what a guard stores on a host,
//! run with the real executor, judged after every effect. `up` keeps it so.

use crate::sim::{Broken, Chaos, Ended, Script, World, config};
use crate::spec::spec;
use crate::{Shape, converged};
use hactl::model::desired::Role;
use hactl::model::facts::Facts;
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Plan};
use hactl::model::standby::TakenOver;
use hactl::plan::votes::{Acts, acts as decided};
use hactl::plan::{NotRejoined, rejoin, remove_gone};
use hactl::reconcile::{EtcdPast, RepairSpec};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A cluster whose worker stands by, that worker, and a host with a vote.
fn standing_by(shape: Shape) -> (World, HostName, HostName) {
    let mut world = converged(shape);
    let by = world.desired.hosts.iter().find(|host| !host.is(Role::Etcd)).expect("a worker").name.clone();
    world.rehost(|d| d.hosts.iter_mut().filter(|host| host.name == by).for_each(|host| host.standby = true));
    assert_eq!(world.converge(5, 4), Ok(Ended::Converged), "{shape:?}");
    let first = world.with(Role::Etcd)[0].clone();
    (world, by, first)
}

/// The hosts that vote.
fn voters(world: &World) -> Vec<HostName> {
    let living = world.living().expect("a quorum");
    let votes =
        |host: &HostName| world.clusters[&living].by_peer(&world.peer(host)).is_some_and(|(_, member)| !member.learner);
    world.desired.hosts.iter().map(|host| host.name.clone()).filter(votes).collect()
}

/// Follows votes, as each run does.
fn follow(world: &mut World) {
    let hosts = world.observe().hosts.into_iter();
    let reports = hosts.filter_map(|(name, answer)| Some((name, answer.ok()?.etcd?))).collect();
    for taken in world.desired.taken_over(&reports) {
        world.rehost(|desired| *desired = desired.clone().with_vote(&taken));
    }
}

/// What a guard plans on a host that stands by, once the other one is gone.
fn plan(world: &mut World, taken: &TakenOver) -> Result<Plan, NotRejoined> {
    follow(world);
    if world.desired.host(&taken.by).is_some_and(|host| host.standby) {
        world.rehost(|desired| *desired = desired.clone().with_vote(taken));
    }
    let (read, facts) = stored(world);
    rejoin(&read.spec.desired, &read.spec.target, &facts, &read.intent(), &taken.by)
}

/// What a guard reads on its host, with the votes where they are in this run.
fn stored(world: &mut World) -> (RepairSpec, Facts) {
    let written = RepairSpec::of(spec(world), EtcdPast::of(&world.intent));
    let mut read: RepairSpec = serde_json::from_str(&written.to_text()).expect("it can be read");
    for host in &mut read.spec.desired.hosts {
        let now = world.desired.host(&host.name).expect("a host of the inventory");
        (host.roles, host.standby) = (now.roles.clone(), now.standby);
    }
    let mut facts = world.observe();
    facts.hosts.retain(|host, _| read.spec.desired.host(host).is_some());
    (read, facts)
}

fn take_over(world: &mut World, taken: &TakenOver, script: &Script) -> Result<Ended, Broken> {
    let plan = plan(world, taken).expect("a plan");
    if plan.is_empty() { Ok(Ended::Converged) } else { world.run(&plan, script) }
}

#[test]
fn up_prepares_a_standby_and_gives_it_no_vote() {
    for shape in [Shape::Stacked(3), Shape::Stacked(5), Shape::Apart] {
        let (mut world, by, _) = standing_by(shape);
        assert!(!voters(&world).contains(&by), "{shape:?}");
        assert_eq!(world.host(&by).disk, None, "{shape:?}: no member was started");
        let facts = world.observe();
        let up = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("a plan");
        assert_eq!(up.steps, [], "{shape:?}: nothing is left to do");
    }
}

#[test]
fn a_standby_takes_over_the_vote_of_a_host_that_is_gone_also_if_it_is_killed_after_any_effect() {
    for shape in [Shape::Stacked(3), Shape::Stacked(5), Shape::Apart] {
        let (mut start, by, from) = standing_by(shape);
        let all = voters(&start).len();
        start.power_off(&from);
        let taken = TakenOver { from: from.clone(), by: by.clone() };
        for crash in 0.. {
            let mut world = start.clone();
            let script = Script { order: u64::from(crash), crash_after: Some(crash), ..Script::default() };
            let end = take_over(&mut world, &taken, &script).unwrap_or_else(|why| panic!("after {crash}: {why:?}"));
            for _ in 0..3 {
                take_over(&mut world, &taken, &Script::default()).unwrap_or_else(|why| panic!("{crash}: {why:?}"));
            }
            let now = voters(&world);
            assert!(now.contains(&by) && !now.contains(&from) && now.len() == all, "{shape:?}, {crash}: {now:?}");
            if end != Ended::Crashed {
                assert!(crash >= 5, "{shape:?}: removed, added, started, promoted, marked; only {crash} effects");
                break;
            }
        }
    }
}

#[test]
fn up_keeps_a_vote_that_was_taken_over_and_its_former_host_stands_by() {
    for shape in [Shape::Stacked(3), Shape::Stacked(5), Shape::Apart] {
        let (mut world, by, from) = standing_by(shape);
        let inventory = world.desired.clone();
        world.power_off(&from);
        let taken = TakenOver { from: from.clone(), by: by.clone() };
        assert!(matches!(take_over(&mut world, &taken, &Script::default()), Ok(Ended::Done(_))), "{shape:?}");
        let votes = voters(&world);
        world.power_on(&from);
        // The next run begins with the inventory, which nobody has edited.
        world.rehost(|desired| *desired = inventory.clone());
        follow(&mut world);
        assert_eq!(world.converge(5, 4), Ok(Ended::Converged), "{shape:?}");
        assert_eq!(voters(&world), votes, "{shape:?}");
        let former = world.host(&from);
        assert_eq!(former.disk, None, "{shape:?}: its data is archived");
        let etcd = former.units.iter().find(|(unit, _)| unit.as_str() == "etcd.service");
        assert!(etcd.is_none_or(|(_, unit)| !unit.running && !unit.enabled), "{shape:?}: etcd starts there no more");
        // And the other way round.
        world.power_off(&by);
        let back = TakenOver { from: by.clone(), by: from.clone() };
        assert!(matches!(take_over(&mut world, &back, &Script::default()), Ok(Ended::Done(_))), "{shape:?}");
        assert!(voters(&world).contains(&from) && !voters(&world).contains(&by), "{shape:?}");
    }
}

/// What the guard of a host does about etcd, as `hactl host-heal` does.
fn acts(world: &mut World, host: &HostName, script: &Script) -> Result<(), Broken> {
    follow(world);
    let answers = |world: &World, name: &HostName| world.host(name).answers();
    if !answers(world, host) || world.living().is_none() {
        return Ok(());
    }
    let all = world.with(Role::Etcd);
    let listed = voters(world);
    let gone: Vec<HostName> = all.iter().filter(|name| !answers(world, name)).cloned().collect();
    let here: Vec<HostName> =
        world.desired.hosts.iter().map(|host| host.name.clone()).filter(|name| answers(world, name)).collect();
    let acts = decided(&world.desired, host, &gone, |name| here.contains(name));
    let planned = match acts {
        None => return Ok(()),
        Some(Acts::TakesOver(from)) => plan(world, &TakenOver { from, by: host.clone() }),
        Some(Acts::Removes(gone)) if !gone.is_empty() && listed.contains(host) => remove(world, &gone),
        Some(_) if listed.len() < all.len() && !listed.contains(host) => {
            plan(world, &TakenOver { from: host.clone(), by: host.clone() })
        }
        Some(_) => return Ok(()),
    };
    match planned {
        Ok(plan) if !plan.is_empty() => world.run(&plan, script).map(drop),
        // Without a quorum, or while another learner is there.
        Ok(_) | Err(NotRejoined::Refused(_) | NotRejoined::NeedsUp { .. }) => Ok(()),
        Err(why) => panic!("{host}: {why}"),
    }
}

/// What a guard plans that removes the members of these hosts.
fn remove(world: &mut World, gone: &[HostName]) -> Result<Plan, NotRejoined> {
    let (read, facts) = stored(world);
    remove_gone(&read.spec.desired, &read.spec.target, &facts, &read.intent(), gone)
}

#[test]
fn two_of_five_that_are_gone_are_removed_so_that_one_more_may_fail_and_vote_again_when_they_return() {
    for crash in 0..4 {
        let mut world = converged(Shape::Stacked(5));
        let all = world.with(Role::Etcd);
        let (left, gone) = all.split_at(3);
        for host in gone {
            world.power_off(host);
        }
        let script = Script { crash_after: Some(crash), ..Script::default() };
        acts(&mut world, &all[0], &script).unwrap_or_else(|why| panic!("{crash}: {why:?}"));
        acts(&mut world, &all[0], &Script::default()).unwrap_or_else(|why| panic!("{crash}: {why:?}"));
        assert_eq!(voters(&world), left, "killed after {crash}");
        world.power_off(&all[1]);
        assert!(world.living().is_some(), "one more may fail");
        world.mend_everything();
        for host in all.iter().cycle().take(10) {
            acts(&mut world, host, &Script::default()).unwrap_or_else(|why| panic!("{crash}: {why:?}"));
        }
        assert_eq!(voters(&world), all);
    }
}

#[test]
fn one_of_five_that_is_gone_and_one_that_answers_are_not_removed() {
    let mut world = converged(Shape::Stacked(5));
    let all = world.with(Role::Etcd);
    world.power_off(&all[4]);
    acts(&mut world, &all[0], &Script::default()).expect("no law is broken");
    assert_eq!(voters(&world), all);
    // Also if two are named, of which one answers again.
    let planned = remove(&mut world, &[all[3].clone(), all[4].clone()]).map(|plan| plan.steps);
    assert_eq!(planned, Ok(vec![]));
}

/// Failures after which a host keeps its files.
fn failure() -> impl Strategy<Value = Chaos> {
    prop_oneof![
        3 => (0..7_u8).prop_map(Chaos::PowerOff),
        4 => (0..7_u8).prop_map(Chaos::PowerOn),
        2 => (0..7_u8).prop_map(Chaos::Cut),
        2 => (0..7_u8).prop_map(Chaos::Mend),
    ]
}

/// A failure, or what the guard of a host does.
#[derive(Debug, Clone)]
enum Act {
    Happens(Chaos),
    Acts { host: usize, order: u64, crash_after: Option<u16>, meanwhile: Vec<(u16, Chaos)> },
}

fn act() -> impl Strategy<Value = Act> {
    let acts = (0..8_usize, any::<u64>(), option::of(0..12_u16), vec((0..10_u16, failure()), 0..3));
    prop_oneof![
        2 => failure().prop_map(Act::Happens),
        3 => acts.prop_map(|(host, order, crash_after, meanwhile)| Act::Acts { host, order, crash_after, meanwhile }),
    ]
}

proptest! {
    #![proptest_config(config(200, 2000))]

    #[test]
    fn guards_that_move_and_remove_votes_break_no_law_and_end_with_as_many_votes_as_the_inventory_asks_for(
        shape in prop::sample::select(vec![Shape::Stacked(3), Shape::Stacked(5), Shape::Apart]),
        standby in any::<bool>(),
        happens in vec(act(), 1..10),
    ) {
        let mut world = if standby { standing_by(shape).0 } else { converged(shape) };
        let wanted = world.with(Role::Etcd).len();
        let broken = |why: Broken| TestCaseError::fail(format!("{why:?}"));
        for act in happens {
            let hosts: Vec<HostName> = world.desired.may_vote().map(|host| host.name.clone()).collect();
            match act {
                Act::Happens(chaos) => world.suffer(chaos),
                Act::Acts { host, order, crash_after, meanwhile } => {
                    let script = Script { order, crash_after, meanwhile, ..Script::default() };
                    acts(&mut world, &hosts[host % hosts.len()], &script).map_err(broken)?;
                }
            }
        }
        world.mend_everything();
        if !world.lost_for_good() && world.living().is_some() {
            let hosts: Vec<HostName> = world.desired.may_vote().map(|host| host.name.clone()).collect();
            for host in hosts.iter().cycle().take(3 * hosts.len()) {
                acts(&mut world, host, &Script::default()).map_err(broken)?;
            }
            prop_assert_eq!(voters(&world).len(), wanted);
        }
    }
}

#[test]
fn a_standby_removes_no_member_but_that_of_the_host_whose_vote_it_takes_over() {
    let (mut world, by, from) = standing_by(Shape::Stacked(5));
    let second = world.with(Role::Etcd)[1].clone();
    world.power_off(&from);
    world.power_off(&second);
    let plan = plan(&mut world, &TakenOver { from: from.clone(), by }).expect("a plan");
    let removed = plan.steps.iter().filter_map(|step| match &step.action {
        Action::RemoveMember { peer } => Some(peer.clone()),
        _ => None,
    });
    let removed: Vec<_> = removed.collect();
    assert_eq!(removed, [world.peer(&from)]);
}
