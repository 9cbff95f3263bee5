//! What the roles and zones add up to: refuses what cannot work, warns of what works but survives less than it seems.

use super::Validator;
use super::hosts::{Hosts, Placed};
use crate::inventory::at::Place;
use crate::inventory::schema::{self, Inventory};
use crate::model::desired::{Endpoint, EndpointKind, Role};
use std::collections::BTreeMap;

/// Voters needed for a majority.
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

/// Judges how many hosts have which role.
pub fn roles(judge: &mut Validator<'_>, raw: &Inventory, top: Place, endpoint: &Endpoint, hosts: &Hosts) {
    let etcd = hosts.with(Role::Etcd).count();
    let control = hosts.with(Role::ControlPlane).count();
    let balancers = hosts.with(Role::LoadBalancer).count();
    if hosts.list.is_empty() || !hosts.roles_known {
        // Whatever these counts say, it would change once the roles are put right.
        return;
    }
    missing(judge, raw, top, endpoint, hosts);
    let place = |role| hosts.with(role).last().map_or(hosts.place, |p| p.roles);
    if etcd > 1 && etcd.is_multiple_of(2) {
        judge.warn(
            place(Role::Etcd),
            format!(
                "{etcd} etcd members need {} for a majority and tolerate {}, no more than {} would, with one more machine that can fail",
                quorum(etcd), failures(tolerated(etcd)), etcd - 1,
            ),
            "an odd number: 3 or 5",
            format!("take the role etcd from one host, or give it to one more: {} members tolerate {}", etcd + 1, failures(tolerated(etcd + 1))),
        );
    }
    if etcd > 7 {
        judge.warn(
            place(Role::Etcd),
            format!("{etcd} etcd members: every write waits for {} of them", quorum(etcd)),
            "3 or 5, at most 7",
            "take the role etcd from some hosts; they can stay control-plane or workers",
        );
    }
    if etcd == 1 {
        judge.warn(
            place(Role::Etcd),
            "one etcd member: when its host is lost the cluster stops until it is restored from a snapshot",
            "3 members, which tolerate 1 failure",
            "fine for a trial; add hosts later and run `hactl up` again",
        );
    }
    if control == 1 && etcd != 1 {
        judge.warn(
            place(Role::ControlPlane),
            "one control-plane host: when it is down so is the API",
            "at least 2, usually 3",
            "give the role control-plane to more hosts",
        );
    }
    if matches!(endpoint.kind, EndpointKind::Vip { .. }) && balancers == 1 && hosts.list.len() > 1 {
        judge.warn(
            place(Role::LoadBalancer),
            "one load balancer: the virtual address has nowhere to move to",
            "at least 2 hosts with the role load-balancer",
            "give the role to the other control-plane hosts",
        );
    }
}

fn missing(judge: &mut Validator<'_>, raw: &Inventory, top: Place, endpoint: &Endpoint, hosts: &Hosts) {
    for (role, does) in [(Role::ControlPlane, "run the API server"), (Role::Etcd, "keep the cluster's state")] {
        if hosts.with(role).next().is_none() {
            judge.refuse(
                hosts.place,
                format!("no host has the role {role}"),
                format!("hosts that {does}: 3, or 1 for a trial"),
                format!("add {role} to the roles of three hosts"),
            );
        }
    }
    let first = hosts.with(Role::LoadBalancer).next();
    let place = raw.endpoint.as_ref().map_or(top, |e| e.value.vip.as_ref().map_or(e.place, |vip| vip.place));
    match (&endpoint.kind, first) {
        (EndpointKind::Vip { address, .. }, None) => judge.refuse(
            place,
            format!("nobody can hold the virtual address {address}: no host has the role load-balancer"),
            "at least 2 hosts with the role load-balancer",
            "add load-balancer to the roles of the control-plane hosts, or use `external:`",
        ),
        (EndpointKind::External(_) | EndpointKind::Local { .. }, Some(placed)) => {
            let local = |e: &schema::Endpoint| e.local.as_ref().is_some_and(|local| local.value);
            // Not for the stand-in of an endpoint that could not be understood.
            let meant = |e: &schema::Endpoint| e.vip.is_none() && (e.external.is_some() || local(e));
            let instead = match endpoint.kind {
                EndpointKind::Local { .. } => "every node has a balancer of its own",
                _ => "the endpoint is external",
            };
            if raw.endpoint.as_ref().is_some_and(|e| meant(&e.value)) {
                judge.warn(
                    placed.roles,
                    format!("{} has the role load-balancer, but {instead}: the role does nothing", placed.host.name),
                    "the role load-balancer only with a virtual address",
                    "remove the role, or use `vip:`",
                );
            }
        }
        _ => {}
    }
}

/// Judges whether the loss of one zone is survived, when zones are used at all.
pub fn zones(judge: &mut Validator<'_>, hosts: &Hosts) {
    if hosts.list.iter().all(|p| p.host.zone.is_none()) {
        return;
    }
    for placed in hosts.list.iter().filter(|p| p.host.zone.is_none() && p.host.is(Role::Etcd)) {
        judge.warn(
            placed.start,
            format!("{} holds an etcd member and has no zone, though other hosts have one", placed.host.name),
            "a zone for every host, or for none",
            "add `zone:`: without it nobody can tell what the loss of a zone means",
        );
    }
    let voters = hosts.with(Role::Etcd).count();
    for (zone, members) in by_zone(hosts, Role::Etcd) {
        if voters > 1 && voters - members.len() < quorum(voters) {
            judge.warn(
                members[0].zone,
                format!(
                    "zone {zone} holds {} of {voters} etcd members: losing it loses the quorum of {}",
                    members.len(),
                    quorum(voters)
                ),
                format!("at most {} in one zone, so at least 3 zones", tolerated(voters)),
                "spread the members, or know that this zone is needed",
            );
        }
    }
    for (role, lost) in [(Role::LoadBalancer, "the endpoint"), (Role::ControlPlane, "the API")] {
        let all = hosts.with(role).count();
        for (zone, members) in by_zone(hosts, role) {
            if all > 1 && members.len() == all {
                judge.warn(
                    members[0].zone,
                    format!("zone {zone} holds every host with the role {role}: losing it loses {lost}"),
                    "the role in at least 2 zones",
                    format!("give the role {role} to a host of another zone"),
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
