//! How a file on hosts differs from what it should be, for people to read before they agree.

use super::names::HostName;
use serde::Serialize;

/// A change of a file that is the same on some hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its path.
    pub path: String,
    /// Where.
    pub hosts: Vec<HostName>,
    /// What changes.
    pub shown: Shown,
}

/// What is shown of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Shown {
    /// It holds secrets, or only these differ: that it changes is all that is told.
    Secret,
    /// It goes.
    Removed,
    /// Both, without what is secret in them.
    Texts {
        /// What stands there.
        before: String,
        /// What will.
        after: String,
    },
}
