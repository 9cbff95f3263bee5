//! What the administrator keeps: authorities, the encryption key, and a journal of what cannot be observed.
//!
//! In: a directory, `<directory of the inventory>/.hactl/<cluster>/`, and the [`Contents`] that `pki/` made for a new
//! cluster. Out: a [`StateDir`], opened whole or not at all. It is the only place that holds authority keys, so it refuses
//! to be read when others on the machine could read it too, and it comes into being by one rename: a run that is killed
//! while founding leaves a whole vault or none.

mod contents;
mod files;
mod hosts;
mod journal;
mod lineage;
mod lock;
mod portable;
mod rotations;
mod sealing;

pub use contents::{
    Authority, BadAuthority, Contents, EncryptionKey, KeyPairPem, Material, PublicAuthority, Publics, Trusted,
};
pub use files::{JOURNAL, RUNS};
pub use hosts::{Known, Ranges};
pub use journal::{Entry, Line, Past};
pub use lineage::{Former, Lineage};
pub use lock::VaultLock;
pub use portable::{Carried, NotCarried, carry, uncarry};
pub use rotations::{FILE as ROTATIONS, KeyText, Rotation, Rotations};
pub use sealing::IDENTITY;

use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use crate::model::target::CertSpec;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why the vault cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The file system said no.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Others can read what only its owner may.
    #[error("{path} can be read by others (mode {mode:03o}); it holds keys: chmod {wanted:03o} {path}")]
    Open {
        /// Which directory or file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What they should be.
        wanted: u32,
    },
    /// A file that makes a vault is not there.
    #[error("{path} is missing: the vault is incomplete; restore the whole directory from a copy")]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// A file is there, but is not what it should be.
    #[error("{path} is damaged: {why}; restore the whole directory from a copy")]
    Corrupt {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is a vault already.
    #[error("{path} exists already: a second set of authorities would cut off every host of the first")]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// The vault belongs to a cluster of another name.
    #[error("{path} is the vault of cluster {theirs}, not of {ours}")]
    OtherCluster {
        /// Where.
        path: PathBuf,
        /// Whose it is.
        theirs: String,
        /// Whose it should be.
        ours: ClusterName,
    },
    /// Another run on this machine works with the vault.
    #[error("another run on this machine uses {path}: {holder}")]
    Held {
        /// The vault.
        path: PathBuf,
        /// Who: verb, pid, user, since.
        holder: String,
    },
    /// There is no unspent genesis token to spend.
    #[error("{path} has no unspent genesis token")]
    NothingToSpend {
        /// The journal.
        path: PathBuf,
    },
    /// No authority of the vault has the key identifier a leaf asks for.
    #[error("no authority of this vault has the key identifier {authority}, which certificate {leaf} asks for")]
    NoSuchAuthority {
        /// Key identifier.
        authority: String,
        /// Which leaf.
        leaf: String,
    },
    /// The system gave no randomness.
    #[error("the system's random number generator failed")]
    Random,
}

pub(crate) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateDirError {
    let path = path.to_owned();
    move |source| StateDirError::Io { doing, path, source }
}

/// The inventory that was carried with a vault that was rebuilt.
pub const INVENTORY: &str = "inventory.yaml";

/// The vault of one cluster, read and checked.
pub struct StateDir {
    dir: PathBuf,
    contents: Contents,
}

impl StateDir {
    /// Where the vault of a cluster lies beside its inventory.
    pub fn default_dir(inventory_dir: &Path, cluster: &ClusterName) -> PathBuf {
        inventory_dir.join(".hactl").join(cluster.as_str())
    }

