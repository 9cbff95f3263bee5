//! The desired state: what an inventory asks for, checked, with every default filled in.
//!
//! In: built by `inventory/`. Out: read by `render/`, `pki/`, `plan/` and the workflows. Holds no secret.

use super::bucket::{Destination, StorageSettings};
use super::drill::Period;
use super::firewall::Firewall;
use super::healing::Healing;
use super::hosting::Hosting;
use super::names::{ClusterName, HostName, PeerUrl, PluginName};
use super::snapshot::Keep;
pub use super::ssh_target::{Agent, SshTarget};
use ipnet::{IpAdd as _, IpNet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// Everything the inventory asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// Versions of components.
    pub versions: Versions,
    /// How clients reach the API.
    pub endpoint: Endpoint,
    /// Where each API server listens on its host's own address.
    pub api_port: u16,
    /// The hosts, in the order of the inventory.
    pub hosts: Vec<Host>,
    /// Hosts that are no longer in the inventory and may be removed, as the inventory described them.
    pub leaving: Vec<Host>,
    /// Pod and service networks.
    pub network: Network,
    /// Control-plane settings.
    pub control_plane: ControlPlane,
    /// etcd settings.
    pub etcd: EtcdSettings,
    /// Snapshots.
    pub snapshots: Snapshots,
    /// How the control plane is delivered.
    #[serde(default)]
    pub hosting: Hosting,
    /// The guards.
    pub healing: Healing,
    /// Whether each host serves the metrics of its components to readers.
    #[serde(default)]
    pub metrics: bool,
    /// How workers are upgraded.
    pub upgrade: Upgrade,
    /// For so many days after a run, hosts renew their own certificates; `None`: never.
    pub unattended_days: Option<u32>,
    /// Extra JWT authenticators, passed through into the AuthenticationConfiguration.
    pub jwt: Vec<serde_json::Value>,
    /// Registry mirrors: registry host to mirror URLs.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Files whose contents are read separately, because some are secret.
    pub named: Named,
    /// Proxy for downloads by the hosts themselves.
    pub proxy: Proxy,
    /// Whether haproxy, keepalived and nftables are installed from the bundle alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundled_packages: bool,
    /// Whether hactl changes the hosts' firewalls.
    pub firewall: Firewall,
    /// Manifests of the user, files or directories, applied last. Absolute.
    pub manifests: Vec<PathBuf>,
    /// Settings passed to components unchanged.
    pub extra: Extra,
    /// Preflight checks that warn instead of stopping the run.
    pub ignored_checks: BTreeSet<String>,
}

/// Versions, always without a leading `v`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Kubernetes, such as `1.36.3`.
    pub kubernetes: String,
    /// etcd, if the inventory names one; otherwise that of the bundle.
    pub etcd: Option<String>,
    /// containerd, if the inventory names one; otherwise that of the bundle.
    pub containerd: Option<String>,
    /// Whether the inventory names no version of Kubernetes, so that it is the default of this hactl.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
}

/// How workers are upgraded to another version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgrade {
    /// The most workers that are unavailable at once.
    pub max_unavailable: u32,
    /// Timeout of the drain of a worker, seconds.
    pub drain_timeout_s: u32,
}

impl Default for Upgrade {
    fn default() -> Self {
        Self { max_unavailable: 1, drain_timeout_s: 300 }
    }
}

/// Snapshots: interval, retention, copies and recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshots {
    /// Interval on each host, seconds.
    pub every_s: u64,
    /// Retention.
    pub keep: Keep,
    /// Where a copy of each snapshot is stored.
    pub to: Vec<Destination>,
    /// Settings of the object storage among them; `None`: there is none.
    pub storage: Option<StorageSettings>,
    /// age public keys that snapshots are encrypted to, besides that of the state directory.
    pub recipients: Vec<String>,
    /// How often each host restores its newest snapshot as a drill; `None`: never.
    pub drill: Option<Period>,
}

impl Default for Snapshots {
    fn default() -> Self {
        Self {
            every_s: 900,
            keep: Keep { last: 96, daily: 14, weekly: 8 },
            to: Vec::new(),
            storage: None,
            recipients: Vec::new(),
            drill: None,
        }
    }
}

