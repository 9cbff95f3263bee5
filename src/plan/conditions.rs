//! What a plan is made from, and whether a condition holds, evaluated from that alone.

use super::intent::Intent;
use crate::model::control_plane::{API_MANIFEST, MANIFESTS, PROGRAMS};
use crate::model::desired::{Cidr, Desired, Host, Role};
use crate::model::facts::{ApiFact, Etcd, Facts, HostFacts, InterfaceAddress, Members, UnitFact};
use crate::model::firewall::Opening;
use crate::model::hosting::HostingFact;
use crate::model::leaf::needs_renewal;
use crate::model::names::{HostName, PeerUrl, UnitName};
use crate::model::node::NodeFact;
use crate::model::plan::Condition;
use crate::model::target::{CertId, FileSet, FileTarget, HostTarget, KUBELET_SERVES_WITH, Place, SetTarget, Target};
use crate::model::units::{containerd_unit, etcd_unit, kubelet_unit};
use std::net::IpAddr;

/// Age up to which a snapshot counts as recent, milliseconds: a snapshot of an interrupted run need not be taken again.
const RECENT_MS: i64 = 10 * 60 * 1000;

/// When the files that a unit reads last changed.
fn newest(facts: &HostFacts, set: &SetTarget) -> i64 {
    let files = set.files.iter().filter_map(|f| facts.files.get(&f.path)).map(|f| f.changed_ms);
    let leaves = set.reads.iter().filter_map(|id| facts.leaves.get(id)).map(|l| l.changed_ms);
    files.chain(leaves).max().unwrap_or(0)
}

/// Files that an earlier run wrote into a directory of the set and that are no longer wanted.
fn strays(facts: &HostFacts, set: &SetTarget) -> Vec<String> {
    let inside = |path: &str| {
        set.folders.iter().any(|folder| path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/')))
    };
    if !set.is_told(|path| facts.files.contains_key(path)) {
        return Vec::new();
    }
    let wanted = |path: &str| set.files.iter().any(|file| file.path == path);
    let in_folders = facts.files.keys().filter(|path| inside(path) && !set.own.contains(path));
    let own = set.own.iter().filter(|path| facts.files.contains_key(*path));
    in_folders.chain(own).filter(|path| !wanted(path)).cloned().collect()
}

/// Everything that a plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Observed<'a> {
    pub desired: &'a Desired,
    pub target: &'a Target,
    pub facts: &'a Facts,
    pub intent: &'a Intent,
}

/// Whether a host has a member of etcd, an API server or a load balancer of the endpoint.
pub(super) fn is_of_control_plane(host: &Host) -> bool {
    [Role::ControlPlane, Role::Etcd, Role::LoadBalancer].into_iter().any(|role| host.is(role))
}

