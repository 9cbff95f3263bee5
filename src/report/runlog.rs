//! The run log: every event of a run as JSON lines, in one file per run.

use super::json::Lines;
use super::reader::Reader;
use super::verdict::Verdict;
use crate::model::event::{Event, Sink};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    since: Instant,
    inner: Mutex<(File, Lines)>,
}

impl RunLog {
    /// Opens the file for appending, 0600 when it is new.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RunLogError> {
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let file = opened.map_err(|source| RunLogError { path: path.to_owned(), source })?;
        Ok(Self { since: Instant::now(), inner: Mutex::new((file, Lines::default())) })
    }

    /// Appends a line, if there is one. A log that cannot be written must not stop a run.
    fn append(&self, line: impl FnOnce(Duration, &mut Lines) -> Option<String>) {
        // A thread that panicked while it held the lock left at most half a line behind.
        let (file, lines) = &mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = line(self.since.elapsed(), lines) {
            // One write per line, so that lines of two runs do not mix.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

impl Sink for RunLog {
    fn emit(&self, event: Event) {
        self.append(|at, lines| lines.on(at, &event));
    }
}

impl Reader for RunLog {
    fn pause(&self) {}
    fn end(&self, verdict: &Verdict) {
        self.append(|at, _| Some(Lines::end(at, verdict)));
    }
}
