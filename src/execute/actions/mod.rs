//! How each action is done: one exhaustive match from the plan's words to the host's vocabulary and the API.
//!
//! An action that is one operation on its host is one arm here. Others have their steps in a file beside this one.

mod certify;
mod drain;
mod hosting;
mod members;
mod node;
mod objects;
mod parts;
mod recover;
mod upgrade;
mod waits;

use super::act::{Doing, failed};
use super::walk::StepError;
use crate::model::control_plane::PROGRAMS;
use crate::model::names::HostName;
use crate::model::plan::{Action, InitialClusterState, Step};
use crate::model::target::FileSet;
use crate::observe::CrashLoopPolicy;
use crate::plan::{etcd_unit, kubelet_unit};
use crate::protocol::{FirstBoot, Leftovers, MemberChange, MemberStart, Op, SnapshotAsk};
use crate::render;

impl Doing<'_> {
    /// Does what the step says, whose precondition holds.
    pub(super) async fn act(&self, step: &Step) -> Result<(), StepError> {
        let data_dir = self.desired.etcd.data_dir.display().to_string();
        let known = |host| self.queries.host(host).map_err(failed);
        let (host, op) = match &step.action {
            // One operation on the host.
            Action::WriteClusterId { host } => (host, Op::WriteClusterId(self.queries.cluster_id.of(host))),
            Action::Prepare { host, .. } => {
                let mut preparation = render::preparation(&self.desired, known(host)?);
                if let Some(target) = self.target.hosts.get(host) {
                    preparation.openings.clone_from(&target.openings);
                }
                (host, Op::Prepare(preparation))
            }
            Action::InstallPackages { host, packages } => {
                (host, Op::InstallPackages { packages: packages.clone(), from: self.package_source(host) })
            }
            Action::Configure { host, set, paths, keep } => (host, self.write_files(host, *set, paths, *keep)),
            Action::Accept { host, sets } => (host, Op::Accept { sets: sets.clone() }),
            Action::RunUnit { host, unit, how } => {
                (host, Op::RunUnit { unit: unit.clone(), how: *how, no_wait: false })
            }
            Action::StopUnit { host, unit } => (host, Op::StopUnits { units: vec![unit.clone()] }),
            Action::ClearNode { host } => (host, Op::Wipe(render::clear_node(&self.desired, known(host)?))),
            Action::StartMember { host, state } => (host, Op::StartMember(member_start(&data_dir, state))),
            Action::Defragment { host } => (host, Op::Defragment { unit: etcd_unit(), data_dir }),
            Action::ArchiveData { host } => (host, Op::ArchiveData(render::own_etcd(&self.desired))),
            Action::Halt { host, serves } => {
                let unless_serving = (!serves).then(|| render::own_etcd(&self.desired));
                let units = vec![kubelet_unit(), etcd_unit()];
                (host, Op::Halt { unless_serving, units, programs: PROGRAMS.map(ToOwned::to_owned).into() })
            }
            Action::Seal { host } => (host, Op::Seal { data_dir, cluster: self.view(host).await?.cluster }),
            Action::RecreatePodNetwork { host } => (host, Op::Sweep(Leftovers::Wires)),
            Action::Wipe { host, delete } => (host, Op::Wipe(render::wipe(&self.desired, known(host)?, *delete))),

            // Several operations, or the API.
            Action::Deliver { host, digest, .. } => return self.deliver(host, digest).await,
            Action::Import { host, digest, .. } => return self.import(host, digest).await,
            Action::Certify { host, leaves } => return self.certify(host, leaves).await,
            Action::EndPods { host } => return self.end_pods(host).await,
            Action::MoveLeader { host, to } => return self.hand_over(host, Some(to)).await,
            Action::UpgradeKubelet { host, version, how, ready } => {
                return self.upgrade_kubelet(host, (version, *how, *ready)).await;
            }
            Action::SaveBundle { host } => return self.save_bundle(host).await,
            Action::TakeSnapshot { host, recovery, aside, reach, stays } => {
                let (aside, recovery) = (aside.clone(), recovery.clone());
                let ask = SnapshotAsk { data_dir, aside, recovery, reach: *reach, stays: *stays };
                return self.take_snapshot(host, ask).await;
            }
            Action::Restore { host, recovery } => return self.restore(host, recovery, data_dir).await,
            Action::ProveQuorum => return self.prove_quorum().await,
            Action::RemoveMember { peer } => {
                return self.change_members(MemberChange::Remove(peer.clone())).await;
            }
            Action::MoveMember { from, to } => {
                return self.change_members(MemberChange::Move(from.clone(), to.clone())).await;
            }
            Action::AddLearner { peer } => {
                return self.change_members(MemberChange::AddLearner(peer.clone())).await;
            }
            Action::Promote { peer } => return self.promote(peer).await,
            Action::AwaitServing { host, ends_hung, restart_kubelet } => {
                let tries = if step.rollback.is_empty() { CrashLoopPolicy::NEW } else { CrashLoopPolicy::TRIAL };
                if *ends_hung {
                    let (address, port) = (known(host)?.address, self.desired.api_port);
                    self.call(host, Op::EndHungApiServer { address, port }).await?;
                }
                return self.await_serving(host, (tries, *restart_kubelet)).await;
            }
            Action::Hold { host } => return self.hold(host).await,
            Action::HandOver { host, revision } => return self.hand_over_to_pods(host, revision).await,
            Action::AwaitApi => return self.await_api().await,
            Action::AwaitEndpoint => return self.await_endpoint().await,
            Action::Apply { addon, objects } => return self.apply(addon, objects).await,
            Action::Prune { addon, delete, keep } => return self.prune(addon, delete, keep).await,
            Action::AwaitNode { host } => return self.await_node(host).await,
            Action::Drain { host, .. } => return self.drain(host).await,
            Action::Uncordon { host } => return self.uncordon(host).await,
            Action::DeleteNode { node, end } => return self.delete_node(node, *end).await,
        };
        self.call(host, op).await.map(drop)
    }

    /// What is to change and is not among the files is a file that is not wanted any more.
    fn write_files(&self, host: &HostName, set: FileSet, paths: &[String], keep: bool) -> Op {
        let all = self.files.get(host).and_then(|sets| sets.get(&set)).map(Vec::as_slice).unwrap_or_default();
        let files = all.iter().filter(|f| paths.contains(&f.path)).cloned().collect();
        let remove = paths.iter().filter(|path| !all.iter().any(|f| &f.path == *path)).cloned().collect();
        Op::WriteFiles { files, remove, keep: keep.then_some(set) }
    }
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
        unit: etcd_unit(),
        data_dir: data_dir.to_owned(),
        first_boot: "/etc/etcd/first-boot.env".to_owned(),
        first,
    }
}
