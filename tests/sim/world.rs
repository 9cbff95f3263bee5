//! Hosts of the simulated world: the content of their disks, their processes, and the effects of power and cables.

use super::make::{self, MANIFESTS, Release};
use super::member::Cluster;
use hactl::model::desired::{Desired, EndpointKind, Host, Role};
use hactl::model::facts::{ClusterId, FileFact, LeafFact};
use hactl::model::hosting::{Hosting, Mode};
use hactl::model::may_deny::MayDeny;
use hactl::model::names::{Digest, HostName, PeerUrl, UnitName};
use hactl::model::target::{CertId, FileSet, FileTarget, HostTarget, Target};
use hactl::model::version::{Minor, Version};
use hactl::plan::Intent;
use std::collections::{BTreeMap, BTreeSet};

/// A member's data directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disk {
    pub cluster: String,
    pub member: u64,
}

/// The first-boot file of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBoot {
    New { token: String, initial_members: Vec<(HostName, PeerUrl)> },
    Existing { members: Vec<(String, PeerUrl)> },
}

/// A unit as systemd keeps it.
#[allow(clippy::struct_excessive_bools, reason = "systemd's states are independent of one another here")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimUnit {
    pub running: bool,
    /// Whether it has notified systemd that it is ready; etcd does so only once it has had a quorum.
    pub ready: bool,
    pub failed: bool,
    pub enabled: bool,
    pub started_ms: i64,
    pub reloaded_ms: i64,
}

/// One host.
#[allow(clippy::struct_excessive_bools, reason = "states of a host, each independent of the others")]
#[derive(Debug, Clone, Default)]
pub struct SimHost {
    pub on: bool,
    /// Runs, but cannot be reached by SSH.
    pub cut: bool,
    pub cluster_id: Option<ClusterId>,
    pub programs: BTreeSet<String>,
    pub swap: bool,
    pub sysctls: BTreeMap<String, String>,
    pub blobs: BTreeSet<Digest>,
    pub images: BTreeMap<String, String>,
    pub files: BTreeMap<String, FileFact>,
    pub leaves: BTreeMap<CertId, LeafFact>,
    pub units: BTreeMap<UnitName, SimUnit>,
    pub disk: Option<Disk>,
    pub aside: Vec<Disk>,
    /// The content of the first-boot file. It is stored with the settings: losing the data does not affect it.
    pub first_boot: Option<FirstBoot>,
    /// The token of a bootstrap without a proven quorum. It is stored with the data, and lost and archived with it.
    pub token: Option<String>,
    /// Whether most of the member's store is free pages.
    pub loose: bool,
    /// The bootstrapped marker. It is stored with the data, too.
    pub bootstrapped: Option<String>,
    /// Main processes of static pods: program to start time.
    pub processes: BTreeMap<String, i64>,
    /// The part of Kubernetes that a file names, by its path: version and digest.
    pub names: BTreeMap<String, (String, Digest)>,
    /// The version that each program of Kubernetes was when it started last.
    pub ran: BTreeMap<String, String>,
    /// The version of kubelets for which the balancer has read its file.
    pub balances_for: Option<String>,
    /// The timestamp of the newest snapshot.
    pub bundled_ms: Option<i64>,
    /// Previous files, kept until the new ones have passed their trial, by set and path; `None`: there was no file.
    pub previous: BTreeMap<FileSet, BTreeMap<String, Previous>>,
    /// To so many more questions its member is too busy to answer in time.
    pub busy: u32,
    /// Units, and programs of static pods, whose processes a signal has suspended.
    pub frozen: BTreeSet<String>,
    /// Members to which its balancer sends no client.
    pub passed_over: BTreeSet<HostName>,
    /// The holder of a run's lock.
    pub lock: Option<String>,
    /// Whether pods may take over from static pods; `None`: it was never self-hosted.
    pub hosting: Option<Mode>,
    /// The revision of the pods that run its control plane; `None`: static pods do.
    pub taken: Option<String>,
}

/// A file as it was, and the part of Kubernetes that it named.
pub type Previous = (Option<FileFact>, Option<(String, Digest)>);

