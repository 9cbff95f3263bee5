//! What a step does, as data: its target, its timeout, its impact, and its description for people.
//!
//! In: chosen by `plan/`. Out: performed by `execute/`, one exhaustive match; shown by `report/`.

use super::names::{Digest, HostName, PeerUrl, UnitName};
use super::recovery::Recovery;
use super::target::{CertId, FileSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How a member is started: etcd's `--initial-cluster-state`, and a restart from its own data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum InitialClusterState {
    /// As an initial member of a new cluster. All initial members get the same list and token.
    New {
        /// The initial cluster token: random, and never reused once quorum is confirmed.
        token: String,
        /// Name and peer URL of every initial member.
        initial_members: Vec<(HostName, PeerUrl)>,
    },
    /// As a new member of a running cluster, with the member list as it will be at that time.
    Existing {
        /// Name and peer URL of every member.
        members: Vec<(String, PeerUrl)>,
    },
    /// From the data on its disk.
    Restart,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Writes the identity of the cluster to the host.
    WriteClusterId {
        /// Where.
        host: HostName,
    },
    /// Creates users and directories, loads modules, sets kernel settings, turns swap off.
    Prepare {
        /// Where.
        host: HostName,
        /// What is missing, in words.
        gaps: Vec<String>,
    },
    /// Installs packages with the package manager of the host.
    InstallPackages {
        /// Where.
        host: HostName,
        /// Package names.
        packages: Vec<String>,
    },
    /// Sends a part, verifies it on the host and installs it.
    Deliver {
        /// Where.
        host: HostName,
        /// Component name.
        part: String,
        /// Its digest.
        digest: Digest,
    },
    /// Imports a delivered image into containerd.
    Import {
        /// Where.
        host: HostName,
        /// Full reference.
        reference: String,
        /// Digest of the delivered archive.
        digest: Digest,
    },
    /// Writes a set of files. They are checked before they replace working ones.
    Configure {
        /// Where.
        host: HostName,
        /// Which set.
        set: FileSet,
        /// Paths that differ.
        paths: Vec<String>,
        /// Whether the previous files are kept on the host until the new ones have passed their trial: a process uses
        /// them.
        keep: bool,
    },
    /// Creates keys on the host, signs their CSRs here and installs the certificates.
    Certify {
        /// Where.
        host: HostName,
        /// Which.
        leaves: Vec<CertId>,
    },
    /// Starts, restarts or reloads a unit and enables it.
    RunUnit {
        /// Where.
        host: HostName,
        /// Which.
        unit: UnitName,
        /// How.
        how: HowToRun,
    },
    /// Stops and disables a unit.
    StopUnit {
        /// Where.
        host: HostName,
        /// Which.
        unit: UnitName,
    },
    /// Makes the kubelet stop the static pods of a host that no longer has a control plane, the API server last, and
    /// waits for their end.
    EndPods {
        /// Where.
        host: HostName,
    },
    /// Stops the kubelet, containerd and their pods on a host that is no longer a Node, and moves their data aside.
    ClearNode {
        /// Where.
        host: HostName,
    },
    /// Transfers etcd's leadership away from the member on a host.
    MoveLeader {
        /// The host of the leader.
        host: HostName,
        /// The peer URL of the next leader.
        to: PeerUrl,
    },
    /// Starts or restarts the kubelet with its new files, and waits until its Node reports the new version.
    UpgradeKubelet {
        /// Where.
        host: HostName,
        /// The new version.
        version: String,
        /// How.
        how: HowToRun,
        /// Whether its Node must also be Ready.
        ready: bool,
    },
    /// Starts an etcd member.
    StartMember {
        /// Where.
        host: HostName,
        /// Its initial cluster state.
        state: InitialClusterState,
    },
    /// Stops the member, defragments its database and starts it again.
    Defragment {
        /// Where.
        host: HostName,
    },
    /// Moves a stale data directory aside.
    ArchiveData {
        /// Where.
        host: HostName,
    },
    /// Stops the kubelet, etcd and the static pods, for a recovery.
    Halt {
        /// Where.
        host: HostName,
        /// Whether its member may be serving, because a person asked to undo a recovery. Otherwise the host refuses to
        /// stop a serving member.
        serves: bool,
    },
    /// Takes a snapshot from the files of a stopped member, and fetches it.
    TakeSnapshot {
        /// Where.
        host: HostName,
        /// The recovery it is for.
        recovery: String,
        /// The directory of the data, if it was moved aside.
        aside: Option<String>,
        /// Raft term and index that its log must reach.
        reach: (u64, u64),
        /// Whether the same host is restored from it, so that the snapshot need not be sent back.
        stays: bool,
    },
    /// Takes a snapshot and verifies it by a restore before it counts.
    SaveBundle {
        /// Where.
        host: HostName,
    },
    /// Replaces the data of the member with the snapshot. The previous data is moved aside.
    Restore {
        /// Where.
        host: HostName,
        /// The recovery it is for.
        recovery: Recovery,
    },
    /// Waits until etcd has a quorum.
    ProveQuorum,
    /// Writes the bootstrapped marker next to the member's data, so that a later start can only join.
    Seal {
        /// Where.
        host: HostName,
    },
    /// Removes a member.
    RemoveMember {
        /// Its peer URL.
        peer: PeerUrl,
    },
    /// Changes the peer URL of a member: its host has another address, or its disk is in another host.
    MoveMember {
        /// The previous peer URL.
        from: PeerUrl,
        /// The new one.
        to: PeerUrl,
    },
    /// Adds a learner.
    AddLearner {
        /// Its peer URL.
        peer: PeerUrl,
    },
    /// Promotes a learner to voter once it has caught up.
    Promote {
        /// Its peer URL.
        peer: PeerUrl,
    },
    /// Deletes previous files whose replacements have passed their trial.
    Accept {
        /// Where.
        host: HostName,
        /// Which sets.
        sets: Vec<FileSet>,
    },
    /// Waits for the host's API server.
    AwaitServing {
        /// Where.
        host: HostName,
        /// Whether the kubelet is restarted afterwards. A kubelet that queried an API server before there was one backs
        /// off after each refusal, up to half a minute (client-go's reflectors: 0.8 s, doubled each time, jittered by
        /// as much again), and would not see its Node and its pods for that long.
        restart_kubelet: bool,
    },
    /// Waits for the first API server.
    AwaitApi,
    /// Waits for the cluster endpoint.
    AwaitEndpoint,
    /// Applies the objects of an add-on (server-side apply).
    Apply {
        /// Its name.
        addon: String,
        /// Objects that differ, as keys.
        objects: Vec<String>,
    },
    /// Deletes objects that hactl applied and that are no longer wanted, and what they left on the hosts.
    Prune {
        /// The add-on they belonged to.
        addon: String,
        /// Objects to delete, as keys.
        delete: Vec<String>,
        /// Objects that stay in the cluster and that hactl no longer manages.
        keep: Vec<String>,
    },
    /// Waits for a Node to be Ready.
    AwaitNode {
        /// Which.
        host: HostName,
    },
    /// Cordons a Node and evicts its pods, as far as disruption budgets allow it.
    Drain {
        /// Which.
        host: HostName,
        /// How long it may take, seconds.
        within_s: u32,
    },
    /// Makes a drained Node schedulable again.
    Uncordon {
        /// Which.
        host: HostName,
    },
    /// Deletes flannel's interfaces and stops the pods attached to them. flannel restarts and creates its interfaces in
    /// the Node's Pod CIDR; restarted pods get addresses of that range.
    RecreatePodNetwork {
        /// Where.
        host: HostName,
    },
    /// Deletes a Node that the inventory does not name, with its pods, once its kubelet no longer reports.
    DeleteNode {
        /// Which.
        node: HostName,
        /// Why its kubelet no longer reports.
        end: NodeEnd,
    },
    /// Stops and removes everything of the cluster on the host.
    Wipe {
        /// Where.
        host: HostName,
        /// Whether data is deleted rather than moved aside.
        delete: bool,
    },
}

