//! Ansible inventories: groups become roles, connection variables become SSH settings.
//!
//! In: an inventory in either notation, with `group_vars` and `host_vars` beside it. Out: a [`Draft`], and notes for
//! groups without a role and for unused variables.

mod beside;
pub mod groups;
mod ini;
mod roles;
pub mod scope;
pub mod ssh;
mod unused;
mod yaml;

use super::draft::{Draft, Host, Said};
use super::error::ImportError;
use super::names;
use super::notes::{Notes, listed, short};
use super::source::Input;
use super::wishes::Wishes;
use crate::inventory::files::Files;
use groups::Groups;
use scope::{Asked, Scope};
use std::net::Ipv4Addr;

pub use roles::GroupRoles;
pub use unused::unused;

/// Groups that a tool's playbooks derive from others, so that files beside the inventory may have their names.
pub type Implied = &'static [(&'static str, &'static [&'static str])];

/// Reads an inventory in either notation, with the files beside it.
pub fn inventory(input: &Input, implied: Implied, disk: &dyn Files, notes: &mut Notes) -> Result<Groups, ImportError> {
    let file = input.file_name();
    let speaking = input.text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let first = speaking.clone().find(|line| !line.is_empty() && !line.starts_with(['#', ';'])).unwrap_or_default();
    let named = file.ends_with(".yml") || file.ends_with(".yaml") || file.ends_with(".json");
    let key = first.split(" #").next().unwrap_or_default().trim_end();
    let is_yaml = !first.starts_with('[') && (named || first == "---" || key.ends_with(':') || first.starts_with('{'));
    let mut groups =
        if is_yaml { yaml::parse(&input.name, &input.text)? } else { ini::parse(&input.name, &input.text)? };
    groups.imply(implied);
    match &input.folder {
        Some(folder) => beside::read(&mut groups, input, folder, disk, notes),
        None => notes.add(
            &input.name,
            "group_vars and host_vars are beside an inventory, and standard input has no folder: not read",
            "if you have such files, name the inventory's file instead",
        ),
    }
    Ok(groups)
}

/// Makes a draft of it.
pub fn draft(input: &Input, wishes: &Wishes, disk: &dyn Files, notes: &mut Notes) -> Result<Draft, ImportError> {
    let groups = inventory(input, &[], disk, notes)?;
    let roles = GroupRoles::new(&groups, &wishes.roles)?;
    let asked = Asked::default();
    let mut draft = Draft {
        made_from: format!("the Ansible inventory {}", input.name),
        file: input.name.clone(),
        cluster: cluster_name(input, notes),
        ..Draft::default()
    };
    draft.hosts = hosts(input, &groups, &roles, &asked, notes)?;
    let scopes = scopes(input, &groups, &draft.hosts, &asked);
    labels(&scopes, &mut draft.hosts, notes);
    hint(&groups, &draft.hosts, notes);
    gates(&groups, &draft.hosts, notes);
    unused(&groups, &draft.hosts, &asked, notes);
    Ok(draft)
}

/// Jump hosts are not part of the cluster, and no group defines which hosts are behind them.
fn gates(groups: &Groups, hosts: &[Host], notes: &mut Notes) {
    let part = |name: &str| hosts.iter().any(|host| host.given == name);
    let gates = groups.hosts.iter().filter(|name| roles::is_gate(groups, name) && !part(name));
    let gates: Vec<&str> = gates.map(String::as_str).collect();
    if let Some(first) = gates.first() {
        notes.add(
            groups.place(first),
            format!("{} is a jump host by its name, and not part of the cluster: left out", listed(&gates, 5)),
            "name it under ssh.jump, unless the hosts' own settings do so already",
        );
    }
}

/// A Kubespray inventory that is imported as an Ansible inventory loses the settings of the cluster.
fn hint(groups: &Groups, hosts: &[Host], notes: &mut Notes) {
    const ITS_OWN: [&str; 5] =
        ["kube_version", "kube_network_plugin", "kube_service_addresses", "kube_pods_subnet", "loadbalancer_apiserver"];
    let names: Vec<&str> = hosts.iter().map(|host| host.given.as_str()).collect();
    if let Some((key, var)) = groups.everything(&names).into_iter().find(|(key, _)| ITS_OWN.contains(key)) {
        notes.add(
            &var.place,
            format!("{key} is a variable of Kubespray, and an import from Ansible converts only the hosts"),
            "use `hactl inventory import kubespray`, which converts the cluster's settings too",
        );
    }
}

/// The scopes of the hosts that are part of the cluster.
pub fn scopes<'a>(input: &Input, groups: &'a Groups, hosts: &[Host], asked: &'a Asked) -> Vec<Scope<'a>> {
    let names = groups.hosts.iter().filter(|name| hosts.iter().any(|host| host.given == **name));
    names.map(|name| Scope::new(name, groups.vars(name), input.folder.as_deref(), asked)).collect()
}

