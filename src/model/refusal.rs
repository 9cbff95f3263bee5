//! Refusals: what hactl will not do because it would not be safe, with the numbers behind it and the way on.

use super::desired::Role;
use super::facts::Evidence;
use super::names::{ClusterName, Digest, HostName, PeerUrl};
use super::recovery::{Fullness, Origin};
use super::rotation::{NoRotation, Rotatable};
use super::version::{Minor, Version};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// A typed refusal. Exit code 3, except [`Refusal::Locked`] and [`Refusal::StateInUse`], which are 6.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Refusal {
    /// No quorum answers and a cluster exists or may exist.
    #[error("etcd has no quorum: {} of {} members' hosts answered, none can read or write", .evidence.iter().filter(|e| e.reachable).count(), .evidence.len())]
    NoQuorum {
        /// What each host said.
        evidence: Vec<Evidence>,
    },
    /// Some members claim a quorum, and no majority of those who must know confirms it.
    #[error(
        "it is disputed whether etcd has a quorum, and who its members are: no majority of its hosts says the same"
    )]
    Disputed {
        /// What each host said.
        evidence: Vec<Evidence>,
    },
    /// Etcd hosts did not answer, so nobody can tell whether a cluster exists.
    #[error("cannot tell whether a cluster exists: {} did not answer", names(.unreachable))]
    CannotTell {
        /// Hosts that did not answer.
        unreachable: Vec<HostName>,
    },
    /// A membership change would leave too few healthy voters.
    #[error("{what} would leave {healthy} healthy of {voters} voters, fewer than the quorum of {quorum}")]
    WouldLoseQuorum {
        /// The change.
        what: String,
        /// Healthy voters afterwards.
        healthy: usize,
        /// Voters afterwards.
        voters: usize,
        /// Quorum afterwards.
        quorum: usize,
    },
    /// The world is not what the plan assumed.
    #[error("the member list changed while we worked: {peer} is not as planned")]
    MembersChanged {
        /// The first difference.
        peer: PeerUrl,
    },
    /// The host belongs to another cluster.
    #[error("{host} belongs to cluster {theirs}, not to {ours}{}", if *.same_name { " (same name, another certificate authority)" } else { "" })]
    OtherCluster {
        /// Which host.
        host: HostName,
        /// The cluster it belongs to.
        theirs: ClusterName,
        /// The cluster of the inventory.
        ours: ClusterName,
        /// Whether the names are equal and only the authority differs.
        same_name: bool,
    },
    /// Hosts are not those that the inventory calls them.
    #[error("{}", .hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    OtherHost {
        /// Each.
        hosts: Vec<Misnamed>,
    },
    /// The host has heard of later authorities or keys than the administrator's state knows.
    #[error("{host} has authorities or keys of this cluster that are newer than those in this state")]
    StateBehind {
        /// Which host.
        host: HostName,
    },
    /// The cluster lives, but the administrator's state is gone.
    #[error("{host} belongs to cluster {cluster}, but there is no state for it at {state}")]
    StateLost {
        /// A host that carries the stamp.
        host: HostName,
        /// The cluster.
        cluster: ClusterName,
        /// Where the state should be.
        state: String,
    },
    /// Planning again gave the same plan: no progress.
    #[error("{steps} step(s) were run and planning again asks for the same: {first}")]
    NoProgress {
        /// How many.
        steps: usize,
        /// The first of them.
        first: String,
    },
    /// Work is left that cannot begin, because what it needs does not come to hold by itself.
    #[error("work is left that cannot begin ({steps} in all): {first}")]
    Blocked {
        /// How many lack something.
        steps: usize,
        /// What the first of them lacks.
        first: String,
    },
    /// Another run holds the lock.
    #[error("another run holds the lock on {host}: {holder}, since {since}")]
    Locked {
        /// Where.
        host: HostName,
        /// Who.
        holder: String,
        /// Since when, RFC 3339.
        since: String,
    },
    /// Another run on this machine works with the administrator's state.
    #[error("another run works with the state at {state}: {holder}")]
    StateInUse {
        /// Where the state is.
        state: String,
        /// Who.
        holder: String,
    },
    /// An authority or a key cannot be replaced now.
    #[error("{what} is not rotated: {why}")]
    CannotRotate {
        /// Which.
        what: Rotatable,
        /// Why not.
        why: NoRotation,
    },
    /// Too few hosts of those who vote now could be locked to change etcd's members.
    #[error(
        "etcd's members cannot be changed: this run holds the lock on the hosts of {locked} of {voters} voters, and a majority is needed"
    )]
    NoVoterLock {
        /// Voters whose hosts are locked.
        locked: usize,
        /// Voters.
        voters: usize,
    },
    /// Too few of etcd's hosts are locked to change its members.
    #[error(
        "members of etcd are to be changed, and the lock is held on {locked} of {hosts} of its hosts, not on a majority"
    )]
    NoMajorityLock {
        /// Hosts with the role etcd on which this run holds the lock.
        locked: usize,
        /// Hosts with the role etcd.
        hosts: usize,
    },
    /// The inventory asks for a version that is more than one minor version ahead.
    #[error(
        "{component} on {host} is of version {runs}, and the inventory asks for {wanted}: that skips a minor version"
    )]
    SkipsMinor {
        /// Where.
        host: HostName,
        /// What is too old.
        component: String,
        /// Its version.
        runs: Version,
        /// What the inventory asks for.
        wanted: Version,
        /// The minor version to go to first; `None`: this hactl does not install it.
        first: Option<Minor>,
    },
    /// The inventory asks for an older minor version than the one that runs.
    #[error("{component} on {host} is of version {runs}, and the inventory asks for {wanted}, an older minor version")]
    OlderMinor {
        /// Where.
        host: HostName,
        /// What is newer.
        component: String,
        /// Its version.
        runs: Version,
        /// What the inventory asks for.
        wanted: Version,
    },
    /// A range of addresses is to become another one.
    #[error("{setting} cannot be changed: {what} is {is} in this cluster, and would be {will}")]
    RangeChanged {
        /// The key in the inventory.
        setting: &'static str,
        /// What shows it.
        what: &'static str,
        /// As it is.
        is: String,
        /// As it would be.
        will: String,
    },
    /// A host that was named cannot leave.
    #[error("{host} cannot leave: {answer} of {others} other hosts with the role {role} answer")]
    CannotLeave {
        /// Which.
        host: HostName,
        /// The role that nobody who answers would have.
        role: Role,
        /// Others that are to have it.
        others: usize,
        /// How many of them answer.
        answer: usize,
    },
    /// A host is to give up a role, and nobody who answers would be left to have it.
    #[error("{host} cannot give up the role {role}: {answer} of {others} other hosts with that role answer")]
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
    /// A host that may hold the endpoint's address was taken out of the inventory and not let go.
    #[error(
        "{host} is not in the inventory any more and still runs a balancer: two hosts would hold the endpoint's address"
    )]
    LeftBehind {
        /// Which.
        host: HostName,
    },
    /// The inventory names other authorities or keys than the cluster was founded on.
    #[error("{}", .problems.join("\n"))]
    OtherAuthority {
        /// Each: which file, and what it is not.
        problems: Vec<String>,
    },
    /// etcd's data lies elsewhere than the inventory says.
    #[error("{}", .hosts.iter().map(|(host, from)| format!("{host}: etcd's data lies in {from}, and the inventory says {wanted}")).collect::<Vec<_>>().join("\n"))]
    DataElsewhere {
        /// Each host with the directory that its data lies in.
        hosts: Vec<(HostName, String)>,
        /// What the inventory says.
        wanted: String,
    },
    /// Something disruptive was asked for and nobody is there to agree.
    #[error("this changes {what} and there is no terminal to ask on")]
    NeedsConsent {
        /// What would be disturbed.
        what: String,
    },
    /// The person said no.
    #[error("not agreed: nothing was changed")]
    Declined,
    /// A cluster would be founded by some of its founders only.
    #[error("a cluster is founded by all its etcd hosts at once, and --limit leaves {} out", names(.left))]
    LimitedFounding {
        /// Founders that may not be changed.
        left: Vec<HostName>,
    },
    /// A recovery has nothing to begin with.
    #[error("nothing that can be read holds etcd's data{}", .asked.as_ref().map_or_else(String::new, |origin| format!(", as far as {origin} goes")))]
    NoSource {
        /// What was asked for.
        asked: Option<Origin>,
        /// What each host said.
        hosts: Vec<Evidence>,
    },
    /// All that a recovery could take is not signed.
    #[error("{} not signed: an earlier hactl made {}, or somebody took the signature off", match .bundles.as_slice() { [one] => format!("{one} is"), more => format!("{} snapshots are", more.len()) }, if .bundles.len() == 1 { "it" } else { "them" })]
    Unsigned {
        /// The names of their files.
        bundles: Vec<String>,
    },
    /// What a recovery could take is not what it claims to be.
    #[error("{bundle} is forged: {why}")]
    Forged {
        /// Its file's name.
        bundle: String,
        /// How that is known.
        why: String,
    },
    /// No state that was found is of the CA that a person knows.
    #[error("no state that was found is of the CA {}", .wanted.map_or_else(String::new, |wanted| wanted.fingerprint()))]
    OtherCa {
        /// Its fingerprint.
        wanted: Option<Digest>,
        /// What there is.
        claims: Vec<CaClaim>,
    },
    /// States were found of CAs that do not follow one another.
    #[error("the states that were found are of {} CAs that do not follow one another", .claims.len())]
    SeveralCas {
        /// Each.
        claims: Vec<CaClaim>,
    },
    /// Hosts live with another CA than a state has.
    #[error("{from} has a state of the CA {ca}, and {differ} live with another one")]
    CaNotShown {
        /// Its fingerprint.
        ca: String,
        /// Where it was found.
        from: String,
        /// Who lives with another one.
        differ: String,
    },
    /// Nobody has said that a CA is the cluster's.
    #[error("nobody has said that {ca} is the CA of {cluster}")]
    NeedsFingerprint {
        /// The cluster.
        cluster: ClusterName,
        /// The fingerprint of what was found.
        ca: String,
    },
    /// Members answer, hold different keys, and nobody can tell which ones are right.
    #[error("the members of etcd hold different keys, and no majority of them agrees")]
    NobodyAgrees {
        /// Each with the hash of its keys.
        hashes: Vec<(HostName, u32)>,
    },
    /// Something is to be restored where nothing has to be.
    #[error("nothing is restored from {asked}: {}", if *.serves { "etcd answers, and what it has would be lost" } else { "members have their data and only have to be started" })]
    NeedNot {
        /// What was asked for.
        asked: Origin,
        /// Whether a quorum answers.
        serves: bool,
        /// What a recovery restores that was begun and is not finished.
        begun: Option<Origin>,
    },
    /// A bundle is of a newer etcd than the one that would restore it.
    #[error(
        "{bundle} is of etcd {of}, and this inventory has etcd {wanted}, which does not read what a newer minor version wrote"
    )]
    NewerEtcd {
        /// Its name.
        bundle: String,
        /// The version that it was taken from.
        of: Version,
        /// The one that would restore it.
        wanted: Version,
    },
    /// The last recovery was an undo.
    #[error("the last recovery was an undo already, so it is not clear what another one should go back to")]
    Undone {
        /// What it went back to.
        to: Origin,
    },
    /// There is nothing to go back to.
    #[error("no host that answers has data that a recovery moved aside")]
    NothingAside,
    /// Data of more than one cluster was found, and only a person knows which one counts.
    #[error("{} and {} hold data of two etcd clusters", .hosts.0, .hosts.1)]
    TwoOrigins {
        /// One host of each.
        hosts: (HostName, HostName),
    },
    /// Enough members have their data: there is nothing to restore.
    #[error(
        "{intact} of {voters} members have their data, which is a majority: they do not reach one another, or do not start"
    )]
    NotLost {
        /// Members whose data can be read.
        intact: usize,
        /// Members with a vote.
        voters: usize,
    },
    /// What is stored fills the quota.
    #[error("etcd is still full: what its keys hold now fills its quota")]
    StillFull {
        /// How full who is.
        members: Vec<Fullness>,
    },
    /// The quota would be below what is stored.
    #[error(
        "etcd.quotaGiB is {} GiB, and {} stores {} bytes: etcd would take no more writes",
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
    /// Those who do not answer could go on as the old cluster.
    #[error("{} may still run: {quorum} of {voters} members are enough to go on as the old cluster", .dark.join(", "))]
    MayLive {
        /// Who does not answer.
        dark: Vec<String>,
        /// How many make a quorum.
        quorum: usize,
        /// Members with a vote.
        voters: usize,
    },
    /// A preflight check failed.
    #[error("{}", .problems.join("\n"))]
    Preflight {
        /// Each: where, what.
        problems: Vec<String>,
    },
}

/// A host that is not the one that the inventory calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Misnamed {
    /// Its name in the inventory.
    pub host: HostName,
    /// Its address there.
    pub address: IpAddr,
    /// Which host it is; `None`: it has the stamp of that host, which was another machine.
    pub is: Option<HostName>,
}

impl fmt::Display for Misnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, is } = self;
        match is {
            Some(is) => write!(f, "the machine at {address} is {is}, and the inventory calls it {host}"),
            None => {
                write!(f, "the machine at {address} has what belongs to {host}, and is another machine than {host} was")
            }
        }
    }
}

fn names(hosts: &[HostName]) -> String {
    hosts.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
}

/// What a state says of its CA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaClaim {
    /// The fingerprint of the oldest CA from which an unbroken chain leads to its own.
    pub ca: String,
    /// That of its own, where that is another one.
    pub now: Option<String>,
    /// Where it was found.
    pub from: Vec<String>,
}
