//! Observation: every host is queried once, all in parallel, and the answers become [`Facts`].
//!
//! In: connected machines and the queries for each. Out: facts, in which an unreachable host stays unknown.

mod bundles;
mod certificates;
mod checks;
mod claims;
mod classify;
mod dns;
mod drift;
mod drills;
mod hash;
mod healing;
mod hosting;
mod hung;
mod name_servers;
mod peer_copies;
mod peers;
pub mod preflight;
mod queries;
mod stragglers;
mod tunnels;
mod vip;

pub use bundles::BUNDLES;
pub use certificates::CERTIFICATES;
pub use checks::{BELIEVED, checks};
pub use claims::KnownCluster;
pub use classify::classify;
pub use hash::{HashCheck, hashes};
pub use healing::{GUARD_CHECKS, of_guards};
pub use peer_copies::COPIES;
pub use queries::{CrashLoopPolicy, Queries, QueryScope};
pub use stragglers::{Stragglers, TO_ANSWER, TO_CONNECT, Wait, carries, decides};
pub use vip::may_be_failover;

use crate::model::desired::{Desired, Role};
use crate::model::facts::{ClusterId, EtcdFact, Facts, HostFacts, UnitFact, Unreachable};
use crate::model::names::HostName;
use crate::model::target::Addon;
use crate::protocol::{Op, Reply};
use crate::transport::{Agents, Payload};
use futures::StreamExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of an observation. The worst case is hashing every component again on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The answers of the hosts.
pub type Answers = BTreeMap<HostName, Result<HostFacts, Unreachable>>;

/// Queries every connected host, `at_once` of them at a time; hosts in `unreachable` could not be connected to. With
/// [`Wait::ForMost`], hosts that take much longer than all others count as unreachable; the second value shows whether
/// there were any.
pub async fn round(
    desired: &Desired,
    machines: &Agents,
    unreachable: &BTreeMap<HostName, Unreachable>,
    queries: &Queries,
    at_once: usize,
    wait: Wait,
) -> (Answers, bool) {
    let one = async |host: &HostName| {
        let begun = Instant::now();
        let Some(machine) = machines.get(host) else {
            let unknown = Unreachable { why: "there is no connection to it".to_owned(), hint: None };
            return (host.clone(), Err(unreachable.get(host).cloned().unwrap_or(unknown)), begun.elapsed());
        };
        let ask = queries.of(host);
        let asks_api = ask.api.is_some();
        let answer = match machine.call(Op::Observe(Box::new(ask)), Payload::None, TIMEOUT, &|_| {}).await {
            Ok(Reply::Facts(mut facts)) => {
                // A host reports on the API only if it was asked about it.
                facts.api = facts.api.filter(|_| asks_api);
                Ok(*facts)
            }
            Ok(_) => Err(Unreachable { why: "it sent an unexpected reply".to_owned(), hint: None }),
            Err(error) => Err(Unreachable { why: error.to_string(), hint: None }),
        };
        (host.clone(), answer, begun.elapsed())
    };
    let all: Vec<_> = desired.entered().map(|h| one(&h.name)).collect();
    let mut asked = futures::stream::iter(all).buffer_unordered(at_once.max(1));
    let mut left: BTreeSet<&HostName> = desired.entered().map(|h| &h.name).collect();
    let (mut answers, mut stragglers) = (Answers::new(), Stragglers::start(TO_ANSWER));
    loop {
        let needed = |host: &&HostName| desired.host(host).is_some_and(decides);
        let may_go = wait != Wait::ForAll && !left.iter().any(needed) && answers.values().any(Result::is_ok);
        tokio::select! {
            biased;
            answer = asked.next() => {
                let Some((host, answer, took)) = answer else { break };
                if answer.is_ok() {
                    stragglers.through(took);
                }
                left.remove(&host);
                answers.insert(host, answer);
            }
            () = tokio::time::sleep_until(stragglers.until()), if may_go => break,
        }
    }
    // Dropping a future also ends its query on the host.
    drop(asked);
    let hurried = !left.is_empty();
    for host in left {
        let why = "it takes longer to answer than all others; it is asked again when they are done".to_owned();
        answers.insert(host.clone(), Err(Unreachable { why, hint: None }));
    }
    (answers, hurried)
}

