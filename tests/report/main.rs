//! The output for people and programs, word for word. Golden files are in `report/`;
//! `SNAPSHOTS=overwrite` updates them.

#![allow(clippy::unwrap_used, clippy::format_push_string)]

#[path = "../support/dashboard.rs"]
mod dashboard;

mod causes;
mod certificates;
mod drills;
mod events;
mod guards;
mod hostile;
mod monitoring;
mod peer_copies;
mod plans;
mod statuses;
mod verdicts;
mod world;
