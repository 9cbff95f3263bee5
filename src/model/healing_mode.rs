//! What the inventory asks of guards.
//!
//! In: read by `inventory/`. Out: part of the desired state, and of the policy of `healing`.

use serde::{Deserialize, Serialize};

/// What guards do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// There are none.
    #[default]
    Off,
    /// They detect and report faults, and change nothing.
    Watch,
    /// They also repair what a host can repair by itself.
    On,
}

impl Mode {
    /// The word in the inventory.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Watch => "watch",
            Self::On => "on",
        }
    }
}

/// Whether guards reboot hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reboot {
    /// They never do.
    #[default]
    Never,
    /// By systemd, when restarts of a component did not help.
    Systemd,
    /// The same, and other guards switch the power of a host that gives no sign of life.
    Power,
}

impl Reboot {
    /// The word in the inventory.
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Systemd => "systemd",
            Self::Power => "power",
        }
    }
}

/// What guards do about other healers of their Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForeignHealers {
    /// They leave reboots, and hosts that are gone, to them.
    #[default]
    Refuse,
    /// They do not look for them.
    Ignore,
}

impl ForeignHealers {
    /// The word in the inventory.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Ignore => "ignore",
        }
    }
}

/// Where guards serve their metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metrics {
    /// On loopback only, to everybody on the host.
    #[default]
    Loopback,
    /// Also on the address of the host, to clients with a certificate for it.
    Host,
}

impl Metrics {
    /// The word in the inventory.
    pub fn word(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Host => "host",
        }
    }
}

/// For how long a fault must last before it is reported, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delays {
    /// A host that gives no sign of life.
    pub host_unreachable_s: u32,
    /// An etcd host that gives no sign of life, until a host that stands by takes over its vote.
    pub host_dead_s: u32,
    /// A process that runs and does not answer.
    pub frozen_s: u32,
    /// An etcd member without a vote: a person may have removed it, or be adding it.
    pub not_voting_s: u32,
}

impl Default for Delays {
    fn default() -> Self {
        Self { host_unreachable_s: 180, host_dead_s: 600, frozen_s: 15, not_voting_s: 600 }
    }
}

/// Healing, as the inventory asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Healing {
    /// What guards do.
    pub mode: Mode,
    /// When they report a fault.
    pub after: Delays,
    /// Whether they reboot their hosts.
    #[serde(default)]
    pub reboot: Reboot,
    /// What they do about other healers.
    #[serde(default)]
    pub foreign: ForeignHealers,
    /// Where they serve their metrics.
    #[serde(default)]
    pub metrics: Metrics,
}
