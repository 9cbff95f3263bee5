//! Kubespray inventories: Ansible inventories with variables that describe the cluster.
//!
//! In: an inventory with its `group_vars`. Out: a [`Draft`]. `cluster`, `endpoint` and `mirrors` read the settings that
//! hactl has, `features` reports those that it does not have.

mod cluster;
mod endpoint;
mod features;
mod mirrors;

use super::ansible::groups::Groups;
use super::ansible::scope::{Asked, Scope};
use super::ansible::{self, GroupRoles};
use super::draft::{Draft, Said, Ssh};
use super::error::ImportError;
use super::notes::{Notes, listed, short};
use super::source::Input;
use super::wishes::Wishes;
use crate::inventory::files::Files;
use crate::model::desired::Role;

/// Groups that Kubespray derives: its samples have `group_vars/k8s_cluster` and no such group, and old names are
/// aliases of new ones.
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
    // Settings of the cluster are in groups of all control-plane hosts; etcd's in groups of the etcd hosts.
    if let (Some(control), etcd) = (of(Role::ControlPlane), of(Role::Etcd)) {
        cluster::cluster(control, &mut draft, notes);
        cluster::etcd(etcd.unwrap_or(control), &mut draft, notes);
        for_all(control, &scopes, &draft, notes);
        let others = scopes.iter().filter(|scope| scope.host != control.host);
        let all: Vec<&Scope<'_>> = std::iter::once(control).chain(others).collect();
        features::features(&all, notes);
        features::its_own(&all, notes);
    }
    if let Some((jump, ssh)) = bastion(input, &groups, &asked, notes) {
        of_its_own(&ssh, &jump, &draft, notes);
        for host in draft.hosts.iter_mut().filter(|host| host.ssh.jump.is_none()) {
            host.ssh.jump = Some(jump.clone());
        }
    }
    ansible::unused(&groups, &draft.hosts, &asked, notes);
    Ok(draft)
}

/// Kubespray's other settings of a host.
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
                    "the other hosts reach {} at {} (access_ip), and it binds {}: here both are one address",
                    scope.host, access.value, address.value
                ),
                "write the address of its interface, which the other hosts can reach, under address",
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
                format!("the Node of {} has another name there", scope.host),
                "write it under name, if the Node should have that name",
            );
        }
    }
    if !renamed.is_empty() {
        notes.add(
            place,
            format!("etcd's members have their own names there ({}), and their hosts' names here", listed(&renamed, 5)),
            "nothing",
        );
    }
}

/// Settings of single hosts in Kubespray and of all hosts in hactl: a value of the control plane also applies to
/// workers here.
fn for_all(control: &Scope<'_>, scopes: &[Scope<'_>], draft: &Draft, notes: &mut Notes) {
    const OF_HOSTS: &str = "kubelet_max_pods kubelet_config_extra_args containerd_registries_mirrors \
                            containerd_registries http_proxy https_proxy no_proxy additional_no_proxy";
    let is_node = |scope: &&Scope<'_>| {
        let host = draft.hosts.iter().find(|host| host.given == scope.host);
        host.is_some_and(|host| host.roles.contains(&Role::ControlPlane) || host.roles.contains(&Role::Worker))
    };
    let usual =
        |key: &str| key == "kubelet_max_pods" && control.raw(key).is_some_and(|var| var.node.as_text() == Some("110"));
    for key in OF_HOSTS.split(' ').filter(|key| control.has(key) && !usual(key)) {
        let without = scopes.iter().filter(is_node).filter(|scope| !scope.has(key));
        let without: Vec<&str> = without.map(|scope| scope.host).collect();
        if let (Some(var), false) = (control.raw(key), without.is_empty()) {
            notes.add(
                &var.place,
                format!("{key} is not set for {} there, and applies to every host here", listed(&without, 10)),
                "remove it from the new inventory if it must not apply to these hosts",
            );
        }
    }
}

/// Settings of the bastion that hactl takes from the host behind it.
fn of_its_own(bastion: &Ssh, name: &Said, draft: &Draft, notes: &mut Notes) {
    let behind: Vec<&Ssh> = draft.hosts.iter().map(|host| &host.ssh).filter(|ssh| ssh.jump.is_none()).collect();
    let alike = |pick: fn(&Ssh) -> &Option<Said>, value: &str| {
        behind.iter().all(|ssh| pick(ssh).as_ref().is_some_and(|said| said.value == value))
    };
    let gate = short(name.value.rsplit_once('@').map_or(name.value.as_str(), |(_, host)| host));
    let gate = gate.split(':').next().unwrap_or_default();
    if let Some(key) = bastion.identity.as_ref().filter(|key| !alike(|ssh| &ssh.identity, &key.value)) {
        let key_file = short(&key.value);
        notes.add(
            &key.place,
            format!("the bastion has its own key, and hactl would use that of the host behind it: {key_file}"),
            format!("write into ~/.ssh/config: Host {gate}, below it IdentityFile {key_file}"),
        );
    }
    if let Some(file) = bastion.known_hosts.as_ref().filter(|file| !alike(|ssh| &ssh.known_hosts, &file.value)) {
        notes.add(
            &file.place,
            format!("the bastion's host key is in a separate file: {}", short(&file.value)),
            format!("write into ~/.ssh/config: Host {gate}, below it UserKnownHostsFile and that file"),
        );
    }
    if let Some(further) = bastion.jump.as_ref().filter(|_| !behind.is_empty()) {
        notes.add(
            &further.place,
            format!("the bastion is itself behind {}: left out", short(&further.value)),
            format!("write both under ssh.jump, the nearest first: {},{}", short(&further.value), short(&name.value)),
        );
    }
}

/// The bastion in front of all hosts, as a jump host and with its SSH settings.
fn bastion(input: &Input, groups: &Groups, asked: &Asked, notes: &mut Notes) -> Option<(Said, Ssh)> {
    let listed_first = groups.groups.get("bastion").and_then(|group| group.hosts.first());
    let name = listed_first.or_else(|| groups.hosts.iter().find(|host| *host == "bastion"))?;
    let scope = Scope::new(name, groups.vars(name), input.folder.as_deref(), asked);
    let ssh = ansible::ssh::ssh(&scope, notes)?;
    let host = ssh.host.as_ref().map_or(name.as_str(), |said| &said.value);
    let user = ssh.user.as_ref().map(|said| format!("{}@", said.value)).unwrap_or_default();
    let port = ssh.port.as_ref().filter(|said| said.value != 22);
    let port = port.map(|said| format!(":{}", said.value)).unwrap_or_default();
    Some((Said::new(format!("{user}{host}{port}"), name.as_str(), groups.place(name)), ssh))
}
