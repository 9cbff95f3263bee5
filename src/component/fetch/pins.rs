//! Digests locked at first use: later content of the same name must be the same.
//!
//! In: `sources.lock.json` of the store, or a file that the user keeps with the inventory. Out: an error if a
//! publisher's content differs. Only downloaded and verified content is locked.

use super::super::error::{BundleError, io_error};
use super::super::store::write_json;
use super::error::FetchError;
use crate::model::names::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const SCHEMA: u32 = 1;
/// Some hundred sources of some hundred bytes.
const LARGEST: u64 = 8 << 20;

/// The content of a source at its first use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// SHA-256 of a file; for an image, the digest that its tag names.
    pub sha256: Digest,
    /// Bytes to download.
    pub size: u64,
    /// An image's manifest for one architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Digest>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    schema: u32,
    sources: BTreeMap<String, Pin>,
}

/// All locked digests.
#[derive(Debug)]
pub struct Pins {
    path: PathBuf,
    sources: BTreeMap<String, Pin>,
}

impl Pins {
    /// Reads the file, which may not exist yet.
    pub fn read(path: &Path) -> Result<Self, BundleError> {
        let malformed = |why: String| BundleError::Malformed { path: path.to_owned(), why };
        let meta = match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path: path.to_owned(), sources: BTreeMap::new() });
            }
            other => other.map_err(io_error("read", path))?,
        };
        if meta.len() > LARGEST {
            return Err(malformed(format!("it has {} bytes", meta.len())));
        }
        let text = std::fs::read(path).map_err(io_error("read", path))?;
        let content: Content = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        if content.schema != SCHEMA {
            return Err(malformed(format!("schema {} is not schema {SCHEMA}", content.schema)));
        }
        Ok(Self { path: path.to_owned(), sources: content.sources })
    }

    /// Their file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The locked content of a source.
    pub fn get(&self, source: &str) -> Option<&Pin> {
        self.sources.get(source)
    }

    /// Refuses a digest that differs from the locked one. `by` is its source.
    pub fn agrees(&self, source: &str, published: Digest, by: &str) -> Result<(), FetchError> {
        self.same(source, self.get(source).map(|pin| pin.sha256), published, by)
    }

    /// The same for the manifest of an image.
    pub fn manifest_agrees(&self, source: &str, published: Digest, by: &str) -> Result<(), FetchError> {
        self.same(source, self.get(source).and_then(|pin| pin.manifest), published, by)
    }

    fn same(&self, source: &str, locked: Option<Digest>, published: Digest, by: &str) -> Result<(), FetchError> {
        match locked {
            Some(locked) if locked != published => Err(FetchError::Moved {
                what: source.to_owned(),
                locked: locked.hex(),
                published: published.hex(),
                by: by.to_owned(),
                lock: self.path.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Locks a source, on disk too.
    pub fn lock(&mut self, source: &str, pin: Pin) -> Result<(), BundleError> {
        if self.sources.get(source) == Some(&pin) {
            return Ok(());
        }
        self.sources.insert(source.to_owned(), pin);
        let content = Content { schema: SCHEMA, sources: self.sources.clone() };
        write_json(&self.path, &content)
    }
}
