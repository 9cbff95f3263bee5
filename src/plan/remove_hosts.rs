//! Removes hosts that answer: first the VIP leaves them, then, once everything else is done, their pods, their vote,
//! all other parts, and the Node.
//!
//! In: hosts that are no longer in the inventory, were named with `--prune`, and answered. A host that does not answer
//! is removed only from the cluster: its member first of all (`reconcile_members`), its Node once its kubelet no longer
//! reports (`cluster`).

use super::conditions::{Observed, is_of_control_plane};
use super::draft::{Draft, of_this_cluster};
use super::reconcile_members::remove_member;
use super::remove_roles::{give_up_address, moves};
use super::steps::Steps;
use crate::model::desired::{Host, Role};
use crate::model::facts::{HostFacts, UnitFact};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Condition, NodeEnd, Precondition};
use crate::model::refusal::Refusal;
use crate::model::units::{kubelet_unit, unit};

/// How long a drain of a Node that is removed may take, seconds.
pub(super) const DRAIN_S: u32 = 300;

/// The facts of a host of this cluster that is to be removed and answered.
pub(super) fn lives<'a>(o: &Observed<'a>, name: &HostName) -> Option<&'a HostFacts> {
    o.facts.leaver(name).filter(|facts| {
        facts.cluster_id.as_ref().is_some_and(|cluster_id| cluster_id.same_cluster(&o.intent.cluster_id))
    })
}

/// Whether the kubelet of a host that is to be removed is known to be stopped.
pub(super) fn kubelet_is_off(o: &Observed, name: &HostName) -> bool {
    let runs = |facts: &HostFacts| facts.units.get(&kubelet_unit()).is_some_and(UnitFact::runs_or_starts);
    o.facts.leaver(name).is_some_and(|facts| !runs(facts))
}

/// Whether the member with this peer URL is on a host that is to be removed and answers: it is removed after everything
/// else.
pub(super) fn carries(o: &Observed, peer: &PeerUrl) -> bool {
    o.desired.leaving.iter().any(|h| h.may_vote() && &h.peer_url() == peer && lives(o, &h.name).is_some())
}

/// Warns of names that match no removable host; refuses hosts of other clusters, and removals that would leave a role
/// without a host.
pub(super) fn judge(o: &Observed) -> Result<Steps, Refusal> {
    let mut steps = Steps::default();
    for (host, facts) in &o.facts.leaving {
        match facts {
            Ok(facts) => {
                facts.cluster_id.iter().try_for_each(|theirs| of_this_cluster(host, theirs, o.intent))?;
            }
            Err(unreachable) => steps.warnings.push(format!(
                "{host} did not answer ({}), so nothing is removed from it: keep it off, or run the same command \
                 again when it answers",
                unreachable.why
            )),
        }
    }
    for host in o.desired.leaving.iter().filter(|host| lives(o, &host.name).is_some() && !o.limited()) {
        // The VIP needs another host that can take it, and the API another host that serves it.
        let roles = [(Role::ControlPlane, true), (Role::LoadBalancer, moves(o))];
        for (role, counts) in roles {
            let (others, answer) = (o.desired.with(role).count(), o.reachable_with(role).len());
            if counts && host.is(role) && answer == 0 {
                return Err(Refusal::CannotLeave { host: host.name.clone(), role, others, answer });
            }
        }
    }
    // No refusal: the same command must succeed again after they were removed.
    for name in &o.intent.prune {
        if let Some(why) = stays(o, name) {
            steps.warnings.push(format!("--prune {name}: {why}"));
        }
    }
    Ok(steps)
}

/// Hosts that are no longer in the inventory and were not removed: a load balancer among them is refused, the others
/// are warned of. If all hosts were lost and replaced, the missing quorum of etcd was reported before this.
pub(super) fn left_behind(o: &Observed) -> Result<Steps, Refusal> {
    let mut steps = Steps::default();
    for orphan in &o.intent.removed_hosts {
        if orphan.is(Role::LoadBalancer) && moves(o) && !o.intent.abandons {
            return Err(Refusal::LeftBehind { host: orphan.name.clone() });
        }
        steps.warnings.push(format!(
            "{} is no longer in the inventory, but still part of the cluster: it stays until `hactl up --prune {}`",
            orphan.name, orphan.name
        ));
    }
    Ok(steps)
}

