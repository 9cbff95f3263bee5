//! Marks: predicates about the world that join the steps of a plan to one another.
//!
//! In: named by `plan/` as what a step needs and gives. Out: judged from facts, and told to people where one does not hold.

use super::names::{Digest, HostName, PeerUrl, UnitName};
use super::target::FileSet;
use serde::Serialize;
use std::fmt;

/// One predicate about the world: what a step gives, what others need, and why a re-run may drop it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Condition {
    /// The host carries the stamp of this cluster.
    ClusterIdWritten(HostName),
    /// Users, directories, kernel modules and settings are as they should be.
    Prepared(HostName),
    /// The programs of the host's own packages are there.
    Packaged(HostName),
    /// A part lies verified on the host.
    Delivered(HostName, Digest),
    /// An image is in containerd's store.
    Imported(HostName, Digest),
    /// A file set is as it should be.
    Configured(HostName, FileSet),
    /// Nothing is kept on the host of what files replaced that have proven themselves.
    Accepted(HostName),
    /// All leaf certificates of the host are valid and its own.
    Certified(HostName),
    /// The unit runs by the files that are there now.
    Running(HostName, UnitName),
    /// The unit does not run.
    Stopped(HostName, UnitName),
    /// No static pod of a control plane runs on the host, and none is asked for there.
    PodsEnded(HostName),
    /// The member on the host does not lead.
    Follows(HostName),
    /// No more than half of the member's store holds nothing.
    Dense(HostName),
    /// The member on the host has been started.
    Started(HostName),
    /// No member runs by a stale data directory on the host.
    Cleared(HostName),
    /// Neither kubelet nor etcd nor a static pod runs on the host.
    Halted(HostName),
    /// The snapshot of a recovery was taken and fetched.
    Taken(String),
    /// The member on the host has the data of the recovery.
    Restored(HostName),
    /// Nobody in the member list has this peer URL.
    Gone(PeerUrl),
    /// The member list has this peer URL.
    Listed(PeerUrl),
    /// This member votes.
    Voter(PeerUrl),
    /// A quorum answers a linearizable read.
    Quorum,
    /// The host knows that its cluster was born: no start of it can found another.
    Sealed(HostName),
    /// A proven recovery bundle of a moment ago lies on some host.
    Saved,
    /// The API server's own manifest on the host is as it should be.
    Manifest(HostName),
    /// The API server of the host says ready and runs by its own manifest, whatever runs beside it.
    ApiServer(HostName),
    /// The API server of the host says ready by its own address.
    Serving(HostName),
    /// Some API server says ready by its own address.
    Api,
    /// The endpoint says ready.
    Endpoint,
    /// The objects of an add-on are as they should be.
    Applied(String),
    /// Nothing is left of an add-on that nobody asks for.
    Pruned(String),
    /// The Node exists and is Ready.
    NodeReady(HostName),
    /// Nothing runs on the Node that could run elsewhere, and nothing comes to it.
    Drained(HostName),
    /// hactl keeps no pods away from the Node.
    Schedulable(HostName),
    /// The pods of the host have addresses of its Node's range.
    Wired(HostName),
    /// There is no Node of this name.
    NodeGone(HostName),
    /// The host runs nothing of the cluster any more.
    Wiped(HostName),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIdWritten(h) => write!(f, "{h} marked as a host of this cluster"),
            Self::Prepared(h) => write!(f, "{h} prepared"),
            Self::Packaged(h) => write!(f, "the packages on {h}"),
            Self::Delivered(h, digest) => write!(f, "the part {} on {h}", digest.short()),
            Self::Imported(h, digest) => write!(f, "the image {} on {h}", digest.short()),
            Self::Configured(h, set) if set.is_former() => write!(f, "{set} removed from {h}"),
            Self::Configured(h, set) => write!(f, "{set} on {h}"),
            Self::Accepted(h) => write!(f, "the files on {h} accepted"),
            Self::Certified(h) => write!(f, "valid certificates on {h}"),
            Self::Running(h, unit) => write!(f, "{unit} running on {h}"),
            Self::Stopped(h, unit) => write!(f, "{unit} stopped on {h}"),
            Self::PodsEnded(h) => write!(f, "no control plane running on {h}"),
            Self::Follows(h) => write!(f, "another leader of etcd than {h}"),
            Self::Dense(h) => write!(f, "a dense store of etcd on {h}"),
            Self::Started(h) => write!(f, "etcd started on {h}"),
            Self::Cleared(h) => write!(f, "an empty etcd disk on {h}"),
            Self::Halted(h) => write!(f, "{h} at rest"),
            Self::Taken(id) => write!(f, "the snapshot of recovery {id}"),
            Self::Restored(h) => write!(f, "restored etcd data on {h}"),
            Self::Gone(peer) => write!(f, "{peer} gone from the member list"),
            Self::Listed(peer) => write!(f, "{peer} in the member list"),
            Self::Voter(peer) => write!(f, "a vote for {peer}"),
            Self::Quorum => f.write_str("a quorum that answers"),
            Self::Sealed(h) => write!(f, "etcd sealed on {h}"),
            Self::Saved => f.write_str("a recovery bundle of the last few minutes"),
            Self::Manifest(h) => write!(f, "the API server's manifest on {h}"),
            Self::ApiServer(h) => write!(f, "the new API server on {h} ready"),
            Self::Serving(h) => write!(f, "the API server on {h} ready"),
            Self::Api => f.write_str("an API server that is ready"),
            Self::Endpoint => f.write_str("the endpoint ready"),
            Self::Applied(addon) => write!(f, "{addon} applied"),
            Self::Pruned(addon) => write!(f, "what is left of {addon} deleted"),
            Self::NodeReady(h) => write!(f, "the Node {h} Ready"),
            Self::Drained(h) => write!(f, "the Node {h} drained"),
            Self::Schedulable(h) => write!(f, "the Node {h} open to pods"),
            Self::Wired(h) => write!(f, "the pods of {h} in their Node's range"),
            Self::NodeGone(h) => write!(f, "no Node {h} any more"),
            Self::Wiped(h) => write!(f, "{h} rid of the cluster"),
        }
    }
}
