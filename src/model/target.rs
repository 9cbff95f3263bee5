//! The target: what each host should hold once converged, as digests and predicates, without contents or secrets.
//!
//! In: made by `render/`, `pki/` and `component/` from the desired state. Out: compared with facts by `plan/`.

use super::firewall::Opening;
use super::names::{Digest, HostName, UnitName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Where a kubelet keeps the certificate that it serves with: its own link to the newest.
pub const KUBELET_SERVES_WITH: &str = "/var/lib/kubelet/pki/kubelet-server-current.pem";

/// What all hosts should hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Target {
    /// Each host of the inventory.
    pub hosts: BTreeMap<HostName, HostTarget>,
    /// Kubernetes objects, in the order they are applied.
    pub addons: Vec<Addon>,
}

/// What one host should hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HostTarget {
    /// Programs and images.
    pub parts: Vec<Part>,
    /// Files, by set.
    pub sets: BTreeMap<FileSet, SetTarget>,
    /// Leaf certificates.
    pub leaves: Vec<CertSpec>,
    /// Kernel settings: sysctl name to value.
    pub sysctls: BTreeMap<String, String>,
    /// Directories and other paths that preparation creates.
    pub paths: Vec<String>,
    /// Programs that come from the host's own packages: path to package name.
    pub packages: BTreeMap<String, String>,
    /// What its firewall has to let in, where hactl is to see to that.
    pub openings: Option<BTreeSet<Opening>>,
}

/// A program or an image of a bundle, as delivered to a host; its name is one of the component table's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Component name, such as `kubelet`.
    pub name: String,
    /// Version without the `v`.
    pub version: String,
    /// Digest of the content, uncompressed.
    pub digest: Digest,
    /// Size uncompressed, bytes.
    pub size: u64,
    /// Digest of the compressed form, as sent.
    pub sent_digest: Digest,
    /// Size as sent, bytes.
    pub sent_size: u64,
    /// What becomes of it.
    pub place: Place,
}

/// What becomes of a part on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Place {
    /// An executable at `/var/lib/hactl/parts/<digest>/<name>`. Where it is linked to, the component table says on the host itself.
    Program,
    /// An OCI archive imported into containerd under this reference, pinned against garbage collection.
    Image {
        /// Full reference with tag.
        reference: String,
    },
}

impl Part {
    /// Where the part's content lies on a host.
    pub fn path(&self) -> String {
        part_path(&self.digest, &self.name)
    }
}

/// Where a part's content lies on a host: content-addressed, so that versions live side by side.
pub fn part_path(digest: &Digest, name: &str) -> String {
    format!("/var/lib/hactl/parts/{}/{name}", digest.hex())
}

/// Files that are written together and read by one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSet {
    /// Kernel modules, sysctls, NetworkManager drop-in, /etc/crictl.yaml.
    Os,
    /// CA certificates and the like that several units read; changing them restarts nothing by itself.
    Trust,
    /// etcd's unit and settings.
    Etcd,
    /// What keeps etcd from starting on data that no member may vote by, and remembers how far members are. It names hactl itself and so
    /// changes with every release, which must restart no member: systemd reads it anew, and it counts at the next start.
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
    /// What lets VRRP in from the other load balancers alone.
    VrrpFilter,
    /// keepalived.
    Keepalived,
    /// The approver of kubelet serving certificates.
    Approver,
    /// The administrator's state, sealed.
    State,
    /// What takes recovery bundles, and when.
    Snapshots,
    /// What renews the host's certificates by issuers of its own, where that is asked for.
    Renewal,
    /// What has the host restore its newest recovery bundle by itself, where that is asked for.
    Drills,
    /// What is left of a balancer on a host that is none any more.
    FormerBalancer,
    /// What is left of a control plane on a host that has none any more: its keys, above all.
    FormerControlPlane,
    /// What is left of a member of etcd on a host that is none any more; its data lies elsewhere.
    FormerEtcd,
    /// What is left of a Node on a host that is none any more.
    FormerNode,
}

impl FileSet {
    /// What a host may have of roles that it has no more. Of these sets nothing is ever wanted.
    pub const FORMER: [Self; 4] = [Self::FormerBalancer, Self::FormerControlPlane, Self::FormerEtcd, Self::FormerNode];

    /// Whether it is of a role that the host has no more: its files are removed, and never read.
    pub fn is_former(self) -> bool {
        Self::FORMER.contains(&self)
    }

    /// Whether somebody is served by its unit: then new files of it prove themselves on one host before the next takes its turn.
    pub fn serves(self) -> bool {
        let apart = [Self::VrrpFilter, Self::Approver, Self::Fence, Self::Snapshots, Self::Renewal, Self::Drills];
        !self.is_former() && !apart.contains(&self)
    }
}

impl fmt::Display for FileSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Os => "host settings",
            Self::Trust => "certificate authorities",
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
            Self::State => "sealed state",
            Self::Snapshots => "recovery bundles",
            Self::Renewal => "certificate renewal",
            Self::Drills => "recovery drills",
            Self::FormerBalancer => "the former load balancer",
            Self::FormerControlPlane => "the former control plane",
            Self::FormerEtcd => "the former etcd member",
            Self::FormerNode => "the former Node",
        })
    }
}

