//! The run log: every event of a run as JSON lines, in one file per run.

use super::json::{Lines, stamped};
use super::reader::Reader;
use super::verdict::Verdict;
use crate::model::event::{Event, Sink};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Why there is no run log.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the run log {path}")]
pub struct RunLogError {
    /// The path of the log.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

/// Appends every event to a file that only its owner can read.
#[derive(Debug)]
pub struct RunLog {
    path: PathBuf,
    since: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    lines: Lines,
    trouble: Option<io::Error>,
}

impl RunLog {
    /// Opens the file for appending, 0600 when it is new.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RunLogError> {
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = opened.map_err(|source| RunLogError { path: path.to_owned(), source })?;
        let inner = Inner { file, lines: Lines::default(), trouble: None };
        Ok(Self { path: path.to_owned(), since: Instant::now(), inner: Mutex::new(inner) })
    }

    /// The path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an object of the caller, such as the command line and the version at the start.
    pub fn record(&self, object: Value) {
        let at = self.since.elapsed();
        self.with(|inner| inner.append(&stamped(at, object)));
    }

    /// The first write error, if any: a full disk must not stop a recovery, but it is reported.
    pub fn trouble(&self) -> Option<String> {
        self.with(|inner| inner.trouble.as_ref().map(ToString::to_string))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        // A thread that panicked while it held the lock left at most half a line behind.
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn append(&mut self, line: &str) {
        // One write per line, so that lines of two runs do not mix.
        if let Err(error) = self.file.write_all(format!("{line}\n").as_bytes()) {
            self.trouble.get_or_insert(error);
        }
    }
}

impl Sink for RunLog {
    fn emit(&self, event: Event) {
        let at = self.since.elapsed();
        self.with(|inner| {
            if let Some(line) = inner.lines.on(at, &event) {
                inner.append(&line);
            }
        });
    }
}

impl Reader for RunLog {
    fn pause(&self) {}
    fn end(&self, verdict: &Verdict) {
        let at = self.since.elapsed();
        self.with(|inner| inner.append(&Lines::end(at, verdict)));
    }
}
