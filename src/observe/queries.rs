//! The queries for each host, and the conditions to wait for there; derived once from the desired state.

use super::KnownCluster;
use crate::model::desired::{Desired, Host};
use crate::model::facts::ClusterId;
use crate::model::names::HostName;
use crate::model::target::{FileSet, Target};
use crate::protocol::{ApiAsk, EtcdAsk, ObserveAsk, WaitCondition};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The path of the cluster CA on every host.
const CLUSTER_CA: &str = "/etc/kubernetes/pki/ca.crt";

/// When a static pod that exits after its start counts as failed.
#[derive(Debug, Clone, Copy)]
pub struct CrashLoopPolicy {
    ends: u32,
    settled_ms: u64,
}

impl CrashLoopPolicy {
    /// For files that can be rolled back: the second exit is no accident, and a program without a health endpoint must
    /// have run for a while.
    pub const TRIAL: Self = Self { ends: 2, settled_ms: 5000 };
    /// For new files: there is nothing to roll back to, and a dependency may not be ready yet.
    pub const NEW: Self = Self { ends: 4, settled_ms: 0 };
}

/// How much hosts examine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryScope {
    /// The facts that plans and checks need.
    Usual,
    /// Also the data on the disks of members and the archived data there, even if members answer. Not the API: it adds
    /// nothing about etcd, and without quorum every request to it takes the full timeout.
    Disks,
    /// Also the certificates that components present, which takes a TLS handshake with each.
    Presented,
}

/// The queries for each host.
#[derive(Clone)]
pub struct Queries {
    /// The stamp of this cluster.
    pub cluster_id: ClusterId,
    /// The cluster according to the journal, at the time of the query.
    pub known: KnownCluster,
    desired: Arc<Desired>,
    hosts: BTreeMap<HostName, ObserveAsk>,
}

impl Queries {
    /// From the full query for each host.
    pub fn new(
        desired: Arc<Desired>,
        cluster_id: ClusterId,
        known: KnownCluster,
        hosts: BTreeMap<HostName, ObserveAsk>,
    ) -> Self {
        Self { cluster_id, known, desired, hosts }
    }
    /// The full query for a host.
    pub fn of(&self, host: &HostName) -> ObserveAsk {
        self.hosts.get(host).cloned().unwrap_or_default()
    }
    /// The same queries with another scope.
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
    /// Stops querying a host about etcd. At first every host is queried, whatever its roles, because a former member
    /// may still run. A host without any trace of a member need not be queried again.
    pub fn forget_etcd(&mut self, host: &HostName) {
        if let Some(ask) = self.hosts.get_mut(host) {
            ask.etcd = None;
        }
    }
    /// How a host reaches its API server, without asking for objects.
    pub fn api(&self, host: &HostName) -> Option<ApiAsk> {
        let api = self.hosts.get(host).and_then(|a| a.api.clone())?;
        Some(ApiAsk { objects: vec![], endpoint: None, may_deny: false, ..api })
    }
    /// The host with this name, from the inventory or one that is being removed.
    ///
    /// # Errors
    /// A message, if there is none.
    pub fn host(&self, host: &HostName) -> Result<&Host, String> {
        self.desired.entered().find(|h| &h.name == host).ok_or_else(|| format!("{host} is not in the inventory"))
    }
    /// The API server of this host is ready and runs by its manifest.
    ///
    /// # Errors
    /// A message, if the host is not in the inventory.
    pub fn serving(&self, host: &HostName, target: &Target, tries: CrashLoopPolicy) -> Result<WaitCondition, String> {
        let address = self.host(host)?.address;
        let set = target.hosts.get(host).and_then(|t| t.sets.get(&FileSet::ControlPlane));
        let newer = set.into_iter().flat_map(|set| &set.files).filter_map(|f| {
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
    /// The API server of the host is ready, as a static pod or a pod of a `DaemonSet`.
    pub fn ready(&self, host: &HostName) -> Result<WaitCondition, String> {
        let at = (self.host(host)?.address.to_string(), self.desired.api_port);
        Ok(WaitCondition::ApiReady { at, ca: CLUSTER_CA.to_owned(), newer: vec![], ends: None, settled_ms: 0 })
    }
    /// An API server serves at the endpoint.
    pub fn served(&self) -> WaitCondition {
        let endpoint = &self.desired.endpoint;
        WaitCondition::ApiServes { at: (endpoint.host(), endpoint.port), ca: CLUSTER_CA.to_owned() }
    }
    /// The endpoint is ready.
    pub fn endpoint(&self) -> WaitCondition {
        let endpoint = &self.desired.endpoint;
        let (at, ca) = ((endpoint.host(), endpoint.port), CLUSTER_CA.to_owned());
        WaitCondition::ApiReady { at, ca, newer: vec![], ends: None, settled_ms: 0 }
    }
}
