//! What can be waited for.

use super::EtcdAsk;
use serde::{Deserialize, Serialize};

/// What can be waited for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum WaitCondition {
    /// A linearizable read through this host's member succeeds.
    EtcdQuorum(EtcdAsk),
    /// An API server that is found there serves, whoever it is: it answers 200 to what balancers ask.
    ApiServes {
        /// Host and port.
        at: (String, u16),
        /// CA certificate path.
        ca: String,
    },
    /// The API server at this URL's `/readyz` answers 200.
    ApiReady {
        /// Host and port.
        at: (String, u16),
        /// CA certificate path.
        ca: String,
        /// Programs whose process must have started after their manifest last changed: program name, manifest path.
        newer: Vec<(String, String)>,
        /// How often one of these programs may end by itself until it is given up; `None`: as often as it likes.
        ends: Option<u32>,
        /// For how long those of them must have run that say nothing of how they are: one that ends at once is seen running, too.
        /// Milliseconds.
        settled_ms: u64,
    },
}
