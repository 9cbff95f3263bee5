//! What all guards report together: which of them work, and each fault once.
//!
//! In: the desired state, the hosts' answers. Out: [`Guards`], read by `observe/` for checks and by `report/`. Pure. A
//! guard counts while its report is recent by the clock of its own host. Every duration is measured by that clock, so
//! clocks need not agree.

use super::desired::Desired;
use super::duration::human_duration;
use super::facts::{HostFacts, Unreachable};
use super::fault::{Class, Fault, FaultKind};
use super::guard_report::{GuardReport, Other, ahead_of_median};
use super::healing::{Mode, Policy};
use super::heartbeat::Sight;
use super::listed::listed;
use super::names::{Digest, HostName};
use super::repair::Decision;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The guards of a cluster, and what they detect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guards {
    /// The policy that the inventory asks for.
    pub policy: Policy,
    /// Each guard of the policy, in its order.
    pub guards: Vec<GuardView>,
    /// The faults that guards which work report: each once, in the order of the policy.
    pub faults: Vec<FaultView>,
    /// Those that have not lasted long enough to be reported.
    pub pending: Vec<FaultView>,
}

/// A guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardView {
    /// Its host.
    pub host: HostName,
    /// Whether it works.
    pub state: GuardState,
    /// Its last report, also if it is old.
    pub report: Option<GuardReport>,
    /// The clock of its host when it answered, milliseconds since 1970.
    pub now_ms: i64,
}

/// Whether a guard works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardState {
    /// Its report is recent.
    Works,
    /// Its last report is this many milliseconds old.
    Silent(i64),
    /// Its last report is this many milliseconds in the future.
    Ahead(i64),
    /// Its host has no report.
    Missing,
    /// Its report cannot be used, and why.
    Unusable(String),
    /// Its host does not answer or was not asked, and why.
    Unknown(String),
}

/// A fault as the guards report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultView {
    /// The host that has it; `None`: the cluster.
    pub host: Option<HostName>,
    /// The kind.
    pub kind: FaultKind,
    /// The earliest detection, by the clock of that guard, milliseconds since 1970.
    pub since_ms: i64,
    /// For how long it has lasted since then, milliseconds.
    pub lasts_ms: i64,
    /// What that guard saw.
    pub evidence: String,
    /// The guards that report it.
    pub by: Vec<HostName>,
    /// In how many milliseconds it is reported, if it lasts; `None`: it is.
    pub due_in_ms: Option<i64>,
    /// What the guard of the host does about it, with the clock of that host, milliseconds since 1970; `None`: it does
    /// not say.
    pub next: Option<(Decision, i64)>,
}

impl FaultView {
    /// Whether the guard of this host decides what to do about it. A fault of the cluster is decided by each of those
    /// that report it as one of their own host.
    fn is_decided_by(&self, host: &HostName) -> bool {
        self.host.as_ref().is_none_or(|of| of == host)
    }
}

/// As a clause: `EtcdFrozen for 42 s: its etcd member runs but does not answer (evidence)`.
impl fmt::Display for FaultView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.kind, human_duration(self.lasts_ms))?;
        if let Some(ms) = self.due_in_ms {
            write!(f, ", reported in {} unless it ends", human_duration(ms))?;
        }
        if self.kind.class() == Class::Presumed {
            let by: Vec<&str> = self.by.iter().map(HostName::as_str).collect();
            write!(f, "{}{}", if by.is_empty() { "" } else { ", by " }, listed(&by))?;
        }
        write!(f, ": {}", self.kind.meaning())?;
        if self.evidence.is_empty() { Ok(()) } else { write!(f, " ({})", self.evidence) }
    }
}

impl GuardView {
    fn of(host: &HostName, answer: Option<&Result<HostFacts, Unreachable>>) -> Self {
        let facts = answer.and_then(|answer| answer.as_ref().ok());
        let now_ms = facts.map(|facts| facts.now_ms).unwrap_or_default();
        let fact = facts.and_then(|facts| facts.guard.as_ref());
        let report = fact.and_then(|fact| fact.report.clone());
        let why = match answer {
            Some(Err(unreachable)) => unreachable.why.clone(),
            Some(Ok(_)) | None => "it was not asked".to_owned(),
        };
        let state = match (fact, &report) {
            (None, _) => GuardState::Unknown(why),
            (Some(_), Some(report)) if report.is_current(now_ms) => GuardState::Works,
            (Some(_), Some(report)) if report.at_ms > now_ms => GuardState::Ahead(report.at_ms.saturating_sub(now_ms)),
            (Some(_), Some(report)) => GuardState::Silent(now_ms.saturating_sub(report.at_ms)),
            (Some(fact), None) if fact.trouble.is_empty() => GuardState::Missing,
            (Some(fact), None) => GuardState::Unusable(fact.trouble.clone()),
        };
        Self { host: host.clone(), state, report, now_ms }
    }

