//! What belongs to the cluster rather than to a host: the endpoint, the objects, the Nodes.

use super::draft::Draft;
use crate::model::desired::{Cni, Role};
use crate::model::facts::{Facts, Stale};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, NodeEnd, object_in_words};
use crate::model::target::{FileSet, MANIFESTS, Place};
use std::collections::BTreeMap;

/// An API server answers, and so does the endpoint.
pub(super) fn endpoint(d: &mut Draft) {
    let mut requires = Vec::new();
    for host in d.reachable_with(Role::ControlPlane) {
        requires.push(Condition::Configured(host.name, FileSet::ControlPlane));
    }
    d.ensure(Action::AwaitApi, "none is ready", requires.clone(), Condition::Api);
    for host in d.reachable() {
        for set in [FileSet::LoadBalancer, FileSet::Keepalived] {
            if let Some(unit) = d.host_target(&host.name).sets.get(&set).and_then(|s| s.unit.clone()) {
                requires.push(Condition::Running(host.name.clone(), unit));
            }
        }
    }
    let why = format!("{} does not say ready", d.desired.endpoint.url());
    d.ensure(Action::AwaitEndpoint, why, requires, Condition::Endpoint);
}

/// The objects hactl owns. RBAC first: what observes and approves depends on it.
pub(super) fn objects(d: &mut Draft) {
    // By component: an add-on needs the image of its own name, so that its pods find it on every Node.
    let mut images: Vec<(String, Condition)> = Vec::new();
    for host in d.reachable().into_iter().filter(crate::model::desired::Host::is_node) {
        for part in &d.host_target(&host.name).parts {
            if matches!(part.place, Place::Image { .. }) {
                images.push((part.name.clone(), Condition::Imported(host.name.clone(), part.digest)));
            }
        }
    }
    let mut kubelets = Vec::new();
    for host in d.changing() {
        if let Some(unit) = d.host_target(&host.name).sets.get(&FileSet::Kubelet).and_then(|s| s.unit.clone()) {
            kubelets.push(Condition::Running(host.name, unit));
        }
    }
    for addon in &d.target.addons {
        // Objects go to an API server itself, and the endpoint's address may still be on its way. What asks the endpoint
        // must find it: pods that do not are started again only after a pause.
        let asks_endpoint = matches!(addon.name.as_str(), "flannel" | "kube-proxy");
        let mut requires = vec![if asks_endpoint { Condition::Endpoint } else { Condition::Api }];
        d.after_turns(&mut requires);
        if addon.name != "rbac" {
            requires.push(Condition::Applied("rbac".to_owned()));
            requires.extend(images.iter().filter(|(name, _)| *name == addon.name).map(|(_, mark)| mark.clone()));
        }
        if addon.name == "kube-proxy" {
            requires.extend(super::upgrade::older_and_silent(d));
        }
        if addon.name == "node-labels" {
            // A Node that does not exist yet must be made by its kubelet, or it would lack its taints.
            requires.extend(kubelets.iter().cloned());
        }
        if addon.name == MANIFESTS {
            // Last, when everything that they may stand on is there.
            let own = d.target.addons.iter().filter(|other| other.name != MANIFESTS);
            requires.extend(own.map(|other| Condition::Applied(other.name.clone())));
        }
        let (mut objects, why): (Vec<String>, String) = match d.facts.drift.get(&addon.name) {
            Some(drift) => (drift.iter().map(|(key, _)| key.clone()).collect(), reasons(drift, &addon.name)),
            None => (
                addon
                    .objects
                    .iter()
                    .filter(|object| Facts::can_exist(object, &d.facts.hosts))
                    .map(crate::model::target::object_key)
                    .collect(),
                "no API server could be asked yet".to_owned(),
            ),
        };
        if d.limited() {
            // What belongs to all hosts is none of a few hosts' business; what belongs to one is.
            let own = |key: &String| {
                let name = key.rsplit('|').next().and_then(|name| name.parse().ok());
                key.starts_with("v1|Node|") && name.is_some_and(|name| d.may_change(&name))
            };
            objects.retain(own);
            if objects.is_empty() {
                continue;
            }
        }
        let action = Action::Apply { addon: addon.name.clone(), objects };
        d.ensure(action, why, requires, Condition::Applied(addon.name.clone()));
    }
}

/// So many of the user's objects are told one by one.
const MOST_TOLD: usize = 30;

/// Why objects are applied: the first of our own, which are all of one making, and each of the user's.
fn reasons(drift: &[(String, String)], addon: &str) -> String {
    let told = if addon == MANIFESTS { MOST_TOLD } else { 1 };
    let one = |(key, what): &(String, String)| format!("{}: {what}", object_in_words(key));
    let words: Vec<String> = drift.iter().take(told).map(one).collect();
    let more = drift.len() - words.len();
    let more = if addon == MANIFESTS && more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", words.join("; "))
}

