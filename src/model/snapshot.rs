//! Snapshots: their manifest, the facts of a host about them, and their retention.
//!
//! In: taken on an etcd host, by a timer or on request. Out: read by `observe/`, `plan/` and `report/`; a [`Manifest`]
//! is part of its file.

use super::authentic::{Authenticity, Signed};
use super::blob::SnapshotBlob;
use super::bucket::Destination;
use super::drill::OwnDrill;
use super::names::{ClusterName, Digest, HostName};
use super::plausible::is_revision;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Directory of snapshots on a host; readable only by root.
pub const FOLDER: &str = "/var/lib/hactl/snapshots";
/// Directory of an etcd host for the newest snapshot of each other etcd host.
pub const PEERS: &str = "/var/lib/hactl/snapshots/peers";
/// File extension of a snapshot.
pub const ENDING: &str = "hactl";
/// The version of [`Manifest`].
pub const SCHEMA: u32 = 1;
/// The age in intervals at which `status` warns: the leader takes its snapshot after [`LEADER_WAITS`], so that
/// followers take theirs first.
pub const STALE_AFTER: i64 = 3;
/// The leader takes a snapshot only when its newest is this many intervals old: a snapshot of a follower does not delay
/// writes.
pub const LEADER_WAITS: i64 = 4;

/// The manifest of a snapshot. It is not encrypted, so that hosts can list and prune without a key, and contains no
/// secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this form.
    pub schema: u32,
    /// Its cluster.
    pub cluster: ClusterName,
    /// Fingerprint of the cluster CA: clusters may have the same name.
    pub authority: Digest,
    /// The host that took it.
    pub host: HostName,
    /// When, by the clock of that host, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub taken_ms: i64,
    /// The position of etcd.
    pub point: Point,
    /// Version of the etcd that it was taken from.
    pub etcd: String,
    /// Version of the hactl that took it.
    pub hactl: String,
    /// The etcd snapshot, as it can be delivered to hosts once it is decrypted.
    pub snapshot: SnapshotBlob,
    /// The encrypted etcd snapshot in the file.
    pub sealed: Piece,
    /// The encrypted state in the file.
    pub state: Piece,
    /// The result of its restore into a scratch etcd, before it was encrypted.
    pub proof: Proof,
}

/// A manifest with its signature. Neither is checked: anyone who can write the file can claim anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The manifest in the file.
    pub manifest: Manifest,
    /// The same as it was written, with its signature, if there is one.
    pub signed: Option<Signed>,
}

/// A range of bytes in the file of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// SHA-256.
    pub digest: Digest,
    /// How many.
    pub bytes: u64,
}

/// A position of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Raft term.
    pub term: u64,
    /// Index of its last entry.
    pub index: u64,
    /// Its revision.
    pub revision: i64,
    /// The highest first revision of a recovery that the host knows, or the revision of this snapshot.
    pub high_water: i64,
}

impl Point {
    /// Whether a cluster can have reached this position. Anyone who can write the file can claim any position.
    pub fn is_plausible(&self) -> bool {
        [self.revision, self.high_water].into_iter().all(is_revision)
    }
}

/// The result of an actual restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// Keys with all their revisions, as `etcdutl snapshot status` counts them.
    pub keys: u64,
    /// etcd's own hash over them.
    pub hash: u32,
    /// From the first byte until the restored etcd answered a read, milliseconds.
    pub restored_ms: u64,
}

impl Proof {
    /// Whether both results are of the same keys, regardless of the time.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.keys, self.hash) == (other.keys, other.hash)
    }
}

/// How a host takes and keeps snapshots: `/etc/hactl/snapshots.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The cluster.
    pub cluster: ClusterName,
    /// Fingerprint of its CA.
    pub authority: Digest,
    /// This host.
    pub host: HostName,
    /// Interval, seconds.
    pub every_s: u64,
    /// Retention.
    pub keep: Keep,
    /// Recipients: age public keys.
    pub recipients: Vec<String>,
    /// Whether they are also encrypted to this host's own identity, so that it can run drills.
    #[serde(default)]
    pub drill: bool,
    /// Where a copy of each is stored.
    pub to: Vec<Destination>,
    /// The member's client URL.
    pub url: String,
    /// Its data directory.
    pub data_dir: String,
    /// The CA of its certificate.
    pub ca: String,
    /// Our client certificate.
    pub cert: String,
    /// Our key.
    pub key: String,
}

