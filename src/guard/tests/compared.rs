//! What a guard concludes about its own host, and about the cluster, from the heartbeats of the others.

use super::{Played, name, policy};
use crate::guard::disk::Speed;
use crate::model::fault::{Fault, FaultKind};
use crate::model::heartbeat::Heartbeat;
use crate::model::hold::{Annotated, Hold};
use crate::model::positions::Position;
use crate::model::standby::Voters;

/// So many seconds with the same heartbeats of cp2 and cp3.
fn lasts(cp1: &mut Played, seconds: u32, change: impl Fn(&str, Heartbeat) -> Heartbeat) {
    for _ in 0..seconds {
        let beats = ["cp2", "cp3"].map(|host| change(host, cp1.beat(host, &[])));
        cp1.second(&beats, &["cp2", "cp3"]);
    }
}

fn evidence(cp1: &Played, kind: FaultKind) -> Option<String> {
    let report = cp1.report();
    let mut all = report.own.iter().chain(&report.presumed);
    all.find(|fault| fault.kind == kind).map(|fault| fault.evidence.clone())
}

#[test]
fn a_slow_leader_hands_over_the_lead_only_if_another_voter_is_fast_whether_or_not_reads_are_served() {
    let slow = |own: Speed, others: [(Option<u32>, bool); 2]| {
        let mut cp1 = Played::new();
        cp1.state.serves(Some(true));
        cp1.state.speed(own);
        let learner =
            |host| vec![Fault { host, kind: FaultKind::EtcdNotVoting, since_ms: 1, evidence: "a learner".to_owned() }];
        lasts(&mut cp1, 70, |host, beat| {
            let (sync_ms, votes) = others[usize::from(host == "cp3")];
            let faults = if votes { vec![] } else { learner(name(host)) };
            Heartbeat { sync_ms, etcd: Some(false), faults, ..beat }
        });
        (evidence(&cp1, FaultKind::EtcdSlowLeader), cp1.state.fast(cp1.now()))
    };
    let own = |sync_ms, leads| Speed { sync_ms: Some(sync_ms), leads, votes: true };
    let (fast, both) = ((Some(8), true), [(Some(64), true), (Some(8), true)]);
    let said = "a sync of its log takes up to 1024 ms, on cp3 at most 128 ms".to_owned();
    assert_eq!(slow(own(1024, true), both), (Some(said), Some(name("cp3"))), "the fastest");
    assert_eq!(slow(own(512, true), both).0, None, "it is not slow");
    assert_eq!(slow(own(1024, false), both).0, None, "it does not lead");
    assert_eq!(slow(own(1024, true), [(Some(256), true), (None, true)]).0, None, "no other one is fast");
    assert_eq!(slow(own(1024, true), [(Some(256), true), (Some(8), false)]).0, None, "the fast one is a learner");
    assert!(slow(own(u32::MAX, true), [fast, (None, true)]).0.unwrap().contains("many seconds"));
}

#[test]
fn who_votes_is_asked_rarely_only_while_all_are_heard_and_serve_and_the_own_member_says_that_it_votes() {
    let calm = |votes: bool, known: bool, other: bool, silent: u32| {
        let mut cp1 = Played::new();
        let hosts = ["cp1", "cp2", "cp3"].map(name).into();
        cp1.state.serves(Some(true));
        cp1.state.speed(Speed { votes, ..Speed::default() });
        cp1.state.vote(known.then_some(Voters { hosts, strangers: 0 }));
        lasts(&mut cp1, 20, |host, beat| Heartbeat { etcd: Some(other || host == "cp2"), ..beat });
        (0..silent).for_each(|_| cp1.second(&[], &[]));
        cp1.state.is_calm(cp1.now())
    };
    assert!(calm(true, true, true, 0));
    assert!(!calm(false, true, true, 0), "it is a learner, or does not say");
    assert!(!calm(true, false, true, 0), "who votes is not known yet");
    assert!(!calm(true, true, false, 0), "cp3 does not serve");
    assert!(!calm(true, true, true, 10), "the others are not heard");
}

