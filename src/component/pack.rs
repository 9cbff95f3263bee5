//! From content to compressed blobs, and from blobs to a bundle's lock. Built and downloaded bundles both end here, so
//! that later steps cannot distinguish them.
//!
//! In: contents: files, members of archives, images. Out: blobs in the store, named by their content; one lock.

use super::Kind;
use super::fetch::{Archive, FetchError, member};
use super::lock::{Component, Lock};
use super::{BundleError, bundle, io_error, table, verify};
use crate::model::digester::Digester;
use crate::model::names::Digest;
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// zstd level. Measured on kubelet and the API server of Kubernetes 1.36, core seconds for 100 MB and the compressed
/// size: level 3: 0.4 s, 26.8 %; 6: 1.1 s, 25.0 %; 9: 2.0 s, 24.3 %; 12: 4.3 s, 24.1 %. A bundle is compressed once and
/// sent to every host; above 9, more time saves hardly any bytes.
const LEVEL: i32 = 9;
/// Bytes per read.
const PIECE: usize = 1 << 20;

/// Progress of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The component being compressed.
    pub component: &'a str,
    /// Bytes read so far.
    pub done: u64,
    /// Bytes to read in total.
    pub total: u64,
}

/// A blob in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blob {
    pub digest: Digest,
    pub size: u64,
    pub sent_digest: Digest,
    pub sent_size: u64,
}

/// A content to compress.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// A file.
    File(PathBuf),
    /// A member of an archive that was downloaded from a URL.
    Member { archive: PathBuf, member: String, url: String },
    /// An image of downloaded blobs.
    Image(Box<Archive>),
}

/// A content with its name and size, for progress and order.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub name: String,
    pub size: u64,
    pub content: Content,
}

/// A component in a bundle.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub name: String,
    pub version: String,
    pub kind: Kind,
    pub architecture: String,
    pub reference: Option<String>,
    pub blob: Blob,
}

/// Creates the folders of a store and locks it for as long as the file is open.
pub(super) fn enter(store: &Path) -> Result<File, BundleError> {
    for dir in [bundle::blobs(store), bundle::locks(store)] {
        DirBuilder::new().recursive(true).create(&dir).map_err(io_error("create", &dir))?;
    }
    // One process at a time, so that leftovers of a killed one are distinguished from work in progress.
    let guard = File::open(store).map_err(io_error("open", store))?;
    rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(|e| io_error("lock", store)(e.into()))?;
    remove_leftovers(&bundle::blobs(store))?;
    Ok(guard)
}

fn remove_leftovers(dir: &Path) -> Result<(), BundleError> {
    for entry in std::fs::read_dir(dir).map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        if path.extension().is_some_and(|e| e == "tmp") {
            std::fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

/// Compresses on all cores, the largest first, so that the largest is not left for the end. The blobs are in the order
/// of the items.
pub(super) fn compress_all(
    store: &Path,
    items: &[Item],
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Vec<Blob>, BundleError> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(items[*index].size));
    let total = items.iter().map(|item| item.size).sum();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let made = Mutex::new(Ok(vec![None; items.len()]));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    let item = &items[index];
                    let tell = |bytes: u64| {
                        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        progress(Progress { component: &item.name, done, total });
                    };
                    let result = compress(store, &item.content, index, &tell);
                    let mut made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match (result, made.as_mut()) {
                        (Ok(blob), Ok(list)) => list[index] = Some(blob),
                        (Err(error), Ok(_)) => *made = Err(error),
                        (_, Err(_)) => {}
                    }
                    if made.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let made = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    Ok(made.into_iter().flatten().collect())
}

fn compress(store: &Path, content: &Content, index: usize, tell: &dyn Fn(u64)) -> Result<Blob, BundleError> {
    let fresh = bundle::blobs(store).join(format!("{index}.tmp"));
    let mut pour = |from: &mut dyn Read, length: u64| -> io::Result<Blob> {
        let mut from = Digester::new(from);
        let mut to = zstd::Encoder::new(Digester::new(File::create(&fresh)?), LEVEL)?;
        to.include_checksum(true)?;
        to.set_pledged_src_size(Some(length))?;
        let mut piece = Vec::with_capacity(PIECE);
        loop {
            // Full pieces, whatever the source: the same content must result in the same blob.
            piece.clear();
            let count = from.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
            if count == 0 {
                break;
            }
            to.write_all(&piece)?;
            tell(count as u64);
        }
        let (file, sent_digest, sent_size) = to.finish()?.finish();
        file.sync_all()?;
        let (_, digest, size) = from.finish();
        Ok(Blob { digest, size, sent_digest, sent_size })
    };
    let blob = match content {
        Content::File(path) => {
            let whole = File::open(path).and_then(|mut file| {
                let length = file.metadata()?.len();
                pour(&mut file, length)
            });
            whole.map_err(io_error("compress", path))?
        }
        Content::Member { archive, member, url } => {
            let found = member::read(archive, member, &mut pour).map_err(io_error("unpack", archive))?;
            found.ok_or_else(|| FetchError::NotUnderstood { url: url.clone(), why: format!("it has no {member}") })?
        }
        Content::Image(archive) => {
            let whole = archive.read().and_then(|(mut tar, length)| pour(&mut tar, length));
            whole.map_err(io_error("compress", Path::new(&archive.name)))?
        }
    };
    let place = bundle::blob_path(store, &blob.digest);
    // An existing valid blob stays: other bundles name its compressed bytes, and another compressor's may differ.
    if let Ok(there) = verify::measure(&place, blob.size)
        && (there.digest, there.size) == (blob.digest, blob.size)
    {
        std::fs::remove_file(&fresh).map_err(io_error("remove", &fresh))?;
        return Ok(there);
    }
    std::fs::rename(&fresh, &place).map_err(io_error("create", &place))?;
    Ok(blob)
}

/// The lock of one Kubernetes version, in the order of delivery.
pub(super) fn lock(kubernetes: &str, made: &[Made]) -> Lock {
    let mut components = Vec::new();
    for row in &table::TABLE {
        for made in made.iter().filter(|m| m.name == row.name && m.kind == row.kind) {
            if row.kubernetes && made.version != kubernetes {
                continue;
            }
            components.push(Component {
                name: made.name.clone(),
                version: made.version.clone(),
                kind: made.kind,
                architecture: made.architecture.clone(),
                reference: made.reference.clone(),
                link: row.link.map(str::to_owned),
                digest: made.blob.digest,
                size: made.blob.size,
                sent_digest: made.blob.sent_digest,
                sent_size: made.blob.sent_size,
            });
        }
    }
    Lock::new(kubernetes.to_owned(), components)
}

/// Writes a lock unless it is there already; returns whether it replaced a bundle with other content.
pub(super) fn publish(store: &Path, lock: &Lock) -> Result<bool, BundleError> {
    let path = bundle::lock_path(store, &lock.name());
    let there = Lock::read(&path).ok();
    if there.as_ref() != Some(lock) {
        lock.write(&path)?;
    }
    Ok(there.is_some_and(|there| there.identity() != lock.identity()))
}
