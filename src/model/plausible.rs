//! Plausibility of a host's reply, checked on receipt: a number that no cluster can reach is dropped, and the host is
//! named.
//!
//! In: [`HostFacts`] as they were decoded. Out: the same without implausible values, and a doubt in words for each. A
//! plausible number may be wrong, too, so nothing is decided by one host alone (`observe/`).

use super::facts::{DiskFact, EtcdFact, EtcdView, HostFacts};
use super::fault::evidence;
use super::guard_report::GuardFact;
use super::hosting::HostingFact;
use super::names::HostName;
use super::snapshot::BundlesFact;
use std::ops::Range;

/// No cluster reaches this revision, and few would be left above it.
pub const MOST_REVISION: i64 = 1 << 60;
/// The most by which a used revision can exceed the readable data of a cluster: twenty thousand writes a second for
/// fifty years.
pub const MOST_AHEAD: i64 = 1 << 45;
/// The same as [`MOST_REVISION`], for terms and indexes of the raft log.
const MOST_ENTRY: u64 = 1 << 60;
/// A pebibyte: no file of etcd is so large.
const MOST_BYTES: u64 = 1 << 50;
/// The year 9999, milliseconds since 1970: later times have no calendar.
const MOST_MS: i64 = 253_402_300_800_000;

/// Whether a cluster can have reached this revision.
pub fn is_revision(revision: i64) -> bool {
    (0..MOST_REVISION).contains(&revision)
}

/// Whether a recovery may start at this revision: enough revisions are left above it for later writes and recoveries.
pub fn is_base(revision: i64) -> bool {
    (0..MOST_REVISION - MOST_AHEAD).contains(&revision)
}

/// Whether a file can be so large.
pub fn is_size(bytes: u64) -> bool {
    bytes < MOST_BYTES
}

/// Whether it is a time of some calendar, milliseconds since 1970.
pub fn is_time(ms: i64) -> bool {
    (0..MOST_MS).contains(&ms)
}

/// Why a number is implausible, if it is.
fn outside<T: PartialOrd + std::fmt::Display>(what: &str, number: T, bounds: &Range<T>) -> Option<String> {
    (!bounds.contains(&number)).then(|| format!("{what} {number}"))
}

fn entry(what: &str, number: u64) -> Option<String> {
    outside(what, number, &(0..MOST_ENTRY))
}

fn revision(number: i64) -> Option<String> {
    outside("revision", number, &(0..MOST_REVISION))
}

fn size(number: u64) -> Option<String> {
    outside("a size in bytes of", number, &(0..MOST_BYTES))
}

fn time(number: i64) -> Option<String> {
    outside("a time (milliseconds since 1970) of", number, &(0..MOST_MS))
}

impl EtcdView {
    fn impossible(&self) -> Option<String> {
        let sizes = [self.db_bytes, self.in_use_bytes, self.quota_bytes];
        let mut sizes = sizes.into_iter().map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        (entry("term", self.term).or_else(|| entry("applied entry", self.applied)))
            .or_else(|| revision(self.revision))
            .or_else(|| sizes.find_map(size))
    }
}

impl DiskFact {
    fn impossible(&self) -> Option<String> {
        let entries = [("term", self.term), ("entry", self.index), ("committed entry", self.commit)];
        let applied = self.applied.map(|applied| ("applied entry", applied));
        (entries.into_iter().chain(applied).find_map(|(what, number)| entry(what, number)))
            .or_else(|| self.revision.and_then(revision))
            .or_else(|| size(self.db_bytes))
            .or_else(|| time(self.written_ms))
    }
}

impl EtcdFact {
    /// Drops implausible values. If one value of a member or of its data is implausible, all of them are dropped.
    fn judge(&mut self, doubts: &mut Vec<String>) {
        if let Some(why) = self.view.as_ref().and_then(EtcdView::impossible) {
            doubts.push(format!("says of its etcd member: {why}"));
            self.trouble.get_or_insert_with(|| format!("its member reports {why}, which no cluster can reach"));
            self.view = None;
        }
        if let Some(why) = self.disk.as_ref().and_then(DiskFact::impossible) {
            doubts.push(format!("says of its etcd data: {why}"));
            self.trouble.get_or_insert_with(|| format!("its data has {why}, which no cluster can reach"));
            (self.disk, self.closed) = (None, false);
        }
        self.aside.retain(|name, disk| match disk.impossible() {
            None => true,
            Some(why) => {
                doubts.push(format!("says of {name}: {why}"));
                false
            }
        });
        if let Some(why) = self.high_water.and_then(revision) {
            doubts.push(format!("says that a store was restored at {why}"));
            self.high_water = None;
        }
    }
}

impl BundlesFact {
    fn judge(&mut self, doubts: &mut Vec<String>) {
        self.bundles.retain(|bundle| {
            let point = &bundle.point;
            let why = (revision(point.revision).or_else(|| revision(point.high_water)))
                .or_else(|| entry("term", point.term))
                .or_else(|| entry("entry", point.index))
                .or_else(|| size(bundle.bytes))
                .or_else(|| time(bundle.taken_ms));
            if let Some(why) = &why {
                doubts.push(format!("says of {}: {why}", bundle.name));
            }
            why.is_none()
        });
        let times = self.trouble.as_ref().map(|(at, _)| *at).into_iter();
        let times = times.chain(self.drill.map(|drill| drill.at_ms)).chain(self.own_identity_ms);
        let own = self.own_drill.as_ref().map(|drill| drill.at_ms);
        if let Some(why) = times.chain(own).find_map(time) {
            doubts.push(format!("says of its snapshots: {why}"));
            (self.trouble, self.drill, self.own_drill, self.own_identity_ms) = (None, None, None, None);
        }
    }
}

