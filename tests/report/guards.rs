//! What people and programs see of guards: the section HEALING, its checks, `hactl guard status` and `explain`.

use crate::world::{desired, healthy, name, target, unreachable};
use hactl::model::check::{Check, Outcome};
use hactl::model::desired::Desired;
use hactl::model::facts::{Facts, HostFacts};
use hactl::model::fault::{Fault, FaultKind};
use hactl::model::guard_report::{GuardFact, GuardReport, Other, Pending};
use hactl::model::guards::Guards;
use hactl::model::healing::{Mode, Policy};
use hactl::model::heartbeat::Sight;
use hactl::model::hold::Hold;
use hactl::model::names::Digest;
use hactl::model::repair::{
    Decided, Decision, Delay, Gate, LocalStep, Outcome as Ended, Power, RepairRecord, Switched,
};
use hactl::observe::{GUARD_CHECKS, HashCheck};
use hactl::report::{
    Style, explained_json, explained_text, guards_json, guards_text, history_json, history_text, status_json,
    status_text,
};
use snapbox::{assert_data_eq, file};

const NOW: i64 = 1_700_000_000_000;
const HOUR: i64 = 3_600_000;

/// Three hosts whose guards work and hear one another.
pub fn world() -> (Desired, Facts) {
    let mut desired = desired(3);
    desired.healing.mode = Mode::Watch;
    let mut facts = healthy(&desired, &target(&desired));
    let hosts = ["cp1", "cp2", "cp3"];
    for (own, n) in hosts.iter().zip(0_i64..) {
        let other = |(other, m): (&&str, i64)| {
            let ahead_ms = Some((m - n) * 4);
            (
                name(other),
                Other {
                    sight: Sight::Heard,
                    since_ms: NOW - 2 * HOUR,
                    ahead_ms,
                    trouble: String::new(),
                    booted_ms: 0,
                    held_until_ms: 0,
                },
            )
        };
        let report = GuardReport {
            host: name(own),
            at_ms: NOW - 700,
            started_ms: NOW - 3 * HOUR,
            release: Digest::of(b"release"),
            policy: Policy::of(&desired).digest(),
            mode: Mode::Watch,
            own: vec![],
            presumed: vec![],
            pending: vec![],
            others: hosts.iter().zip(0..).filter(|(other, _)| other != &own).map(other).collect(),
            decided: vec![],
            hold: None,
            repairs: vec![],
        };
        let fact = of(&mut facts, own);
        (fact.now_ms, fact.guard) = (NOW, Some(GuardFact { report: Some(report), trouble: String::new() }));
    }
    (desired, facts)
}

fn of<'a>(facts: &'a mut Facts, host: &str) -> &'a mut HostFacts {
    facts.hosts.get_mut(&name(host)).unwrap().as_mut().unwrap()
}

/// The report of a host.
pub fn report<'a>(facts: &'a mut Facts, host: &str) -> &'a mut GuardReport {
    of(facts, host).guard.as_mut().unwrap().report.as_mut().unwrap()
}

/// A fault since so many seconds.
pub fn fault(host: &str, kind: FaultKind, seconds: i64) -> Fault {
    let evidence = match kind {
        FaultKind::EtcdFrozen => "etcd.service runs and has not answered for 20 s",
        FaultKind::HostUnreachable => "no heartbeat, and no answer on any port, to cp2 and cp3",
        _ => "",
    };
    Fault { host: name(host), kind, since_ms: NOW - 1000 * seconds, evidence: evidence.to_owned() }
}

/// cp1 is off, and etcd on cp3 is frozen.
fn faults(facts: &mut Facts) {
    facts.hosts.insert(name("cp1"), unreachable("no answer to SSH within 10 s"));
    report(facts, "cp3").own = vec![fault("cp3", FaultKind::EtcdFrozen, 42)];
    for (own, seconds, sight) in [("cp2", 372, Sight::Silent), ("cp3", 371, Sight::Answers)] {
        let said = report(facts, own);
        said.presumed = vec![fault("cp1", FaultKind::HostUnreachable, seconds)];
        let other = said.others.get_mut(&name("cp1")).unwrap();
        (other.sight, other.since_ms, other.ahead_ms) = (sight, NOW - 1000 * seconds, None);
    }
    report(facts, "cp3").others.get_mut(&name("cp1")).unwrap().trouble.push_str("connection refused");
    let pending = |kind| Pending { fault: fault("cp3", kind, 8), due_ms: NOW + 22_000 };
    report(facts, "cp3").pending = vec![pending(FaultKind::EtcdFrozen), pending(FaultKind::ApiFrozen)];
}

fn checks(desired: &Desired, facts: &Facts) -> Vec<Check> {
    let all = hactl::observe::checks(desired, facts, &HashCheck::Unknown("no member was asked".to_owned()));
    all.into_iter().filter(|check| GUARD_CHECKS.contains(&check.name)).collect()
}

