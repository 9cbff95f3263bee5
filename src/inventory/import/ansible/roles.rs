//! The roles of groups: by common names, and by `--role` for others.
//!
//! In: the groups, and `GROUP=ROLE[,ROLE]`. Out: the roles of each host: those of all groups that it is in, directly or
//! through groups inside them, as in `[etcd:children]` with `kube_control_plane`. Two exceptions: `nodes` and similar
//! names often mean all machines, so that `nodes` that contains `masters` does not make them workers; and spares have
//! no other role.

use super::super::draft::Host;
use super::super::error::ImportError;
use super::super::notes::{Notes, listed, short};
use super::super::wishes::pairs;
use super::groups::Groups;
use crate::model::desired::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Names in lower case, with `_` for `-`.
const KNOWN: [(&[Role], &str); 5] = [
    (
        &[Role::ControlPlane],
        "kube_control_plane kube_controlplane kube_master kube_masters control_plane control_planes \
         control_plane_nodes controlplane controlplanes controller controllers master masters \
         k8s_control_plane k8s_controlplane k8s_master k8s_masters kubernetes_control_plane \
         kubernetes_masters",
    ),
    (&[Role::ControlPlane, Role::Etcd], "server"),
    (&[Role::Etcd], "etcd etcds etcd_cluster"),
    (
        &[Role::Worker],
        "kube_node kube_nodes kube_worker kube_workers worker workers worker_nodes k8s_worker k8s_workers \
         k8s_node k8s_nodes node nodes minions agent agents",
    ),
    (&[Role::LoadBalancer], "loadbalancer loadbalancers load_balancer load_balancers lb haproxy balancers"),
];

/// Names that often mean all machines. Such a group adds no role to hosts that have one by a group inside it, unless
/// `--role` names it.
const GENERAL: [&str; 6] = ["kube_nodes", "k8s_node", "k8s_nodes", "node", "nodes", "server"];

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
            let bad =
                |why: String, remedy: String| ImportError::flag("--role", &format!("{group}={roles}"), why, remedy);
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
        KNOWN.iter().find(|(_, names)| names.split(' ').any(|known| known == plain)).map(|(roles, _)| *roles)
    }

    /// The roles of a host.
    pub fn of(&self, groups: &Groups, host: &str, notes: &mut Notes) -> BTreeSet<Role> {
        let mut roles = BTreeSet::new();
        let mut seen = BTreeSet::new();
        // Each group, and whether a group between it and the host has a role.
        let mut open: Vec<(&str, bool)> = groups.direct(host).into_iter().map(|name| (name, false)).collect();
        while let Some((name, inside)) = open.pop() {
            if !seen.insert((name, inside)) {
                continue;
            }
            let found = self.of_group(name);
            let spare = found.is_some_and(|found| found.contains(&Role::Spare));
            if !spare {
                open.extend(groups.parents(name).into_iter().map(|parent| (parent, inside || found.is_some())));
            }
            let sure = self.given.contains_key(name);
            let general = !sure && GENERAL.contains(&plain(name).as_str());
            if inside && (general || spare) {
                continue;
            }
            let Some(found) = found else { continue };
            roles.extend(found);
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
