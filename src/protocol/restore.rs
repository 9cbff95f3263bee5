//! The words in which a host is asked for a snapshot of a member's files, and to put one in their place.

use crate::model::blob::SnapshotBlob;
use crate::model::names::PeerUrl;
use serde::{Deserialize, Serialize};

/// Bytes of a snapshot that are read at once; in base64 still far below a frame.
pub const SNAPSHOT_PIECE: u64 = 4 << 20;

/// What a snapshot is delivered for, and so where it lies: root's alone, 0600, never among the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotUse {
    /// To restore the member from it. A delivery that was cut off goes on with the next run.
    Recovery,
    /// To look whether it can be restored. What a check left is removed by the next run that takes the host's lock.
    Check,
}

/// What a snapshot is taken from.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotAsk {
    /// The data directory.
    pub data_dir: String,
    /// The directory in it that holds the member's data, where that was moved aside.
    pub aside: Option<String>,
    /// The recovery that it is for: names the working directory.
    pub recovery: String,
    /// Term and index that its log must reach: what was agreed to.
    pub reach: (u64, u64),
    /// Whether it is put where a delivery would put it, too: this host is restored from it as well.
    pub stays: bool,
}

/// How a snapshot is restored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreAsk {
    /// The data directory.
    pub data_dir: String,
    /// The snapshot, delivered before.
    pub snapshot: SnapshotBlob,
    /// The new cluster's token.
    pub token: String,
    /// The member's name.
    pub name: String,
    /// Name and peer URL of every member of the new cluster.
    pub members: Vec<(String, PeerUrl)>,
    /// The revision that the restored store begins at: above every one that was ever given out.
    pub base: i64,
}
