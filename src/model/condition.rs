//! Conditions: predicates about the cluster that connect the steps of a plan.
//!
//! In: named by `plan/` as what a step requires and provides. Out: evaluated from facts, and shown to people where one
//! does not hold.

use super::names::{Digest, HostName, PeerUrl, UnitName};
use super::target::FileSet;
use serde::Serialize;
use std::fmt;

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident $(($($part:ident: $type:ty),+))? => $words:literal $(, $value:expr)*;)+) => {
        /// One condition: provided by a step and required by others. A later run drops a step whose condition holds.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Condition {
            $($(#[$doc])* $name $(($($type),+))?,)+
        }

        impl fmt::Display for Condition {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name $(($($part),+))? => write!(f, $words $(, $value)*),)+
                }
            }
        }
    };
}

conditions! {
    /// The host has the identity of this cluster.
    ClusterIdWritten(h: HostName) => "the cluster's identity on {h}";
    /// Users, directories, kernel modules and settings are as wanted.
    Prepared(h: HostName) => "{h} prepared";
    /// The packages that the host needs are installed.
    Packaged(h: HostName) => "the required packages on {h}";
    /// A part is on the host and verified.
    Delivered(h: HostName, digest: Digest) => "the part {} on {h}", digest.short();
    /// An image is in containerd.
    Imported(h: HostName, digest: Digest) => "the image {} on {h}", digest.short();
    /// A file set is as wanted.
    Configured(h: HostName, set: FileSet) => "{set} {} {h}", if set.is_former() { "removed from" } else { "on" };
    /// The host keeps no previous files whose replacements have passed their trial.
    Accepted(h: HostName) => "no files on trial on {h}";
    /// All leaf certificates of the host are valid and issued for it.
    Certified(h: HostName) => "valid certificates on {h}";
    /// The unit is running with its current files.
    Running(h: HostName, unit: UnitName) => "{unit} running on {h}";
    /// The unit is stopped.
    Stopped(h: HostName, unit: UnitName) => "{unit} stopped on {h}";
    /// No static pod of a control plane is running on the host, and no manifest asks for one.
    PodsEnded(h: HostName) => "the control plane's static pods stopped on {h}";
    /// The member on the host is not the leader.
    Follows(h: HostName) => "an etcd leader other than {h}";
    /// At most half of the member's database is free pages.
    Dense(h: HostName) => "a defragmented etcd database on {h}";
    /// The member on the host has been started.
    Started(h: HostName) => "etcd started on {h}";
    /// The host has no etcd data.
    Cleared(h: HostName) => "no etcd data on {h}";
    /// The kubelet, etcd and the static pods are stopped on the host.
    Halted(h: HostName) => "kubelet, static pods and etcd stopped on {h}";
    /// The snapshot of a recovery was taken and fetched.
    Taken(id: String) => "the snapshot of recovery {id}";
    /// The member on the host has the data of the recovery.
    Restored(h: HostName) => "restored etcd data on {h}";
    /// No member has this peer URL.
    Gone(peer: PeerUrl) => "{peer} removed from the member list";
    /// A member has this peer URL.
    Listed(peer: PeerUrl) => "{peer} in the member list";
    /// This member is a voter.
    Voter(peer: PeerUrl) => "{peer} promoted to voter";
    /// A member answers a linearizable read.
    Quorum => "an etcd quorum";
    /// The host has the bootstrapped marker: no start of its member can bootstrap another cluster.
    Sealed(h: HostName) => "etcd marked as bootstrapped on {h}";
    /// A host has a verified snapshot that is a few minutes old.
    Saved => "a snapshot of the last few minutes";
    /// The manifest of the API server on the host is as wanted.
    Manifest(h: HostName) => "the API server's manifest on {h}";
    /// The API server of the host is ready and uses its current manifest, whatever the other static pods use.
    ApiServer(h: HostName) => "the API server on {h} ready with its current manifest";
    /// The API server of the host is ready at its own address, and all static pods use their current manifests.
    Serving(h: HostName) => "the API server on {h} ready";
    /// Static pods run on the host, and no pod of a `DaemonSet` may take over from them.
    Held(h: HostName) => "the control plane of {h} in static pods";
    /// Pods of the `DaemonSets` that the target has run the control plane of the host.
    Hosted(h: HostName) => "the control plane of {h} in pods of its DaemonSets";
    /// An API server is ready at its own address.
    Api => "a ready API server";
    /// The cluster endpoint reports ready.
    Endpoint => "the endpoint ready";
    /// The objects of an add-on are as wanted.
    Applied(addon: String) => "{addon} applied";
    /// No unwanted objects of an add-on are left.
    Pruned(addon: String) => "the unwanted objects of {addon} deleted";
    /// The Node exists and is Ready.
    NodeReady(h: HostName) => "the Node {h} Ready";
    /// The Node is cordoned and its evictable pods have left it.
    Drained(h: HostName) => "the Node {h} drained";
    /// The Node is not cordoned by hactl.
    Schedulable(h: HostName) => "the Node {h} schedulable";
    /// The pods of the host have addresses of its Node's Pod CIDR.
    Wired(h: HostName) => "the pods of {h} in their Node's Pod CIDR";
    /// There is no Node of this name.
    NodeGone(h: HostName) => "the Node {h} deleted";
    /// Nothing of the cluster is left running on the host.
    Wiped(h: HostName) => "everything of the cluster removed from {h}";
}
