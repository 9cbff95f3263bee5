//! The host as a Linux machine: files, units, packages, users, firewall, and running its programs.
//!
//! In: the steps of the plan. Out: done, or a fault that names the path or unit.

pub(in crate::agent) mod ends;
pub(in crate::agent) mod files;
pub(in crate::agent) mod firewall;
pub(in crate::agent) mod packages;
pub(in crate::agent) mod prepare;
pub(in crate::agent) mod previous;
pub(in crate::agent) mod root;
pub(in crate::agent) mod run;
pub(in crate::agent) mod tree;
pub(in crate::agent) mod units;
pub(in crate::agent) mod when;
pub(in crate::agent) mod wipe;

pub use root::Root;
