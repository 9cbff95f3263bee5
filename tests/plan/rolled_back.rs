//! Disks with which no member may vote: a disk that was rolled back, the disk of another host, and the disk of a member
//! that cannot catch up.

use crate::sim::{World, make};
use crate::{Shape, converged, rejoining};
use hactl::model::check::{Check, Outcome};
use hactl::model::desired::Role;
use hactl::model::facts::{DiskFact, Etcd, EtcdFact, EtcdView, Facts, HostFacts};
use hactl::model::names::HostName;
use hactl::model::plan::{Action, InitialClusterState, Plan};
use hactl::model::positions::Position;
use hactl::model::refusal::Refusal;
use hactl::observe::{HashCheck, KnownCluster, checks, classify};
use hactl::plan::{RecoveryRequest, diagnose};

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn classified(world: &World, facts: &mut Facts) -> Etcd {
    classify(&world.desired, &KnownCluster::default(), &mut facts.hosts)
}

fn stopped(world: &mut World, n: u8) {
    world.unit_stopped(&cp(n), &make::unit("etcd.service"), false);
    world.settle();
}

fn host(facts: &mut Facts, n: u8) -> &mut HostFacts {
    facts.hosts.get_mut(&cp(n)).and_then(|f| f.as_mut().ok()).expect("it answers")
}

fn etcd(facts: &mut Facts, n: u8) -> &mut EtcdFact {
    host(facts, n).etcd.as_mut().expect("it was asked about etcd")
}

fn disk(facts: &mut Facts, n: u8) -> &mut DiskFact {
    etcd(facts, n).disk.as_mut().expect("a member that does not answer is read from its files")
}

fn views(facts: &mut Facts) -> Vec<&mut EtcdView> {
    let hosts = facts.hosts.values_mut().filter_map(|f| f.as_mut().ok()?.etcd.as_mut()?.view.as_mut());
    hosts.collect()
}

fn up(world: &World, facts: &Facts) -> Result<Plan, Refusal> {
    hactl::plan::up(&world.desired, &world.target, facts, &world.intent)
}

fn disk_checks(world: &World, facts: &Facts) -> Vec<Check> {
    let all = checks(&world.desired, facts, &HashCheck::Unknown(String::new()));
    all.into_iter().filter(|check| check.name == "etcd disks").collect()
}

/// The member is removed, its data is archived, and it joins as a learner; nothing starts from its old data.
fn joins_again(world: &World, plan: &Plan, n: u8) {
    let has = |action: &Action| plan.steps.iter().position(|s| &s.action == action);
    let peer = world.peer(&cp(n));
    let removed = has(&Action::RemoveMember { peer: peer.clone() });
    let aside = has(&Action::ArchiveData { host: cp(n) });
    let learner = has(&Action::AddLearner { peer: peer.clone() });
    let voter = has(&Action::Promote { peer });
    assert!(removed.is_some() && removed < aside && aside < learner && learner < voter, "{plan:?}");
    let from_its_data =
        |a: &Action| matches!(a, Action::StartMember { host, state: InitialClusterState::Restart } if host == &cp(n));
    assert!(!plan.steps.iter().any(|s| from_its_data(&s.action)), "{plan:?}");
}

/// Three members: cp2 is stopped with a disk that ends at entry 9, the others went on, and cp1 has recorded the
/// position of cp2.
fn back(remembered: u64) -> (World, Facts) {
    let mut world = converged(Shape::Stacked(3));
    stopped(&mut world, 2);
    let mut facts = world.observe();
    for view in views(&mut facts) {
        view.applied = 40;
    }
    let own = disk(&mut facts, 2).clone();
    let seen = Position { cluster: own.cluster, member: own.member, term: own.term, index: remembered };
    etcd(&mut facts, 1).positions = vec![seen];
    (world, facts)
}

#[test]
fn a_member_with_a_rolled_back_disk_joins_again_and_one_that_was_merely_off_is_started() {
    let (world, facts) = back(25);
    let plan = up(&world, &facts).expect("a plan");
    joins_again(&world, &plan, 2);
    joins_again(&world, &rejoining::by_facts(&world, facts.clone(), &cp(2)).expect("a guard plans it, too"), 2);
    let why = &plan.steps.iter().find(|s| matches!(s.action, Action::RemoveMember { .. })).expect("removed").why;
    assert_eq!(
        why,
        "the disk of cp2 was rolled back: its member had reached raft term 2, index 25 (recorded by cp1), but its data ends at raft term 2, index 9"
    );
    let check = disk_checks(&world, &facts);
    assert!(check.len() == 1 && check[0].outcome == Outcome::Fail && check[0].detail == *why, "{check:?}");
    // No host recorded a later position, or the recorded one is beyond every member.
    for remembered in [0, 9, 41] {
        let (world, facts) = back(remembered);
        let plan = up(&world, &facts).expect("a plan");
        let starts = |a: &Action| matches!(a, Action::StartMember { state: InitialClusterState::Restart, .. });
        assert!(plan.steps.iter().any(|s| starts(&s.action)) && !plan.changes_members(), "{remembered}: {plan:?}");
        assert_eq!(disk_checks(&world, &facts), []);
    }
    // A position that is only in the journal counts as well.
    let (world, mut facts) = back(25);
    facts.noted = std::mem::take(&mut etcd(&mut facts, 1).positions);
    assert!(disk_checks(&world, &facts)[0].detail.contains("recorded by hactl's journal"));
}