/// The policy of the inventory, and of all guards, is to repair.
fn repairing(desired: &mut Desired, facts: &mut Facts) {
    desired.healing.mode = Mode::On;
    for host in ["cp1", "cp2", "cp3"] {
        let said = report(facts, host);
        (said.mode, said.policy) = (Mode::On, Policy::of(desired).digest());
    }
}

/// Guards that repair: what is next for each fault, and what was done.
fn repairs(facts: &mut Facts) {
    let step = LocalStep::Restart;
    let decided = |kind, decision| Decided { kind, host: None, decision };
    let record = |kind, seconds: i64, outcome| RepairRecord {
        kind,
        step,
        begun_ms: NOW - 1000 * seconds,
        after_ms: 15_000,
        outcome,
        power: None,
    };
    let kinds = [
        (FaultKind::EtcdFrozen, Decision::HeldBack { step, gate: Gate::Quorum { others: 1, needed: 2 } }),
        (FaultKind::KubeletFrozen, Decision::Wait { step, until_ms: NOW + 12_000, why: Delay::Attempts }),
        (FaultKind::RuntimeFrozen, Decision::GaveUp { step, tries: 3 }),
    ];
    let said = report(facts, "cp3");
    said.own = kinds.iter().map(|(kind, _)| fault("cp3", *kind, 42)).collect();
    said.decided = kinds.into_iter().map(|(kind, decision)| decided(kind, decision)).collect();
    said.repairs = vec![
        record(FaultKind::BalancerFrozen, 7200, Ended::Helped(900)),
        record(FaultKind::ApiFrozen, 1800, Ended::Helped(9_400)),
        record(FaultKind::RuntimeFrozen, 70, Ended::Failed("containerd.service does not start".to_owned())),
        record(FaultKind::KubeletFrozen, 5, Ended::Done),
    ];
    let (by, reason) = ("ops@laptop".to_owned(), "disk swap".to_owned());
    report(facts, "cp2").hold =
        Some(Hold { by, reason, since_ms: NOW, until_ms: Some(NOW + 4 * HOUR), annotated: false });
}

/// cp1 and cp2 have switched the power of cp3 before, and cp1 has to wait: cp3 has power.
fn powers(facts: &mut Facts) {
    of_silent(facts);
    let record = |seconds: i64, switched, outcome| RepairRecord {
        kind: FaultKind::PowerDue,
        step: LocalStep::Power,
        begun_ms: NOW - 1000 * seconds,
        after_ms: 10_000,
        outcome,
        power: Some(Power { host: name("cp3"), switched }),
    };
    let evidence = "cp1 switches it by its plug-in ipmi".to_owned();
    let said = report(facts, "cp1");
    said.presumed.push(Fault { evidence, ..fault("cp3", FaultKind::PowerDue, 190) });
    let decision = Decision::Wait { step: LocalStep::Power, until_ms: NOW + 230_000, why: Delay::Boot };
    said.decided = vec![Decided { kind: FaultKind::PowerDue, host: Some(name("cp3")), decision }];
    said.repairs = vec![
        record(3000, Switched::Cycled, Ended::Helped(70_000)),
        record(400, Switched::Nothing, Ended::Failed("ipmi status printed \"\", neither on nor off".to_owned())),
        record(340, Switched::LeftOn, Ended::Done),
    ];
    // No other guard decides about it, whatever it says.
    let decision = Decision::GaveUp { step: LocalStep::Power, tries: 2 };
    report(facts, "cp2").decided = vec![Decided { kind: FaultKind::PowerDue, host: Some(name("cp3")), decision }];
}

/// cp3 gives no sign of life, by the word of both others.
fn of_silent(facts: &mut Facts) {
    facts.hosts.insert(name("cp3"), unreachable("no answer to SSH within 10 s"));
    for by in ["cp1", "cp2"] {
        report(facts, by).presumed = vec![fault("cp3", FaultKind::HostUnreachable, 370)];
        report(facts, by).others.get_mut(&name("cp3")).expect("it sees cp3").sight = Sight::Silent;
    }
}

/// The section and the checks of the status page, and the two pages of `hactl guard`.
fn shown(title: &str, desired: &Desired, facts: &Facts) -> String {
    let checks = checks(desired, facts);
    let page = status_text(desired, facts, &checks, &Style::plain());
    let from = page.find("HEALING").expect("the page has the section");
    let guards = Guards::of(desired, &facts.hosts).expect("healing is on");
    let (status, explained) =
        (guards_text(&guards, &Style::plain()), explained_text(&guards, Some(&name("cp3")), &Style::plain()));
    format!("======== {title}\n{}\n--- guard status\n{status}\n--- guard explain cp3\n{explained}\n", &page[from..])
}

