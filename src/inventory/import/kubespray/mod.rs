//! Kubespray's inventories: Ansible's, with variables that say what the cluster should be.
//!
//! In: an inventory with its `group_vars`. Out: a [`Draft`]. `cluster` reads what hactl has as well, `features` names what it has not.

mod cluster;
mod features;

use super::ansible::scope::{Asked, Scope};
use super::ansible::{self, GroupRoles};
use super::draft::{Draft, Said, Ssh};
use super::notes::{Notes, listed};
use super::{Files, ImportError, Input, Wishes};
use crate::model::desired::Role;

/// Groups that Kubespray makes itself: its samples have `group_vars/k8s_cluster` and no such group, and old names stand for new ones.
const GROUPS: ansible::Implied = &[
    ("kube_control_plane", &["kube-master"]),
    ("kube_node", &["kube-node"]),
    ("k8s_cluster", &["kube_control_plane", "kube_node", "calico_rr", "k8s-cluster"]),
];

/// Makes a draft of it.
pub fn draft(input: &Input, wishes: &Wishes, disk: &dyn Files, notes: &mut Notes) -> Result<Draft, ImportError> {
    let groups = ansible::inventory(input, GROUPS, disk, notes)?;
    let roles = GroupRoles::new(&groups, &wishes.roles)?;
    let asked = Asked::default();
    let mut draft = Draft {
        made_from: format!("the Kubespray inventory {}", input.name),
        file: input.name.clone(),
        cluster: ansible::cluster_name(input, notes),
        ..Draft::default()
    };
    draft.hosts = ansible::hosts(input, &groups, &roles, &asked, notes)?;
    let scopes = ansible::scopes(input, &groups, &draft.hosts, &asked);
    ansible::labels(&scopes, &mut draft.hosts, notes);
    per_host(&scopes, &draft, notes);
    let of = |role: Role| {
        let host = draft.hosts.iter().find(|host| host.roles.contains(&role))?;
        scopes.iter().find(|scope| scope.host == host.given)
    };
    // What concerns the cluster stands in groups that every host of the control plane is in; etcd's own in etcd's.
    if let (Some(control), etcd) = (of(Role::ControlPlane), of(Role::Etcd)) {
        cluster::cluster(control, &mut draft, notes);
        cluster::etcd(etcd.unwrap_or(control), &mut draft, notes);
        features::features(control, notes);
        features::its_own(control, notes);
    }
    if let Some(jump) = bastion(input, &groups, &asked, notes) {
        for host in draft.hosts.iter_mut().filter(|host| host.ssh.jump.is_none()) {
            host.ssh.jump = Some(jump.clone());
        }
    }
    ansible::unused(&groups, &draft.hosts, &asked, notes);
    Ok(draft)
}

/// What Kubespray asks of a host besides.
fn per_host(scopes: &[Scope<'_>], draft: &Draft, notes: &mut Notes) {
    let mut renamed = Vec::new();
    let mut place = String::new();
    for scope in scopes {
        let address = draft.hosts.iter().find(|host| host.given == scope.host).and_then(|host| host.address.as_ref());
        let access = scope.first(&["access_ip"], notes);
        if let (Some(access), Some(address)) = (access, address)
            && access.value != address.value
        {
            notes.add(
                &access.place,
                format!(
                    "{} is reached by the others at {} (access_ip) and binds {}: here both are one address",
                    scope.host, access.value, address.value
                ),
                "write under address the one that its interface has and that the others reach",
            );
        }
        if let Some(name) = scope.text("etcd_member_name", notes)
            && name.value != scope.host
        {
            renamed.push(name.value);
            place = name.place;
        }
        if let Some(name) = scope.text("kube_override_hostname", notes).filter(|name| name.value != scope.host) {
            notes.add(
                &name.place,
                format!("{} is a Node by another name there", scope.host),
                "write it under name, if the Node is to be called so",
            );
        }
    }
    if !renamed.is_empty() {
        notes.add(
            place,
            format!(
                "etcd's members have names of their own there ({}), and here their hosts' names",
                listed(&renamed, 5)
            ),
            "nothing",
        );
    }
}

/// The host that all others are behind.
fn bastion(input: &Input, groups: &ansible::groups::Groups, asked: &Asked, notes: &mut Notes) -> Option<Said> {
    let listed_first = groups.groups.get("bastion").and_then(|group| group.hosts.first());
    let name = listed_first.or_else(|| groups.hosts.iter().find(|host| *host == "bastion"))?;
    let scope = Scope::new(name, groups.vars(name), input.folder.as_deref(), asked);
    let Ssh { host, port, user, .. } = ansible::ssh::ssh(&scope, notes)?;
    let host = host.map_or_else(|| name.clone(), |said| said.value);
    let user = user.map(|said| format!("{}@", said.value)).unwrap_or_default();
    let port = port.filter(|said| said.value != 22).map(|said| format!(":{}", said.value)).unwrap_or_default();
    Some(Said::new(format!("{user}{host}{port}"), name.as_str(), groups.place(name)))
}
