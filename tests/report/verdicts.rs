//! The table of verdicts: every failure has an exit code, a headline and a next step.

use crate::causes;
use crate::world::*;
use hactl::model::desired::Role;
use hactl::model::facts::Evidence;
use hactl::model::recovery::{Fullness, Origin};
use hactl::model::refusal::{Misnamed, Refusal};
use hactl::model::rotation::{NoRotation, Rotatable};
use hactl::model::version::Version;
use hactl::report::{ConnectKind, FailureKind, FetchKind, MaintenanceKind, Style, Verdict};
use snapbox::{assert_data_eq, file};
use std::fmt;

const NARROW: Style = Style { colour: false, unicode: true, width: 80, verbosity: 0 };

/// Only the default asks for another minor version than that of a component.
fn not_named(host: &str, component: &str, runs: &str) -> Refusal {
    let version = |text| Version::parse(text).expect("a version");
    let component = component.to_owned();
    Refusal::VersionNotNamed { host: name(host), component, runs: version(runs), wanted: version("1.37.2") }
}

fn refusals() -> Vec<Refusal> {
    let lab = || "lab".parse().unwrap();
    vec![
        Refusal::NoQuorum {
            evidence: vec![
                Evidence {
                    host: name("cp1"),
                    what: "etcd runs and knows no leader".into(),
                    has_data: true,
                    reachable: true,
                },
                Evidence { host: name("cp2"), what: "connection refused".into(), has_data: false, reachable: false },
            ],
        },
        Refusal::CannotTell { unreachable: vec![name("cp2"), name("cp3")] },
        Refusal::WouldLoseQuorum {
            what: "remove member https://10.0.0.12:2380".into(),
            healthy: 1,
            voters: 2,
            quorum: 2,
            unhealthy: vec!["cp3".into()],
            apart: vec![],
        },
        Refusal::WouldLoseQuorum {
            what: "restarting cp1".into(),
            healthy: 1,
            voters: 3,
            quorum: 2,
            unhealthy: vec![],
            apart: vec![("cp2".into(), "cp3".into())],
        },
        Refusal::MembersChanged { peer: peer(2) },
        Refusal::OtherCluster { host: name("cp1"), theirs: "prod".parse().unwrap(), ours: lab(), same_name: false },
        Refusal::OtherCluster { host: name("cp1"), theirs: lab(), ours: lab(), same_name: true },
        Refusal::StateLost { host: name("cp1"), cluster: lab(), state: "./.hactl/lab".into() },
        Refusal::NoProgress { steps: 4, first: "start containerd.service on cp2".into() },
        Refusal::Blocked {
            steps: 1,
            first: "\"wait for the endpoint\" on cp2 has to wait: it requires etcd started on cp2".into(),
        },
        Refusal::Locked {
            host: name("cp1"),
            holder: "anna@laptop, pid 4711".into(),
            since: "2026-11-21T06:57:00Z".into(),
        },
        Refusal::StateInUse {
            state: "./.hactl/lab".into(),
            holder: "hactl up, pid 4711, user anna, since 2026-11-21T06:57:00Z".into(),
        },
        Refusal::NoMajorityLock { locked: 1, hosts: 3 },
        Refusal::NoVoterLock { locked: 1, voters: 3 },
        Refusal::QuotaBelowStored {
            wanted: 1 << 30,
            members: vec![Fullness { host: name("cp1"), db_bytes: 3_000_000_000, quota_bytes: 8 << 30 }],
        },
        Refusal::Disputed {
            evidence: vec![Evidence {
                host: name("cp3"),
                what: "holds data; its member says that a quorum stands behind it: cluster 1, members cp2, cp3".into(),
                has_data: true,
                reachable: true,
            }],
        },
        Refusal::CannotRotate { what: Rotatable::ClusterCa, why: NoRotation::Brought },
        Refusal::CannotRotate { what: Rotatable::SigningCa, why: NoRotation::Other { other: Rotatable::ClusterCa } },
        Refusal::CannotRotate {
            what: Rotatable::EtcdCa,
            why: NoRotation::NotWhole { steps: 3, first: "restart kubelet.service".into() },
        },
        Refusal::CannotRotate { what: Rotatable::Encryption, why: NoRotation::NotBegun },
        Refusal::CannotRotate { what: Rotatable::ClusterCa, why: NoRotation::StillVouched { until_s: 2_000_000_000 } },
        Refusal::StateBehind { host: name("cp2") },
        Refusal::InMaintenance { host: name("cp1"), maintained: name("cp3"), maintenances: vec![name("disk")] },
        Refusal::OtherHost {
            hosts: vec![
                Misnamed { host: name("cp1"), address: [10, 0, 0, 1].into(), is: Some(name("cp3")) },
                Misnamed { host: name("cp2"), address: [10, 0, 0, 2].into(), is: None },
            ],
        },
        Refusal::Renamed { host: name("node1"), was: name("w1") },
        Refusal::NameInUse { host: name("w2"), at: [10, 0, 0, 9].into() },
        Refusal::CannotRotate { what: Rotatable::ServiceAccount, why: NoRotation::TooYoung { left_s: 80_000 } },
        Refusal::CannotLeave { host: name("cp1"), role: Role::ControlPlane, others: 2, answer: 0 },
        Refusal::NoPackages {
            hosts: vec![
                (name("cp1"), "ubuntu-24.04".into(), ["haproxy", "keepalived"].map(str::to_owned).into()),
                (name("w1"), "rocky-9.4".into(), ["haproxy".to_owned()].into()),
            ],
            there: ["debian-12", "debian-13"].map(str::to_owned).into(),
        },
        Refusal::NoPackages {
            hosts: vec![(name("cp1"), "debian-12".into(), ["haproxy".to_owned()].into())],
            there: [].into(),
        },
        Refusal::RangeChanged {
            setting: "network.pods",
            what: "the range of pods",
            is: "10.244.0.0/16".into(),
            will: "10.200.0.0/16".into(),
        },
        Refusal::LastOfRole { host: name("cp1"), role: Role::ControlPlane, others: 2, answer: 0 },
        Refusal::LeftBehind { host: name("cp3") },
        Refusal::SkipsMinor {
            host: name("cp1"),
            component: "kube-apiserver".into(),
            runs: Version::parse("1.34.4").expect("a version"),
            wanted: Version::parse("1.36.3").expect("a version"),
            first: Some(Version::parse("1.35.0").expect("a version").minor),
        },
        Refusal::OlderMinor {
            host: name("cp1"),
            component: "kubelet".into(),
            runs: Version::parse("1.36.3").expect("a version"),
            wanted: Version::parse("1.35.4").expect("a version"),
        },
        Refusal::SkipsMinor {
            host: name("cp2"),
            component: "etcd".into(),
            runs: Version::parse("3.4.34").expect("a version"),
            wanted: Version::parse("3.6.16").expect("a version"),
            first: Some(Version::parse("3.5.26").expect("a version").minor),
        },
        Refusal::OlderMinor {
            host: name("cp3"),
            component: "etcd".into(),
            runs: Version::parse("3.6.16").expect("a version"),
            wanted: Version::parse("3.5.26").expect("a version"),
        },
        Refusal::OlderMinor {
            host: name("w1"),
            component: "containerd".into(),
            runs: Version::parse("2.3.7").expect("a version"),
            wanted: Version::parse("2.2.1").expect("a version"),
        },
        not_named("cp1", "kube-apiserver", "1.36.3"),
        not_named("cp1", "kube-apiserver", "1.35.4"),
        not_named("cp2", "etcd", "3.6.16"),
        not_named("cp1", "kube-apiserver", "1.38.1"),
        Refusal::VersionUnknown { wanted: Version::parse("1.37.2").expect("a version") },
        Refusal::NeedsConsent { what: "etcd's members on cp2".into() },
        Refusal::LimitedFounding { left: vec![name("cp2"), name("cp3")] },
        Refusal::Declined,
        Refusal::NoSource {
            asked: None,
            hosts: vec![Evidence {
                host: name("cp1"),
                what: "holds no data; no member runs".into(),
                has_data: false,
                reachable: true,
            }],
        },
        Refusal::NothingAside,
        Refusal::NeedNot { asked: Origin::Bundle("lab-20261122T134733Z-cp1.hactl".into()), serves: true, begun: None },
        Refusal::NeedNot { asked: Origin::Data(name("cp3")), serves: false, begun: None },
        Refusal::NeedNot { asked: Origin::Data(name("cp3")), serves: false, begun: Some(Origin::Data(name("cp1"))) },
        Refusal::NewerEtcd {
            bundle: "lab-20261122T134733Z-cp1.hactl".into(),
            of: Version::parse("3.7.0").expect("a version"),
            wanted: Version::parse("3.6.16").expect("a version"),
        },
        Refusal::Undone { to: hactl::model::recovery::Origin::Data(name("cp2")) },
        Refusal::NobodyAgrees { hashes: vec![(name("cp1"), 0x00c0_ffee), (name("cp2"), 0xdead_beef)] },
        Refusal::TwoOrigins { hosts: (name("cp1"), name("cp3")) },
        Refusal::NotLost { intact: 2, voters: 3 },
        Refusal::StillFull {
            members: vec![Fullness { host: name("cp1"), db_bytes: 2_147_500_000, quota_bytes: 2 << 30 }],
        },
        Refusal::MayLive { unreachable: vec!["cp1".into(), "10.88.0.12".into()], quorum: 2, voters: 3 },
        Refusal::Preflight {
            problems: vec!["cp1: port 2379 is taken by nginx (pid 812)".into(), "cp3: the clock is 4.2 s off".into()],
        },
    ]
}