impl GuardFact {
    fn judge(&mut self, host: &HostName, doubts: &mut Vec<String>) {
        self.trouble = evidence(&self.trouble);
        let Some(report) = self.report.take() else { return };
        let of = report.host.clone();
        self.report = report.plausible(host);
        if self.report.is_none() {
            doubts.push(format!("has the report of the guard of {of} instead of its own"));
            self.trouble = format!("it is the report of the guard of {of}");
        }
    }
}

impl HostFacts {
    /// Drops implausible values from the reply of this host, and records them in [`HostFacts::doubts`].
    pub fn judge(&mut self, host: &HostName) {
        let mut doubts = Vec::new();
        if let Some(why) = time(self.now_ms) {
            doubts.push(format!("says that its clock shows {why}"));
            self.now_ms = 0;
        }
        if !is_size(self.memory_mib.max(self.disk_free_mib).saturating_mul(1 << 20)) {
            let (memory, free) = (self.memory_mib, self.disk_free_mib);
            doubts.push(format!("says that it has {memory} MiB of memory, and {free} MiB free on its disk"));
            (self.memory_mib, self.disk_free_mib) = (0, 0);
        }
        let mut times = |what: &str, at: &mut i64| {
            if let Some(why) = time(*at) {
                doubts.push(format!("says of {what}: {why}"));
                *at = 0;
            }
        };
        self.files.iter_mut().for_each(|(path, file)| times(path, &mut file.changed_ms));
        for (name, unit) in &mut self.units {
            times(name.as_str(), &mut unit.started_ms);
            times(name.as_str(), &mut unit.reloaded_ms);
        }
        self.leaves.iter_mut().for_each(|(id, leaf)| times(&id.to_string(), &mut leaf.changed_ms));
        self.processes.iter_mut().for_each(|(name, at)| times(name, at));
        if let Some(api) = &mut self.api {
            api.nodes.iter_mut().for_each(|node| times(&format!("Node {}", node.name), &mut node.heard_ms));
        }
        if let Some(etcd) = &mut self.etcd {
            etcd.judge(&mut doubts);
        }
        if let Some(bundles) = &mut self.bundles {
            bundles.judge(&mut doubts);
        }
        if let Some(guard) = &mut self.guard {
            guard.judge(host, &mut doubts);
        }
        if let Some(why) = self.hosting.as_ref().and_then(HostingFact::impossible) {
            doubts.push(format!("says of its control plane: {why}"));
            self.hosting = Some(HostingFact::default());
        }
        self.doubts.extend(doubts.into_iter().map(|what| format!("{what}, which cannot be")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{BundleFact, Point, Proof};
    use proptest::prelude::*;

    fn facts(revision: i64, entry: u64, bytes: u64, ms: i64) -> HostFacts {
        let view = EtcdView { revision, term: entry, db_bytes: bytes.cast_signed(), ..EtcdView::default() };
        let disk =
            DiskFact { revision: Some(revision), index: entry, db_bytes: bytes, written_ms: ms, ..DiskFact::default() };
        let bundle = BundleFact {
            name: "a.hactl".to_owned(),
            bytes,
            taken_ms: ms,
            authority: crate::model::names::Digest::of(b"ca"),
            point: Point { cluster: "c".to_owned(), term: entry, index: entry, revision, high_water: revision },
            etcd: "3.6.16".to_owned(),
            proof: Proof { keys: 1, hash: 1, restored_ms: 1 },
            signed: None,
            authenticity: crate::model::authentic::Authenticity::default(),
        };
        let etcd = EtcdFact {
            view: Some(view),
            aside: [("member.moved-1".to_owned(), disk.clone())].into(),
            disk: Some(disk),
            high_water: Some(revision),
            ..EtcdFact::default()
        };
        let bundles = BundlesFact { bundles: vec![bundle], ..BundlesFact::default() };
        HostFacts { now_ms: ms, etcd: Some(etcd), bundles: Some(bundles), ..HostFacts::default() }
    }

    #[test]
    fn plausible_numbers_are_left_as_they_are() {
        let honest = facts(1_000_000_123, 4711, 8 << 30, 1_795_000_000_000);
        let mut judged = honest.clone();
        judged.judge(&"cp1".parse().unwrap());
        assert_eq!(judged, honest);
    }

    proptest! {
        #[test]
        fn no_number_outside_the_bounds_is_left_and_the_host_is_named(
            revision in any::<i64>(), entry in any::<u64>(), bytes in any::<u64>(), ms in any::<i64>(),
        ) {
            let said = facts(revision, entry, bytes, ms);
            let mut facts = said.clone();
            facts.judge(&"cp1".parse().unwrap());
            let etcd = facts.etcd.as_ref().expect("it was asked for etcd");
            let disks = || etcd.disk.iter().chain(etcd.aside.values());
            let bundles = &facts.bundles.as_ref().expect("it was asked for etcd").bundles;
            let revisions = etcd.view.iter().map(|v| v.revision).chain(etcd.high_water);
            let revisions = revisions.chain(disks().filter_map(|d| d.revision));
            let mut revisions = revisions.chain(bundles.iter().flat_map(|b| [b.point.revision, b.point.high_water]));
            prop_assert!(revisions.all(is_revision));
            prop_assert!(disks().all(|d| d.index < MOST_ENTRY && is_size(d.db_bytes) && is_time(d.written_ms)));
            prop_assert!(bundles.iter().all(|b| b.point.index < MOST_ENTRY && is_size(b.bytes) && is_time(b.taken_ms)));
            prop_assert!(is_time(facts.now_ms));
            prop_assert_eq!(facts != said, !facts.doubts.is_empty(), "what is dropped is said: {:?}", facts.doubts);
        }
    }
}
