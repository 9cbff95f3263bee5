//! Removes roles from hosts that stay: first the VIP leaves them, then, once everything else is done, the control
//! plane's pods, the vote, the Node, and at last the files, including keys.
//!
//! In: hosts of the inventory that answered and have files of a role that the inventory does not give them. Only
//! observed files count, not a record of earlier roles: the same command completes an interrupted run. Out: steps for
//! one host after the other, within quorum.

use super::conditions::Observed;
use super::draft::Draft;
use super::reconcile_members::remove_member;
use super::remove_hosts::DRAIN_S;
use super::steps::Steps;
use crate::model::desired::{EndpointKind, Host, Role};
use crate::model::drill;
use crate::model::facts::{ETCD_UNIT, Members};
use crate::model::healing;
use crate::model::hosting;
use crate::model::metrics;
use crate::model::names::{HostName, PeerUrl, UnitName};
use crate::model::plan::{Action, Condition, NodeEnd, Precondition};
use crate::model::refusal::Refusal;
use crate::model::renewal::{SERVICE, TIMER};
use crate::model::target::FileSet;
use crate::model::units::{APPROVER_UNIT, POSITIONS_UNIT, etcd_unit, kubelet_unit, unit};

/// Services that are started by timers and not at boot.
const BY_TIMERS: [&str; 3] = ["hactl-snapshot.service", SERVICE, drill::SERVICE];
const WHY: &str = "the host no longer has this role in the inventory";

/// The host with this peer URL that stays, answers, and no longer has the role etcd.
pub(super) fn carries(o: &Observed, peer: &PeerUrl) -> Option<HostName> {
    let hosts = o.reachable().into_iter();
    hosts.filter(|h| !h.is(Role::Etcd)).find(|h| &h.peer_url() == peer).map(|h| h.name)
}

/// Whether a host has an unwanted Node that hactl's kubelet registered.
fn has_node(o: &Observed, host: &Host) -> bool {
    !host.is_node() && (o.has_left(&host.name, FileSet::FormerNode) || o.registered_ours(&host.name))
}

fn is_member(d: &Draft, host: &Host) -> bool {
    let Some(list) = d.members.as_ref().filter(|_| !host.is(Role::Etcd)) else { return false };
    // One that stands by keeps its vote while there are not more than the inventory asks for.
    let is_needed = host.standby && list.voters() <= d.desired.with(Role::Etcd).count();
    !is_needed && list.0.contains_key(&host.peer_url())
}

/// Whether a host stands by for etcd and has something left of a member: it was removed while the host was gone.
fn stands_by_only(d: &Draft, host: &Host) -> bool {
    let has_data = || d.facts.host(&host.name).and_then(|facts| facts.etcd.as_ref()).is_some_and(|etcd| etcd.data);
    let votes = d.members.as_ref().is_some_and(|list| list.0.contains_key(&host.peer_url()));
    host.standby && !votes && (is_on(d, &host.name, &etcd_unit()) || has_data())
}

