//! Conditions to wait for.

use super::EtcdAsk;
use serde::{Deserialize, Serialize};

/// A condition to wait for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum WaitCondition {
    /// A linearizable read through this host's member succeeds.
    EtcdQuorum(EtcdAsk),
    /// Any API server at this address serves: it answers 200 to the health check of balancers.
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
        /// How often one of these programs may exit until the wait fails; `None`: any number of times.
        ends: Option<u32>,
        /// How long those of them that report no health must have run: a program that ends at once is seen running,
        /// too. Milliseconds.
        settled_ms: u64,
    },
}
