//! The components of a control plane: one table of their names and of the manifests by which the kubelet runs them.
//!
//! Out: the name of each program, which is also that of its image, its container and its Lease.

use super::names::HostName;
use serde_json::Value;

/// The API server.
pub const API_SERVER: &str = "kube-apiserver";
/// The controller manager.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// The scheduler.
pub const SCHEDULER: &str = "kube-scheduler";
/// All of them.
pub const PROGRAMS: [&str; 3] = [API_SERVER, CONTROLLER_MANAGER, SCHEDULER];
/// Those of which one leads at a time, by a Lease of its name in `kube-system`.
pub const ELECTED: [&str; 2] = [SCHEDULER, CONTROLLER_MANAGER];
/// The ports of [`ELECTED`] (`--secure-port`).
pub const ELECTED_PORTS: [u16; 2] = [10259, 10257];
/// The folder of the manifests of static pods (`staticPodPath` of the kubelet).
pub const MANIFESTS: &str = "/etc/kubernetes/manifests/";
/// The manifest of the API server.
pub const API_MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

/// The Deployments whose pods stand for the control plane of their hosts, by what runs there: members of etcd and API
/// servers, or one of the two. A drain that evicts such a pod asks their budget.
pub const QUORUM_PODS: [QuorumPods; 3] = [
    QuorumPods { name: "control-plane-quorum", etcd: true, api_server: true },
    QuorumPods { name: "api-server-quorum", etcd: false, api_server: true },
    QuorumPods { name: "etcd-quorum", etcd: true, api_server: false },
];

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct QuorumPods {
    /// Its name, with which the names of its pods begin.
    pub name: &'static str,
    /// Whether its hosts have a member of etcd.
    pub etcd: bool,
    /// Whether they have an API server.
    pub api_server: bool,
}

/// The budget of their pods.
pub const QUORUM_BUDGET: &str = "control-plane-quorum";

/// One of their pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumPod {
    /// Its Node; `None`: it waits for one, because its Node is cordoned.
    pub node: Option<HostName>,
    /// Whether the member of etcd and the API server of its host are ready.
    pub is_ready: bool,
}

impl QuorumPod {
    /// Reads a pod of the API. One that is being deleted is not ready.
    pub fn of(pod: &Value) -> Self {
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
        Self {
            node: pod.pointer("/spec/nodeName").and_then(Value::as_str).and_then(|name| name.parse().ok()),
            is_ready: ready && pod.pointer("/metadata/deletionTimestamp").is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_the_api_server_is_in_the_folder_and_has_its_name() {
        assert_eq!(API_MANIFEST, format!("{MANIFESTS}{API_SERVER}.yaml"));
    }
}
