//! Reads every byte of a bundle.
//!
//! In: a store and a lock. Out: each file that has changed since the bundle was built, by name. The cache is not used
//! here.

use super::lock::{Component, Lock};
use super::pack::Blob;
use super::{BundleError, bundle};
use crate::model::digester::Digester;
use crate::model::names::Digest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(blobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(component) = blobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let path = bundle::blob_path(store, &component.digest);
                    if let Err(why) = whole(component, &path) {
                        let component = format!("{} {}", component.name, component.version);
                        let mut problems = problems.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        problems.push(Problem { component, path, why });
                    }
                }
            });
        }
    });
    let mut problems = problems.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
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

/// The digest and size of a compressed file's content; stops once the content has more than `most` bytes.
pub(super) fn measure(path: &Path, most: u64) -> io::Result<Blob> {
    let mut compressed = io::BufReader::with_capacity(1 << 17, Digester::new(File::open(path)?));
    // A manipulated frame may decompress to any size: stop soon after the size is wrong.
    let (digest, size) = Digest::of_all(zstd::Decoder::with_buffer(&mut compressed)?, most)?;
    io::copy(&mut compressed, &mut io::sink())?;
    let (_, sent_digest, sent_size) = compressed.into_inner().finish();
    Ok(Blob { digest, size, sent_digest, sent_size })
}