    /// The report, if the guard works.
    pub fn current(&self) -> Option<&GuardReport> {
        self.report.as_ref().filter(|_| self.state == GuardState::Works)
    }

    /// How it sees another host.
    pub fn sees(&self, host: &HostName) -> Option<&Other> {
        self.current()?.others.get(host)
    }

    /// The guards that it hears.
    pub fn hears<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = &'a HostName> {
        let heard = |host: &&HostName| self.sees(host).is_some_and(|other| other.sight == Sight::Heard);
        policy.others(&self.host).map(|guard| &guard.name).filter(heard)
    }

    /// How far its clock is ahead of the median of all that it hears, milliseconds; none of fewer than three clocks.
    pub fn ahead_ms(&self) -> Option<i64> {
        let heard = self.current()?.others.values().filter(|other| other.sight == Sight::Heard);
        ahead_of_median(heard.filter_map(|other| other.ahead_ms))
    }
}

impl Guards {
    /// The guards, if the inventory asks for them.
    pub fn of(desired: &Desired, hosts: &BTreeMap<HostName, Result<HostFacts, Unreachable>>) -> Option<Self> {
        if desired.healing.mode == Mode::Off {
            return None;
        }
        let policy = Policy::of(desired);
        let guards: Vec<GuardView> =
            policy.guards.iter().map(|guard| GuardView::of(&guard.name, hosts.get(&guard.name))).collect();
        let mut raised = Merged::default();
        let mut pending = Merged::default();
        for (guard, report) in guards.iter().filter_map(|guard| Some((guard, guard.current()?))) {
            for fault in report.own.iter().chain(&report.presumed) {
                raised.add(&policy, guard, fault, None);
            }
            for fault in &report.pending {
                pending.add(&policy, guard, &fault.fault, Some(fault.due_ms.saturating_sub(guard.now_ms)));
            }
        }
        for (guard, report) in guards.iter().filter_map(|guard| Some((guard, guard.current()?))) {
            for decided in &report.decided {
                // Only the power of another host is decided about elsewhere.
                let of = decided.host.as_ref().filter(|_| decided.kind == FaultKind::PowerDue);
                let own = |fault: &&mut FaultView| {
                    let is_its = of.map_or_else(
                        || fault.is_decided_by(&guard.host),
                        |host| fault.host.as_ref() == Some(host) && fault.by.contains(&guard.host),
                    );
                    fault.kind == decided.kind && is_its
                };
                if let Some(fault) = raised.0.values_mut().find(own) {
                    fault.next = Some((decided.decision.clone(), guard.now_ms));
                }
            }
        }
        pending.0.retain(|key, _| !raised.0.contains_key(key));
        let (faults, pending) = (raised.0.into_values().collect(), pending.0.into_values().collect());
        let mut all = Self { policy, guards, faults, pending };
        // What the reports themselves show is said once: which guards do not work, and which have another policy.
        let outdated = all.outdated().next().is_some();
        let works = |guard: &GuardView| matches!(guard.state, GuardState::Works | GuardState::Unknown(_));
        let dead = all.guards.iter().filter(|guard| !works(guard)).map(|guard| Some(guard.host.clone()));
        let dead: Vec<Option<HostName>> = dead.collect();
        all.faults.retain(|fault| match fault.kind {
            FaultKind::GuardDown => !dead.contains(&fault.host),
            FaultKind::NeedsUp => !outdated,
            _ => true,
        });
        Some(all)
    }

    /// The guards that work.
    pub fn working(&self) -> impl Iterator<Item = &GuardView> {
        self.guards.iter().filter(|guard| guard.state == GuardState::Works)
    }

    /// The guards that work, by the release of their hactl.
    pub fn releases(&self) -> BTreeMap<Digest, Vec<&HostName>> {
        let mut releases = BTreeMap::<Digest, Vec<&HostName>>::new();
        for (host, report) in self.working().filter_map(|guard| Some((&guard.host, guard.current()?))) {
            releases.entry(report.release).or_default().push(host);
        }
        releases
    }

    /// The guards that work by another policy than the inventory asks for.
    pub fn outdated(&self) -> impl Iterator<Item = &HostName> {
        let policy = self.policy.digest();
        let other = move |guard: &&GuardView| guard.current().is_some_and(|report| report.policy != policy);
        self.working().filter(other).map(|guard| &guard.host)
    }

