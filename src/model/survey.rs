//! What is found out about hosts before they become part of a cluster, beyond the facts of every observation.
//!
//! In: answers of `hactl host` to a survey and to knocks from one another. Out: read by `observe::preflight`.

use super::names::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// What a host says of itself when it is to become part of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Survey {
    /// Whether the kernel's clock is disciplined by somebody; `None`: nobody could say.
    pub clock_synchronised: Option<bool>,
    /// SELinux' mode: `enforcing`, `permissive`; `None` where there is none.
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
    /// How long the disk below etcd's data takes to make a small write durable: nine of ten are faster. Microseconds.
    pub fsync_us: Option<u64>,
    /// Whether the package manager asks for a reboot.
    pub reboot_required: bool,
    /// Directories that programs must run from and that are mounted noexec.
    pub noexec: Vec<String>,
}

/// A way from one host to another that components will use.
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

/// A way that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// Who knocked.
    pub from: HostName,
    /// Who was to hear it.
    pub to: HostName,
    /// On which way.
    pub way: Way,
    /// Why it did not get through; `None`: it did.
    pub trouble: Option<String>,
}

/// Something found before anything was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's stable name, such as `time-synchronised`; the inventory's `preflight.ignore` takes it.
    pub check: &'static str,
    /// Where; empty when it is about the cluster.
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

/// Every check that is made before anything is changed.
pub const CHECKS: [&str; 24] = [
    "own-address",
    "ports-free",
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
    "resolver-loop",
    "machine-id",
    "vip-network",
    "vip-free",
    "mtu",
    "registries",
    "path-mtu",
    "paths",
];