/// The readiness check of an API server: `/readyz` without the two hooks that compare built-in roles and priority
/// classes with those in etcd one by one. They take seconds at each start, during which the API server serves with the
/// stored ones.
pub const SERVES: &str = "/readyz?exclude=poststarthook/rbac/bootstrap-roles&exclude=poststarthook/scheduling/bootstrap-system-priority-classes";

/// Where clients reach the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The kind of endpoint.
    pub kind: EndpointKind,
    /// The port clients use.
    pub port: u16,
    /// More names and addresses for the API servers' certificates.
    pub sans: Vec<String>,
}

/// The kind of endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointKind {
    /// A VIP: keepalived moves it between the load balancers; haproxy listens on it.
    Vip {
        /// The address.
        address: IpAddr,
        /// Its interface; `None`: the interface of the host's address.
        interface: Option<String>,
        /// The VRRP router id, 1 to 255.
        vrid: u8,
    },
    /// An external load balancer, by name or address.
    External(String),
    /// Every node has a load balancer on loopback. People use `name`, or the address of an API server.
    Local {
        /// A DNS name that resolves to the control-plane hosts.
        name: Option<String>,
    },
}

impl Endpoint {
    /// The host part of the endpoint's URL, as nodes use it.
    pub fn host(&self) -> String {
        match &self.kind {
            EndpointKind::Vip { address, .. } => address.to_string(),
            EndpointKind::External(host) => host.clone(),
            EndpointKind::Local { .. } => "127.0.0.1".to_owned(),
        }
    }
    /// The endpoint as a URL, as nodes use it.
    pub fn url(&self) -> String {
        url(&self.host(), self.port)
    }
}

fn url(host: &str, port: u16) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// API server, scheduler, controller manager, kubelet.
    ControlPlane,
    /// An etcd member.
    Etcd,
    /// haproxy and keepalived for the endpoint.
    LoadBalancer,
    /// A kubelet for workloads.
    Worker,
    /// Reachable and prepared, but without any part of the cluster yet.
    Spare,
}

/// An unknown role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role")]
pub struct NoRole(pub String);

impl std::str::FromStr for Role {
    type Err = NoRole;

    fn from_str(text: &str) -> Result<Self, NoRole> {
        let all = [Self::ControlPlane, Self::Etcd, Self::LoadBalancer, Self::Worker, Self::Spare];
        all.into_iter().find(|role| role.to_string() == text).ok_or_else(|| NoRole(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlPlane => "control-plane",
            Self::Etcd => "etcd",
            Self::LoadBalancer => "load-balancer",
            Self::Worker => "worker",
            Self::Spare => "spare",
        })
    }
}

/// One host of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The name of the Node and of the etcd member.
    pub name: HostName,
    /// The address that components bind to, advertise and have in their certificates.
    pub address: IpAddr,
    /// How to reach it.
    pub ssh: SshTarget,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Failure domain.
    pub zone: Option<String>,
    /// Node labels.
    pub labels: BTreeMap<String, String>,
    /// Node taints, `key=value:Effect`.
    pub taints: Vec<String>,
    /// Whether it takes over the vote of an etcd host that is gone: see [`super::standby`].
    #[serde(default)]
    pub standby: bool,
    /// The plug-in that switches its power; `None`: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PluginName>,
}

impl Host {
    /// Whether the host has this role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
    /// Whether a kubelet runs here.
    pub fn is_node(&self) -> bool {
        self.is(Role::ControlPlane) || self.is(Role::Worker)
    }
    /// Whether any component runs here, or shall once a guard needs it: not on a spare host that does not stand by.
    pub fn has_components(&self) -> bool {
        self.standby || !self.roles.iter().all(|role| *role == Role::Spare)
    }
    /// The peer URL of the member on this host.
    pub fn peer_url(&self) -> PeerUrl {
        PeerUrl::of(self.address)
    }
}

/// Pod and service networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Pod CIDR.
    pub pods: Cidr,
    /// Service CIDR.
    pub services: Cidr,
    /// The CNI plugin.
    pub cni: Cni,
    /// Interface MTU for pods; `None`: derived by the plugin.
    pub mtu: Option<u16>,
    /// The implementation of Services.
    pub kube_proxy: KubeProxy,
}

