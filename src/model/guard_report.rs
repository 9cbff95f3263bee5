//! What a guard reports about its host and the others: the file that `hactl status` and `hactl guard` read.
//!
//! In: written by a guard every second. Out: read by the agent on its host, sent as part of [`super::facts::HostFacts`].

use super::fault::Fault;
use super::healing::{Mode, Policy};
use super::heartbeat::{Sight, evidence};
use super::names::{Digest, HostName};
use super::timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A report older than this is of a guard that no longer works, milliseconds.
pub const STALE_MS: i64 = 15_000;
/// The most entries that are read of any list.
const MOST: usize = 64;

/// The report of a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// Its host.
    pub host: HostName,
    /// When it was written, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub at_ms: i64,
    /// When the guard started.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub started_ms: i64,
    /// The digest of its hactl.
    pub release: Digest,
    /// The digest of its policy.
    pub policy: Digest,
    /// What it does.
    pub mode: Mode,
    /// Faults of the host that it confirms.
    pub own: Vec<Fault>,
    /// Faults of others that it concludes.
    pub presumed: Vec<Fault>,
    /// Faults that have not lasted long enough to be reported: with the time when they will be.
    pub pending: Vec<Pending>,
    /// The other guards.
    pub others: BTreeMap<HostName, Other>,
}

/// A fault that is not reported yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The fault.
    pub fault: Fault,
    /// When it will be reported, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub due_ms: i64,
}

/// Another guard, as this one sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// How.
    pub sight: Sight,
    /// Since when, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub since_ms: i64,
    /// How far its clock is ahead of this host's, milliseconds; `None`: it is not heard.
    pub ahead_ms: Option<i64>,
    /// Why its heartbeats are not used, or why ours do not reach it; empty: neither.
    pub trouble: String,
}

impl GuardReport {
    /// The report with lists of limited length and texts of one line; of another host than its own, none.
    pub fn plausible(mut self, host: &HostName) -> Option<Self> {
        if &self.host != host {
            return None;
        }
        self.own.truncate(MOST);
        self.presumed.truncate(MOST);
        self.pending.truncate(MOST);
        let of_pending = self.pending.iter_mut().map(|pending| &mut pending.fault);
        for fault in self.own.iter_mut().chain(&mut self.presumed).chain(of_pending) {
            fault.evidence = evidence(&fault.evidence);
        }
        self.own.retain(|fault| &fault.host == host);
        while self.others.len() > MOST {
            self.others.pop_last();
        }
        for other in self.others.values_mut() {
            other.trouble = evidence(&other.trouble);
            other.ahead_ms = other.ahead_ms.map(|ms| ms.clamp(-1_000_000_000_000, 1_000_000_000_000));
        }
        Some(self)
    }

    /// Whether it was written so recently, by the same clock, that its guard works.
    pub fn is_current(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.at_ms) <= STALE_MS
    }

    /// Whether it follows this policy.
    pub fn follows(&self, policy: &Policy) -> bool {
        self.policy == policy.digest()
    }
}
