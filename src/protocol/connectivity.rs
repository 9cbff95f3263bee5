//! Requests to test the connectivity between hosts.

use crate::model::survey::Way;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The part of one host in the connectivity test.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectivityTest {
    /// The number of this host, as the others expect it.
    pub who: u16,
    /// The host's own address.
    pub address: IpAddr,
    /// The probes that this host will receive.
    pub expected: Vec<Expected>,
    /// The probes that this host sends.
    pub probes: Vec<Probe>,
    /// How long a probe may take, milliseconds; listeners wait a little longer.
    pub within_ms: u64,
}

/// A probe to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The number of the sending host.
    pub who: u16,
    /// The port.
    pub way: Way,
}

/// The result of a probe to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeResult {
    /// The number of the sending host.
    pub who: u16,
    /// The port.
    pub way: Way,
    /// Whether it was received; `None`: another process uses the port, so nothing could listen.
    pub received: Option<bool>,
}

/// A probe to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The other host's address.
    pub to: IpAddr,
    /// The port.
    pub way: Way,
    /// Whether a listener of ours echoes; else a connection suffices, because a component listens there already.
    pub echo: bool,
}
