//! What acts on objects of the API until they are as their authors ask for.
//!
//! In: an API client, and a Lease by which one process at a time acts. Out: changed objects, Events for people. The
//! state is in the API alone, so that another process continues after a crash at any moment.

mod drain;
mod elected;
mod ended;
mod followed;
mod maintenance;
mod news;
mod occurrence;
mod reboot;
mod recovered;
mod requests;
mod right;
mod rollouts;
mod static_pods;
mod steps;
#[cfg(test)]
mod tests;

pub use elected::{Guarding, Places, Shows, control};
pub use ended::{Ended, MaintenanceError};
pub use followed::{Elected, Followed, follow};
pub use maintenance::{Controller, Place, soon};
pub use occurrence::now_ms;
pub use reboot::Hosts;
pub use recovered::{InCluster, resume_after_recovery, waits_after_recovery};
pub use rollouts::node_view;
