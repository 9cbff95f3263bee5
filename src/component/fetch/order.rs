//! What to fetch, and how much of it is here already.
//!
//! In: an order; the store; the locked digests. Out: for each source where it would be asked for and how much is missing,
//! without asking anybody.

use super::super::memory::Memory;
use super::super::pack::Blob;
use super::super::publishers::{self, Arch, NoRelease, Origin, Wanted};
use super::super::{BundleError, io_error};
use super::key_of;
use super::mirror::Mirrors;
use super::net::Patience;
use super::pins::Pins;
use crate::model::names::Digest;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What to fetch and from where.
#[derive(Debug, Clone)]
pub struct Order {
    /// Kubernetes version without the `v`.
    pub kubernetes: String,
    /// Versions that differ from the table, by the name of the release.
    pub with: BTreeMap<String, String>,
    /// For which machines.
    pub architectures: Vec<Arch>,
    /// Places to ask instead of the publishers.
    pub mirrors: Mirrors,
    /// The file with the locked digests, if not the store's own.
    pub lock: Option<PathBuf>,
    /// How long to wait.
    pub timeout: Patience,
}

impl Order {
    /// The order of a version from the publishers themselves, for amd64.
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
    /// Every component of it.
    pub(super) fn wanted(&self) -> Result<Vec<Wanted>, super::FetchError> {
        let result: Result<_, NoRelease> = publishers::wanted(&self.kubernetes, &self.with, &self.architectures);
        Ok(result?)
    }
    /// Where digests are locked.
    pub fn lock_path(&self, store: &Path) -> PathBuf {
        self.lock.clone().unwrap_or_else(|| store.join("sources.lock.json"))
    }
}

/// A source, before anybody is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prospect {
    /// URL or image reference of the publisher.
    pub source: String,
    /// What would be asked: the same, or a mirror's.
    pub asked: String,
    /// What comes of it, such as `etcd 3.6.16`.
    pub components: Vec<String>,
    /// Bytes, where a digest was locked.
    pub size: Option<u64>,
    /// The digest that was locked.
    pub locked: Option<Digest>,
    /// How much is here.
    pub standing: Standing,
}

/// How much of a source is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All that comes of it is in the store.
    Packed,
    /// It is fetched and not packed yet.
    Fetched,
    /// So many bytes of it are fetched.
    Begun(u64),
    /// Nothing.
    Missing,
}

/// What an order would fetch.
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

/// An image's blobs are not known before its registry is asked.
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

/// The folder of what is being fetched.
pub(super) fn downloads(store: &Path) -> PathBuf {
    store.join("downloads")
}

/// Keeps a second download out of the folder: both would write the same parts.
pub(super) fn enter(dir: &Path) -> Result<File, BundleError> {
    let guard = File::open(dir).map_err(io_error("open", dir))?;
    match rustix::fs::flock(&guard, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(guard),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(BundleError::Busy { path: dir.to_owned() }),
        Err(error) => Err(io_error("lock", dir)(error.into())),
    }
}

/// How an image of one architecture is called where digests are locked.
pub(super) fn key(image: &str, arch: Arch) -> String {
    format!("{image} linux/{arch}")
}

/// The architecture of such a name.
pub(super) fn arch_of(key: &str) -> Arch {
    if key.ends_with("/arm64") { Arch::Arm64 } else { Arch::Amd64 }
}

/// The digest that decides what a component is, if it is locked: of its file, or of its manifest.
pub(super) fn locked(wanted: &Wanted, pins: &Pins) -> Option<Digest> {
    let pin = pins.get(&key_of(wanted))?;
    match wanted.origin {
        Origin::Image(_) => pin.manifest,
        _ => Some(pin.sha256),
    }
}

/// How the store remembers what became of a source.
pub(super) fn outcome_key(wanted: &Wanted, digest: Digest) -> String {
    let what = match &wanted.origin {
        Origin::File(_) => "file".to_owned(),
        Origin::Member(_, member) => member.clone(),
        Origin::Image(image) => image.to_string(),
    };
    format!("{} {what}", digest.hex())
}

/// The blob of a component that was fetched before and is in the store as it was.
pub(super) fn known(wanted: &Wanted, pins: &Pins, memory: &Memory, store: &Path) -> Option<Blob> {
    let (digest, size) = memory.fetched(&outcome_key(wanted, locked(wanted, pins)?))?;
    memory.known(store, digest, size)
}
