//! The engine: observes the hosts, plans, and runs plans.
//!
//! In: a [`Fleet`] of hosts that answer, and an [`Authority`] that provides the target and signs certificates. Out:
//! rounds of observation, executed plans, refusals. It knows neither the state directory nor the inventory's files nor
//! SSH: `workflow/` provides those on an administrator's machine, tests provide a simulated world, and a process on a
//! host may use a [`Spec`] that is stored there.

mod apart;
mod authority;
mod consent;
mod failure;
mod fleet;
mod joining;
mod leaving;
pub mod manifests;
mod repair_spec;
mod round;
mod run;
mod spec;
mod votes;

pub use authority::{Authority, KnownHost};
pub use consent::{Ask, Choices};
pub use failure::Failure;
pub use fleet::{Fleet, LOCK_TIMEOUT, Locked, person};
pub use leaving::{balanced, removed_hosts, replaced};
pub use repair_spec::{EtcdPast, RepairSpec};
pub use round::{Files, Round};
pub use run::{Run, api_client, api_clients};
pub use spec::Spec;
