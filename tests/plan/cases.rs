//! Single situations that an etcd operator would ask about, each with the safe answer.

use crate::sim::{Ended, Script, World, make};
use crate::{Shape, converged, readdressed, whole};
use hactl::model::facts::{Etcd, EtcdFact, Facts};
use hactl::model::firewall::{FirewallFact, Manager, Opening};
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Condition, HowToRun, Impact, InitialClusterState, Plan, Step};
use hactl::model::refusal::Refusal;
use hactl::model::survey::Way;
use hactl::model::target::FileSet;
use hactl::observe::{HashCheck, KnownCluster, checks, classify};
use std::collections::{BTreeMap, BTreeSet};

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
    let states = plan.steps.iter().filter_map(|s| match &s.action {
        Action::StartMember { state, .. } => Some(state),
        _ => None,
    });
    states.filter(|state| wanted(state)).count()
}

fn up(world: &World, facts: &Facts) -> Result<Plan, Refusal> {
    hactl::plan::up(&world.desired, &world.target, facts, &world.intent)
}

#[test]
fn unreachable_hosts_are_never_taken_for_an_uninitialized_cluster() {
    let mut world = converged(Shape::Stacked(3));
    for n in [1, 2] {
        world.wipe(&cp(n));
    }
    world.power_off(&cp(3));
    let (answer, _) = world.plan().expect("no law is broken");
    assert!(matches!(answer, Err(Refusal::NoQuorum { .. })), "{answer:?}");
    // A wrong observation bootstraps nothing either, with or without the journal.
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
fn a_bootstrapped_cluster_is_only_started_and_never_bootstrapped_again() {
    let mut world = World::bare(3, 0);
    let plan = world.plan().expect("sound").0.expect("a plan");
    let marking = plan
        .steps
        .iter()
        .position(|s| matches!(s.action, Action::Seal { .. }))
        .expect("it marks members as bootstrapped");
    let before =
        Plan { steps: plan.steps[..marking].to_vec(), after: plan.after[..marking].to_vec(), ..Plan::default() };
    assert!(matches!(world.run(&before, &Script::default()), Ok(Ended::Done(_))));
    assert!(world.intent.bootstrapped, "the journal records the bootstrap before any disk is marked as bootstrapped");
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
fn a_bootstrap_that_the_journal_missed_is_recorded_before_any_api_server_writes() {
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
    // cp4 was already in the member list when hactl was killed.
    let peer = make::control_host(4).peer_url();
    assert_eq!(world.force(&Action::RemoveMember { peer: peer.clone() }), Ok(()));
    assert_eq!(world.force(&Action::AddLearner { peer }), Ok(()));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_learner_on_an_unreachable_host_is_removed_when_another_host_has_to_join() {
    let mut world = converged(Shape::Stacked(5));
    world.wipe(&cp(4));
    let peer = make::control_host(4).peer_url();
    assert_eq!(world.force(&Action::RemoveMember { peer: peer.clone() }), Ok(()));
    assert_eq!(world.force(&Action::AddLearner { peer }), Ok(()));
    world.power_off(&cp(4));
    assert!(!changes_members(&world.plan().expect("sound").0.expect("a plan")), "no other host has to join");
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
fn new_addresses_of_living_members_are_applied_one_after_the_other_and_no_data_is_touched() {
    let mut world = readdressed();
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
fn members_with_expired_certificates_get_new_ones() {
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
    assert!(plan.horizon.is_some(), "the rest is planned afterwards");
    assert_eq!(starts(&plan, |_| true), 0, "a member that runs is not restarted without a quorum");
}

#[test]
fn a_changed_data_directory_moves_one_member_after_the_other() {
    let mut world = converged(Shape::Stacked(3));
    // With a changed dataDir, every member runs and is healthy, and the new directory is empty.
    let mut facts = world.observe();
    for host in facts.hosts.values_mut().flatten() {
        if let Some(etcd) = &mut host.etcd {
            etcd.data = false;
        }
    }
    let plan = up(&world, &facts).expect("a plan");
    let healthy: Vec<usize> = plan.forecast.iter().flatten().map(|m| m.voters() - m.healthy()).collect();
    assert!(healthy.iter().all(|missing| *missing == 0));
    assert!(plan.forecast.iter().flatten().all(|m| m.voters() >= 2), "never more than one member is removed");
}

#[test]
fn a_firewall_with_missing_or_excess_rules_is_fixed_on_its_host_and_disturbs_nothing() {
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
    let text = step.action.to_string();
    assert!(text.contains("open in ufw: 2380/tcp from 10.88.0.12"), "{text}");
    assert!(text.contains("close in ufw: 2380/tcp from 10.88.0.14"), "{text}");
    assert_eq!(step.impact(), Impact::None);
}

#[test]
fn a_containerd_that_runs_and_does_not_answer_is_restarted_and_nothing_is_imported_before_it_answers() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let mut planned = |active: &str| {
        let Some(Ok(host)) = facts.hosts.get_mut(&cp(2)) else { panic!("cp2 answers") };
        host.images.clear();
        host.hung.insert("containerd.service".to_owned(), "it is suspended".to_owned());
        let unit = host.units.get_mut(&make::unit("containerd.service")).expect("it is there");
        active.clone_into(&mut unit.active);
        up(&world, &facts).expect("a plan").steps
    };
    let steps = planned("active");
    let [step] = steps.as_slice() else { panic!("one step: {steps:?}") };
    let restart = |how| Action::RunUnit { host: cp(2), unit: make::unit("containerd.service"), how };
    assert_eq!(step.action, restart(HowToRun::RestartIfHung));
    assert_eq!(step.why, "it is suspended");
    let imports = |step: &Step| matches!(&step.action, Action::Import { host, .. } if host == &cp(2));
    assert!(planned("inactive").iter().any(imports), "one that is down does not know its images either");
    let Some(Ok(host)) = facts.hosts.get_mut(&cp(2)) else { panic!("cp2 answers") };
    let unit = host.units.get_mut(&make::unit("containerd.service")).expect("it is there");
    (unit.active, unit.started_ms) = ("active".to_owned(), 0);
    let steps = up(&world, &facts).expect("a plan").steps;
    let restarts = steps.iter().any(|step| step.action == restart(HowToRun::Restart));
    assert!(restarts, "one with older files is restarted even if it answers by then: {steps:?}");
}

#[test]
fn components_that_run_and_do_not_answer_are_restarted_on_their_host_alone_and_then_all_is_well() {
    let mut world = converged(Shape::Stacked(3));
    let units = ["kubelet.service", "haproxy.service", "hactl-etcd-balancer.service", "keepalived.service"];
    let frozen = units.into_iter().chain(["kube-apiserver"]).map(ToOwned::to_owned);
    world.host_mut(&cp(2)).frozen.extend(frozen);
    let plan = world.plan().expect("sound").0.expect("a plan");
    let step = |wanted: &Action| plan.steps.iter().find(|step| step.action == *wanted);
    for unit in units {
        let restart = Action::RunUnit { host: cp(2), unit: make::unit(unit), how: HowToRun::RestartIfHung };
        let why = step(&restart).unwrap_or_else(|| panic!("{unit} is restarted: {:?}", plan.steps)).why.as_str();
        assert_eq!(why, "it is suspended");
    }
    let ends = Action::AwaitServing { host: cp(2), ends_hung: true, restart_kubelet: false };
    assert_eq!(step(&ends).expect("it is killed").why, "it is suspended");
    let disturbing = plan.steps.iter().filter(|step| step.impact() >= Impact::Restart);
    assert!(disturbing.filter_map(|step| step.action.host()).all(|host| *host == cp(2)), "{:?}", plan.steps);
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    assert!(world.host(&cp(2)).frozen.is_empty() && world.api_serves(&cp(2)) && world.node_ready(&cp(2)));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn steps_for_hung_components_restart_nothing_on_a_host_that_finds_them_answering() {
    let mut world = converged(Shape::Stacked(3));
    let frozen = ["kubelet.service", "haproxy.service", "kube-apiserver"].map(ToOwned::to_owned);
    world.host_mut(&cp(2)).frozen.extend(frozen);
    let plan = world.plan().expect("sound").0.expect("a plan");
    world.host_mut(&cp(2)).frozen.clear();
    let started = |world: &World| {
        let host = world.host(&cp(2));
        let units = host.units.iter().map(|(unit, found)| (unit.to_string(), found.started_ms));
        (units.collect::<BTreeMap<_, _>>(), host.processes.clone())
    };
    let before = started(&world);
    assert!(matches!(world.run(&plan, &Script::default()), Ok(Ended::Done(_))));
    assert_eq!(started(&world), before);
}

#[test]
fn hung_api_servers_are_killed_one_after_the_other_and_that_counts_as_a_restart() {
    let mut world = converged(Shape::Stacked(3));
    for n in [2, 3] {
        world.host_mut(&cp(n)).frozen.insert("kube-apiserver".to_owned());
    }
    let plan = world.plan().expect("sound").0.expect("a plan");
    let ends = |n| {
        let ends = Action::AwaitServing { host: cp(n), ends_hung: true, restart_kubelet: false };
        plan.steps.iter().position(|step| step.action == ends).unwrap_or_else(|| panic!("{:?}", plan.steps))
    };
    assert!(plan.after[ends(3)].contains(&ends(2)), "{:?}", plan.after);
    assert_eq!((plan.steps[ends(2)].impact(), plan.impact()), (Impact::Restart, Impact::Restart));
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    assert!([2, 3].into_iter().all(|n| world.api_serves(&cp(n))));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_hung_api_server_gets_its_new_manifest_only_once_the_hung_one_before_it_serves_again() {
    let mut world = converged(Shape::Stacked(3));
    for n in [2, 3] {
        world.host_mut(&cp(n)).frozen.insert("kube-apiserver".to_owned());
    }
    world.release(|r| r.manifests += 1);
    let plan = world.plan().expect("sound").0.expect("a plan");
    let writes = |action: &Action| matches!(action, Action::Configure { host, set: FileSet::ControlPlane, .. } if *host == cp(3));
    let step = plan.steps.iter().find(|step| writes(&step.action)).expect("its manifest is written");
    assert!(step.requires.contains(&Condition::Serving(cp(2))), "{step:?}");
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn the_only_member_that_hears_both_others_is_not_restarted_and_no_failure_is_tolerated() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.etcd += 1);
    let mut facts = world.observe();
    let etcd = |facts: &Facts, n: u8| facts.host(&cp(n)).and_then(|host| host.etcd.clone()).expect("it was asked");
    let ids = [1, 2, 3].map(|n| etcd(&facts, n).view.expect("it answers").member);
    let restarted = |facts: &mut Facts, deaf: &[u8]| {
        for n in deaf {
            let hears = EtcdFact { peers: Some([ids[0]].into()), ..etcd(facts, *n) };
            let Some(Ok(host)) = facts.hosts.get_mut(&cp(*n)) else { panic!("cp{n} answers") };
            host.etcd = Some(hears);
        }
        facts.etcd = classify(&world.desired, &KnownCluster::default(), &mut facts.hosts);
        let steps = up(&world, facts).expect("a plan").steps;
        let of_etcd = |step: &Step| match &step.action {
            Action::RunUnit { host, unit, how: HowToRun::Restart } if unit.as_str() == "etcd.service" => {
                Some(host.to_string())
            }
            _ => None,
        };
        let said = checks(&world.desired, facts, &HashCheck::Unknown(String::new()));
        let detail = said.into_iter().find(|check| check.name == "etcd members healthy").expect("it is there").detail;
        (steps.iter().filter_map(of_etcd).collect::<BTreeSet<String>>(), detail)
    };
    let names = |all: &[u8]| all.iter().map(|n| cp(*n).to_string()).collect::<BTreeSet<_>>();
    let (steps, detail) = restarted(&mut facts, &[2]);
    assert_eq!((steps, detail.as_str()), (names(&[1, 2, 3]), "3 of 3 voters, quorum 2, tolerates 1 more failure"));
    let (steps, detail) = restarted(&mut facts, &[3]);
    assert_eq!((steps, detail.as_str()), (names(&[2, 3]), "3 of 3 voters, quorum 2, tolerates 0 more failures"));
    let warnings = up(&world, &facts).expect("a plan").warnings;
    let waits = "waits until cp2 and cp3 have a peer connection";
    assert!(warnings.iter().any(|text| text.contains(waits)), "{warnings:?}");
}

#[test]
fn a_member_is_not_restarted_while_the_others_have_no_quorum() {
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
fn down_archives_data_leaves_bare_hosts_and_then_has_nothing_to_do() {
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
