//! The target: the wanted files, parts and settings of each host, as digests and predicates, without contents or
//! secrets.
//!
//! In: made by `render/`, `pki/` and `component/` from the desired state. Out: compared with facts by `plan/`.

use super::firewall::Opening;
use super::hosting::ADDON;
use super::labels::REVISION;
use super::names::{Digest, HostName, UnitName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Where a kubelet keeps its certificate as a client of the API, and the key: its own link to the newest.
pub const KUBELET_CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// Where a kubelet keeps its serving certificate: its own link to the newest.
pub const KUBELET_SERVES_WITH: &str = "/var/lib/kubelet/pki/kubelet-server-current.pem";

/// The target of all hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Each host of the inventory.
    pub hosts: BTreeMap<HostName, HostTarget>,
    /// Kubernetes objects, in the order they are applied.
    pub addons: Vec<Addon>,
}

impl Target {
    /// The revision of the `DaemonSets` of a self-hosted control plane; `None`: it has none.
    pub fn revision(&self) -> Option<&str> {
        let addon = self.addons.iter().find(|addon| addon.name == ADDON)?;
        let annotations = addon.objects.first()?.pointer("/spec/template/metadata/annotations")?;
        annotations.get(REVISION).and_then(serde_json::Value::as_str)
    }
}

/// The target of one host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostTarget {
    /// Programs, images and packages.
    pub parts: Vec<Part>,
    /// Files, by set.
    pub sets: BTreeMap<FileSet, SetTarget>,
    /// Leaf certificates.
    pub leaves: Vec<CertSpec>,
    /// Kernel settings: sysctl name to value.
    pub sysctls: BTreeMap<String, String>,
    /// Directories and other paths that preparation creates.
    pub paths: Vec<String>,
    /// Programs from packages of the host's distribution: path to package name.
    pub packages: BTreeMap<String, String>,
    /// The distributions whose packages the bundle has, if packages come from the bundle. Those of the host's are one
    /// of its parts, if it needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundled: Option<BTreeSet<String>>,
    /// What its firewall has to let in, if hactl manages that.
    pub openings: Option<BTreeSet<Opening>>,
}

/// A component of a bundle, as delivered to a host; its name is one of the component table's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Component name, such as `kubelet`.
    pub name: String,
    /// Version without the `v`; of packages, the distribution, such as `debian-12`.
    pub version: String,
    /// Digest of the content, uncompressed.
    pub digest: Digest,
    /// Size uncompressed, bytes.
    pub size: u64,
    /// Digest of the compressed form, as sent.
    pub sent_digest: Digest,
    /// Size as sent, bytes.
    pub sent_size: u64,
    /// How it is installed.
    pub place: Place,
}

/// How a part is installed on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Place {
    /// An executable at `/var/lib/hactl/parts/<digest>/<name>`. The component table on the host defines its link.
    Program,
    /// An OCI archive imported into containerd under this reference, pinned against garbage collection.
    Image {
        /// Full reference with tag.
        reference: String,
    },
    /// A repository from which the package manager installs.
    Packages,
}

impl Part {
    /// The path of the part's content on a host.
    pub fn path(&self) -> String {
        part_path(&self.digest, &self.name)
    }
}

/// The path of a part's content on a host: content-addressed, so that several versions can be installed.
pub fn part_path(digest: &Digest, name: &str) -> String {
    format!("/var/lib/hactl/parts/{}/{name}", digest.hex())
}

/// Where a host records the packages whose installation was completed: a program alone may be from an interrupted one.
pub const INSTALLED: &str = "/var/lib/hactl/packages";

/// The packages of which a program is missing on the host, among those that bring these paths.
pub fn missing_packages<'a>(
    packages: &'a BTreeMap<String, String>,
    programs: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    let lacks = move |(path, _): &(&String, &String)| !path.starts_with(INSTALLED) && !programs.contains(*path);
    packages.iter().filter(lacks).map(|(_, package)| package)
}