    /// Whether every guard that works hears every other one of the policy that works.
    pub fn all_hear_one_another(&self) -> bool {
        let working: BTreeSet<&HostName> = self.working().map(|guard| &guard.host).collect();
        self.working().all(|guard| {
            let hears: BTreeSet<&HostName> = guard.hears(&self.policy).collect();
            working.iter().all(|host| *host == &guard.host || hears.contains(host))
        })
    }

    /// The guards that have a say about a host.
    pub fn observers(&self, host: &HostName) -> impl Iterator<Item = &HostName> {
        let say = |guard: &&GuardView| self.policy.has_a_say(guard.hears(&self.policy).count());
        self.working().filter(move |guard| &guard.host != host).filter(say).map(|guard| &guard.host)
    }
}

/// Faults by the position of the host in the policy, with those of the cluster last, and by kind.
#[derive(Default)]
struct Merged(BTreeMap<(usize, FaultKind), FaultView>);

impl Merged {
    /// Adds what one guard reports; of hosts that have no guard, nothing.
    fn add(&mut self, policy: &Policy, guard: &GuardView, fault: &Fault, due_in_ms: Option<i64>) {
        let Some(place) = policy.guards.iter().position(|one| one.name == fault.host) else { return };
        let (place, host) =
            if fault.kind.is_of_the_cluster() { (usize::MAX, None) } else { (place, Some(fault.host.clone())) };
        let view = FaultView {
            host,
            kind: fault.kind,
            since_ms: fault.since_ms,
            lasts_ms: guard.now_ms.saturating_sub(fault.since_ms).max(0),
            evidence: fault.evidence.clone(),
            by: Vec::new(),
            due_in_ms,
            next: None,
        };
        let merged = self.0.entry((place, fault.kind)).or_insert_with(|| view.clone());
        let mut by = std::mem::take(&mut merged.by);
        // A report that names a fault twice counts once.
        if by.last() != Some(&guard.host) {
            by.push(guard.host.clone());
        }
        let due_in_ms = merged.due_in_ms.min(due_in_ms);
        if view.lasts_ms > merged.lasts_ms {
            *merged = view;
        }
        (merged.by, merged.due_in_ms) = (by, due_in_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::super::desired::sample;
    use super::super::guard_report::{GuardFact, Pending};
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn fault(host: &str, kind: FaultKind, since_ms: i64) -> Fault {
        Fault { host: name(host), kind, since_ms, evidence: format!("since {since_ms}") }
    }

    /// Three guards that hear one another; the clock of host N is N hours ahead.
    fn world() -> (Desired, BTreeMap<HostName, Result<HostFacts, Unreachable>>) {
        let mut desired = sample(3);
        desired.healing.mode = Mode::Watch;
        let hosts = (1..=3).map(|n| {
            let now_ms = NOW + n * 3_600_000;
            let other = |m: i64| {
                let ahead_ms = Some((m - n) * 3_600_000);
                (
                    name(&format!("cp{m}")),
                    Other {
                        sight: Sight::Heard,
                        since_ms: NOW,
                        ahead_ms,
                        trouble: String::new(),
                        booted_ms: 0,
                        held_until_ms: 0,
                    },
                )
            };
            let report = GuardReport {
                host: name(&format!("cp{n}")),
                at_ms: now_ms - 400,
                started_ms: NOW,
                release: Digest::of(b"r"),
                policy: Policy::of(&desired).digest(),
                mode: Mode::Watch,
                own: vec![],
                presumed: vec![],
                pending: vec![],
                others: (1..=3).filter(|m| *m != n).map(other).collect(),
                decided: vec![],
                hold: None,
                repairs: vec![],
            };
            let guard = Some(GuardFact { report: Some(report), trouble: String::new() });
            (name(&format!("cp{n}")), Ok(HostFacts { now_ms, guard, ..HostFacts::default() }))
        });
        (desired.clone(), hosts.collect())
    }

    type Hosts = BTreeMap<HostName, Result<HostFacts, Unreachable>>;

    fn fact<'a>(hosts: &'a mut Hosts, host: &str) -> &'a mut HostFacts {
        hosts.get_mut(&name(host)).unwrap().as_mut().unwrap()
    }

