//! What a guard reports about its host and the others: the file that `hactl status` and `hactl guard` read.
//!
//! In: written by a guard every second. Out: read by the agent on its host, sent as part of [`super::facts::HostFacts`].

use super::fault::{Class, Fault, FaultKind, Sight, evidence};
use super::healing::Mode;
use super::hold::Hold;
use super::names::{Digest, HostName};
use super::repair::{Decided, RepairRecord};
use super::timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A report older than this is of a guard that no longer works, milliseconds.
pub const STALE_MS: i64 = 15_000;
/// The most entries that are read of any list.
const MOST: usize = 64;

/// What a host says about its guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardFact {
    /// The last report; `None`: there is none, or it cannot be read.
    pub report: Option<GuardReport>,
    /// Why the report cannot be read; empty: it can, or there is none.
    pub trouble: String,
}

/// The report of a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// Its host.
    pub host: HostName,
    /// When it was written, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub at_ms: i64,
    /// When the guard started.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub started_ms: i64,
    /// The digest of its hactl.
    pub release: Digest,
    /// The digest of its policy.
    pub policy: Digest,
    /// What it does.
    pub mode: Mode,
    /// Faults of the host that it confirms.
    pub own: Vec<Fault>,
    /// Faults of others that it concludes.
    pub presumed: Vec<Fault>,
    /// Faults that have not lasted long enough to be reported: with the time when they will be.
    pub pending: Vec<Pending>,
    /// The other guards.
    pub others: BTreeMap<HostName, Other>,
    /// What it does about the faults of its host.
    #[serde(default)]
    pub decided: Vec<Decided>,
    /// What prevents every repair on its host, by the wish of a person.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// Its last repairs, the newest last.
    #[serde(default)]
    pub repairs: Vec<RepairRecord>,
}

/// A fault that is not reported yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The fault.
    pub fault: Fault,
    /// When it will be reported, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub due_ms: i64,
}

/// Another guard, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// How.
    pub sight: Sight,
    /// Since when, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub since_ms: i64,
    /// How far its clock is ahead of this host's, milliseconds; `None`: it is not heard.
    pub ahead_ms: Option<i64>,
    /// Why its heartbeats are not used, or why ours do not reach it; empty: neither.
    pub trouble: String,
    /// When it was first heard after a boot, milliseconds since 1970; 0: it has not booted since this guard watches.
    #[serde(default, deserialize_with = "timestamp::bounded")]
    pub booted_ms: i64,
    /// Until when a person holds it, as its guard said last, milliseconds since 1970; 0: nobody does.
    #[serde(default, deserialize_with = "timestamp::bounded")]
    pub held_until_ms: i64,
}

/// How far a clock is ahead of the median of all, itself included, by how far others are ahead of it, milliseconds. With
/// fewer than two others nobody can tell which one is wrong.
pub fn ahead_of_median(others_ms: impl Iterator<Item = i64>) -> Option<i64> {
    let mut clocks: Vec<i64> = others_ms.chain([0]).collect();
    clocks.sort_unstable();
    let (low, high) = (clocks.get((clocks.len() - 1) / 2)?, clocks.get(clocks.len() / 2)?);
    (clocks.len() >= 3).then(|| -low.midpoint(*high))
}

impl GuardReport {
    /// Whether a host has given no sign of life for so long, by a guard that works.
    pub fn is_gone(&self, host: &HostName, for_s: u32, now_ms: i64) -> bool {
        let begun_ms = now_ms.saturating_sub(i64::from(for_s) * 1000);
        let gone = |fault: &Fault| fault.kind == FaultKind::HostUnreachable && &fault.host == host;
        let silent = self.others.get(host).is_some_and(|other| other.sight == Sight::Silent);
        self.is_current(now_ms) && silent && self.presumed.iter().any(|fault| gone(fault) && fault.since_ms <= begun_ms)
    }

    /// The report with lists of limited length and texts of one line; of another host than its own, none. It says of
    /// its own host what a host can confirm, and of others what can be concluded.
    pub fn plausible(mut self, host: &HostName) -> Option<Self> {
        if &self.host != host {
            return None;
        }
        let confirmed = |fault: &Fault| &fault.host == host && fault.kind.class() == Class::Confirmed;
        let concluded = |fault: &Fault| fault.kind.class() == Class::Presumed;
        self.own.retain(confirmed);
        self.presumed.retain(concluded);
        self.pending.retain(|pending| confirmed(&pending.fault) || concluded(&pending.fault));
        self.own.truncate(MOST);
        self.presumed.truncate(MOST);
        self.pending.truncate(MOST);
        let of_pending = self.pending.iter_mut().map(|pending| &mut pending.fault);
        for fault in self.own.iter_mut().chain(&mut self.presumed).chain(of_pending) {
            fault.evidence = evidence(&fault.evidence);
        }
        while self.others.len() > MOST {
            self.others.pop_last();
        }
        for other in self.others.values_mut() {
            other.trouble = evidence(&other.trouble);
            other.ahead_ms = other.ahead_ms.map(|ms| ms.clamp(-1_000_000_000_000, 1_000_000_000_000));
        }
        self.decided.truncate(MOST);
        self.hold = self.hold.map(Hold::in_one_line);
        self.repairs = self.repairs.into_iter().take(MOST).map(RepairRecord::in_one_line).collect();
        for decided in &mut self.decided {
            decided.decision.in_one_line();
        }
        Some(self)
    }

