//! Summary of an inventory: the endpoint, the hosts, and the failures that the cluster survives.
//!
//! In: the desired state. Out: [`Summary`], for `inventory check` as text and as JSON.

use super::check::quorum::{failures, quorum, tolerated};
use crate::model::desired::{Desired, EndpointKind, Role};
use crate::model::duration::human_duration;
use crate::model::healing::keeps_peer_snapshots;
use serde::Serialize;
use std::fmt;

/// Summary of an inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The cluster's name.
    pub cluster: String,
    /// The version of Kubernetes.
    pub kubernetes: String,
    /// The endpoint's URL.
    pub endpoint: String,
    /// What answers at the endpoint.
    pub answered_by: String,
    /// Pod range.
    pub pods: String,
    /// Service range.
    pub services: String,
    /// The hosts.
    pub hosts: Vec<HostLine>,
    /// What each part tolerates, one sentence each.
    pub tolerates: Vec<String>,
    /// Where snapshots are, one sentence each.
    pub snapshots: Vec<String>,
}

/// A host in the summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostLine {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its SSH destination, by the inventory and OpenSSH's configuration.
    pub ssh: String,
    /// Its roles.
    pub roles: Vec<Role>,
    /// Its failure domain.
    pub zone: Option<String>,
    /// Whether it stands by for etcd.
    pub standby: bool,
}

impl Summary {
    /// Summarises a desired state.
    pub fn of(desired: &Desired) -> Self {
        let count = |role| desired.with(role).count();
        let (voters, control, balancers) = (count(Role::Etcd), count(Role::ControlPlane), count(Role::LoadBalancer));
        let mut tolerates = vec![
            format!(
                "{voters} etcd member{}: quorum {}, tolerates {}",
                plural(voters),
                quorum(voters),
                failures(tolerated(voters))
            ),
            format!("{control} API server{}: tolerates {}", plural(control), failures(control.saturating_sub(1))),
        ];
        let answered_by = match &desired.endpoint.kind {
            EndpointKind::Vip { vrid, .. } => {
                tolerates.push(format!(
                    "{balancers} load balancer{}: tolerates {}",
                    plural(balancers),
                    failures(balancers.saturating_sub(1))
                ));
                format!("a virtual address (VRRP router ID {vrid}) on {balancers} host{}", plural(balancers))
            }
            EndpointKind::External(_) => "your own load balancer".to_owned(),
            EndpointKind::Local { name: Some(_) } => "by name; every Node runs its own balancer".to_owned(),
            EndpointKind::Local { name: None } => "one of the API servers; every Node runs its own balancer".to_owned(),
        };
        Self {
            cluster: desired.cluster.to_string(),
            kubernetes: desired.versions.kubernetes.clone(),
            endpoint: desired.url_for_people(),
            answered_by,
            pods: desired.network.pods.to_string(),
            services: desired.network.services.to_string(),
            hosts: desired
                .hosts
                .iter()
                .map(|host| HostLine {
                    name: host.name.to_string(),
                    address: host.address.to_string(),
                    ssh: host.ssh.to_string(),
                    roles: host.roles.clone(),
                    zone: host.zone.clone(),
                    standby: host.standby,
                })
                .collect(),
            tolerates,
            snapshots: snapshots(desired),
        }
    }
}

/// Who takes snapshots, and where copies of them are.
fn snapshots(desired: &Desired) -> Vec<String> {
    let wanted = &desired.snapshots;
    let every = human_duration(i64::try_from(wanted.every_s).unwrap_or(i64::MAX).saturating_mul(1000));
    let places: Vec<String> = wanted.to.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!("one every {every} on each etcd host")];
    if desired.hosts.iter().any(|host| keeps_peer_snapshots(desired, host)) {
        lines.push("each etcd host also keeps the newest of the others".to_owned());
    }
    lines.push(if places.is_empty() {
        "no copy leaves the cluster: `snapshots.to` names no place".to_owned()
    } else {
        format!("copies go to {}", places.join(", "))
    });
    lines
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cluster   {}, Kubernetes {}", self.cluster, self.kubernetes)?;
        writeln!(f, "endpoint  {}, {}", self.endpoint, self.answered_by)?;
        writeln!(f, "networks  pods {}, services {}", self.pods, self.services)?;
        writeln!(f, "hosts     {}", self.hosts.len())?;
        let widest = |pick: fn(&HostLine) -> usize| self.hosts.iter().map(pick).max().unwrap_or(0);
        let (name, address, ssh) = (widest(|h| h.name.len()), widest(|h| h.address.len()), widest(|h| h.ssh.len()));
        for host in &self.hosts {
            let roles = host.roles.iter().map(Role::to_string).collect::<Vec<_>>().join(", ");
            let standby = if host.standby { "  (stands by for etcd)" } else { "" };
            let zone = host.zone.as_ref().map(|zone| format!("  (zone {zone})")).unwrap_or_default();
            writeln!(f, "  {:name$}  {:address$}  {:ssh$}  {roles}{standby}{zone}", host.name, host.address, host.ssh)?;
        }
        writeln!(f, "survives")?;
        for line in &self.tolerates {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "snapshots")?;
        for line in &self.snapshots {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
