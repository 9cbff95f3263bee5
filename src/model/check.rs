//! Named checks: the list that ends every `up` and that `status` shows.

use super::names::HostName;
use serde::Serialize;

/// One named check with what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name, such as `etcd members healthy`.
    pub name: &'static str,
    /// The host whose mouth it came from, when it is about one.
    pub host: Option<HostName>,
    /// What was found.
    pub outcome: Outcome,
    /// What was found in words; for a failure also what it means.
    pub detail: String,
    /// What to do about a failure.
    pub hint: Option<String>,
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Pass,
    /// Not asked for, or not applicable to this inventory.
    Skip,
    /// Works, but not as it should.
    Warn,
    /// Does not work; the cluster still serves.
    Fail,
    /// The API or quorum is down.
    Down,
}
