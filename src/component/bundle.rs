//! A bundle in use: the parts for a host, and the file of each.
//!
//! In: a store, a Kubernetes version, the desired state. Out: [`Part`]s in the order of delivery; paths of compressed
//! files, each checked before it is returned.

use super::error::{BundleError, io_error};
use super::lock::{Component, Lock, name_of};
use super::memory::{Memory, Print};
use super::store::{blob_path, lock_path, locks};
use crate::model::components::{self as table, Kind};
use crate::model::desired::{Desired, Host};
use crate::model::names::Digest;
use crate::model::target::Part;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// All bundles of a store, by name.
pub fn list(store: &Path) -> Result<Vec<Lock>, BundleError> {
    let dir = locks(store);
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => return Err(io_error("list", &dir)(e)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(io_error("list", &dir))?.path();
        if path.to_string_lossy().ends_with(".lock.json") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| Lock::read(path)).collect()
}

/// The bundle of one Kubernetes version.
pub struct Bundle {
    store: PathBuf,
    lock: Lock,
    memory: Mutex<Memory>,
}

impl Bundle {
    /// Opens the bundle of a Kubernetes version.
    pub fn open(store: &Path, kubernetes: &str) -> Result<Self, BundleError> {
        let path = lock_path(store, &name_of(kubernetes));
        if !path.exists() {
            let there = list(store)?.into_iter().map(|lock| lock.kubernetes).collect();
            return Err(BundleError::NoSuchVersion { wanted: kubernetes.to_owned(), store: store.to_owned(), there });
        }
        let lock = Lock::read(&path)?;
        if lock.kubernetes != kubernetes {
            let why = format!("it is the bundle of {}", lock.kubernetes);
            return Err(BundleError::Malformed { path, why });
        }
        Ok(Self { store: store.to_owned(), lock, memory: Mutex::new(Memory::load(store)) })
    }

    /// Its components.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// All parts for all hosts, in the order of delivery.
    pub fn parts(&self) -> Vec<Part> {
        self.lock.components.iter().map(Component::part).collect()
    }

    /// The packages for hosts of an architecture, by distribution.
    pub fn packages(&self, architecture: &str) -> BTreeMap<String, Part> {
        let architecture = go_name(architecture);
        let fits = |c: &&Component| c.kind == Kind::Packages && c.architecture == architecture;
        self.lock.components.iter().filter(fits).map(|c| (c.version.clone(), c.part())).collect()
    }

    /// The parts for a host except packages, in the order of delivery. `architecture` is Go's or the kernel's name.
    pub fn parts_for(&self, desired: &Desired, host: &Host, architecture: &str) -> Result<Vec<Part>, BundleError> {
        let architecture = go_name(architecture);
        let needed = self.needed(desired, host)?;
        let parts = needed.into_iter().filter(|row| row.kind != Kind::Packages).map(|row| {
            let fits = |c: &&Component| c.name == row.name && c.kind == row.kind && c.architecture == architecture;
            let found = self.lock.components.iter().find(fits);
            found.map(Component::part).ok_or_else(|| self.lacks(row.name, architecture))
        });
        parts.collect()
    }

    /// The parts that a host may need, if its architecture and its distribution are unknown.
    pub fn parts_of_any(&self, desired: &Desired, host: &Host) -> Result<Vec<Part>, BundleError> {
        let mut parts = Vec::new();
        for row in self.needed(desired, host)? {
            let fits = |c: &&Component| c.name == row.name && c.kind == row.kind;
            let before = parts.len();
            parts.extend(self.lock.components.iter().filter(fits).map(Component::part));
            if parts.len() == before && row.kind != Kind::Packages {
                return Err(self.lacks(row.name, "any architecture"));
            }
        }
        Ok(parts)
    }

