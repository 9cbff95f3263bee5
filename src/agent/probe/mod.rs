//! Probes of a guard: whether the components of its own host work. They are cheap enough for every few seconds, read
//! only, and need neither the API nor a quorum.
//!
//! In: the policy and the host in it. Out: for each probe the faults that it finds now, without delays. A probe that
//! cannot tell says so, which neither raises nor ends a fault.

mod api_server;
mod balancer;
mod certificates;
mod disk;
mod etcd;
mod hung;
mod process;
mod restarts;
mod runtime;
mod syncs;

pub use api_server::api_server_processes;
pub use balancer::{is_own, is_usable};
pub use certificates::first_to_renew;
pub use etcd::{is_wanted, position, serves_reads, vote};
pub use hung::{hung, hung_api_server};
pub use process::is_suspended;
pub use restarts::{Starts, starts};
pub use syncs::{Syncs, syncs};

use crate::agent::machine::root::Root;
use crate::model::desired::Role;
use crate::model::fault::FaultKind;
use crate::model::healing::{GuardedHost, Policy};
use std::time::Duration;

/// How long a component may take to answer one probe.
const ANSWER: Duration = Duration::from_secs(2);

/// A fault that a probe sees now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The kind.
    pub kind: FaultKind,
    /// What it sees.
    pub evidence: String,
}

impl Found {
    fn new(kind: FaultKind, evidence: impl Into<String>) -> Self {
        Self { kind, evidence: evidence.into() }
    }
}

/// What a probe sees; `None`: it cannot tell.
pub type Seen = Option<Vec<Found>>;

/// The probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The process of the etcd member, and whether it has data.
    Etcd,
    /// Whether the data of a member that does not start can be read.
    EtcdData,
    /// The alarms of etcd and, once it doubts that, whether the member has the keys of the others.
    Alarms,
    /// The API server.
    ApiServer,
    /// The kubelet.
    Kubelet,
    /// Whether the Node of the host exists.
    Node,
    /// containerd.
    Runtime,
    /// haproxy, for the endpoint and for etcd.
    Balancers,
    /// keepalived.
    Keepalived,
    /// Free space.
    Disk,
    /// Certificates.
    Certificates,
}

impl Probe {
    const ALL: [Self; 11] = [
        Self::Etcd,
        Self::EtcdData,
        Self::Alarms,
        Self::ApiServer,
        Self::Kubelet,
        Self::Node,
        Self::Runtime,
        Self::Balancers,
        Self::Keepalived,
        Self::Disk,
        Self::Certificates,
    ];

    /// The probes of a host with these roles.
    pub fn of(host: &GuardedHost, policy: &Policy) -> Vec<Self> {
        let node = host.is(Role::ControlPlane) || host.is(Role::Worker);
        let applies = |probe: &Self| match probe {
            Self::Etcd | Self::EtcdData | Self::Alarms => host.may_vote(),
            Self::ApiServer | Self::Node => host.is(Role::ControlPlane),
            Self::Kubelet | Self::Runtime => node,
            Self::Balancers => host.balances || host.is(Role::ControlPlane),
            Self::Keepalived => policy.vip.is_some() && host.is(Role::LoadBalancer),
            Self::Disk | Self::Certificates => true,
        };
        Self::ALL.into_iter().filter(applies).collect()
    }

    /// Between two of the same.
    pub fn every(self) -> Duration {
        Duration::from_secs(match self {
            Self::Etcd | Self::Balancers | Self::Keepalived => 2,
            Self::EtcdData | Self::Alarms | Self::ApiServer | Self::Kubelet | Self::Runtime => 5,
            Self::Node | Self::Disk => 10,
            Self::Certificates => 3600,
        })
    }

    /// The kinds of faults that it finds.
    pub fn kinds(self) -> &'static [FaultKind] {
        use FaultKind as Kind;
        match self {
            Self::Etcd => &[Kind::EtcdStopped, Kind::EtcdFrozen, Kind::EtcdDataLost],
            Self::EtcdData => &[Kind::EtcdDamaged, Kind::EtcdFenced],
            Self::Alarms => &[Kind::EtcdFull, Kind::EtcdDiverged, Kind::EtcdCorrupt],
            Self::ApiServer => &[Kind::ApiFrozen],
            Self::Kubelet => &[Kind::KubeletFrozen],
            Self::Node => &[Kind::NodeMissing],
            Self::Runtime => &[Kind::RuntimeFrozen],
            Self::Balancers => &[Kind::BalancerFrozen, Kind::EtcdBalancerFrozen],
            Self::Keepalived => &[Kind::KeepalivedFrozen],
            Self::Disk => &[Kind::DiskFull],
            Self::Certificates => &[Kind::CertificateExpiring],
        }
    }

    /// Looks once.
    pub async fn look(self, root: &Root, policy: &Policy, host: &GuardedHost) -> Seen {
        let of_etcd = matches!(self, Self::Etcd | Self::EtcdData | Self::Alarms);
        if of_etcd && !etcd::is_wanted(root, policy, host) {
            return Some(vec![]);
        }
        match self {
            Self::Etcd => etcd::process(root, policy).await,
            Self::EtcdData => etcd::data(root, policy).await,
            Self::Alarms => etcd::alarms(root, policy, host).await,
            Self::ApiServer => api_server::look(root, policy, host).await,
            Self::Kubelet => runtime::kubelet().await,
            Self::Node => api_server::node(root, host).await,
            Self::Runtime => runtime::containerd(root).await,
            Self::Balancers => balancer::look(root, host).await,
            Self::Keepalived => Some(balancer::keepalived()),
            Self::Disk => disk::look(root, policy, host).await,
            Self::Certificates => certificates::look(root).await,
        }
    }
}