/// Why the kubelet of a Node that is deleted no longer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum NodeEnd {
    /// hactl stopped it: there is nothing to wait for.
    Stopped,
    /// A person named the Node: a kubelet that still reports is an error.
    Asked,
    /// The Node is older than a recovery: if its kubelet still reports, the Node is left as it is.
    Abandoned,
}

/// How a unit is made to use its current files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HowToRun {
    /// It is stopped.
    Start,
    /// It uses older files.
    Restart,
    /// It uses older files and can reload them.
    Reload,
}

/// How much a step disturbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Impact {
    /// No serving process is touched.
    None,
    /// One replica of a redundant component restarts.
    Restart,
    /// etcd's membership changes.
    Membership,
    /// Data is deleted or moved aside.
    Destructive,
}

/// Timeout, impact and stage of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// How long it may take before it has failed.
    pub timeout: Duration,
    /// How much it disturbs.
    pub impact: Impact,
    /// Which stage its time is counted under.
    pub stage: Stage,
}

/// Stages for the summary of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Stage {
    /// Preparing hosts and packages.
    Prepare,
    /// Sending and importing parts.
    Deliver,
    /// Files and certificates.
    Configure,
    /// etcd.
    Etcd,
    /// kubelet, API servers, balancers.
    ControlPlane,
    /// Objects and Nodes.
    Cluster,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Prepare => "prepare",
            Self::Deliver => "deliver",
            Self::Configure => "configure",
            Self::Etcd => "etcd",
            Self::ControlPlane => "control plane",
            Self::Cluster => "cluster",
        })
    }
}

