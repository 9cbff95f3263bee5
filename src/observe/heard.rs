//! Whose words about etcd count: a member list is believed when a majority of those who must know it says so, each for its own member.
//!
//! In: what all hosts said, and what the journal knows. Out: the list that is believed, if any, and the answers without the claims that it
//! contradicts. One host can at most withhold its own vote: the list of others, their health and the cluster's id never depend on it.

use super::Answers;
use super::stragglers::decides;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{DiskFact, Etcd, EtcdFact, EtcdView, Member, Members};
use crate::model::names::{HostName, PeerUrl};
use crate::model::recovery::left_behind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What the journal knows of the cluster, against which claims are held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCluster {
    /// The id of the cluster that answered last.
    pub cluster: Option<String>,
    /// Whether a recovery was agreed to that nobody has seen the end of: then another id may answer.
    pub recovering: bool,
}

/// A member list as a view has it: the cluster, and of each member id, name, peer URL and whether it learns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct List {
    cluster: String,
    members: BTreeSet<(u64, String, PeerUrl, bool)>,
}

impl List {
    fn of(view: &EtcdView) -> Self {
        Self { cluster: view.cluster.clone(), members: view.members.iter().cloned().collect() }
    }
    fn voters(&self) -> impl Iterator<Item = (u64, &PeerUrl)> {
        self.members.iter().filter(|m| !m.3).map(|(id, _, peer, _)| (*id, peer))
    }
    fn lists(&self, peer: &PeerUrl) -> bool {
        self.members.iter().any(|m| &m.2 == peer)
    }
    fn words(&self) -> String {
        let names = self.members.iter().map(|(_, name, peer, learner)| {
            let name = if name.is_empty() { peer.as_str() } else { name };
            if *learner { format!("{name} (a learner)") } else { name.to_owned() }
        });
        format!("cluster {}, members {}", self.cluster, names.collect::<Vec<_>>().join(", "))
    }
}

/// Cluster and members in words, as a member names them.
pub(super) fn named(view: &EtcdView) -> String {
    List::of(view).words()
}

/// Everything that is weighed.
struct Court<'a> {
    desired: &'a Desired,
    answers: &'a Answers,
    known: &'a KnownCluster,
}

fn fact<'a>(answers: &'a Answers, host: &HostName) -> Option<&'a EtcdFact> {
    answers.get(host)?.as_ref().ok()?.etcd.as_ref()
}

/// The cluster in which a host's member has a vote by its own account, and how far that goes; `None`: it has none.
fn own_vote(etcd: &EtcdFact) -> Option<(&str, Option<i64>)> {
    let voter = |disk: &&DiskFact| disk.voters().is_none_or(|mut voters| voters.any(|(id, _)| id == disk.member));
    match (&etcd.view, &etcd.disk) {
        (Some(view), _) => (!view.learner).then_some((view.cluster.as_str(), Some(view.revision))),
        (None, Some(disk)) => Some(disk).filter(voter).map(|disk| (disk.cluster.as_str(), disk.revision)),
        (None, None) => etcd.bootstrapped.as_deref().filter(|_| etcd.data).map(|bootstrapped| (bootstrapped, None)),
    }
}