impl<'a> Observed<'a> {
    /// Hosts that answered, in the inventory's order.
    pub fn reachable(&self) -> Vec<Host> {
        self.desired.hosts.iter().filter(|h| self.facts.host(&h.name).is_some()).cloned().collect()
    }
    /// Whether a host may be changed in this run: nobody works on it, and no other hosts were chosen.
    pub fn may_change(&self, host: &HostName) -> bool {
        self.is_chosen(host) && self.maintenances(host).is_empty()
    }
    /// Whether no other hosts were chosen.
    pub fn is_chosen(&self, host: &HostName) -> bool {
        self.intent.limit.as_ref().is_none_or(|limit| limit.contains(host))
    }
    /// The maintenances of a worker, as its Node shows them. Another host has none: nothing but its kubelet could be left
    /// out, and root there could have the control plane left out by an annotation.
    pub fn maintenances(&self, host: &HostName) -> &'a [HostName] {
        if self.desired.host(host).is_some_and(|host| !is_of_control_plane(host)) { self.shown(host) } else { &[] }
    }
    /// A host of the control plane that a person works on, with its maintenances, as its Node shows them. It is not left
    /// out, and no other one is disturbed.
    pub fn taken(&self, host: &'a HostName) -> Option<(&'a HostName, &'a [HostName])> {
        let names = self.desired.host(host).filter(|host| is_of_control_plane(host)).map(|_| self.shown(host))?;
        (!names.is_empty()).then_some((host, names))
    }
    /// Whether the node agent of a host holds its static pods for a maintenance, as its Node shows it.
    pub fn holds_static_pods(&self, host: &HostName) -> bool {
        let holds = |api: &ApiFact| {
            let node = api.nodes.iter().find(|node| node.name == host.as_str());
            node.is_some_and(NodeFact::is_without_static_pods)
        };
        self.apis().any(holds)
    }
    /// The maintenances that the Node of a host shows.
    fn shown(&self, host: &HostName) -> &'a [HostName] {
        let shown = |api: &'a ApiFact| {
            api.nodes.iter().find(|node| node.name == host.as_str() && !node.maintenances.is_empty())
        };
        self.apis().find_map(shown).map_or(&[], |node| &node.maintenances)
    }
    /// Whether only some hosts may be changed.
    pub fn limited(&self) -> bool {
        self.intent.limit.is_some()
    }
    /// Hosts that answered and may be changed.
    pub fn changing(&self) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| self.may_change(&h.name)).collect()
    }
    /// Hosts that answered and have a role.
    pub fn reachable_with(&self, role: Role) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| h.is(role)).collect()
    }
    pub fn host_target(&self, host: &HostName) -> &'a HostTarget {
        static NOTHING: std::sync::LazyLock<HostTarget> = std::sync::LazyLock::new(HostTarget::default);
        self.target.hosts.get(host).unwrap_or(&NOTHING)
    }
    /// The conditions that these parts are on a host, as far as it should have them.
    pub fn delivered(&self, host: &HostName, names: &[&str]) -> Vec<Condition> {
        let parts = self.host_target(host).parts.iter().filter(|part| names.contains(&part.name.as_str()));
        parts.map(|part| Condition::Delivered(host.clone(), part.digest)).collect()
    }
    /// The condition that the unit of a set runs, if the host should have that set and it has a unit.
    pub fn running(&self, host: &HostName, set: FileSet) -> Option<Condition> {
        let unit = self.host_target(host).sets.get(&set)?.unit.clone()?;
        Some(Condition::Running(host.clone(), unit))
    }
    /// Whether the API server of this host is ready now.
    pub fn serves_now(&self, host: &HostName) -> bool {
        self.facts.host(host).and_then(|f| f.api.as_ref()).is_some_and(|a| a.own_trouble.is_none())
    }

    fn pair(&self, host: &HostName) -> Option<(&'a HostFacts, &'a HostTarget)> {
        Some((self.facts.host(host)?, self.target.hosts.get(host)?))
    }
    /// The facts of a host of the inventory, or of one that is to be removed.
    fn someone(&self, host: &HostName) -> Option<&'a HostFacts> {
        self.facts.host(host).or_else(|| self.facts.leaver(host))
    }
    fn members(&self) -> Option<&'a Members> {
        match &self.facts.etcd {
            Etcd::HasQuorum(members) => Some(members),
            _ => None,
        }
    }
    fn listed(&self, peer: &PeerUrl) -> bool {
        self.members().is_some_and(|m| m.0.contains_key(peer))
    }

    /// What is missing for a host to be prepared, in words.
    pub fn gaps(&self, host: &HostName) -> Vec<String> {
        let Some((facts, target)) = self.pair(host) else { return Vec::new() };
        let mut gaps = Vec::new();
        let missing = target.paths.iter().filter(|p| !facts.programs.contains(*p)).count();
        if missing > 0 {
            gaps.push(format!("create {missing} director{}", if missing == 1 { "y" } else { "ies" }));
        }
        if facts.swap && target.parts.iter().any(|p| p.name == "kubelet") {
            gaps.push("turn swap off".to_owned());
        }
        if let (Some(wanted), Some(found)) = (&target.openings, &facts.firewall) {
            let words = |list: Vec<&Opening>| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let (lacks, more): (Vec<_>, Vec<_>) =
                (wanted.difference(&found.open).collect(), found.open.difference(wanted).collect());
            if !lacks.is_empty() {
                gaps.push(format!("open in {}: {}", found.manager, words(lacks)));
            }
            if !more.is_empty() {
                gaps.push(format!("close in {}: {}", found.manager, words(more)));
            }
        }
        for (name, value) in &target.sysctls {
            if facts.sysctls.get(name).is_some_and(|now| now != value) {
                gaps.push(format!("set {name} to {value}"));
            }
        }
        gaps
    }

    /// The files of a set that differ, by path.
    pub fn differing(&self, host: &HostName, set: FileSet) -> Vec<String> {
        let Some((facts, target)) = self.pair(host) else { return Vec::new() };
        let Some(wanted) = target.sets.get(&set) else { return Vec::new() };
        let found =
            |file: &FileTarget| facts.files.get(&file.path).map(|found| (&found.digest, &found.mode, &found.owner));
        let differs = |file: &&FileTarget| found(file) != Some((&file.digest, &file.mode, &file.owner));
        let mut paths: Vec<String> = wanted.files.iter().filter(differs).map(|f| f.path.clone()).collect();
        paths.extend(strays(facts, wanted));
        paths
    }

    /// Whether the host belongs to this cluster already.
    pub fn is_ours(&self, host: &HostName) -> bool {
        let found = self.facts.host(host).and_then(|facts| facts.cluster_id.as_ref());
        found.is_some_and(|cluster_id| cluster_id.same_cluster(&self.intent.cluster_id))
    }

    /// Whether a host of this cluster still has files of a role that it no longer has.
    pub fn has_left(&self, host: &HostName, former: FileSet) -> bool {
        self.is_ours(host) && !self.differing(host, former).is_empty()
    }

    /// Whether the static pods of a host that no longer has a control plane have stopped, and none would be started
    /// again.
    fn pods_ended(&self, host: &HostName) -> bool {
        let manifest = |path: &String| path.starts_with(MANIFESTS);
        let runs = |facts: &HostFacts| PROGRAMS.iter().any(|program| facts.processes.contains_key(*program));
        self.facts.host(host).is_some_and(|facts| !runs(facts))
            && !self.differing(host, FileSet::FormerControlPlane).iter().any(manifest)
    }

    /// Whether the host keeps the previous files of a set: the new ones are on trial.
    pub fn on_trial(&self, host: &HostName, set: FileSet) -> bool {
        self.facts.host(host).is_some_and(|f| f.on_trial.contains(&set))
    }

    /// Whether a unit uses the files of a set now, so that new ones could break it.
    pub fn in_use(&self, host: &HostName, set: FileSet) -> bool {
        let target = self.target.hosts.get(host).and_then(|t| t.sets.get(&set));
        set.serves() && target.and_then(|t| t.unit.as_ref()).is_some_and(|unit| self.is_active(host, unit))
    }

    /// Certificates that are due, with the reason.
    pub fn due(&self, host: &HostName) -> Vec<(CertId, String)> {
        let Some((facts, target)) = self.pair(host) else { return Vec::new() };
        let due = |leaf: &crate::model::target::CertSpec| {
            let fact = facts.leaves.get(&leaf.id);
            let asked = || self.intent.renew.wants(host, leaf, fact?);
            needs_renewal(leaf, fact, facts.now_ms).or_else(asked).map(|why| (leaf.id, why))
        };
        let mut all: Vec<_> = target.leaves.iter().filter_map(due).collect();
        if !all.iter().any(|(id, _)| *id == CertId::Kubelet) {
            all.extend(self.serves_with_another(host).map(|why| (CertId::Kubelet, why)));
        }
        all
    }

    /// Why the kubelet has to request another serving certificate: another CA than the current one issued it. A kubelet
    /// requests one if it finds none at its start, and it gets a new client certificate then, too.
    fn serves_with_another(&self, host: &HostName) -> Option<String> {
        let (facts, target) = self.pair(host)?;
        let leaf = target.leaves.iter().find(|leaf| leaf.id == CertId::Kubelet)?;
        let shown = facts.certificates.files.get(KUBELET_SERVES_WITH)?.first()?;
        let other = !shown.authority.is_empty() && leaf.serves_by.as_ref().is_some_and(|by| shown.authority != *by);
        (other && self.is_active(host, &kubelet_unit())).then(|| "another CA issued its serving certificate".to_owned())
    }

    /// Whether a running kubelet gets a new certificate.
    pub fn kubelet_is_signed_anew(&self, host: &HostName) -> bool {
        self.is_active(host, &kubelet_unit()) && self.due(host).iter().any(|(id, _)| *id == CertId::Kubelet)
    }

    /// Whether a unit is running with its current files. One that does not answer counts as one that does not run.
    pub fn runs(&self, host: &HostName, set: &SetTarget) -> bool {
        self.is_current(host, set) && set.unit.as_ref().is_some_and(|unit| self.answers(host, unit))
    }

    /// Whether a unit is active with its current files, whether or not it answers.
    pub fn is_current(&self, host: &HostName, set: &SetTarget) -> bool {
        let (Some(facts), Some(unit)) = (self.facts.host(host), set.unit.as_ref()) else { return false };
        let Some(found) = facts.units.get(unit) else { return false };
        let newest = newest(facts, set);
        let since = if set.reload { found.started_ms.max(found.reloaded_ms) } else { found.started_ms };
        found.active == "active" && found.enabled && since >= newest
    }

    /// Whether a component of the control plane started after the last change of the files that it reads once.
    pub fn read_config(&self, host: &HostName, program: &str) -> bool {
        let Some((facts, target)) = self.pair(host) else { return false };
        let changed = target.sets.get(&FileSet::ControlPlaneConfig).map_or(0, |set| newest(facts, set));
        facts.processes.get(program).is_some_and(|started| *started >= changed)
    }

    /// Whether the files of a unit changed after its start, or it would not start at the next boot.
    pub fn outdated(&self, host: &HostName, set: &SetTarget) -> bool {
        let (Some(facts), Some(unit)) = (self.facts.host(host), set.unit.as_ref()) else { return false };
        let Some(found) = facts.units.get(unit) else { return false };
        let newest = newest(facts, set);
        found.started_ms < newest || !found.enabled
    }

    /// Whether a unit is running at all, with any files.
    pub fn is_active(&self, host: &HostName, unit: &UnitName) -> bool {
        self.facts.host(host).and_then(|f| f.units.get(unit)).is_some_and(|u| u.active == "active")
    }

    /// Whether a unit is running and not known to hang, with any files.
    pub fn answers(&self, host: &HostName, unit: &UnitName) -> bool {
        let hung = self.facts.host(host).and_then(|facts| facts.why_hung(unit.as_str()));
        self.is_active(host, unit) && hung.is_none()
    }

    /// Whether the host has files of a kubelet.
    pub fn has_kubelet(&self, host: &HostName) -> bool {
        let Some((facts, target)) = self.pair(host) else { return false };
        let files = target.sets.get(&FileSet::Kubelet).map(|s| s.files.as_slice()).unwrap_or_default();
        files.iter().any(|file| facts.files.contains_key(&file.path))
    }

    /// Whether the kubelet gets other files, or runs with older ones.
    pub fn kubelet_changes(&self, host: &HostName) -> bool {
        let set = self.target.hosts.get(host).and_then(|t| t.sets.get(&FileSet::Kubelet));
        let pending = |set: &SetTarget| self.is_active(host, &kubelet_unit()) && !self.runs(host, set);
        !self.differing(host, FileSet::Kubelet).is_empty() || set.is_some_and(pending)
    }

    /// Whether the manifest of the API server is as wanted.
    fn has_manifest(&self, host: &HostName) -> bool {
        self.facts.host(host).is_some()
            && !self.differing(host, FileSet::ControlPlane).iter().any(|p| p == API_MANIFEST)
    }

    /// Whether the API server is ready and the static pods run with their current manifests.
    fn serving(&self, host: &HostName) -> bool {
        self.serves_by(host, |_| true)
    }

    /// Whether the API server is ready, and the static pods of these manifests run with them.
    fn serves_by(&self, host: &HostName, which: fn(&str) -> bool) -> bool {
        let Some((facts, target)) = self.pair(host) else { return false };
        let Some(api) = &facts.api else { return false };
        let manifests = target.sets.get(&FileSet::ControlPlane).map(|s| s.files.as_slice()).unwrap_or_default();
        let current = |path: &str| {
            let program = path.rsplit('/').next().and_then(|f| f.strip_suffix(".yaml")).unwrap_or(path);
            // Its pod may be older than the last move of the manifest.
            if facts.hosting.as_ref().is_some_and(|hosting| hosting.is_delegated(program)) {
                return true;
            }
            match (facts.files.get(path), facts.processes.get(program)) {
                (Some(file), Some(started)) => *started >= file.changed_ms,
                _ => false,
            }
        };
        api.own_trouble.is_none() && manifests.iter().filter(|f| which(&f.path)).all(|f| current(&f.path))
    }

    pub fn holds(&self, mark: &Condition) -> bool {
        match mark {
            Condition::ClusterIdWritten(h) => {
                self.facts.host(h).is_some_and(|f| f.has_cluster_id(&self.intent.cluster_id, h))
            }
            Condition::Prepared(h) => self.facts.host(h).is_some() && self.gaps(h).is_empty(),
            Condition::Packaged(h) => {
                self.pair(h).is_some_and(|(f, t)| t.packages.keys().all(|program| f.programs.contains(program)))
            }
            Condition::Delivered(h, digest) => self.facts.host(h).is_some_and(|f| f.blobs.contains(digest)),
            Condition::Imported(h, digest) => self.pair(h).is_some_and(|(f, t)| {
                t.parts.iter().filter(|p| &p.digest == digest).all(|p| match &p.place {
                    // What is missing shows once containerd has restarted.
                    Place::Image { .. } if f.why_hung(containerd_unit().as_str()).is_some() => true,
                    Place::Image { reference } => f.images.get(reference) == Some(&digest.hex()),
                    Place::Program | Place::Packages => true,
                })
            }),
            Condition::Configured(h, set) => self.facts.host(h).is_some() && self.differing(h, *set).is_empty(),
            Condition::Accepted(h) => self.facts.host(h).is_some_and(|f| f.on_trial.is_empty()),
            Condition::Certified(h) => self.facts.host(h).is_some() && self.due(h).is_empty(),
            Condition::Running(h, unit) => {
                let mut sets = self.host_target(h).sets.values();
                sets.find(|set| set.unit.as_ref() == Some(unit)).is_some_and(|set| self.runs(h, set))
            }
            Condition::Stopped(h, unit) => {
                let found = self.someone(h).and_then(|f| f.units.get(unit));
                self.someone(h).is_some() && !found.is_some_and(UnitFact::runs_or_starts)
            }
            Condition::PodsEnded(h) => self.pods_ended(h),
            Condition::Follows(h) => {
                let view = self.someone(h).and_then(|f| f.etcd.as_ref()?.view.as_ref());
                view.is_some_and(|v| v.leader != 0 && !v.leads())
            }
            Condition::Dense(h) => {
                let view = self.someone(h).and_then(|f| f.etcd.as_ref()?.view.as_ref());
                view.is_some_and(|view| !view.is_loose())
            }
            Condition::Started(h) => self.is_active(h, &etcd_unit()),
            Condition::Cleared(h) => self.facts.host(h).and_then(|f| f.etcd.as_ref()).is_some_and(|e| !e.data),
            // Only a step of the same plan provides them.
            Condition::Halted(_) | Condition::Taken(_) | Condition::Restored(_) => false,
            Condition::Gone(peer) => self.members().is_some() && !self.listed(peer),
            Condition::Listed(peer) => self.listed(peer),
            Condition::Voter(peer) => self.members().and_then(|m| m.0.get(peer)).is_some_and(|m| !m.learner),
            Condition::Quorum => self.members().is_some(),
            Condition::Sealed(h) => {
                let bootstrapped = self.facts.host(h).and_then(|f| f.etcd.as_ref()?.bootstrapped.as_ref());
                bootstrapped.is_some_and(|b| self.facts.living_cluster().is_none_or(|c| c == b))
            }
            Condition::Saved => self.facts.hosts.values().filter_map(|f| f.as_ref().ok()).any(|facts| {
                let newest = facts.bundles.as_ref().and_then(|b| b.bundles.first());
                newest.is_some_and(|b| (0..=RECENT_MS).contains(&facts.now_ms.saturating_sub(b.taken_ms)))
            }),
            Condition::Manifest(h) => self.has_manifest(h),
            Condition::ApiServer(h) => self.has_manifest(h) && self.serves_by(h, |path| path == API_MANIFEST),
            Condition::Serving(h) => self.serving(h),
            Condition::Held(h) => {
                let held = |facts: &HostFacts| facts.hosting.as_ref().is_none_or(HostingFact::is_held);
                self.someone(h).is_some_and(held)
            }
            Condition::Hosted(h) => {
                let fact = self.facts.host(h).and_then(|facts| facts.hosting.as_ref());
                self.target.revision().zip(fact).is_some_and(|(revision, fact)| fact.is_hosted_by(revision))
            }
            Condition::Api => self.apis().any(|a| a.own_trouble.is_none()),
            Condition::Endpoint => self.apis().any(|a| a.endpoint_trouble.is_none()),
            Condition::Applied(addon) => self.facts.drift.get(addon).is_some_and(Vec::is_empty),
            Condition::Pruned(addon) => self.facts.stale.get(addon).is_none_or(Vec::is_empty),
            Condition::NodeReady(h) => {
                // Without a Pod CIDR, flannel assigns no addresses, and a mismatch with an earlier one is not known
                // yet.
                let ranged = |n: &NodeFact| n.pods.is_some() || !self.target.addons.iter().any(|a| a.name == "flannel");
                self.apis().flat_map(|a| &a.nodes).any(|n| n.name == h.as_str() && n.ready && ranged(n))
            }
            // A drained Node may have got pods since; a Node that does not exist has none.
            Condition::Drained(h) | Condition::NodeGone(h) => !self.registered(h),
            Condition::Schedulable(h) => {
                !self.apis().any(|a| a.nodes.iter().any(|n| n.name == h.as_str() && n.drained))
            }
            Condition::Wired(h) => self.pod_cidr_mismatch(h).is_none(),
            Condition::Wiped(_) => false,
        }
    }

    /// The flannel interface on a host whose address is not in the Pod CIDR of its Node, and that CIDR.
    pub fn pod_cidr_mismatch(&self, host: &HostName) -> Option<(&InterfaceAddress, Cidr)> {
        let mut nodes = self.apis().flat_map(|a| &a.nodes).filter(|n| n.name == host.as_str());
        let node = nodes.find(|n| n.pods.is_some())?;
        Some((node.pod_cidr_mismatch(&self.facts.host(host)?.addresses)?, node.pods?))
    }

    /// Whether an API server has a Node of this name, in any state.
    pub fn registered(&self, host: &HostName) -> bool {
        self.apis().any(|a| a.nodes.iter().any(|n| n.name == host.as_str()))
    }

    /// Whether the kubelet of the Node of this name has stopped to report.
    pub fn is_unreachable(&self, node: &HostName) -> bool {
        self.apis().any(|a| a.nodes.iter().any(|n| n.name == node.as_str() && n.unreachable))
    }

    /// The address of the kubelet that reports for the Node of this name.
    pub fn reports_from(&self, node: &HostName) -> Option<IpAddr> {
        let mut nodes = self.apis().flat_map(|a| &a.nodes);
        nodes.find(|n| n.name == node.as_str() && !n.unreachable)?.address
    }

    /// Whether an API server has a Node of this name that was in an inventory of hactl.
    pub fn registered_ours(&self, host: &HostName) -> bool {
        self.apis().any(|a| a.nodes.iter().any(|n| n.name == host.as_str() && n.ours))
    }

    /// API facts of hosts whose local API server answers.
    fn apis(&self) -> impl Iterator<Item = &'a ApiFact> + use<'a> {
        let hosts = self.facts.hosts.values();
        hosts.filter_map(|f| f.as_ref().ok()).filter_map(|f| f.api.as_ref())
    }
}