/// Files that are written together and read by one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSet {
    /// Kernel modules, sysctls, NetworkManager drop-in, /etc/crictl.yaml.
    Os,
    /// CA certificates and other files that several units read; changing them restarts no unit.
    Trust,
    /// etcd's unit and settings.
    Etcd,
    /// The drop-in that prevents etcd from starting on data that must not vote, and the unit that records positions.
    /// They contain the path of hactl and so change with every release. That must restart no member: systemd reloads
    /// them, and they apply at the next start.
    Fence,
    /// The loopback haproxy in front of etcd.
    EtcdBalancer,
    /// containerd's unit and configuration, CNI.
    Runtime,
    /// Where images come from; read at every pull, so that changing them restarts nothing.
    Registries,
    /// kubelet's unit, configuration and kubeconfig.
    Kubelet,
    /// Encryption, audit, admission and authentication configuration; kubeconfigs of the control plane.
    ControlPlaneConfig,
    /// The static pods.
    ControlPlane,
    /// haproxy for the endpoint.
    LoadBalancer,
    /// The packet filter that accepts VRRP only from the other load balancers.
    VrrpFilter,
    /// keepalived.
    Keepalived,
    /// The approver of kubelet serving certificates.
    Approver,
    /// The encrypted state directory.
    State,
    /// The service and timer of snapshots.
    Snapshots,
    /// The service and timer that renew the host's certificates with local issuing CAs, if the inventory asks for it.
    Renewal,
    /// The service and timer of restore drills, if the inventory asks for them.
    Drills,
    /// The guard, if the inventory asks for it.
    Guard,
    /// The keeper of a self-hosted control plane, if the inventory asks for one.
    Hosting,
    /// The node agent, if the inventory asks for guards.
    NodeAgent,
    /// What serves the metrics of the host's components, if the inventory asks for them.
    Metrics,
    /// Files of a former load balancer.
    FormerBalancer,
    /// Files of a former control plane, in particular its keys.
    FormerControlPlane,
    /// Files of a former etcd member; its data is stored elsewhere.
    FormerEtcd,
    /// Files of a former Node.
    FormerNode,
}

impl FileSet {
    /// Sets of former roles of a host. Files of these sets are never wanted.
    pub const FORMER: [Self; 4] = [Self::FormerBalancer, Self::FormerControlPlane, Self::FormerEtcd, Self::FormerNode];

    /// Whether it is of a former role of the host: its files are removed, and never read.
    pub fn is_former(self) -> bool {
        Self::FORMER.contains(&self)
    }

    /// Whether its unit serves clients: then new files are on trial on one host before the next host gets them.
    pub fn serves(self) -> bool {
        let apart = [
            Self::VrrpFilter,
            Self::Approver,
            Self::Fence,
            Self::Snapshots,
            Self::Renewal,
            Self::Drills,
            Self::Guard,
            Self::Hosting,
            Self::NodeAgent,
            Self::Metrics,
        ];
        !self.is_former() && !apart.contains(&self)
    }
}

impl fmt::Display for FileSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Os => "host settings",
            Self::Trust => "CA certificates",
            Self::Etcd => "etcd",
            Self::Fence => "etcd fence",
            Self::EtcdBalancer => "etcd balancer",
            Self::Runtime => "container runtime",
            Self::Registries => "registry settings",
            Self::Kubelet => "kubelet",
            Self::ControlPlaneConfig => "control-plane configuration",
            Self::ControlPlane => "static pods",
            Self::LoadBalancer => "load balancer",
            Self::VrrpFilter => "VRRP filter",
            Self::Keepalived => "keepalived",
            Self::Approver => "certificate approver",
            Self::State => "encrypted state",
            Self::Snapshots => "snapshots",
            Self::Renewal => "certificate renewal",
            Self::Drills => "restore drills",
            Self::Guard => "guard",
            Self::Hosting => "self-hosting",
            Self::NodeAgent => "node agent",
            Self::Metrics => "metrics",
            Self::FormerBalancer => "the former load balancer",
            Self::FormerControlPlane => "the former control plane",
            Self::FormerEtcd => "the former etcd member",
            Self::FormerNode => "the former Node",
        })
    }
}

