//! The words of a recovery: what can be brought back, from where, and at which price.
//!
//! In: made by `plan/` from facts. Out: shown to a person, kept in the journal once agreed to, and run.

use super::names::{HostName, PeerUrl};
use serde::{Deserialize, Serialize};

/// By how much the revision leaps in a recovery: more than any cluster writes between two of them, so that none is ever given out
/// twice. Upstream's advice for `etcdutl snapshot restore --bump-revision`.
pub const LEAP: i64 = 1_000_000_000;

/// A recovery that was agreed to: what no observation could tell a later run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// Random; names the recovery everywhere, and is the new cluster's token.
    pub id: String,
    /// Whose data is taken.
    pub source: HostName,
    /// Term and index of the last entry of its log.
    pub reach: (u64, u64),
    /// The revision that the restored store begins at.
    pub base: i64,
    /// Name and peer URL of the members of the new cluster.
    pub members: Vec<(HostName, PeerUrl)>,
}

impl Recovery {
    /// How many of its members may fail before writes stop.
    pub fn tolerates(&self) -> usize {
        self.members.len().saturating_sub(1) / 2
    }
}

/// Data that a cluster could be brought back from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Where it lies.
    pub host: HostName,
    /// Term and index of the last entry of its log.
    pub reach: (u64, u64),
    /// Revision of its store; it may lag behind the log.
    pub revision: i64,
    /// How long ago its log was last written to, by the host's own clock, milliseconds.
    pub age_ms: u64,
    /// Size of its store, bytes.
    pub db_bytes: u64,
    /// What is not as it should be.
    pub flaws: Vec<String>,
}

/// What is lost with the data that is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Every write that was ever acknowledged is in the source.
    Nothing,
    /// A majority of the members is missing, and only they could tell what they agreed on after the source's last entry.
    CannotBeKnown,
    /// The person chose an older source than the newest one that can be read.
    Chosen {
        /// Entries of the log that the newest has and the source has not, at least.
        entries: u64,
    },
}

/// What a recovery would do, for a person to agree to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// What would be done.
    pub recovery: Recovery,
    /// Whether it was agreed to before and only has to be finished.
    pub begun: bool,
    /// All data that can be read, the newest first.
    pub sources: Vec<Source>,
    /// How many members had a vote.
    pub voters: usize,
    /// Voters that do not answer, by name, or by address where the inventory does not name them.
    pub dark: Vec<String>,
    /// What is lost.
    pub loss: Loss,
    /// Hosts of the inventory that become members later, by `hactl up`.
    pub later: Vec<HostName>,
}

/// What is wrong with etcd, and the least that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Diagnosis {
    /// A quorum answers: nothing is to be recovered, `hactl up` heals the rest.
    Serves {
        /// Voters that are healthy.
        healthy: usize,
        /// Voters.
        voters: usize,
    },
    /// There never was a cluster.
    NeverBorn,
    /// Enough members have their data and only have to be started.
    Asleep,
    /// A majority is lost.
    Lost(Box<Proposal>),
}