impl Network {
    /// Whether hactl installs everything that pods need to reach each other and Services.
    pub fn is_whole(&self) -> bool {
        self.cni == Cni::Flannel && self.kube_proxy == KubeProxy::Nftables
    }
}

/// The CNI plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cni {
    /// flannel with VXLAN, installed by hactl.
    Flannel,
    /// Nothing: nodes stay `NotReady` until the user installs a plugin.
    None,
}

/// The implementation of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KubeProxy {
    /// kube-proxy in nftables mode.
    Nftables,
    /// None: the CNI plugin implements them.
    None,
}

/// An address range; a single address has all bits in its prefix. In files and messages it is a mapping, not a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cidr {
    /// The network address.
    pub base: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

impl Cidr {
    /// The range of one address.
    pub fn single(base: IpAddr) -> Self {
        IpNet::from(base).into()
    }
    /// Whether it contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        IpNet::new(self.base, self.prefix).is_ok_and(|net| net.contains(&address))
    }
    /// Whether the two ranges share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.base) || other.contains(self.base)
    }
    /// The `n`-th address after the base, such as the 10th of the service range for DNS.
    pub fn nth(&self, n: u32) -> IpAddr {
        match self.base {
            IpAddr::V4(base) => base.saturating_add(n).into(),
            IpAddr::V6(base) => base.saturating_add(n.into()).into(),
        }
    }
}

impl From<IpNet> for Cidr {
    fn from(net: IpNet) -> Self {
        Self { base: net.addr(), prefix: net.prefix_len() }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// Control-plane settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlane {
    /// Whether ordinary pods may run on control-plane nodes.
    pub schedulable: bool,
    /// The set of hardening defaults.
    pub security: Security,
}

/// Hardening defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Security {
    /// All settings that work on any cluster.
    Baseline,
    /// Also settings that need a registry or change common behaviour, such as AlwaysPullImages.
    Cis,
}

/// etcd settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdSettings {
    /// Data directory.
    pub data_dir: PathBuf,
    /// Backend quota in GiB, [`MOST_QUOTA_GIB`] at the most.
    pub quota_gib: u32,
}

/// The largest quota of etcd's database, GiB: etcd is tested with 8.
pub const MOST_QUOTA_GIB: u32 = 64;

/// Proxy for downloads by the hosts themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Proxy {
    /// For http URLs; empty: none.
    pub http: String,
    /// For https URLs; empty: none.
    pub https: String,
    /// Exceptions; hosts, VIP, ranges and `.svc` are added by hactl.
    pub no_proxy: Vec<String>,
}

/// Files of the administrator that the inventory names. Absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Named {
    /// Registry or mirror, as host or host:port, to the CA of its certificate.
    pub registry_authorities: BTreeMap<String, PathBuf>,
    /// Registry or mirror, as host or host:port, to the file with `user:password` for it.
    pub registry_logins: BTreeMap<String, PathBuf>,
    /// CAs and keys supplied by the administrator, for the bootstrap.
    pub pki: BroughtPki,
}

/// CAs and keys that a cluster is bootstrapped with instead of generated ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BroughtPki {
    /// The cluster CA of Kubernetes.
    pub cluster: Option<BroughtAuthority>,
    /// The etcd CA.
    pub etcd: Option<BroughtAuthority>,
    /// The front proxy CA, for calls to aggregated API servers.
    pub front_proxy: Option<BroughtAuthority>,
    /// The private key that signs service account tokens.
    pub service_account: Option<PathBuf>,
}

/// A CA supplied by the administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroughtAuthority {
    /// Its certificate, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// Settings passed to components unchanged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Extra {
    /// Component to further command-line flags (without dashes).
    pub args: BTreeMap<String, BTreeMap<String, String>>,
    /// Merged over the KubeletConfiguration.
    pub kubelet_config: serde_json::Map<String, serde_json::Value>,
    /// Merged over the KubeProxyConfiguration.
    pub kube_proxy_config: serde_json::Map<String, serde_json::Value>,
    /// Component to files and directories of the host that its static pod may read, at the same path.
    pub mounts: BTreeMap<String, Vec<String>>,
    /// Merged over containerd's configuration.
    pub containerd_config: serde_json::Map<String, serde_json::Value>,
    /// containerd's `restrict_oom_score_adj`, for hosts without CAP_SYS_RESOURCE.
    pub restrict_oom_score_adj: bool,
}

