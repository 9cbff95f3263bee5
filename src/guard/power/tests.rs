//! Tests of how the power of a host is switched: what other guards must say, and real plug-ins of a simulated BMC.

use super::*;
use crate::model::desired::sample;
use crate::model::facts::Member;
use crate::model::fault::{Fault, FaultKind, Sight};
use crate::model::guard_report::{GuardFact, GuardReport, Other};
use crate::model::healing::{Mode, POWER, POWER_PLUGINS, Reboot};
use crate::model::names::Digest;
use crate::model::repair::LocalStep;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use tempfile::TempDir;

const NOW: i64 = 1_700_000_000_000;

fn name(host: usize) -> HostName {
    format!("cp{host}").parse().unwrap()
}

fn policy() -> Policy {
    let mut desired = sample(3);
    (desired.healing.mode, desired.healing.reboot) = (Mode::On, Reboot::Power);
    desired.hosts[2].power = Some("bmc".parse().unwrap());
    Policy::of(&desired)
}

/// The report of a guard by which cp3 has been silent for so long, seconds.
fn report(host: usize, silent_s: i64) -> GuardReport {
    let since_ms = NOW - silent_s * 1000;
    let silent = Other {
        sight: Sight::Silent,
        since_ms,
        ahead_ms: None,
        trouble: String::new(),
        booted_ms: 0,
        held_until_ms: 0,
    };
    let fault = Fault { host: name(3), kind: FaultKind::HostUnreachable, since_ms, evidence: String::new() };
    GuardReport {
        host: name(host),
        at_ms: NOW - 500,
        started_ms: 1,
        release: Digest::of(b"r"),
        policy: policy().digest(),
        mode: Mode::On,
        own: vec![],
        presumed: vec![fault],
        pending: vec![],
        others: [(name(3), silent)].into(),
        decided: vec![],
        hold: None,
        repairs: vec![],
    }
}

fn record(ago_s: i64, switched: Switched) -> RepairRecord {
    let (begun_ms, power) = (NOW - ago_s * 1000, Some(Power { host: name(3), switched }));
    let (kind, step) = (FaultKind::PowerDue, LocalStep::Power);
    RepairRecord { kind, step, begun_ms, after_ms: 0, outcome: Outcome::Done, power }
}

/// What cp1 and cp2 say together about cp3, once `change` has spoilt their reports.
fn agreed(mine: &[RepairRecord], change: impl FnOnce(&mut [GuardReport; 2])) -> Result<Agreed, PowerError> {
    let mut reports = [report(1, 601), report(2, 601)];
    change(&mut reports);
    let facts = reports.map(|report| {
        let guard = Some(GuardFact { report: Some(report), trouble: String::new() });
        Some(HostFacts { now_ms: NOW, guard, ..HostFacts::default() })
    });
    let names = [name(1), name(2)];
    agree(&policy(), (&names[0], mine), &name(3), &names.iter().zip(facts).collect::<Vec<_>>())
}

