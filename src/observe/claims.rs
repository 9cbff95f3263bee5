//! Decides which member list of etcd is believed: one that a majority of its voters confirms, each for its own member.
//!
//! In: the answers of all hosts, and the journal. Out: the believed list, if any, and the answers without the claims
//! that it contradicts. A single host can at most withhold its own vote: the list, the health of other members and the
//! cluster's id never depend on it.

use super::Answers;
use super::stragglers::decides;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{DiskFact, Etcd, EtcdFact, EtcdView, Member, Members};
use crate::model::names::{HostName, PeerUrl};
use crate::model::recovery::left_behind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The cluster according to the journal; claims are compared with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCluster {
    /// The id of the cluster at the last observation.
    pub cluster: Option<String>,
    /// Whether a recovery was started and its end was not recorded: then another id may answer.
    pub recovering: bool,
}

/// A member list as one member reports it: the cluster, and of each member the id, name, peer URL and whether it is a
/// learner.
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
    /// Whether this is the data of one of its learners, with nothing in it yet: no log entry and no list of members.
    fn receives(&self, disk: &DiskFact, peer: &PeerUrl) -> bool {
        let is = |m: &&(u64, String, PeerUrl, bool)| m.0 == disk.member && &m.2 == peer && m.3;
        disk.index == 0 && disk.members.is_none() && disk.cluster == self.cluster && self.members.iter().any(|m| is(&m))
    }
    fn words(&self) -> String {
        let names = self.members.iter().map(|(_, name, peer, learner)| {
            let name = if name.is_empty() { peer.as_str() } else { name };
            if *learner { format!("{name} (a learner)") } else { name.to_owned() }
        });
        format!("cluster {}, members {}", self.cluster, names.collect::<Vec<_>>().join(", "))
    }
}

/// Cluster and members in words, as a member reports them.
pub(super) fn named(view: &EtcdView) -> String {
    List::of(view).words()
}

/// The input of the decision.
struct Court<'a> {
    desired: &'a Desired,
    answers: &'a Answers,
    known: &'a KnownCluster,
}

fn fact<'a>(answers: &'a Answers, host: &HostName) -> Option<&'a EtcdFact> {
    answers.get(host)?.as_ref().ok()?.etcd.as_ref()
}