impl SimHost {
    /// Archived data, by the names that hactl would give it: the clock of this world counts the moves.
    pub fn moved(&self) -> impl Iterator<Item = (String, &Disk)> {
        self.aside.iter().enumerate().map(|(at, disk)| (format!("member.moved-{at}"), disk))
    }
    fn bare() -> Self {
        let sysctls = [("net.ipv4.ip_forward".to_owned(), "0".to_owned())].into();
        Self { on: true, swap: true, sysctls, ..Self::default() }
    }
    pub fn runs(&self, unit: &str) -> bool {
        self.on && !self.frozen.contains(unit) && self.units.get(&make::unit(unit)).is_some_and(|u| u.running)
    }
    pub fn answers(&self) -> bool {
        self.on && !self.cut
    }
    /// A program starts from a file, in the version that the file names.
    fn runs_as(&mut self, program: &str, path: &str) {
        if let Some((version, _)) = self.names.get(path) {
            self.ran.insert(program.to_owned(), version.clone());
        }
    }
    /// The version that a static pod has, or gets as soon as its kubelet reads the manifest.
    pub fn version_of(&self, path: &str) -> Option<&str> {
        let program = program_of(path);
        let running = self.ran.get(program).filter(|_| self.processes.contains_key(program));
        let named = self.files.get(path).and_then(|_| self.names.get(path)).map(|(version, _)| version);
        running.or(named.filter(|_| self.runs("kubelet.service"))).map(String::as_str)
    }
    /// Whether a file matches its target.
    pub fn has(&self, file: &FileTarget) -> bool {
        let same = |found: &FileFact| (found.digest, found.mode, &found.owner) == (file.digest, file.mode, &file.owner);
        self.files.get(&file.path).is_some_and(same)
    }
    /// Whether the balancer passes the kubelet to an API server of this version on another host.
    pub fn has_in_reserve(&self, version: Minor) -> bool {
        let least = self.balances_for.as_deref().filter(|_| self.runs(make::BALANCES));
        least.and_then(Version::parse).is_some_and(|least| version >= least.minor)
    }
    /// Removes the data, the token and the bootstrapped marker.
    pub fn without_data(&mut self) -> Option<Disk> {
        (self.token, self.bootstrapped) = (None, None);
        self.disk.take()
    }
}

/// The administrator's folder for snapshots of recoveries, made when it is first needed. Each world has its own.
#[derive(Debug, Default)]
pub struct Store(Option<tempfile::TempDir>);

impl Clone for Store {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Store {
    pub fn path(&mut self) -> &std::path::Path {
        let made = || {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::write(folder.path().join("identity.txt"), hactl::snapshot::new_identity().reveal()).expect("ours");
            folder
        };
        self.0.get_or_insert_with(made).path()
    }
}

/// The whole simulated world.
#[derive(Debug, Clone)]
pub struct World {
    pub now: i64,
    pub release: Release,
    pub desired: Desired,
    pub target: Target,
    pub intent: Intent,
    pub hosts: BTreeMap<HostName, SimHost>,
    /// Every cluster of which a member ever started, by cluster ID.
    pub clusters: BTreeMap<String, Cluster>,
    /// Snapshots that recoveries took, with the disk each was taken from.
    pub snapshots: BTreeMap<String, Disk>,
    /// The size of the database of each stopped member.
    pub db_bytes: u64,
    /// Objects applied: the object's key to its content. Kept in the one etcd that is alive.
    pub objects: BTreeMap<String, serde_json::Value>,
    /// hactl's own record of applied objects, by add-on; `None`: it was never written.
    pub record: Option<serde_json::Map<String, serde_json::Value>>,
    /// Pods that a controller recreates elsewhere, and the Node of each; `None`: it waits for a Node.
    pub pods: BTreeMap<String, Option<HostName>>,
    /// Nodes that hactl cordoned.
    pub cordoned: BTreeSet<HostName>,
    /// Nodes that show a maintenance.
    pub maintained: BTreeSet<HostName>,
    /// Nodes with the label by which they get pods of a self-hosted control plane.
    pub labelled: BTreeSet<HostName>,
    /// Where the snapshots of recoveries are kept on the administrator's side.
    pub store: Store,
    /// Hosts whose API server a step took down and no step has waited for yet.
    pub disturbed: BTreeSet<HostName>,
    /// Etcd hosts that answered when the plan was made.
    pub answered: BTreeSet<HostName>,
    /// The timestamp of the last snapshot, wherever it is now.
    pub saved_ms: Option<i64>,
    /// Whether the person asked for everything to be taken down and deleted.
    pub down_wipe: bool,
    /// A person agreed to stop a cluster that answers: neither quorum nor API must hold, but no data may be lost.
    pub standstill: bool,
    /// Whether the inventory ever came to name other hosts.
    pub rehosted: bool,
    /// Nodes outside the inventory: whether the controllers consider each unreachable, and whether it was hactl's.
    pub unknown_nodes: BTreeMap<HostName, (bool, bool)>,
    /// What may deny pods of the control plane.
    pub may_deny: Vec<MayDeny>,
    /// Distinguishes members that join with the same peer URL one after the other.
    pub joins: u64,
    /// How often etcd had no leader for some seconds.
    pub elections: u32,
}

impl World {
    /// Bare hosts, all powered on.
    pub fn bare(control: u8, workers: u8) -> Self {
        Self::of(make::desired(control, workers))
    }

