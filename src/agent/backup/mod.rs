//! Backups of the cluster's data on a host: snapshots, their drills, and copies elsewhere.
//!
//! In: the settings and the member of the host. Out: snapshots in its directory and their proofs.

pub(crate) mod bundles;
pub(crate) mod copies;
pub(crate) mod peers;
mod unfinished;

pub use copies::copies_beside;
pub use peers::{Incoming, PeerSnapshots};

use super::host::Host;
use super::machine::root::Root;
use crate::protocol::OpError;

/// Takes a snapshot on this host if it is its turn; returns the result.
///
/// # Errors
/// The failure, in words.
pub async fn save_bundle(root: Root) -> Result<Option<crate::model::snapshot::BundleFact>, OpError> {
    super::pki::tls::install_provider();
    bundles::take(&Host::new(root), bundles::Occasion::Timer).await
}

/// The interval of the snapshots of this host, seconds, and when the newest was taken, milliseconds since 1970, if there
/// is one. `None`: this host takes none.
///
/// # Errors
/// The settings or the directory cannot be read.
pub async fn newest_snapshot(root: &Root) -> Result<Option<(u64, Option<i64>)>, OpError> {
    root.blocking(bundles::newest).await
}

/// The last drills on this host.
///
/// # Errors
/// The task that reads their records panicked; what cannot be read is left out.
pub async fn last_drills(root: &Root) -> Result<Vec<crate::model::drill::LastDrill>, OpError> {
    root.blocking(|root| Ok(bundles::last_drills(root))).await
}

/// Restores the newest snapshot of this host, and records the result.
///
/// # Errors
/// Why the drill was not run, in words.
pub async fn drill(root: Root) -> Result<crate::model::drill::DrillOutcome, OpError> {
    bundles::hold(&Host::new(root)).await
}
