//! Openings in the firewall of a host for the cluster, and the facts about them.
//!
//! In: openings are made by `ports`, facts by `hactl host`. Out: compared by `plan/`, which prepares a host where they
//! differ.

use super::desired::Cidr;
use super::survey::Way;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// Whether hactl changes the hosts' firewalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firewall {
    /// No, the administrator does: missing openings are reported.
    Report,
    /// Yes, if ufw or firewalld is active.
    Manage,
}

/// A firewall manager that hactl knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// Of Ubuntu and Debian.
    Ufw,
    /// Of Fedora, RHEL and SUSE.
    Firewalld,
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ufw => "ufw",
            Self::Firewalld => "firewalld",
        })
    }
}

/// The sources that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Source {
    /// All addresses.
    Anywhere,
    /// The addresses of this range.
    Range(Cidr),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anywhere => f.write_str("anywhere"),
            Self::Range(range) if *range == Cidr::single(range.base) => write!(f, "{}", range.base),
            Self::Range(range) => write!(f, "{range}"),
        }
    }
}

/// Allowed traffic and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Opening {
    /// To the host itself.
    In {
        /// The port or protocol.
        way: Way,
        /// From where.
        from: Source,
    },
    /// Forwarded by the host: traffic of pods.
    Through {
        /// From where.
        from: Source,
    },
}

impl Opening {
    /// To the host, from one address.
    pub fn from_address(address: IpAddr, way: Way) -> Self {
        Self::from_range(Cidr::single(address), way)
    }
    /// To the host, from a range of addresses.
    pub fn from_range(range: Cidr, way: Way) -> Self {
        Self::In { way, from: Source::Range(range) }
    }
    /// To the host, from all addresses.
    pub fn from_anywhere(way: Way) -> Self {
        Self::In { way, from: Source::Anywhere }
    }
    /// Forwarded by the host, from a range of addresses.
    pub fn through(range: Cidr) -> Self {
        Self::Through { from: Source::Range(range) }
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In { way, from } => write!(f, "{way} from {from}"),
            Self::Through { from } => write!(f, "forwarding from {from}"),
        }
    }
}

/// The firewall of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirewallFact {
    /// The active firewall manager.
    pub manager: Manager,
    /// The openings that hactl added, now and after the next boot. Rules of other origin are not included.
    pub open: BTreeSet<Opening>,
}
