//! Checks that pods can resolve names, and where to search when they cannot.
//!
//! In: the result of a DNS query that each host made from a pod's network, and the states of the pods of CoreDNS,
//! kube-proxy and flannel. Out: checks. A hint names the observed cause, such as pods that are not Ready or a host that
//! drops forwarded packets. Without one, it lists possible causes.

use crate::model::action::counted;
use crate::model::check::{Check, Outcome, check as named};
use crate::model::desired::Desired;
use crate::model::facts::{ApiFact, DROPS, DnsFact, Facts, PodFact};
use crate::model::names::HostName;

const NAME: &str = "DNS answers inside pods";
/// The pods that resolving a name involves: CoreDNS answers, kube-proxy routes to it, flannel connects the hosts.
const PARTS: [&str; 3] = ["coredns-", "kube-proxy-", "flannel-"];
/// The most pods that a hint names.
const MOST: usize = 3;

/// The checks. With `pod_cidr_mismatch`, pods have wrong addresses; that is the cause to fix, so there is no hint.
pub(super) fn check(desired: &Desired, facts: &Facts, api: &ApiFact, pod_cidr_mismatch: bool) -> Vec<Check> {
    let one = |host: Option<&HostName>, outcome, detail: String, hint: Option<String>| {
        named(NAME, host, outcome, detail, hint.as_deref())
    };
    let stated: Vec<(&HostName, &DnsFact)> =
        facts.hosts.iter().filter_map(|(host, said)| Some((host, said.as_ref().ok()?.dns.as_ref()?))).collect();
    let asked = stated.iter().filter(|(_, dns)| **dns == DnsFact::Answered).count();
    if !desired.network.is_whole() && asked == 0 {
        return vec![one(None, Outcome::Skip, "needs your network plugin".to_owned(), None)];
    }
    let failed = |(host, dns): (&HostName, &DnsFact)| match dns {
        DnsFact::Failed(why) if desired.network.is_whole() => {
            let hint = (!pod_cidr_mismatch).then(|| hint(desired, api, host, why, asked > 0));
            Some(one(Some(host), Outcome::Fail, why.clone(), hint))
        }
        _ => None,
    };
    let failures: Vec<Check> = stated.into_iter().filter_map(failed).collect();
    if !failures.is_empty() {
        return failures;
    }
    let outcome = if asked > 0 { Outcome::Pass } else { Outcome::Fail };
    vec![one(None, outcome, format!("queried from pods on {}", counted(asked, "host")), None)]
}

/// The observed cause and its fix, or possible causes.
fn hint(desired: &Desired, api: &ApiFact, host: &HostName, why: &str, elsewhere: bool) -> String {
    let concerns = |pod: &&PodFact| {
        let part = PARTS.iter().find(|part| pod.name.starts_with(**part));
        // CoreDNS may run on any host; kube-proxy and flannel are those of this host.
        part.is_some_and(|part| *part == PARTS[0] || pod.node == host.as_str())
    };
    let unready: Vec<&PodFact> = api.pods.iter().filter(concerns).filter(|pod| !pod.ready).collect();
    if let Some(first) = unready.first() {
        let said = |pod: &&PodFact| {
            let reason = if pod.reason.is_empty() { &pod.phase } else { &pod.reason };
            format!("{} on {} ({reason})", pod.name, if pod.node.is_empty() { "no host" } else { &pod.node })
        };
        let unready: Vec<String> = unready.iter().take(MOST).map(said).collect();
        let (unready, space, pod) = (unready.join(", "), &first.namespace, &first.name);
        return format!("not Ready: {unready}; `hactl kubectl -- -n {space} describe pod {pod}` says why");
    }
    if why.contains(DROPS) {
        let pods = desired.network.pods;
        return format!(
            "allow forwarding of pods' packets on {host}: `iptables -P FORWARD ACCEPT`, or rules for {pods} in its \
             FORWARD chain"
        );
    }
    let where_else = if elsewhere { "other hosts answer" } else { "no host answers" };
    format!(
        "CoreDNS is Ready, and so are kube-proxy and flannel there; {where_else}. Possible: a slow machine (run this \
         again), 8472/udp closed between hosts, a stale neighbour in `bridge fdb show dev flannel.1`, or a network \
         card that computes wrong checksums (to test: `ethtool -K flannel.1 tx-checksum-ip-generic off`)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::Role;
    use crate::model::facts::HostFacts;

    #[test]
    fn dns_is_asked_on_workers_too_for_all_pods_may_be_there() {
        let mut desired = crate::model::desired::sample(2);
        desired.hosts[1].roles = vec![Role::Worker];
        let says = |worker: Option<DnsFact>| {
            let one = HostFacts { api: Some(ApiFact::default()), ..HostFacts::default() };
            let two = HostFacts { dns: worker, ..HostFacts::default() };
            let hosts = desired.hosts.iter().map(|h| h.name.clone()).zip([Ok(one), Ok(two)]).collect();
            let list = check(&desired, &Facts::of(hosts), &ApiFact::default(), false);
            list.into_iter().map(|c| (c.host.is_some(), c.outcome, c.detail)).collect::<Vec<_>>()
        };
        let on = |hosts: &str| format!("queried from pods on {hosts}");
        assert_eq!(says(Some(DnsFact::Answered)), [(false, Outcome::Pass, on("1 host"))]);
        assert_eq!(says(None), [(false, Outcome::Fail, on("0 hosts"))]);
        assert_eq!(says(Some(DnsFact::Failed("no".into()))), [(true, Outcome::Fail, "no".to_owned())]);
    }

    fn pod(name: &str, node: &str, reason: &str) -> PodFact {
        PodFact {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
            phase: "Running".to_owned(),
            ready: reason.is_empty(),
            reason: reason.to_owned(),
            overdue_s: 0,
        }
    }

    #[test]
    fn a_hint_names_the_observation_and_without_one_offload_is_a_possible_cause() {
        let desired = crate::model::desired::sample(2);
        let (one, two) = (&desired.hosts[0].name, &desired.hosts[1].name);
        let hint = |pods: Vec<PodFact>, why: &str| {
            let api = ApiFact { pods, ..ApiFact::default() };
            super::hint(&desired, &api, one, why, true)
        };
        let image = hint(vec![pod("coredns-1", two.as_str(), "ImagePullBackOff")], "no answer");
        assert!(image.contains("coredns-1") && image.contains("ImagePullBackOff"), "{image}");
        let own = hint(vec![pod("flannel-x", one.as_str(), "CrashLoopBackOff")], "no answer");
        assert!(own.contains("flannel-x") && !own.contains("ethtool"), "{own}");
        let drops = hint(vec![], &format!("no answer; {DROPS}"));
        assert!(drops.contains("FORWARD") && !drops.contains("ethtool"), "{drops}");
        for others in [
            vec![],
            vec![pod("flannel-y", two.as_str(), "CrashLoopBackOff")],
            vec![pod("web-1", one.as_str(), "Error")],
        ] {
            let possible = hint(others, "no answer");
            assert!(possible.contains("Possible:") && possible.contains("ethtool"), "{possible}");
        }
    }
}
