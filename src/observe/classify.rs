//! Derives the state of etcd from the answers of all hosts. An unreachable host must never count as "no cluster yet".

use super::Answers;
use super::claims::{KnownCluster, hear, named};
use crate::model::desired::{Desired, Role};
use crate::model::facts::{DiskFact, Etcd, EtcdFact, Evidence, HostFacts, newest};
use crate::model::names::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Combines the answers about etcd, and removes from them the claims that are not believed.
pub fn classify(desired: &Desired, known: &KnownCluster, hosts: &mut Answers) -> Etcd {
    if let Some(received) = hear(desired, known, hosts) {
        return received;
    }
    let hosts = &*hosts;
    let mut facts: BTreeMap<&HostName, &EtcdFact> = BTreeMap::new();
    let mut unreachable = Vec::new();
    for host in desired.with(Role::Etcd) {
        match hosts.get(&host.name).and_then(|answer| answer.as_ref().ok()?.etcd.as_ref()) {
            Some(etcd) => drop(facts.insert(&host.name, etcd)),
            None => unreachable.push(&host.name),
        }
    }
    let stamped = hosts.values().filter_map(|f| f.as_ref().ok()).any(|f| f.cluster_id.is_some());
    let touched = facts.values().any(|e| e.data || e.token.is_some() || e.bootstrapped.is_some() || e.view.is_some());
    if !touched && unreachable.is_empty() {
        // Stamps alone come from a run that ended before it started etcd.
        return Etcd::Uninitialized;
    }
    if !touched && !stamped {
        // The planner refuses to bootstrap while an etcd host is unreachable.
        return Etcd::Uninitialized;
    }
    let unborn = facts.values().all(|e| e.bootstrapped.is_none() && (!e.data || e.token.is_some()));
    let tokens: BTreeSet<&String> = facts.values().filter_map(|e| e.token.as_ref()).collect();
    if let (true, true, 1, Some(token)) = (unreachable.is_empty(), unborn, tokens.len(), tokens.first()) {
        return Etcd::Bootstrapping { token: (*token).clone() };
    }
    Etcd::NoQuorum(evidence(desired, hosts))
}

/// The state of each etcd host, in words.
pub(super) fn evidence(desired: &Desired, hosts: &Answers) -> Vec<Evidence> {
    let newest =
        newest(desired.with(Role::Etcd).filter_map(|h| hosts.get(&h.name)?.as_ref().ok())).map(DiskFact::reach);
    let of = |host: &crate::model::desired::Host| {
        let (what, has_data, reachable) = match hosts.get(&host.name) {
            Some(Ok(facts)) => match &facts.etcd {
                Some(etcd) => (words(facts, etcd, newest), etcd.data, true),
                None if facts.doubts.is_empty() => ("was not asked about etcd".to_owned(), false, true),
                None => (facts.doubts.join("; "), false, true),
            },
            Some(Err(reason)) => (format!("did not answer: {}", reason.why), false, false),
            None => ("was not asked".to_owned(), false, false),
        };
        Evidence { host: host.name.clone(), what, has_data, reachable }
    };
    desired.with(Role::Etcd).map(of).collect()
}

fn words(facts: &HostFacts, etcd: &EtcdFact, newest: Option<(u64, u64)>) -> String {
    let data = match (&etcd.disk, etcd.data) {
        (Some(disk), _) => far(disk, facts.now_ms, newest),
        (None, true) => "holds data".to_owned(),
        (None, false) if facts.misses_data() => {
            "holds no data, although a member ran there; is a volume not mounted?".to_owned()
        }
        (None, false) => "holds no data".to_owned(),
    };
    match (&etcd.view, &etcd.trouble) {
        (Some(view), _) if view.linearizable => format!("{data}; its member reports a quorum: {}", named(view)),
        (Some(_), _) => format!("{data}; its member runs without quorum"),
        (None, Some(trouble)) => format!("{data}; {trouble}"),
        (None, None) => format!("{data}; no member runs"),
    }
}

