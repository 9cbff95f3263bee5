//! Removes roles from hosts that stay: first the VIP leaves them, then, once everything else is done, the control
//! plane's pods, the vote, the Node, and at last the files, including keys.
//!
//! In: hosts of the inventory that answered and have files of a role that the inventory does not give them. Only
//! observed files count, not a record of earlier roles: the same command completes an interrupted run. Out: steps for
//! one host after the other, within quorum.

use super::draft::Draft;
use super::reconcile_members;
use super::remove_hosts::DRAIN_S;
use crate::model::desired::{EndpointKind, Host, Role};
use crate::model::drill;
use crate::model::healing;
use crate::model::names::{HostName, PeerUrl, UnitName};
use crate::model::plan::{Action, Condition, NodeEnd, Precondition};
use crate::model::refusal::Refusal;
use crate::model::renewal::{SERVICE, TIMER};
use crate::model::target::FileSet;
use crate::model::units::{etcd_unit, kubelet_unit, unit};

/// Services that are started by timers and not at boot.
const BY_TIMERS: [&str; 3] = ["hactl-snapshot.service", SERVICE, drill::SERVICE];
const WHY: &str = "the host no longer has this role in the inventory";

/// The host with this peer URL that stays, answers, and no longer has the role etcd.
pub(super) fn carries(d: &Draft, peer: &PeerUrl) -> Option<HostName> {
    let hosts = d.reachable().into_iter();
    hosts.filter(|h| !h.is(Role::Etcd)).find(|h| &h.peer_url() == peer).map(|h| h.name)
}

/// Whether a host has an unwanted Node that hactl's kubelet registered.
fn has_node(d: &Draft, host: &Host) -> bool {
    !host.is_node() && (d.has_left(&host.name, FileSet::FormerNode) || d.registered_ours(&host.name))
}

fn is_member(d: &Draft, host: &Host) -> bool {
    !host.is(Role::Etcd) && d.members().is_some_and(|list| list.0.contains_key(&host.peer_url()))
}

/// Hosts that answered and have something left of a role that they no longer have.
fn former(d: &Draft) -> Vec<Host> {
    let left = |h: &Host| FileSet::FORMER.iter().any(|set| d.has_left(&h.name, *set));
    d.reachable().into_iter().filter(|h| left(h) || is_member(d, h) || has_node(d, h)).collect()
}

/// Refuses to remove a role from the last reachable host that has it.
pub(super) fn judge(d: &Draft) -> Result<(), Refusal> {
    let roles = [(Role::LoadBalancer, FileSet::FormerBalancer), (Role::ControlPlane, FileSet::FormerControlPlane)];
    for host in former(d).into_iter().filter(|h| d.may_change(&h.name)) {
        for (role, _) in roles.iter().filter(|(_, set)| d.has_left(&host.name, *set)) {
            let (others, answer) = (d.desired.with(*role).count(), d.reachable_with(*role).len());
            if answer == 0 {
                return Err(Refusal::LastOfRole { host: host.name, role: *role, others, answer });
            }
        }
    }
    Ok(())
}

/// Whether the endpoint is a VIP that moves between load balancers.
pub(super) fn moves(d: &Draft) -> bool {
    matches!(d.desired.endpoint.kind, EndpointKind::Vip { .. })
}

/// Whether a unit of a host runs, or would start at the next boot.
fn is_on(d: &Draft, host: &HostName, unit: &UnitName) -> bool {
    let found = d.host_facts(host).and_then(|facts| facts.units.get(unit));
    let boots = !BY_TIMERS.contains(&unit.as_str());
    found.is_some_and(|found| found.runs_or_starts() || (found.enabled && boots))
}

fn stop(d: &mut Draft, host: &HostName, unit: UnitName, requires: Vec<Condition>) -> Condition {
    d.must(Action::StopUnit { host: host.clone(), unit }, WHY, requires)
}

