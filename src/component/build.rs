//! From a directory of built components to bundles in a store.
//!
//! In: `components.json` in a directory, and the files it names. Out: compressed blobs and one lock file for each
//! Kubernetes version among them. What has not changed is neither read nor compressed again.

use super::lock::{Component, Kind, Lock};
use super::memory::{Memory, Print};
use super::sum::Sum;
use super::{BundleError, bundle, io_error, table};
use crate::model::names::Digest;
use rustix::fs::FlockOperation;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Component as Step, Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// zstd level. Measured on kubelet and the API server of Kubernetes 1.36, core seconds for 100 MB and what is left of it:
/// level 3: 0.4 s, 26.8 %; 6: 1.1 s, 25.0 %; 9: 2.0 s, 24.3 %; 12: 4.3 s, 24.1 %. A bundle is compressed once and sent
/// to every host: at 9 more time stops buying bytes.
const LEVEL: i32 = 9;
/// Read at a time.
const PIECE: usize = 1 << 20;

/// How far a build has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is being compressed.
    pub component: &'a str,
    /// Bytes read of all that must be.
    pub done: u64,
    /// Bytes of all that must be read.
    pub total: u64,
}

/// What a build came to.
#[derive(Debug)]
pub struct Built {
    /// The bundles.
    pub locks: Vec<Lock>,
    /// How many blobs were made; the others were there.
    pub fresh: usize,
    /// Components that no host has a use for.
    pub ignored: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    schema: u32,
    components: Vec<Source>,
}

