//! A bundle from the publishers: release archives with their published checksums, images from their registries.
//!
//! In: an [`Order`]: versions, architectures, mirrors. Out: a [`Downloaded`], which is packed into the same kind of
//! bundle as a directory of built components. The digest of every downloaded source is locked; content that is in the
//! store is not downloaded; an interrupted download is resumed.

mod archive;
mod checksum;
mod error;
pub(super) mod member;
mod mirror;
mod net;
mod order;
mod part;
mod pins;
mod registry;
mod transfer;

pub(super) use archive::Archive;
pub use error::FetchError;
pub use mirror::{BadMirror, Mirror, Mirrors};
pub use net::Patience;
pub use order::{Order, Prospect, Standing, prospect};
pub use transfer::Moment;

use super::build::Built;
use super::error::{BundleError, io_error};
use super::lock::{Component, Lock};
use super::memory::Memory;
use super::pack::{self, Content, Item, Progress};
use super::publishers::{Image, Origin, Published, Wanted};
use super::store::Blob;
use crate::model::names::Digest;
use futures::{StreamExt as _, TryStreamExt as _};
use net::{Net, Place};
use order::{downloads, key_of, outcome_key};
use pins::{Pin, Pins};
use registry::Resolved;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use transfer::Job;

/// Concurrent transfers.
const AT_ONCE: usize = 4;
/// The largest file of a publisher. The archive of containerd has 35 MB, kubelet 60 MB.
const LARGEST_FILE: u64 = 1 << 30;

/// A source of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// URL or image reference at the publisher, also if a mirror was used.
    pub source: String,
    /// Its locked digest.
    pub sha256: Digest,
    /// Its size.
    pub bytes: u64,
    /// Whether anything was transferred for it in this run.
    pub fetched: bool,
}

/// All sources of an order, on this machine.
pub struct Downloaded {
    store: PathBuf,
    kubernetes: String,
    dir: PathBuf,
    parts: Vec<(Wanted, Ready)>,
    used: Vec<PathBuf>,
    /// The sources.
    pub sources: Vec<Source>,
    /// The file with the locked digests.
    pub lock: PathBuf,
    _guard: File,
}

/// A component whose downloads are complete.
enum Ready {
    Packed(Blob),
    Fresh(String, Item),
}

/// A source as its publisher describes it.
enum Described {
    File(Published, Digest),
    Image(Image, Box<Resolved>),
}

