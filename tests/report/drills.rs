//! Restore drills as `status` reports them: the host of the last drill, its result, and problems.

use crate::world::*;
use hactl::model::check::{Check, Outcome};
use hactl::model::desired::Desired;
use hactl::model::drill::{OwnDrill, Period, Showed};
use hactl::model::facts::Facts;
use hactl::model::snapshot::{BundleFact, BundlesFact, Drill, Point, Proof};
use hactl::observe::{BUNDLES, HashCheck};
use hactl::report::status_json;
use snapbox::{assert_data_eq, file};

const DAY: i64 = 86_400_000;
const HOUR: i64 = 3_600_000;
const NOW: i64 = 1_000 * DAY;
const PROOF: Proof = Proof { keys: 14_233, hash: 7, restored_ms: 6_040 };

/// Three hosts, each with a snapshot and with its own identity for a hundred days.
fn world(drill: Option<Period>) -> (Desired, Facts) {
    let mut desired = desired(3);
    desired.snapshots.drill = drill;
    let mut facts = healthy(&desired, &target(&desired));
    for host in ["cp1", "cp2", "cp3"] {
        let fact = facts.hosts.get_mut(&name(host)).unwrap().as_mut().unwrap();
        fact.now_ms = NOW;
        let bundle = BundleFact {
            name: bundle(host),
            bytes: 1,
            taken_ms: NOW - 240_000,
            authority: cluster_id().ca,
            point: Point { cluster: "c".into(), term: 1, index: 1, revision: 1, high_water: 1 },
            etcd: "3.6.16".to_owned(),
            proof: PROOF,
            signed: None,
            authenticity: hactl::model::authentic::Authenticity::Signed(name(host)),
        };
        let identity = Some(NOW - 100 * DAY);
        fact.bundles = Some(BundlesFact { bundles: vec![bundle], own_identity_ms: identity, ..BundlesFact::default() });
    }
    (desired, facts)
}

fn bundle(host: &str) -> String {
    format!("lab-20260926T235600000Z-{host}.hactl")
}

fn of<'a>(facts: &'a mut Facts, host: &str) -> &'a mut BundlesFact {
    facts.hosts.get_mut(&name(host)).unwrap().as_mut().unwrap().bundles.as_mut().unwrap()
}

fn held(facts: &mut Facts, host: &str, ago_ms: i64, showed: Showed) {
    let at_ms = NOW - ago_ms;
    of(facts, host).own_drill = Some(OwnDrill { at_ms, bundle: bundle(host), taken_ms: at_ms - 130_000, showed });
}

fn found(desired: &Desired, facts: &Facts) -> Check {
    let checks = hactl::observe::checks(desired, facts, &HashCheck::Unknown("no member was asked".to_owned()));
    checks.into_iter().find(|check| check.name == BUNDLES).expect("the cluster answers")
}

fn shown(check: &Check) -> String {
    let host = check.host.as_ref().map_or("-", |host| host.as_str());
    format!("{:?} {host}: {}\n  {}\n", check.outcome, check.detail, check.hint.as_deref().unwrap_or("-"))
}

fn failed(what: &str, damaged: bool) -> Showed {
    Showed::Failed { what: what.to_owned(), damaged }
}

