//! The lock file of a bundle: its exact content.
//!
//! In: `bundles/<name>.lock.json` of a store. Out: a checked [`Lock`].

use super::error::{BundleError, io_error};
use super::store::{Blob, write_json};
use crate::model::components::{Kind, Row, row};
use crate::model::names::Digest;
use crate::model::target::{Part, Place};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const SCHEMA: u32 = 1;
/// A lock file has a few kilobytes.
pub(super) const LARGEST: u64 = 1 << 20;

/// The content of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Version of this format.
    pub schema: u32,
    /// Kubernetes version without the `v`.
    pub kubernetes: String,
    /// The components, in the order of delivery.
    pub components: Vec<Component>,
}

/// One component, by its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Its name, such as `kubelet`.
    pub name: String,
    /// Its version without the `v`; of packages, the distribution, such as `debian-12`.
    pub version: String,
    /// Program, image or packages.
    pub kind: Kind,
    /// `amd64`, `arm64`.
    pub architecture: String,
    /// An image's full reference.
    pub reference: Option<String>,
    /// The path of a program's link; it must be the one in the component table.
    pub link: Option<String>,
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Size of the content, bytes.
    pub size: u64,
    /// SHA-256 of the compressed file.
    pub sent_digest: Digest,
    /// Size of the compressed file, bytes.
    pub sent_size: u64,
}

impl Component {
    /// A component of a bundle, whose content is a blob.
    pub(super) fn new(row: &Row, version: &str, architecture: &str, reference: Option<String>, blob: Blob) -> Self {
        Self {
            name: row.name.to_owned(),
            version: version.to_owned(),
            kind: row.kind,
            architecture: architecture.to_owned(),
            reference,
            link: row.link.map(str::to_owned),
            digest: blob.digest,
            size: blob.size,
            sent_digest: blob.sent_digest,
            sent_size: blob.sent_size,
        }
    }
    /// The component as it is sent to a host.
    pub fn part(&self) -> Part {
        Part {
            name: self.name.clone(),
            version: self.version.clone(),
            digest: self.digest,
            size: self.size,
            sent_digest: self.sent_digest,
            sent_size: self.sent_size,
            place: match &self.reference {
                Some(reference) if self.kind == Kind::Image => Place::Image { reference: reference.clone() },
                _ if self.kind == Kind::Packages => Place::Packages,
                _ => Place::Program,
            },
        }
    }
    /// Its row in the component table.
    pub(super) fn row(&self) -> Option<&'static Row> {
        row(&self.name, self.kind)
    }
}

impl Lock {
    /// A lock of this format.
    pub(super) fn new(kubernetes: String, components: Vec<Component>) -> Self {
        Self { schema: SCHEMA, kubernetes, components }
    }

    /// The name of the bundle, such as `k8s-1.36.3`.
    pub fn name(&self) -> String {
        name_of(&self.kubernetes)
    }

    /// The identity of a bundle, independent of its compression: the SHA-256 of everything that reaches a host. Two
    /// bundles with the same identity result in the same hosts.
    pub fn identity(&self) -> Digest {
        let mut text = format!("hactl bundle {SCHEMA} {}\n", self.kubernetes);
        for c in &self.components {
            let kind = match c.kind {
                Kind::Program => "program",
                Kind::Image => "image",
                Kind::Packages => "packages",
            };
            let none = || "-".to_owned();
            let (reference, link) = (c.reference.clone().unwrap_or_else(none), c.link.clone().unwrap_or_else(none));
            let words = [&c.name, &c.version, kind, &c.architecture, &reference, &link, &c.digest.hex()];
            // With lengths, so that no two lists of words have the same text.
            text.extend(words.iter().map(|word| format!("{}:{word} ", word.len())));
            text.push_str(&format!("{}\n", c.size));
        }
        Digest::of(text.as_bytes())
    }

    /// Component names with their versions.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.components.iter().map(|c| (c.name.clone(), c.version.clone())).collect()
    }

    /// Size of the content and of the compressed files; shared content counts once.
    pub fn sizes(&self) -> (u64, u64) {
        let distinct: BTreeMap<_, _> = self.components.iter().map(|c| (c.digest, (c.size, c.sent_size))).collect();
        distinct.values().fold((0, 0), |(size, sent), (s, z)| (size + s, sent + z))
    }

    pub(super) fn read(path: &Path) -> Result<Self, BundleError> {
        let malformed = |why: String| BundleError::Malformed { path: path.to_owned(), why };
        let meta = std::fs::metadata(path).map_err(io_error("read", path))?;
        if meta.len() > LARGEST {
            return Err(malformed(format!("it has {} bytes", meta.len())));
        }
        let text = std::fs::read(path).map_err(io_error("read", path))?;
        Self::parse(&text).map_err(malformed)
    }

    /// Parses and checks the text of a lock.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let lock: Self = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if lock.schema != SCHEMA {
            return Err(format!("schema {} is not schema {SCHEMA}", lock.schema));
        }
        for component in &lock.components {
            let Some(row) = component.row() else {
                return Err(format!("{} is not a component that hosts use", component.name));
            };
            if component.link.as_deref() != row.link {
                let words = |link: Option<&str>| link.map_or_else(|| "nowhere".to_owned(), |link| format!("{link:?}"));
                let (asked, right) = (words(component.link.as_deref()), words(row.link));
                return Err(format!("{} is linked at {asked}, but belongs at {right}", component.name));
            }
            if component.kind == Kind::Image && component.reference.is_none() {
                return Err(format!("image {} has no reference", component.name));
            }
        }
        Ok(lock)
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), BundleError> {
        write_json(path, self)
    }
}

/// The name of the bundle of a Kubernetes version.
pub(super) fn name_of(kubernetes: &str) -> String {
    format!("k8s-{kubernetes}")
}
