//! The node agent: where guards act on maintenances, each Node has one; and what it leaves on a host.

use super::kubelet;
use crate::model::boot::NODE_AGENT;
use crate::render::Input;
use serde::Serialize;

/// Files that may be on a host from an earlier inventory.
pub(crate) fn own() -> Vec<String> {
    vec![format!("/etc/systemd/system/{NODE_AGENT}")]
}

/// For `node-agent/hactl-node-agent.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    program: String,
    node: String,
    server: String,
}

pub(crate) fn unit(input: &Input<'_>) -> Unit {
    Unit { program: input.hactl_path.to_owned(), node: input.host.name.to_string(), server: kubelet::server(input) }
}
