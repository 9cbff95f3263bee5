//! Facts about hosts before they join a cluster, beyond those of every observation.
//!
//! In: replies of `hactl host` to a survey and to a connectivity test. Out: read by `observe::preflight`.

use super::foreign::Foreign;
use super::names::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The report of a host that is to join a cluster, or to run a service that it did not run before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Survey {
    /// Whether the kernel's clock is synchronised; `None`: not known.
    pub clock_synchronised: Option<bool>,
    /// The mode of SELinux: `enforcing`, `permissive`; `None`: there is no SELinux.
    pub selinux: Option<String>,
    /// Firewall managers that are active.
    pub firewalls: Vec<String>,
    /// Traces of another Kubernetes: what and where.
    pub others: Vec<String>,
    /// Size of a memory page.
    pub page_bytes: u64,
    /// Name servers of `/etc/resolv.conf`.
    pub nameservers: Vec<IpAddr>,
    /// MTU of the interface that has the host's address.
    pub mtu: Option<u32>,
    /// The 90th percentile of the time of a small durable write on etcd's disk, microseconds.
    pub fsync_us: Option<u64>,
    /// Whether the package manager asks for a reboot.
    pub reboot_required: bool,
    /// Directories for programs that are mounted noexec.
    pub noexec: Vec<String>,
    /// What others put at places that hactl uses.
    pub foreign: Vec<Foreign>,
}

/// A port or protocol between hosts that components use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Way {
    /// A TCP port.
    Tcp(u16),
    /// A UDP port.
    Udp(u16),
    /// IP protocol 112.
    Vrrp,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "{port}/tcp"),
            Self::Udp(port) => write!(f, "{port}/udp"),
            Self::Vrrp => f.write_str("IP protocol 112 (VRRP)"),
        }
    }
}

/// A tested connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The client.
    pub from: HostName,
    /// The server.
    pub to: HostName,
    /// The port or protocol.
    pub way: Way,
    /// Why it failed; `None`: it succeeded.
    pub trouble: Option<String>,
}

/// A finding of a preflight check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The stable name of the check, such as `time-synchronised`, for `preflight.ignore` in the inventory.
    pub check: &'static str,
    /// The hosts; empty if it is about the cluster.
    pub hosts: Vec<HostName>,
    /// Whether it stops the run.
    pub stops: bool,
    /// What was found and what it means.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.hosts.is_empty() {
            let hosts: Vec<&str> = self.hosts.iter().map(HostName::as_str).collect();
            write!(f, "{}: ", hosts.join(", "))?;
        }
        write!(f, "{}; {} [{}]", self.what, self.remedy, self.check)
    }
}

/// All preflight checks.
pub const CHECKS: [&str; 28] = [
    "own-address",
    "systemd",
    "surveyed",
    "ports-free",
    "services-free",
    "disk-space",
    "extra-mounts",
    "time-synchronised",
    "clocks-agree",
    "other-kubernetes",
    "exec-allowed",
    "cgroup-v2",
    "kernel",
    "memory",
    "processors",
    "etcd-disk",
    "page-size",
    "selinux",
    "reboot-pending",
    "name-servers",
    "resolver-loop",
    "machine-id",
    "vip-network",
    "vip-free",
    "mtu",
    "registries",
    "path-mtu",
    "paths",
];
