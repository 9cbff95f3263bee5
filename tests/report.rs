//! The output for people and programs, word for word. Golden files are in `report/`;
//! `SNAPSHOTS=overwrite` updates them.

#![allow(clippy::unwrap_used, clippy::format_push_string)]

#[path = "report/causes.rs"]
mod causes;
#[path = "report/certificates.rs"]
mod certificates;
#[path = "report/drills.rs"]
mod drills;
#[path = "report/events.rs"]
mod events;
#[path = "report/hostile.rs"]
mod hostile;
#[path = "report/plans.rs"]
mod plans;
#[path = "report/statuses.rs"]
mod statuses;
#[path = "report/verdicts.rs"]
mod verdicts;
#[path = "report/world.rs"]
mod world;
