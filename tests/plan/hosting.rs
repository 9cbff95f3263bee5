//! A control plane that is handed over to pods of its own cluster, changed there, and taken back.

use crate::kills::{killed_after_any_effect, killed_after_any_effect_and};
use crate::leaving::{follows, position};
use crate::recovering::{lose_disks, recovery_killed_after_any_effect};
use crate::sim::make::Release;
use crate::sim::{Chaos, Ended, Script, World, make};
use crate::{Shape, converged};
use hactl::model::action::Impact;
use hactl::model::desired::Role;
use hactl::model::may_deny::MayDeny;
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Plan};
use hactl::model::target::FileSet;

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

/// A converged world whose control plane runs in pods.
pub fn self_hosted(shape: Shape) -> World {
    let mut world = converged(shape);
    world.release(|r| r.hosting += 1);
    assert_eq!(world.converge(7, 4), Ok(Ended::Converged), "{shape:?}");
    assert!(world.is_self_hosted(), "{shape:?}");
    world
}

fn planned(world: &mut World) -> Plan {
    world.plan().expect("a sound plan").0.expect("a plan")
}

fn hands_over(n: u8) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::HandOver { host, .. } if *host == cp(n))
}

#[test]
fn every_shape_of_cluster_is_handed_over_and_taken_back() {
    for shape in crate::SHAPES {
        let mut world = self_hosted(shape);
        assert!(planned(&mut world).is_empty(), "{shape:?}: there is nothing left to do");
        world.release(|r| r.hosting += 1);
        assert_eq!(world.converge(3, 4), Ok(Ended::Converged), "{shape:?}");
        assert!(world.is_static(), "{shape:?}");
    }
}

#[test]
fn a_bare_cluster_founds_with_static_pods_and_is_handed_over_in_the_same_run() {
    let mut world = World::bare(3, 1);
    world.release(|r| r.hosting += 1);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert!(world.is_self_hosted());
}

#[test]
fn hosts_are_handed_over_one_after_the_other() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.hosting += 1);
    let plan = planned(&mut world);
    let at = [1, 2, 3].map(|n| position(&plan, hands_over(n)));
    assert!(follows(&plan, at[1], at[0]) && follows(&plan, at[2], at[1]));
    for step in &plan.steps[at[0]..=at[0]] {
        assert_eq!(step.action.profile().impact, Impact::Restart);
    }
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    let mut lone = converged(Shape::Stacked(1));
    lone.release(|r| r.hosting += 1);
    assert!(planned(&mut lone).warnings.iter().any(|text| text.contains("interrupted")));
}

/// Where the reserve of a host is written.
fn writes(n: u8) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Configure { host, set: FileSet::ControlPlane, .. } if *host == cp(n))
}

fn holds(n: u8) -> impl Fn(&Action) -> bool {
    move |action| matches!(action, Action::Hold { host } if *host == cp(n))
}

#[test]
fn pods_with_new_manifests_replace_pods_once_and_the_reserve_follows_when_they_serve() {
    let mut world = self_hosted(Shape::Stacked(3));
    world.release(|r| r.flags += 1);
    let plan = planned(&mut world);
    let applied = position(&plan, |a| matches!(a, Action::Apply { addon, .. } if addon == "hosting"));
    let handed = [1, 2, 3].map(|n| position(&plan, hands_over(n)));
    assert!(follows(&plan, handed[0], applied));
    assert!(follows(&plan, handed[1], handed[0]) && follows(&plan, handed[2], handed[1]));
    for n in [1, 2, 3] {
        assert!(follows(&plan, position(&plan, writes(n)), handed[usize::from(n) - 1]));
    }
    let restarts = plan.steps.iter().filter(|step| step.action.profile().impact >= Impact::Restart).count();
    assert_eq!(restarts, 3, "{:?}", plan.steps.iter().map(|step| step.action.to_string()).collect::<Vec<_>>());
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert!(world.is_self_hosted());
}

/// A change of the inventory.
type Change = fn(&mut Release);

/// Changes that static pods carry: on so many hosts, what changes.
const CARRIED: [(u8, &str, Change); 2] =
    [(1, "the only API server", |r| r.flags += 1), (3, "files that are read once", |r| r.manifests += 1)];

#[test]
fn static_pods_carry_a_change_of_the_only_api_server_and_of_files_that_are_read_once() {
    for (hosts, name, change) in CARRIED {
        let mut world = self_hosted(Shape::Stacked(hosts));
        world.release(change);
        let plan = planned(&mut world);
        for n in 1..=hosts {
            let held = position(&plan, holds(n));
            let written = position(&plan, writes(n));
            let serves = position(&plan, |a| matches!(a, Action::AwaitServing { host, .. } if *host == cp(n)));
            let handed = position(&plan, hands_over(n));
            assert!(follows(&plan, written, held) && follows(&plan, serves, written), "{name}");
            assert!(follows(&plan, handed, serves), "{name}");
        }
        assert_eq!(world.converge(3, 4), Ok(Ended::Converged), "{name}");
        assert!(world.is_self_hosted(), "{name}");
    }
}