impl Action {
    /// The host it runs on, if it runs on one.
    pub fn host(&self) -> Option<&HostName> {
        match self {
            Self::WriteClusterId { host }
            | Self::Prepare { host, .. }
            | Self::InstallPackages { host, .. }
            | Self::Deliver { host, .. }
            | Self::Import { host, .. }
            | Self::Configure { host, .. }
            | Self::Certify { host, .. }
            | Self::RunUnit { host, .. }
            | Self::StopUnit { host, .. }
            | Self::EndPods { host }
            | Self::ClearNode { host }
            | Self::MoveLeader { host, .. }
            | Self::UpgradeKubelet { host, .. }
            | Self::SaveBundle { host }
            | Self::StartMember { host, .. }
            | Self::Defragment { host }
            | Self::ArchiveData { host }
            | Self::Halt { host, .. }
            | Self::TakeSnapshot { host, .. }
            | Self::Restore { host, .. }
            | Self::Seal { host }
            | Self::Accept { host, .. }
            | Self::AwaitServing { host, .. }
            | Self::AwaitNode { host }
            | Self::Drain { host, .. }
            | Self::Uncordon { host }
            | Self::RecreatePodNetwork { host }
            | Self::Wipe { host, .. } => Some(host),
            Self::ProveQuorum
            | Self::RemoveMember { .. }
            | Self::MoveMember { .. }
            | Self::AddLearner { .. }
            | Self::Promote { .. }
            | Self::AwaitApi
            | Self::AwaitEndpoint
            | Self::Apply { .. }
            | Self::Prune { .. }
            | Self::DeleteNode { .. } => None,
        }
    }