/// Why nothing is done for a name given with `--prune`.
fn stays(o: &Observed, name: &HostName) -> Option<String> {
    let members = o.facts.living().map(|view| view.members.as_slice()).unwrap_or_default();
    let member = members.iter().find(|(_, of, _, _)| of == name.as_str());
    match o.desired.host(name) {
        // Its member may be removed while the host stays.
        Some(host) if host.is(Role::Etcd) && member.is_none_or(|(_, _, peer, _)| *peer == host.peer_url()) => {
            Some("the inventory names it, so it stays; remove it there first".to_owned())
        }
        Some(host) if member.is_none() && !host.is(Role::Etcd) => {
            Some("the inventory names it, and it has no etcd member to remove; remove it there first".to_owned())
        }
        Some(_) => None,
        None => {
            let known = member.is_some() || o.registered(name) || o.facts.leaving.contains_key(name);
            (!known).then(|| "no host, member or Node of this name is part of the cluster".to_owned())
        }
    }
}

/// keepalived stops on a host before the remaining ones drop it as a peer: two that do not know each other would both
/// take the VIP.
pub(super) fn addresses(o: &Observed) -> Steps {
    let runs = |facts: &HostFacts| facts.units.get(&unit("keepalived.service")).is_some_and(UnitFact::runs_or_starts);
    let hosts = o.desired.leaving.iter().filter(|h| moves(o) && lives(o, &h.name).is_some_and(runs));
    let why = "the host is to be removed, and the endpoint's VIP has to move first";
    hosts.map(|h| give_up_address(o, &h.name, why)).collect()
}

/// The hosts that are to be removed and answer.
pub(super) fn leaving(o: &Observed) -> Vec<Host> {
    o.desired.leaving.iter().filter(|h| lives(o, &h.name).is_some()).cloned().collect()
}

/// Says that no host is removed, because the run is limited to some hosts.
pub(super) fn left(o: &Observed) -> Option<String> {
    let text = "with --limit no host is removed: run `hactl up --prune` without it";
    (!leaving(o).is_empty()).then(|| text.to_owned())
}

/// One host, once all steps planned so far are done; a worker does not wait for one whose kubelet does not report.
pub(super) fn remove_host(d: &Draft, host: &Host) -> Result<Steps, Refusal> {
    let name = host.name.clone();
    let given = if is_of_control_plane(host) { d.given() } else { d.given_beside_unreachable_workers() };
    let (mut steps, mut requires) = (Steps::default(), given);
    if host.is_node() && d.registered(&name) {
        let action = Action::Drain { host: name.clone(), within_s: DRAIN_S };
        requires.push(Condition::Api);
        let why = "the host is to be removed, and its pods have to move first";
        steps.then(&mut requires, action, why, Precondition::None);
    }
    if host.may_vote() {
        let removed = remove_member(d, host, requires.clone())?;
        requires.extend(removed.last());
        steps.add(removed);
    }
    if host.is(Role::ControlPlane) {
        let held = super::hosted::hold_last(d, &name, requires.clone());
        requires.extend(held.last());
        steps.add(held);
    }
    let precondition =
        if host.is(Role::ControlPlane) { Precondition::Tolerates { down: name.clone() } } else { Precondition::None };
    let action = Action::Wipe { host: name.clone(), delete: false };
    let wiped = steps.must(action, "the host is removed from the cluster", requires).guarded(precondition).provides();
    if d.registered(&name) {
        let action = Action::DeleteNode { node: name, end: NodeEnd::Stopped };
        steps.must(action, "its host was removed", vec![wiped, Condition::Api]);
    }
    Ok(steps)
}
