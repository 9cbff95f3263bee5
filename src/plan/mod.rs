//! The planner: compares the target with the facts and returns a plan or a refusal.
//!
//! Pure: imports `model/` only. No I/O, no clock, no randomness; values that need them (an initial cluster token, the
//! time) are part of the [`Intent`] or the facts. The same input always returns the same plan.

mod certs;
mod cluster;
mod conditions;
mod configure;
mod down;
mod draft;
pub mod drain;
mod etcd;
mod hosted;
pub mod hosting;
mod identity;
mod intent;
pub mod local_repair;
pub mod maintain;
mod move_member;
pub mod power;
mod prepare;
pub mod quorum;
mod ranges;
mod reconcile_members;
mod recover;
mod rejoin;
mod remove_hosts;
mod remove_roles;
mod rollout;
mod sources;
mod steps;
pub mod triage;
mod up;
mod upgrade;
mod versions;
pub mod votes;

pub use crate::model::units::{etcd_balancer_unit, etcd_unit, kubelet_unit};
pub use certs::certs;
pub use down::down;
pub use intent::Intent;
pub use ranges::seen as ranges_seen;
pub use recover::{Away, RecoveryRequest, alarmed, diagnose, recover};
pub use rejoin::{NotRejoined, rejoin, remove_gone};
pub use up::up;