/// Where the data ends, and whether the data of another host that answers ends later.
fn far(disk: &DiskFact, now_ms: i64, newest: Option<(u64, u64)>) -> String {
    let rank = if newest == Some(disk.reach()) { "as new as any that answers" } else { "OLDER than another" };
    let revision = disk.revision.map_or_else(|| "its store cannot be read".to_owned(), |r| format!("revision {r}"));
    let age = u64::try_from(now_ms.saturating_sub(disk.written_ms)).unwrap_or(0) / 1000;
    let ago = match age {
        0..120 => format!("{age} s"),
        120..7200 => format!("{} min", age / 60),
        _ => format!("{} h", age / 3600),
    };
    let how =
        format!("data up to raft term {}, index {} ({revision}), written {ago} ago, {rank}", disk.term, disk.index);
    std::iter::once(how).chain(disk.flaws.iter().cloned()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::Unreachable;

    fn shape(one: &EtcdFact, two: Option<&EtcdFact>) -> Etcd {
        let desired = crate::model::desired::sample(2);
        let ok = |e: &EtcdFact| Ok(HostFacts { etcd: Some(e.clone()), ..HostFacts::default() });
        let unreachable = || Err(Unreachable { why: "no route".to_owned(), hint: None });
        let second = two.map_or_else(unreachable, ok);
        let names: Vec<HostName> = desired.hosts.iter().map(|h| h.name.clone()).collect();
        classify(
            &desired,
            &KnownCluster::default(),
            &mut [(names[0].clone(), ok(one)), (names[1].clone(), second)].into(),
        )
    }

    #[test]
    fn blank_hosts_that_all_answered_are_uninitialized() {
        assert_eq!(shape(&EtcdFact::default(), Some(&EtcdFact::default())), Etcd::Uninitialized);
    }

    #[test]
    fn a_wiped_and_an_unreachable_host_beside_a_bootstrapped_one_mean_no_quorum_and_not_uninitialized() {
        let sealed = EtcdFact { data: true, bootstrapped: Some("c1".to_owned()), ..EtcdFact::default() };
        assert!(matches!(shape(&sealed, None), Etcd::NoQuorum(_)));
        assert!(matches!(shape(&sealed, Some(&EtcdFact::default())), Etcd::NoQuorum(_)));
    }

    #[test]
    fn an_interrupted_bootstrap_is_bootstrapping_while_all_answer_and_none_is_marked() {
        let begun = EtcdFact { data: true, token: Some("t".to_owned()), ..EtcdFact::default() };
        assert_eq!(shape(&begun, Some(&EtcdFact::default())), Etcd::Bootstrapping { token: "t".to_owned() });
        assert!(matches!(shape(&begun, None), Etcd::NoQuorum(_)));
        let other = EtcdFact { token: Some("u".to_owned()), ..EtcdFact::default() };
        assert!(matches!(shape(&begun, Some(&other)), Etcd::NoQuorum(_)), "two tokens are two bootstraps");
        let bare = EtcdFact { data: true, ..EtcdFact::default() };
        assert!(matches!(shape(&begun, Some(&bare)), Etcd::NoQuorum(_)), "data of unknown origin must not be joined");
    }

    #[test]
    fn the_host_with_the_furthest_log_and_not_the_furthest_store_is_reported_without_a_quorum() {
        let desired = crate::model::desired::sample(3);
        let disk = |term, index, revision| DiskFact {
            cluster: "c1".to_owned(),
            member: 1,
            term,
            index,
            commit: index,
            revision: Some(revision),
            applied: Some(index),
            members: None,
            db_bytes: 20_480,
            written_ms: 1_000_000,
            damaged: false,
            flaws: vec![],
        };
        let host = |disk: DiskFact| {
            let etcd =
                EtcdFact { data: true, bootstrapped: Some("c1".to_owned()), disk: Some(disk), ..EtcdFact::default() };
            Ok(HostFacts { etcd: Some(etcd), now_ms: 1_000_000 + 300_000, ..HostFacts::default() })
        };
        let unreachable = || Err(Unreachable { why: "no route".to_owned(), hint: None });
        let names: Vec<HostName> = desired.hosts.iter().map(|h| h.name.clone()).collect();
        let answers = [
            (names[0].clone(), host(disk(4, 120, 99))),
            (names[1].clone(), host(disk(5, 90, 80))),
            (names[2].clone(), unreachable()),
        ];
        let Etcd::NoQuorum(evidence) = classify(&desired, &KnownCluster::default(), &mut answers.into()) else {
            panic!("there is no quorum")
        };
        assert_eq!(
            evidence[0].what,
            "data up to raft term 4, index 120 (revision 99), written 5 min ago, OLDER than another; no member runs"
        );
        assert!(evidence[1].what.contains("term 5, index 90 (revision 80), written 5 min ago, as new as any"));
    }
}
