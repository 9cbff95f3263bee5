//! The key `healing`, and `power` of a host.
//!
//! In: YAML. Out: texts with their places, judged by `check/healing`.

use super::{ForeignName, HealingName, MetricsName, RebootName};
use crate::inventory::at::Key;
use schemars::JsonSchema;
use serde::Deserialize;

/// Guards: a mode, or a mapping with more settings.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Healing {
    /// The mode alone.
    Mode(#[schemars(with = "HealingName")] String),
    /// The mode and the delays.
    Settings(Box<HealingSettings>),
}

/// The settings of guards.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealingSettings {
    /// watch: a guard on each of these hosts detects faults of the cluster and reports them. on: it also restarts frozen
    /// and stopped components of its own host. off: there are no guards.
    #[schemars(with = "HealingName", extend("default" = "off"))]
    pub mode: Key<String>,
    /// How long a fault must last before guards report it.
    pub after: Key<HealingAfter>,
    /// systemd: a guard reboots its host, when restarts of etcd, the API server, the kubelet or containerd did not help.
    /// power: also, others switch the power of a host that gives no sign of life, by the plug-in in its `power`.
    #[schemars(with = "RebootName", extend("default" = "never"))]
    pub reboot: Key<String>,
    /// Where Cluster API or a NodeHealthCheck of medik8s may repair the host of a Node, too. refuse: guards leave reboots
    /// and hosts that are gone to them. ignore: guards do not look for them.
    #[schemars(with = "ForeignName", extend("default" = "refuse"))]
    pub foreign: Key<String>,
    /// Where guards serve their metrics, port 10272. loopback: plain HTTP on 127.0.0.1. host: also on the address of the
    /// host, over TLS, to clients with a certificate of the group hactl:metrics (`hactl certs client`).
    #[schemars(with = "MetricsName", extend("default" = "loopback"))]
    pub metrics: Key<String>,
}

/// How long a fault must last.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HealingAfter {
    /// A host that gives no sign of life: a number with s, m, h or d, from 30s to 1h.
    #[schemars(regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "3m"))]
    pub host_unreachable: Key<String>,
    /// An etcd host that gives no sign of life, until a host that stands by takes over its vote, or its power is switched
    /// off and on: a number with s, m, h or d, from 1m to 24h.
    #[schemars(regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "10m"))]
    pub host_dead: Key<String>,
    /// A process that runs and does not answer: a number with s, m, h or d, from 5s to 10m.
    #[schemars(regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "15s"))]
    pub frozen: Key<String>,
    /// An etcd member that was removed, or that stays a learner: a number with s, m, h or d, from 10s to 1h.
    #[schemars(regex(pattern = "^[0-9]+[smhd]$"), extend("default" = "10m"))]
    pub not_voting: Key<String>,
}

/// The power of one host.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostPower {
    /// Name of the program that switches it, which you install as /etc/hactl/power.d/NAME on every etcd host.
    #[schemars(regex(pattern = "^[a-z0-9-]{1,32}$"))]
    pub exec: Key<String>,
}
