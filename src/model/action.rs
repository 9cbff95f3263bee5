//! What a step does, as data: what it acts on, how long it may take, how much it disturbs, and how people are told of it.
//!
//! In: chosen by `plan/`. Out: performed by `execute/`, one exhaustive match; shown by `report/`.

use super::names::{Digest, HostName, PeerUrl, UnitName};
use super::recovery::Recovery;
use super::target::{CertId, FileSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How a member is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum InitialClusterState {
    /// As one of the founders, all of which get the same list and token.
    New {
        /// Random, spent once quorum is proven.
        token: String,
        /// Name and peer URL of every founder.
        initial_members: Vec<(HostName, PeerUrl)>,
    },
    /// Into a living cluster, by the member list as it will be then.
    Existing {
        /// Name and peer URL of every member.
        members: Vec<(String, PeerUrl)>,
    },
    /// From the data that is there.
    Restart,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Writes which cluster the host belongs to.
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
    /// Installs packages with the host's own package manager.
    InstallPackages {
        /// Where.
        host: HostName,
        /// Package names.
        packages: Vec<String>,
    },
    /// Sends a part, verifies it on the host and puts it in its place.
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
    /// Writes a set of files; checked before they replace good ones.
    Configure {
        /// Where.
        host: HostName,
        /// Which set.
        set: FileSet,
        /// Paths that differ.
        paths: Vec<String>,
        /// Whether what they replace is kept on the host until the new files have proven themselves: somebody runs by them.
        keep: bool,
    },
    /// Makes keys on the host, signs their requests here, installs the certificates.
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
    /// Stops a unit for good.
    StopUnit {
        /// Where.
        host: HostName,
        /// Which.
        unit: UnitName,
    },
    /// Lets the kubelet stop the static pods of a host that has no control plane any more, the API server last, and waits until they
    /// have ended.
    EndPods {
        /// Where.
        host: HostName,
    },
    /// Stops kubelet, containerd and all that they ran on a host that is no Node any more, and moves their data aside.
    ClearNode {
        /// Where.
        host: HostName,
    },
    /// The member on a host hands over the lead.
    MoveLeader {
        /// Who leads.
        host: HostName,
        /// The peer URL of the one that leads then.
        to: PeerUrl,
    },
    /// Brings the kubelet to run by its new files, and waits until its Node shows that it does.
    UpgradeKubelet {
        /// Where.
        host: HostName,
        /// The version that it is then.
        version: String,
        /// How.
        how: HowToRun,
        /// Whether its Node must be Ready then, and not only show it.
        ready: bool,
    },
    /// Starts an etcd member.
    StartMember {
        /// Where.
        host: HostName,
        /// As what.
        state: InitialClusterState,
    },
    /// Stops the member, writes its store anew without the room that holds nothing, and starts it again.
    Defragment {
        /// Where.
        host: HostName,
    },
    /// Moves a stale data directory aside.
    ArchiveData {
        /// Where.
        host: HostName,
    },
    /// Stops kubelet, etcd and the static pods, for a recovery.
    Halt {
        /// Where.
        host: HostName,
        /// Whether its member may serve, for a person goes back from what it has; else the host refuses to stop one that does.
        serves: bool,
    },
    /// Takes a snapshot from the files of a stopped member, and fetches it.
    TakeSnapshot {
        /// Where.
        host: HostName,
        /// The recovery it is for.
        recovery: String,
        /// The directory that holds the data, where it was moved aside.
        aside: Option<String>,
        /// Term and index that its log must reach.
        reach: (u64, u64),
        /// Whether the host is restored from it as well, so that it need not be sent back.
        stays: bool,
    },
    /// Takes a recovery bundle, which is proven before it is one.
    SaveBundle {
        /// Where.
        host: HostName,
    },
    /// Puts the snapshot in the place of the member's data, which is moved aside.
    Restore {
        /// Where.
        host: HostName,
        /// The recovery it is for.
        recovery: Recovery,
    },
    /// Waits until a quorum answers.
    ProveQuorum,
    /// Marks the member's disk as born, so that a later start can only join.
    Seal {
        /// Where.
        host: HostName,
    },
    /// Takes a member out of the list.
    RemoveMember {
        /// Its peer URL.
        peer: PeerUrl,
    },
    /// Lists a member under another peer URL: its host has another address, or its disk another host.
    MoveMember {
        /// The peer URL that it had.
        from: PeerUrl,
        /// The one that it has now.
        to: PeerUrl,
    },
    /// Adds a learner.
    AddLearner {
        /// Its peer URL.
        peer: PeerUrl,
    },
    /// Makes a caught-up learner vote.
    Promote {
        /// Its peer URL.
        peer: PeerUrl,
    },
    /// Lets go of what files replaced that have proven themselves.
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
        /// Whether the kubelet is restarted then. One that asked for an API before there was any waits longer after each
        /// refusal, up to half a minute (client-go's reflectors: 0.8 s, doubled each time, jittered by as much again), and
        /// would not see its Node and its pods for that long.
        restart_kubelet: bool,
    },
    /// Waits for the first API server.
    AwaitApi,
    /// Waits for the endpoint.
    AwaitEndpoint,
    /// Applies the objects of an add-on (server-side apply).
    Apply {
        /// Its name.
        addon: String,
        /// Objects that differ, as keys.
        objects: Vec<String>,
    },
    /// Deletes objects that hactl applied and that nobody asks for any more, and what they left on the hosts.
    Prune {
        /// The add-on they belonged to.
        addon: String,
        /// Objects to delete, as keys.
        delete: Vec<String>,
        /// Objects that stay, and that hactl has nothing to do with any more.
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
    /// Lets pods come to a Node again that was drained.
    Uncordon {
        /// Which.
        host: HostName,
    },
    /// Takes flannel's interfaces down and kills the pods that hang on them. flannel starts anew and makes them in the Node's range; so do those
    /// of the pods that are ever started again.
    RecreatePodNetwork {
        /// Where.
        host: HostName,
    },
    /// Deletes a Node that the inventory does not name, with its pods, once nobody reports for it any more.
    DeleteNode {
        /// Which.
        node: HostName,
        /// Why nobody reports for it.
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

/// Why nobody reports for a Node that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum NodeEnd {
    /// Its kubelet was stopped: there is nothing to wait for.
    Stopped,
    /// A person named it: one that lives is an error.
    Asked,
    /// It is of before a recovery: one that lives is left as it is.
    Abandoned,
}

/// How a unit is brought to run by its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HowToRun {
    /// It does not run.
    Start,
    /// It runs by older files.
    Restart,
    /// It runs by older files and can re-read them.
    Reload,
}

/// How much a step disturbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Impact {
    /// Nothing that serves is touched.
    None,
    /// One replica of something redundant restarts.
    Restart,
    /// Membership of etcd changes.
    Membership,
    /// Something is lost or moved aside.
    Destructive,
}

