//! Hosts that stand by for etcd: each takes over the vote of an etcd host that is gone. Everything else of a control
//! plane works on several hosts at the same time, so nothing else needs to stand by.
//!
//! In: the desired state, and what hosts report about etcd. Out: which hosts may have a vote, and which one has it
//! instead of another. The member list itself tells that; it is recorded nowhere else.

use super::desired::{Desired, Host, Role};
use super::facts::{EtcdFact, EtcdView};
use super::healing::Policy;
use super::names::{HostName, PeerUrl};
use std::collections::{BTreeMap, BTreeSet};

/// A vote that a standby has taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// The host whose vote it was.
    pub from: HostName,
    /// The standby.
    pub by: HostName,
}

/// The voters by the member list of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Voters {
    /// Those that the policy names.
    pub hosts: BTreeSet<HostName>,
    /// How many others are listed.
    pub strangers: usize,
}

impl Host {
    /// Whether an etcd member runs here, or runs here once another one is gone.
    pub fn may_vote(&self) -> bool {
        self.is(Role::Etcd) || self.standby
    }
}

impl Voters {
    /// By a list of peer URLs.
    pub fn of(list: &BTreeSet<PeerUrl>, policy: &Policy) -> Self {
        let is_listed = |peer: &PeerUrl| list.contains(peer);
        let listed = policy.guards.iter().filter(|guard| is_listed(&PeerUrl::of(guard.address)));
        let hosts: BTreeSet<_> = listed.map(|guard| guard.name.clone()).collect();
        Self { strangers: list.len() - hosts.len(), hosts }
    }
}

impl Desired {
    /// The hosts of which some have a vote, in the inventory's order.
    pub fn may_vote(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.may_vote())
    }

    /// The same with the vote of one host on another one, and the former as its standby.
    #[must_use]
    pub fn with_vote(mut self, taken: &TakenOver) -> Self {
        for host in &mut self.hosts {
            if host.name == taken.from {
                host.roles.retain(|role| *role != Role::Etcd);
                host.standby = true;
            } else if host.name == taken.by {
                host.roles.retain(|role| *role != Role::Spare);
                host.roles.push(Role::Etcd);
                host.standby = false;
            }
        }
        self
    }

    /// The votes that standbys have taken over, by the member list that these hosts report.
    pub fn taken_over(&self, reports: &BTreeMap<HostName, EtcdFact>) -> Vec<TakenOver> {
        let Some(list) = listed(reports) else { return vec![] };
        let is_listed = |host: &&Host| list.contains(&&host.peer_url());
        let from = self.with(Role::Etcd).filter(|host| !is_listed(host));
        let by = self.hosts.iter().filter(|host| host.standby).filter(is_listed);
        from.zip(by).map(|(from, by)| TakenOver { from: from.name.clone(), by: by.name.clone() }).collect()
    }
}

type Listed = Vec<(u64, String, PeerUrl, bool)>;

/// The members by a majority of their voters; if no member has a quorum, by the newest data.
fn listed(reports: &BTreeMap<HostName, EtcdFact>) -> Option<BTreeSet<&PeerUrl>> {
    let living = || reports.values().filter_map(|etcd| etcd.view.as_ref()).filter(|view| view.linearizable);
    let voters = |list: &Listed| list.iter().filter(|(.., learner)| !learner).count();
    let says = |view: &EtcdView, list: &Listed| {
        &view.members == list && list.iter().any(|(id, .., learner)| *id == view.member && !learner)
    };
    let by_majority = |list: &&Listed| 2 * living().filter(|view| says(view, list)).count() > voters(list);
    let newest = || {
        let disks = reports.values().filter(|etcd| etcd.data).filter_map(|etcd| etcd.disk.as_ref());
        disks.filter(|disk| disk.members.is_some()).max_by_key(|disk| disk.reach())?.members.as_ref()
    };
    let list = match living().next() {
        Some(_) => living().map(|view| &view.members).find(by_majority),
        None => newest(),
    };
    list.map(|list| list.iter().map(|(.., peer, _)| peer).collect())
}

