//! Whether a condition holds, judged from the world itself and not from facts: a second opinion on the planner's
//! `holds`. Exhaustive, so that a new condition cannot be forgotten.

use super::world::World;
use hactl::model::desired::Role;
use hactl::model::hosting::Mode;
use hactl::model::names::{HostName, UnitName};
use hactl::model::plan::Condition;
use hactl::model::target::{FileSet, Place, SetTarget};

impl World {
    pub fn holds(&self, condition: &Condition) -> bool {
        let at = |h: &HostName| self.host(h);
        match condition {
            Condition::ClusterIdWritten(h) => at(h).cluster_id == Some(self.intent.cluster_id.of(h)),
            Condition::Prepared(h) => {
                let target = self.host_target(h);
                let kubelet = target.parts.iter().any(|p| p.name == "kubelet");
                target.paths.iter().all(|p| at(h).programs.contains(p))
                    && !(kubelet && at(h).swap)
                    && target.sysctls.iter().all(|(k, v)| at(h).sysctls.get(k) == Some(v))
            }
            Condition::Packaged(h) => self.host_target(h).packages.keys().all(|p| at(h).programs.contains(p)),
            Condition::Delivered(h, digest) => at(h).blobs.contains(digest),
            Condition::Imported(h, digest) => self.host_target(h).parts.iter().filter(|p| &p.digest == digest).all(|p| {
                matches!(&p.place, Place::Image { reference } if at(h).images.get(reference) == Some(&digest.hex()))
            }),
            Condition::Configured(h, set) => self.stale_files(h, *set) == 0,
            // Other steps change which files are on trial; `run` judges the step itself and the end of a calm run.
            Condition::Accepted(_) => true,
            Condition::Certified(h) => {
                let good = |l: &hactl::model::target::CertSpec| at(h).leaves.get(&l.id).is_some_and(|f| f.sans == l.sans);
                self.host_target(h).leaves.iter().all(good)
            }
            Condition::Running(h, unit) => {
                let target = self.host_target(h);
                let set = target.sets.values().find(|s| s.unit.as_ref() == Some(unit));
                at(h).on && set.is_some_and(|s| self.current(h, s))
            }
            Condition::Stopped(h, unit) => !at(h).runs(unit.as_str()),
            Condition::PodsEnded(h) => {
                let manifests = super::make::MANIFESTS.iter().any(|path| at(h).files.contains_key(*path));
                !manifests && at(h).processes.is_empty()
            }
            Condition::Follows(h) => {
                let disk = at(h).disk.as_ref();
                disk.is_none_or(|d| self.leader(&d.cluster).is_some_and(|leader| leader != d.member))
            }
            Condition::Dense(h) => !at(h).loose && at(h).runs("etcd.service"),
            Condition::Started(h) => at(h).runs("etcd.service"),
            Condition::Cleared(h) => at(h).disk.is_none(),
            Condition::Halted(h) => {
                !at(h).runs("etcd.service") && !at(h).runs("kubelet.service") && at(h).processes.is_empty()
            }
            Condition::Taken(id) => self.snapshots.contains_key(id),
            // Marked as bootstrapped for another cluster, it would not start.
            Condition::Restored(h) => {
                let disk = at(h).disk.as_ref().filter(|d| self.clusters[&d.cluster].restored);
                disk.is_some_and(|d| at(h).bootstrapped.as_ref().is_none_or(|bootstrapped| *bootstrapped == d.cluster))
            }
            Condition::Gone(peer) => self.list().is_some_and(|c| c.by_peer(peer).is_none()),
            Condition::Listed(peer) => self.list().is_some_and(|c| c.by_peer(peer).is_some()),
            Condition::Voter(peer) => self.list().and_then(|c| c.by_peer(peer)).is_some_and(|(_, m)| !m.learner),
            Condition::Quorum => self.living().is_some(),
            Condition::Sealed(h) => at(h).bootstrapped.is_some(),
            Condition::Saved => self.hosts.values().any(|h| h.bundled_ms.is_some_and(|at| self.now - at <= 600_000)),
            Condition::Manifest(h) => self.has_manifest(h),
            Condition::ApiServer(h) => self.has_manifest(h) && self.api_serves(h),
            Condition::Serving(h) => self.api_serves(h),
            Condition::Held(h) => at(h).taken.is_none() && matches!(at(h).hosting, None | Some(Mode::Held)),
            Condition::Hosted(h) => {
                let wanted = self.target.revision();
                let may = matches!(&at(h).hosting, Some(Mode::Workloads(may)) if Some(may.as_str()) == wanted);
                may && at(h).taken.as_deref() == wanted && at(h).processes.len() == super::make::MANIFESTS.len()
            }
            Condition::Api => self.with(Role::ControlPlane).iter().any(|h| self.api_serves(h)),
            Condition::Endpoint => self.endpoint_serves(),
            Condition::Applied(addon) => self.applied(addon),
            Condition::Pruned(addon) => self.stale(addon).is_empty(),
            Condition::NodeGone(h) => !self.unknown_nodes.contains_key(h),
            Condition::Drained(h) => !self.pods.values().any(|at| at.as_ref() == Some(h)),
            Condition::Schedulable(h) => !self.cordoned.contains(h),
            Condition::Wired(_) => true,
            Condition::NodeReady(h) => self.node_ready(h),
            Condition::Wiped(h) => at(h).cluster_id.is_none() && at(h).disk.is_none() && at(h).units.values().all(|u| !u.running),
        }
    }