/// keepalived stops on a host before the remaining ones drop it as a peer, and only if one of them can take the VIP.
pub(super) fn addresses(d: &mut Draft) {
    let keepalived = unit("keepalived.service");
    if d.limited() || !moves(d) {
        return;
    }
    for host in former(d) {
        if d.has_left(&host.name, FileSet::FormerBalancer) && is_on(d, &host.name, &keepalived) {
            give_up_address(d, &host.name, WHY);
        }
    }
}

/// Stops keepalived on a host, once the remaining load balancers can take the VIP.
pub(super) fn give_up_address(d: &mut Draft, host: &HostName, why: &str) {
    let others = d.reachable_with(Role::LoadBalancer).into_iter();
    let requires = others.map(|h| Condition::Running(h.name, unit("haproxy.service"))).collect();
    d.must(Action::StopUnit { host: host.clone(), unit: unit("keepalived.service") }, why, requires);
}

/// The conditions that must hold before the remaining load balancers drop a former one as a peer. An unreachable former
/// one may still hold the VIP, so they keep it as a peer.
pub(super) fn still_balance(d: &Draft) -> Vec<Condition> {
    let keepalived = unit("keepalived.service");
    let others = d.desired.hosts.iter().filter(|h| moves(d) && !h.is(Role::LoadBalancer));
    let may_have_it = |h: &&Host| match d.host_facts(&h.name) {
        Some(_) => d.has_left(&h.name, FileSet::FormerBalancer) && is_on(d, &h.name, &keepalived),
        None => d.intent.balanced.contains(&h.name),
    };
    others.filter(may_have_it).map(|h| Condition::Stopped(h.name.clone(), keepalived.clone())).collect()
}

/// One host after the other, once all steps planned so far are done.
pub(super) fn remove_roles(d: &mut Draft) -> Result<(), Refusal> {
    let hosts = former(d);
    if d.limited() && !hosts.is_empty() {
        let names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
        d.warn(format!(
            "{} ha{} something left of roles that the inventory no longer gives: run without --limit to remove it",
            names.join(", "),
            if names.len() == 1 { "s" } else { "ve" }
        ));
        return Ok(());
    }
    for host in hosts {
        let mut requires = d.given();
        balancer(d, &host, &mut requires);
        let node = has_node(d, &host);
        if node && d.registered(&host.name) && d.has_left(&host.name, FileSet::FormerNode) {
            let before = [requires.clone(), vec![Condition::Api]].concat();
            let action = Action::Drain { host: host.name.clone(), within_s: DRAIN_S };
            let why = "the host is no longer a node in the inventory, and its pods have to move first";
            requires.push(d.must(action, why, before));
        }
        control_plane(d, &host, &mut requires);
        member(d, &host, &mut requires)?;
        if node {
            clear(d, &host, requires);
        }
    }
    Ok(())
}

/// Removes the files of a former role, if there are any.
fn remove(d: &mut Draft, host: &HostName, set: FileSet, requires: &mut Vec<Condition>) {
    let paths = d.differing(host, set);
    if !d.has_left(host, set) {
        return;
    }
    let action = Action::Configure { host: host.clone(), set, paths, keep: false };
    requires.push(d.must(action, WHY, requires.clone()));
}

/// haproxy, after the VIP has moved, and the files.
fn balancer(d: &mut Draft, host: &Host, requires: &mut Vec<Condition>) {
    let name = &host.name;
    if !moves(d) || !d.has_left(name, FileSet::FormerBalancer) {
        return;
    }
    requires.push(Condition::Stopped(name.clone(), unit("keepalived.service")));
    let haproxy = unit("haproxy.service");
    if is_on(d, name, &haproxy) {
        requires.push(stop(d, name, haproxy, requires.clone()));
    }
    units(d, name, &["hactl-vrrp-filter.service"], requires);
    guard(d, host, requires);
    remove(d, name, FileSet::FormerBalancer, requires);
}

