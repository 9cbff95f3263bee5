//! The part of the Kubernetes API that hactl uses: apply, get, create, delete, wait; comparing objects; probing a
//! cluster with a pod; draining a Node; approving kubelet serving certificates.
//!
//! In: objects as JSON values and a connection to an API server. Out: objects, checks, or a [`KubeError`] with the
//! object and the server's message.

pub mod approver;
mod client;
pub mod csr;
mod drain;
mod drain_rules;
pub mod drift;
mod error;
mod eviction;
mod eviction_requests;
pub mod issued;
mod kinds;
mod known_node;
mod lease;
mod list;
mod maintenance;
pub mod manifests;
mod node;
pub mod probe;
pub mod record;
mod renewed;
pub mod request;
mod responders;
pub mod rewrite;
mod rollout;
mod server;
mod servers;
pub mod trusted;
mod watch;

pub use client::{Answer, Chunks, Client, Http, ObjectRef, Request};
pub use drain::{Cordoned, PodChange, PodChanges};
pub use drift::drift;
pub use error::KubeError;
pub use eviction::BudgetChanges;
pub use known_node::KnownNode;
pub use lease::{Attempt as LeaseAttempt, Lease, LeaseSeen};
pub use maintenance::is_marked;
pub use watch::{Change, Changes, next_change};
