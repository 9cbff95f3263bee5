//! The view of what keeps drains from the quorum: which hosts of the control plane may be emptied at the same time.
//!
//! In: the desired state. Out: a group of hosts for each set of roles, and what is asked on each of them.

use super::addons::Taint;
use super::kubelet;
use crate::model::control_plane::QUORUM_PODS;
use crate::model::desired::{Desired, Host, Role};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The port of etcd's metrics and health, on loopback.
const ETCD_HEALTH: u16 = 2384;
/// So many voters tolerate the failure of one.
const TOLERANT: usize = 3;

/// For `manifests/quorum.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Quorum {
    /// The hosts that may be away at once.
    pub most_away: usize,
    pub groups: Vec<Group>,
    /// An image that does nothing.
    pub image: String,
}

/// Hosts on which the same components run.
#[derive(Debug, Serialize)]
pub(crate) struct Group {
    pub name: &'static str,
    pub hosts: Vec<String>,
    pub taints: BTreeSet<Taint>,
    pub watched: Vec<Watched>,
}

/// A component whose health is asked.
#[derive(Debug, Serialize)]
pub(crate) struct Watched {
    pub name: &'static str,
    /// The probe of the kubelet.
    pub asks: Value,
}

impl Quorum {
    /// Of all Nodes with a member of etcd or an API server.
    pub fn of(desired: &Desired, image: String) -> Self {
        let groups = QUORUM_PODS.into_iter().filter_map(|pods| {
            let runs = |host: &&Host| {
                let roles = [host.is(Role::Etcd), host.is(Role::ControlPlane)];
                host.is_node() && roles == [pods.etcd, pods.api_server]
            };
            let hosts: Vec<&Host> = desired.hosts.iter().filter(runs).collect();
            let taints = hosts.iter().flat_map(|host| kubelet::taints(desired, host));
            let member = pods.etcd.then(|| Watched {
                name: "etcd",
                asks: json!({"host": "127.0.0.1", "port": ETCD_HEALTH, "path": "/readyz", "scheme": "HTTP"}),
            });
            let server = pods.api_server.then(|| Watched {
                name: "api-server",
                asks: json!({"port": desired.api_port, "path": "/readyz", "scheme": "HTTPS"}),
            });
            let group = Group {
                name: pods.name,
                hosts: hosts.iter().map(|host| host.name.to_string()).collect(),
                taints: taints.map(|text| Taint::of(&text).of_any_value()).collect(),
                watched: member.into_iter().chain(server).collect(),
            };
            (!group.hosts.is_empty()).then_some(group)
        });
        let tolerates = desired.with(Role::Etcd).count() >= TOLERANT && desired.with(Role::ControlPlane).count() > 1;
        Self { most_away: usize::from(tolerates), groups: groups.collect(), image }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;

    fn quorum(desired: &Desired) -> Quorum {
        Quorum::of(desired, "pause".to_owned())
    }

    #[test]
    fn one_host_may_be_away_where_etcd_and_api_servers_tolerate_it() {
        for (hosts, most) in [(1, 0), (3, 1), (5, 1)] {
            let desired = sample(hosts);
            let quorum = quorum(&desired);
            assert_eq!(quorum.most_away, most, "{hosts} hosts");
            let [group] = quorum.groups.as_slice() else { panic!("{:?}", quorum.groups) };
            assert_eq!(
                (group.name, group.hosts.len(), group.watched.len()),
                ("control-plane-quorum", usize::from(hosts), 2)
            );
        }
        let mut desired = sample(3);
        desired.hosts[2].roles = vec![Role::ControlPlane];
        desired.hosts[1].roles = vec![Role::Etcd];
        let quorum = quorum(&desired);
        let names: Vec<&str> = quorum.groups.iter().map(|group| group.name).collect();
        assert_eq!(names, ["control-plane-quorum", "api-server-quorum"], "a host without a kubelet is never drained");
        assert_eq!(quorum.most_away, 0, "two voters tolerate no failure");
    }

    #[test]
    fn pods_tolerate_the_taints_of_the_inventory_and_never_a_cordon() {
        let mut desired = sample(3);
        desired.hosts[0].taints = vec!["gpu=yes:NoSchedule".to_owned()];
        let quorum = quorum(&desired);
        let taints = serde_json::to_value(&quorum.groups[0].taints).unwrap();
        let gpu = json!({"key": "gpu", "value": "", "effect": "NoSchedule"});
        assert!(taints.as_array().unwrap().contains(&gpu), "{taints}");
        assert!(!taints.to_string().contains("unschedulable"));
    }
}
