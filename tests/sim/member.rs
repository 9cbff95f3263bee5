//! etcd according to raft: which members form a cluster, which operations need a quorum, and what a disk remembers.

use super::law::Broken;
use super::make;
use super::world::{Disk, FirstBoot, SimHost, World};
use hactl::model::names::{HostName, PeerUrl};
use hactl::model::recovery::{Recovery, left_behind};
use std::collections::{BTreeMap, BTreeSet};

/// A member as the list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub peer: PeerUrl,
    /// Empty until it first starts.
    pub name: String,
    pub learner: bool,
    /// Whether it ever took part: from then on an empty disk under the same ID is amnesia.
    pub started: bool,
}

/// A cluster: the state that its log has agreed on.
#[allow(clippy::struct_excessive_bools, reason = "what may have become of a cluster, each independent of the others")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    pub members: BTreeMap<u64, Listed>,
    pub removed: BTreeSet<u64>,
    /// Whether a quorum of its members ever ran together.
    pub formed: bool,
    /// Whether it ever acknowledged a write of an API server.
    pub acknowledged: bool,
    /// Whether a recovery created it.
    pub restored: bool,
    /// Whether a recovery replaced it: it must never answer again.
    pub superseded: bool,
    /// The revision of its members' stores; within one cluster they are never far apart.
    pub revision: i64,
    /// The member that leadership was moved to; otherwise the first living voter leads.
    pub leader: Option<u64>,
}

impl Cluster {
    pub fn voters(&self) -> usize {
        self.members.values().filter(|m| !m.learner).count()
    }
    pub fn quorum(&self) -> usize {
        self.voters() / 2 + 1
    }
    pub fn learners(&self) -> usize {
        self.members.values().filter(|m| m.learner).count()
    }
    pub fn by_peer(&self, peer: &PeerUrl) -> Option<(u64, &Listed)> {
        self.members.iter().find(|(_, m)| &m.peer == peer).map(|(id, m)| (*id, m))
    }
}

/// Why something did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It failed, as it would on a real host.
    Failed(String),
    /// It must never have been tried.
    Broken(Broken),
}

pub fn failed<T>(why: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(why.into()))
}

/// The ID of an initial member: from its peer URL and the token, without a timestamp, as in etcd.
fn initial_member_id(peer: &PeerUrl, token: &str) -> u64 {
    number(&format!("{peer} {token}"))
}

fn number(text: &str) -> u64 {
    let hex = make::digest(text).hex();
    u64::from_str_radix(&hex[..15], 16).expect("a digest is hexadecimal")
}

impl World {
    pub fn peer(&self, host: &HostName) -> PeerUrl {
        make_peer(self, host)
    }

    /// Whether this member's process runs on its own disk.
    pub fn member_alive(&self, cluster: &str, id: u64) -> bool {
        self.hosts
            .values()
            .any(|h| h.runs("etcd.service") && h.disk.as_ref().is_some_and(|d| d.cluster == cluster && d.member == id))
    }

    pub fn alive_voters(&self, id: &str) -> usize {
        let Some(cluster) = self.clusters.get(id) else { return 0 };
        cluster.members.iter().filter(|(m, l)| !l.learner && self.member_alive(id, **m)).count()
    }

    pub fn has_quorum(&self, id: &str) -> bool {
        self.clusters.get(id).is_some_and(|c| c.voters() > 0 && self.alive_voters(id) >= c.quorum())
    }

    /// Whether so many disks are gone that starting the remaining members cannot bring a bootstrapped cluster back.
    pub fn lost_for_good(&self) -> bool {
        let disks: BTreeSet<(&String, u64)> =
            self.hosts.values().filter_map(|h| h.disk.as_ref()).map(|d| (&d.cluster, d.member)).collect();
        let gone = |(id, c): (&String, &Cluster)| {
            let left = c.members.iter().filter(|(m, l)| !l.learner && disks.contains(&(id, **m))).count();
            c.formed && !c.superseded && left < c.quorum()
        };
        self.clusters.iter().any(gone)
    }