    /// Bare hosts of this inventory, all powered on.
    pub fn of(desired: hactl::model::desired::Desired) -> Self {
        let release = Release::default();
        let target = make::target(&desired, release);
        let hosts = desired.hosts.iter().map(|h| (h.name.clone(), SimHost::bare())).collect();
        let intent = Intent {
            cluster_id: ClusterId {
                cluster: desired.cluster.clone(),
                ca: make::digest("ca"),
                stages: 0,
                host: None,
                machine: None,
            },
            bootstrap_token: "token-1".to_owned(),
            bootstrapped: false,
            recovered: None,
            leapt: 0,
            ranges: None,
            prune: vec![],
            removed_hosts: vec![],
            balanced: BTreeSet::new(),
            limit: None,
            replace: BTreeMap::new(),
            reassign: BTreeSet::new(),
            remembered: BTreeMap::new(),
            dropped: BTreeSet::new(),
            lived: BTreeSet::new(),
            taken_down_ms: None,
            abandons: false,
            renew: hactl::model::leaf::Renewal::default(),
        };
        let workers = desired.hosts.iter().filter(|h| h.roles == [Role::Worker]);
        let pods = workers.map(|h| (format!("pod-of-{}", h.name), Some(h.name.clone()))).collect();
        Self {
            now: 1_000_000,
            release,
            desired,
            target,
            intent,
            hosts,
            clusters: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            db_bytes: 20_480,
            objects: BTreeMap::new(),
            record: None,
            pods,
            cordoned: BTreeSet::new(),
            maintained: BTreeSet::new(),
            labelled: BTreeSet::new(),
            store: Store::default(),
            disturbed: BTreeSet::new(),
            answered: BTreeSet::new(),
            saved_ms: None,
            down_wipe: false,
            standstill: false,
            rehosted: false,
            unknown_nodes: BTreeMap::new(),
            may_deny: Vec::new(),
            joins: 0,
            elections: 0,
        }
    }

    /// The inventory asks for something else from now on.
    pub fn release(&mut self, change: impl FnOnce(&mut Release)) {
        change(&mut self.release);
        self.retarget();
    }

    /// The inventory names other hosts from now on; hosts that are new are bare.
    pub fn rehost(&mut self, change: impl FnOnce(&mut Desired)) {
        change(&mut self.desired);
        self.rehosted = true;
        for host in &self.desired.hosts {
            self.hosts.entry(host.name.clone()).or_insert_with(SimHost::bare);
        }
        self.retarget();
    }

    /// One more control-plane host in the inventory, never under a name that was there before.
    pub fn grow(&mut self) {
        let used = self.hosts.keys().filter(|h| h.as_str().starts_with("cp")).count();
        let next = u8::try_from(used + 1).expect("few hosts");
        self.rehost(|d| d.hosts.push(make::control_host(next)));
    }

    /// One control-plane host fewer in the inventory; it runs on. Only of a cluster that was used: hosts that are taken
    /// out of the inventory in the middle of a bootstrap are invisible to hactl.
    pub fn shrink(&mut self, which: u8) {
        let control = self.with(Role::ControlPlane);
        if control.len() > 1 && self.acknowledged() {
            let gone = control[usize::from(which) % control.len()].clone();
            self.rehost(|d| d.hosts.retain(|h| h.name != gone));
        }
    }