/// Hosts that answered and have something left of a role that they no longer have.
pub(super) fn former(d: &Draft) -> Vec<Host> {
    let left = |h: &Host| FileSet::FORMER.iter().any(|set| d.has_left(&h.name, *set));
    let had = |h: &Host| left(h) || is_member(d, h) || stands_by_only(d, h) || has_node(d, h);
    d.reachable().into_iter().filter(had).collect()
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
pub(super) fn moves(o: &Observed) -> bool {
    matches!(o.desired.endpoint.kind, EndpointKind::Vip { .. })
}

/// Whether a unit of a host runs, or would start at the next boot.
fn is_on(o: &Observed, host: &HostName, unit: &UnitName) -> bool {
    let found = o.facts.host(host).and_then(|facts| facts.units.get(unit));
    let boots = !BY_TIMERS.contains(&unit.as_str());
    found.is_some_and(|found| found.runs_or_starts() || (found.enabled && boots))
}

/// keepalived stops on a host before the remaining ones drop it as a peer, and only if one of them can take the VIP.
pub(super) fn addresses(d: &Draft) -> Steps {
    let keepalived = unit("keepalived.service");
    let has_it = |h: &Host| d.has_left(&h.name, FileSet::FormerBalancer) && is_on(d, &h.name, &keepalived);
    let hosts = former(d).into_iter().filter(|h| !d.limited() && moves(d) && has_it(h));
    hosts.map(|h| give_up_address(d, &h.name, WHY)).collect()
}

/// Stops keepalived on a host, once a remaining load balancer can take the VIP. One that runs with older files can: if its
/// new files were awaited, and they wait for another disturbance, that one may wait for this stop.
pub(super) fn give_up_address(o: &Observed, host: &HostName, why: &str) -> Steps {
    let (others, haproxy) = (o.reachable_with(Role::LoadBalancer), unit("haproxy.service"));
    let able = others.iter().any(|h| o.is_active(&h.name, &haproxy));
    let starting = others.into_iter().filter(|_| !able);
    let requires = starting.map(|h| Condition::Running(h.name, haproxy.clone())).collect();
    let mut steps = Steps::default();
    steps.must(Action::StopUnit { host: host.clone(), unit: unit("keepalived.service") }, why, requires);
    steps
}

/// The conditions that must hold before the remaining load balancers drop a former one as a peer. An unreachable former
/// one may still hold the VIP, so they keep it as a peer.
pub(super) fn still_balance(o: &Observed) -> Vec<Condition> {
    let keepalived = unit("keepalived.service");
    let others = o.desired.hosts.iter().filter(|h| moves(o) && !h.is(Role::LoadBalancer));
    let may_have_it = |h: &&Host| match o.facts.host(&h.name) {
        Some(_) => o.has_left(&h.name, FileSet::FormerBalancer) && is_on(o, &h.name, &keepalived),
        None => o.intent.balanced.contains(&h.name),
    };
    others.filter(may_have_it).map(|h| Condition::Stopped(h.name.clone(), keepalived.clone())).collect()
}

/// What is left of former roles in a run in which nothing is removed, because it is limited to some hosts.
pub(super) fn left(d: &Draft) -> Option<String> {
    let names: Vec<String> = former(d).into_iter().map(|h| h.name.to_string()).collect();
    let ha = if names.len() == 1 { "has" } else { "have" };
    let what = "something left of roles that the inventory no longer gives: run without --limit to remove it";
    (!names.is_empty()).then(|| format!("{} {ha} {what}", names.join(", ")))
}

/// Steps one after the other, and what all of them wait for: the next one waits for the previous ones, too.
struct Removal {
    steps: Steps,
    requires: Vec<Condition>,
}

impl Removal {
    fn then(&mut self, action: Action, precondition: Precondition) {
        self.steps.then(&mut self.requires, action, WHY, precondition);
    }

    /// Stops the units that run or are enabled.
    fn stop(&mut self, d: &Draft, host: &HostName, names: &[&'static str]) {
        for name in names {
            let action = Action::StopUnit { host: host.clone(), unit: unit(name) };
            let stopped = action.provides();
            if is_on(d, host, &unit(name)) && !d.plans(&stopped) && !self.steps.plans(&stopped) {
                self.then(action, Precondition::None);
            }
        }
    }

    /// Removes the files of a former role, if there are any.
    fn remove(&mut self, d: &Draft, host: &HostName, set: FileSet) {
        if d.has_left(host, set) {
            let (host, paths) = (host.clone(), d.differing(host, set));
            self.then(Action::Configure { host, set, paths, keep: false }, Precondition::None);
        }
    }
}

/// The former roles of one host, once all steps planned so far are done.
pub(super) fn remove_roles(d: &Draft, host: &Host) -> Result<Steps, Refusal> {
    let mut all = Removal { steps: Steps::default(), requires: d.given() };
    balancer(d, host, &mut all);
    let node = has_node(d, host);
    if node && d.registered(&host.name) && d.has_left(&host.name, FileSet::FormerNode) {
        let before = [all.requires.clone(), vec![Condition::Api]].concat();
        let action = Action::Drain { host: host.name.clone(), within_s: DRAIN_S };
        let why = "the host is no longer a node in the inventory, and its pods have to move first";
        all.requires.push(all.steps.must(action, why, before).provides());
    }
    control_plane(d, host, &mut all);
    member(d, host, &mut all)?;
    if node {
        clear(d, host, &mut all);
    }
    Ok(all.steps)
}

/// haproxy, after the VIP has moved, and the files.
fn balancer(d: &Draft, host: &Host, all: &mut Removal) {
    let name = &host.name;
    if !moves(d) || !d.has_left(name, FileSet::FormerBalancer) {
        return;
    }
    all.requires.push(Condition::Stopped(name.clone(), unit("keepalived.service")));
    all.stop(d, name, &["haproxy.service", "hactl-vrrp-filter.service"]);
    residents(d, host, all);
    all.remove(d, name, FileSet::FormerBalancer);
}

/// The static pods, while another API server is ready; the units beside them; the keys.
fn control_plane(d: &Draft, host: &Host, all: &mut Removal) {
    let name = &host.name;
    if !d.has_left(name, FileSet::FormerControlPlane) {
        return;
    }
    if !d.holds(&Condition::PodsEnded(name.clone())) {
        all.requires.push(Condition::Api);
        let held = super::hosted::hold_last(d, name, all.requires.clone());
        all.requires.extend(held.last());
        all.steps.add(held);
        all.then(Action::EndPods { host: name.clone() }, Precondition::Tolerates { down: name.clone() });
    }
    all.stop(d, name, &[hosting::UNIT, APPROVER_UNIT, "hactl-etcd-balancer.service"]);
    if !host.may_vote() {
        all.stop(d, name, &[TIMER, SERVICE]);
    }
    residents(d, host, all);
    all.remove(d, name, FileSet::FormerControlPlane);
}

/// The guard, on a host that keeps no role of the control plane, and what serves metrics, on one that keeps none.
fn residents(d: &Draft, host: &Host, all: &mut Removal) {
    if !healing::may_be_guarded(host) {
        all.stop(d, &host.name, &[healing::UNIT]);
    }
    if !host.has_components() {
        all.stop(d, &host.name, &[metrics::UNIT]);
    }
}

/// Leadership and the vote; then the process, the data (moved aside) and the files.
fn member(d: &Draft, host: &Host, all: &mut Removal) -> Result<(), Refusal> {
    let name = &host.name;
    let left = d.has_left(name, FileSet::FormerEtcd);
    let only_stands_by = stands_by_only(d, host);
    if host.is(Role::Etcd) || (!left && !only_stands_by && !is_member(d, host)) {
        return Ok(());
    }
    let removed = remove_member(d, host, all.requires.clone())?;
    all.requires.extend(removed.last());
    all.steps.add(removed);
    let Some(list) =
        all.steps.members.as_ref().or(d.members.as_ref()).map(Members::shape).filter(|_| left || only_stands_by)
    else {
        return Ok(());
    };
    if left {
        all.stop(d, name, &[POSITIONS_UNIT, "hactl-snapshot.timer", "hactl-snapshot.service"]);
        all.stop(d, name, &[drill::TIMER, drill::SERVICE]);
        if !host.is(Role::ControlPlane) {
            all.stop(d, name, &[TIMER, SERVICE]);
        }
        residents(d, host, all);
    }
    all.stop(d, name, &[ETCD_UNIT]);
    if d.facts.host(name).and_then(|facts| facts.etcd.as_ref()).is_some_and(|etcd| etcd.data) {
        let (action, precondition) = (Action::ArchiveData { host: name.clone() }, Precondition::Members { list });
        all.steps.then(&mut all.requires, action, "its data no longer belongs to a member", precondition);
    }
    all.remove(d, name, FileSet::FormerEtcd);
    Ok(())
}

/// The kubelet and containerd, the data of pods, the files, and the Node.
fn clear(d: &Draft, host: &Host, all: &mut Removal) {
    let name = &host.name;
    if d.has_left(name, FileSet::FormerNode) {
        residents(d, host, all);
        all.then(Action::ClearNode { host: name.clone() }, Precondition::None);
        all.remove(d, name, FileSet::FormerNode);
    } else if is_on(d, name, &kubelet_unit()) {
        // Not hactl's kubelet: a running kubelet would not register a deleted Node again.
        return;
    }
    if d.registered(name) {
        let action = Action::DeleteNode { node: name.clone(), end: NodeEnd::Stopped };
        let requires = [all.requires.clone(), vec![Condition::Api]].concat();
        all.steps.must(action, "its host is no longer a node in the inventory", requires);
    }
}
