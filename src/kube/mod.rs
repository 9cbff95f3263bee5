//! The Kubernetes API, as little of it as hactl needs: apply, get, create, delete, wait; comparing objects; probing a
//! cluster with a pod; approving kubelets' serving certificates.
//!
//! In: objects as JSON values and a way to reach an API server. Out: objects, checks, or a [`KubeError`] that names the
//! object and the server's own words.

pub mod approver;
mod client;
pub mod csr;
pub mod drift;
mod error;
pub mod issued;
mod kinds;
mod leaving;
pub mod manifests;
mod node;
pub mod probe;
pub mod record;
pub mod request;
pub mod rewrite;
pub mod trusted;

pub use client::{Client, ObjectRef};
pub use drift::drift;
pub use error::KubeError;
pub use leaving::Leaving;
