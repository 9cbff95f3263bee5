//! The component table: which host gets which component, its name and link, and the order of delivery. Both the
//! administrator's machine and the hosts use only this table, never the claims of a bundle or of another host.
//!
//! In: a component's name and kind. Out: its literal row. The order follows the start: etcd first, because everything
//! depends on it; then the parts of the API server; then those that make Nodes Ready; tools for people last.

use super::desired::{Cni, Desired, Host, KubeProxy, Role};
use serde::{Deserialize, Serialize};

/// Program, image or packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One executable.
    Program,
    /// An OCI archive.
    Image,
    /// A repository of packages for one distribution, which is their version.
    Packages,
}

/// Which hosts need a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Those with an etcd member.
    Etcd,
    /// Those with an API server.
    ControlPlane,
    /// Those with a kubelet.
    Node,
    /// Those with a kubelet, if hactl installs the CNI plugin.
    Flannel,
    /// Those with a kubelet, when hactl implements Services.
    KubeProxy,
    /// Those that install packages, when these come from the bundle.
    Packages,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// The component's name in a bundle.
    pub name: &'static str,
    /// Program, image or packages.
    pub kind: Kind,
    /// The link of a program in the file system.
    pub link: Option<&'static str>,
    /// The hosts that need it.
    pub need: Need,
    /// Whether its version is that of Kubernetes.
    pub kubernetes: bool,
}

const fn program(name: &'static str, link: &'static str, need: Need) -> Row {
    Row { name, kind: Kind::Program, link: Some(link), need, kubernetes: false }
}

const fn image(name: &'static str, need: Need) -> Row {
    Row { name, kind: Kind::Image, link: None, need, kubernetes: false }
}

const fn of_kubernetes(row: Row) -> Row {
    Row { kubernetes: true, ..row }
}

/// The name of the packages of any distribution.
pub const PACKAGES: &str = "packages";

/// All components, in the order of delivery.
pub const TABLE: [Row; 23] = [
    Row { name: PACKAGES, kind: Kind::Packages, link: None, need: Need::Packages, kubernetes: false },
    program("etcd", "/usr/local/bin/etcd", Need::Etcd),
    program("containerd", "/usr/local/bin/containerd", Need::Node),
    program("containerd-shim-runc-v2", "/usr/local/bin/containerd-shim-runc-v2", Need::Node),
    program("runc", "/usr/local/bin/runc", Need::Node),
    program("ctr", "/usr/local/bin/ctr", Need::Node),
    program("cni-loopback", "/opt/cni/bin/loopback", Need::Node),
    program("cni-bridge", "/opt/cni/bin/bridge", Need::Node),
    program("cni-host-local", "/opt/cni/bin/host-local", Need::Node),
    program("cni-portmap", "/opt/cni/bin/portmap", Need::Node),
    program("cni-ptp", "/opt/cni/bin/ptp", Need::Node),
    program("cni-flannel", "/opt/cni/bin/flannel", Need::Flannel),
    of_kubernetes(program("kubelet", "/usr/local/bin/kubelet", Need::Node)),
    image("pause", Need::Node),
    of_kubernetes(image("kube-apiserver", Need::ControlPlane)),
    of_kubernetes(image("kube-controller-manager", Need::ControlPlane)),
    of_kubernetes(image("kube-scheduler", Need::ControlPlane)),
    of_kubernetes(image("kube-proxy", Need::KubeProxy)),
    image("flannel", Need::Flannel),
    image("coredns", Need::Node),
    of_kubernetes(program("kubectl", "/usr/local/bin/kubectl", Need::ControlPlane)),
    program("etcdctl", "/usr/local/bin/etcdctl", Need::Etcd),
    program("etcdutl", "/usr/local/bin/etcdutl", Need::Etcd),
];

/// The row of a component; `None`: no host uses it.
pub fn row(name: &str, kind: Kind) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name && row.kind == kind)
}

impl Need {
    /// Whether this host is one of them.
    pub fn includes(self, desired: &Desired, host: &Host) -> bool {
        match self {
            Self::Etcd => host.may_vote(),
            Self::ControlPlane => host.is(Role::ControlPlane),
            Self::Node => host.is_node(),
            Self::Flannel => host.is_node() && desired.network.cni == Cni::Flannel,
            Self::KubeProxy => host.is_node() && desired.network.kube_proxy == KubeProxy::Nftables,
            Self::Packages => desired.bundled_packages && (host.is(Role::ControlPlane) || desired.balances(host)),
        }
    }
}
