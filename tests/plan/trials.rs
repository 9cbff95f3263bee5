//! New files on trial: one host at a time gets them, and the previous files are kept until the programs that use the
//! new ones have come up.

use crate::sim::{Script, World, make};
use crate::{Shape, converged};
use hactl::model::facts::Facts;
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Plan};
use hactl::model::target::FileSet;

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn up(world: &World, facts: &Facts) -> Plan {
    hactl::plan::up(&world.desired, &world.target, facts, &world.intent).expect("a plan")
}

fn writes(plan: &Plan, host: &HostName, set: FileSet) -> usize {
    let is = |a: &Action| matches!(a, Action::Configure { host: h, set: s, keep: true, .. } if h == host && *s == set);
    plan.steps
        .iter()
        .position(|s| is(&s.action))
        .unwrap_or_else(|| panic!("{set} is not written on {host} with the previous files kept"))
}

/// The step that rolls back to the previous files of this set.
fn proves(plan: &Plan, host: &HostName, set: FileSet) -> usize {
    let is = |at: &usize| plan.steps[*at].action.host() == Some(host) && plan.steps[*at].rollback.contains(&set);
    (0..plan.steps.len()).find(is).unwrap_or_else(|| panic!("no step on {host} would roll back {set}"))
}

/// Whether a step waits for another one, directly or indirectly.
fn follows(plan: &Plan, later: usize, earlier: usize) -> bool {
    plan.after[later].iter().any(|&before| before == earlier || follows(plan, before, earlier))
}

/// On each host in turn: no host gets the new files of a set before they have passed their trial on the previous host.
fn in_turn(plan: &Plan, set: FileSet) {
    let mut order: Vec<HostName> = (1..=3).map(cp).collect();
    order.sort_by_key(|host| proves(plan, host, set));
    for host in &order {
        assert!(follows(plan, proves(plan, host, set), writes(plan, host, set)), "{host}: {set}");
    }
    for pair in order.windows(2) {
        let (first, next) = (proves(plan, &pair[0], set), writes(plan, &pair[1], set));
        assert!(
            follows(plan, next, first),
            "{set} is written on {} before it has passed its trial on {}",
            pair[1],
            pair[0]
        );
    }
}

#[test]
fn no_host_gets_new_files_before_they_have_passed_their_trial_on_the_previous_one() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.manifests += 1);
    in_turn(&up(&world, &world.clone().observe()), FileSet::ControlPlane);
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.etcd += 1);
    in_turn(&up(&world, &world.clone().observe()), FileSet::Etcd);
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.runtime += 1);
    in_turn(&up(&world, &world.clone().observe()), FileSet::Runtime);
}

#[test]
fn a_bootstrap_has_nothing_to_roll_back_to() {
    let mut world = Shape::Stacked(3).bare();
    let facts = world.observe();
    let plan = up(&world, &facts);
    assert!(plan.steps.iter().all(|s| s.rollback.is_empty()));
    assert!(plan.steps.iter().all(|s| !matches!(s.action, Action::Configure { keep: true, .. })));
}

#[test]
fn files_kept_by_an_interrupted_run_are_restored_if_the_new_ones_fail_and_dropped_otherwise() {
    let mut world = converged(Shape::Stacked(3));
    let kept = |facts: &mut Facts, set| {
        let host = facts.hosts.get_mut(&cp(2)).and_then(|f| f.as_mut().ok()).expect("it answers");
        host.on_trial.insert(set);
    };
    let mut facts = world.observe();
    kept(&mut facts, FileSet::ControlPlane);
    let plan = up(&world, &facts);
    let sets = vec![FileSet::ControlPlane];
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(plan.steps[0].action, Action::Accept { host: cp(2), sets }, "it serves with its new manifests");

    let host = facts.hosts.get_mut(&cp(2)).and_then(|f| f.as_mut().ok()).expect("it answers");
    host.api.as_mut().expect("it was asked").own_trouble = Some("connection refused".to_owned());
    let plan = up(&world, &facts);
    let at = proves(&plan, &cp(2), FileSet::ControlPlane);
    assert!(matches!(plan.steps[at].action, Action::AwaitServing { .. }));
    assert!(plan.steps.iter().all(|s| !matches!(s.action, Action::Accept { .. })), "nothing has passed its trial");

    let mut facts = world.observe();
    kept(&mut facts, FileSet::Runtime);
    let host = facts.hosts.get_mut(&cp(2)).and_then(|f| f.as_mut().ok()).expect("it answers");
    host.units.get_mut(&make::unit("containerd.service")).expect("it runs").active = "failed".to_owned();
    let plan = up(&world, &facts);
    let at = proves(&plan, &cp(2), FileSet::Runtime);
    assert!(matches!(plan.steps[at].action, Action::RunUnit { .. }));
}

