//! Healing: the policy by which all guards work, and where things of guards are on a host.
//!
//! In: the desired state. Out: a [`Policy`], a file with the same content on every host that has a guard. It names
//! hosts and paths and holds no secret.

use super::desired::{Desired, EndpointKind, Host, Role};
pub use super::healing_mode::{Delays, ForeignHealers, Healing, Metrics, Mode, Reboot};
use super::names::{ClusterName, Digest, HostName, PluginName};
pub use super::units::HEAL_UNIT;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The unit of the guard.
pub const UNIT: &str = "hactl-guard.service";
/// The directory of its certificate.
pub const FOLDER: &str = "/etc/hactl/guard";
/// The policy on a host.
pub const POLICY: &str = "/etc/hactl/guard.json";
/// The certificate by which guards authenticate to one another.
pub const CERT: &str = "/etc/hactl/guard/guard.crt";
/// Its key.
pub const KEY: &str = "/etc/hactl/guard/guard.key";
/// The certificate of the cluster CA, for guards: hosts that are no Nodes have no other copy.
pub const CA: &str = "/etc/hactl/guard/ca.crt";
/// What the repair of an etcd member is planned from: [`crate::reconcile::RepairSpec`].
pub const SPEC: &str = "/etc/hactl/guard/spec.json";
/// The socket for requests of other guards; systemd starts `hactl host-peer` for each connection.
pub const PEER_SOCKET: &str = "hactl-guard-peer.socket";
/// That program.
pub const PEER_UNIT: &str = "hactl-guard-peer@.service";
/// The last [`super::guard_report::GuardReport`], on a file system that is empty after a boot.
pub const REPORT: &str = "/run/hactl/guard/self.json";
/// Why the last repair of [`HEAL_UNIT`] failed.
pub const HEALED: &str = "/run/hactl/guard/heal";
/// The host whose power [`HEAL_UNIT`] shall switch, and what it has done: [`super::repair::Power`].
pub const POWER: &str = "/run/hactl/guard/power.json";
/// Where an operator installs the plug-ins that switch power, on every etcd host.
pub const POWER_PLUGINS: &str = "/etc/hactl/power.d";
/// The group of guards in their certificates.
pub const GUARDS: &str = "hactl:guards";
/// The group of clients that may read metrics.
pub const METRICS_READERS: &str = "hactl:metrics";
/// The port on the address of a host where its guard receives the heartbeats of the others.
pub const HEARTBEAT_PORT: u16 = 10270;
/// The port on the address of a host where it receives the requests of other guards.
pub const PEER_PORT: u16 = 10271;
/// The port where a guard serves its metrics: on loopback, and on the address of the host if the inventory asks for it.
pub const METRICS_PORT: u16 = 10272;

/// Before the host in the common name of a guard's certificate.
const USER: &str = "hactl:guard:";

/// The host of a guard, by the common name of its certificate.
pub fn host_of(common_name: &str) -> Option<HostName> {
    common_name.strip_prefix(USER)?.parse().ok()
}

/// The user of the API that the guard of a host is.
pub fn user(host: &HostName) -> String {
    format!("{USER}{host}")
}

/// A host with a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardedHost {
    /// Its name.
    pub name: HostName,
    /// Its address: the source and the destination of heartbeats.
    pub address: IpAddr,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Whether it has a load balancer for the endpoint.
    pub balances: bool,
    /// Whether it takes over the vote of an etcd host that is gone.
    #[serde(default)]
    pub standby: bool,
    /// Its failure domain.
    #[serde(default)]
    pub zone: Option<String>,
    /// The plug-in that switches its power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PluginName>,
}

impl GuardedHost {
    /// Whether the host has this role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether it should have an etcd member.
    pub fn has_etcd(&self) -> bool {
        self.is(Role::Etcd)
    }

    /// Whether it has an etcd member, or has one once another one is gone.
    pub fn may_vote(&self) -> bool {
        self.has_etcd() || self.standby
    }
}

/// Everything that the guards of a cluster must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The cluster.
    pub cluster: ClusterName,
    /// What they do.
    pub healing: Healing,
    /// The hosts that have one, in the order of the inventory.
    pub guards: Vec<GuardedHost>,
    /// etcd's data directory.
    pub etcd_data_dir: String,
    /// The port of each API server on its host's address.
    pub api_port: u16,
    /// The VIP of the endpoint, if it has one.
    pub vip: Option<IpAddr>,
}

