//! How each action is done: one exhaustive match from the plan's words to the host's vocabulary and the API.

use super::api::{ApiClient, ConnectApi};
use super::precondition;
use super::recoveries::Recoveries;
use super::walk::{Perform, StepError};
use crate::kube;
use crate::model::desired::{Desired, Role};
use crate::model::event::{Event, Sink};
use crate::model::facts::EtcdView;
use crate::model::names::{Digest, HostName};
use crate::model::plan::{Action, HowToRun, InitialClusterState, Precondition, Step};
use crate::model::target::{CertId, CertSpec, FileSet, MANIFESTS, NODES, Part, Target, object_key};
use crate::observe::{CrashLoopPolicy, Queries};
use crate::protocol::{
    FilePut, FirstBoot, Leftovers, MemberChange, MemberStart, ObserveAsk, Op, Reply, SnapshotAsk, WaitCondition,
};
use crate::transport::{Agent, Agents, HostError, Payload, Progress};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Signs a request made on a host; the authority's key never leaves the administrator's side.
pub type Signing = Box<dyn Fn(&CertSpec, &str) -> Result<String, String> + Send + Sync>;
/// Finds the compressed, verified file of a blob.
pub type Blobs = Box<dyn Fn(&Digest) -> Result<PathBuf, String> + Send + Sync>;
/// Writes to the journal that etcd was born, or recovered, with its cluster id and revision.
pub type BootstrapRecord = Box<dyn Fn(&str, i64) -> Result<(), String> + Send + Sync>;

/// Deliveries under way at once to one host: one decompresses while the other arrives.
pub const DELIVERIES_PER_HOST: usize = 2;
/// Imports under way at once on one host: what is needed first is there first, and the disk has something to do meanwhile.
pub const IMPORTS_PER_HOST: usize = 2;

/// Between two looks at a member that is starting.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Everything the actions need.
pub struct Actuator {
    /// What is wanted.
    pub desired: Arc<Desired>,
    /// What each host should hold.
    pub target: Arc<Target>,
    /// The hosts that answered.
    pub machines: Agents,
    /// File contents by host and set.
    pub files: BTreeMap<HostName, BTreeMap<FileSet, Vec<FilePut>>>,
    /// What is asked of each host.
    pub queries: Queries,
    /// Signs leaf certificates.
    pub sign: Signing,
    /// Finds blobs.
    pub blob: Blobs,
    /// Writes to the journal that etcd was born, or recovered.
    pub record_bootstrap: BootstrapRecord,
    /// Where the snapshots of recoveries are kept on this side.
    pub recoveries: Recoveries,
    /// Makes API clients with a short-lived identity.
    pub api: Arc<dyn ConnectApi>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Slots for deliveries, per host.
    pub deliveries: BTreeMap<HostName, Arc<Semaphore>>,
    /// Slots for imports, per host.
    pub imports: BTreeMap<HostName, Arc<Semaphore>>,
    /// That the disk has the snapshot of a recovery, asked once for all hosts.
    pub synced: OnceCell<()>,
    /// The API client, made when the first API server serves.
    pub client: OnceCell<ApiClient>,
}