    /// Members of the living cluster, or of a bootstrapped one, that are not in the inventory.
    pub fn removed_hosts(&self) -> Vec<HostName> {
        let wanted: BTreeSet<PeerUrl> = self.desired.hosts.iter().map(hactl::model::desired::Host::peer_url).collect();
        let bootstrapped =
            self.clusters.values().filter(|c| c.formed && !c.superseded).flat_map(|c| c.members.values());
        bootstrapped.filter(|m| !wanted.contains(&m.peer)).filter_map(|m| m.name.parse().ok()).collect()
    }

    /// The member list of the cluster that has a quorum: peer URL and right to vote.
    pub fn member_list(&self) -> Option<BTreeMap<PeerUrl, bool>> {
        let cluster = &self.clusters[&self.living()?];
        Some(cluster.members.values().map(|m| (m.peer.clone(), !m.learner)).collect())
    }

    pub fn acknowledged(&self) -> bool {
        self.clusters.values().any(|c| c.acknowledged)
    }

    /// The cluster that has a quorum.
    pub fn living(&self) -> Option<String> {
        self.clusters.keys().find(|id| self.has_quorum(id)).cloned()
    }

    /// The immediate, automatic changes: members with a quorum become ready and publish their names, and API
    /// servers write their leases.
    pub fn settle(&mut self) {
        let ids: Vec<String> = self.clusters.keys().cloned().collect();
        for id in ids {
            let removed = self.clusters[&id].removed.clone();
            let out: Vec<HostName> = self
                .hosts
                .iter()
                .filter(|(_, h)| h.runs("etcd.service"))
                .filter(|(_, h)| h.disk.as_ref().is_some_and(|d| d.cluster == id && removed.contains(&d.member)))
                .map(|(n, _)| n.clone())
                .collect();
            for host in out {
                self.unit_stopped(&host, &make::unit("etcd.service"), true);
            }
            if !self.has_quorum(&id) {
                continue;
            }
            let mut names = BTreeMap::new();
            for (name, host) in &mut self.hosts {
                let Some(disk) = host.disk.clone().filter(|d| d.cluster == id) else { continue };
                if !host.on {
                    continue;
                }
                if let Some(unit) = host.units.get_mut(&make::unit("etcd.service")).filter(|u| u.running) {
                    unit.ready = true;
                    names.insert(disk.member, name.to_string());
                }
            }
            let serving = self.desired.hosts.iter().any(|h| self.api_serves(&h.name));
            let cluster = self.clusters.get_mut(&id).expect("an id of the map itself");
            cluster.formed = true;
            cluster.acknowledged |= serving;
            for (member, name) in names {
                if let Some(listed) = cluster.members.get_mut(&member) {
                    listed.name = name;
                    listed.started = true;
                }
            }
        }
    }

    /// The unit starts etcd's process, according to the disk and the first-boot file.
    pub fn etcd_process_starts(&mut self, name: &HostName) -> Result<(), Stop> {
        let unit = make::unit("etcd.service");
        let host = self.host(name);
        let files = ["/etc/systemd/system/etcd.service", "/etc/etcd/etcd.conf", "/etc/kubernetes/pki/ca.crt"];
        if let Some(missing) = files.iter().find(|f| !host.files.contains_key(**f)) {
            return failed(format!("etcd on {name}: {missing} does not exist"));
        }
        if let Some(disk) = &host.disk {
            let cluster = &self.clusters[&disk.cluster];
            if cluster.removed.contains(&disk.member) {
                self.unit_stopped(name, &unit, true);
                return failed(format!("etcd on {name}: the member was removed from its cluster"));
            }
            if let Some(other) = self.fenced(name) {
                self.unit_stopped(name, &unit, false);
                return failed(format!("etcd on {name}: its data is older than the recovery that {other} belongs to"));
            }
            self.unit_started(name, &unit);
            self.settle();
            return Ok(());
        }
        self.unit_stopped(name, &unit, true);
        failed(format!("etcd on {name}: its disk is empty"))
    }