/// Retention of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The newest ones.
    pub last: usize,
    /// The newest of each of so many days.
    pub daily: usize,
    /// The newest of each of so many weeks.
    pub weekly: usize,
}

/// A day and a week, milliseconds.
const DAY: i64 = 86_400_000;
const WEEK: i64 = 7 * DAY;

impl Keep {
    /// The indices of the snapshots that stay, in a list with the newest first, each with its time: the first ones, and
    /// the first of each day and week (of UTC). The caller determines the order; times only separate days.
    pub fn kept(&self, newest_first: &[i64]) -> BTreeSet<usize> {
        let mut kept: BTreeSet<usize> = (0..newest_first.len().min(self.last)).collect();
        for (span, count) in [(DAY, self.daily), (WEEK, self.weekly)] {
            let mut spans = BTreeSet::new();
            for (place, at) in newest_first.iter().enumerate() {
                if spans.len() < count && spans.insert(at.div_euclid(span)) {
                    kept.insert(place);
                }
            }
        }
        kept
    }
}

/// The report of a host about its snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BundlesFact {
    /// The readable ones, the newest first.
    pub bundles: Vec<BundleFact>,
    /// Files that should be snapshots and are not, with the reason.
    pub damaged: Vec<String>,
    /// The last failure and its time (milliseconds since 1970); none once a snapshot was taken.
    pub trouble: Option<(i64, String)>,
    /// The last drill with the owners' identity, in which a snapshot was decrypted, sent here and restored; none: there
    /// was none.
    pub drill: Option<Drill>,
    /// The last drill of the host with its own identity; none: it ran none, or is not to run any.
    pub own_drill: Option<OwnDrill>,
    /// When that identity was created, milliseconds since 1970; none: it has none.
    pub own_identity_ms: Option<i64>,
    /// What it keeps of the snapshots of other etcd hosts.
    pub peers: BTreeMap<HostName, PeerCopy>,
}

/// What a host keeps of the snapshots of another etcd host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeerCopy {
    /// When the newest that it keeps was taken, by the clock of the other host, milliseconds since 1970; none: it keeps
    /// none.
    pub taken_ms: Option<i64>,
    /// Since when it cannot get a newer one, milliseconds since 1970, and why.
    pub trouble: Option<(i64, String)>,
}

/// A rehearsed recovery with everything that a real one needs, including the owners' identity, that changes nothing
/// live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drill {
    /// When, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub at_ms: i64,
    /// The result.
    pub proof: Proof,
}

/// One snapshot on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleFact {
    /// Its file's name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was taken, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub taken_ms: i64,
    /// Fingerprint of the cluster CA.
    pub authority: Digest,
    /// The position of etcd.
    pub point: Point,
    /// The version of etcd that it was taken from.
    pub etcd: String,
    /// The result of its restore.
    pub proof: Proof,
    /// The manifest with its signature; none: it has no signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Box<Signed>>,
    /// The verdict of the signature check with the cluster CA. It is never taken from the reply of a host.
    #[serde(skip_deserializing, skip_serializing_if = "Authenticity::is_unchecked")]
    pub authenticity: Authenticity,
}

impl BundleFact {
    /// The facts of a snapshot.
    pub fn of(name: String, bytes: u64, claimed: &Claimed) -> Self {
        let manifest = &claimed.manifest;
        Self {
            name,
            bytes,
            taken_ms: manifest.taken_ms,
            authority: manifest.authority,
            point: manifest.point.clone(),
            etcd: manifest.etcd.clone(),
            proof: manifest.proof,
            signed: claimed.signed.clone().map(Box::new),
            authenticity: Authenticity::Unchecked,
        }
    }
}

/// Whether a file name of a snapshot is safe: it names a file in a directory, and nothing outside.
pub fn is_name(name: &str) -> bool {
    let stem = name.strip_suffix(ENDING).and_then(|s| s.strip_suffix('.')).unwrap_or_default();
    (1..=200).contains(&stem.len())
        && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !stem.starts_with('-')
}

