//! Steps for the cluster rather than for a host: the endpoint, the objects, the Nodes.

use super::draft::Draft;
use super::steps::Steps;
use crate::model::desired::{Cni, Role};
use crate::model::facts::{Facts, Stale};
use crate::model::hosting::ADDON;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, NodeEnd, object_in_words};
use crate::model::target::{FileSet, MANIFESTS, Place};
use std::collections::BTreeMap;

/// Waits for an API server and for the endpoint.
pub(super) fn endpoint(d: &Draft) -> Steps {
    let planes = d.reachable_with(Role::ControlPlane).into_iter();
    let mut requires: Vec<_> = planes.map(|host| Condition::Configured(host.name, FileSet::ControlPlane)).collect();
    let mut steps = d.ensure(Action::AwaitApi, "no API server is ready", requires.clone());
    for host in d.reachable() {
        let sets = [FileSet::LoadBalancer, FileSet::Keepalived];
        requires.extend(sets.into_iter().filter_map(|set| d.running(&host.name, set)));
    }
    let why = format!("{} is not ready", d.desired.endpoint.url());
    steps.add(d.ensure(Action::AwaitEndpoint, why, requires));
    steps
}

/// The objects that hactl owns. RBAC first: observation and the CSR approver depend on it.
pub(super) fn objects(d: &Draft) -> Steps {
    let mut steps = Steps::default();
    // By component: an add-on requires the image of its name, so that its pods find it on every Node.
    let mut images: Vec<(String, Condition)> = Vec::new();
    for host in d.reachable().into_iter().filter(crate::model::desired::Host::is_node) {
        for part in &d.host_target(&host.name).parts {
            if matches!(part.place, Place::Image { .. }) {
                images.push((part.name.clone(), Condition::Imported(host.name.clone(), part.digest)));
            }
        }
    }
    let changing = d.changing();
    let kubelets: Vec<_> = changing.iter().filter_map(|host| d.running(&host.name, FileSet::Kubelet)).collect();
    for addon in &d.target.addons {
        // Objects are sent to an API server directly, while the endpoint's VIP may not be up yet. Pods that use the
        // endpoint wait for it: a pod that cannot reach it is restarted only after a back-off.
        let asks_endpoint = matches!(addon.name.as_str(), "flannel" | "kube-proxy");
        let mut requires = d.api();
        if asks_endpoint {
            requires[0] = Condition::Endpoint;
        }
        if addon.name != "rbac" {
            requires.push(Condition::Applied("rbac".to_owned()));
            requires.extend(images.iter().filter(|(name, _)| *name == addon.name).map(|(_, mark)| mark.clone()));
        }
        if addon.name == "kube-proxy" {
            requires.extend(super::upgrade::older_and_unreachable(d));
        }
        if addon.name == "node-labels" {
            // A Node that does not exist yet must be created by its kubelet, or it would lack its taints.
            requires.extend(kubelets.iter().cloned());
        }
        if addon.name == MANIFESTS {
            // Last, when everything that they may depend on exists.
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
                "no API server has answered yet".to_owned(),
            ),
        };
        if d.limited() {
            // A limited run applies only the objects of its own hosts, not those of the whole cluster.
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
        steps.add(d.ensure(action, why, requires));
    }
    steps
}

/// So many of the user's objects are listed one by one.
const MOST_TOLD: usize = 30;

/// Why objects are applied: the first of our own, which change together, and each of the user's.
fn reasons(drift: &[(String, String)], addon: &str) -> String {
    let stated = if addon == MANIFESTS { MOST_TOLD } else { 1 };
    let one = |(key, what): &(String, String)| format!("{}: {what}", object_in_words(key));
    let words: Vec<String> = drift.iter().take(stated).map(one).collect();
    let more = drift.len() - words.len();
    let more = if addon == MANIFESTS && more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", words.join("; "))
}

/// Deletes objects that hactl applied and that are no longer wanted, after everything else is applied.
pub(super) fn prune(d: &Draft) -> Steps {
    let pruned = d.facts.stale.iter().map(|(addon, stale)| {
        let (keep, delete): (Vec<_>, Vec<_>) = stale.iter().partition(|s| s.kept.is_some());
        let keys = |list: &[&Stale]| list.iter().map(|s| s.key.clone()).collect::<Vec<_>>();
        let mut why: Vec<String> = Vec::new();
        if !delete.is_empty() {
            why.push("the inventory no longer asks for it".to_owned());
        }
        let stays = |s: &&&Stale| s.kept.as_ref().map(|reason| format!("{} stays: {reason}", object_in_words(&s.key)));
        why.extend(keep.iter().take(MOST_TOLD).filter_map(|s| stays(&s)));
        let mut requires = d.api();
        requires.extend(d.target.addons.iter().map(|a| Condition::Applied(a.name.clone())));
        if addon == ADDON {
            requires.extend(super::hosted::all_held(d));
        }
        let action = Action::Prune { addon: addon.clone(), delete: keys(&delete), keep: keys(&keep) };
        d.ensure(action, why.join("; "), requires)
    });
    pruned.collect()
}