#[test]
fn where_something_may_deny_pods_nothing_is_handed_over_and_static_pods_carry_changes() {
    let denies = || vec![MayDeny::Limit("ResourceQuota small".to_owned())];
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.hosting += 1);
    world.may_deny = denies();
    let refused = world.plan().expect("a sound plan").0.expect_err("refused").to_string();
    assert!(refused.contains("cannot move to DaemonSets") && refused.contains("ResourceQuota small"), "{refused}");
    world.may_deny.clear();
    assert_eq!(world.converge(7, 4), Ok(Ended::Converged));
    world.may_deny = denies();
    assert!(planned(&mut world).is_empty(), "pods that run are not denied");
    world.release(|r| r.manifests += 1);
    let plan = planned(&mut world);
    assert_eq!(
        plan.warnings.iter().filter(|text| text.contains("keeps static pods")).count(),
        3,
        "{:?}",
        plan.warnings
    );
    assert!(!plan.steps.iter().any(|step| matches!(step.action, Action::HandOver { .. })));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert!(world.hosts.values().all(|host| host.taken.is_none()));
    world.may_deny.clear();
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert!(world.is_self_hosted());
}

#[test]
fn a_hand_over_a_change_and_the_way_back_killed_after_any_effect_are_finished_by_the_next_runs() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.hosting += 1);
    killed_after_any_effect_and(&world, 10, World::is_self_hosted);
    let mut world = self_hosted(Shape::Stacked(3));
    let mut changed = world.clone();
    changed.release(|r| r.manifests += 1);
    killed_after_any_effect_and(&changed, 15, World::is_self_hosted);
    let mut changed = world.clone();
    changed.release(|r| r.flags += 1);
    killed_after_any_effect_and(&changed, 5, World::is_self_hosted);
    world.release(|r| r.hosting += 1);
    killed_after_any_effect_and(&world, 10, World::is_static);
}

#[test]
fn an_upgrade_of_a_self_hosted_control_plane_killed_after_any_effect_is_finished() {
    let mut world = World::bare(3, 1);
    world.kubernetes("1.35.4");
    world.release(|r| r.hosting += 1);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world.kubernetes("1.36.3");
    killed_after_any_effect(&world, 40);
}

#[test]
fn a_recovery_killed_after_any_effect_is_finished_and_pods_take_over_again() {
    let mut world = self_hosted(Shape::Stacked(3));
    lose_disks(&mut world, 2);
    recovery_killed_after_any_effect(&world, 0, World::is_self_hosted);
}

#[test]
fn hosts_that_lose_their_control_plane_end_with_static_pods_first() {
    let mut world = self_hosted(Shape::Apart);
    world.reassign(&cp(1), &[Role::Worker]);
    let plan = planned(&mut world);
    let held = position(&plan, |a| matches!(a, Action::Hold { host } if *host == cp(1)));
    let ended = position(&plan, |a| matches!(a, Action::EndPods { host } if *host == cp(1)));
    assert!(follows(&plan, ended, held));
    assert_eq!(world.converge(3, 5), Ok(Ended::Converged));
}

#[test]
fn any_set_of_hosts_off_and_on_again_leaves_nothing_to_do() {
    for off in 1..8_u8 {
        let mut world = self_hosted(Shape::Stacked(3));
        let chosen = || (0..3).filter(|n| off >> n & 1 == 1);
        chosen().for_each(|n| world.suffer(Chaos::PowerOff(n)));
        chosen().for_each(|n| world.suffer(Chaos::PowerOn(n)));
        assert_eq!(world.converge(u64::from(off), 4), Ok(Ended::Converged), "{off:b}");
        assert!(world.is_self_hosted(), "{off:b}");
    }
}

#[test]
fn a_host_whose_pods_do_not_take_over_ends_the_run_before_the_next_host() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.hosting += 1);
    // Everything up to the first hand-over is done; then its kubelet stops, so no pod comes.
    let plan = planned(&mut world);
    let first = position(&plan, |a| matches!(a, Action::HandOver { .. }));
    let host = plan.steps[first].action.host().expect("a host").clone();
    let mut cut = plan.clone();
    cut.steps.truncate(first);
    cut.after.truncate(first);
    cut.forecast.truncate(first);
    let done = world.run(&cut, &Script::default()).expect("no law is broken");
    assert!(matches!(done, Ended::Done(_)), "{done:?}");
    world.unit_stopped(&host, &make::unit("kubelet.service"), true);
    let mut rest = planned(&mut world);
    rest.steps.retain(|step| matches!(step.action, Action::HandOver { .. }));
    assert!(!rest.steps.is_empty());
    let failed = world.force(&rest.steps[0].action);
    assert!(failed.is_err() && world.hosts.values().all(|host| host.taken.is_none()));
}
