//! The laws do fire: each test deliberately breaks a law, and that law must report it. A law that cannot be broken
//! proves nothing about the plans that keep it.

use crate::sim::config;
use crate::sim::{Broken, Chaos, Ended, Script, World, make};
use crate::{Shape, converged};
use hactl::model::names::{HostName, PeerUrl};
use hactl::model::plan::{Action, HowToRun, InitialClusterState, Plan, Precondition};
use hactl::model::target::FileSet;

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn peer(n: u8) -> PeerUrl {
    make::control_host(n).peer_url()
}

fn planned(world: &mut World) -> Plan {
    world.plan().expect("a sound plan").0.expect("a plan")
}

fn position(plan: &Plan, is: impl Fn(&Action) -> bool) -> usize {
    plan.steps.iter().position(|s| is(&s.action)).expect("the plan has such a step")
}

#[test]
fn a_chain_of_member_changes_run_out_of_order_trips_two_learners() {
    let mut world = converged(Shape::Stacked(5));
    world.wipe(&cp(1));
    world.wipe(&cp(2));
    let mut plan = planned(&mut world);
    assert_eq!(crate::sim::law::lint(&world, &plan), Ok(()));
    let second = Action::AddLearner { peer: peer(2) };
    let promote = position(&plan, |a| a == &Action::Promote { peer: peer(1) });
    let add = position(&plan, |a| a == &second);
    let listed = position(&plan, |a| a == &Action::AddLearner { peer: peer(1) });
    // The mutation: the second learner waits for the first one's listing instead of its vote, and nothing is checked.
    plan.after[add].retain(|w| *w != promote);
    plan.after[add].push(listed);
    for step in &mut plan.steps {
        step.precondition = Precondition::None;
    }
    plan.steps[add].requires.clear();
    let fired = (0..50).any(|order| {
        let mut world = world.clone();
        let script = Script { order, ..Script::default() };
        matches!(world.run(&plan, &script), Err(Broken::TwoLearners { learners }) if learners.len() == 2)
    });
    assert!(fired, "some order of the mutated plan has two learners in flight");
    assert!(matches!(crate::sim::law::lint(&world, &plan), Err(Broken::BadPlan(_))), "and the plan itself is refused");
}

#[test]
fn a_precondition_fails_on_a_member_list_that_is_not_as_planned() {
    let mut world = converged(Shape::Stacked(3));
    world.wipe(&cp(2));
    let plan = planned(&mut world);
    let add = position(&plan, |a| matches!(a, Action::AddLearner { .. }));
    assert!(world.precondition(&plan.steps[add]).is_err(), "the dead member is still in the list");
    assert_eq!(world.force(&Action::RemoveMember { peer: peer(2) }), Ok(()));
    assert_eq!(world.precondition(&plan.steps[add]), Ok(()));
}

#[test]
fn restarting_a_member_that_the_quorum_needs_trips_quorum_lost() {
    let mut world = converged(Shape::Stacked(3));
    world.power_off(&cp(2));
    let restart = Action::RunUnit { host: cp(1), unit: make::unit("etcd.service"), how: HowToRun::Restart };
    assert!(matches!(world.force(&restart), Err(Broken::QuorumLost { .. })));
}

#[test]
fn removing_a_healthy_member_beside_a_dead_one_trips_quorum_lost() {
    let mut world = converged(Shape::Stacked(3));
    world.wipe(&cp(2));
    let remove = Action::RemoveMember { peer: peer(1) };
    assert!(matches!(world.force(&remove), Err(Broken::QuorumLost { .. })));
}

#[test]
fn a_bootstrap_beside_a_cluster_that_was_used_trips_second_cluster() {
    let mut world = converged(Shape::Stacked(3));
    for n in [1, 2] {
        world.lose_data(&cp(n));
    }
    let initial_members = [1, 2, 3].map(|n| (cp(n), peer(n))).to_vec();
    let state = InitialClusterState::New { token: "another".to_owned(), initial_members };
    let bootstrap = Action::StartMember { host: cp(1), state };
    assert!(matches!(world.force(&bootstrap), Err(Broken::SecondCluster { .. })));
}

#[test]
fn a_marked_disk_bootstraps_nothing_and_a_boot_joins_nothing() {
    let mut world = converged(Shape::Stacked(3));
    world.host_mut(&cp(1)).disk = None;
    let initial_members = [1, 2, 3].map(|n| (cp(n), peer(n))).to_vec();
    let state = InitialClusterState::New { token: "token-1".to_owned(), initial_members };
    world.unit_stopped(&cp(1), &make::unit("etcd.service"), false);
    let refused = world.force(&Action::StartMember { host: cp(1), state });
    assert!(matches!(refused, Err(Broken::Endless(why)) if why.contains("marked as bootstrapped")));
    world.power_off(&cp(1));
    world.power_on(&cp(1));
    assert!(!world.host(&cp(1)).runs("etcd.service"));
}

#[test]
fn a_voter_started_again_on_an_empty_disk_trips_amnesia() {
    let mut world = converged(Shape::Stacked(3));
    world.lose_data(&cp(1));
    let members = [1, 2, 3].map(|n| (format!("cp{n}"), peer(n))).to_vec();
    let join = Action::StartMember { host: cp(1), state: InitialClusterState::Existing { members } };
    assert_eq!(world.force(&join), Err(Broken::Amnesia { host: cp(1) }));
}

