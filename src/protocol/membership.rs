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
    /// The first-boot file, read by the unit as an environment file and outside drift detection.
    pub first_boot: String,
    /// `new` with a token for a genesis, `existing` for a join; `None`: start from the data that is there.
    pub first: Option<FirstBoot>,
}

/// What an etcd member is told at its first start.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstBoot {
    /// The token of a genesis; `None`: join.
    pub token: Option<String>,
    /// Name and peer URL of every member.
    pub members: Vec<(String, PeerUrl)>,
}

/// A change of the member list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum MemberChange {
    /// Takes a member out; done already is done.
    Remove(PeerUrl),
    /// Adds a learner; done already is done.
    AddLearner(PeerUrl),
    /// Promotes a learner, retrying while it catches up.
    Promote(PeerUrl),
    /// Lists the member of the first peer URL under the second; done already is done.
    Move(PeerUrl, PeerUrl),
    /// Hands the lead over, where this member has it; done already is done.
    Lead(PeerUrl),
}
