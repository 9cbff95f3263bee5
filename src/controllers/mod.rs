//! What acts on objects of the API until they are as their authors ask for.
//!
//! In: an API client, and a Lease by which one process at a time acts. Out: changed objects, events for people. The
//! state is in the API alone, so that another process continues after a crash at any moment.

mod drain;
mod maintenance;
#[cfg(test)]
mod tests;

pub use maintenance::{Controller, Ended, MaintenanceError};
