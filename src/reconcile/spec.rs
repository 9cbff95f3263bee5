//! A round's wants as one value that can be written down: what should be, as digests, and what is asked of the hosts.
//!
//! In: the desired state, a target and its queries. Out: JSON without any secret, and the same value read back. What is left on a host
//! of it lets the host see for itself what differs, without the inventory, the state directory or the bundle.

use super::Round;
use crate::model::desired::Desired;
use crate::model::facts::ClusterId;
use crate::model::names::HostName;
use crate::model::target::Target;
use crate::observe::{KnownCluster, Queries};
use crate::protocol::ObserveAsk;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What should be, as a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What the inventory asks for.
    pub desired: Desired,
    /// What each host should hold, as digests.
    pub target: Target,
    /// Which cluster it is.
    pub cluster: ClusterId,
    /// What the journal knew of it.
    pub known: KnownCluster,
    /// What each host is asked.
    pub asks: BTreeMap<HostName, ObserveAsk>,
    /// How many rotation stages the cluster had been through: of two specs the one with fewer is older.
    pub generation: u64,
}

impl Spec {
    /// Of a round.
    pub fn of(desired: &Desired, round: &Round) -> Self {
        Self {
            desired: desired.clone(),
            target: (*round.target).clone(),
            cluster: round.queries.stamp.clone(),
            known: round.queries.known.clone(),
            asks: desired.entered().map(|host| (host.name.clone(), round.queries.of(&host.name))).collect(),
            generation: round.queries.stamp.stages,
        }
    }

    /// What to ask the hosts by it.
    pub fn queries(&self) -> Queries {
        Queries::new(Arc::new(self.desired.clone()), self.cluster.clone(), self.known.clone(), self.asks.clone())
    }
}