/// What an action means for whoever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// How long it may take before it counts as failed.
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
    /// The host it happens on, when it happens on one.
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

    /// Patience, impact and stage; one exhaustive match.
    pub fn profile(&self) -> Profile {
        let p = |seconds, impact, stage| Profile { timeout: Duration::from_secs(seconds), impact, stage };
        match self {
            Self::WriteClusterId { .. } => p(20, Impact::None, Stage::Prepare),
            // A firewall takes its rules one by one, about a second each on a host that is busy.
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
            // The controllers must lead first, and then miss a kubelet for 50 seconds, and for half a minute more.
            Self::DeleteNode { .. } => p(240, Impact::Destructive, Stage::Cluster),
            Self::Wipe { .. } => p(180, Impact::Destructive, Stage::Cluster),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteClusterId { .. } => f.write_str("mark as a host of this cluster"),
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
                write!(f, "let go of the earlier files of {}", sets.join(", "))
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
            Self::EndPods { .. } => f.write_str("stop the control plane's pods, the API server last"),
            Self::ClearNode { .. } => f.write_str("stop kubelet, containerd and their pods and move their data aside"),
            Self::MoveLeader { to, .. } => write!(f, "hand over etcd's lead to {to}"),
            Self::UpgradeKubelet { version, how, ready, .. } => {
                let verb = if *how == HowToRun::Start { "start" } else { "restart" };
                let node = if *ready { "be Ready by it" } else { "show it" };
                write!(f, "{verb} the kubelet as {version}, and wait for its Node to {node}")
            }
            Self::SaveBundle { .. } => f.write_str("take a recovery bundle, and prove it"),
            Self::StartMember { state, .. } => match state {
                InitialClusterState::New { initial_members, .. } => {
                    write!(f, "start etcd as one of {} founders", initial_members.len())
                }
                InitialClusterState::Existing { .. } => f.write_str("start etcd as a learner"),
                InitialClusterState::Restart => f.write_str("start etcd from its data"),
            },
            Self::Defragment { .. } => f.write_str("write etcd's store anew while it is down"),
            Self::ArchiveData { .. } => f.write_str("move the stale etcd data aside"),
            Self::Halt { .. } => f.write_str("stop kubelet, the control plane's pods and etcd"),
            Self::TakeSnapshot { aside: None, .. } => f.write_str("take a snapshot of its data, which stays as it is"),
            Self::TakeSnapshot { aside: Some(name), .. } => {
                write!(f, "take a snapshot of {name}, which stays as it is")
            }
            Self::Restore { recovery, .. } => {
                write!(f, "restore the snapshot of {}, as one of {} members", recovery.source, recovery.members.len())
            }
            Self::ProveQuorum => f.write_str("prove that a quorum answers"),
            Self::Seal { .. } => f.write_str("seal etcd: from now on it can only join"),
            Self::RemoveMember { peer } => write!(f, "remove member {peer}"),
            Self::MoveMember { from, to } => write!(f, "list member {from} as {to}"),
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
            Self::Prune { delete, keep, .. } if delete.is_empty() => write!(f, "let go of {}", objects_in_words(keep)),
            Self::Prune { delete, keep, .. } if keep.is_empty() => write!(f, "delete {}", objects_in_words(delete)),
            Self::Prune { delete, keep, .. } => {
                write!(f, "delete {}, let go of {}", objects_in_words(delete), objects_in_words(keep))
            }
            Self::AwaitNode { .. } => f.write_str("wait for the Node to be Ready"),
            Self::Drain { within_s, .. } => write!(f, "drain the Node within {within_s} s"),
            Self::Uncordon { .. } => f.write_str("uncordon the Node"),
            Self::RecreatePodNetwork { .. } => {
                f.write_str("take flannel's interfaces down and kill the pods on them, to be made anew")
            }
            Self::DeleteNode { node, end: NodeEnd::Stopped } => write!(f, "delete the Node {node} and its pods"),
            Self::DeleteNode { node, .. } => {
                write!(f, "delete the Node {node} and its pods, once its kubelet is silent")
            }
            Self::Wipe { delete: true, .. } => f.write_str("stop everything and delete its data"),
            Self::Wipe { delete: false, .. } => f.write_str("stop everything and move its data aside"),
        }
    }
}

/// Objects by key as people say them, not more of them than a line can bear.
fn objects_in_words(keys: &[String]) -> String {
    let words: Vec<String> = keys.iter().take(12).map(|key| object_in_words(key)).collect();
    let more = keys.len().saturating_sub(words.len());
    if more == 0 { words.join(", ") } else { format!("{} and {more} more objects", words.join(", ")) }
}

/// `apiVersion|kind|namespace|name` as people say it.
pub fn object_in_words(key: &str) -> String {
    let mut parts = key.split('|').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    match (next(), next(), next()) {
        (kind, "", name) => format!("{kind} {name}"),
        (kind, namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}
