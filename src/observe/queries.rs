//! What is asked of each host, and the conditions waited for there; derived once from the desired state.

use super::KnownCluster;
use crate::model::desired::{Desired, Host};
use crate::model::facts::ClusterId;
use crate::model::names::HostName;
use crate::model::target::{FileSet, Target};
use crate::protocol::{ApiAsk, EtcdAsk, ObserveAsk, WaitCondition};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where every host finds the cluster's certificate authority.
const CLUSTER_CA: &str = "/etc/kubernetes/pki/ca.crt";

/// What is thought of programs that do not come up by their manifests.
#[derive(Debug, Clone, Copy)]
pub struct CrashLoopPolicy {
    ends: u32,
    settled_ms: u64,
}

impl CrashLoopPolicy {
    /// Where earlier files can be put back: the second time that one ends is no accident, and whoever says nothing of how it is must
    /// have run for a while.
    pub const TRIAL: Self = Self { ends: 2, settled_ms: 5000 };
    /// Where there is nothing to go back to, and what it needs may still be on its way.
    pub const NEW: Self = Self { ends: 4, settled_ms: 0 };
}

/// What hosts look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryScope {
    /// What plans and checks need.
    Usual,
    /// Also what lies on the disks of members, and what was moved aside there, whoever answers; and not the API: it tells nothing of etcd
    /// that etcd does not, and without a quorum every question to it takes all of its time.
    Disks,
    /// Also the certificates that components present, which takes a handshake with each.
    Presented,
}

/// What is asked of each host.
#[derive(Clone)]
pub struct Queries {
    /// The stamp of this cluster.
    pub stamp: ClusterId,
    /// What the journal knew of it when this was asked.
    pub known: KnownCluster,
    desired: Arc<Desired>,
    hosts: BTreeMap<HostName, ObserveAsk>,
}

impl Queries {
    /// From the full question for each host.
    pub fn new(
        desired: Arc<Desired>,
        stamp: ClusterId,
        known: KnownCluster,
        hosts: BTreeMap<HostName, ObserveAsk>,
    ) -> Self {
        Self { stamp, known, desired, hosts }
    }
    /// The full question for a host.
    pub fn of(&self, host: &HostName) -> ObserveAsk {
        self.hosts.get(host).cloned().unwrap_or_default()
    }
    /// The same questions, to another depth.
    #[must_use]
    pub fn to(&self, depth: QueryScope) -> Self {
        let mut queries = self.clone();
        for ask in queries.hosts.values_mut() {
            match depth {
                QueryScope::Presented => continue,
                QueryScope::Usual => {}
                QueryScope::Disks => (ask.disk, ask.api, ask.dns) = (true, None, None),
            }
            ask.certificates.presented.clear();
        }
        queries
    }
    /// How a host reaches its member.
    pub fn etcd(&self, host: &HostName) -> Option<EtcdAsk> {
        self.hosts.get(host).and_then(|a| a.etcd.clone())
    }
    /// Hosts that answer have been asked about etcd, whatever their roles: one that was a member may be one still. Of those where nothing
    /// is left of one nobody needs to know more, nor to ask again.
    pub fn forget_etcd(&mut self, host: &HostName) {
        if let Some(ask) = self.hosts.get_mut(host) {
            ask.etcd = None;
        }
    }
    /// How a host reaches its API server, without asking for objects.
    pub fn api(&self, host: &HostName) -> Option<ApiAsk> {
        let api = self.hosts.get(host).and_then(|a| a.api.clone())?;
        Some(ApiAsk { objects: vec![], endpoint: None, ..api })
    }
    /// The host of this name, of the inventory or one that leaves.
    ///
    /// # Errors
    /// In words, when there is none.
    pub fn host(&self, host: &HostName) -> Result<&Host, String> {
        self.desired.entered().find(|h| &h.name == host).ok_or_else(|| format!("{host} is not in the inventory"))
    }
    /// The API server of this host is ready and runs by its manifest.
    ///
    /// # Errors
    /// In words, when the host is not in the inventory.
    pub fn serving(&self, host: &HostName, target: &Target, tries: CrashLoopPolicy) -> Result<WaitCondition, String> {
        let address = self.host(host)?.address;
        let sets = target.hosts.get(host).map(|t| &t.sets);
        let manifests =
            sets.and_then(|s| s.get(&FileSet::ControlPlane)).map(|s| s.files.as_slice()).unwrap_or_default();
        let newer = manifests.iter().filter_map(|f| {
            let program = f.path.rsplit('/').next()?.strip_suffix(".yaml")?;
            Some((program.to_owned(), f.path.clone()))
        });
        Ok(WaitCondition::ApiReady {
            at: (address.to_string(), self.desired.api_port),
            ca: CLUSTER_CA.to_owned(),
            newer: newer.collect(),
            ends: Some(tries.ends),
            settled_ms: tries.settled_ms,
        })
    }
    /// Somebody serves at the endpoint.
    pub fn served(&self) -> WaitCondition {
        let endpoint = &self.desired.endpoint;
        WaitCondition::ApiServes { at: (endpoint.host(), endpoint.port), ca: CLUSTER_CA.to_owned() }
    }
    /// The endpoint is ready.
    pub fn endpoint(&self) -> WaitCondition {
        let endpoint = &self.desired.endpoint;
        WaitCondition::ApiReady {
            at: (endpoint.host(), endpoint.port),
            ca: CLUSTER_CA.to_owned(),
            newer: vec![],
            ends: None,
            settled_ms: 0,
        }
    }
}