impl Desired {
    /// The hosts that have a role, in the inventory's order.
    pub fn with(&self, role: Role) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(move |h| h.is(role))
    }
    /// All hosts to connect to: those of the inventory, then those to be removed.
    pub fn entered(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().chain(&self.leaving)
    }
    /// A host that is to be removed, by name.
    pub fn leaver(&self, name: &HostName) -> Option<&Host> {
        self.leaving.iter().find(|h| &h.name == name)
    }
    /// A host by name.
    pub fn host(&self, name: &HostName) -> Option<&Host> {
        self.hosts.iter().find(|h| &h.name == name)
    }
    /// The URL of the API for people: the endpoint; if that is on loopback, its DNS name or the first API server.
    pub fn url_for_people(&self) -> String {
        let EndpointKind::Local { name } = &self.endpoint.kind else { return self.endpoint.url() };
        let first = self.with(Role::ControlPlane).next().map(|h| h.address.to_string());
        url(&name.clone().or(first).unwrap_or_else(|| self.endpoint.host()), self.api_port)
    }
    /// The URL of the API server of a control-plane host.
    pub fn url_of(&self, host: &Host) -> String {
        url(&host.address.to_string(), self.api_port)
    }
    /// Whether haproxy for the endpoint runs on a host: on load balancers, or with a local endpoint on every node.
    pub fn balances(&self, host: &Host) -> bool {
        match self.endpoint.kind {
            EndpointKind::Vip { .. } => host.is(Role::LoadBalancer),
            EndpointKind::External(_) => false,
            EndpointKind::Local { .. } => host.is_node(),
        }
    }
    /// The cluster's DNS service address: the tenth of the service range.
    pub fn dns_address(&self) -> IpAddr {
        self.network.services.nth(10)
    }
}

/// A small desired state for tests: `n` hosts `cp1`.. with every control-plane role.
#[cfg(test)]
pub fn sample(n: u8) -> Desired {
    let host = |i: u8| Host {
        name: format!("cp{i}").parse().expect("a valid name"),
        address: IpAddr::from([10, 88, 0, 10 + i]),
        ssh: SshTarget::new(format!("10.88.0.{}", 10 + i), "ops"),
        roles: vec![Role::ControlPlane, Role::Etcd, Role::LoadBalancer],
        zone: None,
        labels: BTreeMap::new(),
        taints: vec![],
        standby: false,
        power: None,
    };
    Desired {
        cluster: "lab".parse().expect("a valid name"),
        versions: Versions { kubernetes: "1.36.3".to_owned(), etcd: None, containerd: None, is_default: false },
        endpoint: Endpoint {
            kind: EndpointKind::Vip { address: IpAddr::from([10, 88, 0, 100]), interface: None, vrid: 51 },
            port: 6443,
            sans: vec![],
        },
        api_port: 6443,
        hosts: (1..=n).map(host).collect(),
        leaving: vec![],
        network: Network {
            pods: Cidr { base: IpAddr::from([10, 244, 0, 0]), prefix: 16 },
            services: Cidr { base: IpAddr::from([10, 96, 0, 0]), prefix: 12 },
            cni: Cni::Flannel,
            mtu: None,
            kube_proxy: KubeProxy::Nftables,
        },
        control_plane: ControlPlane { schedulable: false, security: Security::Baseline },
        etcd: EtcdSettings { data_dir: PathBuf::from("/var/lib/etcd"), quota_gib: 8 },
        snapshots: Snapshots::default(),
        hosting: Hosting::default(),
        healing: Healing::default(),
        metrics: false,
        upgrade: Upgrade::default(),
        unattended_days: None,
        jwt: vec![],
        mirrors: BTreeMap::new(),
        named: Named::default(),
        proxy: Proxy::default(),
        bundled_packages: false,
        firewall: Firewall::Report,
        manifests: vec![],
        extra: Extra::default(),
        ignored_checks: BTreeSet::new(),
    }
}
