//! Removes hosts that answer: first the VIP leaves them, then, once everything else is done, their pods, their vote,
//! all other parts, and the Node.
//!
//! In: hosts that are no longer in the inventory, were named with `--prune`, and answered. A host that does not answer
//! is removed only from the cluster: its member first of all (`reconcile_members`), its Node once its kubelet no longer
//! reports (`cluster`).

use super::draft::Draft;
use super::reconcile_members;
use super::remove_roles::{give_up_address, moves};
use crate::model::desired::{Host, Role};
use crate::model::facts::{HostFacts, UnitFact};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Condition, NodeEnd, Precondition};
use crate::model::refusal::Refusal;
use crate::model::units::{kubelet_unit, unit};

/// How long a drain of a Node that is removed may take, seconds.
pub(super) const DRAIN_S: u32 = 300;

/// The facts of a host of this cluster that is to be removed and answered.
pub(super) fn lives<'a>(d: &Draft<'a>, name: &HostName) -> Option<&'a HostFacts> {
    d.facts.leaver(name).filter(|facts| {
        facts.cluster_id.as_ref().is_some_and(|cluster_id| cluster_id.same_cluster(&d.intent.cluster_id))
    })
}

/// Whether the kubelet of a host that is to be removed is known to be stopped.
pub(super) fn kubelet_is_off(d: &Draft, name: &HostName) -> bool {
    let runs = |facts: &HostFacts| facts.units.get(&kubelet_unit()).is_some_and(UnitFact::runs_or_starts);
    d.facts.leaver(name).is_some_and(|facts| !runs(facts))
}

/// Whether the member with this peer URL is on a host that is to be removed and answers: it is removed after everything
/// else.
pub(super) fn carries(d: &Draft, peer: &PeerUrl) -> bool {
    d.desired.leaving.iter().any(|h| h.is(Role::Etcd) && &h.peer_url() == peer && lives(d, &h.name).is_some())
}

/// Warns of names that match no removable host; refuses hosts of other clusters, and removals that would leave a role
/// without a host.
pub(super) fn judge(d: &mut Draft) -> Result<(), Refusal> {
    for (host, facts) in &d.facts.leaving {
        match facts {
            Ok(facts) => match &facts.cluster_id {
                Some(theirs) if !theirs.same_cluster(&d.intent.cluster_id) => {
                    return Err(Refusal::OtherCluster {
                        host: host.clone(),
                        theirs: theirs.cluster.clone(),
                        ours: d.intent.cluster_id.cluster.clone(),
                        same_name: theirs.cluster == d.intent.cluster_id.cluster,
                    });
                }
                _ => {}
            },
            Err(unreachable) => d.warn(format!(
                "{host} did not answer ({}), so nothing is removed from it: keep it off, or run the same command \
                 again when it answers",
                unreachable.why
            )),
        }
    }
    for host in d.desired.leaving.iter().filter(|host| lives(d, &host.name).is_some() && !d.limited()) {
        // The VIP needs another host that can take it, and the API another host that serves it.
        let roles = [(Role::ControlPlane, true), (Role::LoadBalancer, moves(d))];
        for (role, counts) in roles {
            let (others, answer) = (d.desired.with(role).count(), d.reachable_with(role).len());
            if counts && host.is(role) && answer == 0 {
                return Err(Refusal::CannotLeave { host: host.name.clone(), role, others, answer });
            }
        }
    }
    // No refusal: the same command must succeed again after they were removed.
    for name in &d.intent.prune {
        if let Some(why) = stays(d, name) {
            d.warn(format!("--prune {name}: {why}"));
        }
    }
    Ok(())
}

/// Hosts that are no longer in the inventory and were not removed: a load balancer among them is refused, the others
/// are warned of. If all hosts were lost and replaced, the missing quorum of etcd was reported before this.
pub(super) fn left_behind(d: &mut Draft) -> Result<(), Refusal> {
    for orphan in &d.intent.removed_hosts {
        if orphan.is(Role::LoadBalancer) && moves(d) && !d.intent.abandons {
            return Err(Refusal::LeftBehind { host: orphan.name.clone() });
        }
        d.warn(format!(
            "{} is no longer in the inventory, but still part of the cluster: it stays until `hactl up --prune {}`",
            orphan.name, orphan.name
        ));
    }
    Ok(())
}

/// Why nothing is done for a name given with `--prune`.
fn stays(d: &Draft, name: &HostName) -> Option<String> {
    let members = d.facts.living().map(|view| view.members.as_slice()).unwrap_or_default();
    let member = members.iter().find(|(_, of, _, _)| of == name.as_str());
    match d.desired.host(name) {
        // Its member may be removed while the host stays.
        Some(host) if host.is(Role::Etcd) && member.is_none_or(|(_, _, peer, _)| *peer == host.peer_url()) => {
            Some("the inventory names it, so it stays; remove it there first".to_owned())
        }
        Some(host) if member.is_none() && !host.is(Role::Etcd) => {
            Some("the inventory names it, and it has no etcd member to remove; remove it there first".to_owned())
        }
        Some(_) => None,
        None => {
            let known = member.is_some() || d.registered(name) || d.facts.leaving.contains_key(name);
            (!known).then(|| "no host, member or Node of this name is part of the cluster".to_owned())
        }
    }
}

/// keepalived stops on a host before the remaining ones drop it as a peer: two that do not know each other would both
/// take the VIP.
pub(super) fn addresses(d: &mut Draft) {
    if !moves(d) {
        return;
    }
    let keepalived = unit("keepalived.service");
    for host in d.desired.leaving.iter().map(|h| &h.name) {
        if lives(d, host).and_then(|f| f.units.get(&keepalived)).is_some_and(UnitFact::runs_or_starts) {
            give_up_address(d, host, "the host is to be removed, and the endpoint's VIP has to move first");
        }
    }
}

/// One host after the other, once all steps planned so far are done.
pub(super) fn remove_hosts(d: &mut Draft) -> Result<(), Refusal> {
    let hosts: Vec<Host> = d.desired.leaving.iter().filter(|h| lives(d, &h.name).is_some()).cloned().collect();
    if d.limited() && !hosts.is_empty() {
        d.warn("with --limit no host is removed: run `hactl up --prune` without it".to_owned());
        return Ok(());
    }
    for host in hosts {
        let name = host.name.clone();
        let mut requires = d.given();
        if host.is_node() && d.registered(&name) {
            let action = Action::Drain { host: name.clone(), within_s: DRAIN_S };
            requires.push(Condition::Api);
            let why = "the host is to be removed, and its pods have to move first";
            requires.push(d.must(action, why, requires.clone()));
        }
        if host.is(Role::Etcd) {
            requires.extend(reconcile_members::remove_hosts(d, &host, requires.clone())?);
        }
        let precondition = if host.is(Role::ControlPlane) {
            Precondition::Tolerates { down: name.clone() }
        } else {
            Precondition::None
        };
        let action = Action::Wipe { host: name.clone(), delete: false };
        let wiped = d.guarded(action, "the host is removed from the cluster", requires, precondition);
        if d.registered(&name) {
            let action = Action::DeleteNode { node: name, end: NodeEnd::Stopped };
            d.must(action, "its host was removed", vec![wiped, Condition::Api]);
        }
    }
    Ok(())
}
