//! The words in which a host's balancer in front of etcd is asked to stand still, or to pass a member over.

use crate::model::names::HostName;
use serde::{Deserialize, Serialize};

/// Where haproxy listens for what it is to do, for root alone.
pub const ETCD_BALANCER_SOCKET: &str = "/run/hactl-etcd-balancer.sock";

/// What the balancer is to do. Whatever it is ends by itself, so that neither a killed hactl nor a lost connection leaves a balancer that way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Balancing {
    /// It stands still until [`Balancing::Resume`]: who talks through it waits.
    Pause {
        /// For so long at most, milliseconds.
        most_ms: u32,
    },
    /// It runs again.
    Resume,
    /// It sends nobody to a member and ends the connections of those who are there, until [`Balancing::PassTo`]: they connect anew, to another.
    PassOver {
        /// The member, by its host's name.
        member: HostName,
        /// For so long at most, seconds.
        most_s: u32,
    },
    /// It sends whoever comes to a member again.
    PassTo {
        /// The member, by its host's name.
        member: HostName,
    },
}
