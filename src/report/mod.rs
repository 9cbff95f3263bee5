//! Readers of the event stream, and all text for people: plans, status, failures, times, questions.
//!
//! In: events, plans, facts, checks, refusals. Out: text on a terminal or in a log, JSON lines, an exit code. Workflows
//! never print; only this folder does, always through [`harmless`]. Exit codes, headlines and hints are in one table,
//! [`verdict`].

// Text for people is rare, so extra allocations do not matter, and `write!` into a String adds an impossible error.
#![allow(clippy::format_push_string)]

mod bars;
pub mod certs;
pub mod checks;
pub mod consent;
pub mod copies;
pub mod difference;
mod exit;
mod failure;
mod fetch_kind;
mod flow;
pub mod group;
mod guard;
pub mod harmless;
mod healing;
mod inventory_words;
pub mod json;
pub mod lines;
mod live;
mod maintenance;
mod maintenance_kind;
pub mod password;
pub mod plan_text;
pub mod progress_view;
pub mod reader;
pub mod recovery;
mod refused;
mod repairs;
mod rollouts;
pub mod runbook;
pub mod runlog;
pub mod snapshots;
pub mod status;
pub mod status_json;
pub mod style;
mod table;
pub mod times;
pub mod verdict;
mod versions;
pub mod words;

pub use consent::{ask, ask_name};
pub use difference::{differences_json, differences_text};
pub use exit::Exit;
pub use fetch_kind::FetchKind;
pub use guard::{explained_json, explained_text, guards_json, guards_text};
pub use maintenance::{maintenances_json, maintenances_text, preview_json, preview_text};
pub use maintenance_kind::MaintenanceKind;
pub use password::{NoPassword, ask_password};
pub use plan_text::{plan_json, plan_text};
pub use reader::{OutputKind, Reader, reader};
pub use repairs::{history_json, history_text};
pub use rollouts::{rollout_preview_json, rollout_preview_text};
pub use runlog::RunLog;
pub use status::status_text;
pub use status_json::status_json;
pub use style::Style;
pub use verdict::{ConnectKind, FailureKind, Verdict};
