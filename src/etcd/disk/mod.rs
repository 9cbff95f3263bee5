//! What a member's directory holds, read from its files alone: the member need not run, and nothing is changed.
//!
//! In: the data directory. Out: how far its raft log and its store go. Which of several directories is the newest is told by the last
//! entry's (term, index), raft's own rule for elections; the store may lag behind it. The files are taken for hostile: they may
//! have been cut short or damaged, and what they say about lengths is believed only as far as they reach.

mod bolt;
mod wal;

use crate::model::facts::DiskFact;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Why a directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file or folder cannot be opened or read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder of the log has no log.
    #[error("{} holds no log", .path.display())]
    NoLog {
        /// The folder.
        path: PathBuf,
    },
    /// What stands there is not what etcd writes.
    #[error("{} is damaged at byte {at}: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How far into it.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_owned();
    move |source| DiskError::Io { path, source }
}

/// Reads how far the member in this data directory got.
///
/// # Errors
/// A log that cannot be read, or whose older part is damaged. A last record that was cut short is none: a loss of power does that, and
/// nobody was told that it had been written. A store that cannot be read is no error either, but a flaw of the fact.
pub fn read(data_dir: &Path) -> Result<DiskFact, DiskError> {
    let member = data_dir.join("member");
    let log = wal::read(&member.join("wal"))?;
    let db = member.join("snap").join("db");
    let (store, mut flaws) = match bolt::read(&db) {
        Ok(store) => (Some(store), Vec::new()),
        Err(error) => (None, vec![error.to_string()]),
    };
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
        db_bytes: std::fs::metadata(&db).map_or(0, |m| m.len()),
        written_ms,
        flaws,
    })
}

#[cfg(test)]
mod tests;