/// Nodes of hosts that are no longer in the inventory. A Node whose kubelet does not report is deleted when it is
/// named. After a recovery from a snapshot, hactl's own Nodes are deleted: their hosts are lost, or the recovery would
/// not have been requested.
pub(super) fn unknown_nodes(d: &Draft) -> Steps {
    let mut steps = Steps::default();
    if d.limited() {
        if !d.intent.prune.is_empty() {
            steps.warnings.push("with --limit no Node is deleted: run `hactl up --prune` without it".to_owned());
        }
        return steps;
    }
    let mut seen = BTreeMap::new();
    for node in d.facts.hosts.values().filter_map(|f| f.as_ref().ok()?.api.as_ref()).flat_map(|api| &api.nodes) {
        if let Ok(name) = node.name.parse::<HostName>()
            && !d.desired.host(&name).is_some_and(crate::model::desired::Host::is_node)
        {
            seen.insert(name, node);
        }
    }
    let requires = d.api();
    for (name, node) in seen {
        let asked = d.intent.prune.contains(&name);
        // A host that is in the inventory and is no longer a Node may be running.
        let abandoned = d.intent.abandons && node.ours && d.desired.host(&name).is_none();
        let why = match (asked, abandoned) {
            // Its host answers: it is removed, or stays without its Node, in its turn.
            _ if super::remove_hosts::lives(d, &name).is_some() || d.facts.host(&name).is_some() => continue,
            (true, _) if super::remove_hosts::kubelet_is_off(d, &name) => "its host was removed",
            (true, _) if node.unreachable => "it was named with --prune, and its kubelet does not report",
            // Powered off for less than a minute, most likely: the step waits for that.
            (true, _) if matches!(d.facts.leaving.get(&name), Some(Err(_))) => {
                "it was named with --prune, and its host does not answer"
            }
            (true, _) => {
                steps.warnings.push(format!(
                    "the kubelet of {name} still reports, so its Node stays: power the host off, then run `hactl up \
                     --prune {name}`"
                ));
                continue;
            }
            (false, true) => "etcd was recovered from a snapshot, and the host is no longer in the inventory",
            (false, false) => continue,
        };
        let end = match (asked, super::remove_hosts::kubelet_is_off(d, &name)) {
            (true, true) => NodeEnd::Stopped,
            (true, false) => NodeEnd::Asked,
            (false, _) => NodeEnd::Abandoned,
        };
        let action = Action::DeleteNode { node: name.clone(), end };
        steps.add(d.ensure(action, why.to_owned(), requires.clone()));
    }
    steps
}

/// Waits for every Node to be Ready, unless the inventory asks for no CNI.
pub(super) fn nodes(d: &Draft) -> Steps {
    let mut steps = Steps::default();
    if d.desired.network.cni == Cni::None {
        return steps;
    }
    let addons: Vec<Condition> =
        d.target.addons.iter().filter(|a| a.needed_for_ready).map(|a| Condition::Applied(a.name.clone())).collect();
    for host in d.changing().into_iter().filter(crate::model::desired::Host::is_node) {
        let mut requires = d.api();
        requires.extend(d.running(&host.name, FileSet::Kubelet));
        // It prefers the API server of its host, and may have no other.
        requires.extend(Some(Condition::Serving(host.name.clone())).filter(|serving| d.plans(serving)));
        requires.extend(addons.iter().cloned());
        if d.desired.network.cni == Cni::Flannel
            && let Some((pod_cidr_mismatch, pods)) = d.pod_cidr_mismatch(&host.name)
        {
            let why = format!(
                "{} has {}, but the Pod CIDR of its Node is {pods}: other hosts cannot reach its pods",
                pod_cidr_mismatch.interface, pod_cidr_mismatch.address
            );
            let action = Action::RecreatePodNetwork { host: host.name.clone() };
            steps.add(d.ensure(action, why, requires.clone()));
        }
        let action = Action::AwaitNode { host: host.name.clone() };
        steps.add(d.ensure(action, "its Node is not Ready", requires));
    }
    steps
}
