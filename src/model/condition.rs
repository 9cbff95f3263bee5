//! Conditions: predicates about the cluster that connect the steps of a plan.
//!
//! In: named by `plan/` as what a step requires and provides. Out: evaluated from facts, and shown to people where one
//! does not hold.

use super::names::{Digest, HostName, PeerUrl, UnitName};
use super::target::FileSet;
use serde::Serialize;
use std::fmt;

/// One condition: provided by a step and required by others. A later run drops a step whose condition holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Condition {
    /// The host has the identity of this cluster.
    ClusterIdWritten(HostName),
    /// Users, directories, kernel modules and settings are as wanted.
    Prepared(HostName),
    /// The packages that the host needs are installed.
    Packaged(HostName),
    /// A part is on the host and verified.
    Delivered(HostName, Digest),
    /// An image is in containerd.
    Imported(HostName, Digest),
    /// A file set is as wanted.
    Configured(HostName, FileSet),
    /// The host keeps no previous files whose replacements have passed their trial.
    Accepted(HostName),
    /// All leaf certificates of the host are valid and issued for it.
    Certified(HostName),
    /// The unit is running with its current files.
    Running(HostName, UnitName),
    /// The unit is stopped.
    Stopped(HostName, UnitName),
    /// No static pod of a control plane is running on the host, and no manifest asks for one.
    PodsEnded(HostName),
    /// The member on the host is not the leader.
    Follows(HostName),
    /// At most half of the member's database is free pages.
    Dense(HostName),
    /// The member on the host has been started.
    Started(HostName),
    /// The host has no etcd data.
    Cleared(HostName),
    /// The kubelet, etcd and the static pods are stopped on the host.
    Halted(HostName),
    /// The snapshot of a recovery was taken and fetched.
    Taken(String),
    /// The member on the host has the data of the recovery.
    Restored(HostName),
    /// No member has this peer URL.
    Gone(PeerUrl),
    /// A member has this peer URL.
    Listed(PeerUrl),
    /// This member is a voter.
    Voter(PeerUrl),
    /// A member answers a linearizable read.
    Quorum,
    /// The host has the bootstrapped marker: no start of its member can bootstrap another cluster.
    Sealed(HostName),
    /// A host has a verified snapshot that is a few minutes old.
    Saved,
    /// The manifest of the API server on the host is as wanted.
    Manifest(HostName),
    /// The API server of the host is ready and uses its current manifest, whatever the other static pods use.
    ApiServer(HostName),
    /// The API server of the host is ready at its own address, and all static pods use their current manifests.
    Serving(HostName),
    /// An API server is ready at its own address.
    Api,
    /// The cluster endpoint reports ready.
    Endpoint,
    /// The objects of an add-on are as wanted.
    Applied(String),
    /// No unwanted objects of an add-on are left.
    Pruned(String),
    /// The Node exists and is Ready.
    NodeReady(HostName),
    /// The Node is cordoned and its evictable pods have left it.
    Drained(HostName),
    /// The Node is not cordoned by hactl.
    Schedulable(HostName),
    /// The pods of the host have addresses of its Node's Pod CIDR.
    Wired(HostName),
    /// There is no Node of this name.
    NodeGone(HostName),
    /// Nothing of the cluster is left running on the host.
    Wiped(HostName),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIdWritten(h) => write!(f, "the cluster's identity on {h}"),
            Self::Prepared(h) => write!(f, "{h} prepared"),
            Self::Packaged(h) => write!(f, "the required packages on {h}"),
            Self::Delivered(h, digest) => write!(f, "the part {} on {h}", digest.short()),
            Self::Imported(h, digest) => write!(f, "the image {} on {h}", digest.short()),
            Self::Configured(h, set) if set.is_former() => write!(f, "{set} removed from {h}"),
            Self::Configured(h, set) => write!(f, "{set} on {h}"),
            Self::Accepted(h) => write!(f, "no files on trial on {h}"),
            Self::Certified(h) => write!(f, "valid certificates on {h}"),
            Self::Running(h, unit) => write!(f, "{unit} running on {h}"),
            Self::Stopped(h, unit) => write!(f, "{unit} stopped on {h}"),
            Self::PodsEnded(h) => write!(f, "the control plane's static pods stopped on {h}"),
            Self::Follows(h) => write!(f, "an etcd leader other than {h}"),
            Self::Dense(h) => write!(f, "a defragmented etcd database on {h}"),
            Self::Started(h) => write!(f, "etcd started on {h}"),
            Self::Cleared(h) => write!(f, "no etcd data on {h}"),
            Self::Halted(h) => write!(f, "kubelet, static pods and etcd stopped on {h}"),
            Self::Taken(id) => write!(f, "the snapshot of recovery {id}"),
            Self::Restored(h) => write!(f, "restored etcd data on {h}"),
            Self::Gone(peer) => write!(f, "{peer} removed from the member list"),
            Self::Listed(peer) => write!(f, "{peer} in the member list"),
            Self::Voter(peer) => write!(f, "{peer} promoted to voter"),
            Self::Quorum => f.write_str("an etcd quorum"),
            Self::Sealed(h) => write!(f, "etcd marked as bootstrapped on {h}"),
            Self::Saved => f.write_str("a snapshot of the last few minutes"),
            Self::Manifest(h) => write!(f, "the API server's manifest on {h}"),
            Self::ApiServer(h) => write!(f, "the API server on {h} ready with its current manifest"),
            Self::Serving(h) => write!(f, "the API server on {h} ready"),
            Self::Api => f.write_str("a ready API server"),
            Self::Endpoint => f.write_str("the endpoint ready"),
            Self::Applied(addon) => write!(f, "{addon} applied"),
            Self::Pruned(addon) => write!(f, "the unwanted objects of {addon} deleted"),
            Self::NodeReady(h) => write!(f, "the Node {h} Ready"),
            Self::Drained(h) => write!(f, "the Node {h} drained"),
            Self::Schedulable(h) => write!(f, "the Node {h} schedulable"),
            Self::Wired(h) => write!(f, "the pods of {h} in their Node's Pod CIDR"),
            Self::NodeGone(h) => write!(f, "the Node {h} deleted"),
            Self::Wiped(h) => write!(f, "everything of the cluster removed from {h}"),
        }
    }
}
