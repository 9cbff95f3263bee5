//! The engine: asks the hosts, plans, and runs plans, for whoever has the authority to change the cluster.
//!
//! In: a [`Fleet`] of hosts that answer, and an [`Authority`] that says what should be and signs for it. Out: rounds of observation, plans
//! that were run, refusals. It knows neither the state directory nor the inventory's files nor SSH: `workflow/` brings those on an
//! administrator's machine, tests bring a simulated world, and what runs on hosts may bring a [`Spec`] that was left there.

mod authority;
mod consent;
mod failure;
mod fleet;
mod joining;
mod leaving;
pub mod manifests;
mod round;
mod run;
mod spec;

pub use authority::{Authority, KnownHost};
pub use consent::{Ask, Choices};
pub use failure::Failure;
pub use fleet::{Fleet, LOCK_TIMEOUT, Locked};
pub use leaving::{balanced, removed_hosts, replaced};
pub use round::{Files, Round};
pub use run::{Run, api_client};
pub use spec::Spec;
