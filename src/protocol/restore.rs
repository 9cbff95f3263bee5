//! Requests to take a snapshot from the files of a member, and to restore one.

use crate::model::blob::SnapshotBlob;
use crate::model::names::PeerUrl;
use serde::{Deserialize, Serialize};

/// Bytes of a snapshot per read; in base64 still far below a frame.
pub const SNAPSHOT_PIECE: u64 = 4 << 20;

/// The use of a delivered snapshot. It determines its path: owned by root, 0600, never among the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotUse {
    /// To restore the member from it. The next run resumes an interrupted delivery.
    Recovery,
    /// To check whether it can be restored. The next run that takes the lock of the host removes the remains of a
    /// check.
    Check,
}

/// The source of a snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotAsk {
    /// The data directory.
    pub data_dir: String,
    /// The directory in it that holds the data of the member, if that was moved aside.
    pub aside: Option<String>,
    /// The recovery that uses it: names the working directory.
    pub recovery: String,
    /// Term and index that its log must reach: the agreed position.
    pub reach: (u64, u64),
    /// Whether it is also stored where a delivery would store it: this host is restored from it as well.
    pub stays: bool,
}

/// What a member is restored from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum RestoreFrom {
    /// A snapshot, delivered before.
    Snapshot(SnapshotBlob),
    /// The data of the stopped member itself, which is only read.
    Own {
        /// Term and index that its log must reach: the agreed position.
        reach: (u64, u64),
    },
}

/// How the data of a member is replaced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreAsk {
    /// The data directory.
    pub data_dir: String,
    /// What it is restored from.
    pub from: RestoreFrom,
    /// The new cluster's token.
    pub token: String,
    /// The member's name.
    pub name: String,
    /// Name and peer URL of every member of the new cluster.
    pub members: Vec<(String, PeerUrl)>,
    /// The first revision of the restored store: above every revision that clients have seen.
    pub base: i64,
}
