//! The faults over time: one is raised after its delay, and cleared after it has been well for a while.
//!
//! In: what probes find, at times of a clock that never goes back. Out: the raised faults, those that wait for their
//! delay, and each change. A fault that is raised again and again is raised as long as it keeps coming back.

use crate::model::fault::evidence;
use crate::model::fault::{Fault, FaultKind};
use crate::model::guard_report::Pending;
use crate::model::healing::Delays;
use crate::model::names::HostName;
use std::collections::BTreeMap;
use std::time::Duration;

/// A raised fault is cleared once nothing was found for so long.
pub const WELL_FOR: Duration = Duration::from_secs(30);
/// A host that was unreachable must be heard for so long.
const HEARD_FOR: Duration = Duration::from_secs(60);
/// A fault that is raised so often within this time comes and goes.
const FLAPS: usize = 4;
const FLAPS_WITHIN: Duration = Duration::from_secs(1800);

/// The present, by both clocks: one to measure with, one to show to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since some fixed time; never goes back.
    pub steady: Duration,
    /// Milliseconds since 1970.
    pub wall_ms: i64,
}

/// A change of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was raised.
    Raised(Fault),
    /// It is over, after so long.
    Cleared(Fault, Duration),
}

#[derive(Debug)]
struct Entry {
    fault: Fault,
    /// When it was first found, in this run of findings.
    first: Duration,
    /// When it was last found.
    last: Duration,
    raised: bool,
    /// When the findings began that the last look continued; `None`: it found nothing.
    run: Option<Duration>,
}

/// The faults that one guard knows.
#[derive(Debug)]
pub struct Ledger {
    delays: Delays,
    entries: BTreeMap<(HostName, FaultKind), Entry>,
    /// When each fault was raised, in the last half hour.
    raises: BTreeMap<(HostName, FaultKind), Vec<Duration>>,
}

fn well_for(kind: FaultKind) -> Duration {
    if kind == FaultKind::HostUnreachable { HEARD_FOR } else { WELL_FOR }
}

impl Ledger {
    /// Without faults.
    pub fn new(delays: Delays) -> Self {
        Self { delays, entries: BTreeMap::new(), raises: BTreeMap::new() }
    }

    fn delay(&self, kind: FaultKind) -> Duration {
        Duration::from_secs(kind.delay_s(&self.delays).into())
    }

    /// Records what was found of these kinds on a host; kinds that are not in `found` were looked for and not found.
    pub fn note(
        &mut self,
        host: &HostName,
        kinds: &[FaultKind],
        found: &[(FaultKind, String)],
        now: Now,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        for kind in kinds {
            let key = (host.clone(), *kind);
            match found.iter().find(|(other, _)| other == kind) {
                Some((_, seen)) => {
                    let delay = self.delay(*kind);
                    let entry = self.entries.entry(key).or_insert_with(|| Entry {
                        fault: Fault {
                            host: host.clone(),
                            kind: *kind,
                            since_ms: now.wall_ms,
                            evidence: String::new(),
                        },
                        first: now.steady,
                        last: now.steady,
                        raised: false,
                        run: None,
                    });
                    entry.last = now.steady;
                    entry.run.get_or_insert(now.steady);
                    entry.fault.evidence = evidence(seen);
                    if !entry.raised && now.steady.saturating_sub(entry.first) >= delay {
                        entry.raised = true;
                        let raises = self.raises.entry((host.clone(), *kind)).or_default();
                        raises.retain(|at| now.steady.saturating_sub(*at) <= FLAPS_WITHIN);
                        raises.push(now.steady);
                        changes.push(Change::Raised(entry.fault.clone()));
                    }
                }
                None => {
                    if let Some(entry) = self.entries.get_mut(&key) {
                        entry.run = None;
                    }
                    let over =
                        |entry: &Entry| !entry.raised || now.steady.saturating_sub(entry.last) >= well_for(*kind);
                    if self.entries.get(&key).is_some_and(over)
                        && let Some(entry) = self.entries.remove(&key)
                        && entry.raised
                    {
                        changes.push(Change::Cleared(entry.fault, entry.last.saturating_sub(entry.first)));
                    }
                }
            }
        }
        changes
    }

    /// The raised faults, by host and kind.
    pub fn raised(&self) -> impl Iterator<Item = &Fault> {
        self.entries.values().filter(|entry| entry.raised).map(|entry| &entry.fault)
    }

    /// Those of them that the last look found.
    pub fn seen(&self) -> impl Iterator<Item = &Fault> {
        self.entries.values().filter(|entry| entry.raised && entry.run.is_some()).map(|entry| &entry.fault)
    }

    /// Those of them that were found, up to the last look, for their whole delay: one that ended and is back has to last
    /// again before anything is done about it.
    pub fn lasting(&self) -> impl Iterator<Item = &Fault> {
        let lasts = |entry: &&Entry| {
            let delay = self.delay(entry.fault.kind);
            entry.raised && entry.run.is_some_and(|begun| entry.last.saturating_sub(begun) >= delay)
        };
        self.entries.values().filter(lasts).map(|entry| &entry.fault)
    }

    /// The faults of a host that come and go, each with how often it was raised in the last half hour.
    pub fn flapping(&self, host: &HostName, now: Now) -> impl Iterator<Item = (FaultKind, usize)> {
        let recent = move |at: &&Duration| now.steady.saturating_sub(**at) <= FLAPS_WITHIN;
        let of_host = self.raises.iter().filter(move |((of, kind), _)| of == host && *kind != FaultKind::Flapping);
        let counted = of_host.map(move |((_, kind), raises)| (*kind, raises.iter().filter(recent).count()));
        counted.filter(|(_, times)| *times >= FLAPS)
    }

