//! The result of an importer, before it becomes an inventory: a plain struct that all importers fill in.
//!
//! In: values with their places. Out: the same, completed: roles that the other tool implies are explicit, and SSH
//! settings that all hosts share are moved to the common `ssh`. `write` makes YAML of it. It has only values that were
//! found, no defaults of hactl.

use super::notes::{Notes, listed};
use crate::model::desired::Role;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said<T = String> {
    /// The value.
    pub value: T,
    /// Its name in the foreign file; written as a comment, unless empty.
    pub key: String,
    /// File and line, or path in the file; reported with a violation.
    pub place: String,
}

impl<T> Said<T> {
    /// A value with its name and place.
    pub fn new(value: impl Into<T>, key: impl Into<String>, place: impl Into<String>) -> Self {
        Self { value: value.into(), key: key.into(), place: place.into() }
    }
}

/// The future inventory.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// Description of its source: `the k0sctl file k0sctl.yaml`.
    pub made_from: String,
    /// The foreign file as the user named it.
    pub file: String,
    /// The cluster's name.
    pub cluster: Said,
    /// Kubernetes' version, if it is one that hactl installs.
    pub kubernetes: Option<Said>,
    /// Where clients reach the API.
    pub endpoint: Option<Way>,
    /// Port that clients use.
    pub endpoint_port: Option<Said<u16>>,
    /// Interface for a virtual address.
    pub interface: Option<Said>,
    /// VRRP router ID.
    pub vrid: Option<Said<u8>>,
    /// A DNS name for the endpoint.
    pub endpoint_name: Option<Said>,
    /// More names for the API servers' certificates.
    pub sans: Vec<Said>,
    /// Port of the API servers themselves.
    pub api_port: Option<Said<u16>>,
    /// SSH settings of all hosts.
    pub ssh: Ssh,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// Pod range.
    pub pods: Option<Said>,
    /// Service range.
    pub services: Option<Said>,
    /// Network plugin: flannel or none.
    pub cni: Option<Said>,
    /// Implementation of Services: nftables or none.
    pub kube_proxy: Option<Said>,
    /// etcd's data directory.
    pub etcd_data_dir: Option<Said>,
    /// etcd's quota.
    pub etcd_quota_gib: Option<Said<u32>>,
    /// Registry to mirrors.
    pub mirrors: Vec<(String, Vec<Said>)>,
    /// Proxy for http.
    pub http_proxy: Option<Said>,
    /// Proxy for https.
    pub https_proxy: Option<Said>,
    /// Proxy exceptions.
    pub no_proxy: Vec<Said>,
    /// Flags of components, by their names.
    pub args: BTreeMap<&'static str, BTreeMap<String, Said>>,
    /// Fields of the kubelet's configuration.
    pub kubelet_config: BTreeMap<String, Said<Value>>,
}

/// Where clients reach the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A virtual address.
    Vip(Said),
    /// An external balancer, as host or host:port.
    External(Said),
    /// A balancer on every Node.
    Local(Said<()>),
}

/// SSH settings of one host or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ssh {
    /// Name or address, where that is not the host's address.
    pub host: Option<Said>,
    /// sshd's port.
    pub port: Option<Said<u16>>,
    /// Login user.
    pub user: Option<Said>,
    /// Private key file.
    pub identity: Option<Said>,
    /// File of known host keys.
    pub known_hosts: Option<Said>,
    /// Jump hosts.
    pub jump: Option<Said>,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// Its name in hactl.
    pub name: String,
    /// Its name in the foreign file.
    pub given: String,
    /// Its place.
    pub place: String,
    /// Its address.
    pub address: Option<Said>,
    /// The interface from which the other tool reads the address, if the file has only this.
    pub private_interface: Option<Said>,
    /// Its roles.
    pub roles: BTreeSet<Role>,
    /// Its SSH settings.
    pub ssh: Ssh,
    /// Its failure domain.
    pub zone: Option<Said>,
    /// Node labels.
    pub labels: BTreeMap<String, Said>,
    /// Node taints.
    pub taints: Vec<Said>,
}

impl Draft {
    /// Adds the roles that other tools imply, and removes those that have no effect in hactl.
    pub fn complete_roles(&mut self, notes: &mut Notes) {
        self.etcd_and_balancers();
        if matches!(self.endpoint, Some(Way::External(_) | Way::Local(_))) {
            let alone: BTreeSet<Role> = [Role::LoadBalancer].into();
            let (out, kept): (Vec<Host>, Vec<Host>) =
                std::mem::take(&mut self.hosts).into_iter().partition(|host| host.roles == alone);
            self.hosts = kept;
            if let Some(first) = out.first() {
                let names: Vec<&str> = out.iter().map(|host| host.given.as_str()).collect();
                notes.add(
                    &first.place,
                    format!(
                        "{} are only load balancers, and the endpoint does not use them: left out",
                        listed(&names, 8)
                    ),
                    "manage them yourself, or set a virtual address with --vip ADDRESS, so that hactl manages them",
                );
            }
            for host in &mut self.hosts {
                host.roles.remove(&Role::LoadBalancer);
            }
        }
    }

