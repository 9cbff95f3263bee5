//! How a member of etcd starts, and how the member list changes.

use crate::model::names::{PeerUrl, UnitName};
use serde::{Deserialize, Serialize};

/// How an etcd member starts for the first time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberStart {
    /// The unit.
    pub unit: UnitName,
    /// The data directory.
    pub data_dir: String,
    /// The first-boot file: the environment file of the unit, excluded from drift detection.
    pub first_boot: String,
    /// `new` with a token to bootstrap, `existing` to join; `None`: start from the existing data.
    pub first: Option<FirstBoot>,
}

/// The settings of the first start of an etcd member.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstBoot {
    /// The token of the bootstrap; `None`: join.
    pub token: Option<String>,
    /// Name and peer URL of every member.
    pub members: Vec<(String, PeerUrl)>,
}

/// A change of the member list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum MemberChange {
    /// Removes a member; idempotent.
    Remove(PeerUrl),
    /// Adds a learner; idempotent.
    AddLearner(PeerUrl),
    /// Promotes a learner, retrying while it catches up.
    Promote(PeerUrl),
    /// Changes the peer URL of a member from the first to the second; idempotent.
    Move(PeerUrl, PeerUrl),
    /// Transfers the leadership if this member is the leader; idempotent.
    Lead(PeerUrl),
}
