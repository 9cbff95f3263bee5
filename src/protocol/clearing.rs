//! What is stopped and removed on a host.

use crate::model::names::UnitName;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What pods leave on a host after they are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leftovers {
    /// kube-proxy's netfilter rules, which would still send the traffic of Services to former pods.
    KubeProxy,
    /// flannel's netfilter rules, and the CNI configuration by which containerd uses flannel.
    Flannel,
    /// flannel's interfaces, and the pods attached to them, which are killed with flannel.
    Wires,
}

/// What to stop and remove.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipeAsk {
    /// Units to stop and disable, in order.
    pub units: Vec<UnitName>,
    /// Files and directories of hactl that are removed.
    pub remove: Vec<String>,
    /// Directories with data: moved aside, or deleted when `delete`.
    pub data: Vec<String>,
    /// Whether data is deleted.
    pub delete: bool,
    /// The VIP to remove from any interface.
    pub vip: Option<IpAddr>,
    /// Whether other API servers continue to serve: then the API server may first announce that it stops.
    pub hand_over: bool,
    /// Whether the host stays part of the cluster: then its cluster id and its firewall stay as they are.
    pub stays: bool,
}
