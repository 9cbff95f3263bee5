//! hactl: from bare hosts over SSH to a highly available Kubernetes control plane, and back after a disaster.
//!
//! The library exists for tests and fuzzing; the binary is the product. Data flows one way, from folder to folder: an
//! inventory becomes the desired state, hosts report facts, the planner compares the two, the executor runs the plan,
//! and the report shows the result.

pub mod agent;
pub mod cli;
pub mod component;
pub mod controllers;
pub mod etcd;
pub mod execute;
pub mod guard;
pub mod inventory;
pub mod issue;
pub mod kube;
pub mod lab;
pub mod model;
pub mod observe;
pub mod pki;
pub mod plan;
pub mod process;
pub mod protocol;
pub mod reconcile;
pub mod render;
pub mod report;
pub mod snapshot;
pub mod statedir;
pub mod support;
pub mod transport;
pub mod workflow;

/// The simulator's random numbers and mutated inputs, for tests of parsers.
#[cfg(test)]
#[path = "../tests/sim/dice.rs"]
mod dice;
#[cfg(test)]
#[path = "../tests/fuzz/mutate.rs"]
mod mutate;
#[cfg(test)]
use dice::Dice;