    /// A host is taken out of the inventory and named as one that may leave; the run before remembers it.
    pub fn leave(&mut self, name: &HostName) {
        let host = self.desired.host(name).expect("a host of the inventory").clone();
        if host.is_node() {
            let unreachable = !self.host(name).runs("kubelet.service");
            self.unknown_nodes.insert(name.clone(), (unreachable, true));
        }
        self.intent.prune.push(name.clone());
        self.rehost(|d| {
            d.hosts.retain(|h| &h.name != name);
            d.leaving.push(host);
        });
    }

    /// A host that stays has these roles from now on, and no others. The state directory remembers its former roles.
    pub fn reassign(&mut self, name: &HostName, roles: &[Role]) {
        let before = self.desired.host(name).expect("a host of the inventory").clone();
        let after = Host { roles: roles.to_vec(), ..before.clone() };
        if before.is_node() && !after.is_node() && self.host(name).cluster_id.is_some() {
            self.unknown_nodes.insert(name.clone(), (false, true));
        } else if after.is_node() {
            self.unknown_nodes.remove(name);
        }
        if before.is(Role::LoadBalancer) && !after.is(Role::LoadBalancer) {
            self.intent.balanced.insert(name.clone());
        } else if after.is(Role::LoadBalancer) {
            self.intent.balanced.remove(name);
        }
        self.rehost(|d| d.hosts.iter_mut().filter(|h| &h.name == name).for_each(|h| *h = after.clone()));
    }

    /// The inventory asks for another Kubernetes version from now on.
    pub fn kubernetes(&mut self, version: &str) {
        version.clone_into(&mut self.desired.versions.kubernetes);
        self.retarget();
    }

    fn retarget(&mut self) {
        self.desired.hosting = if self.release.hosting % 2 == 1 { Hosting::SelfHosted } else { Hosting::Static };
        self.target = make::target(&self.desired, self.release);
    }

    pub fn host(&self, name: &HostName) -> &SimHost {
        self.hosts.get(name).expect("a host of this world")
    }
    pub fn host_mut(&mut self, name: &HostName) -> &mut SimHost {
        self.hosts.get_mut(name).expect("a host of this world")
    }
    pub fn host_target(&self, name: &HostName) -> HostTarget {
        self.target.hosts.get(name).cloned().unwrap_or_default()
    }
    pub fn tick(&mut self) -> i64 {
        self.now += 1000;
        self.now
    }
    /// Names of the hosts of the inventory that have a role.
    pub fn with(&self, role: Role) -> Vec<HostName> {
        self.desired.with(role).map(|h| h.name.clone()).collect()
    }

    /// Starts a unit; the caller must have checked that it can start.
    pub fn unit_started(&mut self, name: &HostName, unit: &UnitName) {
        let now = self.tick();
        let etcd = unit.as_str() == "etcd.service";
        if unit.as_str() == "kubelet.service" {
            self.host_mut(name).runs_as("kubelet", make::KUBELET);
        }
        let found = self.host_mut(name).units.entry(unit.clone()).or_default();
        *found = SimUnit { running: true, ready: !etcd, failed: false, started_ms: now, ..found.clone() };
        self.balancer_reads(name, unit);
    }

    /// A balancer that starts or reloads reads its file.
    pub fn balancer_reads(&mut self, name: &HostName, unit: &UnitName) {
        let host = self.host_mut(name);
        if unit.as_str() == make::BALANCES {
            host.balances_for = host.names.get(make::ETCD_BALANCER).map(|(version, _)| version.clone());
        }
    }

    pub fn unit_stopped(&mut self, name: &HostName, unit: &UnitName, failed: bool) {
        self.host_mut(name).frozen.remove(unit.as_str());
        if let Some(found) = self.host_mut(name).units.get_mut(unit) {
            *found = SimUnit { running: false, ready: false, failed, started_ms: 0, ..found.clone() };
        }
    }

