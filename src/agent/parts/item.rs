//! What is delivered, and what becomes of it: decided here, by the component table and by the operation, and by nothing that was sent.
//!
//! In: a [`Part`] as a bundle has it, or a [`SnapshotBlob`] and what it is for. Out: an [`Item`] with its place, or a refusal.

use crate::agent::fault::{Outcome, bad};
use crate::agent::machine::root::Root;
use crate::model::blob::SnapshotBlob;
use crate::model::components::{Kind, row};
use crate::model::names::Digest;
use crate::model::target::{Part, Place};
use crate::protocol::SnapshotUse;
use std::path::PathBuf;

/// Snapshots that members are about to be restored from.
const RECOVERIES: &str = "/var/lib/hactl/incoming";
/// Snapshots that are only looked at.
const CHECKS: &str = "/var/lib/hactl/checks";

/// What is delivered.
#[derive(Debug, Clone)]
pub(in crate::agent) struct Item {
    /// What it is, for people.
    pub(super) words: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    pub(super) sent_digest: Digest,
    pub(super) sent_size: u64,
    pub(super) becomes: Becomes,
    /// Where its content lies on the host, absolute.
    pub(super) path: String,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Becomes {
    /// An executable, found by others at its link.
    Program { link: &'static str },
    /// Kept as it was sent, for containerd.
    Image,
    /// Kept for root alone.
    Snapshot,
}

impl Item {
    /// A component. One that the table does not have is refused, so that no name leads anywhere but to its row's place.
    pub(in crate::agent) fn part(part: &Part) -> Outcome<Self> {
        let kind = if part.place == Place::Program { Kind::Program } else { Kind::Image };
        let named = || part.name.chars().take(100).collect::<String>();
        let row = row(&part.name, kind).ok_or_else(|| bad(format!("{:?} is no component of a host's", named())))?;
        let becomes = match (row.kind, row.link) {
            (Kind::Image, _) => Becomes::Image,
            (Kind::Program, Some(link)) => Becomes::Program { link },
            (Kind::Program, None) => return Err(bad(format!("{} has no place on a host", row.name))),
        };
        let Part { digest, size, sent_digest, sent_size, .. } = *part;
        let words = format!("{} {}", row.name, part.version.chars().take(100).collect::<String>());
        Ok(Self { words, digest, size, sent_digest, sent_size, becomes, path: part.path() })
    }

    /// A snapshot.
    pub(in crate::agent) fn snapshot(blob: SnapshotBlob, to: SnapshotUse) -> Self {
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

    /// Where its content lies.
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

/// The folder of all snapshots that are for the same.
pub(super) fn folder_of(root: &Root, to: SnapshotUse) -> PathBuf {
    root.own(folder(to))
}