#[test]
fn two_guards_must_see_the_silence_now_each_by_a_current_report_and_the_same_policy() {
    let dead = Ok(Agreed { dead: true, left_off: false });
    let silent = Ok(Agreed { dead: false, left_off: false });
    assert_eq!(agreed(&[], |_| ()), dead);
    let disagrees = |by| Err(PowerError::Disagrees { by: name(by), host: name(3), for_s: 180 });
    for at in [0, 1] {
        assert_eq!(agreed(&[], |r| r[at] = report(at + 1, 599)), silent, "not dead by one of them");
        assert_eq!(agreed(&[], |r| r[at] = report(at + 1, 179)), disagrees(at + 1), "not for long enough");
        assert_eq!(agreed(&[], |r| r[at].at_ms = NOW - 20_000), disagrees(at + 1), "its guard does not work");
        assert_eq!(agreed(&[], |r| r[at].presumed.clear()), disagrees(at + 1));
        let answers = agreed(&[], |r| r[at].others.get_mut(&name(3)).unwrap().sight = Sight::Answers);
        assert_eq!(answers, disagrees(at + 1), "a port has just answered");
        let other = agreed(&[], |r| r[at].policy = Digest::of(b"other"));
        assert_eq!(other, Err(PowerError::Policy(name(at + 1))));
        let held = |until_ms| agreed(&[], |r| r[at].others.get_mut(&name(3)).unwrap().held_until_ms = until_ms);
        assert_eq!((held(NOW + 1), held(NOW)), (Err(PowerError::Held(name(3))), dead.clone()));
        let booted =
            |ago_s: i64| agreed(&[], |r| r[at].others.get_mut(&name(3)).unwrap().booted_ms = NOW - ago_s * 1000);
        assert_eq!((booted(3599), booted(3600)), (silent.clone(), dead.clone()), "it may still be booting");
    }
    let hosts = [name(1), name(2)];
    let unknown = |by: &[usize]| {
        let facts: Vec<_> = by.iter().map(|at| (&hosts[*at], None)).collect();
        agree(&policy(), (&hosts[0], &[]), &name(3), &facts)
    };
    assert_eq!(unknown(&[0]), Err(PowerError::Alone(1)));
    assert_eq!(unknown(&[1, 1]), Err(PowerError::Alone(2)), "the own host has no word");
    assert_eq!(unknown(&[0, 1]), disagrees(1), "it does not answer");
}

#[test]
fn what_any_guard_switched_within_the_hour_is_not_switched_again_but_on() {
    let by_own = |switched| agreed(&[record(100, switched)], |_| ());
    let by_other = |switched| agreed(&[], |r| r[1].repairs = vec![record(100, switched)]);
    for switched in [Switched::On, Switched::Cycled] {
        assert_eq!(by_own(switched), Err(PowerError::Rests(name(1))));
        assert_eq!(by_other(switched), Err(PowerError::Rests(name(2))));
        let long_ago = agreed(&[record(3600, switched)], |_| ());
        assert_eq!(long_ago, Ok(Agreed { dead: true, left_off: false }));
    }
    for switched in [Switched::Off, Switched::Unknown] {
        let left_off = Ok(Agreed { dead: true, left_off: true });
        assert_eq!((by_own(switched), by_other(switched)), (left_off.clone(), left_off));
    }
    let nothing = Ok(Agreed { dead: true, left_off: false });
    assert_eq!((by_own(Switched::LeftOn), by_other(Switched::Nothing)), (nothing.clone(), nothing));
}

#[test]
fn the_members_of_the_other_hosts_must_be_a_quorum() {
    let members = |healthy: [bool; 3]| {
        let member = |(at, healthy): (u8, bool)| {
            (PeerUrl::of([10, 0, 0, at].into()), Member { id: at.into(), healthy, ..Member::default() })
        };
        Members((1..).zip(healthy).map(member).collect())
    };
    let without_third = |healthy| has_quorum_without(&members(healthy), &PeerUrl::of([10, 0, 0, 3].into()));
    assert_eq!(without_third([true, true, false]), Ok(()));
    let refused = Err(PowerError::Quorum { healthy: 1, quorum: 2 });
    assert_eq!((without_third([true, false, true]), without_third([true, false, false])), (refused.clone(), refused));
}

/// A BMC: its plug-in writes down each call, and this script answers it.
struct Bmc {
    place: TempDir,
    root: Root,
}

