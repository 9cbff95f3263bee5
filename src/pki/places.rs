//! The paths of certificates on a host that are not in the table, and the ports where components present certificates.
//!
//! In: the inventory, a host. Out: paths with the expected content, and the query for `hactl host`. A test compares the
//! paths of CAs with the rendered files.

use crate::model::certificate::{CertificatesAsk, Presenting};
use crate::model::desired::{Desired, Host, Role};
use crate::model::healing;
use crate::model::metrics;
use crate::model::ports::{ETCD_CLIENTS, ETCD_PEERS, KUBELET};
use crate::model::target::{CertId, CertSpec, KUBELET_SERVES_WITH};
use crate::statedir::{PublicAuthority, Publics};
use std::net::{IpAddr, Ipv4Addr};

/// The name of a kubelet's serving certificate.
pub const KUBELET_SERVING: &str = "kubelet-serving";

/// A CA of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Kubernetes' CA.
    Cluster,
    /// etcd's CA.
    Etcd,
    /// The front proxy CA.
    FrontProxy,
    /// The signing intermediate, which the controller manager uses.
    Signing,
    /// The CA for kubelet serving certificates.
    KubeletServing,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cluster, Self::Etcd, Self::FrontProxy, Self::Signing, Self::KubeletServing];

    /// Its name in lists, which is also the name of its file in the state directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster-ca",
            Self::Etcd => "etcd-ca",
            Self::FrontProxy => "front-proxy-ca",
            Self::Signing => "signing-ca",
            Self::KubeletServing => "kubelet-serving-ca",
        }
    }
    /// Its issuer on a host, where hosts renew their own certificates.
    pub const fn issuer(self) -> Option<CertId> {
        match self {
            Self::Cluster => Some(CertId::ClusterIssuer),
            Self::Etcd => Some(CertId::EtcdIssuer),
            Self::FrontProxy => Some(CertId::FrontProxyIssuer),
            Self::Signing | Self::KubeletServing => None,
        }
    }
    /// Its certificate.
    pub const fn of(self, publics: &Publics) -> &PublicAuthority {
        match self {
            Self::Cluster => &publics.cluster,
            Self::Etcd => &publics.etcd,
            Self::FrontProxy => &publics.front_proxy,
            Self::Signing => &publics.signing,
            Self::KubeletServing => &publics.kubelet_serving,
        }
    }
    /// The files of a host that contain it.
    pub fn paths(self, desired: &Desired, host: &Host) -> Vec<&'static str> {
        let (node, control_plane, etcd) = (host.is_node(), host.is(Role::ControlPlane), host.may_vote());
        let all: &[(&str, bool)] = match self {
            Self::Cluster => &[
                ("/etc/kubernetes/pki/ca.crt", node || host.is(Role::LoadBalancer)),
                ("/etc/kubernetes/pki/client-ca.crt", node),
                (healing::CA, healing::is_guarded(desired, host)),
                (metrics::CA, metrics::serves(desired, host)),
            ],
            Self::Etcd => &[("/etc/etcd/pki/ca.crt", etcd), ("/etc/kubernetes/pki/etcd-ca.crt", control_plane)],
            Self::FrontProxy => &[("/etc/kubernetes/pki/front-proxy-ca.crt", control_plane)],
            Self::Signing => {
                &[("/etc/kubernetes/pki/signing.crt", control_plane), ("/etc/kubernetes/pki/client-ca.crt", node)]
            }
            Self::KubeletServing => &[
                ("/etc/kubernetes/pki/kubelet-serving.crt", control_plane),
                ("/etc/kubernetes/pki/kubelet-serving-ca.crt", control_plane),
            ],
        };
        all.iter().filter(|(_, there)| *there).map(|(path, _)| *path).collect()
    }
}

/// The files of a host that contain CAs, each once.
pub fn authority_paths(desired: &Desired, host: &Host) -> Vec<&'static str> {
    let mut paths: Vec<&str> = Kind::ALL.iter().flat_map(|kind| kind.paths(desired, host)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The path of a kubelet's serving certificate; `None` without a kubelet.
pub fn serving_path(host: &Host) -> Option<&'static str> {
    host.is_node().then_some(KUBELET_SERVES_WITH)
}

/// The components of a host that serve TLS, with the names of their certificates. `leaves` are the host's.
pub fn serving(desired: &Desired, host: &Host, leaves: &[CertSpec]) -> Vec<(String, Presenting)> {
    let local = IpAddr::from(Ipv4Addr::LOCALHOST);
    let pair = |id: CertId| {
        let leaf = leaves.iter().find(|leaf| leaf.id == id)?;
        Some((leaf.cert_path.clone(), leaf.key_path.clone()))
    };
    let of = |id: CertId, at, identity| {
        let (path, _) = pair(id)?;
        Some((id.to_string(), Presenting { path, at, identity }))
    };
    // etcd requires a client certificate, and logs connections without one.
    let all = [
        of(CertId::EtcdServer, (local, ETCD_CLIENTS), pair(CertId::EtcdObserver)),
        of(CertId::EtcdPeer, (host.address, ETCD_PEERS), pair(CertId::EtcdPeer)),
        of(CertId::Apiserver, (host.address, desired.api_port), None),
        serving_path(host).map(|path| {
            let ask = Presenting { path: path.to_owned(), at: (host.address, KUBELET), identity: None };
            (KUBELET_SERVING.to_owned(), ask)
        }),
    ];
    all.into_iter().flatten().collect()
}

/// The query for a host's certificates that are not in `leaves`.
pub fn certificates_ask(desired: &Desired, host: &Host, leaves: &[CertSpec]) -> CertificatesAsk {
    let fixed = authority_paths(desired, host).into_iter().chain(serving_path(host)).map(str::to_owned);
    CertificatesAsk {
        files: fixed.chain(leaves.iter().map(|leaf| leaf.cert_path.clone())).collect(),
        presented: serving(desired, host, leaves).into_iter().map(|(_, ask)| ask).collect(),
    }
}
