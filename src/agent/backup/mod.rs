//! What a host keeps of its cluster's data, and gives away: recovery bundles, their drills, copies elsewhere.
//!
//! In: the host's own settings and member. Out: bundles in its folder and their proofs.

pub(in crate::agent) mod bundles;
pub(in crate::agent) mod copies;
pub(in crate::agent) mod packed;

pub use copies::copies_beside;

use super::{Host, Root};
use crate::protocol::Fault;

/// Takes a recovery bundle on this host when it is its turn; says what came of it.
///
/// # Errors
/// What went wrong, in words.
pub async fn save_bundle(root: Root) -> Result<Option<crate::model::snapshot::BundleFact>, Fault> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    bundles::take(&Host::new(root), bundles::Occasion::Timer).await
}

/// Restores this host's newest recovery bundle, and notes what that showed.
///
/// # Errors
/// What kept it from being held, in words.
pub async fn drill(root: Root) -> Result<crate::model::drill::DrillOutcome, Fault> {
    bundles::hold(&Host::new(root)).await
}