#[test]
fn pages_about_guards_match_their_golden_file() {
    let mut pages = String::new();
    let mut say = |title: &str, set: &dyn Fn(&mut Facts)| {
        let (mut desired, mut facts) = world();
        if title.starts_with("guards repair") {
            repairing(&mut desired, &mut facts);
        }
        set(&mut facts);
        pages.push_str(&shown(title, &desired, &facts));
    };
    say("all is well", &|_| {});
    say("a host is off, and etcd on another one is frozen", &faults);
    say("a guard is dead, another has never run", &|facts| {
        report(facts, "cp2").at_ms = NOW - 180_000;
        of(facts, "cp3").guard = Some(GuardFact::default());
        report(facts, "cp1").presumed = vec![fault("cp2", FaultKind::GuardDown, 170)];
    });
    say("guards repair: a step is due, one is held back, one was given up, one helped; a host is held", &repairs);
    say("guards repair: the power of a host is on, and it may be booting", &powers);
    say("another policy and another release", &|facts| {
        let said = report(facts, "cp3");
        (said.policy, said.release) = (Digest::of(b"other"), Digest::of(b"other"));
        said.own = vec![fault("cp3", FaultKind::NeedsUp, 70)];
    });
    say("the VIP is missing, and a report is from the future", &|facts| {
        for own in ["cp1", "cp2"] {
            report(facts, own).presumed = vec![fault(own, FaultKind::VipMissing, 6)];
        }
        report(facts, "cp3").at_ms = NOW + HOUR;
    });
    let (_, mut facts) = world();
    repairs(&mut facts);
    let records: Vec<_> = report(&mut facts, "cp3").repairs.iter().map(|r| (name("cp3"), r.clone())).collect();
    let (_, mut facts) = world();
    powers(&mut facts);
    let powers = report(&mut facts, "cp1").repairs.iter().map(|r| (name("cp1"), r.clone()));
    let records: Vec<_> = records.into_iter().chain(powers).collect();
    pages.push_str(&format!("======== guard history\n{}", history_text(&records, &Style::plain())));
    assert_data_eq!(pages, file!["guards.txt"]);
}

#[test]
fn objects_about_guards_match_their_golden_file() {
    let (desired, mut facts) = world();
    faults(&mut facts);
    repairs(&mut facts);
    let guards = Guards::of(&desired, &facts.hosts).unwrap();
    let status = guards_json(&desired.cluster, &guards);
    let explained = explained_json(&desired.cluster, &guards, Some(&name("cp3")));
    let cp3 = name("cp3");
    let records: Vec<_> =
        report(&mut facts, "cp3").repairs.iter().map(|record| (cp3.clone(), record.clone())).collect();
    let history = history_json(&records);
    assert_data_eq!(format!("{status:#}\n{explained:#}\n{history:#}\n"), file!["guards.json"]);
    let healing = &status_json(&desired, &facts, &[])["healing"];
    for field in ["mode", "guards", "faults", "pending"] {
        assert_eq!(healing[field], status[field], "{field}");
    }
}

#[test]
fn without_healing_nothing_is_said_of_guards() {
    let (mut desired, facts) = world();
    desired.healing.mode = Mode::Off;
    assert_eq!(checks(&desired, &facts), []);
    assert!(!status_text(&desired, &facts, &[], &Style::plain()).contains("HEALING"));
    assert_eq!(status_json(&desired, &facts, &[])["healing"], serde_json::Value::Null);
}

#[test]
fn an_open_fault_and_a_silent_guard_fail_and_what_breaks_nothing_only_warns() {
    let worst = |set: &dyn Fn(&mut Facts)| {
        let (desired, mut facts) = world();
        set(&mut facts);
        checks(&desired, &facts).iter().map(|check| check.outcome).max()
    };
    assert_eq!(worst(&|_| {}), Some(Outcome::Pass));
    for kind in FaultKind::ALL {
        let outcome = worst(&|facts| report(facts, "cp1").own = vec![fault("cp1", *kind, 9)]);
        let warns = matches!(kind, FaultKind::CertificateExpiring | FaultKind::NeedsUp | FaultKind::ForeignHealer);
        assert_eq!(outcome, Some(if warns { Outcome::Warn } else { Outcome::Fail }), "{kind}");
    }
    assert_eq!(worst(&|facts| report(facts, "cp1").at_ms = NOW - 16_000), Some(Outcome::Fail));
    assert_eq!(worst(&|facts| report(facts, "cp1").policy = Digest::of(b"x")), Some(Outcome::Warn));
    assert_eq!(worst(&|facts| report(facts, "cp1").release = Digest::of(b"x")), Some(Outcome::Warn));
}

#[test]
fn the_report_of_another_host_is_a_doubt_and_not_used() {
    let (desired, mut facts) = world();
    let other = of(&mut facts, "cp1").guard.clone();
    let fact = of(&mut facts, "cp2");
    fact.guard = other;
    fact.judge(&name("cp2"));
    assert_eq!(fact.doubts.len(), 1, "{:?}", fact.doubts);
    let failing = checks(&desired, &facts).into_iter().find(|check| check.outcome == Outcome::Fail).unwrap();
    assert_eq!((failing.host, failing.name), (Some(name("cp2")), "guards work"));
    assert!(failing.detail.contains("the guard of cp1"), "{}", failing.detail);
}
