//! The words in which hosts are asked to find out who reaches whom.

use crate::model::survey::Way;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A host's part in finding out which hosts reach which.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectivityTest {
    /// Who this is, as the others expect it.
    pub who: u16,
    /// The host's own address.
    pub address: IpAddr,
    /// Who will knock here.
    pub expected: Vec<Expected>,
    /// Whom to knock at.
    pub knocks: Vec<Probe>,
    /// How long a knock may take to get through, milliseconds; listeners wait a little longer.
    pub within_ms: u64,
}

/// A knock that will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Who will knock.
    pub who: u16,
    /// On which way.
    pub way: Way,
}

/// What became of a knock that was to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeResult {
    /// Who was to knock.
    pub who: u16,
    /// On which way.
    pub way: Way,
    /// Whether it was heard; `None`: somebody else has that port, so nobody could listen.
    pub heard: Option<bool>,
}

/// Whom to knock at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The other host's address.
    pub to: IpAddr,
    /// On which way.
    pub way: Way,
    /// Whether a listener of ours is to echo; else a connection is enough, for a component listens there already.
    pub echo: bool,
}