    /// Whether a host that answers still keeps previous files although its processes run with the new ones.
    pub fn keeps_what_has_passed(&self, name: &HostName) -> bool {
        let passed = |set: &FileSet| match set {
            FileSet::ControlPlane | FileSet::ControlPlaneConfig => self.api_serves(name),
            set => self.host_target(name).sets.get(set).is_none_or(|target| self.current(name, target)),
        };
        self.host(name).answers() && self.host(name).previous.keys().any(passed)
    }

    fn has_manifest(&self, host: &HostName) -> bool {
        let target = self.host_target(host);
        let files = target.sets.get(&FileSet::ControlPlane).map(|set| set.files.clone()).unwrap_or_default();
        files.iter().filter(|file| file.path == super::make::MANIFESTS[0]).all(|file| self.host(host).has(file))
    }

    fn list(&self) -> Option<&super::member::Cluster> {
        self.clusters.get(&self.living()?)
    }

    fn current(&self, host: &HostName, set: &SetTarget) -> bool {
        let host = self.host(host);
        let answers = |unit: &&UnitName| !host.frozen.contains(unit.as_str());
        let Some(unit) = set.unit.as_ref().filter(answers).and_then(|u| host.units.get(u)) else { return false };
        let files = set.files.iter().filter_map(|f| host.files.get(&f.path)).map(|f| f.changed_ms);
        let leaves = set.reads.iter().filter_map(|id| host.leaves.get(id)).map(|l| l.changed_ms);
        let newest = files.chain(leaves).max().unwrap_or(0);
        let since = if set.reload { unit.started_ms.max(unit.reloaded_ms) } else { unit.started_ms };
        unit.running && unit.enabled && since >= newest
    }

    /// Whether a restart would interrupt a unit that serves.
    pub fn serves_by(&self, host: &HostName, set: FileSet) -> bool {
        match set {
            FileSet::ControlPlane => self.host(host).taken.is_none() && self.api_serves(host),
            FileSet::Os
            | FileSet::Trust
            | FileSet::Etcd
            | FileSet::Fence
            | FileSet::EtcdBalancer
            | FileSet::Runtime
            | FileSet::Registries
            | FileSet::Kubelet
            | FileSet::ControlPlaneConfig
            | FileSet::LoadBalancer
            | FileSet::VrrpFilter
            | FileSet::Keepalived
            | FileSet::Approver
            | FileSet::State
            | FileSet::Snapshots
            | FileSet::Renewal
            | FileSet::Drills
            | FileSet::Guard
            | FileSet::Hosting
            | FileSet::NodeAgent
            | FileSet::Metrics
            | FileSet::FormerBalancer
            | FileSet::FormerControlPlane
            | FileSet::FormerEtcd
            | FileSet::FormerNode => false,
        }
    }
}