    /// The kubelet acts on its manifests. Nothing waits for it between two steps, unless a step does.
    pub fn kubelet_acts(&mut self, name: &HostName) {
        let host = self.host(name);
        if !host.on || !host.runs("kubelet.service") || !host.runs("containerd.service") {
            return;
        }
        let image = |path: &str| host.names.get(path).is_some_and(|(_, digest)| host.blobs.contains(digest));
        let mut due = Vec::new();
        for path in MANIFESTS {
            let program = program_of(path);
            let Some(file) = host.files.get(path) else { continue };
            let started = host.processes.get(program).copied();
            // A manifest in reserve starts nothing while a pod runs.
            let since = started.map_or(0, |since| if host.taken.is_some() { i64::MAX } else { since });
            if since < file.changed_ms && image(path) && host.leaves.contains_key(&CertId::Apiserver) {
                due.push(program.to_owned());
            }
        }
        let gone: Vec<String> =
            MANIFESTS.iter().filter(|p| !host.files.contains_key(**p)).map(|p| program_of(p).to_owned()).collect();
        let now = self.tick();
        let host = self.host_mut(name);
        for path in MANIFESTS.iter().filter(|path| due.iter().any(|program| program == program_of(path))) {
            host.runs_as(program_of(path), path);
        }
        host.processes.extend(due.into_iter().map(|program| (program, now)));
        host.processes.retain(|program, _| !gone.contains(program));
        self.settle();
    }

    /// Whether the API server of a host answers `/readyz`.
    pub fn api_serves(&self, name: &HostName) -> bool {
        let host = self.host(name);
        let path = MANIFESTS[0];
        let current = match (host.files.get(path), host.processes.get(program_of(path))) {
            (Some(file), Some(since)) => host.taken.is_some() || *since >= file.changed_ms,
            _ => false,
        };
        let answers = host.on && !host.frozen.contains(program_of(path));
        answers && current && host.runs(make::BALANCES) && self.living().is_some()
    }

    /// Whether the endpoint answers: through the address on a balancer or the balancer of a reachable host, with a
    /// serving API server behind it.
    pub fn endpoint_serves(&self) -> bool {
        let balances = |name: &HostName| self.host(name).runs("haproxy.service");
        let balanced = match self.desired.endpoint.kind {
            EndpointKind::Local { .. } => self.with(Role::ControlPlane).iter().any(balances),
            EndpointKind::External(_) => true,
            EndpointKind::Vip { .. } => {
                self.with(Role::LoadBalancer).iter().any(|h| balances(h) && self.host(h).runs("keepalived.service"))
            }
        };
        balanced && self.with(Role::ControlPlane).iter().any(|h| self.api_serves(h))
    }

    /// Whether a host's Node is Ready.
    pub fn node_ready(&self, name: &HostName) -> bool {
        let host = self.host(name);
        let network = self.target.addons.iter().filter(|a| a.needed_for_ready).all(|a| self.applied(&a.name));
        host.runs("kubelet.service") && host.runs("containerd.service") && network && self.kubelet_reaches_api(name)
    }

    /// Whether a kubelet reaches an API server that serves: on a control-plane host its own, or one in reserve.
    fn kubelet_reaches_api(&self, name: &HostName) -> bool {
        let planes = self.with(Role::ControlPlane);
        let reaches = |other: &&HostName| {
            let version = self.host(other).version_of(MANIFESTS[0]).and_then(Version::parse);
            let reserve = version.is_some_and(|version| self.host(name).has_in_reserve(version.minor));
            *other == name || reserve || !planes.contains(name)
        };
        planes.iter().filter(reaches).any(|other| self.api_serves(other))
    }

    pub fn any_api(&self) -> bool {
        self.with(Role::ControlPlane).iter().any(|h| self.api_serves(h))
    }

    /// Whether an add-on's objects are as they should be.
    pub fn applied(&self, name: &str) -> bool {
        let addon = self.target.addons.iter().find(|a| a.name == name);
        addon.is_some_and(|a| {
            a.objects.iter().all(|o| self.objects.get(&hactl::model::target::object_key(o)) == Some(o))
        })
    }

    /// The files of a set that are not as they should be.
    pub fn stale_files(&self, name: &HostName, which: FileSet) -> usize {
        let target = self.host_target(name);
        let Some(set) = target.sets.get(&which) else { return 0 };
        let host = self.host(name);
        let inside = |path: &str| set.folders.iter().any(|folder| path.starts_with(&format!("{folder}/")));
        let known = set.told_by.is_empty() || set.told_by.iter().any(|path| host.files.contains_key(path));
        let ours = |path: &String| known && (inside(path) || set.own.contains(path));
        let strays = host.files.keys().filter(|p| ours(p) && !set.files.iter().any(|f| &f.path == *p)).count();
        strays + set.files.iter().filter(|f| !host.has(f)).count()
    }