    /// Timeout, impact and stage; one exhaustive match.
    pub fn profile(&self) -> Profile {
        let p = |seconds, impact, stage| Profile { timeout: Duration::from_secs(seconds), impact, stage };
        match self {
            Self::WriteClusterId { .. } => p(20, Impact::None, Stage::Prepare),
            // A firewall manager takes rules one by one, about a second each on a busy host.
            Self::Prepare { .. } => p(180, Impact::None, Stage::Prepare),
            Self::InstallPackages { .. } => p(600, Impact::None, Stage::Prepare),
            Self::Deliver { .. } => p(1800, Impact::None, Stage::Deliver),
            Self::Import { .. } => p(300, Impact::None, Stage::Deliver),
            Self::Configure { .. } | Self::Certify { .. } => p(60, Impact::None, Stage::Configure),
            Self::RunUnit { how: HowToRun::Restart, .. } => p(120, Impact::Restart, Stage::ControlPlane),
            Self::StopUnit { .. } | Self::EndPods { .. } => p(120, Impact::Restart, Stage::ControlPlane),
            Self::ClearNode { .. } => p(180, Impact::Destructive, Stage::Cluster),
            Self::MoveLeader { .. } => p(60, Impact::None, Stage::Etcd),
            Self::RunUnit { .. } => p(120, Impact::None, Stage::ControlPlane),
            Self::Defragment { .. } => p(900, Impact::Restart, Stage::Etcd),
            Self::UpgradeKubelet { .. } => p(300, Impact::Restart, Stage::ControlPlane),
            Self::SaveBundle { .. } => p(1800, Impact::None, Stage::Etcd),
            Self::StartMember { .. } => p(120, Impact::None, Stage::Etcd),
            Self::ArchiveData { .. } => p(60, Impact::Destructive, Stage::Etcd),
            Self::Halt { .. } => p(180, Impact::Destructive, Stage::Etcd),
            Self::TakeSnapshot { .. } => p(1800, Impact::None, Stage::Etcd),
            Self::Restore { .. } => p(1800, Impact::Destructive, Stage::Etcd),
            Self::ProveQuorum => p(120, Impact::None, Stage::Etcd),
            Self::Accept { .. } => p(30, Impact::None, Stage::Configure),
            Self::Seal { .. } => p(30, Impact::None, Stage::Etcd),
            Self::RemoveMember { .. } | Self::MoveMember { .. } | Self::AddLearner { .. } => {
                p(60, Impact::Membership, Stage::Etcd)
            }
            Self::Promote { .. } => p(600, Impact::Membership, Stage::Etcd),
            Self::AwaitServing { .. } | Self::AwaitApi | Self::AwaitEndpoint => {
                p(300, Impact::None, Stage::ControlPlane)
            }
            Self::Apply { .. } => p(120, Impact::None, Stage::Cluster),
            Self::Prune { delete, .. } if delete.is_empty() => p(60, Impact::None, Stage::Cluster),
            Self::Prune { .. } => p(300, Impact::Destructive, Stage::Cluster),
            Self::AwaitNode { .. } => p(300, Impact::None, Stage::Cluster),
            Self::Drain { within_s, .. } => p(u64::from(*within_s), Impact::Restart, Stage::Cluster),
            Self::Uncordon { .. } => p(60, Impact::None, Stage::Cluster),
            Self::RecreatePodNetwork { .. } => p(60, Impact::Restart, Stage::Cluster),
            // The controller manager must become leader, then miss the kubelet for 50 s and half a minute more.
            Self::DeleteNode { .. } => p(240, Impact::Destructive, Stage::Cluster),
            Self::Wipe { .. } => p(180, Impact::Destructive, Stage::Cluster),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteClusterId { .. } => f.write_str("write the cluster's identity"),
            Self::Prepare { gaps, .. } => write!(f, "prepare: {}", gaps.join(", ")),
            Self::InstallPackages { packages, .. } => write!(f, "install {}", packages.join(", ")),
            Self::Deliver { part, digest, .. } => write!(f, "deliver {part} ({})", digest.short()),
            Self::Import { reference, .. } => write!(f, "import {reference}"),
            Self::Configure { set, paths, .. } => {
                let verb = if set.is_former() { "remove" } else { "write" };
                write!(f, "{verb} {set} ({} file{})", paths.len(), if paths.len() == 1 { "" } else { "s" })
            }
            Self::Accept { sets, .. } => {
                let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
                write!(f, "delete the previous files of {}", sets.join(", "))
            }
            Self::Certify { leaves, .. } => {
                write!(f, "issue {} certificate{}", leaves.len(), if leaves.len() == 1 { "" } else { "s" })
            }
            Self::RunUnit { unit, how, .. } => {
                let verb = match how {
                    HowToRun::Start => "start",
                    HowToRun::Restart => "restart",
                    HowToRun::Reload => "reload",
                };
                write!(f, "{verb} {unit}")
            }
            Self::StopUnit { unit, .. } => write!(f, "stop {unit}"),
            Self::EndPods { .. } => f.write_str("stop the control plane's static pods, the API server last"),
            Self::ClearNode { .. } => {
                f.write_str("stop the kubelet, containerd and their pods, and move their data aside")
            }
            Self::MoveLeader { to, .. } => write!(f, "transfer etcd's leadership to {to}"),
            Self::UpgradeKubelet { version, how, ready, .. } => {
                let verb = if *how == HowToRun::Start { "start" } else { "restart" };
                let node = if *ready { "report it and be Ready" } else { "report it" };
                write!(f, "{verb} the kubelet with version {version}, and wait for its Node to {node}")
            }
            Self::SaveBundle { .. } => f.write_str("take a snapshot and verify it by a restore"),
            Self::StartMember { state, .. } => match state {
                InitialClusterState::New { initial_members, .. } => {
                    write!(f, "start etcd as one of {} initial members", initial_members.len())
                }
                InitialClusterState::Existing { .. } => f.write_str("start etcd as a learner"),
                InitialClusterState::Restart => f.write_str("start etcd from its data"),
            },
            Self::Defragment { .. } => f.write_str("stop etcd, defragment its database and start it again"),
            Self::ArchiveData { .. } => f.write_str("move the stale etcd data aside"),
            Self::Halt { .. } => f.write_str("stop the kubelet, the control plane's static pods and etcd"),
            Self::TakeSnapshot { aside: None, .. } => f.write_str("take a snapshot of its data, which is not changed"),
            Self::TakeSnapshot { aside: Some(name), .. } => {
                write!(f, "take a snapshot of {name}, which is not changed")
            }
            Self::Restore { recovery, .. } => {
                write!(f, "restore from {}, as one of {} members", recovery.source, recovery.members.len())
            }
            Self::ProveQuorum => f.write_str("wait for etcd's quorum"),
            Self::Seal { .. } => f.write_str("mark etcd as bootstrapped, so that a later start can only join"),
            Self::RemoveMember { peer } => write!(f, "remove member {peer}"),
            Self::MoveMember { from, to } => write!(f, "change the peer URL of member {from} to {to}"),
            Self::AddLearner { peer } => write!(f, "add learner {peer}"),
            Self::Promote { peer } => write!(f, "promote {peer} once it has caught up"),
            Self::AwaitServing { restart_kubelet: false, .. } => f.write_str("wait for the API server"),
            Self::AwaitServing { restart_kubelet: true, .. } => {
                f.write_str("wait for the API server, then restart the kubelet")
            }
            Self::AwaitApi => f.write_str("wait for the first API server"),
            Self::AwaitEndpoint => f.write_str("wait for the endpoint"),
            Self::Apply { addon, objects } => {
                write!(f, "apply {addon} ({} object{})", objects.len(), if objects.len() == 1 { "" } else { "s" })
            }
            Self::Prune { delete, keep, .. } if delete.is_empty() => {
                write!(f, "stop managing {}", objects_in_words(keep))
            }
            Self::Prune { delete, keep, .. } if keep.is_empty() => write!(f, "delete {}", objects_in_words(delete)),
            Self::Prune { delete, keep, .. } => {
                write!(f, "delete {}, stop managing {}", objects_in_words(delete), objects_in_words(keep))
            }
            Self::AwaitNode { .. } => f.write_str("wait for the Node to be Ready"),
            Self::Drain { within_s, .. } => write!(f, "drain the Node within {within_s} s"),
            Self::Uncordon { .. } => f.write_str("uncordon the Node"),
            Self::RecreatePodNetwork { .. } => {
                f.write_str("delete flannel's interfaces and stop the pods on them, so that both are created again")
            }
            Self::DeleteNode { node, end: NodeEnd::Stopped } => write!(f, "delete the Node {node} and its pods"),
            Self::DeleteNode { node, .. } => {
                write!(f, "delete the Node {node} and its pods, once its kubelet no longer reports")
            }
            Self::Wipe { delete: true, .. } => f.write_str("stop everything and delete its data"),
            Self::Wipe { delete: false, .. } => f.write_str("stop everything and move its data aside"),
        }
    }
}

/// Objects by key in words, no more of them than fit a line.
fn objects_in_words(keys: &[String]) -> String {
    let words: Vec<String> = keys.iter().take(12).map(|key| object_in_words(key)).collect();
    let more = keys.len().saturating_sub(words.len());
    if more == 0 { words.join(", ") } else { format!("{} and {more} more objects", words.join(", ")) }
}

/// `apiVersion|kind|namespace|name` in words.
pub fn object_in_words(key: &str) -> String {
    let mut parts = key.split('|').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    match (next(), next(), next()) {
        (kind, "", name) => format!("{kind} {name}"),
        (kind, namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}