impl Actuator {
    /// So many fresh slots for each of these hosts.
    pub fn slots_for<'a>(hosts: impl Iterator<Item = &'a HostName>, each: usize) -> BTreeMap<HostName, Arc<Semaphore>> {
        hosts.map(|h| (h.clone(), Arc::new(Semaphore::new(each)))).collect()
    }

    pub(super) fn machine(&self, host: &HostName) -> Result<&Arc<dyn Agent>, StepError> {
        self.machines.get(host).ok_or_else(|| failed(format!("{host} is not connected")))
    }

    pub(super) async fn call(
        &self,
        index: usize,
        host: &HostName,
        op: Op,
        timeout: Duration,
    ) -> Result<Reply, StepError> {
        self.call_with(index, host, op, Payload::None, timeout).await
    }

    pub(super) async fn call_with(
        &self,
        index: usize,
        host: &HostName,
        op: Op,
        payload: Payload,
        timeout: Duration,
    ) -> Result<Reply, StepError> {
        let machine = self.machine(host)?;
        let watch = |progress: Progress| {
            self.sink.emit(match progress {
                Progress::Waiting(on) => Event::Waiting { step: index, on },
                Progress::Sent { done, total } => Event::Moved { step: index, done, total },
            });
        };
        machine.call(op, payload, timeout, &watch).await.map_err(step_error)
    }

    fn part(&self, host: &HostName, digest: &Digest) -> Result<Part, StepError> {
        let parts = self.target.hosts.get(host).map(|t| t.parts.as_slice()).unwrap_or_default();
        let found = parts.iter().find(|p| &p.digest == digest).cloned();
        found.ok_or_else(|| failed(format!("the bundle has no part {}", digest.short())))
    }

    fn leaves(&self, host: &HostName, ids: &[CertId]) -> Vec<CertSpec> {
        let all = self.target.hosts.get(host).map(|t| t.leaves.as_slice()).unwrap_or_default();
        all.iter().filter(|l| ids.contains(&l.id)).cloned().collect()
    }

    async fn certify(&self, index: usize, host: &HostName, ids: &[CertId], timeout: Duration) -> Result<(), StepError> {
        let leaves = self.leaves(host, ids);
        let reply = self.call(index, host, Op::MakeKeys { leaves: leaves.clone() }, timeout).await?;
        let Reply::Requests(requests) = reply else { return Err(unexpected(&reply)) };
        let mut certs = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let request = requests.get(&leaf.id);
            let request = request.ok_or_else(|| failed(format!("{host} made no request for {}", leaf.id)))?;
            let pem = (self.sign)(&leaf, request).map_err(failed)?;
            certs.push((leaf, pem));
        }
        self.call(index, host, Op::InstallCerts { certs }, timeout).await.map(drop)
    }

    pub(super) async fn change_members(
        &self,
        index: usize,
        change: MemberChange,
        timeout: Duration,
    ) -> Result<(), StepError> {
        let mut last = None;
        // A host that gave up the role may have the only member still.
        for host in self.desired.entered().map(|h| &h.name) {
            let Some(etcd) = self.queries.etcd(host) else { continue };
            if !self.machines.contains_key(host) || !precondition::speaks(self, host).await {
                continue;
            }
            match self.call(index, host, Op::ChangeMembers { etcd, change: change.clone() }, timeout).await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| failed("no member with a quorum behind it could be asked".to_owned())))
    }

    /// What the member on this host says of itself and its cluster. One that was only just started is waited for.
    async fn view(&self, index: usize, host: &HostName, timeout: Duration) -> Result<EtcdView, StepError> {
        let until = Instant::now() + timeout;
        loop {
            let etcd = self.queries.etcd(host).ok_or_else(|| failed(format!("{host} is no etcd host")))?;
            let ask = ObserveAsk { etcd: Some(etcd), ..ObserveAsk::default() };
            let reply = self.call(index, host, Op::Observe(Box::new(ask)), timeout).await?;
            let Reply::Facts(facts) = reply else { return Err(unexpected(&reply)) };
            if let Some(view) = facts.etcd.and_then(|e| e.view) {
                return Ok(view);
            }
            if Instant::now() + LOOK_AGAIN >= until {
                return Err(failed(format!("the member on {host} does not say which cluster it is of")));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Asks all these hosts at once: the first whose condition holds is enough, and one that waits for ever holds up nothing.
    async fn first_of<'a>(
        &self,
        index: usize,
        role: &str,
        asked: impl Iterator<Item = (&'a HostName, WaitCondition)>,
        timeout: Duration,
        within_ms: u64,
    ) -> Result<&'a HostName, StepError> {
        let ask = |(host, condition): (&'a HostName, WaitCondition)| {
            let op = Op::Await { condition, within_ms };
            Box::pin(async move { self.call(index, host, op, timeout).await.map(|_| host) })
        };
        let waits: Vec<_> = asked.map(ask).collect();
        if waits.is_empty() {
            return Err(failed(format!("no {role} host is connected")));
        }
        Ok(futures::future::select_ok(waits).await?.0)
    }

    fn connected(&self, role: Role) -> impl Iterator<Item = &HostName> {
        self.desired.with(role).map(|h| &h.name).filter(|h| self.machines.contains_key(*h))
    }

    async fn prove_quorum(&self, index: usize, timeout: Duration, within_ms: u64) -> Result<(), StepError> {
        let hosts = self.connected(Role::Etcd);
        let asked = hosts.filter_map(|host| Some((host, WaitCondition::EtcdQuorum(self.queries.etcd(host)?))));
        self.first_of(index, "etcd", asked, timeout, within_ms).await?;
        // One that says so proves nothing, and the journal keeps what it is told.
        let (cluster, revision) = precondition::answers(self, timeout / 2).await?;
        (self.record_bootstrap)(&cluster, revision).map_err(failed)
    }

    async fn await_api(&self, index: usize, timeout: Duration, within_ms: u64) -> Result<(), StepError> {
        let ask = |host| Ok((host, self.queries.serving(host, &self.target, CrashLoopPolicy::NEW).map_err(failed)?));
        let asked: Vec<_> = self.connected(Role::ControlPlane).map(ask).collect::<Result<_, StepError>>()?;
        self.first_of(index, "control-plane", asked.into_iter(), timeout, within_ms).await.map(drop)
    }

    /// An API client through the first control-plane host whose API server answers.
    ///
    /// # Errors
    /// When none does.
    pub async fn client(&self) -> Result<&ApiClient, StepError> {
        let connect = async {
            let mut last = failed("no control-plane host is connected".to_owned());
            for host in self.desired.with(Role::ControlPlane) {
                let Some(machine) = self.machines.get(&host.name) else { continue };
                match self.api.connect(&**machine, host.address, self.desired.api_port).await {
                    Ok(client) => return Ok(client),
                    Err(error) => last = failed(format!("{}: {error}", host.name)),
                }
            }
            Err(last)
        };
        self.client.get_or_try_init(|| connect).await
    }

    async fn apply(&self, name: &str, keys: &[String], timeout: Duration) -> Result<(), StepError> {
        let until = Instant::now() + timeout;
        let client = self.client().await?;
        let addon = self.target.addons.iter().find(|a| a.name == name);
        let objects = addon.map(|a| a.objects.as_slice()).unwrap_or_default();
        let all: Vec<String> = objects.iter().map(object_key).collect();
        if name != NODES {
            // On the list before it is there, so that nothing that hactl made is ever lost from sight.
            kube::record::note(client, name, &all, until).await.map_err(|e| failed(e.to_string()))?;
        }
        let due: Vec<&serde_json::Value> = objects.iter().filter(|o| keys.contains(&object_key(o))).collect();
        if name == MANIFESTS {
            return kube::manifests::apply(client, &due, until).await.map_err(|e| failed(e.to_string()));
        }
        for object in due {
            if object["kind"] == "Node" {
                registered(client, object, until).await?;
            }
            let key = object_key(object);
            client.apply(object, until).await.map_err(|e| failed(format!("{}: {e}", key.replace('|', " "))))?;
        }
        Ok(())
    }

    /// Deletes objects, sweeps the hosts after them, and only then takes them off the list: a run that is cut off begins again.
    async fn prune(
        &self,
        index: usize,
        addon: &str,
        delete: &[String],
        keep: &[String],
        timeout: Duration,
    ) -> Result<(), StepError> {
        let until = Instant::now() + timeout;
        let client = self.client().await?;
        let said = |e: kube::KubeError| failed(e.to_string());
        kube::manifests::delete(client, delete, until).await.map_err(said)?;
        let (what, label) = match addon {
            "kube-proxy" => (Some(Leftovers::KubeProxy), ("kube-system", "k8s-app%3Dkube-proxy")),
            "flannel" => (Some(Leftovers::Flannel), ("kube-flannel", "app%3Dflannel")),
            _ => (None, ("", "")),
        };
        if let Some(what) = what {
            self.pods_gone(index, client, label, until).await?;
            for host in self.desired.hosts.iter().filter(|h| h.is_node() && self.machines.contains_key(&h.name)) {
                self.call(index, &host.name, Op::Sweep(what), timeout).await?;
            }
        }
        kube::record::forget(client, addon, &[delete, keep].concat(), until).await.map_err(said)
    }

    /// Waits until no pod with this label is left in a namespace.
    async fn pods_gone(
        &self,
        index: usize,
        client: &kube::Client,
        (namespace, label): (&str, &str),
        until: Instant,
    ) -> Result<(), StepError> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        loop {
            let pods = client.list(&path, &format!("labelSelector={label}"), until).await;
            let left = pods.map_err(|e| failed(e.to_string()))?.len();
            if left == 0 {
                return Ok(());
            }
            let on = format!("{left} pods in {namespace} to end");
            if Instant::now() + LOOK_AGAIN >= until {
                return Err(failed(format!("waited in vain for {on}")));
            }
            self.sink.emit(Event::Waiting { step: index, on });
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// The programs of static pods, which read and write etcd.
const STATIC_PODS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Waits until a kubelet has made its Node.
async fn registered(client: &kube::Client, node: &serde_json::Value, until: Instant) -> Result<(), StepError> {
    let reference = kube::ObjectRef::of(node).map_err(|e| failed(e.to_string()))?;
    let there = |live: Option<&serde_json::Value>| live.map(drop).ok_or_else(|| "it is not registered yet".to_owned());
    let waited = client.wait(&reference, &format!("{reference} being registered"), until, there).await;
    waited.map(drop).map_err(|e| failed(e.to_string()))
}

/// Waits for a slot; in the order in which steps asked, which is the plan's.
async fn slot(slots: &BTreeMap<HostName, Arc<Semaphore>>, host: &HostName) -> Option<OwnedSemaphorePermit> {
    // Nobody closes the slots, and a host without any has no limit.
    Arc::clone(slots.get(host)?).acquire_owned().await.ok()
}

/// How long a host may wait for something, milliseconds: a second less than we wait for its answer, so that it says what it saw last.
pub(super) fn within_ms(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).saturating_sub(1000)
}

/// A failed step without a log.
pub(super) fn failed(what: String) -> StepError {
    StepError::Failed { what, tail: Vec::new() }
}

pub(super) fn unexpected(reply: &Reply) -> StepError {
    let text = format!("{reply:?}");
    failed(format!("the host answered something else than was asked: {}", text.chars().take(80).collect::<String>()))
}

fn step_error(error: HostError) -> StepError {
    let tail = error.tail().to_vec();
    StepError::Failed { what: error.to_string(), tail }
}

/// How an etcd member is started, from how it is born.
pub fn member_start(data_dir: &str, state: &InitialClusterState) -> MemberStart {
    let first = match state {
        InitialClusterState::New { token, initial_members } => Some(FirstBoot {
            token: Some(token.clone()),
            members: initial_members.iter().map(|(name, url)| (name.to_string(), url.clone())).collect(),
        }),
        InitialClusterState::Existing { members } => Some(FirstBoot { token: None, members: members.clone() }),
        InitialClusterState::Restart => None,
    };
    MemberStart {
        unit: crate::plan::etcd_unit(),
        data_dir: data_dir.to_owned(),
        first_boot: "/etc/etcd/first-boot.env".to_owned(),
        first,
    }
}

impl Perform for Actuator {
    async fn perform(&self, index: usize, step: &Step) -> Result<(), StepError> {
        let disturbed = self.disturbs(&step.action);
        match &step.precondition {
            Precondition::None => {}
            Precondition::Members { list } => {
                precondition::members_are(self, list, &step.action).await?;
            }
            Precondition::Tolerates { down } => {
                let what = if disturbed.is_some() {
                    precondition::Disturbs::Member
                } else {
                    precondition::Disturbs::ApiServer
                };
                precondition::tolerates(self, down, what, step.action.profile().timeout).await?;
            }
        }
        let Some((host, away)) = disturbed else { return self.act(index, step).await };
        self.must_not_lead(index, host).await?;
        if !self.is_passed_over(host, away) {
            return self.act(index, step).await;
        }
        self.pass_over(index, host, &step.action).await;
        let done = self.act(index, step).await;
        // One that is not back is left to the timer.
        if away.is_back(done.is_ok()) {
            self.pass_to(index, host).await;
        }
        done
    }

    async fn conclude(&self, index: usize, step: &Step, result: Result<(), StepError>) -> Result<(), StepError> {
        let ended = super::rollback::conclude(self, index, step, result).await;
        // It runs again, by the earlier files.
        if matches!(ended, Err(StepError::RolledBack { .. }))
            && let Some((host, away)) = self.disturbs(&step.action)
            && self.is_passed_over(host, away)
        {
            self.pass_to(index, host).await;
        }
        ended
    }
}

impl Actuator {
    /// Does what the step says, whose guard holds.
    async fn act(&self, index: usize, step: &Step) -> Result<(), StepError> {
        let timeout = step.action.profile().timeout;
        let data_dir = self.desired.etcd.data_dir.display().to_string();
        let ms = within_ms(timeout);
        match &step.action {
            Action::WriteClusterId { host } => {
                self.call(index, host, Op::WriteClusterId(self.queries.stamp.of(host)), timeout).await.map(drop)
            }
            Action::Prepare { host, .. } => {
                let mut preparation =
                    crate::render::preparation(&self.desired, self.queries.host(host).map_err(failed)?);
                if let Some(target) = self.target.hosts.get(host) {
                    preparation.openings.clone_from(&target.openings);
                }
                self.call(index, host, Op::Prepare(preparation), timeout).await.map(drop)
            }
            Action::InstallPackages { host, packages } => {
                let proxy = crate::render::proxy_variables(&self.desired);
                let op = Op::InstallPackages { packages: packages.clone(), proxy };
                self.call(index, host, op, timeout).await.map(drop)
            }
            Action::Deliver { host, digest, .. } => {
                let part = self.part(host, digest)?;
                let _slot = slot(&self.deliveries, host).await;
                let path = (self.blob)(digest).map_err(failed)?;
                self.call_with(index, host, Op::Deliver(part), Payload::Blob(path), timeout).await.map(drop)
            }
            Action::Import { host, digest, .. } => {
                let part = self.part(host, digest)?;
                let _slot = slot(&self.imports, host).await;
                self.call(index, host, Op::Import(part), timeout).await.map(drop)
            }
            Action::Configure { host, set, paths, keep } => {
                let all = self.files.get(host).and_then(|sets| sets.get(set)).map(Vec::as_slice).unwrap_or_default();
                let files = all.iter().filter(|f| paths.contains(&f.path)).cloned().collect();
                // What is to change and is not among the files is a file that is not wanted any more.
                let remove = paths.iter().filter(|path| !all.iter().any(|f| &f.path == *path)).cloned().collect();
                let keep = keep.then_some(*set);
                self.call(index, host, Op::WriteFiles { files, remove, keep }, timeout).await.map(drop)
            }
            Action::Accept { host, sets } => {
                self.call(index, host, Op::Accept { sets: sets.clone() }, timeout).await.map(drop)
            }
            Action::Certify { host, leaves } => self.certify(index, host, leaves, timeout).await,
            Action::RunUnit { host, unit, how } => {
                let op = Op::RunUnit { unit: unit.clone(), how: *how, no_wait: false };
                self.call(index, host, op, timeout).await.map(drop)
            }
            Action::StopUnit { host, unit } => {
                self.call(index, host, Op::StopUnits { units: vec![unit.clone()] }, timeout).await.map(drop)
            }
            Action::EndPods { host } => self.end_pods(index, host, timeout).await,
            Action::ClearNode { host } => {
                let ask = crate::render::clear_node(&self.desired, self.queries.host(host).map_err(failed)?);
                self.call(index, host, Op::Wipe(ask), timeout).await.map(drop)
            }
            Action::MoveLeader { host, to } => self.hand_over(index, host, Some(to), timeout).await,
            Action::UpgradeKubelet { host, version, how, ready } => {
                self.upgrade_kubelet(index, host, (version, *how, *ready), timeout).await
            }
            Action::SaveBundle { host } => self.save_bundle(index, host, timeout).await,
            Action::StartMember { host, state } => {
                let op = Op::StartMember(member_start(&data_dir, state));
                self.call(index, host, op, timeout).await.map(drop)
            }
            Action::Defragment { host } => {
                let op = Op::Defragment { unit: crate::plan::etcd_unit(), data_dir };
                self.call(index, host, op, timeout).await.map(drop)
            }
            Action::ArchiveData { host } => {
                let etcd = crate::render::own_etcd(&self.desired);
                self.call(index, host, Op::ArchiveData(etcd), timeout).await.map(drop)
            }
            Action::Halt { host, serves } => {
                let unless_serving = (!serves).then(|| crate::render::own_etcd(&self.desired));
                let units = vec![crate::plan::kubelet_unit(), crate::plan::etcd_unit()];
                let programs = STATIC_PODS.map(ToOwned::to_owned).into();
                self.call(index, host, Op::Halt { unless_serving, units, programs }, timeout).await.map(drop)
            }
            Action::TakeSnapshot { host, recovery, aside, reach, stays } => {
                let (aside, recovery) = (aside.clone(), recovery.clone());
                let ask = SnapshotAsk { data_dir, aside, recovery, reach: *reach, stays: *stays };
                self.take_snapshot(index, host, ask, timeout).await
            }
            Action::Restore { host, recovery } => self.restore(index, host, recovery, data_dir, timeout).await,
            Action::ProveQuorum => self.prove_quorum(index, timeout, ms).await,
            Action::Seal { host } => {
                let op = Op::Seal { data_dir, cluster: self.view(index, host, timeout).await?.cluster };
                self.call(index, host, op, timeout).await.map(drop)
            }
            Action::RemoveMember { peer } => {
                self.change_members(index, MemberChange::Remove(peer.clone()), timeout).await
            }
            Action::MoveMember { from, to } => {
                self.change_members(index, MemberChange::Move(from.clone(), to.clone()), timeout).await
            }
            Action::AddLearner { peer } => {
                self.change_members(index, MemberChange::AddLearner(peer.clone()), timeout).await
            }
            Action::Promote { peer } => self.promote(index, peer, timeout).await,
            Action::AwaitServing { host, restart_kubelet } => {
                let tries = if step.rollback.is_empty() { CrashLoopPolicy::NEW } else { CrashLoopPolicy::TRIAL };
                let condition = self.queries.serving(host, &self.target, tries).map_err(failed)?;
                self.call(index, host, Op::Await { condition, within_ms: ms }, timeout).await?;
                if *restart_kubelet {
                    let op = Op::RunUnit { unit: crate::plan::kubelet_unit(), how: HowToRun::Restart, no_wait: false };
                    self.call(index, host, op, timeout).await?;
                }
                Ok(())
            }
            Action::AwaitApi => self.await_api(index, timeout, ms).await,
            Action::AwaitEndpoint => {
                let asked = self.connected(Role::ControlPlane).map(|host| (host, self.queries.endpoint()));
                self.first_of(index, "control-plane", asked, timeout, ms).await.map(drop)
            }
            Action::Apply { addon, objects } => self.apply(addon, objects, timeout).await,
            Action::Prune { addon, delete, keep } => self.prune(index, addon, delete, keep, timeout).await,
            Action::AwaitNode { host } => self.await_node(index, host, timeout).await,
            Action::Drain { host, .. } => self.drain(index, host, timeout).await,
            Action::Uncordon { host } => self.uncordon(host, timeout).await,
            Action::RecreatePodNetwork { host } => {
                self.call(index, host, Op::Sweep(Leftovers::Wires), timeout).await.map(drop)
            }
            Action::DeleteNode { node, end } => self.delete_node(index, node, *end, timeout).await,
            Action::Wipe { host, delete } => {
                let ask = crate::render::wipe(&self.desired, self.queries.host(host).map_err(failed)?, *delete);
                self.call(index, host, Op::Wipe(ask), timeout).await.map(drop)
            }
        }
    }
}
