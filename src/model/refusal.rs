//! Refusals: what hactl does not do because it would not be safe, with the numbers behind it.

use super::desired::Role;
use super::facts::Evidence;
use super::names::{ClusterName, Digest, HostName, PeerUrl};
use super::recovery::{Fullness, Origin};
use super::rotation::{NoRotation, Rotatable};
use super::version::{Minor, Version};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// A typed refusal. Exit code 3, except [`Refusal::Locked`] and [`Refusal::StateInUse`], which are 6.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Refusal {
    /// No quorum answers and a cluster exists or may exist.
    #[error(
        "etcd has no quorum: {} of {} etcd hosts answered, and no member can read or write",
        .evidence.iter().filter(|e| e.reachable).count(), .evidence.len()
    )]
    NoQuorum {
        /// What each host reported.
        evidence: Vec<Evidence>,
    },
    /// Some members report a quorum, and no majority of the etcd hosts confirms it.
    #[error("etcd's state is disputed: no majority of its hosts reports the same quorum and the same members")]
    Disputed {
        /// What each host reported.
        evidence: Vec<Evidence>,
    },
    /// etcd hosts did not answer, so a cluster may exist on them.
    #[error("cannot tell whether a cluster exists: {} did not answer", names(.unreachable))]
    CannotTell {
        /// Hosts that did not answer.
        unreachable: Vec<HostName>,
    },
    /// A membership change would leave too few healthy voters.
    #[error(
        "{what} would leave {healthy} {} of {voters} voters, fewer than the quorum of {quorum}{}",
        counted_as(.apart), without_connection(.apart)
    )]
    WouldLoseQuorum {
        /// The change.
        what: String,
        /// Healthy voters afterwards that are connected with one another.
        healthy: usize,
        /// Voters afterwards.
        voters: usize,
        /// Quorum afterwards.
        quorum: usize,
        /// Voters that did not answer, by name, or by peer URL where there is no name.
        unhealthy: Vec<String>,
        /// Pairs of voters that answered and have no peer connection, named likewise.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        apart: Vec<(String, String)>,
    },
    /// The member list is not as planned.
    #[error("etcd's member list changed during this run: {peer} is not as planned")]
    MembersChanged {
        /// The first difference.
        peer: PeerUrl,
    },
    /// The host belongs to another cluster.
    #[error(
        "{host} belongs to cluster {theirs}, not to {ours}{}",
        if *.same_name { " (same name, another CA)" } else { "" }
    )]
    OtherCluster {
        /// Which host.
        host: HostName,
        /// The cluster it belongs to.
        theirs: ClusterName,
        /// The cluster of the inventory.
        ours: ClusterName,
        /// Whether the names are equal and only the CA differs.
        same_name: bool,
    },
    /// Hosts are not the hosts that the inventory names.
    #[error("{}", .hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    OtherHost {
        /// Each.
        hosts: Vec<Misnamed>,
    },
    /// A host would get another name, and the Node of its old name would stay.
    #[error("{host} is the host {was} under another name, and the Node {was} is still in the cluster")]
    Renamed {
        /// Its name in the inventory.
        host: HostName,
        /// Its name in the cluster.
        was: HostName,
    },
    /// Another machine is the Node with the name of this host.
    #[error("the name {host} is in use: a kubelet at {at} reports for the Node {host}")]
    NameInUse {
        /// Which host.
        host: HostName,
        /// The address of the other machine.
        at: IpAddr,
    },
    /// The host has newer CAs or keys than the state directory.
    #[error("{host} has newer CAs or keys of this cluster than this state directory")]
    StateBehind {
        /// Which host.
        host: HostName,
    },
    /// A person works on another host of the control plane.
    #[error("{host} is not disturbed while {maintained} is in maintenance ({})", .maintenances.iter().map(HostName::as_str).collect::<Vec<_>>().join(", "))]
    InMaintenance {
        /// The host that a step would disturb.
        host: HostName,
        /// The host in maintenance.
        maintained: HostName,
        /// Its maintenances.
        maintenances: Vec<HostName>,
    },
    /// The cluster exists, but its state directory is missing.
    #[error("{host} belongs to cluster {cluster}, but {state} has no state of it")]
    StateLost {
        /// A host with the identity of the cluster.
        host: HostName,
        /// The cluster.
        cluster: ClusterName,
        /// Where the state should be.
        state: String,
    },
    /// Planning again gave the same plan: no progress.
    #[error("no progress: {steps} step(s) succeeded, and the next plan asks for the same again: {first}")]
    NoProgress {
        /// How many.
        steps: usize,
        /// The first of them.
        first: String,
    },
    /// Steps are left that cannot start, because no step provides a condition that they require.
    #[error("{steps} step(s) cannot start: {first}")]
    Blocked {
        /// How many steps lack a condition.
        steps: usize,
        /// What the first of them lacks.
        first: String,
    },
    /// Another run holds the lock.
    #[error("another run holds the lock on {host}: {holder}, since {since}")]
    Locked {
        /// Where.
        host: HostName,
        /// The other run.
        holder: String,
        /// Since when, RFC 3339.
        since: String,
    },
    /// Another run on this machine uses the state directory.
    #[error("another run uses the state directory {state}: {holder}")]
    StateInUse {
        /// The state directory.
        state: String,
        /// The other run.
        holder: String,
    },
    /// A CA or a key cannot be rotated now.
    #[error("{what} is not rotated: {why}")]
    CannotRotate {
        /// Which.
        what: Rotatable,
        /// Why not.
        why: NoRotation,
    },
    /// Too few hosts of current voters are locked to change etcd's members.
    #[error(
        "etcd's members cannot be changed: this run holds the lock of {locked} of {voters} voters, not of a majority"
    )]
    NoVoterLock {
        /// Voters whose hosts are locked.
        locked: usize,
        /// Voters.
        voters: usize,
    },
    /// Too few of etcd's hosts are locked to change its members.
    #[error(
        "etcd's members cannot be changed: this run holds the lock on {locked} of {hosts} etcd hosts, not on a majority"
    )]
    NoMajorityLock {
        /// Hosts with the role etcd on which this run holds the lock.
        locked: usize,
        /// Hosts with the role etcd.
        hosts: usize,
    },
    /// The inventory asks for a version that is more than one minor version ahead.
    #[error(
        "{component} on {host} has version {runs}, and the inventory asks for {wanted}: that skips a minor version"
    )]
    SkipsMinor {
        /// Where.
        host: HostName,
        /// The component that is too old.
        component: String,
        /// Its version.
        runs: Version,
        /// What the inventory asks for.
        wanted: Version,
        /// The minor version to upgrade to first; `None`: this hactl does not install it.
        first: Option<Minor>,
    },
    /// The inventory asks for an older minor version than the one that runs.
    #[error("{component} on {host} has version {runs}, and the inventory asks for {wanted}, an older minor version")]
    OlderMinor {
        /// Where.
        host: HostName,
        /// The component that is newer.
        component: String,
        /// Its version.
        runs: Version,
        /// What the inventory asks for.
        wanted: Version,
    },
    /// The inventory names no version of Kubernetes, and the default is another minor version than the one that runs.
    #[error(
        "the inventory names no version of Kubernetes, and {component} on {host} has version {runs}: this hactl \
         installs Kubernetes {wanted} by default"
    )]
    VersionNotNamed {
        /// Where.
        host: HostName,
        /// The component that shows which version the cluster runs.
        component: String,
        /// Its version.
        runs: Version,
        /// The default.
        wanted: Version,
    },
    /// The inventory names no version of Kubernetes, and nothing shows which one the cluster ran.
    #[error(
        "the inventory names no version of Kubernetes, and nothing shows which Kubernetes this cluster ran: this hactl \
         installs {wanted} by default"
    )]
    VersionUnknown {
        /// The default.
        wanted: Version,
    },
    /// Hosts lack packages that the bundle does not have for their distributions.
    #[error(
        "the bundle has no packages for {}, and loadBalancer.packages is bundle",
        .hosts.iter().map(|(host, distribution, _)| format!("{host} ({distribution})")).collect::<Vec<_>>().join(", ")
    )]
    NoPackages {
        /// Each host, its distribution as it reports it, and the packages that it lacks.
        hosts: Vec<(HostName, String, BTreeSet<String>)>,
        /// The distributions for which the bundle has packages.
        there: BTreeSet<String>,
    },
    /// The Pod CIDR or the Service CIDR of the cluster would change.
    #[error("{setting} cannot be changed: {what} is {is} in this cluster, and would become {will}")]
    RangeChanged {
        /// The key in the inventory.
        setting: &'static str,
        /// The value that differs.
        what: &'static str,
        /// Now.
        is: String,
        /// As the inventory asks for it.
        will: String,
    },
    /// A host named with `--prune` cannot be removed.
    #[error("{host} cannot be removed: {answer} of {others} other hosts with the role {role} answer")]
    CannotLeave {
        /// Which.
        host: HostName,
        /// The role that no reachable host would have.
        role: Role,
        /// Others that are to have it.
        others: usize,
        /// How many of them answer.
        answer: usize,
    },
    /// A role is to be removed from the last reachable host that has it.
    #[error("the role {role} cannot be removed from {host}: {answer} of {others} other hosts with that role answer")]
    LastOfRole {
        /// Which.
        host: HostName,
        /// Which role.
        role: Role,
        /// Others that are to have it.
        others: usize,
        /// How many of them answer.
        answer: usize,
    },
    /// A host that may hold the endpoint's VIP is no longer in the inventory and was not removed.
    #[error(
        "{host} is no longer in the inventory and still runs a load balancer: two hosts would hold the endpoint's VIP"
    )]
    LeftBehind {
        /// Which.
        host: HostName,
    },
    /// The inventory names other CAs or keys than the cluster uses.
    #[error("{}", .problems.join("\n"))]
    OtherAuthority {
        /// Each: which file, and what is wrong with it.
        problems: Vec<String>,
    },
    /// etcd's data is stored elsewhere than the inventory says.
    #[error("{}", elsewhere(.hosts, .wanted))]
    DataElsewhere {
        /// Each host with the directory of its data.
        hosts: Vec<(HostName, String)>,
        /// What the inventory says.
        wanted: String,
    },
    /// The change disturbs the cluster, and there is no terminal to ask on.
    #[error("this changes {what}, and there is no terminal to ask for consent")]
    NeedsConsent {
        /// What would be disturbed.
        what: String,
    },
    /// The person said no.
    #[error("not agreed: nothing was changed")]
    Declined,
    /// A cluster would be bootstrapped without some of its initial members.
    #[error("a cluster is bootstrapped by all its etcd hosts together, and --limit excludes {}", names(.left))]
    LimitedFounding {
        /// Initial members that may not be changed.
        left: Vec<HostName>,
    },
    /// A recovery has no source.
    #[error(
        "no readable source of etcd's data was found{}",
        .asked.as_ref().map_or_else(String::new, |origin| format!(" for {origin}"))
    )]
    NoSource {
        /// What was asked for.
        asked: Option<Origin>,
        /// What each host reported.
        hosts: Vec<Evidence>,
    },
    /// All snapshots that a recovery could use are unsigned.
    #[error("{}", unsigned(.bundles))]
    Unsigned {
        /// The names of their files.
        bundles: Vec<String>,
    },
    /// The snapshot that a recovery could use is not what it claims to be.
    #[error("{bundle} is forged: {why}")]
    Forged {
        /// Its file's name.
        bundle: String,
        /// How hactl knows it.
        why: String,
    },
    /// No state that was found has the CA that a person named.
    #[error("no state was found with the CA {}", .wanted.map_or_else(String::new, |wanted| wanted.fingerprint()))]
    OtherCa {
        /// Its fingerprint.
        wanted: Option<Digest>,
        /// The states that were found.
        claims: Vec<CaClaim>,
    },
    /// States were found whose CAs are not successors of one another.
    #[error("states with {} unrelated CAs were found: none of them is a successor of another", .claims.len())]
    SeveralCas {
        /// Each.
        claims: Vec<CaClaim>,
    },
    /// Hosts use another CA than a state has.
    #[error("the state from {from} has the CA {ca}, and another CA is in use on {differ}")]
    CaNotShown {
        /// Its fingerprint.
        ca: String,
        /// Where it was found.
        from: String,
        /// The hosts that use another one.
        differ: String,
    },
    /// No person has confirmed the fingerprint of the CA.
    #[error("it is not confirmed that {ca} is the CA of cluster {cluster}")]
    NeedsFingerprint {
        /// The cluster.
        cluster: ClusterName,
        /// The fingerprint of what was found.
        ca: String,
    },
    /// Members answer and hold different keys, and no majority shows which keys are right.
    #[error("etcd's members hold different keys, and no majority of them agrees")]
    NobodyAgrees {
        /// Each with the hash of its keys.
        hashes: Vec<(HostName, u32)>,
    },
    /// A restore was asked for that is not needed.
    #[error(
        "nothing is restored from {asked}: {}",
        if *.serves { "etcd has a quorum; its data would be lost" } else { "members have their data and can start" }
    )]
    NeedNot {
        /// What was asked for.
        asked: Origin,
        /// Whether a quorum answers.
        serves: bool,
        /// The source of a recovery that was started and is not finished.
        begun: Option<Origin>,
    },
    /// A snapshot is of a newer minor version of etcd than the one that would restore it.
    #[error("{bundle} is from etcd {of}, and the inventory has etcd {wanted}, which cannot read a newer minor version")]
    NewerEtcd {
        /// Its name.
        bundle: String,
        /// The version that it was taken from.
        of: Version,
        /// The one that would restore it.
        wanted: Version,
    },
    /// The last recovery was an undo.
    #[error("the last recovery was itself an undo, so it is not clear what another undo should restore")]
    Undone {
        /// What it restored.
        to: Origin,
    },
    /// There is nothing to restore with an undo.
    #[error("no reachable host has data that a recovery moved aside")]
    NothingAside,
    /// Data of more than one cluster was found, and only a person knows which one is wanted.
    #[error("{} and {} hold data of two different etcd clusters", .hosts.0, .hosts.1)]
    TwoOrigins {
        /// One host of each.
        hosts: (HostName, HostName),
    },
    /// A majority of the members have their data: there is nothing to restore.
    #[error("{intact} of {voters} voters have their data, a majority: they cannot reach one another, or do not start")]
    NotLost {
        /// Members whose data can be read.
        intact: usize,
        /// Voters.
        voters: usize,
    },
    /// The keys fill the quota.
    #[error("etcd is still full: after compaction and defragmentation its keys fill its quota")]
    StillFull {
        /// How full each member is.
        members: Vec<Fullness>,
    },
    /// The quota would be below the size of the database.
    #[error(
        "etcd.quotaGiB is {} GiB, and the database on {} has {} bytes: etcd would refuse all writes",
        .wanted >> 30,
        .members.iter().map(|one| one.host.as_str()).collect::<Vec<_>>().join(", "),
        .members.iter().map(|one| one.db_bytes).max().unwrap_or(0)
    )]
    QuotaBelowStored {
        /// What the inventory asks for, bytes.
        wanted: u64,
        /// Members that store as much or more.
        members: Vec<Fullness>,
    },
    /// Unreachable members could keep running as the old cluster.
    #[error(
        "{} may still be running: {quorum} of {voters} voters are a quorum of the old cluster", .unreachable.join(", ")
    )]
    MayLive {
        /// The hosts that do not answer.
        unreachable: Vec<String>,
        /// How many make a quorum.
        quorum: usize,
        /// Voters.
        voters: usize,
    },
    /// A preflight check failed.
    #[error("{}", .problems.join("\n"))]
    Preflight {
        /// Each: where and what.
        problems: Vec<String>,
    },
}