/// The hosts that should have no etcd member and show no trace of one: their reports on etcd are dropped.
pub fn without_members(desired: &Desired, answers: &mut Answers) -> Vec<HostName> {
    let mut without = Vec::new();
    for host in desired.entered().filter(|host| !host.is(Role::Etcd)) {
        let facts = answers.get_mut(&host.name).and_then(|answer| answer.as_mut().ok());
        // Data counts only with hactl's own marker: another etcd on the host is none of hactl's concern.
        let marked = |etcd: &EtcdFact| etcd.data && (etcd.bootstrapped.is_some() || etcd.token.is_some());
        let has = |facts: &HostFacts| facts.etcd.as_ref().is_some_and(|etcd| etcd.view.is_some() || marked(etcd));
        if facts.as_deref().is_some_and(has) {
            continue;
        }
        if let Some(facts) = facts {
            facts.etcd = None;
            // One that stands by may have had a member, and has its snapshots.
            facts.bundles = facts.bundles.take().filter(|_| host.standby);
        }
        without.push(host.name.clone());
    }
    without
}

/// Hosts without etcd and the API that report that they belong to another cluster, or that they have later keys than
/// this state: they are left out. If a host with etcd or the API reports that, the planner refuses the run.
pub fn set_apart(desired: &Desired, ours: &ClusterId, answers: &mut Answers) {
    for host in desired.hosts.iter().filter(|host| !carries(host)) {
        let Some(answer) = answers.get_mut(&host.name) else { continue };
        let Some(theirs) = answer.as_ref().ok().and_then(|facts| facts.cluster_id.as_ref()) else { continue };
        let why = if !theirs.same_cluster(ours) {
            format!("it reports that it belongs to another cluster ({})", theirs.cluster)
        } else if theirs.stages > ours.stages {
            "it reports keys that are newer than those in this state, but no host with etcd or the API does".to_owned()
        } else {
            continue;
        };
        *answer = Err(Unreachable { why, hint: None });
    }
}

/// Compares the Nodes in the API with the kubelets on the hosts: the status of a Node counts only if it comes from the
/// kubelet that runs now.
fn by_their_kubelets(hosts: &mut Answers) {
    let unit = crate::plan::kubelet_unit();
    let kubelet = |facts: &HostFacts| Some((facts.units.get(&unit)?.clone(), facts.now_ms));
    let kubelets = hosts.iter().filter_map(|(host, facts)| Some((host.to_string(), kubelet(facts.as_ref().ok()?)?)));
    let kubelets: BTreeMap<String, (UnitFact, i64)> = kubelets.collect();
    let apis = hosts.values_mut().filter_map(|facts| facts.as_mut().ok()?.api.as_mut());
    for node in apis.flat_map(|api| &mut api.nodes) {
        if let Some((kubelet, now_ms)) = kubelets.get(&node.name) {
            *node = node.clone().by(kubelet, *now_ms);
        }
    }
}

/// Combines the answers.
pub fn assemble(desired: &Desired, known: &KnownCluster, mut hosts: Answers, addons: &[Addon]) -> Facts {
    by_their_kubelets(&mut hosts);
    let etcd = classify(desired, known, &mut hosts);
    let leaves = |name: &HostName| desired.leaver(name).is_some();
    let leaving: Answers = hosts.extract_if(.., |name, _| leaves(name)).collect();
    let (drift, stale) = (drift::drift(addons, &hosts), drift::stale(addons, &hosts));
    Facts { hosts, leaving, etcd, drift, stale, noted: Vec::new() }
}