#[test]
fn a_lost_quorum_is_reported_with_the_host_whose_data_goes_furthest() {
    let at = |member, index| Position { cluster: "c1".to_owned(), member, term: 3, index };
    let lost = |own: bool, other: bool| {
        let mut cp1 = Played::new();
        cp1.state.serves(Some(own));
        cp1.state.reaches(Some(at(1, 40)), vec![at(1, 40), at(3, 45)]);
        lasts(&mut cp1, 40, |host, beat| {
            let (etcd, reach) = if host == "cp2" { (Some(other), Some(at(2, 43))) } else { (None, None) };
            Heartbeat { etcd, reach, ..beat }
        });
        evidence(&cp1, FaultKind::EtcdQuorumLost)
    };
    let said = "cp3 is not heard, and none of the other 2 members serves; the data of cp2 goes furthest (raft term 3, \
                index 43), 2 later entries are known to have existed";
    assert_eq!(lost(false, false).unwrap(), said);
    assert_eq!(lost(false, true), None, "cp2 serves");
    assert_eq!(lost(true, false), None, "the own member serves");
}

#[test]
fn a_fault_that_is_raised_again_and_again_is_reported_as_flapping() {
    let mut cp1 = Played::new();
    let found = [(FaultKind::BalancerFrozen, "no answer".to_owned())];
    for second in 0..400 {
        let bad = second % 90 < 30;
        cp1.state.probed(&[FaultKind::BalancerFrozen], if bad { &found } else { &[] }, cp1.now());
        cp1.second(&[], &[]);
    }
    assert_eq!(evidence(&cp1, FaultKind::Flapping).unwrap(), "BalancerFrozen was reported 5 times in half an hour");
    assert!(cp1.state.flaps(FaultKind::BalancerFrozen, cp1.now()));
    assert!(!cp1.state.flaps(FaultKind::EtcdFrozen, cp1.now()));
}

#[test]
fn another_healer_counts_for_its_host_and_for_faults_about_hosts_that_are_gone() {
    let mut cp1 = Played::new();
    let healers = |host: &str| [(name(host), "a NodeHealthCheck".to_owned())].into();
    cp1.state.healed_by(healers("cp2"), cp1.now());
    assert_eq!(cp1.state.healer(FaultKind::EtcdFrozen, cp1.now()), None);
    assert_eq!(cp1.raised(), []);
    cp1.state.healed_by(healers("cp1"), cp1.now());
    assert!(cp1.state.healer(FaultKind::EtcdFrozen, cp1.now()).is_some());
    assert_eq!(cp1.raised(), [("cp1".to_owned(), FaultKind::ForeignHealer)]);
}

#[test]
fn annotations_are_plausible_for_hosts_of_the_policy_only() {
    let hold = || Hold { reason: "a\nb".to_owned(), annotated: true, ..Hold::unnamed() };
    let hosts = ["cp1", "stranger"].map(|host| (name(host), hold())).into();
    let read = Annotated { all: Some(hold()), hosts }.plausible(|host| policy(77).guard(host).is_some());
    assert_eq!(read.hosts.into_keys().collect::<Vec<_>>(), [name("cp1")]);
    assert_eq!(read.all.unwrap().reason, "a b");
}

#[test]
fn a_host_is_needed_while_another_one_has_a_fault_is_not_heard_or_has_a_member_that_does_not_serve() {
    let mut cp1 = Played::new();
    let needed = |cp1: &Played, host: &str| cp1.state.needed(&name(host), cp1.now());
    let serving = |_: &str, beat: Heartbeat| Heartbeat { etcd: Some(true), ..beat };
    lasts(&mut cp1, 20, serving);
    for host in ["cp1", "cp2", "cp3"] {
        assert_eq!(needed(&cp1, host), None, "all are well");
    }
    let frozen = Fault { host: name("cp2"), kind: FaultKind::EtcdFrozen, since_ms: 1, evidence: String::new() };
    lasts(&mut cp1, 20, |host, beat| {
        let faults = if host == "cp2" { vec![frozen.clone()] } else { vec![] };
        Heartbeat { faults, ..serving(host, beat) }
    });
    assert!(needed(&cp1, "cp3").unwrap().contains("cp2, its etcd member runs but does not answer"));
    assert_eq!(needed(&cp1, "cp2"), None, "its own fault is no reason to keep it");
    lasts(&mut cp1, 20, |host, beat| Heartbeat { etcd: Some(host != "cp3"), ..beat });
    assert!(needed(&cp1, "cp1").unwrap().contains("the member of etcd on cp3 does not serve"));
    assert_eq!(needed(&cp1, "cp3"), None);
    lasts(&mut cp1, 20, serving);
    for _ in 0..20 {
        let beat = serving("cp3", cp1.beat("cp3", &[]));
        cp1.second(&[beat], &["cp3"]);
    }
    assert!(needed(&cp1, "cp3").unwrap().contains("cp2"), "it is not heard");
}
