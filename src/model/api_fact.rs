//! What an API server answers to the host that asks it.
//!
//! In: the agent of a control-plane host. Out: a part of its facts. Numbers are bounded when they are read.

use super::may_deny::MayDeny;
use super::node::NodeFact;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The API as one host sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ApiFact {
    /// `None`: the local API server is ready. Otherwise the reason why not.
    pub own_trouble: Option<String>,
    /// `None`: the endpoint, queried from this host, is ready. Otherwise the reason why not.
    pub endpoint_trouble: Option<String>,
    /// The version that the local API server reports, with the `v`; empty if it reports none.
    pub version: String,
    /// Leader election leases of the control plane.
    pub leases: Vec<LeaseFact>,
    /// Nodes.
    pub nodes: Vec<NodeFact>,
    /// Pods of kube-system and of what hactl installs.
    pub pods: Vec<PodFact>,
    /// Live objects that were asked for; absent ones are missing here.
    pub objects: BTreeMap<String, serde_json::Value>,
    /// What may deny pods of the control plane, if that was asked for.
    pub may_deny: Vec<MayDeny>,
    /// Why pods are not created, by the key of the object that was asked for and that they belong to.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub uncreated: BTreeMap<String, String>,
}

/// A leader election lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseFact {
    /// `kube-scheduler` or `kube-controller-manager`.
    pub name: String,
    /// Its holder.
    pub holder: String,
    /// Age of the last renewal by the host's clock, milliseconds.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub age_ms: i64,
    /// How long a renewal lasts, seconds.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub duration_s: i64,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodFact {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Node it is bound to; empty when none.
    pub node: String,
    /// Phase.
    pub phase: String,
    /// Whether it is Ready (or has succeeded).
    pub ready: bool,
    /// Why it is not, such as `CrashLoopBackOff`.
    pub reason: String,
    /// How long past its deletion grace period it still exists, seconds; 0 when it is not being deleted.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub overdue_s: i64,
}