#[test]
fn every_refusal_says_what_happened_and_what_to_do_next() {
    let all: Vec<String> = refusals()
        .iter()
        .map(|r| {
            let verdict = Verdict::from(r);
            format!("--- {} (exit {})\n{}\n", verdict.code, verdict.exit.code(), verdict.text(&NARROW))
        })
        .collect();
    for (refusal, text) in refusals().iter().zip(&all) {
        let named = text.contains("What to do") || matches!(refusal, Refusal::Declined);
        assert!(named, "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }
    assert_data_eq!(all.concat(), file!["refusals.txt"]);
}

#[test]
fn refusals_exit_with_3_and_a_held_lock_with_6() {
    for refusal in refusals() {
        let expected = if matches!(refusal, Refusal::Locked { .. } | Refusal::StateInUse { .. }) { 6 } else { 3 };
        assert_eq!(Verdict::from(&refusal).exit.code(), expected, "{refusal}");
        assert_eq!(Verdict::of(&FailureKind::Refused(refusal.clone()), None), Verdict::from(&refusal));
    }
}

#[derive(Debug)]
struct Chained(&'static str, Option<Box<Chained>>);
impl fmt::Display for Chained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
impl std::error::Error for Chained {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|e| e as _)
    }
}

fn kinds() -> Vec<(FailureKind, u8)> {
    let connect = |kind| FailureKind::Connect { host: name("cp2"), kind };
    let step = |done, failed| FailureKind::Step {
        host: Some(name("cp2")),
        what: "start containerd.service".into(),
        failed,
        done,
        rolled_back: false,
    };
    let back = FailureKind::Step {
        host: Some(name("cp2")),
        what: "wait for the API server".into(),
        failed: 1,
        done: 4,
        rolled_back: true,
    };
    vec![
        (FailureKind::Usage, 2),
        (FailureKind::Inventory, 2),
        (connect(ConnectKind::Unreachable), 1),
        (connect(ConnectKind::UnknownKey), 1),
        (connect(ConnectKind::ChangedKey), 3),
        (connect(ConnectKind::RevokedKey), 3),
        (connect(ConnectKind::Login), 1),
        (connect(ConnectKind::Expired), 1),
        (connect(ConnectKind::Root), 1),
        (connect(ConnectKind::Lost), 1),
        (connect(ConnectKind::Helper), 1),
        (step(36, 1), 1),
        (step(0, 3), 1),
        (back, 1),
        (FailureKind::Bundle, 1),
        (FailureKind::Fetch(FetchKind::NoRelease), 2),
        (FailureKind::Fetch(FetchKind::Name), 1),
        (FailureKind::Fetch(FetchKind::Trust), 1),
        (FailureKind::Fetch(FetchKind::Unreachable), 1),
        (FailureKind::Fetch(FetchKind::NotFound), 1),
        (FailureKind::Fetch(FetchKind::Denied), 1),
        (FailureKind::Fetch(FetchKind::Unwell), 1),
        (FailureKind::Fetch(FetchKind::Checksum), 3),
        (FailureKind::Fetch(FetchKind::Moved), 3),
        (FailureKind::Fetch(FetchKind::NotUnderstood), 1),
        (FailureKind::Fetch(FetchKind::Full), 1),
        (FailureKind::Fetch(FetchKind::Busy), 6),
        (FailureKind::Fetch(FetchKind::NotABundle), 1),
        (FailureKind::Fetch(FetchKind::CutShort), 1),
        (FailureKind::Fetch(FetchKind::Tampered), 3),
        (FailureKind::Fetch(FetchKind::Different), 3),
        (FailureKind::Maintenance(MaintenanceKind::NotServed), 3),
        (FailureKind::Maintenance(MaintenanceKind::NoSuch), 2),
        (FailureKind::Maintenance(MaintenanceKind::NoNode), 2),
        (FailureKind::Maintenance(MaintenanceKind::OtherNode), 2),
        (FailureKind::Maintenance(MaintenanceKind::Balancer), 3),
        (FailureKind::Maintenance(MaintenanceKind::NotSpared), 3),
        (FailureKind::Maintenance(MaintenanceKind::Held), 6),
        (FailureKind::Maintenance(MaintenanceKind::NotRestored), 1),
        (FailureKind::Maintenance(MaintenanceKind::NoGuard), 3),
        (FailureKind::Maintenance(MaintenanceKind::WouldLose), 3),
        (FailureKind::Maintenance(MaintenanceKind::GaveUp), 1),
        (FailureKind::Maintenance(MaintenanceKind::Contested), 1),
        (FailureKind::Maintenance(MaintenanceKind::NoneSelected), 2),
        (FailureKind::Maintenance(MaintenanceKind::NoRollout), 2),
        (FailureKind::Maintenance(MaintenanceKind::RolloutExists), 2),
        (FailureKind::Maintenance(MaintenanceKind::CalledOff), 1),
        (FailureKind::Maintenance(MaintenanceKind::OtherWork), 3),
        (FailureKind::Maintenance(MaintenanceKind::OfRollout), 3),
        (FailureKind::Maintenance(MaintenanceKind::IsRollout), 2),
        (FailureKind::Maintenance(MaintenanceKind::NotGated), 2),
        (FailureKind::Maintenance(MaintenanceKind::ApprovesEach), 2),
        (FailureKind::Maintenance(MaintenanceKind::Several), 2),
        (FailureKind::Maintenance(MaintenanceKind::Recovered), 3),
        (FailureKind::Maintenance(MaintenanceKind::Stopped), 1),
        (FailureKind::Maintenance(MaintenanceKind::Down), 7),
        (FailureKind::Maintenance(MaintenanceKind::Refused), 1),
        (FailureKind::State, 1),
        (FailureKind::Interrupted, 1),
        (FailureKind::Output, 1),
        (FailureKind::Other, 1),
    ]
}

#[test]
fn every_failure_has_the_exit_code_of_the_table() {
    let mut all = String::new();
    for (kind, exit) in kinds() {
        let cause = causes::of(&kind);
        let verdict = Verdict::of(&kind, Some(cause.as_ref()));
        assert_eq!(verdict.exit.code(), exit, "{kind:?}");
        all.push_str(&format!("--- {} (exit {})\n{}\n", verdict.code, verdict.exit.code(), verdict.text(&NARROW)));
    }
    assert_data_eq!(all, file!["failures.txt"]);
}

#[test]
fn a_cause_that_the_headline_repeats_is_shown_once() {
    let error = Chained("cannot open x: no such file", Some(Box::new(Chained("no such file", None))));
    let verdict = Verdict::of(&FailureKind::Other, Some(&error));
    assert_eq!(verdict.headline, "cannot open x: no such file");
    assert!(verdict.causes.is_empty());
}

#[test]
fn the_verdict_for_programs_is_one_object() {
    let verdict = Verdict::from(&Refusal::Declined);
    assert_eq!(
        verdict.json().to_string(),
        r#"{"causes":[],"code":"declined","event":"verdict","exit":3,"headline":"not agreed: nothing was changed","hints":[]}"#
    );
}

#[test]
fn text_from_a_lock_holder_cannot_control_the_terminal() {
    let refusal =
        Refusal::Locked { host: name("cp1"), holder: "x\u{1b}[2J\u{1b}]0;y\u{7}\nmallory".into(), since: "now".into() };
    let text = Verdict::from(&refusal).text(&NARROW);
    assert!(
        !text.contains('\u{1b}') && text.starts_with("✗ another run holds the lock on cp1: x mallory, since"),
        "{text}"
    );
}

#[test]
fn a_refusal_after_completed_steps_does_not_claim_that_nothing_was_changed() {
    for refusal in refusals() {
        let text = Verdict::from(&refusal).after_work().text(&NARROW);
        assert!(!text.to_lowercase().contains("nothing was changed.") && !text.contains(": nothing was"), "{text}");
    }
    let text = Verdict::from(&refusals()[0]).after_work().text(&NARROW);
    assert!(text.contains("Completed steps stay done;"), "{text}");
}
