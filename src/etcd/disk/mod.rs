//! The content of a member's data directory, read from its files alone: the member need not run. Only copies are
//! changed.
//!
//! In: the data directory. Out: the positions of its raft log and its database. The (term, index) of the last entry
//! decides which of several directories is the newest, which is raft's own rule for elections; the database may lag
//! behind it. The files are treated as hostile: they may be truncated or damaged, and the lengths in them are
//! checked.

mod bolt;
mod pages;
mod rewrite;
mod wal;
mod walk;

use crate::model::facts::DiskFact;
use crate::model::names::PeerUrl;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

pub use rewrite::Identity;
pub use walk::CLOSED_WITHIN;

/// Why a directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file or directory cannot be opened or read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The directory of the log contains no log.
    #[error("{} contains no log", .path.display())]
    NoLog {
        /// The directory.
        path: PathBuf,
    },
    /// The content is not what etcd writes.
    #[error("{} is damaged at byte {at}: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::Io { path, source }
}

fn written(path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::Write { path, source }
}

/// Opens a file that etcd's user may have replaced: no link, and nothing that blocks or has side effects when it is
/// opened.
fn plain(options: &mut OpenOptions, path: &Path) -> Result<File, DiskError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(io(path))?;
    if file.metadata().map_err(io(path))?.is_file() {
        return Ok(file);
    }
    Err(DiskError::Damaged { path: path.to_owned(), at: 0, what: "it is not a regular file" })
}

/// Reads the position of the member in this data directory.
///
/// # Errors
/// A log that cannot be read, or whose older part is damaged. A truncated last record is none: it is the result of a
/// power loss, and it was never acknowledged. An unreadable database is no error either, but a flaw of the fact.
pub fn read(data_dir: &Path) -> Result<DiskFact, DiskError> {
    member(&data_dir.join("member"))
}

/// The same with a look at every page of the database; and whether no process had it open. A database that a process
/// keeps open for longer than `within` is read as by [`read`]. etcd cannot open it meanwhile.
pub fn read_closed(data_dir: &Path, within: Duration) -> (bool, Result<DiskFact, DiskError>) {
    let member = data_dir.join("member");
    let db = member.join("snap").join("db");
    let closed = walk::closed(&db, within);
    let walked = closed.as_ref().map_or(Ok(()), |file| walk::walk(file, &db));
    (closed.is_some() || !db.exists(), fact(&member, walked))
}

/// The same for the archived directory of a member, which has another name.
///
/// # Errors
/// As for [`read`].
pub fn member(member: &Path) -> Result<DiskFact, DiskError> {
    fact(member, Ok(()))
}

/// What the files of a member contain, after a look at all pages of its database.
fn fact(member: &Path, walked: Result<(), DiskError>) -> Result<DiskFact, DiskError> {
    let log = wal::read(&member.join("wal"))?;
    let db = member.join("snap").join("db");
    let (store, mut flaws) = match walked.and_then(|()| bolt::read(&db)) {
        Ok(store) => (Some(store), Vec::new()),
        Err(error) => (None, vec![error.to_string()]),
    };
    if log.damaged {
        let what = "a record of its log is damaged: etcd does not start from it, and the entries after it are unknown";
        flaws.push(what.to_owned());
    }
    if log.cut_short {
        flaws.push("the last record of its log was cut short, as a loss of power does".to_owned());
    }
    let changed = std::fs::metadata(&log.newest).and_then(|m| m.modified()).map_err(io(&log.newest))?;
    let written_ms = changed.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
    Ok(DiskFact {
        cluster: format!("{:x}", log.cluster),
        member: log.member,
        term: log.term,
        index: log.index,
        commit: log.commit,
        revision: store.as_ref().map(|s| s.revision),
        applied: store.as_ref().map(|s| s.consistent_index),
        members: store.as_ref().map(|s| listed(&s.members)).transpose().unwrap_or_else(|what| {
            flaws.push(what);
            None
        }),
        db_bytes: std::fs::metadata(&db).map_or(0, |m| m.len()),
        written_ms,
        damaged: log.damaged,
        flaws,
    })
}

/// A member in the database: `membership.Member` of etcd's server/etcdserver/api/membership.
#[derive(serde::Deserialize)]
struct Listed {
    id: u64,
    #[serde(rename = "peerURLs")]
    peers: Vec<PeerUrl>,
    #[serde(default)]
    name: String,
    #[serde(rename = "isLearner", default)]
    learner: bool,
}

fn listed(values: &[Vec<u8>]) -> Result<Vec<(u64, String, PeerUrl, bool)>, String> {
    let member = |value: &Vec<u8>| {
        let found: Listed = serde_json::from_slice(value).ok()?;
        Some((found.id, found.name, found.peers.into_iter().next()?, found.learner))
    };
    let all: Option<Vec<_>> = values.iter().map(member).collect();
    all.ok_or_else(|| "its list of members cannot be parsed".to_owned())
}

/// Prepares a copy of a data directory to be started alone without losing an entry: see [`wal::commit_all`].
///
/// # Errors
/// A log that cannot be read or written.
pub fn commit_all(data_dir: &Path) -> Result<(u64, u64), DiskError> {
    wal::commit_all(&data_dir.join("member").join("wal")).map(|end| (end.term, end.index))
}

/// The last entry in the database in this data directory, and its revision.
///
/// # Errors
/// A database that cannot be read.
pub fn applied(data_dir: &Path) -> Result<(u64, i64), DiskError> {
    bolt::read(&data_dir.join("member").join("snap").join("db")).map(|s| (s.consistent_index, s.revision))
}

/// The position of a database in a file of its own, such as a snapshot: raft term, index of the last entry in it,
/// revision.
///
/// # Errors
/// A database that cannot be read.
pub fn point(file: &Path) -> Result<(u64, u64, i64), DiskError> {
    bolt::read(file).map(|s| (s.term, s.consistent_index, s.revision))
}

/// The revision of a database in a file of its own, such as a snapshot.
///
/// # Errors
/// A database that cannot be read.
pub fn revision(file: &Path) -> Result<i64, DiskError> {
    bolt::read(file).map(|s| s.revision)
}

/// A tiny database with as much of this one as etcd's tool needs to make it that of a new cluster. [`Identity`] then
/// brings what the tool wrote into the large one.
///
/// # Errors
/// A database that cannot be read.
pub fn seed(file: &Path) -> Result<Vec<u8>, DiskError> {
    rewrite::seed(file)
}

#[cfg(test)]
mod tests;