/// The files of a set and the unit that reads them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SetTarget {
    /// The files.
    pub files: Vec<FileTarget>,
    /// The unit that runs by these files.
    pub unit: Option<UnitName>,
    /// Whether the unit can take new files by a reload; else it is restarted.
    pub reload: bool,
    /// Certificates that the unit reads only when it starts or reloads; most programs read theirs again by themselves.
    pub reads: Vec<CertId>,
    /// Folders that are this set's alone: what else lies in them is removed.
    pub folders: Vec<String>,
    /// Other paths that were this set's: removed where they are, in this order.
    pub own: Vec<String>,
    /// Those of them that nobody but hactl writes, where others may be somebody else's: while none of these is there, none is
    /// removed. They go last. Empty: each path tells by itself.
    pub told_by: Vec<String>,
}

impl SetTarget {
    /// Whether what lies at its own paths is this set's, told by which files there are.
    pub fn is_told(&self, there: impl Fn(&String) -> bool) -> bool {
        self.told_by.is_empty() || self.told_by.iter().any(there)
    }
}

/// A file by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

/// A leaf certificate's place in the certificate table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertId {
    /// etcd to its clients.
    EtcdServer,
    /// etcd among its peers.
    EtcdPeer,
    /// `hactl host` to the etcd on its own host.
    EtcdObserver,
    /// The API server to etcd.
    ApiserverEtcdClient,
    /// The API server to everyone.
    Apiserver,
    /// The API server to kubelets.
    ApiserverKubeletClient,
    /// The API server to aggregated API servers.
    FrontProxyClient,
    /// The controller manager to the API.
    ControllerManager,
    /// The scheduler to the API.
    Scheduler,
    /// The kubelet's first client certificate; it rotates its own from then on.
    Kubelet,
    /// `hactl host` to the API, read-only.
    Observer,
    /// The approver of kubelet serving certificates to the API.
    Approver,
    /// Signs what the host's snapshots say of themselves. It authenticates nobody.
    SnapshotSigner,
    /// Signs leaves of the cluster's authority on its own host.
    ClusterIssuer,
    /// Signs leaves of etcd's authority on its own host.
    EtcdIssuer,
    /// Signs leaves of the front proxy's authority on its own host.
    FrontProxyIssuer,
}

impl CertId {
    /// All of them, in the order of the certificate table.
    pub const ALL: [Self; 16] = [
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
        Self::ClusterIssuer,
        Self::EtcdIssuer,
        Self::FrontProxyIssuer,
    ];

    /// Those that sign others of their host.
    pub const ISSUERS: [Self; 3] = [Self::ClusterIssuer, Self::EtcdIssuer, Self::FrontProxyIssuer];

    /// Whether it signs leaves of its authority on its host, and is for nothing else.
    pub fn issues(self) -> bool {
        Self::ISSUERS.contains(&self)
    }

    /// Whether an issuer of the host may renew it. What vouches for others, or for what lies elsewhere, only the CA itself signs.
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
            Self::ClusterIssuer => "cluster-issuer",
            Self::EtcdIssuer => "etcd-issuer",
            Self::FrontProxyIssuer => "front-proxy-issuer",
        })
    }
}

/// Which authority signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaId {
    /// Kubernetes' own.
    Cluster,
    /// etcd's clients, servers and peers.
    Etcd,
    /// Aggregated API servers.
    FrontProxy,
}

/// A leaf certificate as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertSpec {
    /// Which one.
    pub id: CertId,
    /// Who signs it.
    pub ca: CaId,
    /// The authority's key identifier, hexadecimal: a leaf of another authority is replaced.
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
    /// Where the certificate goes, mode 0600.
    pub cert_path: String,
    /// Where the key goes, mode 0600. The same path: one file with both, mode 0600.
    pub key_path: String,
    /// Owner of both.
    pub owner: String,
    /// Whether the component renews it itself after the first issue, so that only absence or expiry matters. Its path is
    /// then a symbolic link to a dated file beside it: the kubelet refuses to renew through a regular file.
    pub self_renewing: bool,
    /// The key identifier of who signs what its component serves with and asks for by itself.
    pub serves_by: Option<String>,
}

/// A group of Kubernetes objects applied together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Addon {
    /// Its name, such as `coredns`.
    pub name: String,
    /// The objects as they should be.
    pub objects: Vec<serde_json::Value>,
    /// Whether control-plane Nodes need it to become Ready.
    pub needed_for_ready: bool,
}

/// How one object is asked for: `apiVersion/kind/namespace/name`, namespace empty for cluster-wide ones.
pub fn object_key(object: &serde_json::Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    format!("{}|{}|{}|{}", text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// The key of hactl's list of the objects that it applied (`kube::record`).
pub const RECORD: &str = "v1|ConfigMap|kube-system|hactl-objects";
/// The add-on of the user's own manifests.
pub const MANIFESTS: &str = "manifests";
/// The add-on of Nodes' labels and taints. Nodes are their kubelets': they are on no list, and hactl never deletes one.
pub const NODES: &str = "node-labels";

/// Which object a key is of, whatever version of its kind the key names: without the version, and with the namespace that the
/// API takes where none is written. Keys of one identity are one object.
pub fn identity(key: &str) -> String {
    let mut parts = key.splitn(4, '|');
    let (version, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let group = version.split_once('/').map_or("", |(group, _)| group);
    format!("{group}|{kind}|{}|{name}", if namespace.is_empty() { "default" } else { namespace })
}