    fn needed(&self, desired: &Desired, host: &Host) -> Result<Vec<&'static table::Row>, BundleError> {
        self.agrees("etcd", desired.versions.etcd.as_deref())?;
        self.agrees("containerd", desired.versions.containerd.as_deref())?;
        Ok(table::TABLE.iter().filter(|row| row.need.includes(desired, host)).collect())
    }

    /// A version in the inventory must be the bundle's.
    fn agrees(&self, component: &str, wanted: Option<&str>) -> Result<(), BundleError> {
        let Some(wanted) = wanted else { return Ok(()) };
        let there: BTreeSet<&str> =
            self.lock.components.iter().filter(|c| c.name == component).map(|c| c.version.as_str()).collect();
        if there.iter().all(|version| *version == wanted) {
            return Ok(());
        }
        Err(BundleError::OtherVersion {
            bundle: self.lock.name(),
            component: component.to_owned(),
            wanted: wanted.to_owned(),
            there: there.into_iter().collect::<Vec<_>>().join(", "),
        })
    }

    fn lacks(&self, component: &str, architecture: &str) -> BundleError {
        BundleError::Lacks {
            bundle: self.lock.name(),
            component: component.to_owned(),
            architecture: architecture.to_owned(),
        }
    }

    /// The compressed file of a part. It is read and checked unless it is unchanged since the last check.
    pub fn blob(&self, digest: &Digest) -> Result<PathBuf, BundleError> {
        let component = self
            .lock
            .components
            .iter()
            .find(|c| &c.digest == digest)
            .ok_or_else(|| BundleError::Unknown { bundle: self.lock.name(), digest: digest.hex() })?;
        let path = blob_path(&self.store, digest);
        let damaged = |why: String| BundleError::Damaged {
            path: path.clone(),
            component: format!("{} {}", component.name, component.version),
            why,
        };
        let file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damaged("it is missing".to_owned())),
            other => other.map_err(io_error("open", &path))?,
        };
        let meta = file.metadata().map_err(io_error("read", &path))?;
        if meta.len() != component.sent_size {
            return Err(damaged(format!("it has {} bytes instead of {}", meta.len(), component.sent_size)));
        }
        let print = Print::of(&meta);
        let known = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).blob(digest, print);
        if known == Some(component.sent_digest) {
            return Ok(path);
        }
        let (found, _) = Digest::of_all(file, component.sent_size).map_err(io_error("read", &path))?;
        if found != component.sent_digest {
            return Err(damaged("its digest has changed since the build".to_owned()));
        }
        let mut memory = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        memory.note_blob(*digest, print, found);
        // A read-only store (a USB stick, say) is read again the next time; that costs only time.
        drop(memory.save(&self.store));
        Ok(path)
    }
}

/// Go's name of an architecture, as bundles use it, for the kernel's, as hosts report it.
fn go_name(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Bundle {
    /// Unpacks a program for this machine into a folder, executable; an existing one is kept.
    pub fn unpack_program(&self, name: &str, into: &Path) -> Result<PathBuf, BundleError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let here = go_name(std::env::consts::ARCH);
        let fits = |c: &&Component| c.name == name && c.kind == Kind::Program && c.architecture == here;
        let part = self.lock.components.iter().find(fits).map(Component::part);
        let missing =
            || BundleError::NoSuchVersion { wanted: name.to_owned(), store: self.store.clone(), there: vec![] };
        let part = part.ok_or_else(missing)?;
        let path = into.join(format!("{name}-{}", part.digest.short()));
        if path.exists() {
            return Ok(path);
        }
        let fresh = into.join(format!(".{name}-{}", std::process::id()));
        let packed = File::open(self.blob(&part.digest)?).map_err(io_error("open", &path))?;
        let mut plain = zstd::Decoder::new(packed).map_err(io_error("unpack", &path))?;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o755)
            .open(&fresh)
            .map_err(io_error("create", &fresh))?;
        io::copy(&mut plain, &mut file).map_err(io_error("unpack", &fresh))?;
        std::fs::rename(&fresh, &path).map_err(io_error("create", &path))?;
        Ok(path)
    }
}
