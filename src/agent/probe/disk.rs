//! The probe of free space, on the root file system and on etcd's.

use super::{Found, Seen};
use crate::agent::machine::root::Root;
use crate::model::fault::FaultKind;
use crate::model::healing::{GuardedHost, Policy};
use rustix::fs::{StatVfs, statvfs};

/// Less than this is almost full, bytes; on a small file system less than a twentieth is.
const LEAST: u64 = 512 << 20;
/// As a fraction.
const TWENTIETH: u64 = 20;

/// Whether a file system is almost full.
pub(super) async fn look(root: &Root, policy: &Policy, host: &GuardedHost) -> Seen {
    let mut folders = vec!["/".to_owned()];
    folders.extend(host.may_vote().then(|| policy.etcd_data_dir.clone()));
    // A file system that does not answer must not stop the guard.
    let looked = root.blocking(move |root| {
        let full = |folder: &String| {
            let found = statvfs(root.below(folder)).ok()?;
            is_almost_full(&found).map(|free| format!("{folder} has {} MiB left", free >> 20))
        };
        Ok(folders.iter().filter_map(full).collect::<Vec<_>>())
    });
    let mut full = looked.await.ok()?;
    // Both may be the same file system.
    full.truncate(1);
    Some(full.into_iter().map(|why| Found::new(FaultKind::DiskFull, why)).collect())
}

/// The free bytes, if they are too few.
fn is_almost_full(found: &StatVfs) -> Option<u64> {
    let (free, all) = (found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize));
    let least = LEAST.min(all / 2);
    (all > 0 && (free < all / TWENTIETH || free < least)).then_some(free)
}
