//! The log of a run in the state directory: every event as a JSON line, regardless of the output on the terminal.
//!
//! In: events. Out: a file in `runs/` of the state directory, mode 0600. It is opened at the first plan, so that a
//! read-only run leaves no trace. A log that cannot be written never stops a run; one warning reports it.

use super::common::stamp;
use crate::model::event::{Event, Sink};
use crate::report::RunLog;
use crate::statedir::RUNS;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Passes events on and logs them.
pub struct EventLog {
    shown: Arc<dyn Sink>,
    state: PathBuf,
    log: OnceLock<Option<RunLog>>,
    worked: AtomicBool,
}

impl EventLog {
    /// Logs the events for `shown` in the state directory, once that exists.
    pub fn new(shown: Arc<dyn Sink>, state: PathBuf) -> Self {
        Self { shown, state, log: OnceLock::new(), worked: AtomicBool::new(false) }
    }

    /// Whether any step was done so far.
    pub fn worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    fn open(&self) -> Option<RunLog> {
        let name = format!("{}-{}.jsonl", stamp(), std::process::id());
        match RunLog::open(&self.state.join(RUNS).join(name)) {
            Ok(log) => Some(log),
            Err(error) => {
                self.shown.warn(format!("no log is kept of this run: {error}"));
                None
            }
        }
    }
}

impl Sink for EventLog {
    fn emit(&self, event: Event) {
        if matches!(event, Event::Done { .. }) {
            self.worked.store(true, Ordering::Relaxed);
        }
        if matches!(event, Event::Planned { .. }) && self.state.exists() {
            self.log.get_or_init(|| self.open());
        }
        if let Some(Some(log)) = self.log.get() {
            log.emit(event.clone());
        }
        self.shown.emit(event);
    }
}