#[test]
fn the_check_of_snapshots_shows_the_hosts_and_results_of_the_last_drills() {
    let mut all = Vec::new();
    let mut say = |drill, set: &dyn Fn(&mut Facts)| {
        let (desired, mut facts) = world(drill);
        set(&mut facts);
        all.push(shown(&found(&desired, &facts)));
    };
    let by_owners = |facts: &mut Facts| of(facts, "cp1").drill = Some(Drill { at_ms: NOW - 40 * DAY, proof: PROOF });
    let damage =
        "/var/lib/hactl/snapshots/lab-20260926T235600000Z-cp2.hactl: the snapshot has changed since it was written";
    say(None, &|_| {});
    say(None, &by_owners);
    say(Some(Period::Weekly), &|facts| {
        for host in ["cp1", "cp2", "cp3"] {
            of(facts, host).own_identity_ms = Some(NOW - DAY);
        }
    });
    say(Some(Period::Weekly), &|facts| {
        by_owners(facts);
        held(facts, "cp1", 5 * DAY, Showed::Restored(PROOF));
        held(facts, "cp2", 3 * DAY + HOUR, Showed::Restored(PROOF));
        held(facts, "cp3", 2 * DAY, Showed::SealedBefore);
        of(facts, "cp3").own_identity_ms = Some(NOW - 3 * DAY);
    });
    say(Some(Period::Daily), &|facts| held(facts, "cp2", HOUR, failed(damage, true)));
    say(Some(Period::Daily), &|facts| {
        held(
            facts,
            "cp3",
            HOUR,
            failed("it restores to 2 keys with the hash 00000001, and 3 with 00000002 were taken", true),
        );
    });
    say(Some(Period::Daily), &|facts| held(facts, "cp2", HOUR, failed("etcdutl snapshot restore was killed", false)));
    say(Some(Period::Weekly), &|facts| {
        held(facts, "cp1", HOUR, Showed::Restored(PROOF));
        held(facts, "cp2", 14 * DAY + HOUR, Showed::Restored(PROOF));
        held(facts, "cp3", HOUR, Showed::Restored(PROOF));
    });
    say(Some(Period::Weekly), &|facts| held(facts, "cp1", HOUR, Showed::SealedBefore));
    assert_data_eq!(all.concat(), file!["drills.txt"]);
}

#[test]
fn a_missing_drill_is_reported_after_two_periods_and_only_if_drills_are_configured() {
    for (period, days) in [(Period::Daily, 2), (Period::Weekly, 14)] {
        for (ago, outcome) in [(days * DAY - HOUR, Outcome::Pass), (days * DAY + HOUR, Outcome::Fail)] {
            let (desired, mut facts) = world(Some(period));
            for host in ["cp1", "cp2", "cp3"] {
                held(&mut facts, host, ago, Showed::Restored(PROOF));
            }
            assert_eq!(found(&desired, &facts).outcome, outcome, "{period:?} {ago}");
        }
    }
    let (desired, mut facts) = world(None);
    held(&mut facts, "cp1", 90 * DAY, failed("damaged", true));
    assert_eq!(found(&desired, &facts).outcome, Outcome::Pass);
}

#[test]
fn a_drill_with_a_future_timestamp_proves_nothing() {
    let (desired, mut facts) = world(Some(Period::Daily));
    for host in ["cp1", "cp2", "cp3"] {
        held(&mut facts, host, -30 * DAY, Showed::Restored(PROOF));
    }
    assert_eq!(found(&desired, &facts).outcome, Outcome::Fail, "its clock was wrong at that time");
}

#[test]
fn the_json_output_says_with_whose_identity_a_drill_was_held() {
    let (desired, mut facts) = world(Some(Period::Weekly));
    of(&mut facts, "cp1").drill = Some(Drill { at_ms: NOW - DAY, proof: PROOF });
    held(&mut facts, "cp1", HOUR, Showed::Restored(PROOF));
    held(&mut facts, "cp2", HOUR, failed("it is gone", false));
    let json = status_json(&desired, &facts, &[]);
    let field = |key: &str| json["drills"].as_array().unwrap().iter().map(|d| d[key].to_string()).collect::<Vec<_>>();
    assert_eq!(field("heldBy"), ["\"owners\"", "\"host\"", "\"host\""]);
    assert_eq!(field("outcome"), ["\"restored\"", "\"restored\"", "\"failed\""]);
    assert_eq!(field("keys"), ["14233", "14233", "null"]);
    assert_eq!(field("why"), ["null", "null", "\"it is gone\""]);
}