    /// Those that wait for their delay.
    pub fn pending(&self, now: Now) -> Vec<Pending> {
        let waits = self.entries.values().filter(|entry| !entry.raised);
        let due = |entry: &Entry| {
            let left = self.delay(entry.fault.kind).saturating_sub(now.steady.saturating_sub(entry.first));
            now.wall_ms.saturating_add(i64::try_from(left.as_millis()).unwrap_or(i64::MAX))
        };
        waits.map(|entry| Pending { fault: entry.fault.clone(), due_ms: due(entry) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Now {
        Now { steady: Duration::from_secs(seconds), wall_ms: i64::try_from(seconds).unwrap() * 1000 }
    }

    fn host() -> HostName {
        "cp1".parse().unwrap()
    }

    const KIND: FaultKind = FaultKind::EtcdFrozen;

    fn note(ledger: &mut Ledger, bad: bool, seconds: u64) -> Vec<Change> {
        let found: Vec<_> = bad.then(|| (KIND, format!("seen at {seconds}"))).into_iter().collect();
        ledger.note(&host(), &[KIND], &found, at(seconds))
    }

    #[test]
    fn a_fault_that_is_raised_four_times_in_half_an_hour_comes_and_goes() {
        let mut ledger = Ledger::new(Delays::default());
        let flaps = |ledger: &Ledger, s: u64| ledger.flapping(&host(), at(s)).next();
        for (count, from) in (1..=4).zip((0..).step_by(400)) {
            assert_eq!(flaps(&ledger, from), None);
            let changes: usize = [(true, 0), (true, 20), (false, 60)]
                .map(|(bad, after)| note(&mut ledger, bad, from + after).len())
                .into_iter()
                .sum();
            assert_eq!(changes, 2, "raised and cleared, {count}");
        }
        assert_eq!(flaps(&ledger, 1300), Some((KIND, 4)));
        assert_eq!(flaps(&ledger, 1820), Some((KIND, 4)));
        assert_eq!(flaps(&ledger, 1821), None, "the first was half an hour ago");
        assert_eq!(ledger.flapping(&"cp2".parse().unwrap(), at(1300)).next(), None, "another host");
    }

    #[test]
    fn a_fault_is_raised_after_its_delay_and_cleared_after_thirty_seconds_without_it() {
        let mut ledger = Ledger::new(Delays::default());
        assert_eq!(note(&mut ledger, true, 0), []);
        assert_eq!(ledger.pending(at(5))[0].due_ms, 15_000);
        assert_eq!(note(&mut ledger, true, 14), []);
        let raised = note(&mut ledger, true, 16);
        assert!(
            matches!(&raised[..], [Change::Raised(fault)] if fault.since_ms == 0 && fault.evidence == "seen at 16")
        );
        assert_eq!(ledger.pending(at(16)), []);
        assert_eq!(ledger.lasting().count(), 1);
        assert_eq!(note(&mut ledger, false, 30), [], "well for less than 30 s");
        assert_eq!((ledger.raised().count(), ledger.lasting().count()), (1, 0));
        assert_eq!(note(&mut ledger, true, 40), [], "back: it is still raised");
        assert_eq!((ledger.raised().count(), ledger.lasting().count()), (1, 0), "but it has not lasted again");
        let cleared = note(&mut ledger, false, 70);
        assert!(matches!(&cleared[..], [Change::Cleared(_, lasted)] if lasted.as_secs() == 40));
        assert_eq!(ledger.raised().count(), 0);
    }

    #[test]
    fn a_probe_that_looks_for_other_kinds_ends_no_fault() {
        let mut ledger = Ledger::new(Delays::default());
        note(&mut ledger, true, 0);
        note(&mut ledger, true, 20);
        ledger.note(&host(), &[FaultKind::DiskFull], &[], at(100));
        assert_eq!(ledger.raised().count(), 1);
    }

    proptest! {
        /// Whatever a probe sees: a fault is raised only after its whole delay without a well moment, and a raised one
        /// is cleared only after 30 s without a bad one.
        #[test]
        fn no_fault_is_raised_early_and_none_is_cleared_early(
            looks in prop::collection::vec((1_u64..20, any::<bool>()), 1..60),
        ) {
            let mut ledger = Ledger::new(Delays::default());
            let (mut now, mut bad_since, mut last_bad, mut raised) = (0, None, None, false);
            for (pause, bad) in looks {
                now += pause;
                if bad {
                    bad_since = bad_since.or(Some(now));
                    last_bad = Some(now);
                } else if !raised {
                    bad_since = None;
                }
                let due = bad && bad_since.is_some_and(|since| now - since >= 15);
                let over = !bad && last_bad.is_some_and(|last| now - last >= 30);
                match note(&mut ledger, bad, now).as_slice() {
                    [Change::Raised(_)] => {
                        prop_assert!(!raised && due);
                        raised = true;
                    }
                    [Change::Cleared(..)] => {
                        prop_assert!(raised && over);
                        (raised, bad_since) = (false, None);
                    }
                    [] => prop_assert!(raised && !over || !raised && !due, "raised {raised}, due {due}, over {over}"),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }
    }
}