    /// The member that reports, before a start of etcd, that this host's data is older than a recovery. The host asks
    /// the members in its data; a member answers once it has had a quorum since its own start.
    pub fn fenced(&self, name: &HostName) -> Option<HostName> {
        let host = self.host(name);
        let disk = host.disk.as_ref().filter(|_| host.files.contains_key(make::FENCE))?;
        let own = &self.clusters[&disk.cluster];
        let newer = |(_, other): &(&HostName, &SimHost)| {
            let ready = other.on && other.units.get(&make::unit("etcd.service")).is_some_and(|u| u.running && u.ready);
            let Some(found) = other.disk.as_ref().filter(|_| ready) else { return false };
            let theirs = &self.clusters[&found.cluster];
            let peer = theirs.members.get(&found.member).map(|m| &m.peer);
            let listed = own.members.values().any(|m| Some(&m.peer) == peer);
            listed && left_behind((&disk.cluster, own.revision), (&found.cluster, theirs.revision))
        };
        self.hosts.iter().find(newer).map(|(name, _)| name.clone())
    }

    /// A first start on an empty disk, by the first-boot file.
    pub fn etcd_first_start(&mut self, name: &HostName) -> Result<(), Stop> {
        let peer = self.peer(name);
        match self.host(name).first_boot.clone() {
            // The unit asserts it: the token that permits a bootstrap is stored on the same disk and was lost with it.
            Some(FirstBoot::New { token, .. }) if self.host(name).token.as_ref() != Some(&token) => {
                return failed(format!("etcd on {name}: its disk holds no token to bootstrap a cluster"));
            }
            None => return failed(format!("etcd on {name}: its initial cluster state is not set")),
            Some(FirstBoot::New { token, initial_members }) => self.bootstrap(name, &peer, &token, &initial_members)?,
            Some(FirstBoot::Existing { members }) => self.join(name, &peer, &members)?,
        }
        self.etcd_process_starts(name)
    }

    fn bootstrap(
        &mut self,
        name: &HostName,
        peer: &PeerUrl,
        token: &str,
        initial_members: &[(HostName, PeerUrl)],
    ) -> Result<(), Stop> {
        if self.host(name).bootstrapped.is_some() {
            return failed(format!("etcd on {name}: its disk is marked as bootstrapped"));
        }
        if let Some((id, _)) = self.clusters.iter().find(|(_, c)| c.acknowledged) {
            return Err(Stop::Broken(Broken::SecondCluster { first: id.clone(), host: name.clone() }));
        }
        let list: Vec<String> = initial_members.iter().map(|(n, p)| format!("{n}={p}")).collect();
        let id = make::digest(&format!("{token} {}", list.join(","))).short();
        let member = initial_member_id(peer, token);
        let cluster = self.clusters.entry(id.clone()).or_insert_with(|| {
            let listed = |(name, peer): &(HostName, PeerUrl)| {
                let listed = Listed { peer: peer.clone(), name: name.to_string(), learner: false, started: false };
                (initial_member_id(peer, token), listed)
            };
            Cluster { members: initial_members.iter().map(listed).collect(), revision: 5, ..Cluster::default() }
        });
        if cluster.removed.contains(&member) {
            return failed(format!("etcd on {name}: the member was removed from its cluster"));
        }
        self.host_mut(name).disk = Some(Disk { cluster: id, member });
        Ok(())
    }

    /// A snapshot replaces a member's data: a new cluster, whose IDs come from its token.
    pub fn restore(&mut self, name: &HostName, recovery: &Recovery) -> Result<(), Stop> {
        let Some(from) = self.snapshots.get(&recovery.id).cloned() else {
            return failed(format!("{name}: the snapshot of recovery {} was never taken", recovery.id));
        };
        if self.host(name).disk.is_some() {
            return failed(format!("{name}: its data is still in its place"));
        }
        if !recovery.members.iter().any(|(member, _)| member == name) {
            return failed(format!("{name} is no member of the new cluster"));
        }
        let id = make::digest(&recovery.id).short();
        let listed = |(name, peer): &(HostName, PeerUrl)| {
            let listed = Listed { peer: peer.clone(), name: name.to_string(), learner: false, started: true };
            (initial_member_id(peer, &recovery.id), listed)
        };
        let acknowledged = self.clusters[&from.cluster].acknowledged;
        let members = recovery.members.iter().map(listed).collect();
        let fresh = Cluster { members, acknowledged, restored: true, revision: recovery.base, ..Cluster::default() };
        self.clusters.entry(id.clone()).or_insert(fresh);
        // The cluster that the data is from, and the cluster that ran until now.
        self.clusters.iter_mut().filter(|(other, _)| **other != id).for_each(|(_, c)| c.superseded = true);
        let member = initial_member_id(&self.peer(name), &recovery.id);
        let host = self.host_mut(name);
        host.token = Some(recovery.id.clone());
        host.disk = Some(Disk { cluster: id, member });
        Ok(())
    }

