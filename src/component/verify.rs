//! Reads every byte of a bundle.
//!
//! In: a store and a lock. Out: each file that has changed since the bundle was built, by name. The cache is not used
//! here.

use super::error::BundleError;
use super::lock::{Component, Lock};
use super::pack::on_all_cores;
use super::store::{blob_path, measure};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A file that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its expected content.
    pub component: String,
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

/// The result of a verification.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verified {
    /// How many files.
    pub files: usize,
    /// Bytes of their content.
    pub bytes: u64,
    /// The damaged ones.
    pub problems: Vec<Problem>,
}

/// Reads and decompresses every blob of the given bundles, on all cores.
pub fn verify(store: &Path, locks: &[Lock]) -> Result<Verified, BundleError> {
    let mut blobs: Vec<&Component> = locks
        .iter()
        .flat_map(|l| &l.components)
        .map(|c| (c.digest, c))
        .collect::<BTreeMap<_, _>>()
        .into_values()
        .collect();
    blobs.sort_by_key(|c| std::cmp::Reverse(c.size));
    let problems = on_all_cores(&blobs, |component| {
        let path = blob_path(store, &component.digest);
        let why = whole(component, &path).err();
        Ok(why.map(|why| Problem { component: format!("{} {}", component.name, component.version), path, why }))
    })?;
    let mut problems: Vec<Problem> = problems.into_iter().flatten().collect();
    problems.sort_by(|a, b| a.component.cmp(&b.component));
    Ok(Verified { files: blobs.len(), bytes: blobs.iter().map(|c| c.size).sum(), problems })
}

fn whole(component: &Component, path: &Path) -> Result<(), String> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => "it is missing".to_owned(),
        _ => e.to_string(),
    })?;
    let length = meta.len();
    if length != component.sent_size {
        return Err(format!("it has {length} bytes instead of {}", component.sent_size));
    }
    let found = measure(path, component.size).map_err(|e| format!("it cannot be unpacked: {e}"))?;
    if (found.size, found.digest) != (component.size, component.digest) {
        return Err("its content has changed since the build".to_owned());
    }
    if found.sent_digest != component.sent_digest {
        return Err("its digest has changed since the build".to_owned());
    }
    Ok(())
}
