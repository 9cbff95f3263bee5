//! What an observation covers, and how the agent reaches its own member and API server.

use crate::model::certificate::CertificatesAsk;
use crate::model::names::UnitName;
use crate::model::target::{CertSpec, Part};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The scope of an observation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct ObserveAsk {
    /// Files, absolute paths.
    pub files: Vec<String>,
    /// Directories of which every file written by hactl is observed as well: those that say so in their first line.
    pub folders: Vec<String>,
    /// Parts that should be there.
    pub parts: Vec<Part>,
    /// Units.
    pub units: Vec<UnitName>,
    /// Leaf certificates.
    pub leaves: Vec<CertSpec>,
    /// Other certificates.
    pub certificates: CertificatesAsk,
    /// Whether to list containerd's images.
    pub images: bool,
    /// Programs, absolute paths.
    pub programs: Vec<String>,
    /// Kernel settings.
    pub sysctls: Vec<String>,
    /// Ports whose listeners are observed.
    pub ports: Vec<u16>,
    /// Whether the openings of the firewall are observed.
    pub firewall: bool,
    /// etcd, on etcd hosts.
    pub etcd: Option<EtcdAsk>,
    /// Whether the data on the disk is read even if its member serves, and the archived data too: reading it takes a
    /// while.
    pub disk: bool,
    /// The API, on control-plane hosts.
    pub api: Option<ApiAsk>,
    /// DNS service address to query from inside a pod, on Nodes.
    pub dns: Option<IpAddr>,
    /// Whether the report of the guard is read.
    pub guard: bool,
    /// The API server of a host that may have been self-hosted.
    pub hosting: Option<(IpAddr, u16)>,
}

/// How the agent reaches its own etcd member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdAsk {
    /// Client URL, `https://127.0.0.1:2379`.
    pub url: String,
    /// Data directory.
    pub data_dir: String,
    /// CA certificate.
    pub ca: String,
    /// Client certificate.
    pub cert: String,
    /// Client key.
    pub key: String,
}

impl EtcdAsk {
    /// How every host reaches its own member, whose data is in this directory.
    pub fn own(data_dir: impl Into<String>) -> Self {
        Self {
            url: "https://127.0.0.1:2379".to_owned(),
            data_dir: data_dir.into(),
            ca: "/etc/etcd/pki/ca.crt".to_owned(),
            cert: "/etc/etcd/pki/observer.crt".to_owned(),
            key: "/etc/etcd/pki/observer.key".to_owned(),
        }
    }
}

/// How the agent reaches its own API server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiAsk {
    /// The API server's own address and port.
    pub own: (IpAddr, u16),
    /// The endpoint, host and port; `None`: do not query through it.
    pub endpoint: Option<(String, u16)>,
    /// CA certificate path.
    pub ca: String,
    /// Client certificate path.
    pub cert: String,
    /// Client key path.
    pub key: String,
    /// The observed objects, as [`crate::model::target::object_key`] makes them.
    pub objects: Vec<String>,
    /// Whether to read what may deny pods of the control plane.
    pub may_deny: bool,
}