#[test]
fn a_corrected_inventory_keeps_the_files_that_last_worked_and_not_those_that_failed() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.manifests += 1);
    let plan = up(&world, &world.clone().observe());
    // It is killed right after the first manifest is written.
    let written = writes(&plan, &cp(1), FileSet::ControlPlane);
    let mut facts = world.observe();
    let host = facts.hosts.get_mut(&cp(1)).and_then(|f| f.as_mut().ok()).expect("it answers");
    host.on_trial.insert(FileSet::ControlPlane);
    host.api.as_mut().expect("it was asked").own_trouble = Some("it ends again and again".to_owned());
    world.release(|r| r.manifests += 1);
    let plan = up(&world, &facts);
    let again = writes(&plan, &cp(1), FileSet::ControlPlane);
    assert!(plan.steps[again].rollback.is_empty() && written < usize::MAX);
    assert!(follows(&plan, proves(&plan, &cp(1), FileSet::ControlPlane), again));
    // The whole plan converges, too.
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.manifests += 1);
    let plan = up(&world, &world.clone().observe());
    world.run(&plan, &Script::default()).expect("no law is broken");
}

#[test]
fn a_host_left_on_trial_by_an_interrupted_run_comes_first_and_the_others_wait_for_it() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    world.release(|r| r.manifests += 1);
    // cp2 has the new manifests and does not serve with them.
    let target = &world.target.hosts[&cp(2)].sets[&FileSet::ControlPlane];
    let host = facts.hosts.get_mut(&cp(2)).and_then(|f| f.as_mut().ok()).expect("it answers");
    for file in &target.files {
        host.files.get_mut(&file.path).expect("it was there").digest = file.digest;
    }
    host.on_trial.insert(FileSet::ControlPlane);
    host.api.as_mut().expect("it was asked").own_trouble = Some("connection refused".to_owned());
    let plan = up(&world, &facts);
    let first = proves(&plan, &cp(2), FileSet::ControlPlane);
    for n in [1, 3] {
        assert!(follows(&plan, writes(&plan, &cp(n), FileSet::ControlPlane), first), "cp{n} waits for cp2");
    }
}

#[test]
fn stores_with_mostly_free_pages_are_defragmented_one_after_the_other_and_the_leaders_last() {
    let mut world = converged(Shape::Stacked(3));
    let peer = |n| make::control_host(n).peer_url();
    world.lead(&cp(1), &peer(1)).expect("a voter can lead");
    for n in 1..=3 {
        world.host_mut(&cp(n)).loose = true;
    }
    let facts = world.observe();
    let plan = up(&world, &facts);
    let order: Vec<&HostName> = plan.steps.iter().filter_map(|s| s.action.host()).collect();
    assert_eq!(order, [&cp(2), &cp(3), &cp(1), &cp(1)]);
    let handover = Action::MoveLeader { host: cp(1), to: peer(2) };
    assert_eq!(plan.steps[2].action, handover, "the leader moves leadership first, so that no election delays clients");
    let others = plan.steps.iter().filter(|s| s.action != handover);
    assert!(others.into_iter().all(|s| matches!(s.action, Action::Defragment { .. })), "and nothing else");
    assert!(follows(&plan, 1, 0) && follows(&plan, 2, 1) && follows(&plan, 3, 2));
    assert_eq!(plan.steps[0].why, "768 of the 1024 MiB of its database are free pages");
    world.power_off(&cp(3));
    let facts = world.observe();
    let plan = up(&world, &facts);
    assert!(plan.is_empty(), "it waits while a member is missing");
    assert!(plan.warnings.iter().any(|w| w.contains("until another member is healthy")), "{:?}", plan.warnings);
}
