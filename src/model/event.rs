//! Events of a running workflow. Workflows emit events and never print; only readers in `report/` print.

use super::check::Check;
use super::names::HostName;
use super::plan::{Plan, Stage};
use super::recovery::Proposal;
use serde::Serialize;

/// One thing that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A workflow began a phase that may take over a second, such as `connecting to 3 hosts`.
    Phase {
        /// What is being done.
        doing: String,
    },
    /// Something a person should know, without being an error.
    Note {
        /// The text.
        text: String,
    },
    /// Something a person should worry about.
    Warning {
        /// The text.
        text: String,
    },
    /// A recovery is proposed.
    Proposed {
        /// What would be done, and at which price.
        proposal: Box<Proposal>,
    },
    /// A plan is about to be run (or only shown).
    Planned {
        /// The plan.
        plan: Box<Plan>,
    },
    /// A step began.
    Started {
        /// Index into the plan.
        step: usize,
        /// What it does.
        what: String,
        /// Where.
        host: Option<HostName>,
    },
    /// A step is waiting for something.
    Waiting {
        /// Index into the plan.
        step: usize,
        /// For what.
        on: String,
    },
    /// A step moved bytes.
    Moved {
        /// Index into the plan.
        step: usize,
        /// So far.
        done: u64,
        /// In all.
        total: u64,
    },
    /// A step is done.
    Done {
        /// Index into the plan.
        step: usize,
        /// How long it took.
        ms: u64,
        /// Where.
        host: Option<HostName>,
        /// What it did.
        what: String,
    },
    /// A step failed.
    Failed {
        /// Index into the plan.
        step: usize,
        /// Where.
        host: Option<HostName>,
        /// What it tried.
        what: String,
        /// Why it failed.
        why: String,
        /// Last lines of that host's log, oldest first.
        tail: Vec<String>,
    },
    /// One named check was made.
    Checked {
        /// With its outcome.
        check: Check,
    },
    /// Times per stage, at the end.
    Times {
        /// Stage and milliseconds from its first start to its last end.
        stages: Vec<(Stage, u64)>,
        /// All in all, milliseconds.
        total_ms: u64,
        /// Bytes sent to hosts.
        bytes_sent: u64,
        /// Commands executed over SSH.
        execs: u64,
    },
}

/// Takes events. Shared by all tasks of a run.
pub trait Sink: Send + Sync {
    /// One event, in the order things happened.
    fn emit(&self, event: Event);
}

impl dyn Sink + '_ {
    /// Emits a warning.
    pub fn warn(&self, text: impl Into<String>) {
        self.emit(Event::Warning { text: text.into() });
    }
    /// Emits a note.
    pub fn note(&self, text: impl Into<String>) {
        self.emit(Event::Note { text: text.into() });
    }
    /// Emits the begin of work outside of a plan.
    pub fn phase(&self, doing: impl Into<String>) {
        self.emit(Event::Phase { doing: doing.into() });
    }
}
