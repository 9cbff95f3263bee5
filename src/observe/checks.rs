//! The named checks that end every `up` and that `status` shows. Pure: facts in, a list out.

use super::hash::HashCheck;
use crate::model::check::{Check, Outcome, UP, check};
use crate::model::control_plane::{API_MANIFEST, CONTROLLER_MANAGER, MANIFESTS, PROGRAMS, QUORUM_PODS, SCHEDULER};
use crate::model::desired::{Cni, Desired, Host, Role};
use crate::model::facts::{ApiFact, CORRUPT, Etcd, EtcdView, Facts, HostFacts, NOSPACE, PodFact};
use crate::model::guards::Guards;
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::positions::{self, Position, Unfit};
use crate::model::recovery::left_behind;
use crate::model::uncreated::outdated;
use serde_json::Value;
use std::collections::BTreeSet;

/// A holder that has not renewed its lease for this many lease durations is not counted as leader.
const STALE_LEASES: i64 = 1;
/// The addresses of a host's pods are in its Node's pod CIDR, to which the other hosts route.
const RANGES: &str = "pods in their Node's range";
/// A host's report is plausible and agrees with the majority.
pub const BELIEVED: &str = "host is believed";
/// The data on an etcd host is that of its own member, and complete.
const DISKS: &str = "etcd disks";
/// A pod this long past its grace period is stuck, seconds.
const STUCK_AFTER_S: i64 = 30;

/// Every check, in the order in which a person reads them: hosts, etcd, API, cluster.
pub fn checks(desired: &Desired, facts: &Facts, hash: &HashCheck) -> Vec<Check> {
    let mut list = Vec::new();
    hosts(desired, facts, &mut list);
    etcd(desired, facts, hash, &mut list);
    list.extend(super::bundles::check(desired, facts));
    list.extend(super::peer_copies::check(desired, facts));
    list.extend(super::certificates::check(desired, facts));
    list.extend(Guards::of(desired, &facts.hosts).iter().flat_map(super::of_guards));
    api(desired, facts, &mut list);
    list.extend(super::vip::check_vip(desired, facts, best_api(facts).is_some()));
    list.extend(super::hosting::checks(desired, facts));
    match best_api(facts) {
        Some(api) => cluster(desired, api, facts, &mut list),
        None => list.push(check("API", None, Outcome::Down, "no API server answers", None)),
    }
    list
}

fn apis(facts: &Facts) -> impl Iterator<Item = (&HostName, &ApiFact)> {
    facts.hosts.iter().filter_map(|(h, f)| Some((h, f.as_ref().ok()?.api.as_ref()?)))
}

fn views(facts: &Facts) -> impl Iterator<Item = &EtcdView> {
    facts.hosts.values().filter_map(|f| f.as_ref().ok()?.etcd.as_ref()?.view.as_ref())
}

fn best_api(facts: &Facts) -> Option<&ApiFact> {
    apis(facts).map(|(_, a)| a).find(|a| a.own_trouble.is_none())
}

fn hosts(desired: &Desired, facts: &Facts, list: &mut Vec<Check>) {
    for host in &desired.hosts {
        if let Some(Err(unreachable)) = facts.hosts.get(&host.name) {
            let hint = unreachable.hint.as_deref();
            list.push(check("host answers", Some(&host.name), Outcome::Fail, unreachable.why.clone(), hint));
        }
    }
    list.extend(super::hung::checks(facts));
    for (host, doubt) in facts.doubts() {
        let hint = Some("check its clock and its hactl; if both are right, treat the host as compromised");
        list.push(check(BELIEVED, Some(host), Outcome::Fail, format!("it {doubt}"), hint));
    }
    for host in &desired.hosts {
        let cluster_id = facts.host(&host.name).and_then(|found| found.cluster_id.as_ref());
        if let Some(is) = cluster_id.and_then(|cluster_id| cluster_id.host.as_ref()).filter(|is| *is != &host.name) {
            let detail = format!("the machine at {} is {is}, but the inventory calls it {}", host.address, host.name);
            let hint = "correct the name or the address of this host in the inventory";
            list.push(check("hosts are themselves", Some(&host.name), Outcome::Fail, detail, Some(hint)));
        }
    }
    list.extend(super::name_servers::checks(desired, facts));
    let answered = facts.hosts.values().filter(|f| f.is_ok()).count();
    if answered == desired.hosts.len() {
        list.push(check("hosts answer", None, Outcome::Pass, format!("all {answered}"), None));
    }
}