/// Downloads the sources that the store does not have.
pub async fn download(
    store: &Path,
    order: &Order,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<Downloaded, BundleError> {
    let wanted = order.wanted()?;
    let dir = downloads(store);
    std::fs::create_dir_all(&dir).map_err(io_error("create", &dir))?;
    let guard = order::enter(&dir)?;
    let mut pins = Pins::read(&order.lock_path(store))?;
    let memory = Memory::load(store);
    let net = Net::new(order.mirrors.clone(), order.timeout)?;

    let known: Vec<Option<Blob>> = wanted.iter().map(|w| order::known(w, &pins, &memory, store)).collect();
    let missing: Vec<&Wanted> = wanted.iter().zip(&known).filter(|(_, k)| k.is_none()).map(|(w, _)| w).collect();
    let described = describe(&net, &missing, &pins, tell).await?;
    let (files, fetched) = get_all(&net, &dir, &described, &mut pins, tell).await?;

    let mut parts = Vec::with_capacity(wanted.len());
    for (wanted, known) in wanted.into_iter().zip(known) {
        let ready = match known {
            Some(blob) => Ready::Packed(blob),
            None => fresh(&wanted, &described, &files)?,
        };
        parts.push((wanted, ready));
    }
    let sources = sources(&parts, &pins, &fetched);
    let used = files.into_values().map(|(path, _)| path).collect();
    let lock = pins.path().to_owned();
    let (store, kubernetes) = (store.to_owned(), order.kubernetes.clone());
    Ok(Downloaded { store, kubernetes, dir, parts, used, sources, lock, _guard: guard })
}

/// Gets the expected digest of each missing source from its publisher.
async fn describe(
    net: &Net,
    missing: &[&Wanted],
    pins: &Pins,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<BTreeMap<String, Described>, BundleError> {
    let distinct: BTreeMap<String, &Wanted> = missing.iter().map(|w| (key_of(w), *w)).collect();
    let ask = |(key, wanted): (String, &Wanted)| {
        let (what, arch, origin) = (wanted.label(), wanted.arch, wanted.origin.clone());
        async move {
            let described = match origin {
                Origin::Image(image) => {
                    let resolved = registry::resolve(net, &image, arch, pins, tell).await?;
                    Described::Image(image, Box::new(resolved))
                }
                Origin::File(file) | Origin::Member(file, _) => {
                    let place = net.mirrors.url(&file.checksum);
                    let text = transfer::text(net, &place, &what, checksum::LARGEST, tell).await?;
                    let digest = checksum::of(&text, file.file_name())
                        .map_err(|why| FetchError::NotUnderstood { url: place.clone(), why })?;
                    pins.agrees(&file.url, digest, &place)?;
                    Described::File(file, digest)
                }
            };
            Ok::<_, BundleError>((key, described))
        }
    };
    futures::stream::iter(distinct).map(ask).buffer_unordered(AT_ONCE).try_collect().await
}

type Files = BTreeMap<Digest, (PathBuf, u64)>;

/// Downloads every blob once, and locks each source as soon as it is complete and verified.
async fn get_all(
    net: &Net,
    dir: &Path,
    described: &BTreeMap<String, Described>,
    pins: &mut Pins,
    tell: &(dyn Fn(Moment<'_>) + Sync),
) -> Result<(Files, BTreeSet<String>), BundleError> {
    let mut jobs: BTreeMap<Digest, Job> = BTreeMap::new();
    let mut waiting: BTreeMap<&String, BTreeSet<Digest>> = BTreeMap::new();
    for (key, source) in described {
        let of_source: Vec<Job> = match source {
            Described::File(file, digest) => vec![Job {
                what: file.file_name().to_owned(),
                place: Place::Http(net.mirrors.url(&file.url)),
                digest: *digest,
                by: net.mirrors.url(&file.checksum),
                size: None,
                limit: LARGEST_FILE,
            }],
            Described::Image(image, resolved) => resolved.jobs(&image.to_string()).collect(),
        };
        waiting.insert(key, of_source.iter().map(|job| job.digest).collect());
        for job in of_source {
            jobs.entry(job.digest).or_insert(job);
        }
    }
    let (mut files, mut fetched) = (Files::new(), BTreeSet::new());
    let mut running = futures::stream::iter(jobs.into_values())
        .map(|job| async move { Ok::<_, BundleError>((job.digest, transfer::get(net, dir, &job, tell).await?)) })
        .buffer_unordered(AT_ONCE);
    while let Some((digest, (path, size, transferred))) = running.try_next().await? {
        files.insert(digest, (path, size));
        if transferred {
            let of = waiting.iter().filter(|(_, digests)| digests.contains(&digest));
            fetched.extend(of.map(|(key, _)| (*key).clone()));
        }
        let whole = |digests: &BTreeSet<Digest>| digests.iter().all(|d| files.contains_key(d));
        let complete: Vec<&String> = waiting
            .iter()
            .filter(|(_, digests)| digests.contains(&digest) && whole(digests))
            .map(|(key, _)| *key)
            .collect();
        for key in complete {
            if let Some(source) = described.get(key) {
                pins.lock(key, pin(key, source, &files)?)?;
            }
        }
    }
    Ok((files, fetched))
}

/// The pin of a downloaded source.
fn pin(key: &str, source: &Described, files: &Files) -> Result<Pin, BundleError> {
    match source {
        Described::File(_, digest) => {
            let size = files.get(digest).map_or(0, |(_, size)| *size);
            Ok(Pin { sha256: *digest, size, manifest: None })
        }
        Described::Image(image, resolved) => {
            if let Some((path, _)) = resolved.blobs.first().and_then(|config| files.get(&config.digest)) {
                let config = std::fs::read(path).map_err(io_error("read", path))?;
                registry::is_for(&config, image, order::arch_of(key))?;
            }
            Ok(Pin { sha256: resolved.tagged, size: resolved.size(), manifest: Some(resolved.manifest.digest) })
        }
    }
}

/// The content to pack for a component.
fn fresh(wanted: &Wanted, described: &BTreeMap<String, Described>, files: &Files) -> Result<Ready, BundleError> {
    let url = key_of(wanted);
    let lost = || FetchError::NotUnderstood { url: url.clone(), why: "the downloaded file is missing".to_owned() };
    let file = |digest: &Digest| files.get(digest).cloned().ok_or_else(lost);
    let (digest, size, content) = match (described.get(&url).ok_or_else(lost)?, &wanted.origin) {
        (Described::File(_, digest), Origin::Member(_, member)) => {
            let (archive, _) = file(digest)?;
            let sizes = member::sizes(&archive, std::slice::from_ref(member)).map_err(io_error("unpack", &archive))?;
            let why = || FetchError::NotUnderstood { url: url.clone(), why: format!("it has no {member}") };
            let size = sizes.get(member).copied().ok_or_else(why)?;
            (*digest, size, Content::Member { archive, member: member.clone(), url: url.clone() })
        }
        (Described::File(_, digest), _) => {
            let (path, size) = file(digest)?;
            (*digest, size, Content::File(path))
        }
        (Described::Image(image, resolved), _) => {
            let mut blobs = Vec::with_capacity(resolved.blobs.len());
            for blob in &resolved.blobs {
                blobs.push((blob.clone(), file(&blob.digest)?.0));
            }
            let (manifest, text) = (resolved.manifest.clone(), resolved.text.clone());
            let archive = Archive { name: image.to_string(), manifest, text, blobs };
            (resolved.manifest.digest, resolved.size(), Content::Image(Box::new(archive)))
        }
    };
    Ok(Ready::Fresh(outcome_key(wanted, digest), Item { name: wanted.row.name.to_owned(), size, content }))
}

fn sources(parts: &[(Wanted, Ready)], pins: &Pins, fetched: &BTreeSet<String>) -> Vec<Source> {
    let keys: BTreeSet<String> = parts.iter().map(|(wanted, _)| key_of(wanted)).collect();
    let of = |key: String| {
        let pin = pins.get(&key)?;
        Some(Source { sha256: pin.sha256, bytes: pin.size, fetched: fetched.contains(&key), source: key })
    };
    keys.into_iter().filter_map(of).collect()
}

impl Downloaded {
    /// Compresses new content, writes the lock, and deletes downloads that are in the store now.
    pub fn pack(self, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Built, BundleError> {
        let _guard = pack::enter(&self.store)?;
        let mut memory = Memory::load(&self.store);
        let items: Vec<Item> = self.parts.iter().filter_map(|(_, ready)| ready.item()).cloned().collect();
        let mut blobs = pack::compress_all(&self.store, &items, progress)?.into_iter();
        let mut made = Vec::with_capacity(self.parts.len());
        for (wanted, ready) in &self.parts {
            let blob = match ready {
                Ready::Packed(blob) => *blob,
                Ready::Fresh(key, _) => {
                    let Some(blob) = blobs.next() else { continue };
                    memory.note_fetched(key.clone(), (blob.digest, blob.size));
                    memory.note_packed(&self.store, &blob)?;
                    blob
                }
            };
            made.push(Component::new(wanted.row, &wanted.version, wanted.arch.name(), wanted.reference(), blob));
        }
        if !items.is_empty() {
            memory.save(&self.store)?;
        }
        let lock: Lock = pack::lock(&self.kubernetes, &made);
        let replaced = pack::publish(&self.store, &lock)?;
        for path in self.used.iter().filter(|path| path.starts_with(&self.dir)) {
            std::fs::remove_file(path).map_err(io_error("remove", path))?;
        }
        let replaced = if replaced { vec![lock.name()] } else { Vec::new() };
        Ok(Built { locks: vec![lock], fresh: items.len(), ignored: Vec::new(), replaced })
    }
}

impl Ready {
    fn item(&self) -> Option<&Item> {
        match self {
            Self::Packed(_) => None,
            Self::Fresh(_, item) => Some(item),
        }
    }
}
