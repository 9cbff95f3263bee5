//! What an observation covers, and how the host's side reaches its own member and API server.

use crate::model::certificate::CertificatesAsk;
use crate::model::names::UnitName;
use crate::model::target::{CertSpec, Part};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What an observation should cover.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ObserveAsk {
    /// Files, absolute paths.
    pub files: Vec<String>,
    /// Folders in which every file that hactl wrote is wanted as well: those that say so in their first line.
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
    /// Ports whose listeners are wanted.
    pub ports: Vec<u16>,
    /// Whether the firewall's openings are wanted.
    pub firewall: bool,
    /// etcd, on etcd hosts.
    pub etcd: Option<EtcdAsk>,
    /// Whether is wanted what lies on the disk though its member speaks, and what was moved aside: reading it takes a moment.
    pub disk: bool,
    /// The API, on control-plane hosts.
    pub api: Option<ApiAsk>,
    /// DNS service address to ask from inside a pod, on Nodes.
    pub dns: Option<IpAddr>,
}

/// How the host's side reaches its own etcd member.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// How the host's side reaches its own API server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiAsk {
    /// The API server's own address and port.
    pub own: (IpAddr, u16),
    /// The endpoint, host and port; `None`: do not ask through it.
    pub endpoint: Option<(String, u16)>,
    /// CA certificate path.
    pub ca: String,
    /// Client certificate path.
    pub cert: String,
    /// Client key path.
    pub key: String,
    /// Objects wanted, as [`crate::model::target::object_key`] makes them.
    pub objects: Vec<String>,
}