impl<'a> Court<'a> {
    fn etcd(&self, host: &Host) -> Option<&'a EtcdFact> {
        fact(self.answers, &host.name)
    }

    /// What a host's member says that claims to have a quorum behind it.
    fn claim(&self, host: &Host) -> Option<&'a EtcdView> {
        self.etcd(host)?.view.as_ref().filter(|view| view.linearizable)
    }

    /// Whose lists are heard: etcd hosts of the inventory. Where none of those claims a quorum, as when all of them are new, those who were
    /// members; a worker never.
    fn sources(&self) -> Vec<(&'a Host, &'a EtcdView)> {
        let leaves = |host: &Host| self.desired.leaver(&host.name).is_some_and(|host| host.is(Role::Etcd));
        let former = |host: &&Host| !host.is(Role::Etcd) && decides(host) || leaves(host);
        let own: Vec<_> = self.desired.with(Role::Etcd).filter_map(|host| Some((host, self.claim(host)?))).collect();
        if !own.is_empty() {
            return own;
        }
        self.desired.entered().filter(former).filter_map(|host| Some((host, self.claim(host)?))).collect()
    }

    /// Members of a list for which their own host says the same, by id.
    fn confirmed(&self, list: &List) -> BTreeSet<u64> {
        let own = |(id, _, peer, _): &&(u64, String, PeerUrl, bool)| {
            let view = self.of_member(list, *id, peer).and_then(|host| self.claim(host));
            view.is_some_and(|view| view.member == *id && &List::of(view) == list)
        };
        list.members.iter().filter(own).map(|(id, ..)| *id).collect()
    }

    /// The host of a listed member: the one that is where the list has it. Where nobody known is, the etcd host whose data is that member's: its
    /// address has changed. It alone speaks for the member, so that nobody is made silent, or spoken for by a worker, at an address that somebody
    /// invents.
    fn of_member(&self, list: &List, id: u64, peer: &PeerUrl) -> Option<&'a Host> {
        let there = |host: &&Host| &host.peer_url() == peer;
        let has = |etcd: &EtcdFact| match (&etcd.view, &etcd.disk) {
            (Some(view), _) => view.cluster == list.cluster && view.member == id,
            (None, Some(disk)) => disk.cluster == list.cluster && disk.member == id,
            (None, None) => false,
        };
        let moved = |host: &&Host| !list.lists(&host.peer_url()) && self.etcd(host).is_some_and(has);
        self.desired
            .entered()
            .find(there)
            .or_else(|| self.desired.entered().filter(|host| host.is(Role::Etcd)).find(moved))
    }

    /// Whether a host holds data that speaks against a list in which it is no voter: it has a vote by its own account. Data of another cluster than
    /// the journal's, and of before a recovery, does not count.
    fn opposes(&self, host: &Host, (list, revision): (&List, i64)) -> bool {
        let Some(etcd) = self.etcd(host) else { return false };
        let Some((cluster, reached)) = own_vote(etcd) else { return false };
        match &self.known.cluster {
            Some(known) if known == &list.cluster => cluster == known,
            Some(_) if !self.known.recovering => true,
            _ => !reached.is_some_and(|reached| left_behind((cluster, reached), (&list.cluster, revision))),
        }
    }

    /// Who confirms a list that is believed: more of its voters say so than say otherwise, counting those who have a vote elsewhere, and with those
    /// who cannot be asked they are a quorum.
    fn believed(&self, list: &List, revision: i64) -> Option<BTreeSet<u64>> {
        let confirmed = self.confirmed(list);
        let (mut yes, mut no, mut unreachable) = (0, 0, 0);
        let mut voters = BTreeSet::new();
        for (id, peer) in list.voters() {
            let host = self.of_member(list, id, peer);
            voters.extend(host.map(|host| &host.name));
            match host.and_then(|host| self.answers.get(&host.name)) {
                _ if confirmed.contains(&id) => yes += 1,
                // Its disk is another member's: it does not speak for this one, and it contradicts nobody.
                Some(Ok(_)) if host.and_then(|host| self.claim(host)).is_some_and(|view| &List::of(view) == list) => {
                    unreachable += 1;
                }
                Some(Ok(facts)) if facts.etcd.as_ref().is_some_and(|etcd| etcd.view.is_some()) => no += 1,
                // One that is stopped, slow or lost its disk says nothing of the list: it is missing from the quorum.
                Some(Ok(_)) => {}
                Some(Err(_)) | None => unreachable += 1,
            }
        }
        let others = self.desired.with(Role::Etcd).filter(|host| !voters.contains(&host.name));
        no += others.filter(|host| self.opposes(host, (list, revision))).count();
        let quorum = list.voters().count() / 2 + 1;
        (yes > no && yes + unreachable >= quorum).then_some(confirmed)
    }
}

/// The outcome of weighing all claims.
enum Verdict {
    /// Nobody claims to have a quorum.
    Nobody,
    /// This one, with the members that speak for themselves.
    Believed(List, BTreeSet<u64>),
    /// None of the claims.
    Disputed,
}

