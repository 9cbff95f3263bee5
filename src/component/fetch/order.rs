//! Which sources an order needs, and how much of them is on this machine.
//!
//! In: an order, the store, the locked digests. Out: for each source its URL and how much is missing, without any
//! network access.

use super::super::error::{BundleError, io_error};
use super::super::memory::Memory;
use super::super::publishers::{self, Arch, NoRelease, Origin, Wanted};
use super::super::store::Blob;
use super::error::FetchError;
use super::mirror::Mirrors;
use super::net::Patience;
use super::pins::Pins;
use crate::model::names::Digest;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Versions to download and their sources.
#[derive(Debug, Clone)]
pub struct Order {
    /// Kubernetes version without the `v`.
    pub kubernetes: String,
    /// Versions that differ from the table, by the name of the release.
    pub with: BTreeMap<String, String>,
    /// Architectures.
    pub architectures: Vec<Arch>,
    /// Mirrors.
    pub mirrors: Mirrors,
    /// The file with the locked digests; the store's own by default.
    pub lock: Option<PathBuf>,
    /// Timeouts and retries.
    pub timeout: Patience,
}

impl Order {
    /// The order of a version from the publishers, for amd64.
    pub fn of(kubernetes: &str) -> Self {
        Self {
            kubernetes: kubernetes.to_owned(),
            with: BTreeMap::new(),
            architectures: vec![Arch::Amd64],
            mirrors: Mirrors::default(),
            lock: None,
            timeout: Patience::default(),
        }
    }
    /// Its components.
    pub(super) fn wanted(&self) -> Result<Vec<Wanted>, FetchError> {
        let result: Result<_, NoRelease> = publishers::wanted(&self.kubernetes, &self.with, &self.architectures);
        Ok(result?)
    }
    /// The file with the locked digests.
    pub fn lock_path(&self, store: &Path) -> PathBuf {
        self.lock.clone().unwrap_or_else(|| store.join("sources.lock.json"))
    }
}

/// A source before any network access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prospect {
    /// URL or image reference of the publisher.
    pub source: String,
    /// The URL or image to request: the publisher's or a mirror's.
    pub asked: String,
    /// Its component, such as `etcd 3.6.16`.
    pub components: Vec<String>,
    /// Size, if a digest is locked.
    pub size: Option<u64>,
    /// The locked digest.
    pub locked: Option<Digest>,
    /// How much of it is here.
    pub standing: Standing,
}

/// How much of a source is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Everything from it is in the store.
    Packed,
    /// It is downloaded but not packed yet.
    Fetched,
    /// This many bytes are downloaded.
    Begun(u64),
    /// Nothing.
    Missing,
}

/// The sources of an order.
pub fn prospect(store: &Path, order: &Order) -> Result<Vec<Prospect>, BundleError> {
    let pins = Pins::read(&order.lock_path(store))?;
    let memory = Memory::load(store);
    let mut all: Vec<Prospect> = Vec::new();
    for wanted in order.wanted()? {
        let source = key_of(&wanted);
        let packed = known(&wanted, &pins, &memory, store).is_some();
        if let Some(there) = all.iter_mut().find(|p| p.source == source) {
            there.components.push(wanted.label());
            if !packed && there.standing == Standing::Packed {
                there.standing = begun(store, &wanted, &pins);
            }
            continue;
        }
        let pin = pins.get(&source);
        all.push(Prospect {
            asked: asked(&wanted, &order.mirrors),
            components: vec![wanted.label()],
            size: pin.map(|p| p.size),
            locked: pin.map(|p| p.sha256),
            standing: if packed { Standing::Packed } else { begun(store, &wanted, &pins) },
            source,
        });
    }
    Ok(all)
}

fn asked(wanted: &Wanted, mirrors: &Mirrors) -> String {
    match &wanted.origin {
        Origin::File(file) | Origin::Member(file, _) => mirrors.url(&file.url),
        Origin::Image(image) => {
            let registry = mirrors.registry(image.registry);
            format!("{}/{}{}:{}", registry.host, registry.prefix, image.repository, image.tag)
        }
    }
}

/// An image's blobs are unknown before its registry is queried.
fn begun(store: &Path, wanted: &Wanted, pins: &Pins) -> Standing {
    let Some(digest) = locked(wanted, pins).filter(|_| !matches!(wanted.origin, Origin::Image(_))) else {
        return Standing::Missing;
    };
    let path = downloads(store).join(digest.hex());
    let size = |path: &Path| std::fs::metadata(path).map(|meta| meta.len()).ok();
    if size(&path).is_some() {
        return Standing::Fetched;
    }
    size(&path.with_extension("part")).map_or(Standing::Missing, Standing::Begun)
}

/// The folder of downloads.
pub(super) fn downloads(store: &Path) -> PathBuf {
    store.join("downloads")
}

/// Locks the folder against a second download, which would write the same files.
pub(super) fn enter(dir: &Path) -> Result<File, BundleError> {
    let guard = File::open(dir).map_err(io_error("open", dir))?;
    match rustix::fs::flock(&guard, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(guard),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BundleError::Busy(dir.to_owned())),
        Err(error) => Err(io_error("lock", dir)(error.into())),
    }
}

/// The key of an image of one architecture among the locked digests.
pub(super) fn key(image: &str, arch: Arch) -> String {
    format!("{image} linux/{arch}")
}

/// The key of a component's source among the locked digests.
pub(super) fn key_of(wanted: &Wanted) -> String {
    match &wanted.origin {
        Origin::Image(image) => key(&image.to_string(), wanted.arch),
        Origin::File(file) | Origin::Member(file, _) => file.url.clone(),
    }
}

/// The architecture of such a key.
pub(super) fn arch_of(key: &str) -> Arch {
    if key.ends_with("/arm64") { Arch::Arm64 } else { Arch::Amd64 }
}

/// The digest that determines a component, if it is locked: of its file, or of its manifest.
pub(super) fn locked(wanted: &Wanted, pins: &Pins) -> Option<Digest> {
    let pin = pins.get(&key_of(wanted))?;
    match wanted.origin {
        Origin::Image(_) => pin.manifest,
        _ => Some(pin.sha256),
    }
}

/// The key of a source's result in the store's cache.
pub(super) fn outcome_key(wanted: &Wanted, digest: Digest) -> String {
    let what = match &wanted.origin {
        Origin::File(_) => "file".to_owned(),
        Origin::Member(_, member) => member.clone(),
        Origin::Image(image) => image.to_string(),
    };
    format!("{} {what}", digest.hex())
}

/// The blob of a component that was downloaded before and is unchanged in the store.
pub(super) fn known(wanted: &Wanted, pins: &Pins, memory: &Memory, store: &Path) -> Option<Blob> {
    let (digest, size) = memory.fetched(&outcome_key(wanted, locked(wanted, pins)?))?;
    memory.known(store, digest, size)
}
