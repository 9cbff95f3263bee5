//! Hosts that leave while they live: the endpoint's address first, then, once everything else is there, pods, vote, the rest, and the Node.
//!
//! In: hosts that the inventory does not name any more, that were named, and that answered. Who does not answer is dealt with from the
//! cluster's side alone: its member goes first of all (`reconcile_members`), its Node once nobody hears of its kubelet (`cluster`).

use super::conditions::kubelet_unit;
use super::configure::unit;
use super::draft::Draft;
use super::reconcile_members;
use super::remove_roles::moves;
use crate::model::desired::{Host, Role};
use crate::model::facts::{HostFacts, UnitFact};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Condition, NodeEnd, Precondition};
use crate::model::refusal::Refusal;

/// How long the pods of a Node that leaves may take to go elsewhere, seconds.
pub(super) const DRAIN_S: u32 = 300;

/// What a host that leaves and answered says of itself.
pub(super) fn lives<'a>(d: &Draft<'a>, name: &HostName) -> Option<&'a HostFacts> {
    d.facts.leaver(name).filter(|facts| facts.stamp.as_ref().is_some_and(|stamp| stamp.same_cluster(&d.intent.stamp)))
}

/// Whether the kubelet of a host that leaves is known to be off.
pub(super) fn kubelet_is_off(d: &Draft, name: &HostName) -> bool {
    let runs = |facts: &HostFacts| facts.units.get(&kubelet_unit()).is_some_and(UnitFact::runs_or_starts);
    d.facts.leaver(name).is_some_and(|facts| !runs(facts))
}

/// Whether the member with this peer URL is on a host that leaves and lives: it goes when everything else is there.
pub(super) fn carries(d: &Draft, peer: &PeerUrl) -> bool {
    d.desired.leaving.iter().any(|h| h.is(Role::Etcd) && &h.peer_url() == peer && lives(d, &h.name).is_some())
}

/// Names that mean nobody who could leave are told; hosts that must not be left behind, and such of other clusters, are refused.
pub(super) fn judge(d: &mut Draft) -> Result<(), Refusal> {
    for (host, facts) in &d.facts.leaving {
        match facts {
            Ok(facts) => match &facts.stamp {
                Some(theirs) if !theirs.same_cluster(&d.intent.stamp) => {
                    return Err(Refusal::OtherCluster {
                        host: host.clone(),
                        theirs: theirs.cluster.clone(),
                        ours: d.intent.stamp.cluster.clone(),
                        same_name: theirs.cluster == d.intent.stamp.cluster,
                    });
                }
                _ => {}
            },
            Err(silence) => d.warn(format!(
                "{host} did not answer ({}), so nothing is taken off it: keep it off, or run the same command again when it answers",
                silence.why
            )),
        }
    }
    for host in d.desired.leaving.iter().filter(|host| lives(d, &host.name).is_some() && !d.limited()) {
        // The endpoint's address goes nowhere where nobody can take it, and the API nowhere where nobody has it.
        let roles = [(Role::ControlPlane, true), (Role::LoadBalancer, moves(d))];
        for (role, counts) in roles {
            let (others, answer) = (d.desired.with(role).count(), d.reachable_with(role).len());
            if counts && host.is(role) && answer == 0 {
                return Err(Refusal::CannotLeave { host: host.name.clone(), role, others, answer });
            }
        }
    }
    // No refusal: the same command again must end well once they have left.
    for name in &d.intent.prune {
        if let Some(why) = stays(d, name) {
            d.warn(format!("--prune {name}: {why}"));
        }
    }
    Ok(())
}

/// Hosts that the inventory has no more and nobody let go: a balancer among them is refused, the others are told. Where every host was lost
/// and others take their places, that etcd is silent is what has to be said, and by then it was.
pub(super) fn left_behind(d: &mut Draft) -> Result<(), Refusal> {
    for orphan in &d.intent.removed_hosts {
        if orphan.is(Role::LoadBalancer) && moves(d) && !d.intent.abandons {
            return Err(Refusal::LeftBehind { host: orphan.name.clone() });
        }
        d.warn(format!(
            "{} is not in the inventory any more and still part of the cluster: it stays until `hactl up --prune {}`",
            orphan.name, orphan.name
        ));
    }
    Ok(())
}

