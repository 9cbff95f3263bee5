//! The roles of groups: by common names, and by `--role` for others.
//!
//! In: the groups, and `GROUP=ROLE[,ROLE]`. Out: the roles of each host. An inner group has precedence: `nodes` that
//! contains `masters` does not make them workers.

use super::super::draft::Host;
use super::super::notes::{Notes, listed, short};
use super::super::{ImportError, pairs};
use super::groups::Groups;
use crate::model::desired::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Names in lower case, with `_` for `-`.
const KNOWN: [(&str, &[Role]); 46] = [
    ("kube_control_plane", &[Role::ControlPlane]),
    ("kube_controlplane", &[Role::ControlPlane]),
    ("kube_master", &[Role::ControlPlane]),
    ("kube_masters", &[Role::ControlPlane]),
    ("control_plane", &[Role::ControlPlane]),
    ("control_planes", &[Role::ControlPlane]),
    ("control_plane_nodes", &[Role::ControlPlane]),
    ("controlplane", &[Role::ControlPlane]),
    ("controlplanes", &[Role::ControlPlane]),
    ("controller", &[Role::ControlPlane]),
    ("controllers", &[Role::ControlPlane]),
    ("master", &[Role::ControlPlane]),
    ("masters", &[Role::ControlPlane]),
    ("k8s_control_plane", &[Role::ControlPlane]),
    ("k8s_controlplane", &[Role::ControlPlane]),
    ("k8s_master", &[Role::ControlPlane]),
    ("k8s_masters", &[Role::ControlPlane]),
    ("kubernetes_control_plane", &[Role::ControlPlane]),
    ("kubernetes_masters", &[Role::ControlPlane]),
    ("server", &[Role::ControlPlane, Role::Etcd]),
    ("etcd", &[Role::Etcd]),
    ("etcds", &[Role::Etcd]),
    ("etcd_cluster", &[Role::Etcd]),
    ("kube_node", &[Role::Worker]),
    ("kube_nodes", &[Role::Worker]),
    ("kube_worker", &[Role::Worker]),
    ("kube_workers", &[Role::Worker]),
    ("worker", &[Role::Worker]),
    ("workers", &[Role::Worker]),
    ("worker_nodes", &[Role::Worker]),
    ("k8s_worker", &[Role::Worker]),
    ("k8s_workers", &[Role::Worker]),
    ("k8s_node", &[Role::Worker]),
    ("k8s_nodes", &[Role::Worker]),
    ("node", &[Role::Worker]),
    ("nodes", &[Role::Worker]),
    ("minions", &[Role::Worker]),
    ("agent", &[Role::Worker]),
    ("agents", &[Role::Worker]),
    ("loadbalancer", &[Role::LoadBalancer]),
    ("loadbalancers", &[Role::LoadBalancer]),
    ("load_balancer", &[Role::LoadBalancer]),
    ("load_balancers", &[Role::LoadBalancer]),
    ("lb", &[Role::LoadBalancer]),
    ("haproxy", &[Role::LoadBalancer]),
    ("balancers", &[Role::LoadBalancer]),
];

/// Jump hosts, which are not part of a cluster.
const GATES: [&str; 5] = ["bastion", "bastions", "jump", "jumphost", "jumphosts"];

fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// Roles by groups.
pub struct GroupRoles {
    given: BTreeMap<String, Vec<Role>>,
}

impl GroupRoles {
    /// The usual ones, and those of `--role`.
    pub fn new(groups: &Groups, flags: &[String]) -> Result<Self, ImportError> {
        let mut given = BTreeMap::new();
        for (group, roles) in pairs("--role", "GROUP=ROLE[,ROLE]", flags)? {
            let bad = |why: String, remedy: String| ImportError::Flag {
                flag: "--role",
                text: format!("{group}={roles}"),
                why,
                remedy,
            };
            if !groups.groups.contains_key(&group) {
                let names: Vec<&String> = groups.order.iter().collect();
                return Err(bad(
                    "the inventory has no such group".to_owned(),
                    format!("name one of its groups: {}", listed(&names, 20)),
                ));
            }
            let mut list = Vec::new();
            for word in roles.split(',') {
                let role = word.trim().parse::<Role>().map_err(|_| {
                    bad(
                        format!("{} is not a role", short(word)),
                        "write control-plane, etcd, load-balancer, worker or spare".to_owned(),
                    )
                })?;
                list.push(role);
            }
            given.insert(group, list);
        }
        Ok(Self { given })
    }

    fn of_group(&self, name: &str) -> Option<&[Role]> {
        if let Some(roles) = self.given.get(name) {
            return Some(roles);
        }
        let plain = plain(name);
        KNOWN.iter().find(|(known, _)| *known == plain).map(|(_, roles)| *roles)
    }

    /// The roles of a host.
    pub fn of(&self, groups: &Groups, host: &str, notes: &mut Notes) -> BTreeSet<Role> {
        let mut roles = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open = groups.direct(host);
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            let Some(found) = self.of_group(name) else {
                open.extend(groups.parents(name));
                continue;
            };
            roles.extend(found);
            let sure = self.given.contains_key(name);
            if !sure && matches!(plain(name).as_str(), "server" | "agent" | "agents") {
                let as_what = if found.len() == 2 { "control plane with etcd" } else { "workers" };
                notes.add(
                    groups.groups.get(name).map(|group| group.place.clone()).unwrap_or_default(),
                    format!("the group {} becomes the {as_what}, as in k3s and RKE2", short(name)),
                    format!("if it has another role, set it: --role {}=worker", short(name)),
                );
            }
        }
        roles
    }
}

/// Whether a host is only a jump host.
pub fn is_gate(groups: &Groups, host: &str) -> bool {
    GATES.contains(&plain(host).as_str())
        || groups.direct(host).iter().any(|name| GATES.contains(&plain(name).as_str()))
}

/// Without a control plane there is no inventory; the reason is usually the name of a group.
pub fn expect_control_plane(groups: &Groups, hosts: &[Host], from: &str) -> Result<(), ImportError> {
    if hosts.iter().any(|host| host.roles.contains(&Role::ControlPlane)) {
        return Ok(());
    }
    let names: Vec<&String> = groups.order.iter().filter(|name| *name != "all" && *name != "ungrouped").collect();
    let why = if names.is_empty() {
        "it has hosts and no groups".to_owned()
    } else {
        format!("its groups are {}", listed(&names, 20))
    };
    let remedy = match names.first() {
        None => "put the hosts into groups such as [kube_control_plane] and [kube_node]".to_owned(),
        Some(first) => format!("set the role of its group: --role {}=control-plane", short(first)),
    };
    Err(ImportError::NoControlPlane { from: from.to_owned(), why, remedy })
}