/// Objects that hactl applied and that nobody asks for any more: when everything else is there.
pub(super) fn prune(d: &mut Draft) {
    for (addon, stale) in &d.facts.stale {
        let (keep, delete): (Vec<_>, Vec<_>) = stale.iter().partition(|s| s.kept.is_some());
        let keys = |list: &[&Stale]| list.iter().map(|s| s.key.clone()).collect::<Vec<_>>();
        let mut why: Vec<String> = Vec::new();
        if !delete.is_empty() {
            why.push("the inventory does not ask for it any more".to_owned());
        }
        let stays = |s: &&&Stale| s.kept.as_ref().map(|reason| format!("{} stays: {reason}", object_in_words(&s.key)));
        why.extend(keep.iter().take(MOST_TOLD).filter_map(|s| stays(&s)));
        let mut requires = vec![Condition::Api];
        d.after_turns(&mut requires);
        requires.extend(d.target.addons.iter().map(|a| Condition::Applied(a.name.clone())));
        let action = Action::Prune { addon: addon.clone(), delete: keys(&delete), keep: keys(&keep) };
        d.ensure(action, why.join("; "), requires, Condition::Pruned(addon.clone()));
    }
}

/// Nodes of hosts that the inventory does not name any more. One whose kubelet is silent leaves when it is named. After a recovery from a
/// bundle those that were hactl's leave: the hosts that they were are lost, or nobody would have asked for that.
pub(super) fn unknown_nodes(d: &mut Draft) {
    if d.limited() {
        if !d.intent.prune.is_empty() {
            d.warn("with --limit no Node leaves: run `hactl up --prune` without it".to_owned());
        }
        return;
    }
    let mut seen = BTreeMap::new();
    for node in d.facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref()).flat_map(|api| &api.nodes) {
        if let Ok(name) = node.name.parse::<HostName>()
            && !d.desired.host(&name).is_some_and(crate::model::desired::Host::is_node)
        {
            seen.insert(name, node);
        }
    }
    let mut requires = vec![Condition::Api];
    d.after_turns(&mut requires);
    for (name, node) in seen {
        let asked = d.intent.prune.contains(&name);
        // A host that is in the inventory, and no Node any more, may be alive.
        let abandoned = d.intent.abandons && node.ours && d.desired.host(&name).is_none();
        let why = match (asked, abandoned) {
            // Its host lives and leaves, or stays without it, in its turn.
            _ if super::remove_hosts::lives(d, &name).is_some() || d.host_facts(&name).is_some() => continue,
            (true, _) if super::remove_hosts::kubelet_is_off(d, &name) => "its host has left",
            (true, _) if node.unreachable => "it was named with --prune, and its kubelet is silent",
            // Off for less than a minute, most likely: that is waited for.
            (true, _) if matches!(d.facts.leaving.get(&name), Some(Err(_))) => {
                "it was named with --prune, and its host does not answer"
            }
            (true, _) => {
                d.warn(format!(
                    "the kubelet of {name} still reports: its Node stays until that host is off, then `hactl up --prune {name}`"
                ));
                continue;
            }
            (false, true) => "etcd was recovered from a bundle, and the inventory names no such host any more",
            (false, false) => continue,
        };
        let end = match (asked, super::remove_hosts::kubelet_is_off(d, &name)) {
            (true, true) => NodeEnd::Stopped,
            (true, false) => NodeEnd::Asked,
            (false, _) => NodeEnd::Abandoned,
        };
        let action = Action::DeleteNode { node: name.clone(), end };
        d.ensure(action, why.to_owned(), requires.clone(), Condition::NodeGone(name));
    }
}

/// Every Node is there and Ready, unless nobody was asked to connect pods.
pub(super) fn nodes(d: &mut Draft) {
    if d.desired.network.cni == Cni::None {
        return;
    }
    let addons: Vec<Condition> =
        d.target.addons.iter().filter(|a| a.needed_for_ready).map(|a| Condition::Applied(a.name.clone())).collect();
    for host in d.changing().into_iter().filter(crate::model::desired::Host::is_node) {
        let mut requires = vec![Condition::Api];
        d.after_turns(&mut requires);
        if let Some(unit) = d.host_target(&host.name).sets.get(&FileSet::Kubelet).and_then(|s| s.unit.clone()) {
            requires.push(Condition::Running(host.name.clone(), unit));
        }
        // A kubelet beside an API server asks that one alone.
        requires.extend(Some(Condition::Serving(host.name.clone())).filter(|serving| d.plans(serving)));
        requires.extend(addons.iter().cloned());
        if d.desired.network.cni == Cni::Flannel
            && let Some((pod_cidr_mismatch, pods)) = d.look().pod_cidr_mismatch(&host.name)
        {
            let why = format!(
                "{} has {}, and its Node's range is {pods} now: other hosts do not find its pods",
                pod_cidr_mismatch.interface, pod_cidr_mismatch.address
            );
            let action = Action::RecreatePodNetwork { host: host.name.clone() };
            d.ensure(action, why, requires.clone(), Condition::Wired(host.name.clone()));
        }
        let action = Action::AwaitNode { host: host.name.clone() };
        d.ensure(action, "its Node is not Ready", requires, Condition::NodeReady(host.name));
    }
}
