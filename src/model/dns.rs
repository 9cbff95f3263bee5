//! What a host says of cluster DNS.

use serde::{Deserialize, Serialize};

/// The answer of cluster DNS to a query from a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnsFact {
    /// An address.
    Answered,
    /// No answer, for this reason.
    Failed(String),
}
