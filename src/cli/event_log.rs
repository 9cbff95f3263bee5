//! The log of a run, kept beside the administrator's state: every event as a JSON line, whatever the terminal showed.
//!
//! In: events. Out: `runs/` below the state folder, 0600. Opened at the first plan, so that looking leaves no trace; a log that
//! cannot be written never stops a run, and is told of once.

use super::common::stamp;
use crate::model::event::{Event, Sink};
use crate::report::RunLog;
use crate::statedir::RUNS;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Passes events on and keeps them.
pub struct EventLog {
    shown: Arc<dyn Sink>,
    state: PathBuf,
    log: OnceLock<Option<RunLog>>,
    worked: AtomicBool,
}

impl EventLog {
    /// Keeps what goes to `shown`, below the state folder once that exists.
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
                self.shown.emit(Event::Warning { text: format!("this run keeps no log: {error}") });
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
