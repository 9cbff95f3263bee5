//! Single situations that an operator of etcd would ask about, each with the answer that is safe.

use crate::sim::{Ended, Script, World, make};
use crate::{Shape, converged, whole};
use hactl::model::facts::{Etcd, Facts};
use hactl::model::firewall::{FirewallFact, Manager, Opening};
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Condition, Impact, InitialClusterState, Plan};
use hactl::model::refusal::Refusal;
use hactl::model::survey::Way;
use std::collections::BTreeSet;

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn changes_members(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| {
        matches!(
            s.action,
            Action::RemoveMember { .. }
                | Action::AddLearner { .. }
                | Action::Promote { .. }
                | Action::ArchiveData { .. }
        )
    })
}

fn starts(plan: &Plan, wanted: impl Fn(&InitialClusterState) -> bool) -> usize {
    let births = plan.steps.iter().filter_map(|s| match &s.action {
        Action::StartMember { state, .. } => Some(state),
        _ => None,
    });
    births.filter(|b| wanted(b)).count()
}

fn up(world: &World, facts: &Facts) -> Result<Plan, Refusal> {
    hactl::plan::up(&world.desired, &world.target, facts, &world.intent)
}

#[test]
fn silence_is_never_read_as_no_cluster_yet() {
    let mut world = converged(Shape::Stacked(3));
    for n in [1, 2] {
        world.wipe(&cp(n));
    }
    world.power_off(&cp(3));
    let (answer, _) = world.plan().expect("no law is broken");
    assert!(matches!(answer, Err(Refusal::NoQuorum { .. })), "{answer:?}");
    // Even an observation that gets it wrong founds nothing, and neither does one without the journal.
    let mut lie = world.observe();
    lie.etcd = Etcd::Uninitialized;
    assert!(matches!(up(&world, &lie), Err(Refusal::NoQuorum { .. })));
    world.intent.bootstrapped = false;
    assert!(matches!(up(&world, &lie), Err(Refusal::CannotTell { .. })));
}

#[test]
fn empty_etcd_disks_under_a_control_plane_are_a_loss_even_without_a_journal() {
    let mut world = converged(Shape::Stacked(3));
    for n in 1..=3 {
        world.lose_data(&cp(n));
    }
    world.intent.bootstrapped = false;
    let facts = world.observe();
    assert_eq!(facts.etcd, Etcd::Uninitialized);
    assert!(matches!(up(&world, &facts), Err(Refusal::NoQuorum { .. })));
}

#[test]
fn a_founding_of_a_cluster_that_was_born_is_only_woken_never_founded_again() {
    let mut world = World::bare(3, 0);
    let plan = world.plan().expect("sound").0.expect("a plan");
    let seal = plan.steps.iter().position(|s| matches!(s.action, Action::Seal { .. })).expect("it seals");
    let before = Plan { steps: plan.steps[..seal].to_vec(), after: plan.after[..seal].to_vec(), ..Plan::default() };
    assert!(matches!(world.run(&before, &Script::default()), Ok(Ended::Done(_))));
    assert!(world.intent.bootstrapped, "the birth is in the journal before any disk is sealed");
    for n in 1..=3 {
        world.unit_stopped(&cp(n), &make::unit("etcd.service"), false);
    }
    let facts = world.observe();
    assert!(matches!(facts.etcd, Etcd::Bootstrapping { .. }));
    let plan = up(&world, &facts).expect("a plan");
    assert_eq!(starts(&plan, |b| *b == InitialClusterState::Restart), 3);
    assert_eq!(starts(&plan, |b| matches!(b, InitialClusterState::New { .. })), 0);
    let mut lost = world.clone();
    for n in [1, 2] {
        lost.wipe(&cp(n));
    }
    let refused = lost.converge(1, 4);
    assert!(matches!(refused, Ok(Ended::Refused(Refusal::NoQuorum { .. }))), "{refused:?}");
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_host_that_says_nothing_about_etcd_is_not_taken_for_an_empty_one() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    if let Some(Ok(host)) = facts.hosts.get_mut(&cp(2)) {
        host.etcd = None;
    }
    let plan = up(&world, &facts).expect("a plan");
    assert!(!changes_members(&plan));
    assert!(plan.warnings.iter().any(|w| w.contains("cp2 reports nothing about etcd")));
}

