//! The words of recovery bundles: what one is, what a host keeps of them, and which of them are kept.
//!
//! In: made on an etcd host, by a timer or when asked. Out: read by `observe/`, `plan/` and `report/`; a [`Manifest`] travels inside its bundle.

use super::authentic::{Authenticity, Signed};
use super::blob::SnapshotBlob;
use super::bucket::Destination;
use super::drill::OwnDrill;
use super::names::{ClusterName, Digest, HostName};
use super::plausible::is_revision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// Where bundles lie on a host; root's alone.
pub const FOLDER: &str = "/var/lib/hactl/snapshots";
/// How a bundle's file name ends.
pub const ENDING: &str = "hactl";
/// The version of [`Manifest`].
pub const SCHEMA: u32 = 1;
/// What is too old for `status`, in intervals: the leader's turn is over after [`LEADER_WAITS`], so that whoever is followed has had theirs.
pub const STALE_AFTER: i64 = 3;
/// A member that leads takes a snapshot only when its own newest is this many intervals old: a follower's costs nobody anything.
pub const LEADER_WAITS: i64 = 4;

/// What a bundle says of itself. It is not encrypted, so that hosts can list and prune without anybody's key, and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this form.
    pub schema: u32,
    /// Of which cluster.
    pub cluster: ClusterName,
    /// Fingerprint of the cluster's authority: clusters may have the same name.
    pub authority: Digest,
    /// Who took it.
    pub host: HostName,
    /// When, by that host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub taken_ms: i64,
    /// How far etcd was.
    pub point: Point,
    /// Version of the etcd that it came from.
    pub etcd: String,
    /// Version of the hactl that took it.
    pub hactl: String,
    /// The snapshot, as it can be delivered to hosts once it is opened.
    pub snapshot: SnapshotBlob,
    /// The encrypted snapshot as it lies in the file.
    pub sealed: Piece,
    /// The encrypted state as it lies in the file.
    pub state: Piece,
    /// What restoring it into an etcd of its own showed, before it was sealed.
    pub proof: Proof,
}

/// A manifest and what came with it to vouch for it. Nothing of it is checked: whoever can write a file can claim anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// What the file says of itself.
    pub manifest: Manifest,
    /// The same as it was written, with a signature, where there is one.
    pub signed: Option<Signed>,
}

/// Bytes of a bundle's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// SHA-256.
    pub digest: Digest,
    /// How many.
    pub bytes: u64,
}

/// How far an etcd was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Raft term.
    pub term: u64,
    /// Index of the last entry in it.
    pub index: u64,
    /// Its revision.
    pub revision: i64,
    /// The highest revision that the host knows to have been the target of a recovery, or this one's.
    pub high_water: i64,
}

impl Point {
    /// Whether a cluster can have come so far. Where anybody may write, anybody may claim to have.
    pub fn is_plausible(&self) -> bool {
        [self.revision, self.high_water].into_iter().all(is_revision)
    }
}

/// What was seen when a snapshot was really restored.
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
    /// Whether both were seen of the same keys, however long it took.
    pub fn is_of(&self, other: &Self) -> bool {
        (self.keys, self.hash) == (other.keys, other.hash)
    }
}

/// How a host takes and keeps bundles: `/etc/hactl/snapshots.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Of which cluster.
    pub cluster: ClusterName,
    /// Fingerprint of its authority.
    pub authority: Digest,
    /// This host.
    pub host: HostName,
    /// Between two of them, seconds.
    pub every_s: u64,
    /// Which stay.
    pub keep: Keep,
    /// Who can open them: age public keys.
    pub recipients: Vec<String>,
    /// Whether this host's own identity opens their snapshots, too, so that it can hold drills by itself.
    #[serde(default)]
    pub drill: bool,
    /// Who gets a copy of each.
    pub to: Vec<Destination>,
    /// The member's client URL.
    pub url: String,
    /// Its data directory.
    pub data_dir: String,
    /// The authority of its certificate.
    pub ca: String,
    /// Our certificate.
    pub cert: String,
    /// Our key.
    pub key: String,
}

/// Which bundles stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The newest.
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
    /// Which of these stay, by their places in the list, which has the newest first, each with its time: the first so many, and the first of
    /// each of the first so many days and weeks (of UTC). What comes after what is the caller's to know; times only tell days apart.
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

/// What a host says of its bundles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BundlesFact {
    /// Those that can be read, the newest first.
    pub bundles: Vec<BundleFact>,
    /// Files that should be bundles and are not, with the reason.
    pub damaged: Vec<String>,
    /// What went wrong the last time, and when (milliseconds since 1970); none once one was taken.
    pub trouble: Option<(i64, String)>,
    /// The last time that one was opened with its owners' identity, brought here and restored; none: it never was.
    pub drill: Option<Drill>,
    /// The last drill that the host held by itself, with an identity of its own; none: it held none, or is not to.
    pub own_drill: Option<OwnDrill>,
    /// Since when it has that identity, milliseconds since 1970; none: it has none.
    pub own_identity_ms: Option<i64>,
}

/// A recovery that was rehearsed with everything that a real one needs, the owners' identity among it, and with nothing live touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drill {
    /// When, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub at_ms: i64,
    /// What it showed.
    pub proof: Proof,
}

/// One bundle on a host.
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
    /// Fingerprint of the cluster's authority.
    pub authority: Digest,
    /// How far etcd was.
    pub point: Point,
    /// The version of etcd that it was taken from.
    pub etcd: String,
    /// What restoring it showed.
    pub proof: Proof,
    /// The manifest that all of this is from, with its signature; none: it has no signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Box<Signed>>,
    /// What the cluster's CA says of it. It is never read from what a host sends.
    #[serde(skip_deserializing, skip_serializing_if = "Authenticity::is_unchecked")]
    pub authenticity: Authenticity,
}

impl BundleFact {
    /// What is told of a bundle.
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

/// A bundle's file name, checked: it names a file of a folder and nothing outside it.
pub fn is_name(name: &str) -> bool {
    let stem = name.strip_suffix(ENDING).and_then(|s| s.strip_suffix('.')).unwrap_or_default();
    (1..=200).contains(&stem.len())
        && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !stem.starts_with('-')
}

/// What the name alone says of a bundle: `CLUSTER-TIME-HOST.hactl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByName<'a> {
    /// Of which cluster.
    pub cluster: &'a str,
    /// When it was taken, milliseconds since 1970.
    pub taken_ms: i64,
    /// Who took it.
    pub host: &'a str,
}

/// The time in a bundle's name, which is that of its manifest.
const STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second][subsecond digits:3]Z");

impl Settings {
    /// What a file's name says, where it is that of a bundle which this host took of this cluster.
    pub fn own<'a>(&self, name: &'a str) -> Option<ByName<'a>> {
        by_name(name).filter(|by| by.cluster == self.cluster.as_str() && by.host == self.host.as_str())
    }
}

/// Reads a bundle's name; `None`: it was named by somebody else.
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
    fn what_was_dated_into_the_future_gives_way_as_soon_as_enough_was_taken_after_it() {
        let keep = Keep { last: 2, daily: 3, weekly: 1 };
        // A clock that was wrong for a while: what was taken then is older than what comes before it in the list.
        let taken = [20 * DAY, 19 * DAY, 18 * DAY, 9000 * DAY, 9001 * DAY, 17 * DAY];
        assert_eq!(keep.kept(&taken), [0, 1, 2].into());
    }

    #[test]
    fn a_name_says_of_which_cluster_when_and_by_whom() {
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