/// The parts of a snapshot's name: `CLUSTER-TIME-HOST.hactl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByName<'a> {
    /// Its cluster.
    pub cluster: &'a str,
    /// When it was taken, milliseconds since 1970.
    pub taken_ms: i64,
    /// The host that took it.
    pub host: &'a str,
}

/// The time in a snapshot's name, which is that of its manifest.
const STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second][subsecond digits:3]Z");

impl Settings {
    /// The parts of a file name, if it is a snapshot of this cluster taken by this host.
    pub fn own<'a>(&self, name: &'a str) -> Option<ByName<'a>> {
        by_name(name).filter(|by| by.cluster == self.cluster.as_str() && by.host == self.host.as_str())
    }
}

/// Parses a snapshot's name; `None`: hactl did not choose it.
pub fn by_name(name: &str) -> Option<ByName<'_>> {
    let stem = name.strip_suffix(ENDING)?.strip_suffix('.')?;
    let dashes = stem.match_indices('-').map(|(at, _)| at);
    // Clusters and hosts may have dashes in their names; a time has none.
    let read = |(from, to): (usize, usize)| {
        let taken = PrimitiveDateTime::parse(&stem[from + 1..to], STAMP).ok()?.assume_utc();
        Some(ByName { cluster: &stem[..from], taken_ms: super::timestamp::millis(taken)?, host: &stem[to + 1..] })
    };
    dashes.clone().zip(dashes.skip(1)).find_map(read).filter(|by| !by.cluster.is_empty() && !by.host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_stay_and_one_of_each_day_and_week() {
        let at = |days: i64, hours: i64| days * DAY + hours * 3_600_000;
        let keep = Keep { last: 2, daily: 2, weekly: 2 };
        let taken = [at(20, 9), at(20, 8), at(20, 7), at(19, 9), at(18, 9), at(6, 1)];
        assert_eq!(keep.kept(&taken), [0, 1, 3, 5].into());
    }

    #[test]
    fn a_snapshot_with_a_future_timestamp_expires_once_enough_later_ones_exist() {
        let keep = Keep { last: 2, daily: 3, weekly: 1 };
        // A clock that was wrong for a while: what was taken then is older than what comes before it in the list.
        let taken = [20 * DAY, 19 * DAY, 18 * DAY, 9000 * DAY, 9001 * DAY, 17 * DAY];
        assert_eq!(keep.kept(&taken), [0, 1, 2].into());
    }

    #[test]
    fn a_name_contains_the_cluster_the_timestamp_and_the_host() {
        let by = by_name("big-lab-20261122T134733822Z-cp-1.hactl").unwrap();
        assert_eq!(by, ByName { cluster: "big-lab", taken_ms: 1_795_355_253_822, host: "cp-1" });
        for other in
            ["lab-cp1.hactl", "lab-20261122-cp1.hactl", "20261122T134733822Z-cp1.hactl", "lab-20261122T134733822Z-cp1"]
        {
            assert_eq!(by_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_of_one_file_in_the_folder() {
        assert!(is_name("lab-20261122T060000Z-cp1.hactl"));
        for bad in ["../x.hactl", ".hactl", "a/b.hactl", "-x.hactl", "x", "x.hactl.new", "x\n.hactl"] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_newest_always_stays_and_pruning_twice_changes_nothing(
            taken in proptest::collection::vec(prop_oneof![0_i64..200 * DAY, any::<i64>()], 1..60),
            last in 1_usize..5, daily in 0_usize..5, weekly in 0_usize..5,
        ) {
            let keep = Keep { last, daily, weekly };
            let kept = keep.kept(&taken);
            prop_assert!((0..taken.len().min(last)).all(|place| kept.contains(&place)), "whatever the clocks say");
            prop_assert!(kept.len() <= last + daily + weekly);
            let again: Vec<i64> = kept.iter().map(|place| taken[*place]).collect();
            prop_assert_eq!(keep.kept(&again).len(), again.len());
        }
    }
}
