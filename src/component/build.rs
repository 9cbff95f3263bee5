//! From a directory of built components to bundles in a store.
//!
//! In: `components.json` in a directory, and the files it names. Out: compressed blobs and one lock file for each
//! Kubernetes version among them. Unchanged files are neither read nor compressed again.

use super::error::{BundleError, io_error};
use super::lock::{Component, Lock};
use super::memory::{Memory, Print};
use super::pack::{self, Content, Item, Progress};
use super::store::Blob;
use crate::model::components::{self as table, Kind};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component as Step, Path, PathBuf};

/// The result of a build.
#[derive(Debug)]
pub struct Built {
    /// The bundles.
    pub locks: Vec<Lock>,
    /// How many blobs were written; the others were there already.
    pub fresh: usize,
    /// Components that no host uses.
    pub ignored: Vec<String>,
    /// Bundles that existed with other content.
    pub replaced: Vec<String>,
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
    Packages,
}

impl Source {
    fn kind(&self) -> Kind {
        match self.kind {
            SourceKind::Binary => Kind::Program,
            SourceKind::Image => Kind::Image,
            SourceKind::Packages => Kind::Packages,
        }
    }
}

/// Builds every bundle for which `from` has the components.
pub fn build(store: &Path, from: &Path, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Built, BundleError> {
    let (sources, ignored) = read_manifest(from)?;
    let _guard = pack::enter(store)?;
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
        let known = memory.source(&path, print).and_then(|digest| memory.known(store, digest, meta.len()));
        if let Some(blob) = known {
            blobs.insert(path, blob);
        } else {
            missing.push((source, path, print));
        }
    }
    let fresh = missing.len();
    let items: Vec<Item> = missing
        .iter()
        .map(|(source, path, print)| Item {
            name: source.name.clone(),
            size: print.size(),
            content: Content::File(path.clone()),
        })
        .collect();
    for ((_, path, print), blob) in missing.into_iter().zip(pack::compress_all(store, &items, progress)?) {
        memory.note_source(&path, print, blob.digest);
        memory.note_packed(store, &blob)?;
        blobs.insert(path, blob);
    }
    if fresh > 0 {
        memory.save(store)?;
    }
    let locks = locks(&sources, &blobs, from)?;
    let mut replaced = Vec::new();
    for lock in &locks {
        if pack::publish(store, lock)? {
            replaced.push(lock.name());
        }
    }
    Ok(Built { locks, fresh, ignored, replaced })
}

/// One lock for each version of the kubelet.
fn locks(sources: &[Source], blobs: &BTreeMap<PathBuf, Blob>, from: &Path) -> Result<Vec<Lock>, BundleError> {
    let versions: BTreeSet<&str> = sources.iter().filter(|s| s.name == "kubelet").map(|s| s.version.as_str()).collect();
    if versions.is_empty() {
        let why = "it names no kubelet, so its Kubernetes version is unknown".to_owned();
        return Err(BundleError::Malformed { path: from.join("components.json"), why });
    }
    let made = |source: &Source| {
        let row = table::row(&source.name, source.kind())?;
        let blob = *blobs.get(&from.join(&source.path))?;
        Some(Component::new(row, &source.version, &source.architecture, source.reference.clone(), blob))
    };
    let made: Vec<Component> = sources.iter().filter_map(made).collect();
    Ok(versions.into_iter().map(|version| pack::lock(version, &made)).collect())
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
            return Err(malformed(format!("{} is outside this directory: {}", source.name, source.path.display())));
        }
        if source.kind() == Kind::Image && source.reference.is_none() {
            return Err(malformed(format!("image {} has no reference", source.name)));
        }
        // Components of Kubernetes itself may exist in several versions, one for each bundle, and packages for several
        // distributions.
        let several = row.kubernetes || row.kind == Kind::Packages;
        let version = if several { source.version.as_str() } else { "" };
        if !seen.insert((source.name.clone(), source.kind(), source.architecture.clone(), version.to_owned())) {
            return Err(malformed(format!("{} is listed twice", source.name)));
        }
        sources.push(source);
    }
    Ok((sources, ignored))
}
