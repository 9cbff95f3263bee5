//! The certificate table: one literal row for each certificate, and its form on a host.
//!
//! In: the desired state, a host, the CAs' public halves. Out: the certificates that the host should have.

use crate::model::authentic::{SIGNER_CERT, SIGNER_KEY};
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::HostFacts;
use crate::model::healing::{self, Mode};
use crate::model::metrics;
use crate::model::target::{CaId, CertId, CertSpec, KUBELET_CLIENT};
use crate::statedir::{PublicAuthority, Publics};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Validity of a certificate, days.
pub const LEAF_DAYS: u32 = 365;
/// The group of `hactl host` in the API; bound to read-only rights.
pub const OBSERVERS: &str = "hactl:observers";
/// The group of the approvers of kubelet serving certificates.
pub const APPROVERS: &str = "hactl:approvers";
/// The group of API servers as clients of kubelets; bound to `system:kubelet-api-admin`.
pub const KUBELET_API: &str = "hactl:kubelet-api";
/// The group of administrators; bound to `cluster-admin`, so that the binding can be deleted, unlike the rights of
/// `system:masters`.
pub const ADMINISTRATORS: &str = "hactl:administrators";

/// The hosts that have a certificate.
#[derive(Clone, Copy)]
enum On {
    Etcd,
    ControlPlane,
    Nodes,
    /// Every host that has certificates of etcd's CA.
    EtcdOrControlPlane,
    /// Every host that has a guard, if the inventory asks for guards.
    Guarded,
    /// Every host with components.
    All,
}

/// The subject alternative names of a certificate.
#[derive(Clone, Copy)]
enum Names {
    None,
    /// The host's name and address, and localhost.
    Own,
    /// The host's name and address.
    Host,
    /// The names and addresses by which clients reach the API server.
    Api,
}

/// The CA that signs it.
#[derive(Clone, Copy)]
enum By {
    Cluster,
    Etcd,
    FrontProxy,
    /// The intermediate that also renews, so that the first certificate and renewals come from one CA.
    Signing,
}

#[derive(Clone, Copy)]
enum Usage {
    Client,
    Server,
    Both,
    /// Neither: it signs the manifests of the host's snapshots.
    Documents,
    /// Signs the host's other certificates of its CA; only if `unattended` is set.
    Issuer,
}

/// One row. `{host}` is replaced by the host's name.
struct Row {
    id: CertId,
    on: On,
    by: By,
    common_name: &'static str,
    organization: Option<&'static str>,
    names: Names,
    usage: Usage,
    cert: &'static str,
    key: &'static str,
    owner: &'static str,
    self_renewing: bool,
}

