//! A kill after any effect of a long change: the next runs finish it.

use crate::sim::{Ended, Script, World, make};
use crate::{Shape, converged, ends_well};
use hactl::model::desired::Role;

const OLD: &str = "1.35.4";
const NEW: &str = "1.36.3";

/// Runs the world's next round once for each of its effects, killed after that effect. The round has more than `least`
/// effects.
pub fn killed_after_any_effect(start: &World, least: u16) {
    killed_after_any_effect_and(start, least, |_| true);
}

/// The same, and the world is `well` at every end.
pub fn killed_after_any_effect_and(start: &World, least: u16, well: impl Fn(&World) -> bool) {
    for crash in 0.. {
        let mut world = start.clone();
        let script = Script { order: u64::from(crash % 5), crash_after: Some(crash), ..Script::default() };
        let end = world.round(&script).unwrap_or_else(|broken| panic!("killed after {crash}: {broken:?}"));
        assert_eq!(ends_well(&mut world, 7), Ok(()), "killed after {crash}");
        assert!(well(&world), "killed after {crash}");
        for addon in world.record.clone().unwrap_or_default().keys() {
            assert_eq!(world.stale(addon), Vec::<String>::new(), "killed after {crash}: objects of {addon} are left");
        }
        if end != Ended::Crashed {
            assert!(crash > least, "it has more effects than {crash}");
            return;
        }
    }
}

#[test]
fn an_upgrade_of_kubernetes_killed_after_any_effect_is_finished_by_the_next_runs() {
    let mut world = World::bare(3, 2);
    world.kubernetes(OLD);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world.kubernetes(NEW);
    killed_after_any_effect(&world, 60);
}

#[test]
fn a_rotation_killed_after_any_effect_of_any_stage_is_finished_by_the_next_runs() {
    // The next CA is distributed; then it signs; then the previous one is no longer trusted.
    let stages: [fn(&mut World); 3] =
        [|w| w.release(|r| r.trust += 1), |w| w.release(|r| r.leaves += 1), |w| w.release(|r| r.trust += 1)];
    let mut world = converged(Shape::Stacked(3));
    for stage in stages {
        stage(&mut world);
        killed_after_any_effect(&world, 5);
        assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    }
}

#[test]
fn a_prune_of_objects_killed_after_any_effect_is_finished_by_the_next_runs() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.users = 1);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world.release(|r| r.users = 3);
    killed_after_any_effect(&world, 3);
}

/// How many hosts have all files of a guard and run it; `None` if some host has only a part of that.
fn guards(world: &World) -> Option<usize> {
    let mut whole = 0;
    for host in world.hosts.values() {
        let files = make::GUARD.iter().filter(|path| host.files.contains_key(**path)).count();
        match (files, host.runs(make::GUARDS)) {
            (0, false) => {}
            (3, true) => whole += 1,
            _ => return None,
        }
    }
    Some(whole)
}

#[test]
fn guards_come_and_go_and_leave_no_file_and_no_unit_also_if_a_run_is_killed_after_any_effect() {
    let mut world = World::bare(3, 1);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world.release(|r| r.guards = 1);
    killed_after_any_effect_and(&world, 5, |world| guards(world) == Some(3));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    let mut fewer = world.clone();
    world.release(|r| r.guards = 2);
    killed_after_any_effect_and(&world, 5, |world| guards(world) == Some(0));
    // A host that loses all roles of the control plane loses its guard.
    fewer.reassign(&make::host_name("cp1"), &[Role::Worker]);
    killed_after_any_effect_and(&fewer, 5, |world| guards(world) == Some(2));
}
