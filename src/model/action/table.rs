//! The table of all actions: for each, its data, its timeout, what it disturbs, the condition that it provides, and its
//! words.
//!
//! An action is one entry here and one arm of the match in `execute/actions/mod.rs`. An entry reads: the data (`on
//! host` is the host that it runs on), how many seconds it may take, what it disturbs, the [`Stage`], the condition
//! that it provides, and its text. Optional are `several` (a phrase for several of the kind), `short` (the text on a
//! line of progress) and `done` (the same once it is done).

use super::{
    Disturbs, HowToRun, InitialClusterState, NodeEnd, Profile, Several, Stage, counted, outage, pruned, restored,
    written,
};
use crate::model::condition::Condition;
use crate::model::names::{Digest, HostName, PeerUrl, UnitName};
use crate::model::recovery::Recovery;
use crate::model::target::{CertId, FileSet};
use crate::model::units::kubelet_unit;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

macro_rules! actions {
    (@optional) => { None };
    (@optional $some:expr) => { Some($some) };
    ($(
        $(#[$doc:meta])*
        $name:ident $({ $(on $host:ident,)? $($(#[$field_doc:meta])+ $field:ident: $type:ty,)* })?
        within $seconds:expr, $disturbs:expr, $stage:ident, gives $gives:ident $(($($of:expr),+))?, says ($($says:tt)+)
        $(, several $several:expr)? $(, short ($($short:tt)+))? $(, done $done:literal)?;
    )+) => {
        /// What a step does.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        pub enum Action {
            $(
                $(#[$doc])*
                $name $({
                    $(
                        /// Where.
                        $host: HostName,
                    )?
                    $($(#[$field_doc])+ $field: $type,)*
                })?,
            )+
        }

        /// Which action, in the order of the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "they are explained at the actions")]
        pub enum Kind {
            $($name,)+
        }

        #[allow(unused_variables, reason = "an entry of the table names all its data and need not use all of it")]
        impl Action {
            /// Which one it is.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$name $({ $($host,)? .. })? => Kind::$name,)+
                }
            }

            /// The host it runs on, if it runs on one.
            pub fn host(&self) -> Option<&HostName> {
                match self {
                    $(Self::$name $({ $($host,)? .. })? => actions!(@optional $($($host)?)?),)+
                }
            }

            /// What it disturbs.
            pub fn disturbs(&self) -> Disturbs {
                match self {
                    $(Self::$name $({ $($host,)? $($field,)* })? => $disturbs,)+
                }
            }

            /// Timeout, impact and stage.
            pub fn profile(&self) -> Profile {
                let impact = self.disturbs().impact;
                match self {
                    $(Self::$name $({ $($host,)? $($field,)* })? => {
                        Profile { timeout: Duration::from_secs($seconds), impact, stage: Stage::$stage }
                    })+
                }
            }

            /// The condition that holds once it is done.
            pub fn provides(&self) -> Condition {
                match self {
                    $(Self::$name $({ $($host,)? $($field,)* })? => Condition::$gives $(($(Clone::clone($of)),+))?,)+
                }
            }

            /// How several of its kind read in one phrase, if that is more than their texts one after the other.
            pub fn several(&self) -> Option<Several> {
                match self {
                    $(Self::$name $({ $($host,)? $($field,)* })? => actions!(@optional $($several)?),)+
                }
            }

            /// Its text on a line of progress, if that is another one; `done` selects the text of a finished one.
            pub fn in_short(&self, done: bool) -> Option<String> {
                let (now, then): (Option<String>, Option<&str>) = match self {
                    $(Self::$name $({ $($host,)? $($field,)* })? => {
                        (actions!(@optional $(format!($($short)+))?), actions!(@optional $($done)?))
                    })+
                };
                then.filter(|_| done).map(ToOwned::to_owned).or(now)
            }
        }

        #[allow(unused_variables, reason = "an entry of the table names all its data and need not use all of it")]
        impl fmt::Display for Action {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name $({ $($host,)? $($field,)* })? => write!(f, $($says)+),)+
                }
            }
        }
    };
}

/// `kubelet` of `kubelet.service`; other kinds of units keep their suffix.
fn short(unit: &UnitName) -> String {
    unit.as_str().strip_suffix(".service").unwrap_or(unit.as_str()).to_owned()
}

// In the order in which the first line of a plan says what it disturbs.
actions! {
    /// Writes the identity of the cluster to the host.
    WriteClusterId { on host, }
    within 20, Disturbs::NOTHING, Prepare, gives ClusterIdWritten(host), says ("write the cluster's identity");

    /// Creates users and directories, loads modules, sets kernel settings, turns swap off.
    Prepare {
        on host,
        /// What is missing, in words.
        gaps: Vec<String>,
    }
    // A firewall manager takes rules one by one, about a second each on a busy host.
    within 180, Disturbs::NOTHING, Prepare, gives Prepared(host), says ("prepare: {}", gaps.join(", ")),
    short ("prepare it");

    /// Installs packages with the package manager of the host.
    InstallPackages {
        on host,
        /// Package names.
        packages: Vec<String>,
    }
    within 600, Disturbs::NOTHING, Prepare, gives Packaged(host), says ("install {}", packages.join(", "));

    /// Sends a part, verifies it on the host and installs it.
    Deliver {
        on host,
        /// Component name.
        part: String,
        /// Its digest.
        digest: Digest,
    }
    within 1800, Disturbs::NOTHING, Deliver,
    gives Delivered(host, digest), says ("deliver {part} ({})", digest.short()),
    several Several::Names { verb: "deliver", noun: "part", name: part.clone() };

    /// Imports a delivered image into containerd.
    Import {
        on host,
        /// Full reference.
        reference: String,
        /// Digest of the delivered archive.
        digest: Digest,
    }
    within 300, Disturbs::NOTHING, Deliver, gives Imported(host, digest), says ("import {reference}"),
    several Several::Names {
        verb: "import",
        noun: "image",
        // `coredns:v1.14.6` of `registry.k8s.io/coredns/coredns:v1.14.6`.
        name: reference.rsplit('/').next().unwrap_or(reference).to_owned(),
    };

    /// Writes a set of files. They are checked before they replace working ones.
    Configure {
        on host,
        /// Which set.
        set: FileSet,
        /// Paths that differ.
        paths: Vec<String>,
        /// Whether the previous files are kept on the host until the new ones have passed their trial: a process uses
        /// them.
        keep: bool,
    }
    within 60, Disturbs::NOTHING, Configure, gives Configured(host, set),
    says ("{} {set} ({})", written(*set), counted(paths.len(), "file")),
    several Several::Things { verb: written(*set), count: paths.len(), noun: "file", of: set.to_string() },
    short ("{} {set}", written(*set));

    /// Creates keys on the host, signs their CSRs here and installs the certificates.
    Certify {
        on host,
        /// Which.
        leaves: Vec<CertId>,
    }
    within 60, Disturbs::NOTHING, Configure, gives Certified(host),
    says ("issue {}", counted(leaves.len(), "certificate")),
    several Several::Things { verb: "issue", count: leaves.len(), noun: "certificate", of: String::new() };

    /// Deletes previous files whose replacements have passed their trial.
    Accept {
        on host,
        /// Which sets.
        sets: Vec<FileSet>,
    }
    within 30, Disturbs::NOTHING, Configure, gives Accepted(host),
    says ("delete the previous files of {}", sets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));

    /// Starts, restarts or reloads a unit and enables it.
    RunUnit {
        on host,
        /// Which.
        unit: UnitName,
        /// How.
        how: HowToRun,
    }
    within 120, if how.restarts() { outage(unit) } else { Disturbs::NOTHING }, ControlPlane,
    gives Running(host, unit),
    says ("{} {unit}{}", how.verb(), how.only_if()),
    several Several::Names { verb: how.verb(), noun: "", name: format!("{}{}", short(unit), how.only_if()) };

    /// Stops and disables a unit.
    StopUnit {
        on host,
        /// Which.
        unit: UnitName,
    }
    within 120, outage(unit), ControlPlane, gives Stopped(host, unit), says ("stop {unit}");

    /// Makes the kubelet stop the static pods of a host that no longer has a control plane, the API server last, and
    /// waits for their end.
    EndPods { on host, }
    within 120, Disturbs::RESTART, ControlPlane, gives PodsEnded(host),
    says ("stop the control plane's static pods, the API server last");

    /// Starts or restarts the kubelet with its new files, and waits until its Node reports the new version.
    UpgradeKubelet {
        on host,
        /// The new version.
        version: String,
        /// How.
        how: HowToRun,
        /// Whether its Node must also be Ready.
        ready: bool,
    }
    within 300, Disturbs::RESTART, ControlPlane, gives Running(host, &kubelet_unit()),
    says (
        "{} the kubelet with version {version}, and wait for its Node to report it{}",
        how.verb(), if *ready { " and be Ready" } else { "" }
    );

    /// Transfers etcd's leadership away from the member on a host.
    MoveLeader {
        on host,
        /// The peer URL of the next leader.
        to: PeerUrl,
    }
    within 60, Disturbs::NOTHING, Etcd, gives Follows(host), says ("transfer etcd's leadership to {to}");

    /// Takes a snapshot and verifies it by a restore before it counts.
    SaveBundle { on host, }
    within 1800, Disturbs::NOTHING, Etcd, gives Saved, says ("take a snapshot and verify it by a restore");

    /// Starts an etcd member.
    StartMember {
        on host,
        /// Its initial cluster state.
        state: InitialClusterState,
    }
    within 120, Disturbs::NOTHING, Etcd, gives Started(host), says ("start etcd {state}"), short ("start etcd");

    /// Stops the member, defragments its database and starts it again.
    Defragment { on host, }
    within 900, Disturbs::RESTART, Etcd,
    gives Dense(host), says ("stop etcd, defragment its database and start it again");

    /// Stops the kubelet, etcd and the static pods, for a recovery.
    Halt {
        on host,
        /// Whether its member may be serving, because a person asked to undo a recovery. Otherwise the host refuses to
        /// stop a serving member.
        serves: bool,
    }
    within 180, Disturbs::data(1, "host", "the control plane of {} is stopped"), Etcd, gives Halted(host),
    says ("stop the kubelet, the control plane's static pods and etcd");

    /// Takes a snapshot from the files of a stopped member, and fetches it.
    TakeSnapshot {
        on host,
        /// The recovery it is for.
        recovery: String,
        /// The directory of the data, if it was moved aside.
        aside: Option<String>,
        /// Raft term and index that its log must reach.
        reach: (u64, u64),
        /// Whether the same host is restored from it, so that the snapshot need not be sent back.
        stays: bool,
    }
    within 1800, Disturbs::NOTHING, Etcd, gives Taken(recovery),
    says ("take a snapshot of {}, which is not changed", aside.as_deref().unwrap_or("its data"));

    /// Replaces the data of the member with the snapshot. The previous data is moved aside.
    Restore {
        on host,
        /// The recovery it is for.
        recovery: Recovery,
    }
    within 1800, Disturbs::data(1, "member", "the data of {} is restored, and the current data moved aside"), Etcd,
    gives Restored(host),
    says ("restore {}", restored(recovery));

    /// Waits until etcd has a quorum.
    ProveQuorum
    within 120, Disturbs::NOTHING, Etcd, gives Quorum, says ("wait for etcd's quorum"), done "a quorum answers";

    /// Writes the bootstrapped marker next to the member's data, so that a later start can only join.
    Seal { on host, }
    within 30, Disturbs::NOTHING, Etcd, gives Sealed(host),
    says ("mark etcd as bootstrapped, so that a later start can only join"), short ("mark etcd as bootstrapped");

    /// Removes a member.
    RemoveMember {
        /// Its peer URL.
        peer: PeerUrl,
    }
    within 60, Disturbs::MEMBERSHIP, Etcd, gives Gone(peer), says ("remove member {peer}");

    /// Changes the peer URL of a member: its host has another address, or its disk is in another host.
    MoveMember {
        /// The previous peer URL.
        from: PeerUrl,
        /// The new one.
        to: PeerUrl,
    }
    within 60, Disturbs::MEMBERSHIP, Etcd, gives Listed(to), says ("change the peer URL of member {from} to {to}");

    /// Adds a learner.
    AddLearner {
        /// Its peer URL.
        peer: PeerUrl,
    }
    within 60, Disturbs::MEMBERSHIP, Etcd, gives Listed(peer), says ("add learner {peer}");

    /// Promotes a learner to voter once it has caught up.
    Promote {
        /// Its peer URL.
        peer: PeerUrl,
    }
    within 600, Disturbs::MEMBERSHIP, Etcd, gives Voter(peer), says ("promote {peer} once it has caught up");

    /// Waits for the host's API server.
    AwaitServing {
        on host,
        /// Whether it runs and did not answer: its processes are ended first if it still does not, and the kubelet
        /// starts it again.
        ends_hung: bool,
        /// Whether the kubelet is restarted afterwards. A kubelet that queried an API server before there was one backs
        /// off after each refusal, up to half a minute (client-go's reflectors: 0.8 s, doubled each time, jittered by
        /// as much again), and would not see its Node and its pods for that long.
        restart_kubelet: bool,
    }
    within 300, if *ends_hung { Disturbs::RESTART } else { Disturbs::NOTHING }, ControlPlane, gives Serving(host),
    says (
        "{}{}",
        if *ends_hung {
            "kill the API server if it still does not answer, and wait until it is back"
        } else {
            "wait for the API server"
        },
        if *restart_kubelet { ", then restart the kubelet" } else { "" }
    ),
    done "API server ready";

    /// Makes static pods run the control plane of a host again.
    Hold { on host, }
    within 300, Disturbs::RESTART, ControlPlane,
    gives Held(host), says ("run the control plane in static pods"), done "control plane in static pods";

    /// Lets pods of the `DaemonSets` take over the control plane of a host, one component after the other.
    HandOver {
        on host,
        /// The revision of the pods.
        revision: String,
    }
    within 420, Disturbs::RESTART, ControlPlane,
    gives Hosted(host), says ("hand the control plane over to pods of its DaemonSets (revision {revision})"),
    short ("hand the control plane over to its pods"), done "control plane in pods";

    /// Waits for the first API server.
    AwaitApi
    within 300, Disturbs::NOTHING, ControlPlane,
    gives Api, says ("wait for the first API server"), done "an API server ready";

    /// Waits for the cluster endpoint.
    AwaitEndpoint
    within 300, Disturbs::NOTHING, ControlPlane, gives Endpoint, says ("wait for the endpoint"), done "endpoint ready";

    /// Applies the objects of an add-on (server-side apply).
    Apply {
        /// Its name.
        addon: String,
        /// Objects that differ, as keys.
        objects: Vec<String>,
    }
    within 120, Disturbs::NOTHING, Cluster,
    gives Applied(addon), says ("apply {addon} ({})", counted(objects.len(), "object")),
    several Several::Things { verb: "apply", count: objects.len(), noun: "object", of: addon.clone() };

    /// Deletes objects that hactl applied and that are no longer wanted, and what they left on the hosts.
    Prune {
        /// The add-on they belonged to.
        addon: String,
        /// Objects to delete, as keys.
        delete: Vec<String>,
        /// Objects that stay in the cluster and that hactl no longer manages.
        keep: Vec<String>,
    }
    within if delete.is_empty() { 60 } else { 300 },
    if delete.is_empty() { Disturbs::NOTHING } else { Disturbs::data(delete.len(), "object", "{} {is} deleted") },
    Cluster, gives Pruned(addon),
    says ("{}", pruned(delete, keep));

    /// Waits for a Node to be Ready.
    AwaitNode { on host, }
    within 300, Disturbs::NOTHING, Cluster,
    gives NodeReady(host), says ("wait for the Node to be Ready"), done "Node ready";

    /// Cordons a Node and evicts its pods, as far as disruption budgets allow it.
    Drain {
        on host,
        /// How long it may take, seconds.
        within_s: u32,
    }
    within u64::from(*within_s), Disturbs::RESTART, Cluster,
    gives Drained(host), says ("drain the Node within {within_s} s");

    /// Makes a drained Node schedulable again.
    Uncordon { on host, }
    within 60, Disturbs::NOTHING, Cluster, gives Schedulable(host), says ("uncordon the Node");

    /// Deletes flannel's interfaces and stops the pods attached to them. flannel restarts and creates its interfaces in
    /// the Node's Pod CIDR; restarted pods get addresses of that range.
    RecreatePodNetwork { on host, }
    within 60, Disturbs { words: "pods that do not use the host network are killed on {}", noun: "host",
    ..Disturbs::RESTART },
    Cluster, gives Wired(host),
    says ("delete flannel's interfaces and stop the pods on them, so that both are created again");

    /// Deletes a Node that the inventory does not name, with its pods, once its kubelet no longer reports.
    DeleteNode {
        /// Which.
        node: HostName,
        /// Why its kubelet no longer reports.
        end: NodeEnd,
    }
    // The controller manager must become leader, then miss the kubelet for 50 s and half a minute more.
    within 240, Disturbs::data(1, "Node", "{} not in the inventory {is} deleted"), Cluster, gives NodeGone(node),
    says (
        "delete the Node {node} and its pods{}",
        if *end == NodeEnd::Stopped { "" } else { ", once its kubelet no longer reports" }
    );

    /// Stops and removes everything of the cluster on the host.
    Wipe {
        on host,
        /// Whether data is deleted rather than moved aside.
        delete: bool,
    }
    within 180, if *delete { Disturbs::data(1, "host", "the data of {} is DELETED") }
    else { Disturbs::data(1, "host", "{} {is} stopped, data moved aside") },
    Cluster, gives Wiped(host),
    says ("stop everything and {}", if *delete { "delete its data" } else { "move its data aside" });

    /// Stops the kubelet, containerd and their pods on a host that is no longer a Node, and moves their data aside.
    ClearNode { on host, }
    within 180, Disturbs::data(1, "host", "{} {is} no longer a Node, and the data of its pods is moved aside"), Cluster,
    gives Stopped(host, &kubelet_unit()),
    says ("stop the kubelet, containerd and their pods, and move their data aside");

    /// Moves a stale data directory aside.
    ArchiveData { on host, }
    within 60, Disturbs::data(1, "member", "stale data of {} is moved aside"), Etcd, gives Cleared(host),
    says ("move the stale etcd data aside");
}