    /// Reads a vault; `None` when there is none at `dir`.
    pub fn open(dir: &Path, cluster: &ClusterName) -> Result<Option<Self>, StateDirError> {
        match std::fs::symlink_metadata(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_error("look at", dir)(e)),
            Ok(_) => files::private(dir, 0o700)?,
        }
        let name_file = dir.join(files::CLUSTER);
        let theirs = files::read_public(&name_file)?;
        if theirs.trim_end() != cluster.as_str() {
            return Err(StateDirError::OtherCluster {
                path: dir.to_owned(),
                theirs: theirs.trim_end().chars().take(60).collect(),
                ours: cluster.clone(),
            });
        }
        let contents = files::read_contents(dir)?;
        files::private(&dir.join(files::JOURNAL), 0o600)?;
        let vault = Self { dir: dir.to_owned(), contents };
        let bootstrapped =
            |l: &Line| matches!(&l.entry, Entry::Founded { ca, .. } if *ca == vault.contents.rotations.founded);
        if !vault.journal()?.first().is_some_and(bootstrapped) {
            let why = "it does not begin with the founding of this cluster".to_owned();
            return Err(StateDirError::Corrupt { path: vault.journal_path(), why });
        }
        Ok(Some(vault))
    }

    /// Makes the vault of a new cluster. All or nothing: it is built beside its place and renamed into it.
    pub fn create(dir: &Path, cluster: &ClusterName, contents: Contents) -> Result<Self, StateDirError> {
        Self::build(dir, cluster, contents, &crate::snapshot::new_identity(), |_| Ok(()))
    }

    /// Makes the vault that was carried. Whoever has that had a cluster: empty disks are a loss.
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
        // Two foundings at once would each remove the other's half-built directory: one at a time.
        let guard = File::open(parent).map_err(io_error("open", parent))?;
        rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(|e| io_error("lock", parent)(e.into()))?;
        if std::fs::symlink_metadata(dir).is_ok() {
            return Err(StateDirError::Exists { path: dir.to_owned() });
        }
        let building = parent.join(format!(".{}.new", name.to_string_lossy()));
        match std::fs::remove_dir_all(&building) {
            Ok(()) => {} // left by a founding that was killed; nothing was ever signed with what lies there
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io_error("clear", &building)(e)),
        }
        files::write_contents(&building, cluster, &contents)?;
        files::put(&building.join(IDENTITY), identity.reveal())?;
        journal::start(&building.join(files::JOURNAL), cluster, &contents.rotations.founded)?;
        more(&building)?;
        files::sync_dir(&building)?;
        std::fs::rename(&building, dir).map_err(io_error("create", dir))?;
        files::sync_dir(parent)?;
        Ok(Self { dir: dir.to_owned(), contents })
    }

    /// Where the vault lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Everything that may be known to all.
    pub fn publics(&self) -> Publics {
        self.contents.publics()
    }

    /// The secrets that hosts need.
    pub fn material(&self) -> Material<'_> {
        self.contents.material()
    }

    /// The authorities and keys themselves, for signing on this machine.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The authority whose key identifier the leaf names.
    pub fn issuer(&self, leaf: &CertSpec) -> Result<&Authority, StateDirError> {
        self.contents.issuer(leaf).ok_or_else(|| StateDirError::NoSuchAuthority {
            authority: leaf.authority.clone(),
            leaf: leaf.id.to_string(),
        })
    }

    /// Takes the vault for a run on this machine; [`StateDirError::Held`] says who has it.
    pub fn lock(&self, verb: &str) -> Result<VaultLock, StateDirError> {
        lock::take(&self.dir, verb)
    }

    /// The token of the genesis under way, or a new one that is on disk before this returns.
    pub fn bootstrap_token(&self) -> Result<String, StateDirError> {
        journal::bootstrap_token(&self.journal_path())
    }

    /// Notes that the genesis under way made a cluster: its token is never used again.
    pub fn spend_genesis(&self, cluster_id: &str) -> Result<(), StateDirError> {
        journal::spend_genesis(&self.journal_path(), cluster_id)
    }

    /// What the journal knows of the past.
    pub fn past(&self) -> Result<Past, StateDirError> {
        Ok(Past::of(&self.journal()?))
    }

    /// Replaces a file of the vault that is made again when needed, such as the kubeconfig: 0600, all or nothing.
    pub fn replace(&self, name: &str, content: &str) -> Result<(), StateDirError> {
        use std::io::Write as _;
        let path = self.dir.join(name);
        let fresh = self.dir.join(format!(".{name}.new"));
        match std::fs::remove_file(&fresh) {
            Ok(()) => {} // left by a run that was killed
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io_error("clear", &fresh)(e)),
        }
        let mut file = files::create_new(&fresh, 0o600)?;
        let written = file.write_all(content.as_bytes()).and_then(|()| file.sync_all());
        written.and_then(|()| std::fs::rename(&fresh, &path)).map_err(io_error("write", &path))?;
        files::sync_dir(&self.dir)
    }

    /// Writes ahead something that no later observation could tell; on disk before this returns.
    pub fn record(&self, entry: Entry) -> Result<(), StateDirError> {
        journal::append(&self.journal_path(), entry)
    }

    /// Everything in the journal, oldest first.
    pub fn journal(&self) -> Result<Vec<Line>, StateDirError> {
        journal::read(&self.journal_path())
    }

    /// A new file for the log of one run, under `runs/`.
    pub fn run_log(&self, verb: &str) -> Result<(PathBuf, File), StateDirError> {
        let dir = self.dir.join(files::RUNS);
        let stamp = time::OffsetDateTime::now_utc()
            .format(time::macros::format_description!(
                "[year][month][day]T[hour][minute][second].[subsecond digits:3]Z"
            ))
            .unwrap_or_default();
        let word: String = verb.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
        let path = dir.join(format!("{stamp}-{word}-{}.jsonl", std::process::id()));
        let file = files::create_new(&path, 0o600)?;
        Ok((path, file))
    }

    fn journal_path(&self) -> PathBuf {
        self.dir.join(files::JOURNAL)
    }
}

/// Random bytes as lower-case hexadecimal digits.
pub(crate) fn random_hex(bytes: usize) -> Result<String, StateDirError> {
    use std::fmt::Write as _;
    let mut raw = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut raw).map_err(|_| StateDirError::Random)?;
    Ok(raw.iter().fold(String::with_capacity(bytes * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    }))
}

/// The encryption key for Secrets at rest: 32 random bytes in base64, as an EncryptionConfiguration wants it.
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
