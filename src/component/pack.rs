//! From content to compressed blobs, and from blobs to a bundle's lock. Built and downloaded bundles both end here, so
//! that later steps cannot distinguish them.
//!
//! In: contents: files, members of archives, images. Out: blobs in the store, named by their content; one lock.

use super::error::{BundleError, io_error};
use super::fetch::{Archive, FetchError, member};
use super::lock::{Component, Lock};
use super::store::{self, Blob};
use crate::model::components::TABLE;
use crate::model::digester::Digester;
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
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

/// Creates the folders of a store and locks it for as long as the file is open.
pub(super) fn enter(store: &Path) -> Result<File, BundleError> {
    for dir in [store::blobs(store), store::locks(store)] {
        DirBuilder::new().recursive(true).create(&dir).map_err(io_error("create", &dir))?;
    }
    // One process at a time, so that leftovers of a killed one are distinguished from work in progress.
    let guard = File::open(store).map_err(io_error("open", store))?;
    rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(|e| io_error("lock", store)(e.into()))?;
    remove_leftovers(&store::blobs(store))?;
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
    let done = AtomicU64::new(0);
    let made = on_all_cores(&order, |index| {
        let item = &items[*index];
        let tell = |bytes: u64| {
            let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress(Progress { component: &item.name, done, total });
        };
        compress(store, &item.content, *index, &tell).map(|blob| (*index, blob))
    })?;
    Ok(made.into_iter().collect::<BTreeMap<_, _>>().into_values().collect())
}

/// Does a piece of work for each item, in their order, on all cores. After an error, no further item is begun.
pub(super) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, BundleError> + Sync,
) -> Result<Vec<R>, BundleError> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Ok(Vec::with_capacity(items.len())));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(item);
                    let mut all = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match (result, all.as_mut()) {
                        (Ok(one), Ok(list)) => list.push(one),
                        (Err(error), Ok(_)) => *all = Err(error),
                        (_, Err(_)) => {}
                    }
                    if all.is_err() {
                        return;
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn compress(store: &Path, content: &Content, index: usize, tell: &dyn Fn(u64)) -> Result<Blob, BundleError> {
    let fresh = store::blobs(store).join(format!("{index}.tmp"));
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
    let place = store::blob_path(store, &blob.digest);
    // An existing valid blob stays: other bundles name its compressed bytes, and another compressor's may differ.
    if let Ok(there) = store::measure(&place, blob.size)
        && (there.digest, there.size) == (blob.digest, blob.size)
    {
        std::fs::remove_file(&fresh).map_err(io_error("remove", &fresh))?;
        return Ok(there);
    }
    std::fs::rename(&fresh, &place).map_err(io_error("create", &place))?;
    Ok(blob)
}

/// The lock of one Kubernetes version, in the order of delivery.
pub(super) fn lock(kubernetes: &str, made: &[Component]) -> Lock {
    let at = |component: &Component| {
        TABLE.iter().position(|row| (row.name, row.kind) == (component.name.as_str(), component.kind))
    };
    let of_version = |c: &&Component| c.row().is_some_and(|row| !row.kubernetes || c.version == kubernetes);
    let mut components: Vec<Component> = made.iter().filter(of_version).cloned().collect();
    components.sort_by_key(at);
    Lock::new(kubernetes.to_owned(), components)
}

/// Writes a lock unless it is there already; returns whether it replaced a bundle with other content.
pub(super) fn publish(store: &Path, lock: &Lock) -> Result<bool, BundleError> {
    let path = store::lock_path(store, &lock.name());
    let there = Lock::read(&path).ok();
    if there.as_ref() != Some(lock) {
        lock.write(&path)?;
    }
    Ok(there.is_some_and(|there| there.identity() != lock.identity()))
}
