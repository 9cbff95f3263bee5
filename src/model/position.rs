//! A position in the log of etcd: an entry that a member reported.
//!
//! In: read from a member, a file of a host or a heartbeat. Out: compared by `positions` and `plan/quorum`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The most positions that are read from one host: no cluster has as many members.
pub const MOST: usize = 64;

/// A log entry that a member reported as applied. An applied entry is never removed from its log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Member id.
    pub member: u64,
    /// Term of an entry that it had applied.
    pub term: u64,
    /// Index of an entry that it had applied.
    pub index: u64,
}

impl Position {
    /// Whether it can be one: a cluster id is a number of 64 bits.
    pub fn is_plausible(&self) -> bool {
        self.cluster.len() <= 16 && self.cluster.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
    /// Whether both are of one member.
    pub fn same_member(&self, other: &Self) -> bool {
        (&self.cluster, self.member) == (&other.cluster, other.member)
    }
    /// Keeps the highest position of each member.
    pub fn note(self, all: &mut Vec<Self>) {
        let room = all.len() < MOST;
        match all.iter_mut().find(|known| known.same_member(&self)) {
            Some(known) if *known < self => *known = self,
            Some(_) => {}
            None if room => all.push(self),
            None => {}
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "raft term {}, index {}", self.term, self.index)
    }
}