/// The cluster in which a host's member is a voter according to itself, and the member's revision; `None`: it is no
/// voter.
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

    /// The report of a host's member, if it claims to have quorum.
    fn claim(&self, host: &Host) -> Option<&'a EtcdView> {
        self.etcd(host)?.view.as_ref().filter(|view| view.linearizable)
    }

    /// The hosts whose lists are considered: etcd hosts of the inventory. If none of those claims a quorum, for example
    /// because all are new, the former members; never a worker.
    fn sources(&self) -> Vec<(&'a Host, &'a EtcdView)> {
        let leaves = |host: &Host| self.desired.leaver(&host.name).is_some_and(Host::may_vote);
        let former = |host: &&Host| !host.is(Role::Etcd) && decides(host) || leaves(host);
        let own: Vec<_> = self.desired.with(Role::Etcd).filter_map(|host| Some((host, self.claim(host)?))).collect();
        if !own.is_empty() {
            return own;
        }
        self.desired.entered().filter(former).filter_map(|host| Some((host, self.claim(host)?))).collect()
    }

    /// The members of a list whose own host reports the same list, by id.
    fn confirmed(&self, list: &List) -> BTreeSet<u64> {
        let own = |(id, _, peer, _): &&(u64, String, PeerUrl, bool)| {
            let view = self.of_member(list, *id, peer).and_then(|host| self.claim(host));
            view.is_some_and(|view| view.member == *id && &List::of(view) == list)
        };
        list.members.iter().filter(own).map(|(id, ..)| *id).collect()
    }

    /// The host of a listed member: the one with the listed peer URL. If there is none, the etcd host with the data of
    /// that member, because its address has changed. Only that host speaks for the member: an invented address must not
    /// exclude a member, nor let a worker speak for it.
    fn of_member(&self, list: &List, id: u64, peer: &PeerUrl) -> Option<&'a Host> {
        let there = |host: &&Host| &host.peer_url() == peer;
        let has = |etcd: &EtcdFact| match (&etcd.view, &etcd.disk) {
            (Some(view), _) => view.cluster == list.cluster && view.member == id,
            (None, Some(disk)) => disk.cluster == list.cluster && disk.member == id,
            (None, None) => false,
        };
        let moved = |host: &&Host| !list.lists(&host.peer_url()) && self.etcd(host).is_some_and(has);
        let mut etcd = self.desired.entered().filter(|host| host.may_vote());
        self.desired.entered().find(there).or_else(|| etcd.find(moved))
    }

    /// Whether a host contradicts a list in which it is no voter: its own data says that it is one. Data of another
    /// cluster than the journal's, and data that predates a recovery, do not count.
    fn opposes(&self, host: &Host, (list, revision): (&List, i64)) -> bool {
        let Some(etcd) = self.etcd(host) else { return false };
        let Some((cluster, reached)) = own_vote(etcd) else { return false };
        // A learner that receives gigabytes answers nothing, and has no member list on its disk yet.
        if etcd.view.is_none() && etcd.disk.as_ref().is_some_and(|disk| list.receives(disk, &host.peer_url())) {
            return false;
        }
        match &self.known.cluster {
            Some(known) if known == &list.cluster => cluster == known,
            Some(_) if !self.known.recovering => true,
            _ => !reached.is_some_and(|reached| left_behind((cluster, reached), (&list.cluster, revision))),
        }
    }

    /// The members that confirm a list, if it is believed: more voters confirm than contradict it, including voters of
    /// another list, and the confirming voters are a quorum together with the unreachable ones.
    fn believed(&self, list: &List, revision: i64) -> Option<BTreeSet<u64>> {
        let confirmed = self.confirmed(list);
        let (mut yes, mut no, mut unreachable) = (0, 0, 0);
        let mut voters = BTreeSet::new();
        for (id, peer) in list.voters() {
            let host = self.of_member(list, id, peer);
            voters.extend(host.map(|host| &host.name));
            match host.and_then(|host| self.answers.get(&host.name)) {
                _ if confirmed.contains(&id) => yes += 1,
                // Its disk holds the data of another member: it neither confirms nor contradicts this one.
                Some(Ok(_)) if host.and_then(|host| self.claim(host)).is_some_and(|view| &List::of(view) == list) => {
                    unreachable += 1;
                }
                Some(Ok(facts)) if facts.etcd.as_ref().is_some_and(|etcd| etcd.view.is_some()) => no += 1,
                // A member that is stopped or slow, or lost its disk, reports no list: it is missing from the quorum.
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

/// The decision on all claims.
enum Verdict {
    /// No member claims to have quorum.
    Nobody,
    /// This list, with the members that confirm it.
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
        // One of them is false, or was left behind by a recovery: a person has to decide which.
        (false, 2..) => Verdict::Disputed,
        (false, _) => {
            let mut believed = claims.into_iter().filter_map(|(list, at)| Some((court.believed(&list, at)?, list)));
            believed.next().map_or(Verdict::Disputed, |(confirmed, list)| Verdict::Believed(list, confirmed))
        }
    }
}

/// The believed member list; removes from the answers the claims that contradict it. `None`: no member has quorum;
/// [`Etcd::Disputed`]: some claim it, but too few voters confirm it.
pub(super) fn hear(desired: &Desired, known: &KnownCluster, answers: &mut Answers) -> Option<Etcd> {
    let verdict = weigh(&Court { desired, answers, known });
    let received = match &verdict {
        Verdict::Nobody => None,
        Verdict::Disputed => return Some(Etcd::Disputed(super::classify::evidence(desired, answers))),
        Verdict::Believed(list, confirmed) => Some((list, confirmed)),
    };
    // Without quorum, the data of etcd hosts shows which other hosts were members.
    let listed: BTreeSet<PeerUrl> = match received {
        Some((list, _)) => list.members.iter().map(|m| m.2.clone()).collect(),
        None => desired.may_vote().filter_map(|host| fact(answers, &host.name)).flat_map(told_of).collect(),
    };
    let bare = !desired.may_vote().any(|host| fact(answers, &host.name).and_then(own_vote).is_some());
    let mut learners = BTreeSet::new();
    for host in desired.entered() {
        let Some(Ok(facts)) = answers.get_mut(&host.name) else { continue };
        let Some(etcd) = &mut facts.etcd else { continue };
        let member = listed.contains(&host.peer_url());
        let moved = |view: &EtcdView| received.is_some_and(|(_, confirmed)| confirmed.contains(&view.member));
        let known = host.is(Role::Etcd)
            || (host.standby && received.is_none())
            || member
            || etcd.view.as_ref().is_some_and(moved);
        if !(known || received.is_none() && bare && decides(host)) {
            // The reports of a host without a member are ignored, except on data to be removed from its own disk.
            if etcd.view.as_ref().is_some_and(|view| view.linearizable) {
                let is = if received.is_some() { "is not a member" } else { "no etcd host lists it as a member" };
                facts.doubts.push(format!("reports a member list of etcd, but {is}: its reports on etcd are ignored"));
            }
            if received.is_some() {
                (etcd.view, etcd.disk) = (None, None);
            } else {
                facts.etcd = None;
            }
            continue;
        }
        let Some((list, _)) = received else { continue };
        let Some(view) = &etcd.view else { continue };
        if view.linearizable && &List::of(view) != list {
            let claim = named(view);
            facts.doubts.push(format!("reports etcd as {claim}, but the majority reports {}", list.words()));
            facts.etcd = None;
        } else if view.learner && view.cluster == list.cluster && list.lists(&host.peer_url()) {
            learners.insert(view.member);
        }
    }
    let (list, confirmed) = received?;
    let court = Court { desired, answers, known };
    let voters: BTreeSet<u64> = list.voters().map(|(id, _)| id).filter(|id| confirmed.contains(id)).collect();
    let member = |(id, name, peer, learner): &(u64, String, PeerUrl, bool)| {
        // A member reports its own health; one that could not be asked counts as unhealthy, to be safe. A learner
        // serves no linearizable reads, so it is healthy if it answers at all.
        let healthy = if *learner { learners.contains(id) } else { confirmed.contains(id) };
        // Each speaks for itself alone; what is not known is no fault.
        let peers = court.of_member(list, *id, peer).and_then(|host| court.etcd(host)?.peers.as_ref());
        let lacks = |other: &u64| other != id && peers.is_some_and(|peers| !peers.contains(other));
        let apart = if healthy && !learner { voters.iter().copied().filter(lacks).collect() } else { BTreeSet::new() };
        (peer.clone(), Member { id: *id, name: name.clone(), learner: *learner, healthy, apart })
    };
    Some(Etcd::HasQuorum(Members(list.members.iter().map(member).collect())))
}

/// Peer URLs of the members that a host's own data or member lists.
fn told_of(etcd: &EtcdFact) -> Vec<PeerUrl> {
    let view = etcd.view.iter().flat_map(|view| &view.members);
    let disk = etcd.disk.iter().filter_map(|disk| disk.members.as_ref()).flatten();
    view.chain(disk).map(|(_, _, peer, _)| peer.clone()).collect()
}
