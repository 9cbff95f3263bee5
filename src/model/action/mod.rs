//! What a step does, as data: its target, its timeout, what it disturbs, and its words.
//!
//! In: chosen by `plan/`. Out: performed by `execute/`, one exhaustive match; shown by `report/`. The actions are in
//! `table.rs`; this file has what their entries are made of.

mod table;

use super::boot::NODE_AGENT;
use super::healing;
use super::hosting;
use super::metrics;
use super::names::{HostName, PeerUrl, UnitName};
use super::recovery::Recovery;
use super::target::FileSet;
use super::units::{APPROVER_UNIT, POSITIONS_UNIT};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

pub use table::{Action, Kind};

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

impl fmt::Display for InitialClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New { initial_members, .. } => write!(f, "as one of {} initial members", initial_members.len()),
            Self::Existing { .. } => f.write_str("as a learner"),
            Self::Restart => f.write_str("from its data"),
        }
    }
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
    /// It uses its current files and did not answer. The host asks it again, and restarts it only if it still does not.
    RestartIfHung,
    /// It uses older files and can reload them.
    Reload,
}

impl HowToRun {
    /// What happens to the unit, as a verb.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Restart | Self::RestartIfHung => "restart",
            Self::Reload => "reload",
        }
    }
    /// On which condition, as the end of a clause.
    fn only_if(self) -> &'static str {
        if self == Self::RestartIfHung { " if it still does not answer" } else { "" }
    }
    /// Whether the unit may be interrupted.
    pub fn restarts(self) -> bool {
        matches!(self, Self::Restart | Self::RestartIfHung)
    }
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

/// What an action disturbs, for the first line of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disturbs {
    /// How much.
    pub impact: Impact,
    /// So many of something.
    pub count: usize,
    /// Of what.
    pub noun: &'static str,
    /// What happens to `{}`, the number of all that the plan does this to; `{is}` follows the number.
    pub words: &'static str,
}

impl Disturbs {
    /// Nothing that serves.
    pub const NOTHING: Self = Self { impact: Impact::None, count: 0, noun: "", words: "" };
    /// One replica of a redundant component.
    pub const RESTART: Self =
        Self { impact: Impact::Restart, count: 1, noun: "restart", words: "{}, one host at a time" };
    /// The list of etcd's members.
    const MEMBERSHIP: Self =
        Self { impact: Impact::Membership, count: 1, noun: "change", words: "{} of etcd's members" };

    /// Data.
    const fn data(count: usize, noun: &'static str, words: &'static str) -> Self {
        Self { impact: Impact::Destructive, count, noun, words }
    }
}

/// How several actions of one kind read in one phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Several {
    /// By name: `deliver etcd`, or `deliver 2 parts: etcd, kubelet`. Without a noun they are not counted.
    Names {
        /// What is done.
        verb: &'static str,
        /// To what.
        noun: &'static str,
        /// Its name.
        name: String,
    },
    /// Counted: `write 3 files: etcd, kubelet`.
    Things {
        /// What is done.
        verb: &'static str,
        /// To how many things.
        count: usize,
        /// Of which kind.
        noun: &'static str,
        /// What they belong to, if that is said.
        of: String,
    },
}

impl Several {
    /// What is done.
    pub fn verb(&self) -> &'static str {
        let (Self::Names { verb, .. } | Self::Things { verb, .. }) = self;
        verb
    }
    /// Its name, or what the things belong to.
    pub fn name(&self) -> &str {
        let (Self::Names { name, .. } | Self::Things { of: name, .. }) = self;
        name
    }
    /// So many things.
    pub fn count(&self) -> usize {
        match self {
            Self::Names { .. } => 1,
            Self::Things { count, .. } => *count,
        }
    }
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

/// `1 step`, `3 steps`.
pub fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// What an interruption of a unit disturbs: nothing that serves depends on a guard, on the recorder of positions, on a
/// timer or on what serves metrics, and a CSR can wait for its approver.
fn outage(unit: &UnitName) -> Disturbs {
    let apart = [healing::UNIT, hosting::UNIT, metrics::UNIT, NODE_AGENT, APPROVER_UNIT, POSITIONS_UNIT]
        .contains(&unit.as_str());
    if apart || unit.as_str().ends_with(".timer") { Disturbs::NOTHING } else { Disturbs::RESTART }
}

/// What a member is restored from.
fn restored(recovery: &Recovery) -> String {
    if recovery.is_local() {
        return "it from its own data, as the first member".to_owned();
    }
    format!("from {}, as one of {} members", recovery.source, recovery.members.len())
}

/// The verb for a set of files: those of a role that the host lost are removed.
fn written(set: FileSet) -> &'static str {
    if set.is_former() { "remove" } else { "write" }
}

/// What happens to objects that are no longer wanted.
fn pruned(delete: &[String], keep: &[String]) -> String {
    match (delete, keep) {
        ([], _) => format!("stop managing {}", objects_in_words(keep)),
        (_, []) => format!("delete {}", objects_in_words(delete)),
        _ => format!("delete {}, stop managing {}", objects_in_words(delete), objects_in_words(keep)),
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
