//! The administrator's state directory: CAs, the encryption key, and a journal of what cannot be observed.
//!
//! In: a directory, `<directory of the inventory>/.hactl/<cluster>/`, and the [`Contents`] that `pki/` created for a
//! new cluster. Out: a [`StateDir`], opened completely or not at all. It is the only place with CA keys, so it is not
//! opened if other users of the machine can read it. It is created with one rename: a bootstrap that is killed leaves a
//! complete state directory or none.

mod contents;
mod files;
mod hosts;
mod journal;
mod lineage;
mod lock;
mod portable;
mod rotations;
mod sealing;

pub use contents::{Authority, BadAuthority, Contents, KeyPairPem, Material, PublicAuthority, Publics, Trusted};
pub use files::{JOURNAL, RUNS};
pub use hosts::{Known, Ranges};
pub use journal::{Entry, Line, Past};
pub use lineage::{Former, Lineage};
pub use lock::StateDirLock;
pub use portable::{Carried, NotCarried, carry, uncarry};
pub use rotations::{FILE as ROTATIONS, KeyText, Rotation, Rotations};
pub use sealing::IDENTITY;

use crate::model::names::{ClusterName, hex};
use crate::model::secret::Secret;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// A file system error.
    #[error("cannot {doing} {path}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Other users can read a file that only its owner may read.
    #[error("{path} can be read by others (mode {mode:03o}); it holds keys: chmod {wanted:03o} {path}")]
    Open {
        /// The directory or file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The required bits.
        wanted: u32,
    },
    /// A file of the state directory does not exist.
    #[error("{path} is missing: the state directory is incomplete; restore the whole directory from a backup")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file has invalid content.
    #[error("{path} is damaged: {why}; restore the whole directory from a backup")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is a state directory already.
    #[error("{path} exists already: a second set of CAs would cut off every host of the first")]
    Exists {
        /// Its path.
        path: PathBuf,
    },
    /// The state directory belongs to a cluster of another name.
    #[error("{path} is the state directory of cluster {theirs}, not of {ours}")]
    OtherCluster {
        /// Its path.
        path: PathBuf,
        /// The cluster in it.
        theirs: String,
        /// The expected cluster.
        ours: ClusterName,
    },
    /// Another run on this machine uses the state directory.
    #[error("another run on this machine uses {path}: {holder}")]
    Held {
        /// The state directory.
        path: PathBuf,
        /// Verb, pid, user and start of the other run.
        holder: String,
    },
    /// There is no unused bootstrap token.
    #[error("{path} has no unused bootstrap token")]
    NothingToSpend {
        /// The journal.
        path: PathBuf,
    },
    /// No CA of the state directory has the key identifier that a certificate requires.
    #[error("no CA in this state directory has the key identifier {authority}, which certificate {leaf} requires")]
    NoSuchAuthority {
        /// Key identifier.
        authority: String,
        /// The certificate.
        leaf: String,
    },
    /// The random number generator failed.
    #[error("the system's random number generator failed")]
    Random,
}

pub(crate) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateDirError {
    let path = path.to_owned();
    move |source| StateDirError::Io { doing, path, source }
}

/// The inventory that was exported with a state, in a state directory that was rebuilt from it.
pub const INVENTORY: &str = "inventory.yaml";

/// The state directory of one cluster, read and checked.
pub struct StateDir {
    dir: PathBuf,
    contents: Contents,
}

impl StateDir {
    /// The path of a cluster's state directory beside its inventory.
    pub fn default_dir(inventory_dir: &Path, cluster: &ClusterName) -> PathBuf {
        inventory_dir.join(".hactl").join(cluster.as_str())
    }

