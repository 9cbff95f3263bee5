//! What a run asks of a host about the reserve of a self-hosted control plane.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A request about static pods and the pods that take over from them. Each names the address and port of the host's API
/// server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum HostingAsk {
    /// Gives all manifests to the kubelet, and lets no pod take over. Nothing happens on a host that was never
    /// self-hosted.
    Hold {
        /// Its API server.
        own: (IpAddr, u16),
    },
    /// Waits until the static pods of such a host answer.
    AwaitHeld {
        /// Its API server.
        own: (IpAddr, u16),
        /// Milliseconds.
        within_ms: u64,
    },
    /// Lets pods of a revision take over, one component after the other. If one does not, static pods run again.
    HandOver {
        /// Its API server.
        own: (IpAddr, u16),
        /// The revision of the pods.
        revision: String,
        /// Milliseconds.
        within_ms: u64,
    },
}

impl HostingAsk {
    /// The address and port of the host's API server.
    pub fn own(&self) -> (IpAddr, u16) {
        let (Self::Hold { own } | Self::AwaitHeld { own, .. } | Self::HandOver { own, .. }) = self;
        *own
    }
}
