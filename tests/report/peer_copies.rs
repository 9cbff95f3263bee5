//! Where copies of snapshots are, as `status` reports it: on the other etcd hosts, and outside the cluster.

use crate::world::*;
use hactl::model::check::{Check, Outcome};
use hactl::model::desired::Desired;
use hactl::model::facts::{Etcd, Facts, UnitFact};
use hactl::model::healing::{Mode, UNIT};
use hactl::model::snapshot::{BundleFact, BundlesFact, PeerCopy, Point, Proof};
use hactl::observe::{COPIES, HashCheck};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const NOW: i64 = 100_000 * HOUR;
const HOSTS: [&str; 3] = ["cp1", "cp2", "cp3"];

/// Three hosts whose guards have run for a day. Each took snapshots two hours ago and just now, and has the newest of the
/// others.
fn world(mode: Mode) -> (Desired, Facts) {
    let mut desired = desired(3);
    desired.healing.mode = mode;
    let mut facts = healthy(&desired, &target(&desired));
    for host in HOSTS {
        let fact = facts.hosts.get_mut(&name(host)).unwrap().as_mut().unwrap();
        fact.now_ms = NOW;
        let bundle = |taken_ms| BundleFact {
            name: format!("lab-20260926T235600000Z-{host}.hactl"),
            bytes: 1,
            taken_ms,
            authority: cluster_id().ca,
            point: Point { cluster: "c".into(), term: 1, index: 1, revision: 1, high_water: 1 },
            etcd: "3.6.16".to_owned(),
            proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
            signed: None,
            authenticity: hactl::model::authentic::Authenticity::Signed(name(host)),
        };
        let others = HOSTS.iter().filter(|other| **other != host);
        let copies = others.map(|other| (name(other), PeerCopy { taken_ms: Some(NOW - MINUTE), trouble: None }));
        fact.bundles = Some(BundlesFact {
            bundles: vec![bundle(NOW - MINUTE), bundle(NOW - 2 * HOUR)],
            peers: copies.collect(),
            ..BundlesFact::default()
        });
        let guard =
            UnitFact { active: "active".to_owned(), enabled: true, started_ms: NOW - 24 * HOUR, reloaded_ms: 0 };
        fact.units.insert(UNIT.parse().unwrap(), guard);
    }
    (desired, facts)
}

fn copy<'a>(facts: &'a mut Facts, on: &str, of: &str) -> &'a mut PeerCopy {
    let fact = facts.hosts.get_mut(&name(on)).unwrap().as_mut().unwrap();
    fact.bundles.as_mut().unwrap().peers.get_mut(&name(of)).unwrap()
}

fn find(desired: &Desired, facts: &Facts) -> Option<Check> {
    let checks = hactl::observe::checks(desired, facts, &HashCheck::Unknown("no member was asked".to_owned()));
    checks.into_iter().find(|check| check.name == COPIES)
}

fn found(desired: &Desired, facts: &Facts) -> (Outcome, Option<String>, String) {
    let check = find(desired, facts).expect("etcd has a quorum");
    (check.outcome, check.host.map(|host| host.to_string()), check.detail)
}

#[test]
fn status_says_where_copies_go_and_when_none_leaves_the_cluster() {
    let (mut desired, facts) = world(Mode::On);
    let said = |text: String| (Outcome::Pass, None, text);
    let nowhere = "no copy leaves the cluster, because `snapshots.to` names no place";
    let among = "the etcd hosts keep the newest of one another";
    assert_eq!(found(&desired, &facts), said(format!("{among}; {nowhere}")));
    desired.snapshots.to =
        ["/mnt/backup", "/srv"].map(|path| hactl::model::bucket::Destination::Directory(path.into())).into();
    assert_eq!(found(&desired, &facts), said(format!("{among}; copies go to /mnt/backup, /srv")));
    let (desired, facts) = world(Mode::Watch);
    let without = "etcd hosts keep the newest of one another with `healing: on`";
    assert_eq!(found(&desired, &facts), said(format!("{without}; {nowhere}")));
    let (desired, mut facts) = world(Mode::On);
    facts.etcd = Etcd::NoQuorum(vec![]);
    assert_eq!(find(&desired, &facts), None, "nothing is said of it without quorum");
}

#[test]
fn a_host_that_lacks_a_copy_which_it_should_have_is_named_with_the_reason() {
    let (desired, facts) = world(Mode::On);
    let warned = |facts: &Facts, text: &str| {
        assert_eq!(found(&desired, facts), (Outcome::Warn, Some("cp2".to_owned()), text.to_owned()));
    };
    let mut none = facts.clone();
    copy(&mut none, "cp2", "cp3").taken_ms = None;
    warned(&none, "it has no copy of a snapshot of cp3");
    let mut old = facts.clone();
    *copy(&mut old, "cp2", "cp3") = PeerCopy {
        taken_ms: Some(NOW - 3 * HOUR),
        trouble: Some((NOW - 3 * HOUR, "192.0.2.13:10271: connection refused".to_owned())),
    };
    warned(&old, "its newest copy from cp3 is 3 h 0 min old: 192.0.2.13:10271: connection refused");
    // It has the one of two hours ago, and the newest is on its way.
    let mut on_its_way = facts.clone();
    copy(&mut on_its_way, "cp2", "cp3").taken_ms = Some(NOW - 2 * HOUR);
    assert_eq!(found(&desired, &on_its_way).0, Outcome::Pass);
    // Nothing is expected of a guard that started just now.
    let fact = none.hosts.get_mut(&name("cp2")).unwrap().as_mut().unwrap();
    fact.units.get_mut(&UNIT.parse().unwrap()).unwrap().started_ms = NOW - 5 * MINUTE;
    assert_eq!(found(&desired, &none).0, Outcome::Pass);
}