/// The files of a set and the unit that reads them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SetTarget {
    /// The files.
    pub files: Vec<FileTarget>,
    /// The unit that uses these files.
    pub unit: Option<UnitName>,
    /// Whether the unit can reload new files; otherwise it is restarted.
    pub reload: bool,
    /// Certificates that the unit reads only when it starts or reloads; most programs reload theirs automatically.
    pub reads: Vec<CertId>,
    /// Directories that belong to this set: other files in them are removed.
    pub folders: Vec<String>,
    /// Other paths that belonged to this set: removed if they exist, in this order.
    pub own: Vec<String>,
    /// Those of them that only hactl writes, while others may not be hactl's: unless one of these exists, none is
    /// removed. They are removed last. Empty: every path is known to be hactl's.
    pub told_by: Vec<String>,
}

impl SetTarget {
    /// Whether the files at its paths belong to this set, judged by which files exist.
    pub fn is_told(&self, there: impl Fn(&String) -> bool) -> bool {
        self.told_by.is_empty() || self.told_by.iter().any(there)
    }
}

/// A file by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTarget {
    /// Absolute path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name; the group is the owner's.
    pub owner: String,
    /// SHA-256 of the content.
    pub digest: Digest,
}

/// A leaf certificate of the certificate table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertId {
    /// etcd's serving certificate for clients.
    EtcdServer,
    /// etcd's peer certificate.
    EtcdPeer,
    /// Client certificate of `hactl host` for the local etcd member.
    EtcdObserver,
    /// Client certificate of the API server for etcd.
    ApiserverEtcdClient,
    /// Serving certificate of the API server.
    Apiserver,
    /// Client certificate of the API server for kubelets.
    ApiserverKubeletClient,
    /// Client certificate of the API server for aggregated API servers.
    FrontProxyClient,
    /// Client certificate of the controller manager.
    ControllerManager,
    /// Client certificate of the scheduler.
    Scheduler,
    /// The kubelet's first client certificate; the kubelet rotates it from then on.
    Kubelet,
    /// Client certificate of `hactl host` for the API, read-only.
    Observer,
    /// Client certificate of the approver of kubelet serving certificates.
    Approver,
    /// Signs the manifests of the host's snapshots. It authenticates no client.
    SnapshotSigner,
    /// By which the guard of the host authenticates to the others, as a client and as a server.
    Guard,
    /// By which the host serves the metrics of its components, and reads those of the scheduler.
    Metrics,
    /// The issuing CA of the host below the cluster CA.
    ClusterIssuer,
    /// The issuing CA of the host below the etcd CA.
    EtcdIssuer,
    /// The issuing CA of the host below the front proxy CA.
    FrontProxyIssuer,
}

impl CertId {
    /// All of them, in the order of the certificate table.
    pub const ALL: [Self; 18] = [
        Self::EtcdServer,
        Self::EtcdPeer,
        Self::EtcdObserver,
        Self::ApiserverEtcdClient,
        Self::Apiserver,
        Self::ApiserverKubeletClient,
        Self::FrontProxyClient,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
        Self::Observer,
        Self::Approver,
        Self::SnapshotSigner,
        Self::Guard,
        Self::Metrics,
        Self::ClusterIssuer,
        Self::EtcdIssuer,
        Self::FrontProxyIssuer,
    ];

    /// The issuing CAs of a host.
    pub const ISSUERS: [Self; 3] = [Self::ClusterIssuer, Self::EtcdIssuer, Self::FrontProxyIssuer];

    /// Whether it is an issuing CA of a host, and used for nothing else.
    pub fn issues(self) -> bool {
        Self::ISSUERS.contains(&self)
    }

