//! What a host's own firewall lets in for the cluster: openings as values, and the facts about them.
//!
//! In: openings are made by `ways`, facts by `hactl host`. Out: compared by `plan/`, which prepares a host where they differ.

use super::desired::Cidr;
use super::survey::Way;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// Who changes the hosts' firewalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Firewall {
    /// A person: what lacks is found and told.
    Report,
    /// hactl, where ufw or firewalld is active.
    Manage,
}

/// A firewall manager that hactl knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    /// Ubuntu's and Debian's.
    Ufw,
    /// Fedora's, RHEL's and SUSE's.
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

/// Who may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Source {
    /// Everybody.
    Anywhere,
    /// Whoever has an address of this range.
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

/// One thing that is let through, for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Opening {
    /// To the host itself.
    In {
        /// On which way.
        way: Way,
        /// From where.
        from: Source,
    },
    /// Past the host, on to others: what pods send and get.
    Through {
        /// From where.
        from: Source,
    },
}

impl Opening {
    /// To the host, for one address.
    pub fn from_address(address: IpAddr, way: Way) -> Self {
        Self::from_range(Cidr::single(address), way)
    }
    /// To the host, for a range of them.
    pub fn from_range(range: Cidr, way: Way) -> Self {
        Self::In { way, from: Source::Range(range) }
    }
    /// To the host, for everybody.
    pub fn from_anywhere(way: Way) -> Self {
        Self::In { way, from: Source::Anywhere }
    }
    /// Past the host, for a range of addresses.
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
    /// Which one is active.
    pub manager: Manager,
    /// What it lets in because hactl said so, now and after the next boot. Rules of people are not among them.
    pub open: BTreeSet<Opening>,
}