/// Why nothing is done about a name that was given.
fn stays(d: &Draft, name: &HostName) -> Option<String> {
    let members = d.facts.living().map(|view| view.members.as_slice()).unwrap_or_default();
    let member = members.iter().find(|(_, of, _, _)| of == name.as_str());
    match d.desired.host(name) {
        // Its member may leave where the host stays.
        Some(host) if host.is(Role::Etcd) && member.is_none_or(|(_, _, peer, _)| *peer == host.peer_url()) => {
            Some("the inventory names it, so it stays; take it out there first".to_owned())
        }
        Some(host) if member.is_none() && !host.is(Role::Etcd) => Some(
            "the inventory names it, and it has no member of etcd that could leave; take it out there first".to_owned(),
        ),
        Some(_) => None,
        None => {
            let known = member.is_some() || d.look().registered(name) || d.facts.leaving.contains_key(name);
            (!known).then(|| "nobody of this name is part of the cluster (any more)".to_owned())
        }
    }
}

/// The endpoint's address leaves a host before those who stay stop counting on it: two that do not know of one another would both take it.
pub(super) fn addresses(d: &mut Draft) {
    if !moves(d) {
        return;
    }
    let keepalived = unit("keepalived.service");
    let hosts: Vec<HostName> = d.desired.leaving.iter().map(|h| h.name.clone()).collect();
    for host in hosts {
        let runs = lives(d, &host).and_then(|f| f.units.get(&keepalived)).is_some_and(UnitFact::runs_or_starts);
        if !runs {
            continue;
        }
        let others = d.reachable_with(Role::LoadBalancer).into_iter();
        let requires = others.map(|h| Condition::Running(h.name, unit("haproxy.service"))).collect();
        let stopped = Condition::Stopped(host.clone(), keepalived.clone());
        let action = Action::StopUnit { host, unit: keepalived.clone() };
        d.ensure(action, "it leaves, and the endpoint's address before it", requires, stopped);
    }
}

/// One host after the other, once all that was planned so far is done.
pub(super) fn remove_hosts(d: &mut Draft) -> Result<(), Refusal> {
    let hosts: Vec<Host> = d.desired.leaving.iter().filter(|h| lives(d, &h.name).is_some()).cloned().collect();
    if d.limited() && !hosts.is_empty() {
        d.warn("with --limit no host leaves: run `hactl up --prune` without it".to_owned());
        return Ok(());
    }
    for host in hosts {
        let name = host.name.clone();
        let mut requires = d.given();
        if host.is_node() && d.look().registered(&name) {
            let drained = Condition::Drained(name.clone());
            let action = Action::Drain { host: name.clone(), within_s: DRAIN_S };
            requires.push(Condition::Api);
            d.must(action, "it leaves, and its pods before it", requires.clone(), drained.clone(), Precondition::None);
            requires.push(drained);
        }
        if host.is(Role::Etcd) {
            requires.extend(reconcile_members::remove_hosts(d, &host, requires.clone())?);
        }
        let wiped = Condition::Wiped(name.clone());
        let precondition = if host.is(Role::ControlPlane) {
            Precondition::Tolerates { down: name.clone() }
        } else {
            Precondition::None
        };
        let action = Action::Wipe { host: name.clone(), delete: false };
        d.must(action, "it leaves", requires, wiped.clone(), precondition);
        if d.look().registered(&name) {
            let action = Action::DeleteNode { node: name.clone(), end: NodeEnd::Stopped };
            let why = "its host has left";
            d.must(action, why, vec![wiped, Condition::Api], Condition::NodeGone(name), Precondition::None);
        }
    }
    Ok(())
}