    fn report<'a>(hosts: &'a mut Hosts, host: &str) -> &'a mut GuardReport {
        fact(hosts, host).guard.as_mut().unwrap().report.as_mut().unwrap()
    }

    /// Each fault as its host, kind, age in seconds and reporters.
    fn shown(faults: &[FaultView]) -> Vec<String> {
        let one = |fault: &FaultView| {
            let host = fault.host.as_ref().map_or("-", |host| host.as_str());
            let by: Vec<&str> = fault.by.iter().map(HostName::as_str).collect();
            format!("{host} {} {} by {}", fault.kind, fault.lasts_ms / 1000, by.join(","))
        };
        faults.iter().map(one).collect()
    }

    #[test]
    fn without_healing_there_are_no_guards_and_with_it_all_that_report_work() {
        let (mut desired, hosts) = world();
        let guards = Guards::of(&desired, &hosts).unwrap();
        assert_eq!(guards.working().count(), 3);
        assert!(guards.all_hear_one_another() && guards.faults.is_empty() && guards.pending.is_empty());
        assert_eq!((guards.releases().len(), guards.outdated().count()), (1, 0));
        assert_eq!(guards.observers(&name("cp1")).count(), 2);
        let ahead: Vec<Option<i64>> = guards.guards.iter().map(GuardView::ahead_ms).collect();
        assert_eq!(ahead, [Some(-3_600_000), Some(0), Some(3_600_000)]);
        desired.healing.mode = Mode::Off;
        assert_eq!(Guards::of(&desired, &hosts), None);
    }

    #[test]
    fn each_fault_is_reported_once_with_its_earliest_detection_by_the_clock_of_its_guard() {
        use FaultKind::{EtcdFrozen, HostUnreachable, VipMissing};
        let (desired, mut hosts) = world();
        let now = |n: i64| NOW + n * 3_600_000;
        report(&mut hosts, "cp1").own = vec![fault("cp1", EtcdFrozen, now(1) - 42_000); 2];
        report(&mut hosts, "cp1").presumed =
            vec![fault("cp3", HostUnreachable, now(1) - 7_000), fault("cp1", VipMissing, now(1) - 6_000)];
        report(&mut hosts, "cp2").presumed = vec![
            fault("cp3", HostUnreachable, now(2) - 9_000),
            fault("cp2", VipMissing, now(2) - 5_000),
            fault("cp9", HostUnreachable, now(2)),
        ];
        let late = Pending { fault: fault("cp3", HostUnreachable, now(3)), due_ms: now(3) + 1_000 };
        let soon = |n, due_ms| Pending { fault: fault("cp2", FaultKind::Partitioned, now(n) - 8_000), due_ms };
        report(&mut hosts, "cp1").pending = vec![soon(1, now(1) + 22_000)];
        report(&mut hosts, "cp3").pending = vec![late, soon(3, now(3) + 9_000)];
        let guards = Guards::of(&desired, &hosts).unwrap();
        let raised = ["cp1 EtcdFrozen 42 by cp1", "cp3 HostUnreachable 9 by cp1,cp2", "- VipMissing 6 by cp1,cp2"];
        assert_eq!(shown(&guards.faults), raised);
        assert_eq!(guards.faults[1].evidence, format!("since {}", now(2) - 9_000), "of the earliest");
        assert_eq!(shown(&guards.pending), ["cp2 Partitioned 8 by cp1,cp3"], "what is reported is not pending");
        assert_eq!(guards.pending[0].due_in_ms, Some(9_000));
    }

    #[test]
    fn only_recent_reports_count_and_a_guard_that_does_not_work_is_said_once() {
        let (desired, mut hosts) = world();
        let now = NOW + 3_600_000;
        report(&mut hosts, "cp1").own = vec![fault("cp1", FaultKind::EtcdFull, now - 9_000)];
        report(&mut hosts, "cp1").at_ms = now - 180_000;
        report(&mut hosts, "cp2").presumed = vec![fault("cp1", FaultKind::GuardDown, NOW)];
        let state = |hosts: &Hosts| Guards::of(&desired, hosts).unwrap().guards[0].state.clone();
        assert_eq!(state(&hosts), GuardState::Silent(180_000));
        assert!(Guards::of(&desired, &hosts).unwrap().faults.is_empty());
        report(&mut hosts, "cp1").at_ms = now + 180_000;
        assert_eq!(state(&hosts), GuardState::Ahead(180_000));
        fact(&mut hosts, "cp1").guard = Some(GuardFact { report: None, trouble: "damaged".to_owned() });
        assert_eq!(state(&hosts), GuardState::Unusable("damaged".to_owned()));
        fact(&mut hosts, "cp1").guard = Some(GuardFact::default());
        assert_eq!(state(&hosts), GuardState::Missing);
        let guards = Guards::of(&desired, &hosts).unwrap();
        assert!(guards.faults.is_empty() && guards.all_hear_one_another(), "among those that work");
        assert_eq!(guards.observers(&name("cp2")).collect::<Vec<_>>(), [&name("cp3")]);
        hosts.insert(name("cp1"), Err(Unreachable { why: "no answer".to_owned(), hint: None }));
        assert_eq!(state(&hosts), GuardState::Unknown("no answer".to_owned()));
        let guards = Guards::of(&desired, &hosts).unwrap();
        assert_eq!(shown(&guards.faults), ["cp1 GuardDown 7200 by cp2"], "its host cannot say it");
    }
}