impl Bmc {
    fn new(script: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = Root::at(place.path());
        let folder = place.path().join(&POWER_PLUGINS[1..]);
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(place.path().join("run/hactl/guard")).unwrap();
        let path = folder.join("bmc");
        let text = format!("#!/bin/sh\ncd {}\necho \"$1 $2\" >>calls\n{script}\n", place.path().display());
        let script = place.path().join("script");
        fs::write(&script, text).unwrap();
        // A copy by another process: a file that this one has just written may be open in a child of another test.
        assert!(Command::new("cp").args([&script, &path]).status().unwrap().success());
        for at in [&folder, &path] {
            fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { place, root }
    }

    fn calls(&self) -> Vec<String> {
        let said = fs::read_to_string(self.place.path().join("calls")).unwrap_or_default();
        said.lines().map(|line| line.strip_suffix(" cp3").unwrap().to_owned()).collect()
    }

    /// What was stored about cp3.
    fn noted(&self) -> Switched {
        let text = fs::read_to_string(self.place.path().join(&POWER[1..])).unwrap();
        serde_json::from_str::<Power>(&text).unwrap().switched
    }

    fn switching<'a>(&'a self, policy: &'a Policy, own: &'a HostName) -> Switching<'a> {
        let power = Power { host: name(3), switched: Switched::Nothing };
        let found = Switching::of(&self.root, policy, own, power, |_| ()).unwrap();
        Switching { again: Duration::from_millis(20), ..found }
    }
}

#[tokio::test]
async fn a_host_that_hangs_is_switched_on_again_only_once_it_was_seen_off_twice() {
    let (policy, own) = (policy(), name(1));
    // It goes off at the third look, and answers one look in between with rubbish.
    let bmc = Bmc::new(
        "[ $1 = status ] || exit 0
         case $(grep -c status calls) in 1 | 2) echo on ;; 4) echo rubbish ;; *) echo off ;; esac",
    );
    bmc.switching(&policy, &own).cycle().await.unwrap();
    assert_eq!(bmc.calls(), ["off", "status", "status", "status", "status", "status", "status", "on"]);
    assert_eq!(bmc.noted(), Switched::Cycled);

    let stays_on = Bmc::new("[ $1 != status ] || echo on");
    assert_eq!(stays_on.switching(&policy, &own).cycle().await, Err(PowerError::NotProven));
    assert!(!stays_on.calls().contains(&"on".to_owned()), "{:?}", stays_on.calls());
    assert_eq!((stays_on.calls().len(), stays_on.noted()), (1 + LOOKS, Switched::Off));

    let fails = Bmc::new("[ $1 != off ]");
    let why = fails.switching(&policy, &own).cycle().await.unwrap_err().to_string();
    assert!(why.contains("bmc off cp3 exited with 1"), "{why}");
    assert_eq!((fails.calls(), fails.noted()), (vec!["off".to_owned()], Switched::Off));
}

#[tokio::test]
async fn switching_on_is_tried_again_and_noted_before_it_is_tried() {
    let (policy, own) = (policy(), name(1));
    let third = Bmc::new("[ $(grep -c on calls) = 3 ]");
    third.switching(&policy, &own).on(Switched::On).await.unwrap();
    assert_eq!((third.calls(), third.noted()), (vec!["on".to_owned(); 3], Switched::On));
    let never = Bmc::new("grep -q '\"on\"' run/hactl/guard/power.json && touch noted; exit 1");
    assert!(matches!(never.switching(&policy, &own).on(Switched::On).await, Err(PowerError::Plugin(_))));
    assert_eq!(never.calls().len(), TRIES);
    assert!(never.place.path().join("noted").exists(), "before the first attempt");
}

#[test]
fn only_what_the_policy_and_the_guard_of_this_host_ask_for_is_switched() {
    let root = Root::at("/nonexistent");
    let of = |policy: &Policy, own: usize, host: usize, switched| {
        let power = Power { host: name(host), switched };
        Switching::of(&root, policy, &name(own), power, |_| ()).map(drop)
    };
    let good = policy();
    assert_eq!(of(&good, 1, 3, Switched::Nothing), Ok(()));
    assert_eq!(of(&good, 1, 3, Switched::On), Err(PowerError::Done), "a person started the unit again");
    assert_eq!(of(&good, 1, 2, Switched::Nothing), Err(PowerError::NotAsked(name(2))), "it has no plug-in");
    assert_eq!(of(&good, 3, 3, Switched::Nothing), Err(PowerError::NotAsked(name(3))), "it is the own host");
    let mut systemd = policy();
    systemd.healing.reboot = Reboot::Systemd;
    assert_eq!(of(&systemd, 1, 3, Switched::Nothing), Err(PowerError::NotAsked(name(3))));
}