/// A host that is not the host that the inventory names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Misnamed {
    /// Its name in the inventory.
    pub host: HostName,
    /// Its address there.
    pub address: IpAddr,
    /// Which host it is; `None`: it has the identity of that host, which was another machine.
    pub is: Option<HostName>,
}

impl fmt::Display for Misnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, is } = self;
        match is {
            Some(is) => write!(f, "the machine at {address} is {is}, but the inventory calls it {host}"),
            None => {
                write!(f, "the machine at {address} has the identity of {host}, but is another machine than {host} was")
            }
        }
    }
}

fn names(hosts: &[HostName]) -> String {
    hosts.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
}

/// What the counted voters are: all of them are healthy, but some pairs may have no peer connection.
fn counted_as(apart: &[(String, String)]) -> &'static str {
    if apart.is_empty() { "healthy" } else { "connected" }
}

/// The members that have no peer connection, as the end of a sentence.
fn without_connection(apart: &[(String, String)]) -> String {
    let pair = |(one, other): &(String, String)| format!("{one} and {other} have no peer connection");
    let pairs: Vec<String> = apart.iter().map(pair).collect();
    if pairs.is_empty() { String::new() } else { format!(": {}", pairs.join(", ")) }
}

fn elsewhere(hosts: &[(HostName, String)], wanted: &str) -> String {
    let one = |(host, from): &(HostName, String)| {
        format!("{host}: etcd's data is in {from}, and the inventory says {wanted}")
    };
    hosts.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn unsigned(snapshots: &[String]) -> String {
    let (which, them) = match snapshots {
        [one] => (format!("{one} is"), "it"),
        more => (format!("{} snapshots are", more.len()), "them"),
    };
    format!("{which} not signed: an earlier hactl made {them}, or the signature was removed")
}

/// What a state says of its CA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaClaim {
    /// The fingerprint of the oldest CA from which an unbroken chain of cross-signed CAs leads to the current one.
    pub ca: String,
    /// The fingerprint of the current one, if it is another one.
    pub now: Option<String>,
    /// Where it was found.
    pub from: Vec<String>,
}
