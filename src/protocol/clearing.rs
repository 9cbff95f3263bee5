//! What is stopped and cleared on a host.

use crate::model::names::UnitName;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What pods leave on a host that nothing removes when they are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leftovers {
    /// kube-proxy's packet filter tables, which would go on sending Services' traffic to where pods once were.
    KubeProxy,
    /// flannel's packet filter tables, and the file by which containerd takes flannel for the network.
    Flannel,
    /// flannel's interfaces, and the pods that hang on them, which are killed as flannel itself is.
    Wires,
}

/// What to stop and clear.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WipeAsk {
    /// Units to stop and disable, in order.
    pub units: Vec<UnitName>,
    /// Files and directories that are hactl's own and are removed.
    pub remove: Vec<String>,
    /// Directories with data: moved aside, or deleted when `delete`.
    pub data: Vec<String>,
    /// Whether data is deleted.
    pub delete: bool,
    /// The VIP to take off whatever interface has it.
    pub vip: Option<IpAddr>,
    /// Whether others go on: then the API server may first say that it stops.
    pub hand_over: bool,
    /// Whether the host stays part of the cluster: then its stamp and its firewall stay as they are.
    pub stays: bool,
}
