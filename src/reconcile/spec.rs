//! The target of a round as one serializable value: the target as digests, and the queries for the hosts.
//!
//! In: the desired state, a target and its queries. Out: JSON without any secret, and the same value read back. With a
//! stored spec a host can detect differences itself, without the inventory, the state directory or the bundle.

use crate::model::desired::Desired;
use crate::model::facts::ClusterId;
use crate::model::names::HostName;
use crate::model::target::Target;
use crate::observe::{KnownCluster, Queries};
use crate::protocol::ObserveAsk;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The target as a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The desired state from the inventory.
    pub desired: Desired,
    /// The target of each host, as digests.
    pub target: Target,
    /// The cluster.
    pub cluster: ClusterId,
    /// The cluster according to the journal.
    pub known: KnownCluster,
    /// The queries for each host.
    pub asks: BTreeMap<HostName, ObserveAsk>,
    /// The number of rotation stages that the cluster has completed: of two specs the one with fewer is older.
    pub generation: u64,
}

impl Spec {
    /// Of a target, and the queries that belong to it.
    pub fn of(desired: &Desired, target: &Target, queries: &Queries) -> Self {
        Self {
            desired: desired.clone(),
            target: target.clone(),
            cluster: queries.cluster_id.clone(),
            known: queries.known.clone(),
            asks: desired.entered().map(|host| (host.name.clone(), queries.of(&host.name))).collect(),
            generation: queries.cluster_id.stages,
        }
    }

    /// The queries for the hosts.
    pub fn queries(&self) -> Queries {
        Queries::new(Arc::new(self.desired.clone()), self.cluster.clone(), self.known.clone(), self.asks.clone())
    }
}