    fn etcd_and_balancers(&mut self) {
        let nobody = |hosts: &[Host], role| !hosts.iter().any(|host| host.roles.contains(&role));
        let mut more = Vec::new();
        if nobody(&self.hosts, Role::Etcd) {
            more.push(Role::Etcd);
        }
        if matches!(self.endpoint, Some(Way::Vip(_))) && nobody(&self.hosts, Role::LoadBalancer) {
            more.push(Role::LoadBalancer);
        }
        for host in self.hosts.iter_mut().filter(|host| host.roles.contains(&Role::ControlPlane)) {
            host.roles.extend(more.iter().copied());
        }
    }

    /// Moves a setting to the common `ssh` if all hosts have it, with the value of most of them.
    pub fn lift(&mut self) {
        lift(&mut self.ssh.port, &mut self.hosts, |ssh| &mut ssh.port);
        lift(&mut self.ssh.user, &mut self.hosts, |ssh| &mut ssh.user);
        lift(&mut self.ssh.identity, &mut self.hosts, |ssh| &mut ssh.identity);
        lift(&mut self.ssh.known_hosts, &mut self.hosts, |ssh| &mut ssh.known_hosts);
        lift(&mut self.ssh.jump, &mut self.hosts, |ssh| &mut ssh.jump);
    }
}

fn lift<T: Ord + Clone>(common: &mut Option<Said<T>>, hosts: &mut [Host], pick: fn(&mut Ssh) -> &mut Option<Said<T>>) {
    if common.is_none() {
        let mut counts: BTreeMap<T, (usize, Said<T>)> = BTreeMap::new();
        for host in hosts.iter_mut() {
            // A host without the setting uses its default, which must not be replaced.
            let Some(said) = pick(&mut host.ssh) else { return };
            counts.entry(said.value.clone()).or_insert_with(|| (0, said.clone())).0 += 1;
        }
        let most = counts.values().map(|(n, _)| *n).max().unwrap_or(0);
        // For a single host too, the common `ssh` is the place where people expect it.
        *common =
            counts.into_values().find(|(n, _)| *n == most && (most > 1 || hosts.len() == 1)).map(|(_, said)| said);
    }
    let Some(shared) = common else { return };
    for host in hosts {
        let own = pick(&mut host.ssh);
        if own.as_ref().is_some_and(|said| said.value == shared.value) {
            *own = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(user: Option<&str>, roles: &[Role]) -> Host {
        let mut host = Host { roles: roles.iter().copied().collect(), ..Host::default() };
        host.ssh.user = user.map(|user| Said::new(user, "", ""));
        host
    }

    #[test]
    fn the_most_common_value_becomes_the_default_only_when_every_host_has_one() {
        let mut draft =
            Draft { hosts: [Some("a"), Some("a"), Some("b")].map(|u| host(u, &[])).to_vec(), ..Draft::default() };
        draft.lift();
        assert_eq!(draft.ssh.user.unwrap().value, "a");
        assert_eq!(draft.hosts.iter().filter(|h| h.ssh.user.is_some()).count(), 1);
        let mut draft =
            Draft { hosts: [Some("a"), Some("a"), None].map(|u| host(u, &[])).to_vec(), ..Draft::default() };
        draft.lift();
        assert!(draft.ssh.user.is_none() && draft.hosts[0].ssh.user.is_some());
    }

    #[test]
    fn the_control_plane_gets_etcd_and_the_virtual_address_if_no_other_host_has_them() {
        let hosts = || [host(None, &[Role::ControlPlane]), host(None, &[Role::Worker])].to_vec();
        let way = Way::Vip(Said::new("10.0.0.1", "", ""));
        let mut draft = Draft { hosts: hosts(), endpoint: Some(way.clone()), ..Draft::default() };
        draft.complete_roles(&mut Notes::default());
        assert_eq!(draft.hosts[0].roles, [Role::ControlPlane, Role::Etcd, Role::LoadBalancer].into());
        assert_eq!(draft.hosts[1].roles, [Role::Worker].into());
        let mut draft = Draft { hosts: hosts(), endpoint: Some(way), ..Draft::default() };
        draft.hosts.push(host(None, &[Role::Etcd]));
        draft.hosts.push(host(None, &[Role::LoadBalancer]));
        draft.complete_roles(&mut Notes::default());
        assert_eq!(draft.hosts[0].roles, [Role::ControlPlane].into());
    }

    #[test]
    fn balancers_of_an_endpoint_that_is_not_theirs_are_left_out_with_a_word() {
        let hosts = vec![host(None, &[Role::ControlPlane, Role::LoadBalancer]), host(None, &[Role::LoadBalancer])];
        let way = Way::External(Said::new("api:6443", "", ""));
        let mut draft = Draft { hosts, endpoint: Some(way), ..Draft::default() };
        let mut notes = Notes::default();
        draft.complete_roles(&mut notes);
        assert_eq!(draft.hosts.len(), 1);
        assert!(!draft.hosts[0].roles.contains(&Role::LoadBalancer));
        assert_eq!(notes.into_list().len(), 1);
    }
}
