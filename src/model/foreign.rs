//! What may be on a host before hactl, at the places that hactl uses: files, programs, services and directories.
//!
//! In: constants, and replies of `hactl host` to a survey. Out: read by the agent, which replaces no file of others
//! without a copy and deletes no directory that was in use before hactl, and by the preflight checks.

use serde::{Deserialize, Serialize};

/// The beginning of every file that hactl writes where others may write, too.
pub const WRITTEN: &str = "# Written by hactl";
/// The end of the name under which hactl keeps a file of others that it replaces.
pub const COPY: &str = ".before-hactl";

/// A file that hactl writes and that others may have written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Its path.
    pub path: &'static str,
    /// The service that reads it.
    pub service: &'static str,
    /// A file that only hactl writes. Where it exists, the service is hactl's.
    pub mark: &'static str,
}

impl Shared {
    /// The path of hactl's unit of the service; a unit that a package brings is elsewhere.
    pub fn unit_path(&self) -> String {
        format!("/etc/systemd/system/{}", self.service)
    }
}

const fn shared(path: &'static str, service: &'static str, mark: &'static str) -> Shared {
    Shared { path, service, mark }
}

const OF_HAPROXY: &str = "/etc/systemd/system/haproxy.service.d/50-hactl.conf";
const OF_KEEPALIVED: &str = "/etc/systemd/system/keepalived.service.d/50-hactl.conf";
const OF_NODES: &str = "/etc/hactl/kubelet-registration.env";
const OF_ETCD: &str = "/etc/systemd/system/etcd.service.d/10-fence.conf";

/// All files that hactl shares with others. The names of all other files show that they are hactl's, or they are below
/// one of [`FOLDERS`].
pub const SHARED: [Shared; 8] = [
    shared("/etc/haproxy/haproxy.cfg", "haproxy.service", OF_HAPROXY),
    shared("/etc/keepalived/keepalived.conf", "keepalived.service", OF_KEEPALIVED),
    shared("/etc/containerd/config.toml", CONTAINERD, OF_NODES),
    shared("/etc/systemd/system/containerd.service", CONTAINERD, OF_NODES),
    shared("/var/lib/kubelet/config.yaml", "kubelet.service", OF_NODES),
    shared("/etc/systemd/system/kubelet.service", "kubelet.service", OF_NODES),
    shared("/etc/etcd/etcd.env", "etcd.service", OF_ETCD),
    shared("/etc/systemd/system/etcd.service", "etcd.service", OF_ETCD),
];

/// containerd's service, which Docker uses, too.
pub const CONTAINERD: &str = "containerd.service";
/// Docker's service.
pub const DOCKER: &str = "docker.service";
/// The socket that starts Docker's service for its first client.
pub const DOCKER_SOCKET: &str = "docker.socket";
/// containerd's socket.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Directories that hactl uses as a whole, although others may have used them before.
pub const FOLDERS: [&str; 9] = [
    "/etc/containerd",
    "/etc/etcd",
    "/etc/kubernetes",
    "/opt/cni/bin",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/log/kubernetes",
];

/// The shared file at a path.
pub fn shared_at(path: &str) -> Option<&'static Shared> {
    SHARED.iter().find(|shared| shared.path == path)
}

/// Something at a place that hactl uses, and that is not hactl's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// A file, a directory or a socket.
    pub path: String,
    /// The service or the process that uses it, now or from the next boot on; `None`: none does.
    pub used_by: Option<String>,
}