    /// Whether it was written so recently, by the same clock, that its guard works. A report from the future was
    /// written before the clock was set back, or is forged.
    pub fn is_current(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.at_ms).saturating_abs() <= STALE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::super::fault::FaultKind;
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn fault(host: &str, kind: FaultKind) -> Fault {
        Fault { host: name(host), kind, since_ms: 1, evidence: "a\n\u{1b}[31mb".repeat(400) }
    }

    fn report() -> GuardReport {
        GuardReport {
            host: name("cp1"),
            at_ms: 1_000_000,
            started_ms: 1,
            release: Digest::of(b"r"),
            policy: Digest::of(b"p"),
            mode: Mode::Watch,
            own: vec![],
            presumed: vec![],
            pending: vec![],
            others: BTreeMap::new(),
            decided: vec![],
            hold: None,
            repairs: vec![],
        }
    }

    #[test]
    fn a_report_is_current_for_some_seconds_and_one_from_the_future_is_not() {
        for (now_ms, is) in [
            (1_000_000, true),
            (1_000_000 + STALE_MS, true),
            (1_000_001 + STALE_MS, false),
            (1_000_000 - STALE_MS, true),
            (999_999 - STALE_MS, false),
            (i64::MIN, false),
            (i64::MAX, false),
        ] {
            assert_eq!(report().is_current(now_ms), is, "{now_ms}");
        }
    }

    #[test]
    fn a_host_is_gone_once_it_was_unreachable_for_long_by_a_current_report() {
        let since = |kind, since_ms| {
            let presumed = vec![Fault { since_ms, ..fault("cp2", kind) }];
            let other = |sight| Other {
                sight,
                since_ms: 1,
                ahead_ms: None,
                trouble: String::new(),
                booted_ms: 0,
                held_until_ms: 0,
            };
            let others = [(name("cp2"), other(Sight::Silent)), (name("cp3"), other(Sight::Heard))].into();
            GuardReport { presumed, others, ..report() }
        };
        let gone = since(FaultKind::HostUnreachable, 400_000);
        assert!(gone.is_gone(&name("cp2"), 600, 1_000_000));
        assert!(!gone.is_gone(&name("cp2"), 601, 1_000_000), "not for long enough");
        assert!(!gone.is_gone(&name("cp3"), 600, 1_000_000), "it is another host");
        assert!(!gone.is_gone(&name("cp2"), 600, 1_000_001 + STALE_MS), "the report is old");
        let mut back = gone.clone();
        back.others.get_mut(&name("cp2")).unwrap().sight = Sight::Answers;
        assert!(!back.is_gone(&name("cp2"), 600, 1_000_000), "it is just back");
        assert!(!since(FaultKind::GuardDown, 400_000).is_gone(&name("cp2"), 600, 1_000_000), "it answers");
    }

    #[test]
    fn a_hostile_report_is_cut_to_what_a_host_can_say() {
        let kinds = [FaultKind::EtcdFrozen, FaultKind::HostUnreachable];
        let hosts = ["cp1", "cp2"];
        let all = || kinds.iter().flat_map(|kind| hosts.map(|host| fault(host, *kind)));
        let many: Vec<Fault> = std::iter::repeat_with(all).take(10_000).flatten().collect();
        let other = |ahead_ms| Other {
            sight: Sight::Heard,
            since_ms: 1,
            ahead_ms,
            trouble: "x\ny".to_owned(),
            booted_ms: 0,
            held_until_ms: 0,
        };
        let said = GuardReport {
            pending: many.iter().map(|fault| Pending { fault: fault.clone(), due_ms: 2 }).collect(),
            own: many.clone(),
            presumed: many,
            others: (0..10_000).map(|n| (name(&format!("h{n}")), other(Some(i64::MAX)))).collect(),
            ..report()
        };
        assert_eq!(said.clone().plausible(&name("cp2")), None, "it is the report of cp1");
        let read = said.plausible(&name("cp1")).unwrap();
        let lists = [read.own.len(), read.presumed.len(), read.pending.len(), read.others.len()];
        assert_eq!(lists, [MOST; 4]);
        assert!(read.own.iter().all(|fault| fault.host == name("cp1") && fault.kind == FaultKind::EtcdFrozen));
        assert!(read.presumed.iter().all(|fault| fault.kind == FaultKind::HostUnreachable));
        let own = |fault: &Fault| fault.kind == FaultKind::HostUnreachable || fault.host == name("cp1");
        assert!(read.pending.iter().all(|pending| own(&pending.fault)));
        let texts = read.own.iter().chain(&read.presumed).map(|fault| &fault.evidence);
        let mut texts = texts.chain(read.others.values().map(|other| &other.trouble));
        assert!(texts.all(|text| text.chars().count() <= 240 && !text.contains(char::is_control)));
    }
}
