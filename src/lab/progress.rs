//! Progress reports of the lab. Nothing in this folder prints: the receiver decides what to show.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Receives progress reports; called from several threads.
pub trait Progress: Sync {
    /// An action has begun or ended.
    fn on(&self, note: &Note);
}

/// Ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn on(&self, _: &Note) {}
}

impl<F: Fn(&Note) + Sync> Progress for F {
    fn on(&self, note: &Note) {
        self(note);
    }
}

/// An action that has begun or ended; its `Display` is a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of the fields explain them; the variants are documented")]
pub enum Note {
    /// The base is being created, once; this takes about a minute.
    BaseBegun { path: PathBuf },
    /// The base has been created.
    BaseMade { path: PathBuf, took: Duration },
    /// A kernel setting of the machine was changed.
    Sysctl { name: String, from: String, to: String },
    /// The lab's bridge and NAT exist.
    Network { bridge: String, network: String },
    /// The host was running already.
    Already { host: String, address: Ipv4Addr },
    /// The host was powered on and answers.
    Up { host: String, address: Ipv4Addr, took: Duration },
    /// The inventory was written.
    Inventory { path: PathBuf },
    /// The inventory was edited, so the new one is beside it.
    InventoryKept { path: PathBuf, beside: PathBuf },
    /// The lab has been removed completely.
    Down { lab: String },
    /// A cached base was removed.
    Purged { path: PathBuf },
    /// A cached base stays because a lab uses it.
    BaseInUse { path: PathBuf },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BaseBegun { path } => write!(f, "base: creating {} (once, about a minute)", path.display()),
            Self::BaseMade { path, took } => {
                write!(f, "base: created {} in {:.1} s", path.display(), took.as_secs_f64())
            }
            Self::Sysctl { name, from, to } => {
                write!(f, "machine: set {name} from {from} to {to}, until the last lab is down")
            }
            Self::Network { bridge, network } => write!(f, "network: {network} on bridge {bridge}"),
            Self::Already { host, address } => write!(f, "{host}: already running at {address}"),
            Self::Up { host, address, took } => write!(f, "{host}: up at {address} in {:.1} s", took.as_secs_f64()),
            Self::Inventory { path } => write!(f, "inventory: {}", path.display()),
            Self::InventoryKept { path, beside } => {
                write!(f, "inventory: {} was edited and is kept; the new one is {}", path.display(), beside.display())
            }
            Self::Down { lab } => write!(f, "lab {lab}: removed completely"),
            Self::Purged { path } => write!(f, "base: removed {}", path.display()),
            Self::BaseInUse { path } => write!(f, "base: {} is kept, because a lab uses it", path.display()),
        }
    }
}
