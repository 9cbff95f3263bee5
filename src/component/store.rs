//! The layout of a store: where its blobs and locks are, and how its files are written.

use super::error::{BundleError, io_error};
use crate::model::digester::Digester;
use crate::model::names::Digest;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A blob in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blob {
    pub digest: Digest,
    pub size: u64,
    pub sent_digest: Digest,
    pub sent_size: u64,
}

/// The default store: `$XDG_CACHE_HOME/hactl/bundles` or `~/.cache/hactl/bundles`.
pub fn default_store() -> PathBuf {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(|| PathBuf::from("/var/cache"))
        .join("hactl/bundles")
}

pub(super) fn blobs(store: &Path) -> PathBuf {
    store.join("blobs/sha256")
}

pub(super) fn locks(store: &Path) -> PathBuf {
    store.join("bundles")
}

pub(super) fn blob_path(store: &Path, digest: &Digest) -> PathBuf {
    blobs(store).join(format!("{}.zst", digest.hex()))
}

pub(super) fn lock_path(store: &Path, name: &str) -> PathBuf {
    locks(store).join(format!("{name}.lock.json"))
}

/// Writes a file of JSON for people to read.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), BundleError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| io_error("write", path)(e.into()))?;
    text.push(b'\n');
    replace(path, &text)
}

/// Writes a file atomically.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), BundleError> {
    let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    write().map_err(io_error("write", path))
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