fn etcd(desired: &Desired, facts: &Facts, hash: &HashCheck, list: &mut Vec<Check>) {
    let name = "etcd members healthy";
    for host in desired.with(Role::Etcd) {
        if let Some(unfit) = positions::unfit(desired, facts, host) {
            let hint = match (&unfit, &facts.etcd) {
                (Unfit::Swapped(_), _) => None,
                (_, Etcd::HasQuorum(_)) => Some("hactl up archives its data and adds the member again"),
                _ => Some("bring the other hosts back; if they are lost, hactl recover"),
            };
            list.push(check(DISKS, Some(&host.name), Outcome::Fail, unfit.on(&host.name), hint));
        }
    }
    list.extend(all_back(facts));
    let members = match &facts.etcd {
        Etcd::HasQuorum(members) => members,
        Etcd::Uninitialized => {
            return list.push(check(name, None, Outcome::Down, "no etcd cluster exists yet", Some(UP)));
        }
        Etcd::Bootstrapping { .. } => {
            return list.push(check(name, None, Outcome::Down, "the bootstrap was interrupted", Some(UP)));
        }
        Etcd::NoQuorum(evidence) | Etcd::Disputed(evidence) => {
            let said: Vec<String> = evidence.iter().map(|e| format!("{} {}", e.host, e.what)).collect();
            let (what, hint) = match &facts.etcd {
                Etcd::Disputed(_) => {
                    ("disputed", "run status again; if it stays so, stop etcd on the wrong host, then hactl up")
                }
                _ => ("no quorum", "bring hosts back, then hactl up"),
            };
            return list.push(check(name, None, Outcome::Down, format!("{what}: {}", said.join("; ")), Some(hint)));
        }
    };
    for host in desired.with(Role::Etcd) {
        let outcome = match members.0.get(&host.peer_url()) {
            Some(m) if m.healthy && !m.learner => continue,
            _ if of_the_past(facts, &host.name) => (
                Outcome::Fail,
                "its data predates a recovery, so its etcd stays down; `hactl up` adds the member again",
            ),
            _ if positions::unfit(desired, facts, host).is_some() => continue,
            Some(m) if m.learner => (Outcome::Warn, "is a learner: it does not vote yet"),
            Some(_) => (Outcome::Fail, "is a member but does not answer"),
            None => (Outcome::Fail, "is not a member"),
        };
        list.push(check("etcd member healthy", Some(&host.name), outcome.0, outcome.1, Some(UP)));
    }
    for peer in members.0.keys().filter(|p| !desired.with(Role::Etcd).any(|h| &&h.peer_url() == p)) {
        let (detail, hint) = match desired.hosts.iter().find(|h| &h.peer_url() == peer) {
            Some(host) => (format!("{} is a member, but has no role etcd in the inventory", host.name), UP),
            None => (format!("{peer} is a member, but is not in the inventory"), "hactl up --prune NAME"),
        };
        list.push(check("etcd members known", None, Outcome::Warn, detail, Some(hint)));
    }
    list.extend(super::peers::checks(desired, members));
    let (healthy, voters, quorum) = (members.healthy(), members.voters(), members.quorum());
    let (spare, s) = (members.spare().unwrap_or(0), if members.spare() == Some(1) { "" } else { "s" });
    let detail = format!("{healthy} of {voters} voters, quorum {quorum}, tolerates {spare} more failure{s}");
    list.push(check(name, None, if healthy == voters { Outcome::Pass } else { Outcome::Fail }, detail, None));
    let alarms: BTreeSet<String> = views(facts).flat_map(|v| v.alarms.iter().cloned()).collect();
    if !alarms.is_empty() {
        let hint = if alarms.contains(CORRUPT) {
            Some("the data of one member differs; etcd rejects writes until that member is replaced: hactl recover")
        } else {
            alarms.contains(NOSPACE).then_some("the quota is exceeded and etcd rejects writes: hactl recover")
        };
        let detail = alarms.into_iter().collect::<Vec<_>>().join(", ");
        list.push(check("etcd without alarms", None, Outcome::Fail, detail, hint));
    }
    let name = "etcd members agree";
    list.push(match hash {
        HashCheck::Same { revision, members } => {
            check(name, None, Outcome::Pass, format!("{members} with one hash at revision {revision}"), None)
        }
        HashCheck::Differs(all) => {
            let said: Vec<String> = all.iter().map(|(h, v)| format!("{h} {v:08x}")).collect();
            let hint =
                Some("take a snapshot of each member, then see with `hactl recover --dry-run` if a majority agrees");
            check(name, None, Outcome::Fail, format!("their data differs: {}", said.join(", ")), hint)
        }
        HashCheck::Incomparable(why) => {
            let hint = Some("a member that lags this far may have diverged: first take a snapshot of each member");
            check(name, None, Outcome::Fail, why.clone(), hint)
        }
        HashCheck::Unknown(why) => check(name, None, Outcome::Warn, why.clone(), None),
    });
}