#[test]
fn a_rolled_back_member_is_not_started_without_a_quorum_and_both_remedies_are_shown() {
    let (world, mut facts) = back(25);
    // Besides it only cp1 answers: the member with all entries is off.
    let view = etcd(&mut facts, 1).view.take();
    let found = disk(&mut facts, 2).clone();
    let first = view.as_ref().map_or(0, |view| view.member);
    etcd(&mut facts, 1).disk = Some(DiskFact { member: first, index: 20, ..found });
    facts.hosts.insert(cp(3), Err(hactl::model::facts::Unreachable { why: "no route".to_owned(), hint: None }));
    facts.etcd = classified(&world, &mut facts);
    assert!(matches!(facts.etcd, Etcd::NoQuorum(_)));
    let Err(Refusal::NoQuorum { evidence }) = up(&world, &facts) else { panic!("{:?}", up(&world, &facts)) };
    let of = evidence.iter().find(|e| e.host == cp(2)).expect("every host is listed");
    assert!(of.what.contains("was rolled back") && of.what.contains("not started"), "{of:?}");
    let hint = disk_checks(&world, &facts)[0].hint.clone().unwrap_or_default();
    assert!(hint.contains("bring the other hosts back") && hint.contains("hactl recover"), "{hint}");
    // It does not count as one of two complete members: cp3 alone may have the missing entries.
    let asked = diagnose(&world.desired, &world.target, &facts, &world.intent, &RecoveryRequest::default());
    assert!(!matches!(asked, Err(Refusal::NotLost { .. })), "{asked:?}");
    etcd(&mut facts, 1).positions.clear();
    assert!(up(&world, &facts).is_ok_and(|plan| !plan.is_empty()), "without a recorded position it may be started");
}

#[test]
fn a_copy_of_another_members_disk_is_archived_whether_it_runs_or_not() {
    let (world, mut facts) = back(0);
    let first = etcd(&mut facts, 1).view.clone().expect("it answers").member;
    disk(&mut facts, 2).member = first;
    let plan = up(&world, &facts).expect("a plan");
    joins_again(&world, &plan, 2);
    assert_eq!(disk_checks(&world, &facts)[0].detail, "the disk of cp2 holds the etcd data of cp1's member");

    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    etcd(&mut facts, 2).view.as_mut().expect("it answers").member = first;
    facts.etcd = classified(&world, &mut facts);
    let Etcd::HasQuorum(members) = &facts.etcd else { panic!() };
    assert_eq!(members.healthy(), 2, "the member of cp2 is not at its listed address");
    let plan = up(&world, &facts).expect("a plan");
    joins_again(&world, &plan, 2);
}

#[test]
fn swapped_volumes_are_reported_with_and_without_a_quorum() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let ids = [2, 3].map(|n| etcd(&mut facts, n).view.as_ref().expect("it answers").member);
    for (n, id) in [(2, ids[1]), (3, ids[0])] {
        etcd(&mut facts, n).view.as_mut().expect("it answers").member = id;
    }
    facts.etcd = classified(&world, &mut facts);
    let words = "cp2 has the etcd disk of cp3, and cp3 that of cp2: swap the volumes back";
    let Err(Refusal::Preflight { problems }) = up(&world, &facts) else { panic!("{:?}", up(&world, &facts)) };
    assert_eq!(problems, [words]);
    let Etcd::HasQuorum(members) = &facts.etcd else { panic!() };
    assert_eq!((members.healthy(), members.spare()), (1, None), "with one more off there is no quorum");

    // All members are stopped; only their data is there.
    for n in [1, 2, 3] {
        stopped(&mut world, n);
    }
    let mut facts = world.observe();
    for (n, id) in [(2, ids[1]), (3, ids[0])] {
        disk(&mut facts, n).member = id;
    }
    let details: Vec<String> = disk_checks(&world, &facts).into_iter().map(|check| check.detail).collect();
    assert!(details.len() == 2 && details[0] == words, "{details:?}");
    let asked = diagnose(&world.desired, &world.target, &facts, &world.intent, &RecoveryRequest::default());
    assert!(matches!(&asked, Err(Refusal::Preflight { problems }) if problems == &[words]), "{asked:?}");
}

#[test]
fn a_member_that_cannot_catch_up_is_replaced_when_the_others_went_on_without_it() {
    let stuck = |applied: u64| {
        let (world, mut facts) = back(0);
        etcd(&mut facts, 2).stuck = Some("it hears its leader and has written nothing for 75 s".to_owned());
        let unit = host(&mut facts, 2).units.get_mut(&make::unit("etcd.service")).expect("its unit");
        (unit.active, unit.started_ms) = ("activating".to_owned(), 1);
        for view in views(&mut facts) {
            view.applied = applied;
        }
        (world, facts)
    };
    let (world, facts) = stuck(40);
    let plan = up(&world, &facts).expect("a plan");
    joins_again(&world, &plan, 2);
    let words = disk_checks(&world, &facts)[0].detail.clone();
    assert!(words.starts_with("the member on cp2 runs but cannot catch up: it hears its leader"), "{words}");
    let (world, facts) = stuck(9);
    assert!(!up(&world, &facts).expect("a plan").changes_members(), "there is nothing that it lacks");
}

#[test]
fn a_member_with_a_wrong_name_in_the_list_is_restarted_to_publish_its_own() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let peer = world.peer(&cp(1));
    let Etcd::HasQuorum(members) = &mut facts.etcd else { panic!() };
    members.0.get_mut(&peer).expect("listed").name = "cp3".to_owned();
    let plan = up(&world, &facts).expect("a plan");
    let restarted: Vec<_> = plan.steps.iter().filter(|s| matches!(s.action, Action::RunUnit { .. })).collect();
    assert_eq!(restarted.len(), 1, "{plan:?}");
    assert_eq!((restarted[0].action.host(), restarted[0].why.as_str()), (Some(&cp(1)), "the member list names it cp3"));
    assert!(world.with(Role::Etcd).len() == 3 && !plan.changes_members());
}
