//! Facts as `observe/` reports them: the answer of each host, and what the answers say together about etcd.

use super::make;
use super::world::{Disk, SimHost, World, program_of};
use hactl::model::authentic::Authenticity;
use hactl::model::desired::Role;
use hactl::model::facts::{ApiFact, DiskFact, EtcdFact, EtcdView, Facts, HostFacts, Stale, UnitFact, Unreachable};
use hactl::model::names::HostName;
use hactl::model::node::NodeFact;
use hactl::model::snapshot::{BundleFact, BundlesFact, Point, Proof};
use hactl::model::target::object_key;
use hactl::observe::{Answers, KnownCluster};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// One round of observation. Time passes: kubelets have acted on their manifests by now.
    pub fn observe(&mut self) -> Facts {
        let names: Vec<HostName> = self.desired.entered().map(|h| h.name.clone()).collect();
        for name in &names {
            self.kubelet_acts(name);
        }
        self.disturbed.clear();
        let mut hosts: Answers = names.iter().map(|n| (n.clone(), self.say(n))).collect();
        self.answered = hosts.iter().filter(|(_, f)| f.is_ok()).map(|(n, _)| n.clone()).collect();
        let etcd = hactl::observe::classify(&self.desired, &KnownCluster::default(), &mut hosts);
        let (leaving, hosts) = hosts.into_iter().partition(|(name, _)| self.desired.leaver(name).is_some());
        let asked = names.iter().any(|n| self.host(n).answers() && self.api_serves(n));
        let mut drift = BTreeMap::new();
        for addon in self.target.addons.iter().filter(|_| asked) {
            let differs = addon.objects.iter().filter_map(|o| match self.objects.get(&object_key(o)) {
                None => Some((object_key(o), "it does not exist".to_owned())),
                Some(found) if found != o => Some((object_key(o), "/data differs".to_owned())),
                Some(_) => None,
            });
            drift.insert(addon.name.clone(), differs.collect());
        }
        let mut stale = BTreeMap::new();
        for addon in self.record.iter().flatten().map(|(addon, _)| addon).filter(|_| asked) {
            let keys = self.stale(addon);
            if !keys.is_empty() {
                let one = |key: String| Stale { kept: None, key };
                stale.insert(addon.clone(), keys.into_iter().map(one).collect());
            }
        }
        Facts { hosts, leaving, etcd, drift, stale, noted: Vec::new() }
    }

    /// Objects of an add-on that were applied and are no longer wanted.
    pub fn stale(&self, addon: &str) -> Vec<String> {
        let wanted: BTreeSet<String> = self.target.addons.iter().flat_map(|a| &a.objects).map(object_key).collect();
        super::api::recorded(self, addon).into_iter().filter(|key| !wanted.contains(key)).collect()
    }

    pub fn say(&self, name: &HostName) -> Result<HostFacts, Unreachable> {
        let host = self.host(name);
        if !host.answers() {
            return Err(Unreachable { why: "connection timed out".to_owned(), hint: None });
        }
        let desired = self.desired.entered().find(|h| &h.name == name).expect("a host that is entered");
        // A host that is to stop being a member is asked, too, as long as it has data.
        let member = desired.may_vote() || host.disk.is_some();
        let units = host.units.iter().map(|(unit, u)| {
            let active = match (u.running, u.ready, u.failed) {
                (true, true, _) => "active",
                (true, false, _) => "activating",
                (false, _, true) => "failed",
                (false, _, false) => "inactive",
            };
            let fact = UnitFact {
                active: active.to_owned(),
                enabled: u.enabled,
                started_ms: u.started_ms,
                reloaded_ms: u.reloaded_ms,
            };
            (unit.clone(), fact)
        });
        Ok(HostFacts {
            hostname: name.to_string(),
            swap: host.swap,
            now_ms: self.now,
            cluster_id: host.cluster_id.clone(),
            on_trial: host.previous.keys().copied().collect(),
            files: host.files.clone(),
            blobs: host.blobs.clone(),
            units: units.collect(),
            leaves: host.leaves.clone(),
            images: host.images.clone(),
            processes: host.processes.clone(),
            hung: host.frozen.iter().map(|component| (component.clone(), "it is suspended".to_owned())).collect(),
            versions: make::MANIFESTS
                .iter()
                .filter(|path| host.files.contains_key(**path))
                .filter_map(|path| Some((program_of(path).to_owned(), host.names.get(*path)?.0.clone())))
                .collect(),
            bundles: member.then(|| Self::bundles_fact(host)),
            programs: host.programs.clone(),
            sysctls: host.sysctls.clone(),
            etcd: member.then(|| self.etcd_fact(host)),
            hosting: super::hosting::fact(host),
            api: desired.is(Role::ControlPlane).then(|| self.api_fact(name)),
            ..HostFacts::default()
        })
    }

    fn etcd_fact(&self, host: &SimHost) -> EtcdFact {
        let view = host.disk.as_ref().filter(|_| host.runs("etcd.service")).and_then(|disk| {
            let ready = host.units.get(&make::unit("etcd.service")).is_some_and(|u| u.ready);
            let cluster = &self.clusters[&disk.cluster];
            let learner = cluster.members.get(&disk.member).is_some_and(|m| m.learner);
            let members = cluster.members.iter().map(|(id, m)| (*id, m.name.clone(), m.peer.clone(), m.learner));
            // A member that never saw a quorum since its start does not answer at all.
            ready.then(|| EtcdView {
                cluster: disk.cluster.clone(),
                member: disk.member,
                leader: self.leader(&disk.cluster).unwrap_or(0),
                term: 2,
                applied: 9,
                revision: cluster.revision,
                db_bytes: 1 << 30,
                in_use_bytes: if host.loose { 1 << 28 } else { 1 << 30 },
                quota_bytes: 8 << 30,
                version: "3.6.16".to_owned(),
                learner,
                linearizable: self.has_quorum(&disk.cluster) && !learner,
                members: members.collect(),
                alarms: vec![],
            })
        });
        let speaks = view.as_ref().is_some_and(|v| v.linearizable);
        let read = |disk: &Disk| {
            let members = self.clusters[&disk.cluster].members.iter();
            DiskFact {
                cluster: disk.cluster.clone(),
                member: disk.member,
                term: 2,
                index: 9,
                commit: 9,
                revision: Some(self.clusters[&disk.cluster].revision),
                applied: Some(9),
                members: Some(members.map(|(id, m)| (*id, m.name.clone(), m.peer.clone(), m.learner)).collect()),
                db_bytes: self.db_bytes,
                written_ms: 0,
                damaged: false,
                flaws: vec![],
            }
        };
        let peers = host.disk.as_ref().filter(|_| speaks).map(|disk| {
            let ids = self.clusters[&disk.cluster].members.keys().copied();
            ids.filter(|id| *id != disk.member && self.member_alive(&disk.cluster, *id)).collect()
        });
        let disk = host.disk.as_ref().filter(|_| !speaks).map(read);
        let aside = host.moved().map(|(name, disk)| (name, read(disk))).collect();
        let trouble = view.is_none().then(|| "connection refused".to_owned());
        EtcdFact {
            data: host.disk.is_some(),
            closed: view.is_none(),
            elsewhere: None,
            token: host.token.clone(),
            bootstrapped: host.bootstrapped.clone(),
            view,
            trouble,
            disk,
            aside,
            high_water: None,
            slow: false,
            positions: Vec::new(),
            stuck: None,
            peers,
            secret_is_ciphertext: None,
        }
    }

    fn bundles_fact(host: &SimHost) -> BundlesFact {
        let bundle = |taken_ms| BundleFact {
            name: "lab-20260101T000000000Z-cp1.hactl".to_owned(),
            bytes: 9,
            taken_ms,
            authority: make::digest("ca"),
            point: Point { cluster: String::new(), term: 2, index: 9, revision: 9, high_water: 9 },
            etcd: "3.6.16".to_owned(),
            proof: Proof { keys: 9, hash: 9, restored_ms: 9 },
            signed: None,
            authenticity: Authenticity::Signed("cp1".parse().expect("a name")),
        };
        BundlesFact { bundles: host.bundled_ms.map(bundle).into_iter().collect(), ..BundlesFact::default() }
    }

    /// The first living voter leads.
    pub fn leader(&self, cluster: &str) -> Option<u64> {
        if !self.has_quorum(cluster) {
            return None;
        }
        let members = &self.clusters[cluster].members;
        let made =
            self.clusters[cluster].leader.filter(|id| members.contains_key(id) && self.member_alive(cluster, *id));
        if made.is_some() {
            return made;
        }
        members.iter().find(|(id, m)| !m.learner && self.member_alive(cluster, **id)).map(|(id, _)| *id)
    }

    fn api_fact(&self, name: &HostName) -> ApiFact {
        let serves = self.api_serves(name);
        let node = |name: &HostName, ready, (unreachable, ours)| NodeFact {
            holds_static_pods: false,
            name: name.to_string(),
            ready,
            message: String::new(),
            heard_ms: self.now,
            version: self
                .hosts
                .get(name)
                .and_then(|h| h.ran.get("kubelet"))
                .map(|v| format!("v{v}"))
                .unwrap_or_default(),
            runtime: "containerd://2.3.7".to_owned(),
            unschedulable: self.cordoned.contains(name),
            drained: self.cordoned.contains(name),
            maintenances: self.maintained.get(name).map(|_| make::host_name("disk")).into_iter().collect(),
            unreachable,
            ours,
            address: None,
            pods: Some(hactl::model::desired::Cidr { base: [10, 244, 0, 0].into(), prefix: 24 }),
            tunnel: (String::new(), String::new()),
        };
        let own = self.desired.hosts.iter().filter(|h| h.is_node());
        let own = own.map(|h| node(&h.name, self.node_ready(&h.name), (false, true)));
        let others = self.unknown_nodes.iter().map(|(name, said)| node(name, !said.0, *said));
        let nodes = own.chain(others).filter(|_| serves);
        ApiFact {
            own_trouble: (!serves).then(|| "connection refused".to_owned()),
            endpoint_trouble: (!self.endpoint_serves()).then(|| "connection refused".to_owned()),
            nodes: nodes.collect(),
            version: self.host(name).ran.get("kube-apiserver").map(|v| format!("v{v}")).unwrap_or_default(),
            may_deny: if serves { self.may_deny.clone() } else { vec![] },
            ..ApiFact::default()
        }
    }
}

/// Whether hactl's record has a key, of any add-on.
pub fn is_recorded(world: &World, key: &str) -> bool {
    let addons = world.record.iter().flatten().map(|(addon, _)| addon);
    addons.into_iter().any(|addon| super::api::recorded(world, addon).contains(key))
}