/// The static pods, while another API server is ready; the units beside them; the keys.
fn control_plane(d: &mut Draft, host: &Host, requires: &mut Vec<Condition>) {
    let name = &host.name;
    if !d.has_left(name, FileSet::FormerControlPlane) {
        return;
    }
    if !d.holds(&Condition::PodsEnded(name.clone())) {
        requires.push(Condition::Api);
        let precondition = Precondition::Tolerates { down: name.clone() };
        requires.push(d.guarded(Action::EndPods { host: name.clone() }, WHY, requires.clone(), precondition));
    }
    units(d, name, &["hactl-approver.service", "hactl-etcd-balancer.service"], requires);
    if !host.is(Role::Etcd) {
        units(d, name, &[TIMER, SERVICE], requires);
    }
    guard(d, host, requires);
    remove(d, name, FileSet::FormerControlPlane, requires);
}

/// The guard, on a host that keeps no role of the control plane.
fn guard(d: &mut Draft, host: &Host, requires: &mut Vec<Condition>) {
    if !healing::may_be_guarded(host) {
        units(d, &host.name, &[healing::UNIT], requires);
    }
}

/// Stops the units that run or are enabled.
fn units(d: &mut Draft, host: &HostName, names: &[&'static str], requires: &mut Vec<Condition>) {
    for name in names {
        let name = unit(name);
        let stopped = Condition::Stopped(host.clone(), name.clone());
        if is_on(d, host, &name) && !d.plans(&stopped) {
            requires.push(stop(d, host, name, requires.clone()));
        }
    }
}

/// Leadership and the vote; then the process, the data (moved aside) and the files.
fn member(d: &mut Draft, host: &Host, requires: &mut Vec<Condition>) -> Result<(), Refusal> {
    let name = &host.name;
    let left = d.has_left(name, FileSet::FormerEtcd);
    if host.is(Role::Etcd) || (!left && !is_member(d, host)) {
        return Ok(());
    }
    requires.extend(reconcile_members::remove_hosts(d, host, requires.clone())?);
    let Some(list) = d.members().map(crate::model::facts::Members::shape).filter(|_| left) else { return Ok(()) };
    let of_members = ["hactl-positions.service", "hactl-snapshot.timer", "hactl-snapshot.service"];
    units(d, name, &of_members, requires);
    units(d, name, &[drill::TIMER, drill::SERVICE], requires);
    if !host.is(Role::ControlPlane) {
        units(d, name, &[TIMER, SERVICE], requires);
    }
    guard(d, host, requires);
    let etcd = etcd_unit();
    if is_on(d, name, &etcd) {
        requires.push(stop(d, name, etcd, requires.clone()));
    }
    if d.host_facts(name).and_then(|facts| facts.etcd.as_ref()).is_some_and(|etcd| etcd.data) {
        let (action, precondition) = (Action::ArchiveData { host: name.clone() }, Precondition::Members { list });
        let why = "its data no longer belongs to a member";
        requires.push(d.guarded(action, why, requires.clone(), precondition));
    }
    remove(d, name, FileSet::FormerEtcd, requires);
    Ok(())
}

/// The kubelet and containerd, the data of pods, the files, and the Node.
fn clear(d: &mut Draft, host: &Host, mut requires: Vec<Condition>) {
    let name = &host.name;
    if d.has_left(name, FileSet::FormerNode) {
        requires.push(d.must(Action::ClearNode { host: name.clone() }, WHY, requires.clone()));
        remove(d, name, FileSet::FormerNode, &mut requires);
    } else if is_on(d, name, &kubelet_unit()) {
        // Not hactl's kubelet: a running kubelet would not register a deleted Node again.
        return;
    }
    if d.registered(name) {
        requires.push(Condition::Api);
        let action = Action::DeleteNode { node: name.clone(), end: NodeEnd::Stopped };
        d.must(action, "its host is no longer a node in the inventory", requires);
    }
}