const TABLE: [Row; 18] = [
    Row {
        id: CertId::EtcdServer,
        on: On::Etcd,
        by: By::Etcd,
        common_name: "{host}",
        organization: None,
        names: Names::Own,
        // etcd's own JSON gateway connects to the member with this certificate as a client.
        usage: Usage::Both,
        cert: "/etc/etcd/pki/server.crt",
        key: "/etc/etcd/pki/server.key",
        owner: "etcd",
        self_renewing: false,
    },
    Row {
        id: CertId::EtcdPeer,
        on: On::Etcd,
        by: By::Etcd,
        common_name: "{host}",
        organization: None,
        names: Names::Own,
        usage: Usage::Both,
        cert: "/etc/etcd/pki/peer.crt",
        key: "/etc/etcd/pki/peer.key",
        owner: "etcd",
        self_renewing: false,
    },
    Row {
        id: CertId::EtcdObserver,
        on: On::Etcd,
        by: By::Etcd,
        common_name: "hactl-observer",
        organization: None,
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/etcd/pki/observer.crt",
        key: "/etc/etcd/pki/observer.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::ApiserverEtcdClient,
        on: On::ControlPlane,
        by: By::Etcd,
        common_name: "kube-apiserver-etcd-client",
        organization: None,
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/apiserver-etcd-client.crt",
        key: "/etc/kubernetes/pki/apiserver-etcd-client.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::Apiserver,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "kube-apiserver",
        organization: None,
        names: Names::Api,
        usage: Usage::Server,
        cert: "/etc/kubernetes/pki/apiserver.crt",
        key: "/etc/kubernetes/pki/apiserver.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::ApiserverKubeletClient,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "kube-apiserver-kubelet-client",
        organization: Some(KUBELET_API),
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/apiserver-kubelet-client.crt",
        key: "/etc/kubernetes/pki/apiserver-kubelet-client.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::FrontProxyClient,
        on: On::ControlPlane,
        by: By::FrontProxy,
        common_name: "front-proxy-client",
        organization: None,
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/front-proxy-client.crt",
        key: "/etc/kubernetes/pki/front-proxy-client.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::ControllerManager,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "system:kube-controller-manager",
        organization: None,
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/controller-manager.crt",
        key: "/etc/kubernetes/pki/controller-manager.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::Scheduler,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "system:kube-scheduler",
        organization: None,
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/scheduler.crt",
        key: "/etc/kubernetes/pki/scheduler.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::Kubelet,
        on: On::Nodes,
        by: By::Signing,
        common_name: "system:node:{host}",
        organization: Some("system:nodes"),
        names: Names::None,
        usage: Usage::Client,
        cert: KUBELET_CLIENT,
        key: KUBELET_CLIENT,
        owner: "root",
        self_renewing: true,
    },
    Row {
        id: CertId::Observer,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "hactl:observer:{host}",
        organization: Some(OBSERVERS),
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/observer.crt",
        key: "/etc/kubernetes/pki/observer.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::Approver,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "hactl:approver:{host}",
        organization: Some(APPROVERS),
        names: Names::None,
        usage: Usage::Client,
        cert: "/etc/kubernetes/pki/approver.crt",
        key: "/etc/kubernetes/pki/approver.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::SnapshotSigner,
        on: On::Etcd,
        by: By::Cluster,
        common_name: "hactl:snapshots:{host}",
        organization: None,
        names: Names::None,
        usage: Usage::Documents,
        cert: SIGNER_CERT,
        key: SIGNER_KEY,
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::Guard,
        on: On::Guarded,
        by: By::Cluster,
        common_name: "hactl:guard:{host}",
        organization: Some(healing::GUARDS),
        names: Names::Host,
        usage: Usage::Both,
        cert: healing::CERT,
        key: healing::KEY,
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::Metrics,
        on: On::All,
        by: By::Cluster,
        common_name: "hactl:metrics-relay:{host}",
        organization: Some(metrics::RELAYS),
        names: Names::Host,
        usage: Usage::Both,
        cert: metrics::CERT,
        key: metrics::KEY,
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::ClusterIssuer,
        on: On::ControlPlane,
        by: By::Cluster,
        common_name: "hactl cluster issuer on {host}",
        organization: Some("hactl"),
        names: Names::None,
        usage: Usage::Issuer,
        cert: "/etc/hactl/issuers/cluster-issuer.crt",
        key: "/etc/hactl/issuers/cluster-issuer.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::EtcdIssuer,
        on: On::EtcdOrControlPlane,
        by: By::Etcd,
        common_name: "hactl etcd issuer on {host}",
        organization: Some("hactl"),
        names: Names::None,
        usage: Usage::Issuer,
        cert: "/etc/hactl/issuers/etcd-issuer.crt",
        key: "/etc/hactl/issuers/etcd-issuer.key",
        owner: "root",
        self_renewing: false,
    },
    Row {
        id: CertId::FrontProxyIssuer,
        on: On::ControlPlane,
        by: By::FrontProxy,
        common_name: "hactl front-proxy issuer on {host}",
        organization: Some("hactl"),
        names: Names::None,
        usage: Usage::Issuer,
        cert: "/etc/hactl/issuers/front-proxy-issuer.crt",
        key: "/etc/hactl/issuers/front-proxy-issuer.key",
        owner: "root",
        self_renewing: false,
    },
];