#[test]
fn a_birth_that_the_journal_missed_is_recorded_before_any_api_server_writes() {
    let mut world = converged(Shape::Stacked(3));
    world.intent.bootstrapped = false;
    world.release(|r| r.manifests += 1);
    let plan = world.plan().expect("sound").0.expect("a plan");
    let proof = plan.steps.iter().position(|s| s.action == Action::ProveQuorum).expect("it proves quorum");
    for (index, step) in plan.steps.iter().enumerate() {
        if step.requires.contains(&Condition::Quorum) {
            assert!(plan.after[index].contains(&proof));
        }
    }
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    assert!(world.intent.bootstrapped);
}

#[test]
fn a_learner_in_flight_is_finished_before_another_host_joins() {
    let mut world = converged(Shape::Stacked(5));
    for n in [1, 4] {
        world.wipe(&cp(n));
    }
    // cp4 had come as far as being listed when hactl was killed.
    let peer = make::control_host(4).peer_url();
    assert_eq!(world.force(&Action::RemoveMember { peer: peer.clone() }), Ok(()));
    assert_eq!(world.force(&Action::AddLearner { peer }), Ok(()));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_learner_whose_host_is_away_gives_way_to_a_host_that_is_there() {
    let mut world = converged(Shape::Stacked(5));
    world.wipe(&cp(4));
    let peer = make::control_host(4).peer_url();
    assert_eq!(world.force(&Action::RemoveMember { peer: peer.clone() }), Ok(()));
    assert_eq!(world.force(&Action::AddLearner { peer }), Ok(()));
    world.power_off(&cp(4));
    assert!(!changes_members(&world.plan().expect("sound").0.expect("a plan")), "nobody waits behind it");
    world.wipe(&cp(1));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world.power_on(&cp(4));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn stale_data_under_a_new_learner_is_moved_aside() {
    let mut world = converged(Shape::Stacked(3));
    let old = world.host(&cp(2)).disk.clone();
    world.lose_data(&cp(2));
    let peer = make::control_host(2).peer_url();
    assert_eq!(world.force(&Action::RemoveMember { peer: peer.clone() }), Ok(()));
    assert_eq!(world.force(&Action::AddLearner { peer }), Ok(()));
    // The volume is mounted again, with the data of the member that was removed.
    world.host_mut(&cp(2)).disk = old.clone();
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
    assert_eq!(world.host(&cp(2)).aside, old.into_iter().collect::<Vec<_>>(), "moved aside, not deleted");
}

#[test]
fn two_clusters_that_both_answer_are_refused() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    if let Some(Ok(host)) = facts.hosts.get_mut(&cp(3)) {
        let etcd = host.etcd.as_mut().expect("an etcd host");
        etcd.view.as_mut().expect("it runs").cluster = "feed".to_owned();
    }
    let refused = up(&world, &facts);
    assert!(matches!(&refused, Err(Refusal::Preflight { problems }) if problems[0].contains("two etcd clusters")));
}

#[test]
fn new_addresses_of_living_members_are_taken_up_one_after_the_other_and_no_data_is_touched() {
    let mut world = converged(Shape::Stacked(3));
    world.rehost(|d| {
        for host in &mut d.hosts {
            if let std::net::IpAddr::V4(address) = host.address {
                let [a, b, _, d] = address.octets();
                host.address = [a, b, 9, d].into();
            }
        }
    });
    let disks = |world: &World| (1..=3).map(|n| world.host(&cp(n)).disk.clone()).collect::<Vec<_>>();
    let before = disks(&world);
    let plan = world.plan().expect("no law is broken").0.expect("a plan");
    let moves = plan.steps.iter().filter(|s| matches!(s.action, Action::MoveMember { .. })).count();
    assert_eq!(moves, 3);
    assert_eq!(world.converge(4, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
    assert_eq!(disks(&world), before);
}

#[test]
fn members_silenced_by_their_certificates_get_new_ones() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let evidence = Vec::new();
    for host in facts.hosts.values_mut().flatten() {
        host.now_ms += 400 * 86_400 * 1000;
        if let Some(etcd) = &mut host.etcd {
            etcd.view = None;
        }
    }
    facts.etcd = Etcd::NoQuorum(evidence);
    let plan = up(&world, &facts).expect("a plan");
    let certified = plan.steps.iter().filter(|s| matches!(s.action, Action::Certify { .. })).count();
    assert_eq!(certified, 4, "three members and a worker");
    let proof = plan.steps.last().expect("steps");
    assert_eq!(proof.action, Action::ProveQuorum);
    assert!(plan.horizon.is_some(), "the rest shows afterwards");
    assert_eq!(starts(&plan, |_| true), 0, "a member that runs is not restarted without a quorum");
}

#[test]
fn a_new_data_directory_moves_one_member_after_the_other() {
    let mut world = converged(Shape::Stacked(3));
    // What a changed dataDir looks like: every member runs and is healthy, and the new directory is empty.
    let mut facts = world.observe();
    for host in facts.hosts.values_mut().flatten() {
        if let Some(etcd) = &mut host.etcd {
            etcd.data = false;
        }
    }
    let plan = up(&world, &facts).expect("a plan");
    let healthy: Vec<usize> = plan.forecast.iter().flatten().map(|m| m.voters() - m.healthy()).collect();
    assert!(healthy.iter().all(|missing| *missing == 0));
    assert!(plan.forecast.iter().flatten().all(|m| m.voters() >= 2), "never more than one member is out");
}

#[test]
fn a_firewall_that_lets_in_too_little_or_too_much_is_mended_on_its_host_and_disturbs_nothing() {
    let mut world = converged(Shape::Stacked(3));
    let opening = |last: u8| Opening::from_address([10, 88, 0, last].into(), Way::Tcp(2380));
    let target = world.target.hosts.get_mut(&cp(1)).expect("a host");
    target.openings = Some(BTreeSet::from([opening(12), opening(13)]));
    let mut facts = world.observe();
    let mut planned = |open: &[u8]| {
        let open = open.iter().map(|last| opening(*last)).collect();
        let Some(Ok(host)) = facts.hosts.get_mut(&cp(1)) else { panic!("cp1 answers") };
        host.firewall = Some(FirewallFact { manager: Manager::Ufw, open });
        up(&world, &facts).expect("a plan").steps
    };
    assert_eq!(planned(&[12, 13]), []);
    let steps = planned(&[13, 14]);
    let [step] = steps.as_slice() else { panic!("one step: {steps:?}") };
    let told = step.action.to_string();
    assert!(told.contains("open in ufw: 2380/tcp from 10.88.0.12"), "{told}");
    assert!(told.contains("close in ufw: 2380/tcp from 10.88.0.14"), "{told}");
    assert_eq!(step.impact(), Impact::None);
}

#[test]
fn a_member_is_not_restarted_while_the_others_cannot_carry_the_cluster() {
    let mut world = converged(Shape::Stacked(3));
    world.power_off(&cp(3));
    world.release(|r| r.etcd += 1);
    assert_eq!(world.converge(1, 3), Ok(Ended::Converged));
    let plan = world.plan().expect("sound").0.expect("a plan");
    assert!(plan.warnings.iter().any(|w| w.contains("waits until another member is healthy")), "{:?}", plan.warnings);
    world.power_on(&cp(3));
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    assert!(world.plan().expect("sound").0.expect("a plan").warnings.is_empty());
}

#[test]
fn a_rolling_restart_ends_with_the_leader() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.etcd += 1);
    let (plan, facts) = world.plan().expect("sound");
    let plan = plan.expect("a plan");
    let last = plan
        .steps
        .iter()
        .rev()
        .find(|s| matches!(&s.action, Action::RunUnit { unit, .. } if unit.as_str() == "etcd.service"));
    let host = last.and_then(|s| s.action.host().cloned()).expect("it restarts etcd");
    let view = facts.host(&host).and_then(|f| f.etcd.clone()).and_then(|e| e.view).expect("it runs");
    assert_eq!(view.leader, view.member);
}

#[test]
fn down_leaves_data_aside_and_bare_hosts_behind_and_then_nothing_to_do() {
    for delete in [false, true] {
        let mut world = converged(Shape::Stacked(3));
        world.down_wipe = true;
        let facts = world.observe();
        let intent = world.intent.clone();
        let plan = hactl::plan::down(&world.desired, &world.target, &facts, &intent, delete).expect("a plan");
        assert_eq!(plan.steps.len(), 4);
        assert!(matches!(world.run(&plan, &Script::default()), Ok(Ended::Done(_))));
        assert_eq!(world.host(&cp(1)).aside.len(), usize::from(!delete));
        let facts = world.observe();
        let again = hactl::plan::down(&world.desired, &world.target, &facts, &intent, delete).expect("a plan");
        assert!(again.is_empty());
    }
}