#[test]
fn a_removed_member_does_not_start_again() {
    let mut world = converged(Shape::Stacked(3));
    assert_eq!(world.force(&Action::RemoveMember { peer: peer(1) }), Ok(()));
    let again = world.force(&Action::StartMember { host: cp(1), state: InitialClusterState::Restart });
    assert!(matches!(again, Err(Broken::Endless(why)) if why.contains("removed")));
}

#[test]
fn deleting_data_that_nobody_asked_to_delete_trips_its_law() {
    let wipe = |delete| Action::Wipe { host: cp(1), delete };
    let mut world = converged(Shape::Stacked(5));
    assert_eq!(world.clone().force(&wipe(false)), Ok(()), "archived, the data is still there");
    assert_eq!(world.clone().force(&wipe(true)), Err(Broken::DataDeleted { host: cp(1) }));
    world.down_wipe = true;
    assert_eq!(world.force(&wipe(true)), Ok(()), "a person asked for it");
}

#[test]
fn a_manifest_written_before_every_member_is_marked_as_bootstrapped_trips_its_law() {
    let mut world = converged(Shape::Stacked(3));
    world.host_mut(&cp(2)).bootstrapped = None;
    world.release(|r| r.manifests += 1);
    let paths = vec![make::MANIFESTS[0].to_owned()];
    let write = Action::Configure { host: cp(3), set: FileSet::ControlPlane, paths, keep: false };
    let broken = Broken::ManifestBeforeMarker { host: cp(3), unmarked: cp(2) };
    assert_eq!(world.force(&write), Err(broken));
}

#[test]
fn two_api_servers_restarted_at_once_trip_their_law_and_so_does_the_last_one() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.manifests += 1);
    let paths = vec![make::MANIFESTS[0].to_owned()];
    let write = |n| Action::Configure { host: cp(n), set: FileSet::ControlPlane, paths: paths.clone(), keep: false };
    let mut alone = world.clone();
    assert_eq!(world.force(&write(1)), Ok(()));
    assert_eq!(world.force(&write(2)), Err(Broken::TwoDisturbed { hosts: vec![cp(1), cp(2)] }));
    for n in [2, 3] {
        alone.unit_stopped(&cp(n), &make::unit("hactl-etcd-balancer.service"), false);
    }
    assert_eq!(alone.force(&write(1)), Err(Broken::ApiLost));
}

#[test]
fn a_plan_without_its_order_is_noticed_by_the_conditions_that_its_steps_require() {
    let mut world = World::bare(3, 0);
    let mut plan = planned(&mut world);
    plan.after.iter_mut().for_each(Vec::clear);
    assert!(matches!(crate::sim::law::lint(&world, &plan), Err(Broken::BadPlan(_))));
    let unmet = world.run(&plan, &Script { order: 5, ..Script::default() });
    assert!(matches!(unmet, Err(Broken::NeedUnmet { .. })));
}

#[test]
fn a_change_of_members_without_a_precondition_is_noticed() {
    let mut world = converged(Shape::Stacked(3));
    world.wipe(&cp(2));
    let mut plan = planned(&mut world);
    let remove = position(&plan, |a| matches!(a, Action::RemoveMember { .. }));
    plan.steps[remove].precondition = Precondition::None;
    let lint = crate::sim::law::lint(&world, &plan);
    assert!(matches!(lint, Err(Broken::BadPlan(text)) if text.contains("without a precondition")));
}

#[test]
fn restarts_that_do_not_wait_for_one_another_are_noticed() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| (r.etcd, r.manifests) = (1, 1));
    let plan = planned(&mut world);
    assert_eq!(crate::sim::law::lint(&world, &plan), Ok(()));
    let api = |a: &Action| matches!(a, Action::Configure { set: FileSet::ControlPlane, .. });
    let etcd = |a: &Action| matches!(a, Action::RunUnit { unit, .. } if unit.as_str() == "etcd.service");
    for which in [&api as &dyn Fn(&Action) -> bool, &etcd] {
        let mut plan = plan.clone();
        let mine: Vec<usize> = (0..plan.steps.len()).filter(|i| which(&plan.steps[*i].action)).collect();
        assert_eq!(mine.len(), 3);
        for index in mine {
            plan.steps[index].requires.clear();
            plan.after[index].clear();
        }
        let lint = crate::sim::law::lint(&world, &plan);
        assert!(matches!(lint, Err(Broken::BadPlan(text)) if text.contains("at the same time")));
    }
}

#[test]
fn the_cases_are_the_same_on_every_run() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;
    let draw = || {
        let mut runner = TestRunner::new(config(1, 4000));
        (0..20)
            .map(|_| format!("{:?}", crate::act().new_tree(&mut runner).expect("a value").current()))
            .collect::<Vec<_>>()
    };
    assert_eq!(draw(), draw());
}

#[test]
fn chaos_changes_the_simulated_world() {
    let mut world = converged(Shape::Stacked(3));
    world.suffer(Chaos::PowerOff(0));
    assert!(world.living().is_some());
    world.suffer(Chaos::StopEtcd(1));
    assert!(world.living().is_none(), "one of three is no quorum");
    world.suffer(Chaos::PowerOn(0));
    assert!(world.living().is_some(), "a boot starts enabled units");
    assert!(matches!(world.converge(1, 4), Ok(Ended::Converged)));
    assert!(world.host(&cp(2)).runs("etcd.service"));
}
