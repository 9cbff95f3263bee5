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

/// Members: id, name, peer URL, learner.
type Listed = Vec<(u64, String, PeerUrl, bool)>;

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
    fn vote(&mut self, votes: bool) {
        self.standby = !votes;
        self.roles.retain(|role| *role != Role::Etcd && *role != Role::Spare);
        if votes {
            self.roles.push(Role::Etcd);
        } else if self.roles.is_empty() {
            self.roles.push(Role::Spare);
        }
        self.roles.sort_unstable();
    }

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
                host.vote(false);
            } else if host.name == taken.by {
                host.vote(true);
            }
        }
        self
    }

    /// The same with the votes on the first hosts that may have one. It is the same wherever the votes are now: hosts
    /// that missed a move must not differ from the others.
    #[must_use]
    pub fn with_first_votes(mut self) -> Self {
        if self.hosts.iter().any(|host| host.standby) {
            let mut votes = self.with(Role::Etcd).count();
            for host in self.hosts.iter_mut().filter(|host| host.may_vote()) {
                host.vote(votes > 0);
                votes = votes.saturating_sub(1);
            }
        }
        self
    }

    /// The votes that standbys have taken over, by the member list that these hosts report. A learner counts only while
    /// the host whose vote it shall have does not answer: one that cannot join must not keep that host out.
    pub fn taken_over(&self, reports: &BTreeMap<HostName, EtcdFact>) -> Vec<TakenOver> {
        let Some(list) = self.listed(reports) else { return vec![] };
        let entry =
            |host: &Host| list.iter().find(|(.., peer, _)| *peer == host.peer_url()).map(|(.., learner)| *learner);
        let answers = |host: &&Host| reports.contains_key(&host.name);
        let mut from: Vec<&Host> = self.with(Role::Etcd).filter(|host| entry(host).is_none()).collect();
        // The one that is gone lost its vote, and not one that is just added again.
        from.sort_by_key(answers);
        let mut by: Vec<&Host> = self.hosts.iter().filter(|host| host.standby && entry(host).is_some()).collect();
        by.sort_by_key(|host| entry(host));
        let pairs = from.into_iter().zip(by);
        let pairs = pairs.filter(|(from, by)| entry(by) == Some(false) || !answers(from));
        pairs.map(|(from, by)| TakenOver { from: from.name.clone(), by: by.name.clone() }).collect()
    }

    /// The members, if a majority of their voters reports them from their own hosts and none with a quorum reports
    /// others. If no member has a quorum, by the newest data: revisions grow also across recoveries.
    fn listed<'a>(&self, reports: &'a BTreeMap<HostName, EtcdFact>) -> Option<&'a Listed> {
        let living = || {
            let views = reports.iter().filter_map(|(host, etcd)| Some((host, etcd.view.as_ref()?)));
            views.filter(|(_, view)| view.linearizable)
        };
        let Some((_, first)) = living().next() else {
            let disks = reports.values().filter(|etcd| etcd.data).filter_map(|etcd| etcd.disk.as_ref());
            let newest = disks.filter(|disk| disk.members.is_some()).max_by_key(|disk| (disk.revision, disk.reach()));
            return newest?.members.as_ref();
        };
        let is_voter = |(host, view): &(&HostName, &EtcdView)| {
            let peer = self.host(host).map(Host::peer_url);
            let own = |entry: &&(u64, String, PeerUrl, bool)| entry.0 == view.member && Some(&entry.2) == peer.as_ref();
            first.members.iter().find(own).is_some_and(|(.., learner)| !learner)
        };
        let voters = first.members.iter().filter(|(.., learner)| !learner).count();
        let agree = living().all(|(_, view)| view.members == first.members);
        (agree && 2 * living().filter(is_voter).count() > voters).then_some(&first.members)
    }
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
        assert_eq!(taken([live(&[4], &[4]), live(&[2, 3], &[1, 2, 3])].concat()), [], "nor as a cluster of its own");
        let returned = (1, EtcdFact::default());
        assert_eq!(taken([vec![returned.clone()], now()].concat()), by_cp4, "it is back, without a vote");
        let learner = |list: &[usize]| {
            let mut all = live(&[2, 3], list);
            for (_, etcd) in &mut all {
                etcd.view.as_mut().unwrap().members.last_mut().unwrap().3 = true;
            }
            all
        };
        assert_eq!(taken(learner(&[2, 3, 4])), by_cp4, "it is joining");
        assert_eq!(taken([vec![returned], learner(&[2, 3, 4])].concat()), [], "the former host is ready");
        let other = (1, lives(&desired, 1, &[]));
        assert_eq!(taken([vec![other], live(&[2, 4], &[2, 4])].concat()), [], "they do not agree");
        let two = taken(live(&[2, 4], &[2, 4]).into_iter().chain([(3, EtcdFact::default())]).collect());
        assert_eq!(two, by_cp4, "cp3 answers: it is just added again");
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
        assert_eq!(there.clone().with_first_votes(), desired.clone().with_first_votes());
        let back = there.with_vote(&TakenOver { from: name(4), by: name(1) });
        assert_eq!(votes(&back), votes(&desired));
        assert_eq!(sample(3).with_first_votes(), sample(3), "without a standby nothing moves");
    }
}
