//! What the lab does, told as it happens. Nothing in this folder prints: a reader decides what to show.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Hears what the lab does; called from several threads.
pub trait Progress: Sync {
    /// One thing has begun or happened.
    fn on(&self, note: &Note);
}

/// Hears and says nothing.
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

/// One thing that has begun or happened; its `Display` is a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say what they are; the variants say when")]
pub enum Note {
    /// The base is being made, once: a minute.
    BaseBegun { path: PathBuf },
    /// The base is made.
    BaseMade { path: PathBuf, took: Duration },
    /// A kernel setting of the machine was changed.
    Sysctl { name: String, from: String, to: String },
    /// The lab's bridge and translation stand.
    Network { bridge: String, network: String },
    /// The host runs already.
    Already { host: String, address: Ipv4Addr },
    /// The host was powered on and answers.
    Up { host: String, address: Ipv4Addr, took: Duration },
    /// The inventory was written.
    Inventory { path: PathBuf },
    /// Somebody edited the inventory, so that the new one lies beside it.
    InventoryKept { path: PathBuf, beside: PathBuf },
    /// Nothing of the lab is left.
    Down { lab: String },
    /// A cached base was removed.
    Purged { path: PathBuf },
    /// A cached base stays because a lab stands on it.
    BaseInUse { path: PathBuf },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BaseBegun { path } => {
                write!(f, "base: making {} (once, about a minute)", path.display())
            }
            Self::BaseMade { path, took } => {
                write!(f, "base: made {} in {:.1} s", path.display(), took.as_secs_f64())
            }
            Self::Sysctl { name, from, to } => {
                write!(f, "machine: set {name} from {from} to {to}, until the last lab is down")
            }
            Self::Network { bridge, network } => write!(f, "network: {network} on bridge {bridge}"),
            Self::Already { host, address } => write!(f, "{host}: runs already at {address}"),
            Self::Up { host, address, took } => {
                write!(f, "{host}: up at {address} in {:.1} s", took.as_secs_f64())
            }
            Self::Inventory { path } => write!(f, "inventory: {}", path.display()),
            Self::InventoryKept { path, beside } => {
                write!(f, "inventory: {} was edited and stays; the new one is {}", path.display(), beside.display())
            }
            Self::Down { lab } => write!(f, "lab {lab}: down, nothing is left of it"),
            Self::Purged { path } => write!(f, "base: removed {}", path.display()),
            Self::BaseInUse { path } => {
                write!(f, "base: {} stays, a lab stands on it", path.display())
            }
        }
    }
}
