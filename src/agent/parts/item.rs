//! The deliverable items and their treatment: determined here, by the component table and the operation, never by
//! received data.
//!
//! In: a [`Part`] of a bundle, or a [`SnapshotBlob`] and its use. Out: an [`Item`] with its path, or a refusal.

use crate::agent::machine::root::Root;
use crate::agent::op_error::{Outcome, bad};
use crate::model::blob::SnapshotBlob;
use crate::model::components::{Kind, row};
use crate::model::names::Digest;
use crate::model::target::{Part, Place};
use crate::protocol::SnapshotUse;
use std::path::PathBuf;

/// Snapshots from which members will be restored.
const RECOVERIES: &str = "/var/lib/hactl/incoming";
/// Snapshots that are only checked.
const CHECKS: &str = "/var/lib/hactl/checks";

/// A deliverable item.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its name for messages.
    pub(super) words: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) sent_digest: Digest,
    pub(super) sent_size: u64,
    pub(super) becomes: Becomes,
    /// The path of its content on the host, absolute.
    pub(super) path: String,
}

/// The treatment of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Becomes {
    /// An executable, run through its link.
    Program { link: &'static str },
    /// Kept in its compressed form, for containerd or the package manager.
    Image,
    /// Kept for root alone.
    Snapshot,
}

impl Becomes {
    /// The mode of its file.
    pub(super) fn mode(self) -> u32 {
        match self {
            Self::Program { .. } => 0o755,
            Self::Image => 0o644,
            Self::Snapshot => 0o600,
        }
    }
    /// The mode of its directories: the users of units run programs.
    pub(super) fn folder_mode(self) -> u32 {
        if self == Self::Snapshot { 0o700 } else { 0o755 }
    }
}

impl Item {
    /// A component. One that is not in the table is refused, so that no name leads to any path but that of its row.
    pub(crate) fn part(part: &Part) -> Outcome<Self> {
        let kind = match part.place {
            Place::Program => Kind::Program,
            Place::Image { .. } => Kind::Image,
            Place::Packages => Kind::Packages,
        };
        let named = || part.name.chars().take(100).collect::<String>();
        let row = row(&part.name, kind).ok_or_else(|| bad(format!("{:?} is not a component of a host", named())))?;
        let becomes = match (row.kind, row.link) {
            (Kind::Image | Kind::Packages, _) => Becomes::Image,
            (Kind::Program, Some(link)) => Becomes::Program { link },
            (Kind::Program, None) => return Err(bad(format!("{} is not installed on hosts", row.name))),
        };
        let Part { digest, size, sent_digest, sent_size, .. } = *part;
        let words = format!("{} {}", row.name, part.version.chars().take(100).collect::<String>());
        Ok(Self { words, digest, size, sent_digest, sent_size, becomes, path: part.path() })
    }

    /// A snapshot.
    pub(crate) fn snapshot(blob: SnapshotBlob, to: SnapshotUse) -> Self {
        let SnapshotBlob { digest, size, sent_digest, sent_size } = blob;
        let path = format!("{}/{}/snapshot", folder(to), digest.hex());
        Self {
            words: "the snapshot".to_owned(),
            digest,
            size,
            sent_digest,
            sent_size,
            becomes: Becomes::Snapshot,
            path,
        }
    }

    /// The path of its content.
    pub(super) fn place(&self, root: &Root) -> PathBuf {
        root.below(&self.path)
    }
}

fn folder(to: SnapshotUse) -> &'static str {
    match to {
        SnapshotUse::Recovery => RECOVERIES,
        SnapshotUse::Check => CHECKS,
    }
}

/// The directory of all snapshots of the same use.
pub(super) fn folder_of(root: &Root, to: SnapshotUse) -> PathBuf {
    root.own(folder(to))
}