/// The hosts that have a role, with their SSH settings and addresses.
pub fn hosts(
    input: &Input,
    groups: &Groups,
    roles: &GroupRoles,
    asked: &Asked,
    notes: &mut Notes,
) -> Result<Vec<Host>, ImportError> {
    let mut hosts = Vec::new();
    let mut unknown_nodes: Vec<&str> = Vec::new();
    for name in &groups.hosts {
        let given = roles.of(groups, name, notes);
        if given.is_empty() {
            if !roles::is_gate(groups, name) {
                unknown_nodes.push(name);
            }
            continue;
        }
        let scope = Scope::new(name, groups.vars(name), input.folder.as_deref(), asked);
        let Some(mut ssh) = ssh::ssh(&scope, notes) else { continue };
        let place = groups.place(name);
        let mut address = scope.first(&["ip"], notes);
        if let Some(said) = address.take_if(|said| said.value.parse::<Ipv4Addr>().is_err()) {
            notes.add(
                said.place,
                format!("ip of {name} is not an IPv4 address: {}; left out", short(&said.value)),
                format!("set it with --address {name}=ADDRESS"),
            );
        }
        if address.is_none() {
            let of_name = Some(Said::new(name.as_str(), "", place.as_str()));
            let known = ssh.host.clone().or(of_name);
            address = known.filter(|said| said.value.parse::<Ipv4Addr>().is_ok());
        }
        match (&ssh.host, &address) {
            (Some(host), Some(address)) if host.value == address.value => ssh.host = None,
            // hactl can connect to its name without an address.
            (None, found)
                if found.as_ref().is_none_or(|a| a.value != *name)
                    && name.contains('.')
                    && name.parse::<Ipv4Addr>().is_err() =>
            {
                ssh.host = Some(Said::new(name.as_str(), "", place.as_str()));
            }
            _ => {}
        }
        hosts.push(Host { given: name.clone(), place, address, roles: given, ssh, ..Host::default() });
    }
    roles::expect_control_plane(groups, &hosts, &input.name)?;
    if let Some(first) = unknown_nodes.first() {
        notes.add(
            groups.place(first),
            format!("{} are in no group with a role: left out", listed(&unknown_nodes, 20)),
            "if they belong to the cluster, set the role of their group: --role GROUP=worker (control-plane, etcd, \
             load-balancer, spare)",
        );
    }
    Ok(hosts)
}

/// Labels and taints in Kubespray's variables, which other playbooks use too.
pub fn labels(scopes: &[Scope<'_>], hosts: &mut [Host], notes: &mut Notes) {
    for scope in scopes {
        let Some(host) = hosts.iter_mut().find(|host| host.given == scope.host) else { continue };
        if let Some(var) = scope.node("node_labels", notes) {
            for (key, node) in var.node.entries() {
                let Some(text) = node.as_text() else {
                    notes.add(
                        &var.place,
                        format!("the label {} is not a text: left out", short(key)),
                        "write it under the host's labels in the new inventory",
                    );
                    continue;
                };
                let said = Said::new(text, "", var.place.as_str());
                match key.as_str() {
                    "topology.kubernetes.io/zone" | "failure-domain.beta.kubernetes.io/zone" => {
                        host.zone = Some(Said { key: key.clone(), ..said });
                    }
                    _ => {
                        host.labels.insert(key.clone(), said);
                    }
                }
            }
            if !var.node.is_map() && !var.node.is_empty() {
                notes.add(
                    &var.place,
                    "node_labels is not a mapping: left out",
                    "write the labels under the host in the new inventory",
                );
            }
        }
        host.taints = scope.list("node_taints", notes);
        host.taints.iter_mut().for_each(|taint| taint.key.clear());
    }
}

/// A name from the inventory's folder, because the file itself contains none.
pub fn cluster_name(input: &Input, notes: &mut Notes) -> Said {
    let common = ["inventory", "inventories", "sample", "hosts", "ansible", "local", "import", "."];
    let folder = input.folder.as_deref().and_then(|folder| folder.file_name()).and_then(|name| name.to_str());
    let stem = input.file_name().split('.').next();
    let mut named = [folder, stem]
        .into_iter()
        .flatten()
        .filter(|name| !common.contains(name) && *name != "-" && !name.starts_with('<'));
    let name = named.find_map(names::cluster).unwrap_or_else(|| "kubernetes".to_owned());
    notes.add(
        &input.name,
        format!("the file has no name for the cluster: it is called {name} here"),
        "choose another with --cluster NAME before the first `hactl up`: the state directory and kubeconfig use it",
    );
    Said::new(name, "", input.name.as_str())
}