/// The certificates that a host should have, in the order of the table. A CA with path length 0 has no issuers either:
/// only `up` renews its certificates ([`attended`]).
pub fn leaves(desired: &Desired, host: &Host, authorities: &Publics) -> Vec<CertSpec> {
    let all = rows(desired, host).map(|row| (row, row.leaf(desired, host, authorities)));
    all.filter(|(row, _)| !row.id.issues() || row.by.authority(authorities).1.below != Some(0))
        .map(|(_, leaf)| leaf)
        .collect()
}

/// A member certificate keeps the member's previous address while the host has that address too: on a host with both,
/// connections originate from the older one, and members accept only peers whose certificate contains the source
/// address (since etcd 3.2). Only addresses in the current certificate are kept, so that no name is added that hactl
/// did not issue.
pub fn keep_addresses(leaves: &mut [CertSpec], facts: &HostFacts) {
    let Some(leaf) = leaves.iter_mut().find(|leaf| leaf.id == CertId::EtcdPeer) else { return };
    let Some(found) = facts.leaves.get(&leaf.id) else { return };
    let has: BTreeSet<String> = facts.addresses.iter().map(|on| address(on.address)).collect();
    leaf.sans.extend(found.sans.iter().filter(|name| has.contains(*name)).cloned());
    leaf.sans.sort_unstable();
    leaf.sans.dedup();
}

/// The CAs whose certificates only `up` renews although hosts are to renew their own: their path length is 0.
pub fn attended(desired: &Desired, authorities: &Publics) -> Vec<CaId> {
    let issuers = TABLE.iter().filter(|row| row.id.issues() && desired.unattended_days.is_some());
    issuers.map(|row| row.by.authority(authorities)).filter(|(_, ca)| ca.below == Some(0)).map(|(id, _)| id).collect()
}

/// The names of the certificates that a host should have, and whether a component renews each itself.
pub fn leaf_ids(desired: &Desired, host: &Host) -> impl Iterator<Item = (CertId, bool)> {
    rows(desired, host).map(|row| (row.id, row.self_renewing))
}

/// Whether a host that renews its own certificates has an issuing CA for this one. The guard's and that for metrics are
/// signed by the cluster CA, whose issuing CA only control-plane hosts have; `up` renews them on other hosts.
pub fn has_issuer(id: CertId, host: &Host) -> bool {
    !matches!(id, CertId::Guard | CertId::Metrics) || host.is(Role::ControlPlane)
}

/// The files of certificates that a host's roles no longer require, each with its row: certificates, keys, and keys
/// without a certificate yet. The kubelet's files are removed with its data.
pub fn former_files(host: &Host) -> Vec<(CertId, String)> {
    let gone = TABLE.iter().filter(|row| !row.on.includes(host) && row.id != CertId::Kubelet);
    gone.flat_map(|row| row.files().map(|path| (row.id, path))).collect()
}

/// The same of certificates that a host's roles require.
pub fn current_files(host: &Host) -> Vec<String> {
    let own = TABLE.iter().filter(|row| row.on.includes(host) && row.id != CertId::Kubelet);
    own.flat_map(Row::files).collect()
}

fn rows(desired: &Desired, host: &Host) -> impl Iterator<Item = &'static Row> {
    let (unattended, guards) = (desired.unattended_days.is_some(), desired.healing.mode != Mode::Off);
    let wanted = move |id: CertId| match id {
        CertId::Guard => guards,
        CertId::Metrics => desired.metrics,
        id => unattended || !id.issues(),
    };
    TABLE.iter().filter(move |row| row.on.includes(host) && wanted(row.id))
}