/// Fails if the members with quorum are behind a position that was recorded earlier: etcd as a whole was rolled back,
/// so no other member can show it.
fn all_back(facts: &Facts) -> Option<Check> {
    let living = facts.living()?;
    let ahead = |p: &&Position| p.cluster == living.cluster && (p.term, p.index) > (living.term, living.applied);
    let seen = facts.noted.iter().filter(ahead).max()?;
    let detail = format!(
        "etcd as a whole was rolled back: an earlier run saw a member at {seen}, but all members are at raft term {}, \
         index {} now; the writes in between are lost",
        living.term, living.applied
    );
    let hint = "if this was not intended: hactl snapshot list, then hactl recover --undo --from a later snapshot";
    Some(check(DISKS, None, Outcome::Fail, detail, Some(hint)))
}

/// Whether the data on a host predates a recovery, from which the running cluster came.
fn of_the_past(facts: &Facts, host: &HostName) -> bool {
    let disk = facts.host(host).and_then(|f| f.etcd.as_ref()?.disk.as_ref());
    match (disk.and_then(|d| Some((d.cluster.as_str(), d.revision?))), views(facts).find(|v| v.linearizable)) {
        (Some(own), Some(living)) => left_behind(own, (&living.cluster, living.revision)),
        _ => false,
    }
}

