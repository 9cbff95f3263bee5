//! The host as a Linux machine: files, units, packages, users, firewall, and running its programs.
//!
//! In: the steps of the plan. Out: done, or a fault that names the path or unit.

pub(crate) mod addresses;
pub(crate) mod ends;
pub(crate) mod files;
pub(crate) mod firewall;
pub(crate) mod foreign;
pub(crate) mod packages;
pub(crate) mod ports;
pub(crate) mod prepare;
pub(crate) mod previous;
pub(crate) mod processes;
pub(crate) mod root;
pub(crate) mod run;
pub(crate) mod tree;
pub(crate) mod units;
pub(crate) mod when;
pub(crate) mod wipe;

pub use root::Root;