#[cfg(test)]
mod tests {
    use super::super::desired::sample;
    use super::super::facts::DiskFact;
    use super::*;

    /// Three etcd hosts, and a fourth one that stands by.
    fn desired() -> Desired {
        let mut desired = sample(4);
        desired.hosts[3].roles = vec![Role::ControlPlane];
        desired.hosts[3].standby = true;
        desired
    }

    fn name(host: usize) -> HostName {
        format!("cp{host}").parse().unwrap()
    }

    fn members(desired: &Desired, hosts: &[usize]) -> Listed {
        let of = |host: &usize| (*host as u64, name(*host).to_string(), desired.hosts[host - 1].peer_url(), false);
        hosts.iter().map(of).collect()
    }

    fn lives(desired: &Desired, host: usize, hosts: &[usize]) -> EtcdFact {
        let view = EtcdView {
            member: host as u64,
            linearizable: true,
            members: members(desired, hosts),
            ..EtcdView::default()
        };
        EtcdFact { view: Some(view), data: true, ..EtcdFact::default() }
    }

    fn rests(desired: &Desired, index: u64, hosts: &[usize]) -> EtcdFact {
        let disk = DiskFact { index, members: Some(members(desired, hosts)), ..DiskFact::default() };
        EtcdFact { disk: Some(disk), data: true, ..EtcdFact::default() }
    }

    fn votes(desired: &Desired) -> Vec<&str> {
        desired.with(Role::Etcd).map(|host| host.name.as_str()).collect()
    }

    #[test]
    fn a_vote_is_taken_over_once_the_standby_is_listed_and_its_former_host_is_not() {
        let desired = desired();
        let taken = |reports: Vec<(usize, EtcdFact)>| {
            desired.taken_over(&reports.into_iter().map(|(host, etcd)| (name(host), etcd)).collect())
        };
        let live =
            |hosts: &[usize], list: &[usize]| hosts.iter().map(|host| (*host, lives(&desired, *host, list))).collect();
        assert_eq!(taken(vec![]), [], "nobody tells");
        assert_eq!(taken(live(&[1, 2, 3], &[1, 2, 3])), []);
        assert_eq!(taken(live(&[2, 3], &[2, 3])), [], "removed, and not replaced yet");
        assert_eq!(taken(live(&[2, 3, 4], &[1, 2, 3, 4])), [], "nobody lost a vote");
        let by_cp4 = [TakenOver { from: name(1), by: name(4) }];
        let now = || live(&[3, 4], &[2, 3, 4]);
        assert_eq!(taken(now()), by_cp4);
        let old = (1, rests(&desired, 900, &[1, 2, 3]));
        assert_eq!(taken([vec![old], now()].concat()), by_cp4, "data is older than a quorum");
        assert_eq!(taken(live(&[4], &[2, 3, 4])), [], "its word alone is no majority");
        assert_eq!(taken([live(&[2, 3], &[1, 2, 3]), live(&[4], &[3, 4])].concat()), [], "nor against one");
        let before = || (1, rests(&desired, 70, &[1, 2, 3]));
        assert_eq!(taken(vec![before(), (4, rests(&desired, 90, &[2, 3, 4]))]), by_cp4, "by the newest data");
        assert_eq!(taken(vec![before(), (2, rests(&desired, 60, &[2, 3, 4]))]), []);
    }

    #[test]
    fn a_vote_changes_places_and_comes_back() {
        let desired = desired();
        let there = desired.clone().with_vote(&TakenOver { from: name(1), by: name(4) });
        assert_eq!(votes(&there), ["cp2", "cp3", "cp4"]);
        assert_eq!(there.may_vote().count(), 4);
        let back = there.with_vote(&TakenOver { from: name(4), by: name(1) });
        assert_eq!(votes(&back), votes(&desired));
    }
}
