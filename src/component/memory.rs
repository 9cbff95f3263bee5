//! A cache of the digests of files, so that unchanged files are not read again.
//!
//! In: a file's metadata. Out: the digest found when it last had the same metadata. The change time is part of it,
//! which no user can set back: changed content is noticed even if size and modification time are kept. A lost cache
//! costs time, never correctness.

use super::error::{BundleError, io_error};
use super::store::{Blob, blob_path, replace};
use crate::model::names::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Metadata that changes whenever a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Print {
    size: u64,
    inode: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Print {
    /// Of a file's metadata.
    pub fn of(meta: &Metadata) -> Self {
        let ns = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        Self {
            size: meta.len(),
            inode: meta.ino(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
        }
    }
    /// Bytes of the file.
    pub fn size(self) -> u64 {
        self.size
    }
}

/// The result of the last reading of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    print: Print,
    digest: Digest,
}

/// The cache.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Files to build from, by path: the digest of their content.
    sources: BTreeMap<PathBuf, Seen>,
    /// Blobs, by the digest of their content: the digest of the compressed file.
    blobs: BTreeMap<Digest, Seen>,
    /// The results of downloads: digest and size of a component's content, by source and its digest.
    fetched: BTreeMap<String, (Digest, u64)>,
}

fn path(store: &Path) -> PathBuf {
    store.join("seen.json")
}

impl Memory {
    /// Loads the cache; it is empty if the file is missing or invalid.
    pub fn load(store: &Path) -> Self {
        std::fs::read(path(store)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
    /// Saves it.
    pub fn save(&self, store: &Path) -> Result<(), BundleError> {
        let path = path(store);
        let text = serde_json::to_vec(self).map_err(|e| io_error("write", &path)(e.into()))?;
        replace(&path, &text)
    }
    /// The digest of a source that is unchanged.
    pub fn source(&self, path: &Path, print: Print) -> Option<Digest> {
        self.sources.get(path).filter(|seen| seen.print == print).map(|seen| seen.digest)
    }
    /// The digest of the compressed file of a blob that is unchanged.
    pub fn blob(&self, content: &Digest, print: Print) -> Option<Digest> {
        self.blobs.get(content).filter(|seen| seen.print == print).map(|seen| seen.digest)
    }
    /// The content that was downloaded from a source.
    pub fn fetched(&self, key: &str) -> Option<(Digest, u64)> {
        self.fetched.get(key).copied()
    }
    /// Stores the content that was downloaded from a source.
    pub fn note_fetched(&mut self, key: String, content: (Digest, u64)) {
        self.fetched.insert(key, content);
    }
    /// A blob in the store that is unchanged since it was last read.
    pub fn known(&self, store: &Path, digest: Digest, size: u64) -> Option<Blob> {
        let meta = std::fs::metadata(blob_path(store, &digest)).ok()?;
        let sent_digest = self.blob(&digest, Print::of(&meta))?;
        Some(Blob { digest, size, sent_digest, sent_size: meta.len() })
    }
    /// Stores a blob that was just written and read.
    pub fn note_packed(&mut self, store: &Path, blob: &Blob) -> Result<(), BundleError> {
        let path = blob_path(store, &blob.digest);
        let meta = std::fs::metadata(&path).map_err(io_error("read", &path))?;
        self.note_blob(blob.digest, Print::of(&meta), blob.sent_digest);
        Ok(())
    }
    /// Stores a source.
    pub fn note_source(&mut self, path: &Path, print: Print, digest: Digest) {
        self.sources.insert(path.to_owned(), Seen { print, digest });
    }
    /// Stores a blob.
    pub fn note_blob(&mut self, content: Digest, print: Print, digest: Digest) {
        self.blobs.insert(content, Seen { print, digest });
    }
}
