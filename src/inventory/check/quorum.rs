//! The roles and zones together: refuses combinations that cannot work, and warns about those that tolerate fewer
//! failures than they seem to.

use super::hosts::{Hosts, Placed};
use super::validator::Validator;
use crate::inventory::at::Place;
use crate::inventory::schema::{self, Inventory};
use crate::model::desired::{Endpoint, EndpointKind, Role};
use std::collections::BTreeMap;

/// Voters that form a majority.
pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// Voters that may fail.
pub const fn tolerated(voters: usize) -> usize {
    voters.saturating_sub(quorum(voters))
}

/// `1 failure`, `2 failures`.
pub fn failures(n: usize) -> String {
    match n {
        0 => "no failure".to_owned(),
        1 => "1 failure".to_owned(),
        n => format!("{n} failures"),
    }
}

/// Validates how many hosts have each role.
pub fn roles(judge: &mut Validator<'_>, raw: &Inventory, top: Place, endpoint: &Endpoint, hosts: &Hosts) {
    let etcd = hosts.with(Role::Etcd).count();
    let control = hosts.with(Role::ControlPlane).count();
    let balancers = hosts.with(Role::LoadBalancer).count();
    if hosts.list.is_empty() || !hosts.roles_known {
        // These counts change when the roles are corrected.
        return;
    }
    missing(judge, raw, top, endpoint, hosts);
    let place = |role| hosts.with(role).last().map_or(hosts.place, |p| p.roles);
    if etcd > 1 && etcd.is_multiple_of(2) {
        judge.warn(
            place(Role::Etcd),
            format!(
                "{etcd} etcd members (quorum {}) tolerate {}, no more than {} would, and one more machine can fail",
                quorum(etcd),
                failures(tolerated(etcd)),
                etcd - 1,
            ),
            "an odd number: 3 or 5",
            format!(
                "remove the role etcd from one host, or add it to one more: {} members tolerate {}",
                etcd + 1,
                failures(tolerated(etcd + 1))
            ),
        );
    }
    if etcd > 7 {
        judge.warn(
            place(Role::Etcd),
            format!("{etcd} etcd members: every write waits for {} of them", quorum(etcd)),
            "3 or 5, at most 7",
            "remove the role etcd from some hosts; they can stay control-plane or workers",
        );
    }
    if etcd == 1 {
        judge.warn(
            place(Role::Etcd),
            "one etcd member: if its host is lost, the cluster is down until you restore a snapshot",
            "3 members, which tolerate 1 failure",
            "sufficient for a test cluster; add hosts later and run `hactl up` again",
        );
    }
    if control == 1 && etcd != 1 {
        judge.warn(
            place(Role::ControlPlane),
            "one control-plane host: while it is down, the API is down",
            "at least 2, usually 3",
            "add the role control-plane to more hosts",
        );
    }
    if matches!(endpoint.kind, EndpointKind::Vip { .. }) && balancers == 1 && hosts.list.len() > 1 {
        judge.warn(
            place(Role::LoadBalancer),
            "one load balancer: the virtual address cannot move to another host",
            "at least 2 hosts with the role load-balancer",
            "add the role to the other control-plane hosts",
        );
    }
}

fn missing(judge: &mut Validator<'_>, raw: &Inventory, top: Place, endpoint: &Endpoint, hosts: &Hosts) {
    for (role, does) in [(Role::ControlPlane, "run the API server"), (Role::Etcd, "keep the cluster's state")] {
        if hosts.with(role).next().is_none() {
            judge.refuse(
                hosts.place,
                format!("no host has the role {role}"),
                format!("hosts that {does}: 3, or 1 for a test cluster"),
                format!("add {role} to the roles of three hosts"),
            );
        }
    }
    let first = hosts.with(Role::LoadBalancer).next();
    let place = raw.endpoint.as_ref().map_or(top, |e| e.value.vip.as_ref().map_or(e.place, |vip| vip.place));
    match (&endpoint.kind, first) {
        (EndpointKind::Vip { address, .. }, None) => judge.refuse(
            place,
            format!("no host can have the virtual address {address}: no host has the role load-balancer"),
            "at least 2 hosts with the role load-balancer",
            "add load-balancer to the roles of the control-plane hosts, or use `external:`",
        ),
        (EndpointKind::External(_) | EndpointKind::Local { .. }, Some(placed)) => {
            let local = |e: &schema::Endpoint| e.local.as_ref().is_some_and(|local| local.value);
            // Not for the placeholder of an invalid endpoint.
            let meant = |e: &schema::Endpoint| e.vip.is_none() && (e.external.is_some() || local(e));
            let instead = match endpoint.kind {
                EndpointKind::Local { .. } => "every Node runs its own balancer",
                _ => "the endpoint is external",
            };
            if raw.endpoint.as_ref().is_some_and(|e| meant(&e.value)) {
                judge.warn(
                    placed.roles,
                    format!("{} has the role load-balancer, but {instead}: the role has no effect", placed.host.name),
                    "the role load-balancer only with a virtual address",
                    "remove the role, or use `vip:`",
                );
            }
        }
        _ => {}
    }
}

/// Validates, if zones are used, that the cluster survives the loss of one zone.
pub fn zones(judge: &mut Validator<'_>, hosts: &Hosts) {
    if hosts.list.iter().all(|p| p.host.zone.is_none()) {
        return;
    }
    for placed in hosts.list.iter().filter(|p| p.host.zone.is_none() && p.host.is(Role::Etcd)) {
        judge.warn(
            placed.start,
            format!("{} has an etcd member and no zone, while other hosts have a zone", placed.host.name),
            "a zone for every host, or for none",
            "add `zone:`: without it, hactl cannot determine the effect of the loss of a zone",
        );
    }
    let voters = hosts.with(Role::Etcd).count();
    for (zone, members) in by_zone(hosts, Role::Etcd) {
        if voters > 1 && voters - members.len() < quorum(voters) {
            judge.warn(
                members[0].zone,
                format!(
                    "zone {zone} has {} of {voters} etcd members: its loss means quorum loss (quorum: {})",
                    members.len(),
                    quorum(voters)
                ),
                format!("at most {} in one zone, so at least 3 zones", tolerated(voters)),
                "distribute the members across zones, or accept that the cluster depends on this zone",
            );
        }
    }
    for (role, lost) in [(Role::LoadBalancer, "the endpoint"), (Role::ControlPlane, "the API")] {
        let all = hosts.with(role).count();
        for (zone, members) in by_zone(hosts, role) {
            if all > 1 && members.len() == all {
                judge.warn(
                    members[0].zone,
                    format!("zone {zone} has every host with the role {role}: its loss takes down {lost}"),
                    "the role in at least 2 zones",
                    format!("add the role {role} to a host of another zone"),
                );
            }
        }
    }
}

fn by_zone(hosts: &Hosts, role: Role) -> BTreeMap<&str, Vec<&Placed>> {
    let mut zones: BTreeMap<&str, Vec<&Placed>> = BTreeMap::new();
    for placed in hosts.with(role) {
        if let Some(zone) = &placed.host.zone {
            zones.entry(zone).or_default().push(placed);
        }
    }
    zones
}
