//! Requests to pause the etcd balancer of a host, or to drain a member from it.

use crate::model::names::HostName;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The admin socket of haproxy, for root alone.
pub const ETCD_BALANCER_SOCKET: &str = "/run/hactl-etcd-balancer.sock";

/// The longest pause while etcd's lead moves, milliseconds: below the second within which every request is to be
/// answered.
pub const PAUSE_MS: u32 = 800;
/// Timeout of pausing a balancer. A slower one keeps forwarding requests, and the others do not wait for it.
pub const PAUSED_WITHIN: Duration = Duration::from_millis(400);
/// Timeout of resuming a balancer; otherwise it resumes automatically.
pub const RESUMED_WITHIN: Duration = Duration::from_secs(1);

/// A request to the balancer. Each one ends automatically, so that neither a killed hactl nor a lost connection
/// leaves the balancer in that state.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Balancing {
    /// It is paused until [`Balancing::Resume`]: its clients wait.
    Pause {
        /// At most for so long, milliseconds.
        most_ms: u32,
    },
    /// It runs again.
    Resume,
    /// It sends no client to a member and ends the member's connections, until [`Balancing::PassTo`]: the clients
    /// reconnect, to another member.
    PassOver {
        /// The member, by the name of its host.
        member: HostName,
        /// At most for so long, seconds.
        most_s: u32,
    },
    /// It sends clients to the member again.
    PassTo {
        /// The member, by the name of its host.
        member: HostName,
    },
}