    /// Opens a state directory; `None` if there is none at `dir`.
    pub fn open(dir: &Path, cluster: &ClusterName) -> Result<Option<Self>, StateDirError> {
        match std::fs::symlink_metadata(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_error("read", dir)(e)),
            Ok(_) => files::private(dir, 0o700)?,
        }
        let name_file = dir.join(files::CLUSTER);
        let theirs = files::read_public(&name_file)?;
        if theirs.trim_end() != cluster.as_str() {
            let theirs = theirs.trim_end().chars().take(60).collect();
            return Err(StateDirError::OtherCluster { path: dir.to_owned(), theirs, ours: cluster.clone() });
        }
        let contents = files::read_contents(dir)?;
        files::private(&dir.join(files::JOURNAL), 0o600)?;
        let state_dir = Self { dir: dir.to_owned(), contents };
        let bootstrapped =
            |l: &Line| matches!(&l.entry, Entry::Founded { ca, .. } if *ca == state_dir.contents.rotations.founded);
        if !state_dir.journal()?.first().is_some_and(bootstrapped) {
            let why = "it does not begin with the bootstrap of this cluster".to_owned();
            return Err(StateDirError::Corrupt { path: state_dir.journal_path(), why });
        }
        Ok(Some(state_dir))
    }

    /// Creates the state directory of a new cluster, completely or not at all: it is built beside its path and renamed.
    pub fn create(dir: &Path, cluster: &ClusterName, contents: Contents) -> Result<Self, StateDirError> {
        Self::build(dir, cluster, contents, &crate::snapshot::new_identity(), |_| Ok(()))
    }

    /// Creates a state directory from an exported state. Its cluster existed: empty disks are a data loss.
    pub fn recreate(dir: &Path, carried: Carried) -> Result<Self, StateDirError> {
        let Carried { cluster, contents, identity, inventory } = carried;
        Self::build(dir, &cluster, contents, &identity, |building| {
            files::put(&building.join(INVENTORY), &inventory)?;
            let journal = building.join(files::JOURNAL);
            journal::bootstrap_token(&journal)?;
            journal::spend_genesis(&journal, "rebuilt")
        })
    }

    fn build(
        dir: &Path,
        cluster: &ClusterName,
        contents: Contents,
        identity: &Secret<String>,
        more: impl FnOnce(&Path) -> Result<(), StateDirError>,
    ) -> Result<Self, StateDirError> {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(io_error("create", dir)(io::ErrorKind::InvalidInput.into()));
        };
        files::make_private_dirs(parent)?;
        // Two runs that create it at once would delete each other's unfinished directory: one at a time.
        let guard = File::open(parent).map_err(io_error("open", parent))?;
        rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(|e| io_error("lock", parent)(e.into()))?;
        if std::fs::symlink_metadata(dir).is_ok() {
            return Err(StateDirError::Exists { path: dir.to_owned() });
        }
        let building = parent.join(format!(".{}.new", name.to_string_lossy()));
        // An interrupted bootstrap may have left it; its keys have signed nothing.
        cleared(&building, std::fs::remove_dir_all(&building))?;
        files::write_contents(&building, cluster, &contents)?;
        files::put(&building.join(IDENTITY), identity.reveal())?;
        journal::start(&building.join(files::JOURNAL), cluster, &contents.rotations.founded)?;
        more(&building)?;
        files::sync_dir(&building)?;
        std::fs::rename(&building, dir).map_err(io_error("create", dir))?;
        files::sync_dir(parent)?;
        Ok(Self { dir: dir.to_owned(), contents })
    }

    /// Its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The CAs and keys themselves, for signing on this machine.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Locks the state directory for a run on this machine; [`StateDirError::Held`] names the holder.
    pub fn lock(&self, verb: &str) -> Result<StateDirLock, StateDirError> {
        lock::take(&self.dir, verb)
    }

    /// The token of the bootstrap in progress, or a new one that is on disk before this returns.
    pub fn bootstrap_token(&self) -> Result<String, StateDirError> {
        journal::bootstrap_token(&self.journal_path())
    }

    /// Records that the bootstrap in progress created a cluster: its token is never used again.
    pub fn spend_genesis(&self, cluster_id: &str) -> Result<(), StateDirError> {
        journal::spend_genesis(&self.journal_path(), cluster_id)
    }

    /// Facts from the journal that cannot be observed.
    pub fn past(&self) -> Result<Past, StateDirError> {
        Ok(Past::of(&self.journal()?))
    }

    /// Replaces a file that can be created again, such as the kubeconfig: mode 0600, atomically.
    pub fn replace(&self, name: &str, content: &str) -> Result<(), StateDirError> {
        use std::io::Write as _;
        let path = self.dir.join(name);
        let fresh = self.dir.join(format!(".{name}.new"));
        // An interrupted run may have left it.
        cleared(&fresh, std::fs::remove_file(&fresh))?;
        let mut file = files::create_new(&fresh, 0o600)?;
        let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
        written.and_then(|()| std::fs::rename(&fresh, &path)).map_err(io_error("write", &path))?;
        files::sync_dir(&self.dir)
    }

    /// Records an event that cannot be observed later; it is on disk before this returns.
    pub fn record(&self, entry: Entry) -> Result<(), StateDirError> {
        journal::append(&self.journal_path(), entry)
    }

    /// The complete journal, oldest first.
    pub fn journal(&self) -> Result<Vec<Line>, StateDirError> {
        journal::read(&self.journal_path())
    }

    fn journal_path(&self) -> PathBuf {
        self.dir.join(files::JOURNAL)
    }
}

/// What is not there need not be removed.
fn cleared(path: &Path, removed: io::Result<()>) -> Result<(), StateDirError> {
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("clear", path)(e)),
        _ => Ok(()),
    }
}

/// Random bytes as lower-case hexadecimal digits.
pub(crate) fn random_hex(bytes: usize) -> Result<String, StateDirError> {
    let mut raw = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut raw).map_err(|_| StateDirError::Random)?;
    Ok(hex(&raw))
}

/// A new encryption key for Secrets: 32 random bytes in base64, as in an EncryptionConfiguration.
pub fn new_encryption_key() -> Result<Secret<String>, StateDirError> {
    use base64::Engine as _;
    use zeroize::Zeroize as _;
    let mut raw = [0; 32];
    aws_lc_rs::rand::fill(&mut raw).map_err(|_| StateDirError::Random)?;
    let key = Secret::new(base64::engine::general_purpose::STANDARD.encode(raw));
    raw.zeroize();
    Ok(key)
}

#[cfg(test)]
mod tests;