    /// Whether an issuing CA of the host may renew it. Certificates that sign others, or data stored elsewhere, are
    /// signed only by the CA.
    pub fn may_be_renewed_by_its_host(self) -> bool {
        !self.issues() && self != Self::SnapshotSigner
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.to_string() == name)
    }
}

impl fmt::Display for CertId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EtcdServer => "etcd-server",
            Self::EtcdPeer => "etcd-peer",
            Self::EtcdObserver => "etcd-observer",
            Self::ApiserverEtcdClient => "apiserver-etcd-client",
            Self::Apiserver => "apiserver",
            Self::ApiserverKubeletClient => "apiserver-kubelet-client",
            Self::FrontProxyClient => "front-proxy-client",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Kubelet => "kubelet",
            Self::Observer => "observer",
            Self::Approver => "approver",
            Self::SnapshotSigner => "snapshot-signer",
            Self::Guard => "guard",
            Self::Metrics => "metrics",
            Self::ClusterIssuer => "cluster-issuer",
            Self::EtcdIssuer => "etcd-issuer",
            Self::FrontProxyIssuer => "front-proxy-issuer",
        })
    }
}

/// The CA that signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaId {
    /// The cluster CA of Kubernetes.
    Cluster,
    /// etcd's clients, servers and peers.
    Etcd,
    /// Aggregated API servers.
    FrontProxy,
}

/// A leaf certificate as wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertSpec {
    /// Which one.
    pub id: CertId,
    /// The CA that signs it.
    pub ca: CaId,
    /// The key identifier of the CA, hexadecimal: a certificate of another CA is replaced.
    pub authority: String,
    /// Common name.
    pub common_name: String,
    /// Organisations, sorted.
    pub organizations: Vec<String>,
    /// Subject alternative names as text (`DNS:x`, `IP:x`), sorted.
    pub sans: Vec<String>,
    /// Extended key usage serverAuth.
    pub server: bool,
    /// Extended key usage clientAuth.
    pub client: bool,
    /// Lifetime in days.
    pub days: u32,
    /// Path of the certificate, mode 0600.
    pub cert_path: String,
    /// Path of the key, mode 0600. The same path: one file with both, mode 0600.
    pub key_path: String,
    /// Owner of both.
    pub owner: String,
    /// Whether the component renews it itself after the first issue, so that its age matters only once it has expired.
    /// Its path is then a symbolic link to a dated file beside it: the kubelet refuses to renew through a regular file.
    pub self_renewing: bool,
    /// The key identifier of the CA of the serving certificate that its component requests itself.
    pub serves_by: Option<String>,
}

/// A group of Kubernetes objects applied together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Addon {
    /// Its name, such as `coredns`.
    pub name: String,
    /// The objects as wanted.
    pub objects: Vec<serde_json::Value>,
    /// Whether control-plane Nodes need it to become Ready.
    pub needed_for_ready: bool,
}

/// The key of an object: `apiVersion|kind|namespace|name`, namespace empty for cluster-scoped ones.
pub fn object_key(object: &serde_json::Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    format!("{}|{}|{}|{}", text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// The key of hactl's list of the objects that it applied (`kube::record`).
pub const RECORD: &str = "v1|ConfigMap|kube-system|hactl-objects";
/// The add-on of the user's own manifests.
pub const MANIFESTS: &str = "manifests";
/// The add-on of Nodes' labels and taints. Nodes belong to their kubelets: they are on no list, and pruning never
/// deletes one.
pub const NODES: &str = "node-labels";

/// The object of a key, regardless of the API version: without the version, and with the default namespace if none is
/// written. Keys with the same identity are one object.
pub fn identity(key: &str) -> String {
    let mut parts = key.splitn(4, '|');
    let (version, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let group = version.split_once('/').map_or("", |(group, _)| group);
    format!("{group}|{kind}|{}|{name}", if namespace.is_empty() { "default" } else { namespace })
}
