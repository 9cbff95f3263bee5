//! What the hosts say together about etcd. Silence must never read as "no cluster yet".

use crate::model::desired::{Desired, Role};
use crate::model::facts::{Etcd, EtcdFact, Evidence, HostFacts, Member, Members, Silence};
use crate::model::names::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Puts the etcd hosts' answers together.
pub fn classify(desired: &Desired, hosts: &BTreeMap<HostName, Result<HostFacts, Silence>>) -> Etcd {
    let mut facts: BTreeMap<&HostName, &EtcdFact> = BTreeMap::new();
    let mut silent = Vec::new();
    for host in desired.with(Role::Etcd) {
        match hosts.get(&host.name) {
            Some(Ok(answer)) => match &answer.etcd {
                Some(etcd) => drop(facts.insert(&host.name, etcd)),
                None => silent.push(&host.name),
            },
            _ => silent.push(&host.name),
        }
    }
    if let Some(members) = speaks(desired, &facts) {
        return Etcd::Speaks(members);
    }
    let stamped = hosts.values().filter_map(|f| f.as_ref().ok()).any(|f| f.stamp.is_some());
    let touched = facts.values().any(|e| e.data || e.token.is_some() || e.born.is_some() || e.view.is_some());
    if !touched && silent.is_empty() {
        // Stamps alone are the trace of a run that ended before etcd's turn came.
        return Etcd::NeverBorn;
    }
    if !touched && !stamped {
        // The planner refuses a genesis while an etcd host is silent.
        return Etcd::NeverBorn;
    }
    let unborn = facts.values().all(|e| e.born.is_none() && (!e.data || e.token.is_some()));
    let tokens: BTreeSet<&String> = facts.values().filter_map(|e| e.token.as_ref()).collect();
    if let (true, true, 1, Some(token)) = (silent.is_empty(), unborn, tokens.len(), tokens.first()) {
        return Etcd::Founding { token: (*token).clone() };
    }
    Etcd::Silent(evidence(desired, hosts))
}

/// The member list, from a member with a quorum behind it.
fn speaks(desired: &Desired, facts: &BTreeMap<&HostName, &EtcdFact>) -> Option<Members> {
    let views = || facts.iter().filter_map(|(host, e)| e.view.as_ref().map(|v| (*host, v)));
    let (_, view) = views().filter(|(_, v)| v.linearizable).max_by_key(|(_, v)| (v.term, v.applied))?;
    let healthy: BTreeSet<u64> = views().filter(|(_, v)| v.linearizable).map(|(_, v)| v.member).collect();
    // A learner answers no linearizable read of its own; it is healthy when it answers at all.
    let alive: BTreeSet<u64> = views().map(|(_, v)| v.member).collect();
    let known = |url: &crate::model::names::PeerUrl| desired.with(Role::Etcd).any(|h| &h.peer_url() == url);
    let list = view.members.iter().map(|(id, name, url, learner)| {
        // A member that no host of the inventory runs cannot be asked: it counts as unhealthy, the safe side.
        let healthy = known(url) && (healthy.contains(id) || (*learner && alive.contains(id)));
        (url.clone(), Member { id: *id, name: name.clone(), learner: *learner, healthy })
    });
    Some(Members(list.collect()))
}

fn evidence(desired: &Desired, hosts: &BTreeMap<HostName, Result<HostFacts, Silence>>) -> Vec<Evidence> {
    let of = |host: &crate::model::desired::Host| {
        let (what, has_data, reachable) = match hosts.get(&host.name) {
            Some(Ok(facts)) => match &facts.etcd {
                Some(etcd) => (words(etcd), etcd.data, true),
                None => ("was not asked about etcd".to_owned(), false, true),
            },
            Some(Err(silence)) => (format!("did not answer: {}", silence.why), false, false),
            None => ("was not asked".to_owned(), false, false),
        };
        Evidence { host: host.name.clone(), what, has_data, reachable }
    };
    desired.with(Role::Etcd).map(of).collect()
}

fn words(etcd: &EtcdFact) -> String {
    let data = if etcd.data { "holds data" } else { "holds no data" };
    match (&etcd.view, &etcd.trouble) {
        (Some(view), _) => format!("{data}; its member runs at revision {}, without a quorum", view.revision),
        (None, Some(trouble)) => format!("{data}; {trouble}"),
        (None, None) => format!("{data}; no member runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(one: &EtcdFact, two: Option<&EtcdFact>) -> Etcd {
        let desired = crate::model::desired::sample(2);
        let ok = |e: &EtcdFact| Ok(HostFacts { etcd: Some(e.clone()), ..HostFacts::default() });
        let silent = || Err(Silence { why: "no route".to_owned(), hint: None });
        let second = two.map_or_else(silent, ok);
        let names: Vec<HostName> = desired.hosts.iter().map(|h| h.name.clone()).collect();
        classify(&desired, &[(names[0].clone(), ok(one)), (names[1].clone(), second)].into())
    }

    #[test]
    fn blank_hosts_that_all_answered_were_never_born() {
        assert_eq!(shape(&EtcdFact::default(), Some(&EtcdFact::default())), Etcd::NeverBorn);
    }

    #[test]
    fn a_wiped_host_beside_a_silent_one_with_a_seal_elsewhere_is_silence_not_birth() {
        let sealed = EtcdFact { data: true, born: Some("c1".to_owned()), ..EtcdFact::default() };
        assert!(matches!(shape(&sealed, None), Etcd::Silent(_)));
        assert!(matches!(shape(&sealed, Some(&EtcdFact::default())), Etcd::Silent(_)));
    }

    #[test]
    fn an_interrupted_genesis_is_founding_while_all_answer_and_none_is_sealed() {
        let begun = EtcdFact { data: true, token: Some("t".to_owned()), ..EtcdFact::default() };
        assert_eq!(shape(&begun, Some(&EtcdFact::default())), Etcd::Founding { token: "t".to_owned() });
        assert!(matches!(shape(&begun, None), Etcd::Silent(_)));
        let other = EtcdFact { token: Some("u".to_owned()), ..EtcdFact::default() };
        assert!(matches!(shape(&begun, Some(&other)), Etcd::Silent(_)), "two tokens are two geneses");
        let bare = EtcdFact { data: true, ..EtcdFact::default() };
        assert!(matches!(shape(&begun, Some(&bare)), Etcd::Silent(_)), "data of unknown origin is not ours to join");
    }
}