    /// Keeps the files that these replace, unless earlier ones are already kept: their successors are still on trial.
    pub fn keep(&mut self, host: &HostName, set: FileSet, paths: &[String]) {
        let host = self.host_mut(host);
        let kept = host.previous.entry(set).or_default();
        for path in paths {
            let previous = (host.files.get(path).cloned(), host.names.get(path).cloned());
            kept.entry(path.clone()).or_insert(previous);
        }
    }

    /// The new files of these sets have passed their trial.
    pub fn accept(&mut self, host: &HostName, sets: &[FileSet]) {
        self.host_mut(host).previous.retain(|set, _| !sets.contains(set));
    }

    /// The previous files of these sets are back.
    pub fn roll_back(&mut self, name: &HostName, sets: &[FileSet]) -> Result<(), String> {
        let now = self.tick();
        let host = self.host_mut(name);
        for set in sets {
            let Some(kept) = host.previous.remove(set) else {
                return Err(format!("nothing is kept of {set} on {name}"));
            };
            for (path, (file, named)) in kept {
                host.names.remove(&path);
                host.names.extend(named.map(|named| (path.clone(), named)));
                match file {
                    Some(file) => drop(host.files.insert(path, FileFact { changed_ms: now, ..file })),
                    None => drop(host.files.remove(&path)),
                }
            }
        }
        Ok(())
    }

    /// Evicts a pod: its controller creates another one, on a schedulable Node if there is any.
    pub fn evict(&mut self, pod: &str) -> Result<(), super::member::Stop> {
        let Some(Some(from)) = self.pods.remove(pod) else { return Ok(()) };
        if !self.cordoned.contains(&from) {
            return super::member::failed(format!("{pod} was evicted from {from}, which takes it again at once"));
        }
        let workers = self.desired.hosts.iter().filter(|h| h.roles == [Role::Worker]).map(|h| h.name.clone());
        let to = workers.filter(|w| !self.cordoned.contains(w)).find(|w| self.node_ready(w));
        self.pods.insert(format!("{pod}-again"), to);
        Ok(())
    }

    /// The power fails.
    pub fn power_off(&mut self, name: &HostName) {
        let host = self.host_mut(name);
        host.on = false;
        host.processes.clear();
        for unit in host.units.values_mut() {
            *unit = SimUnit { running: false, ready: false, failed: false, started_ms: 0, ..unit.clone() };
        }
        self.disturbed.remove(name);
        self.settle();
    }

    /// The power is back: systemd starts enabled units. etcd's unit has a condition on its disk: a mere boot never
    /// bootstraps or joins a cluster.
    pub fn power_on(&mut self, name: &HostName) {
        if self.host(name).on {
            return;
        }
        self.host_mut(name).on = true;
        let enabled: Vec<UnitName> =
            self.host(name).units.iter().filter(|(_, u)| u.enabled).map(|(n, _)| n.clone()).collect();
        for unit in enabled {
            if unit.as_str() == "etcd.service" {
                let _ = self.etcd_process_starts(name);
            } else {
                self.unit_started(name, &unit);
            }
        }
        self.settle();
    }

    /// The host comes back as a new machine: every disk is lost.
    pub fn wipe(&mut self, name: &HostName) {
        let on = self.host(name).on;
        let cut = self.host(name).cut;
        *self.host_mut(name) = SimHost { on, cut, ..SimHost::bare() };
        self.disturbed.remove(name);
        self.settle();
    }

    /// etcd's volume is lost (or is not mounted); the rest of the host stays.
    pub fn lose_data(&mut self, name: &HostName) {
        self.host_mut(name).without_data();
        self.unit_stopped(name, &make::unit("etcd.service"), true);
        self.settle();
    }
}

/// The program of a static pod, from its manifest's path.
pub fn program_of(path: &str) -> &str {
    path.rsplit('/').next().and_then(|f| f.strip_suffix(".yaml")).unwrap_or(path)
}
