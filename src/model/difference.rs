//! Differences between files on hosts and the wanted ones, for people to read before they agree.

use super::names::HostName;
use serde::Serialize;

/// A change of a file that is the same on some hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its path.
    pub path: String,
    /// The hosts.
    pub hosts: Vec<HostName>,
    /// The change.
    pub shown: Shown,
}

/// The visible part of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Shown {
    /// It contains secrets, or only these differ: nothing is shown but the fact that it changes.
    Secret,
    /// It is removed.
    Removed,
    /// Both texts, without secrets.
    Texts {
        /// The current text.
        before: String,
        /// The wanted text.
        after: String,
    },
}