fn api(desired: &Desired, facts: &Facts, list: &mut Vec<Check>) {
    let holds = |host: &&HostName| {
        let node = best_api(facts).and_then(|api| api.nodes.iter().find(|node| node.name == host.as_str()));
        node.is_some_and(NodeFact::is_without_static_pods)
    };
    // A host whose static pods are held for its maintenance has no API server, as its author asked for.
    let (held, control_plane): (Vec<&HostName>, Vec<&HostName>) =
        desired.with(Role::ControlPlane).map(|h| &h.name).partition(holds);
    let mut ready = 0;
    let mut through = 0;
    for host in &control_plane {
        let Some(api) = facts.host(host).and_then(|f| f.api.as_ref()) else { continue };
        let missing = facts.host(host).into_iter().flat_map(missing_manifests);
        let (its, others): (Vec<String>, Vec<String>) = missing.partition(|path| path == API_MANIFEST);
        match &api.own_trouble {
            None => ready += 1,
            Some(why) if !its.is_empty() => {
                let detail = format!("{why}; its manifest {API_MANIFEST} is missing");
                list.push(check("API server ready", Some(host), Outcome::Fail, detail, Some(UP)));
            }
            Some(why) => list.push(check("API server ready", Some(host), Outcome::Fail, why.clone(), None)),
        }
        if !others.is_empty() {
            let detail = format!("missing: {}; the kubelet runs only what has a manifest", others.join(", "));
            list.push(check("static pods placed", Some(host), Outcome::Fail, detail, Some(UP)));
        }
        match &api.endpoint_trouble {
            None => through += 1,
            Some(why) => list.push(check("endpoint ready", Some(host), Outcome::Fail, why.clone(), None)),
        }
    }
    let count = |n: usize| match n {
        0 => Outcome::Down,
        n if n == control_plane.len() => Outcome::Pass,
        _ => Outcome::Fail,
    };
    let of = control_plane.len();
    let held: Vec<String> = held.iter().map(|host| format!("; that of {host} is held for its maintenance")).collect();
    let detail = format!("{ready} of {of}, each by its own address{}", held.concat());
    list.push(check("API servers ready", None, count(ready), detail, None));
    let detail = format!("{} from {through} of {of} hosts", desired.endpoint.url());
    list.push(check("endpoint ready", None, count(through), detail, None));
}

/// The manifests of static pods that a host lacks. None where pods run the control plane, as the manifests are in
/// reserve there, and none where no file of hactl was found at all.
fn missing_manifests(found: &HostFacts) -> Vec<String> {
    if found.hosting.is_some() || found.files.is_empty() {
        return Vec::new();
    }
    let paths = PROGRAMS.iter().map(|program| format!("{MANIFESTS}{program}.yaml"));
    paths.filter(|path| !found.files.contains_key(path)).collect()
}

fn cluster(desired: &Desired, api: &ApiFact, facts: &Facts, list: &mut Vec<Check>) {
    for (check_name, name) in
        [("one leading scheduler", SCHEDULER), ("one leading controller manager", CONTROLLER_MANAGER)]
    {
        let lease = api.leases.iter().find(|l| l.name == name);
        let (outcome, detail) = match lease {
            Some(l) if l.age_ms <= l.duration_s * 1000 * STALE_LEASES && !l.holder.is_empty() => {
                (Outcome::Pass, l.holder.split('_').next().unwrap_or(&l.holder).to_owned())
            }
            Some(l) if l.holder.is_empty() => (Outcome::Fail, "no leader: the lease has no holder".to_owned()),
            Some(l) => (Outcome::Fail, format!("{} has not renewed for {} s", l.holder, l.age_ms / 1000)),
            None => (Outcome::Fail, "no leader: there is no lease".to_owned()),
        };
        list.push(check(check_name, None, outcome, detail, None));
    }
    nodes(desired, api, facts, list);
    pods(desired, facts, api, list);
    let pod_cidr_mismatch = list.iter().any(|check| check.name == RANGES);
    list.extend(super::dns::check(desired, facts, api, pod_cidr_mismatch));
    let secret =
        facts.hosts.values().filter_map(|f| f.as_ref().ok()?.etcd.as_ref()?.secret_is_ciphertext).reduce(|a, b| a && b);
    let (outcome, detail) = match secret {
        Some(true) => (Outcome::Pass, "the canary Secret, read from etcd"),
        Some(false) => (Outcome::Fail, "the canary Secret is readable in etcd"),
        None => (Outcome::Fail, "the canary Secret could not be read from etcd"),
    };
    list.push(check("Secrets are ciphertext in etcd", None, outcome, detail, None));
}

