//! The components of a control plane: one table of their names and of the manifests by which the kubelet runs them.
//!
//! Out: the name of each program, which is also that of its image, its container and its Lease.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_the_api_server_is_in_the_folder_and_has_its_name() {
        assert_eq!(API_MANIFEST, format!("{MANIFESTS}{API_SERVER}.yaml"));
    }
}