/// Whether a host has a guard: every host of the control plane, if the inventory asks for guards.
pub fn is_guarded(desired: &Desired, host: &Host) -> bool {
    desired.healing.mode != Mode::Off && may_be_guarded(host)
}

/// Whether a host has a guard as soon as the inventory asks for guards.
pub fn may_be_guarded(host: &Host) -> bool {
    host.may_vote() || [Role::ControlPlane, Role::LoadBalancer].into_iter().any(|role| host.is(role))
}

/// Whether a host takes part in repairs of etcd members: it asks others, and answers them.
pub fn heals(desired: &Desired, host: &Host) -> bool {
    desired.healing.mode == Mode::On && host.may_vote()
}

/// Whether a host keeps copies of the snapshots of other etcd hosts.
pub fn keeps_peer_snapshots(desired: &Desired, host: &Host) -> bool {
    heals(desired, host) && desired.may_vote().count() > 1
}

impl Policy {
    /// The policy that the desired state asks for, wherever votes are now.
    pub fn of(desired: &Desired) -> Self {
        let desired = &desired.clone().with_first_votes();
        let guarded = |host: &&Host| is_guarded(desired, host);
        let entry = |host: &Host| GuardedHost {
            name: host.name.clone(),
            address: host.address,
            roles: host.roles.clone(),
            balances: desired.balances(host),
            standby: host.standby,
            zone: host.zone.clone(),
            power: host.power.clone(),
        };
        Self {
            cluster: desired.cluster.clone(),
            healing: desired.healing,
            guards: desired.hosts.iter().filter(guarded).map(entry).collect(),
            etcd_data_dir: desired.etcd.data_dir.display().to_string(),
            api_port: desired.api_port,
            vip: match desired.endpoint.kind {
                EndpointKind::Vip { address, .. } => Some(address),
                EndpointKind::External(_) | EndpointKind::Local { .. } => None,
            },
        }
    }

    /// As a file.
    pub fn to_text(&self) -> String {
        // Plain data without maps of other keys than text: it always has a JSON form.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Which policy it is: guards with another one were configured by another run.
    pub fn digest(&self) -> Digest {
        Digest::of(self.to_text().as_bytes())
    }

    /// A host of the policy.
    pub fn guard(&self, name: &HostName) -> Option<&GuardedHost> {
        self.guards.iter().find(|guard| &guard.name == name)
    }

    /// Whether a guard that hears so many others has a say about the rest: at least half of them. With fewer, it is more
    /// likely cut off itself.
    pub fn has_a_say(&self, heard: usize) -> bool {
        2 * heard >= self.guards.len().saturating_sub(1)
    }

    /// Whether the loss of hosts may change who votes: one stands by, or two may be lost without the quorum.
    pub fn votes_may_move(&self) -> bool {
        let votes = self.guards.iter().filter(|guard| guard.has_etcd()).count();
        votes >= 5 || self.has_standby()
    }

    /// The host, if guards may switch its power, and its plug-in.
    pub fn switchable(&self, name: &HostName) -> Option<(&GuardedHost, &PluginName)> {
        let Healing { mode, reboot, .. } = self.healing;
        let guard = self.guard(name).filter(|_| mode == Mode::On && reboot == Reboot::Power)?;
        Some((guard, guard.power.as_ref()?))
    }

    /// Whether a host stands by for etcd.
    pub fn has_standby(&self) -> bool {
        self.guards.iter().any(|guard| guard.standby)
    }

    /// The other hosts of the policy.
    pub fn others<'a>(&'a self, own: &'a HostName) -> impl Iterator<Item = &'a GuardedHost> {
        self.guards.iter().filter(move |guard| &guard.name != own)
    }
}

#[cfg(test)]
mod tests {
    use super::super::desired::sample;
    use super::*;

    #[test]
    fn a_policy_is_read_back_as_written_and_names_the_hosts_of_the_control_plane_only() {
        let mut desired = sample(3);
        assert!(desired.hosts.iter().all(|host| !is_guarded(&desired, host)), "healing is off by default");
        desired.healing.mode = Mode::Watch;
        desired.hosts[2].roles = vec![Role::Worker];
        let policy = Policy::of(&desired);
        assert_eq!(policy.guards.iter().map(|guard| guard.name.as_str()).collect::<Vec<_>>(), ["cp1", "cp2"]);
        assert_eq!(serde_json::from_str::<Policy>(&policy.to_text()).unwrap(), policy);
        let mut other = policy.clone();
        other.healing.after.frozen_s += 1;
        assert_ne!(policy.digest(), other.digest());
    }
}