fn nodes(desired: &Desired, api: &ApiFact, facts: &Facts, list: &mut Vec<Check>) {
    let wanted: Vec<&str> = desired.hosts.iter().filter(|h| h.is_node()).map(|h| h.name.as_str()).collect();
    let mut ready = 0;
    for name in &wanted {
        pod_cidr_mismatch(desired, api, facts, name, list);
        let (detail, hint) = match api.nodes.iter().find(|n| n.name == *name) {
            Some(node) if node.ready => {
                ready += 1;
                continue;
            }
            Some(_) if desired.network.cni == Cni::None => continue,
            Some(node) => (node.message.as_str(), None),
            None => ("is not registered", Some(UP)),
        };
        list.push(check("Node Ready", name.parse().ok().as_ref(), Outcome::Fail, detail, hint));
    }
    list.extend(super::tunnels::check(desired, api));
    let detail = format!("{ready} of {}", wanted.len());
    let (outcome, detail) = match desired.network.cni {
        _ if ready == wanted.len() => (Outcome::Pass, detail),
        Cni::None => (Outcome::Skip, format!("{detail}: NotReady until your network plugin is installed")),
        Cni::Flannel => (Outcome::Fail, detail),
    };
    list.push(check("nodes Ready", None, outcome, detail, None));
    for node in &api.nodes {
        if !wanted.contains(&node.name.as_str()) {
            let detail = format!("{} is a Node, but is not in the inventory", node.name);
            // A host that is no longer a Node may have another role.
            let elsewhere = desired.hosts.iter().any(|host| host.name.as_str() == node.name);
            let hint = "hactl up --prune NAME (power off its host first if it does not answer), or add it to the \
                        inventory";
            let hint = (!elsewhere).then_some(hint);
            list.push(check("nodes known", None, Outcome::Warn, detail, hint));
        }
    }
}

/// Pods with addresses outside their Node's pod CIDR.
fn pod_cidr_mismatch(desired: &Desired, api: &ApiFact, facts: &Facts, name: &str, list: &mut Vec<Check>) {
    let host = name.parse().ok().filter(|_| desired.network.cni == Cni::Flannel);
    let found = host.as_ref().and_then(|host| {
        let node = api.nodes.iter().find(|n| n.name == *name)?;
        Some((node.pod_cidr_mismatch(&facts.host(host)?.addresses)?, node.pods?))
    });
    if let Some((pod_cidr_mismatch, pods)) = found {
        let (interface, address) = (&pod_cidr_mismatch.interface, pod_cidr_mismatch.address);
        let detail =
            format!("{interface} has {address}, but the Node's pod CIDR is {pods}: other hosts cannot reach its pods");
        list.push(check(RANGES, host.as_ref(), Outcome::Fail, detail, Some(UP)));
    }
}

/// Objects whose pods are being replaced: the old pods may all be Ready now and be gone soon after.
fn rolling(facts: &Facts) -> Vec<String> {
    let Some(api) = super::drift::api(&facts.hosts) else { return Vec::new() };
    let one = |(key, object): (&String, &Value)| {
        let (now, wanted) = outdated(object)?;
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let why = api.uncreated.get(key).map(|why| format!("; its pods are not created: {why}")).unwrap_or_default();
        Some(format!("{name}: {now} of {wanted} are of the new version{why}"))
    };
    api.objects.iter().filter_map(one).collect()
}

/// Pods that come back when Nodes are uncordoned: those that stand for the control plane of hosts that are drained, and
/// those of CoreDNS that find no Node because each other one has one already.
fn waiting_for_uncordon<'a>(desired: &Desired, api: &'a ApiFact) -> Vec<&'a PodFact> {
    let belongs = |pod: &PodFact, name: &str| pod.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    let stand: Vec<&PodFact> =
        api.pods.iter().filter(|pod| QUORUM_PODS.iter().any(|of| belongs(pod, of.name))).collect();
    let of_dns: Vec<&PodFact> = api.pods.iter().filter(|pod| belongs(pod, "coredns")).collect();
    let has_one = |node: &NodeFact| of_dns.iter().any(|pod| pod.node == node.name);
    let is_full =
        of_dns.iter().any(|pod| pod.ready) && api.nodes.iter().all(|node| node.unschedulable || has_one(node));
    let mut waiting = without_a_node(desired, api, &stand, |host| host.is(Role::Etcd) || host.is(Role::ControlPlane));
    waiting.extend(without_a_node(desired, api, &of_dns, |_| is_full));
    waiting
}

