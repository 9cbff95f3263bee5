//! What a host says of cluster DNS, and of the name servers that its pods get.

use serde::{Deserialize, Serialize};

/// The name servers of a host. With systemd-resolved this file may name only its stub, which listens on loopback.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The servers behind that stub.
pub const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
/// The link to one of these files that the kubelet reads for pods: its unit sets it at each start.
pub const OF_PODS: &str = "/var/lib/kubelet/resolv.conf";

/// The file from which the kubelet of a host takes the name servers of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolvConf {
    /// Its path; for [`OF_PODS`], that to which it leads.
    pub file: String,
    /// Whether it exists.
    pub exists: bool,
    /// Whether it names a server.
    pub has_servers: bool,
}

/// The answer of cluster DNS to a query from a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnsFact {
    /// An address.
    Answered,
    /// No answer, for this reason.
    Failed(String),
}