#[derive(Debug, Deserialize)]
struct Source {
    name: String,
    version: String,
    kind: SourceKind,
    path: PathBuf,
    reference: Option<String>,
    architecture: String,
    #[serde(rename = "use")]
    used_by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SourceKind {
    Binary,
    Image,
}

impl Source {
    fn kind(&self) -> Kind {
        match self.kind {
            SourceKind::Binary => Kind::Program,
            SourceKind::Image => Kind::Image,
        }
    }
}

/// A blob as it lies in the store.
#[derive(Debug, Clone, Copy)]
struct Blob {
    digest: Digest,
    size: u64,
    sent_digest: Digest,
    sent_size: u64,
}

/// Builds every bundle that `from` has the components of.
pub fn build(store: &Path, from: &Path, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Built, BundleError> {
    let (sources, ignored) = read_manifest(from)?;
    for dir in [bundle::blobs(store), bundle::locks(store)] {
        DirBuilder::new().recursive(true).create(&dir).map_err(io_error("create", &dir))?;
    }
    // One build at a time, so that leftovers of a killed one can be told from the work of a living one.
    let guard = File::open(store).map_err(io_error("open", store))?;
    rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(|e| io_error("lock", store)(e.into()))?;
    remove_leftovers(&bundle::blobs(store))?;

    let mut memory = Memory::load(store);
    let mut blobs: BTreeMap<PathBuf, Blob> = BTreeMap::new();
    let mut missing: Vec<(&Source, PathBuf, Print)> = Vec::new();
    let mut looked_at = BTreeSet::new();
    for source in &sources {
        let path = from.join(&source.path);
        if !looked_at.insert(path.clone()) {
            continue;
        }
        let meta = std::fs::metadata(&path).map_err(io_error("read", &path))?;
        let print = Print::of(&meta);
        let known = memory.source(&path, print).and_then(|digest| {
            let meta_sent = std::fs::metadata(bundle::blob_path(store, &digest)).ok()?;
            let sent_digest = memory.blob(&digest, Print::of(&meta_sent))?;
            Some(Blob { digest, size: meta.len(), sent_digest, sent_size: meta_sent.len() })
        });
        if let Some(blob) = known {
            blobs.insert(path, blob);
        } else {
            missing.push((source, path, print));
        }
    }
    let fresh = missing.len();
    for (path, print, blob) in compress_all(store, missing, progress)? {
        let meta = std::fs::metadata(bundle::blob_path(store, &blob.digest)).map_err(io_error("read", &path))?;
        memory.note_source(&path, print, blob.digest);
        memory.note_blob(blob.digest, Print::of(&meta), blob.sent_digest);
        blobs.insert(path, blob);
    }
    if fresh > 0 {
        memory.save(store)?;
    }
    let locks = locks(&sources, &blobs, from)?;
    for lock in &locks {
        let path = bundle::lock_path(store, &lock.name());
        if !matches!(Lock::read(&path), Ok(there) if &there == lock) {
            lock.write(&path)?;
        }
    }
    Ok(Built { locks, fresh, ignored })
}

fn read_manifest(from: &Path) -> Result<(Vec<Source>, Vec<String>), BundleError> {
    let path = from.join("components.json");
    let malformed = |why: String| BundleError::Malformed { path: path.clone(), why };
    let text = std::fs::read(&path).map_err(io_error("read", &path))?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
    if manifest.schema != 1 {
        return Err(malformed(format!("schema {} is not schema 1", manifest.schema)));
    }
    let mut ignored = Vec::new();
    let mut sources = Vec::new();
    let mut seen = BTreeSet::new();
    for source in manifest.components.into_iter().filter(|s| s.used_by == "host") {
        let Some(row) = table::row(&source.name, source.kind()) else {
            ignored.push(format!("{} {}", source.name, source.version));
            continue;
        };
        if !source.path.components().all(|step| matches!(step, Step::Normal(_))) {
            return Err(malformed(format!("{} lies outside: {}", source.name, source.path.display())));
        }
        if source.kind() == Kind::Image && source.reference.is_none() {
            return Err(malformed(format!("image {} has no reference", source.name)));
        }
        // Components of Kubernetes itself may be there in several versions, one for each bundle.
        let version = if row.kubernetes { source.version.as_str() } else { "" };
        if !seen.insert((source.name.clone(), source.kind(), source.architecture.clone(), version.to_owned())) {
            return Err(malformed(format!("{} is there twice", source.name)));
        }
        sources.push(source);
    }
    Ok((sources, ignored))
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

/// Compresses on all cores, the largest first so that none is left alone with one at the end.
fn compress_all(
    store: &Path,
    mut missing: Vec<(&Source, PathBuf, Print)>,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Vec<(PathBuf, Print, Blob)>, BundleError> {
    missing.sort_by_key(|(_, path, _)| std::cmp::Reverse(std::fs::metadata(path).map_or(0, |m| m.len())));
    let total = missing.iter().map(|(_, path, _)| std::fs::metadata(path).map_or(0, |m| m.len())).sum();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let made = Mutex::new(Ok(Vec::with_capacity(missing.len())));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, (source, path, print))) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, missing.get(i)?)))
                {
                    let tell = |bytes: u64| {
                        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        progress(Progress { component: &source.name, done, total });
                    };
                    let result = compress(store, path, index, &tell);
                    let mut made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match (result, made.as_mut()) {
                        (Ok(blob), Ok(list)) => list.push((path.clone(), *print, blob)),
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
    made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn compress(store: &Path, source: &Path, index: usize, tell: &dyn Fn(u64)) -> Result<Blob, BundleError> {
    let fresh = bundle::blobs(store).join(format!("{index}.tmp"));
    let pour = || -> io::Result<Blob> {
        let file = File::open(source)?;
        let length = file.metadata()?.len();
        let mut from = Sum::new(file);
        let mut to = zstd::Encoder::new(Sum::new(File::create(&fresh)?), LEVEL)?;
        to.include_checksum(true)?;
        to.set_pledged_src_size(Some(length))?;
        let mut piece = vec![0; PIECE];
        loop {
            match from.read(&mut piece)? {
                0 => break,
                count => {
                    to.write_all(&piece[..count])?;
                    tell(count as u64);
                }
            }
        }
        let (file, sent_digest, sent_size) = to.finish()?.finish();
        file.sync_all()?;
        let (_, digest, size) = from.finish();
        Ok(Blob { digest, size, sent_digest, sent_size })
    };
    let blob = pour().map_err(io_error("compress", source))?;
    let place = bundle::blob_path(store, &blob.digest);
    std::fs::rename(&fresh, &place).map_err(io_error("create", &place))?;
    Ok(blob)
}

/// One lock for each version of the kubelet.
fn locks(sources: &[Source], blobs: &BTreeMap<PathBuf, Blob>, from: &Path) -> Result<Vec<Lock>, BundleError> {
    let versions: BTreeSet<&str> = sources.iter().filter(|s| s.name == "kubelet").map(|s| s.version.as_str()).collect();
    if versions.is_empty() {
        let why = "it names no kubelet, so it is a bundle of no Kubernetes version".to_owned();
        return Err(BundleError::Malformed { path: from.join("components.json"), why });
    }
    let mut locks = Vec::new();
    for version in versions {
        let mut components = Vec::new();
        for row in &table::TABLE {
            let of_row = |s: &&Source| s.name == row.name && s.kind() == row.kind;
            for source in sources.iter().filter(of_row).filter(|s| !row.kubernetes || s.version == version) {
                let Some(blob) = blobs.get(&from.join(&source.path)) else { continue };
                components.push(Component {
                    name: source.name.clone(),
                    version: source.version.clone(),
                    kind: source.kind(),
                    architecture: source.architecture.clone(),
                    reference: source.reference.clone(),
                    link: row.link.map(str::to_owned),
                    digest: blob.digest,
                    size: blob.size,
                    sent_digest: blob.sent_digest,
                    sent_size: blob.sent_size,
                });
            }
        }
        locks.push(Lock::new(version.to_owned(), components));
    }
    Ok(locks)
}