    fn join(&mut self, name: &HostName, peer: &PeerUrl, members: &[(String, PeerUrl)]) -> Result<(), Stop> {
        let Some(id) = self.living() else { return failed(format!("etcd on {name}: no member to join answers")) };
        let cluster = &self.clusters[&id];
        let Some((member, listed)) = cluster.by_peer(peer) else {
            return failed(format!("etcd on {name}: {peer} is not in the member list"));
        };
        let given: BTreeSet<&PeerUrl> = members.iter().map(|(_, p)| p).collect();
        let real: BTreeSet<&PeerUrl> = cluster.members.values().map(|m| &m.peer).collect();
        if given != real {
            return failed(format!("etcd on {name}: the list it was given is not the cluster's"));
        }
        let names: BTreeSet<&String> = members.iter().map(|(n, _)| n).collect();
        if names.len() != members.len() || names.iter().any(|n| n.is_empty()) {
            return failed(format!("etcd on {name}: a name in the list is empty or there twice"));
        }
        if listed.started && !listed.learner {
            return Err(Stop::Broken(Broken::Amnesia { host: name.clone() }));
        }
        if listed.started {
            return failed(format!("etcd on {name}: a learner of this id has been here already and its log is gone"));
        }
        self.host_mut(name).disk = Some(Disk { cluster: id, member });
        Ok(())
    }

    /// The leader moves leadership to a living voter.
    pub fn lead(&mut self, host: &HostName, to: &PeerUrl) -> Result<(), Stop> {
        let Some(id) = self.living() else { return failed("etcd: no quorum") };
        let cluster = &self.clusters[&id];
        let successor = cluster.by_peer(to).filter(|(m, l)| !l.learner && self.member_alive(&id, *m)).map(|(m, _)| m);
        let Some(successor) = successor else { return failed(format!("etcd: {to} cannot lead")) };
        if self.host(host).disk.as_ref().is_some_and(|d| d.cluster == id) {
            self.clusters.get_mut(&id).expect("the living cluster").leader = Some(successor);
        }
        Ok(())
    }

    /// Changes the member list through any member: this needs a quorum and is idempotent.
    pub fn change_members(&mut self, change: &Change) -> Result<(), Stop> {
        let Some(id) = self.living() else { return failed("etcd: no quorum") };
        self.joins += 1;
        let fresh = number(&format!("join {}", self.joins));
        let alive: BTreeMap<u64, bool> =
            self.clusters[&id].members.keys().map(|m| (*m, self.member_alive(&id, *m))).collect();
        let cluster = self.clusters.get_mut(&id).expect("the living cluster");
        match change {
            Change::Remove(peer) => {
                if let Some((member, _)) = cluster.by_peer(peer) {
                    cluster.members.remove(&member);
                    cluster.removed.insert(member);
                }
            }
            Change::Move(from, to) => {
                if let Some((member, _)) = cluster.by_peer(from) {
                    cluster.members.get_mut(&member).expect("found above").peer = to.clone();
                }
            }
            Change::AddLearner(peer) => {
                if cluster.by_peer(peer).is_none() {
                    let listed = Listed { peer: peer.clone(), name: String::new(), learner: true, started: false };
                    cluster.members.insert(fresh, listed);
                }
            }
            Change::Promote(peer) => {
                let Some((member, _)) = cluster.by_peer(peer) else {
                    return failed(format!("etcd: {peer} is no member"));
                };
                if !alive.get(&member).copied().unwrap_or(false) {
                    return failed(format!("etcd: {peer} has not caught up with the leader"));
                }
                cluster.members.get_mut(&member).expect("found above").learner = false;
            }
        }
        self.settle();
        Ok(())
    }
}

/// A change of the member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Remove(PeerUrl),
    Move(PeerUrl, PeerUrl),
    AddLearner(PeerUrl),
    Promote(PeerUrl),
}

fn make_peer(world: &World, host: &HostName) -> PeerUrl {
    let mut entered = world.desired.entered();
    entered.find(|h| &h.name == host).expect("a host that is entered").peer_url()
}