impl By {
    fn authority(self, authorities: &Publics) -> (CaId, &PublicAuthority) {
        match self {
            Self::Cluster => (CaId::Cluster, &authorities.cluster),
            Self::Etcd => (CaId::Etcd, &authorities.etcd),
            Self::FrontProxy => (CaId::FrontProxy, &authorities.front_proxy),
            Self::Signing => (CaId::Cluster, &authorities.signing),
        }
    }
}

/// Validity of an issuer, days: `up` renews it after a tenth of that, and the rest is never less than was asked for.
fn issuer_days(unattended: u32) -> u32 {
    unattended + unattended / 9 + 1
}

impl On {
    fn includes(self, host: &Host) -> bool {
        match self {
            Self::Etcd => host.may_vote(),
            Self::ControlPlane => host.is(Role::ControlPlane),
            Self::Nodes => host.is_node(),
            Self::EtcdOrControlPlane => host.may_vote() || host.is(Role::ControlPlane),
            Self::Guarded => healing::may_be_guarded(host),
            Self::All => host.has_components(),
        }
    }
}

impl Row {
    /// The certificate, the key, and a key without a certificate yet.
    fn files(&self) -> [String; 3] {
        [format!("{}.new", self.key), self.key.to_owned(), self.cert.to_owned()]
    }
    /// Validity in days. No issuer renews a snapshot signer, because the issuer could then sign snapshots like the CA.
    /// `up` renews it when a third is left, so that it lasts as long as the cluster is unattended. It authenticates no
    /// client or server and may live longer than others.
    fn days(&self, unattended: Option<u32>) -> u32 {
        match (unattended, self.usage) {
            (Some(days), Usage::Issuer) => issuer_days(days),
            (Some(days), Usage::Documents) => LEAF_DAYS.max(days.saturating_mul(3)),
            _ => LEAF_DAYS,
        }
    }
    fn leaf(&self, desired: &Desired, host: &Host, authorities: &Publics) -> CertSpec {
        let (ca, authority) = self.by.authority(authorities);
        CertSpec {
            id: self.id,
            ca,
            authority: authority.id.clone(),
            common_name: self.common_name.replace("{host}", host.name.as_str()),
            organizations: self.organization.map(str::to_owned).into_iter().collect(),
            sans: self.names.sans(desired, host),
            server: matches!(self.usage, Usage::Server | Usage::Both),
            client: matches!(self.usage, Usage::Client | Usage::Both),
            days: self.days(desired.unattended_days),
            cert_path: self.cert.to_owned(),
            key_path: self.key.to_owned(),
            owner: self.owner.to_owned(),
            self_renewing: self.self_renewing,
            serves_by: (self.id == CertId::Kubelet).then(|| authorities.kubelet_serving.id.clone()),
        }
    }
}

impl Names {
    /// Sorted, without duplicates.
    ///
    /// An API server's certificate covers its own host and the endpoint, not the other control-plane hosts: no client
    /// connects to it by their addresses, and so the certificates of the others stay the same when a host joins or
    /// leaves.
    fn sans(self, desired: &Desired, host: &Host) -> Vec<String> {
        let of_host = [san(host.name.as_str()), address(host.address)];
        let own = || of_host.iter().cloned().chain([san("localhost"), address(Ipv4Addr::LOCALHOST)]);
        let all: BTreeSet<String> = match self {
            Self::None => BTreeSet::new(),
            Self::Host => of_host.into(),
            Self::Own => own().collect(),
            Self::Api => own()
                .chain(["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(san))
                .chain([san("kubernetes.default.svc.cluster.local"), address(desired.network.services.nth(1))])
                .chain([san(&desired.endpoint.host())])
                .chain(desired.endpoint.sans.iter().map(|name| san(name)))
                .collect(),
        };
        all.into_iter().collect()
    }
}

fn address(ip: impl Into<IpAddr>) -> String {
    format!("IP:{}", ip.into())
}

/// An address if the text is one, else a DNS name.
fn san(text: &str) -> String {
    text.parse::<IpAddr>().map_or_else(|_| format!("DNS:{text}"), address)
}