fn weigh(court: &Court) -> Verdict {
    let claims: Vec<(List, i64)> =
        court.sources().into_iter().map(|(_, view)| (List::of(view), view.revision)).collect();
    let clusters: BTreeSet<&String> = claims.iter().map(|(list, _)| &list.cluster).collect();
    match (claims.is_empty(), clusters.len()) {
        (true, _) => Verdict::Nobody,
        // One of them is a lie, or what a recovery left behind: a person has to say which.
        (false, 2..) => Verdict::Disputed,
        (false, _) => claims
            .into_iter()
            .find_map(|(list, revision)| Some((court.believed(&list, revision)?, list)))
            .map_or(Verdict::Disputed, |(confirmed, list)| Verdict::Believed(list, confirmed)),
    }
}

/// The member list that is believed, and the answers without what contradicts it. `None`: nobody has a quorum; [`Etcd::Disputed`]: some say so,
/// and not enough of those who must know.
pub(super) fn hear(desired: &Desired, known: &KnownCluster, answers: &mut Answers) -> Option<Etcd> {
    let verdict = weigh(&Court { desired, answers, known });
    let heard = match &verdict {
        Verdict::Nobody => None,
        Verdict::Disputed => return Some(Etcd::Disputed(super::classify::evidence(desired, answers))),
        Verdict::Believed(list, confirmed) => Some((list, confirmed)),
    };
    // Where nobody speaks, the data of etcd hosts tells who was a member besides.
    let listed: BTreeSet<PeerUrl> = match heard {
        Some((list, _)) => list.members.iter().map(|m| m.2.clone()).collect(),
        None => desired.with(Role::Etcd).filter_map(|host| fact(answers, &host.name)).flat_map(told_of).collect(),
    };
    let bare = !desired.with(Role::Etcd).any(|host| fact(answers, &host.name).and_then(own_vote).is_some());
    let mut learners = BTreeSet::new();
    for host in desired.entered() {
        let Some(Ok(facts)) = answers.get_mut(&host.name) else { continue };
        let Some(etcd) = &mut facts.etcd else { continue };
        let member = listed.contains(&host.peer_url());
        let moved = |view: &EtcdView| heard.is_some_and(|(_, confirmed)| confirmed.contains(&view.member));
        let known = host.is(Role::Etcd) || member || etcd.view.as_ref().is_some_and(moved);
        if !(known || heard.is_none() && bare && decides(host)) {
            // Of a member that it is not it may say what it likes: only what is to be cleared from its own disk counts.
            if etcd.view.as_ref().is_some_and(|view| view.linearizable) {
                let is = if heard.is_some() { "is no member" } else { "no etcd host knows it for one" };
                facts
                    .doubts
                    .push(format!("says what etcd's members are, and {is}: nothing that it says of etcd is believed"));
            }
            if heard.is_some() {
                (etcd.view, etcd.disk) = (None, None);
            } else {
                facts.etcd = None;
            }
            continue;
        }
        let Some((list, _)) = heard else { continue };
        let Some(view) = &etcd.view else { continue };
        if view.linearizable && &List::of(view) != list {
            let claim = named(view);
            facts.doubts.push(format!("says that etcd is {claim}, and the majority says {}", list.words()));
            facts.etcd = None;
        } else if view.learner && view.cluster == list.cluster && list.lists(&host.peer_url()) {
            learners.insert(view.member);
        }
    }
    let (list, confirmed) = heard?;
    let member = |(id, name, peer, learner): &(u64, String, PeerUrl, bool)| {
        // Told by the member itself; one that nobody could ask counts as unhealthy, the safe side. A learner answers no linearizable read of its
        // own: it is healthy when it answers at all.
        let healthy = if *learner { learners.contains(id) } else { confirmed.contains(id) };
        (peer.clone(), Member { id: *id, name: name.clone(), learner: *learner, healthy })
    };
    Some(Etcd::HasQuorum(Members(list.members.iter().map(member).collect())))
}

/// Peer URLs of the members that a host's own data or member tells of.
fn told_of(etcd: &EtcdFact) -> Vec<PeerUrl> {
    let view = etcd.view.iter().flat_map(|view| &view.members);
    let disk = etcd.disk.iter().filter_map(|disk| disk.members.as_ref()).flatten();
    view.chain(disk).map(|(_, _, peer, _)| peer.clone()).collect()
}
