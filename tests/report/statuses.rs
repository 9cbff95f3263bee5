//! The status page and its JSON.

use crate::world::*;
use hactl::model::check::{Check, Outcome};
use hactl::model::facts::{DiskFact, Etcd, EtcdFact, Evidence};
use hactl::report::checks::Standing;
use hactl::report::{Style, status_json, status_text};
use snapbox::{assert_data_eq, file};

const NARROW: Style = Style { colour: false, unicode: true, width: 80, verbosity: 0 };

fn check(name: &'static str, host: Option<&str>, outcome: Outcome, detail: &str, hint: Option<&str>) -> Check {
    Check { name, host: host.map(crate::world::name), outcome, detail: detail.into(), hint: hint.map(Into::into) }
}

fn good() -> Vec<Check> {
    vec![
        check("etcd members healthy", Some("cp1"), Outcome::Pass, "answers a linearizable read", None),
        check("etcd members healthy", Some("cp2"), Outcome::Pass, "answers a linearizable read", None),
        check("etcd members healthy", Some("cp3"), Outcome::Pass, "answers a linearizable read", None),
        check("api through endpoint", None, Outcome::Pass, "ready in 4 ms", None),
        check("snapshots", None, Outcome::Skip, "not asked for", None),
    ]
}

#[test]
fn a_healthy_cluster_fits_on_one_page() {
    let desired = desired(3);
    let target = target(&desired);
    let facts = healthy(&desired, &target);
    assert_data_eq!(status_text(&desired, &facts, &good(), &NARROW), file!["status-healthy.txt"]);
    let json = status_json(&desired, &facts, &good());
    assert_data_eq!(format!("{json:#}\n"), file!["status-healthy.json"]);
}

#[test]
fn the_page_names_the_version_that_runs_only_if_the_inventory_names_none() {
    let mut desired = desired(3);
    let target = target(&desired);
    let mut facts = healthy(&desired, &target);
    facts.hosts.get_mut(&name("cp1")).unwrap().as_mut().unwrap().api.as_mut().unwrap().version = "v1.36.3".into();
    desired.versions.kubernetes = "1.37.2".into();
    for (is_default, shown) in [(true, "1.36.3"), (false, "1.37.2")] {
        desired.versions.is_default = is_default;
        let text = status_text(&desired, &facts, &[], &NARROW);
        assert!(text.starts_with(&format!("lab  Kubernetes {shown}  ")), "{text}");
        assert_eq!(status_json(&desired, &facts, &[])["kubernetes"], shown);
    }
}

#[test]
fn the_page_without_quorum_shows_the_report_of_each_host() {
    let desired = desired(3);
    let target = target(&desired);
    let mut one = converged(&desired, &target, 1);
    one.api.as_mut().unwrap().own_trouble = Some("503: [-]etcd failed: reason withheld".into());
    one.api.as_mut().unwrap().endpoint_trouble = Some("no answer within 2 s".into());
    one.api.as_mut().unwrap().nodes.clear();
    let disk = |term, index, flaws| DiskFact {
        cluster: "c1".into(),
        member: 1,
        term,
        index,
        commit: index,
        revision: Some(i64::try_from(index).unwrap() - 50),
        applied: Some(index),
        members: None,
        db_bytes: 20_480,
        written_ms: 1_000_000,
        damaged: false,
        flaws,
    };
    one.now_ms = 1_090_000;
    let etcd = one.etcd.as_mut().unwrap();
    etcd.trouble = Some("etcd did not answer within 1400 ms when asked to read with quorum".into());
    etcd.disk = Some(disk(5, 12_345, vec![]));
    let mut two = one.clone();
    let cut = "the last record of its log was cut short, as a loss of power does".to_owned();
    two.etcd = Some(EtcdFact { data: true, disk: Some(disk(5, 12_001, vec![cut])), ..EtcdFact::default() });
    let away = || unreachable("no answer to SSH within 10 s");
    let evidence = vec![
        Evidence { host: name("cp1"), what: "etcd runs and knows no leader".into(), has_data: true, reachable: true },
        Evidence { host: name("cp2"), what: "no member runs".into(), has_data: true, reachable: true },
        Evidence { host: name("cp3"), what: "no answer to SSH within 10 s".into(), has_data: false, reachable: false },
    ];
    let facts = facts(vec![Ok(one), Ok(two), away()], Etcd::NoQuorum(evidence), false);
    let checks = vec![
        check(
            "etcd quorum",
            None,
            Outcome::Down,
            "1 of 3 members runs and it knows no leader: nobody can write to the API",
            Some("`hactl up` if the other hosts can be brought back; else `hactl recover`"),
        ),
        check("clock", Some("cp1"), Outcome::Warn, "0.8 s off", Some("set up time synchronisation on cp1")),
    ];
    let ascii = Style { unicode: false, ..NARROW };
    let text = status_text(&desired, &facts, &checks, &ascii);
    assert!(text.is_ascii(), "{text}");
    assert_data_eq!(text, file!["status-down.txt"]);
    let json = status_json(&desired, &facts, &checks);
    assert_eq!(json["standing"], "down");
    assert_eq!(json["etcd"]["state"], "silent");
    assert_eq!(json["etcd"]["quorum"], serde_json::Value::Null);
    assert_eq!(json["etcd"]["evidence"][0]["disk"]["newest"], true);
    assert_eq!(json["etcd"]["evidence"][1]["disk"]["entry"], 12_001);
    assert_eq!(json["etcd"]["evidence"][2]["disk"], serde_json::Value::Null);
    assert_eq!(json["apiServers"][2]["ready"], serde_json::Value::Null, "unknown is null, never a guess");
}

#[test]
fn a_member_outside_the_inventory_a_learner_and_an_alarm_are_shown() {
    let desired = desired(3);
    let target = target(&desired);
    let mut facts = healthy(&desired, &target);
    let mut list = members(4, &[4]);
    list.0.get_mut(&peer(3)).unwrap().learner = true;
    facts.etcd = Etcd::HasQuorum(list);
    let host = facts.hosts.get_mut(&name("cp1")).unwrap().as_mut().unwrap();
    host.etcd.as_mut().unwrap().view.as_mut().unwrap().alarms.push("NOSPACE".into());
    let text = status_text(&desired, &facts, &[], &NARROW);
    assert!(text.contains("cp4 (orphan)  UNHEALTHY"), "{text}");
    assert!(text.contains("3 voters + 1 learner, quorum 2, 2 healthy, tolerates no failure"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("cp1 ") && l.ends_with("NOSPACE")), "{text}");
}

#[test]
fn the_worst_check_decides_the_state_of_the_cluster() {
    let of = |outcomes: &[Outcome]| {
        Standing::of(&outcomes.iter().map(|o| check("x", None, *o, "", None)).collect::<Vec<_>>())
    };
    assert_eq!(of(&[Outcome::Pass, Outcome::Skip]), Standing::Healthy);
    assert_eq!(of(&[Outcome::Pass, Outcome::Warn]), Standing::Watch);
    assert_eq!(of(&[Outcome::Fail, Outcome::Warn]), Standing::Degraded);
    assert_eq!(of(&[Outcome::Fail, Outcome::Down, Outcome::Pass]), Standing::Down);
}