/// Pods without a Node, at most one for each cordoned Node of such a host on which none of them is.
fn without_a_node<'a>(
    desired: &Desired,
    api: &ApiFact,
    pods: &[&'a PodFact],
    is_their: impl Fn(&Host) -> bool,
) -> Vec<&'a PodFact> {
    let theirs = |name: &str| desired.hosts.iter().any(|host| host.name.as_str() == name && is_their(host));
    let cordoned = api.nodes.iter().filter(|node| node.unschedulable && theirs(&node.name));
    let most = cordoned.filter(|node| pods.iter().all(|pod| pod.node != node.name)).count();
    pods.iter().copied().filter(|pod| !pod.ready && pod.node.is_empty()).take(most).collect()
}

fn pods(desired: &Desired, facts: &Facts, api: &ApiFact, list: &mut Vec<Check>) {
    let system = || api.pods.iter().filter(|p| p.overdue_s == 0);
    let rolling = rolling(facts);
    let why = |p: &PodFact| if p.reason.is_empty() { p.phase.clone() } else { p.reason.clone() };
    let waiting = waiting_for_uncordon(desired, api);
    let unready = system().filter(|p| !p.ready && !waiting.contains(p)).map(|p| format!("{} ({})", p.name, why(p)));
    let unready: Vec<String> = unready.chain(rolling.iter().cloned()).collect();
    let total = system().count();
    let outcome = match (desired.network.is_whole(), unready.as_slice()) {
        (_, []) if total > 0 => Outcome::Pass,
        (false, [_, ..]) => Outcome::Skip,
        _ => Outcome::Fail,
    };
    let detail = match (unready.is_empty(), waiting.len()) {
        (false, _) => unready.join(", "),
        (true, 0) => format!("all {total}"),
        (true, 1) => format!("all {}; 1 waits until its Node is uncordoned", total - 1),
        (true, some) => format!("all {}; {some} wait until their Nodes are uncordoned", total - some),
    };
    // Without pods there is no pod status; the events name the cause of a rejection.
    let refused = "`hactl kubectl -- get events -A --field-selector reason=FailedCreate` shows rejected pods (quota, \
                   webhook)";
    let named = "change what refuses these pods, such as a ResourceQuota, a LimitRange, a webhook or the Pod Security \
                 level of their namespace; some minutes later they are created";
    let is_named = super::drift::api(&facts.hosts).is_some_and(|api| !api.uncreated.is_empty());
    let hint = (!rolling.is_empty()).then_some(if is_named { named } else { refused });
    list.push(check("system pods Ready", None, outcome, detail, hint));
    let stuck: Vec<String> =
        api.pods.iter().filter(|p| p.overdue_s > STUCK_AFTER_S).map(|p| format!("{} on {}", p.name, p.node)).collect();
    let (outcome, detail) = match stuck.as_slice() {
        [] => (Outcome::Pass, "none is stuck in deletion".to_owned()),
        _ => (Outcome::Fail, format!("stuck: {}", stuck.join(", "))),
    };
    list.push(check("pods can be deleted", None, outcome, detail, None));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{DiskFact, EtcdFact, EtcdView, FileFact};
    use crate::model::names::Digest;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn says(object: Value) -> Vec<String> {
        says_why(object, "")
    }

    fn says_why(object: Value, why: &str) -> Vec<String> {
        let uncreated = (!why.is_empty()).then(|| ("one".to_owned(), why.to_owned())).into_iter().collect();
        let api = ApiFact { objects: BTreeMap::from([("one".to_owned(), object)]), uncreated, ..ApiFact::default() };
        let host = HostFacts { api: Some(api), ..HostFacts::default() };
        let hosts = BTreeMap::from([("cp1".parse().unwrap(), Ok(host))]);
        rolling(&Facts::of(hosts))
    }

    #[test]
    fn a_host_with_data_older_than_the_recovery_is_reported_and_a_lagging_one_is_not() {
        let desired = crate::model::desired::sample(2);
        let facts = |cluster: &str, revision: i64| {
            let view = EtcdView {
                cluster: "beef".to_owned(),
                revision: 1_000_000_900,
                linearizable: true,
                ..EtcdView::default()
            };
            let etcd = EtcdFact { data: true, view: Some(view), ..EtcdFact::default() };
            let one = HostFacts { etcd: Some(etcd), ..HostFacts::default() };
            let disk = DiskFact { cluster: cluster.to_owned(), revision: Some(revision), ..DiskFact::default() };
            let etcd = EtcdFact { data: true, disk: Some(disk), ..EtcdFact::default() };
            let two = HostFacts { etcd: Some(etcd), ..HostFacts::default() };
            let hosts = desired.hosts.iter().map(|h| h.name.clone()).zip([Ok(one), Ok(two)]).collect();
            let etcd = Etcd::HasQuorum(crate::model::facts::Members::default());
            Facts { etcd, ..Facts::of(hosts) }
        };
        let stated = |facts: &Facts| {
            let all = checks(&desired, facts, &HashCheck::Unknown(String::new()));
            let of = |c: &&Check| c.name == "etcd member healthy" && c.host.as_ref() == Some(&desired.hosts[1].name);
            all.iter().find(of).map(|c| c.detail.clone()).unwrap_or_default()
        };
        assert!(stated(&facts("c0ffee", 900)).contains("predates a recovery"));
        for (cluster, revision) in [("beef", 900), ("c0ffee", 1_000_000_000)] {
            assert_eq!(stated(&facts(cluster, revision)), "is not a member", "{cluster} at {revision}");
        }
    }

    #[test]
    fn a_manifest_that_was_taken_away_is_named() {
        let desired = crate::model::desired::sample(1);
        let host = &desired.hosts[0].name;
        let said = |change: fn(&mut HostFacts)| {
            let file = FileFact { digest: Digest::new([0; 32]), mode: 0o600, owner: "root".to_owned(), changed_ms: 0 };
            let files = PROGRAMS.map(|program| (format!("{MANIFESTS}{program}.yaml"), file.clone()));
            let api = ApiFact { own_trouble: Some("connection refused".to_owned()), ..ApiFact::default() };
            let mut found = HostFacts { files: files.into(), api: Some(api), ..HostFacts::default() };
            change(&mut found);
            let facts = Facts::of([(host.clone(), Ok(found))].into());
            let all = checks(&desired, &facts, &HashCheck::Unknown(String::new()));
            let of = |name: &str| {
                let of = |c: &&Check| c.name == name && c.host.as_ref() == Some(host);
                all.iter().find(of).map(|c| c.detail.clone())
            };
            ["API server ready", "static pods placed"].map(of)
        };
        let refused = || Some("connection refused".to_owned());
        assert_eq!(said(|_| ()), [refused(), None]);
        let api = |found: &mut HostFacts| drop(found.files.remove(API_MANIFEST));
        let detail = "connection refused; its manifest /etc/kubernetes/manifests/kube-apiserver.yaml is missing";
        assert_eq!(said(api), [Some(detail.to_owned()), None]);
        let scheduler = |found: &mut HostFacts| drop(found.files.remove(&format!("{MANIFESTS}{SCHEDULER}.yaml")));
        let path = "/etc/kubernetes/manifests/kube-scheduler.yaml";
        let detail = format!("missing: {path}; the kubelet runs only what has a manifest");
        assert_eq!(said(scheduler), [refused(), Some(detail)]);
        assert_eq!(said(|found| found.files.clear()), [refused(), None], "nothing of hactl was found");
    }

    #[test]
    fn a_pod_that_finds_no_node_while_one_is_cordoned_waits_and_one_without_a_reason_is_not_ready() {
        let mut desired = crate::model::desired::sample(3);
        desired.hosts[2].roles = vec![Role::Worker];
        let name = |at: usize| desired.hosts[at].name.to_string();
        let pod = |name: &str, node: String| PodFact {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            ready: !node.is_empty(),
            node,
            phase: String::new(),
            reason: "Unschedulable".to_owned(),
            overdue_s: 0,
        };
        let waiting = |cordoned: usize, pods: Vec<PodFact>| {
            let node = |at: usize| {
                let spec = json!({"unschedulable": at == cordoned});
                NodeFact::of(&json!({"metadata": {"name": name(at)}, "spec": spec})).unwrap()
            };
            let api = ApiFact { nodes: (0..3).map(node).collect(), pods, ..ApiFact::default() };
            waiting_for_uncordon(&desired, &api).len()
        };
        let stands = || pod("control-plane-quorum-a", name(1));
        let pending = || pod("control-plane-quorum-b", String::new());
        assert_eq!(waiting(0, vec![stands(), pending()]), 1);
        assert_eq!(waiting(0, vec![stands(), pending(), pending()]), 1, "one of them is not of the drained host");
        assert_eq!(waiting(1, vec![stands(), pending()]), 0, "the pod of the cordoned host is there");
        assert_eq!(waiting(2, vec![stands(), pending()]), 0, "a worker is cordoned");
        let (one, other) = (pod("coredns-a", name(0)), pod("coredns-c", name(1)));
        let homeless = || pod("coredns-b", String::new());
        assert_eq!(waiting(2, vec![one.clone(), other.clone(), homeless()]), 1, "each other Node has one");
        assert_eq!(waiting(2, vec![one.clone(), other.clone(), homeless(), homeless()]), 1, "one too many");
        assert_eq!(waiting(2, vec![one.clone(), homeless()]), 0, "another Node has none");
        assert_eq!(waiting(0, vec![one, other, homeless()]), 0, "the cordoned Node has one, and another Node has none");
        assert_eq!(waiting(2, vec![stands(), homeless()]), 0, "no other one serves");
    }

    #[test]
    fn a_daemon_set_is_rolling_until_every_node_has_the_new_version_and_its_controller_has_seen_it() {
        let set = |generation: i64, seen: i64, now: i64| {
            json!({"kind": "DaemonSet", "metadata": {"name": "flannel", "generation": generation},
                "status": {"observedGeneration": seen, "updatedNumberScheduled": now, "desiredNumberScheduled": 4}})
        };
        assert_eq!(says(set(2, 2, 4)), Vec::<String>::new());
        assert_eq!(says(set(2, 2, 3)), ["flannel: 3 of 4 are of the new version"]);
        let refused = says_why(set(2, 2, 3), "failed quota: q");
        assert_eq!(refused, ["flannel: 3 of 4 are of the new version; its pods are not created: failed quota: q"]);
        assert_eq!(says_why(set(2, 2, 4), "an older reason"), Vec::<String>::new());
        assert_eq!(says(set(3, 2, 4)).len(), 1, "the controller has not observed the newest version yet");
        assert_eq!(says(json!({"kind": "Deployment", "spec": {"replicas": 2}})), Vec::<String>::new());
        let replicas = json!({"kind": "Deployment", "metadata": {"name": "coredns"}, "spec": {"replicas": 2}, "status": {"updatedReplicas": 1}});
        assert_eq!(says(replicas), ["coredns: 1 of 2 are of the new version"]);
    }
}
