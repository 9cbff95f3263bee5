//! Facts: one reply per host, and the state of etcd that all replies together show.
//!
//! In: decoded from `hactl host` by `host/`, put together by `observe/`. Out: read by `plan/` and `report/`.
//! Missing facts stay visible: a host that did not answer is [`Unreachable`], never an empty reply.

pub use super::api_fact::{ApiFact, LeaseFact, PodFact};
use super::certificate::CertificatesFact;
use super::dns::{RESOLV_CONF, RESOLVED};
use super::firewall::FirewallFact;
use super::guard_report::GuardFact;
use super::hosting::HostingFact;
use super::may_deny::MayDeny;
pub use super::members::{Member, Members};
use super::names::{ClusterName, Digest, HostName, PeerUrl, UnitName};
use super::positions::Position;
use super::snapshot::BundlesFact;
use super::target::{CertId, FileSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Why a host did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreachable {
    /// What happened, one sentence.
    pub why: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Everything observed in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Each host of the inventory: its facts, or why there are none.
    pub hosts: BTreeMap<HostName, Result<HostFacts, Unreachable>>,
    /// The same for hosts that are no longer in the inventory and may be removed.
    pub leaving: BTreeMap<HostName, Result<HostFacts, Unreachable>>,
    /// The state of etcd, derived from all hosts.
    pub etcd: Etcd,
    /// Per add-on, the objects that are missing or differ: object key and difference. An add-on without an entry could
    /// not be compared.
    pub drift: BTreeMap<String, Vec<(String, String)>>,
    /// Per add-on, objects that hactl applied and that are no longer wanted.
    pub stale: BTreeMap<String, Vec<Stale>>,
    /// The positions of etcd members that earlier runs recorded in the journal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub noted: Vec<Position>,
}

/// An object that hactl applied and that is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// Its key.
    pub key: String,
    /// Why it stays nevertheless; `None`: it is to be deleted.
    pub kept: Option<String>,
}

impl Facts {
    /// For tests: hosts, and nothing else.
    #[cfg(test)]
    pub fn of(hosts: BTreeMap<HostName, Result<HostFacts, Unreachable>>) -> Self {
        let (leaving, drift, stale) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { hosts, leaving, etcd: Etcd::Uninitialized, drift, stale, noted: Vec::new() }
    }

    /// Whether an object can exist now: the Node of an unreachable host is created later, by its kubelet.
    pub fn can_exist(object: &serde_json::Value, hosts: &BTreeMap<HostName, Result<HostFacts, Unreachable>>) -> bool {
        let name = object.pointer("/metadata/name").and_then(serde_json::Value::as_str);
        let node = name.filter(|_| object["kind"] == "Node");
        let answer = node.and_then(|name| hosts.iter().find(|(host, _)| host.as_str() == name));
        answer.is_none_or(|(_, answer)| answer.is_ok())
    }
    /// A host's facts, when it answered.
    pub fn host(&self, name: &HostName) -> Option<&HostFacts> {
        self.hosts.get(name).and_then(|r| r.as_ref().ok())
    }
    /// The facts of a host that is to be removed, when it answered.
    pub fn leaver(&self, name: &HostName) -> Option<&HostFacts> {
        self.leaving.get(name).and_then(|r| r.as_ref().ok())
    }
    /// Reports that are not trusted, each with its host.
    pub fn doubts(&self) -> impl Iterator<Item = (&HostName, &String)> {
        let said = self.hosts.iter().chain(&self.leaving).filter_map(|(host, f)| Some((host, f.as_ref().ok()?)));
        said.flat_map(|(host, facts)| facts.doubts.iter().map(move |doubt| (host, doubt)))
    }
    /// What may deny pods of the control plane, by all API servers together.
    pub fn may_deny(&self) -> BTreeSet<&MayDeny> {
        let apis = self.hosts.values().filter_map(|facts| facts.as_ref().ok()?.api.as_ref());
        apis.flat_map(|api| &api.may_deny).collect()
    }
    /// The id of the cluster with a quorum.
    pub fn living_cluster(&self) -> Option<&String> {
        self.living().map(|view| &view.cluster)
    }
    /// The report of a member with a quorum; of several, the median: no single member decides.
    pub fn living(&self) -> Option<&EtcdView> {
        let Etcd::HasQuorum(_) = &self.etcd else { return None };
        let entered = self.hosts.values().chain(self.leaving.values());
        let views = entered.filter_map(|f| f.as_ref().ok()?.etcd.as_ref()?.view.as_ref());
        let mut views: Vec<&EtcdView> = views.filter(|v| v.linearizable).collect();
        views.sort_by_key(|v| v.revision);
        views.get(views.len().saturating_sub(1) / 2).copied()
    }
}

/// The state of the etcd cluster. An unreachable host never counts as "no cluster yet".
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Etcd {
    /// Every etcd host answered, and none has data, an initial cluster token or a bootstrapped marker.
    Uninitialized,
    /// Every etcd host answered; some hold data of a bootstrap that was never confirmed, all with the same token.
    Bootstrapping {
        /// The token of that bootstrap.
        token: String,
    },
    /// A quorum answered a linearizable read.
    HasQuorum(Members),
    /// A cluster exists or may exist, and no quorum answers.
    NoQuorum(Vec<Evidence>),
    /// Some members report a quorum, and no majority of the etcd hosts confirms it.
    Disputed(Vec<Evidence>),
}

/// An observation on one host while etcd had no quorum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Where.
    pub host: HostName,
    /// What, in words.
    pub what: String,
    /// Whether this host still holds a data directory.
    pub has_data: bool,
    /// Whether the host answered at all.
    pub reachable: bool,
}

/// The report of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct HostFacts {
    /// Its own host name.
    pub hostname: String,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// `ID` and `VERSION_ID` of os-release, such as `debian 12`.
    pub os: String,
    /// `x86_64`, `aarch64`.
    pub architecture: String,
    /// Kernel release.
    pub kernel: String,
    /// Logical processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Free space of the file system below `/var/lib`, in MiB.
    pub disk_free_mib: u64,
    /// Whether cgroup v2 is the only hierarchy.
    pub cgroup_v2: bool,
    /// Whether swap is in use.
    pub swap: bool,
    /// The version of its systemd, if that is too old for hactl: its units are not known then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_systemd: Option<u32>,
    /// The host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub now_ms: i64,
    /// Whether `/run/systemd/resolve/resolv.conf` names a server.
    pub systemd_resolved: bool,
    /// From where its pods get their name servers; `None`: it has no kubelet.
    pub resolv_conf: Option<ResolvConf>,
    /// The host's addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Which cluster this host belongs to, written when it first joined.
    pub cluster_id: Option<ClusterId>,
    /// Files that were asked for and exist.
    pub files: BTreeMap<String, FileFact>,
    /// Parts that were asked for, exist and are intact.
    pub blobs: BTreeSet<Digest>,
    /// Sets on trial: their previous files are kept until the new ones have passed.
    pub on_trial: BTreeSet<FileSet>,
    /// Units that were asked for.
    pub units: BTreeMap<UnitName, UnitFact>,
    /// Leaf certificates that were asked for and exist.
    pub leaves: BTreeMap<CertId, LeafFact>,
    /// Other certificates that were asked for, and what components present.
    pub certificates: CertificatesFact,
    /// Images in containerd's store: reference to the digest of the part it was imported from, or something else for
    /// an image that hactl did not import.
    pub images: BTreeMap<String, String>,
    /// Components that were asked and did not answer although they have processes, with the reason as a clause: units,
    /// and the API server by its program's name. Without an answer of containerd, its images are not known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hung: BTreeMap<String, String>,
    /// When the static pods' main processes started, by program name, milliseconds since 1970.
    pub processes: BTreeMap<String, i64>,
    /// Versions of Kubernetes that the manifests of the static pods name, by program name.
    pub versions: BTreeMap<String, String>,
    /// Programs that were asked for and exist, by absolute path.
    pub programs: BTreeSet<String>,
    /// Kernel settings that were asked for, by sysctl name.
    pub sysctls: BTreeMap<String, String>,
    /// Ports that were asked for and are taken.
    pub ports: Vec<PortFact>,
    /// The firewall that is active on this host, when asked for.
    pub firewall: Option<FirewallFact>,
    /// etcd on this host, when asked for.
    pub etcd: Option<EtcdFact>,
    /// The API server on this host, when asked for.
    pub api: Option<ApiFact>,
    /// The snapshots on this host, when etcd was asked for.
    pub bundles: Option<BundlesFact>,
    /// Cluster DNS, queried from a pod of this host, when asked for; `None` when there is no pod to query from.
    pub dns: Option<DnsFact>,
    /// What its guard reports, when asked for.
    pub guard: Option<GuardFact>,
    /// How its control plane is delivered, when asked for; `None`: it was never self-hosted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosting: Option<HostingFact>,
    /// Reports of the host that are not trusted, in words; determined here, never by the host. The facts do not include
    /// them.
    #[serde(skip)]
    pub doubts: Vec<String>,
}

/// An address on an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceAddress {
    /// Interface name.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

/// A warning that a report of a host is not trusted.
pub fn disbelief(host: &HostName, doubt: &str) -> String {
    format!("{host} is not believed: it {doubt}")
}

/// A host's membership of a cluster, kept in `/var/lib/hactl/cluster.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterId {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// SHA-256 of the DER of the certificate of the first cluster CA: it distinguishes clusters of the same name.
    pub ca: Digest,
    /// The number of rotation stages that this host knows. A state with fewer stages is an older copy, whose keys are
    /// no longer in use.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub stages: u64,
    /// The name of this host in the inventory; `None`: not written yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The `/etc/machine-id` of the machine that got this identity; the host writes it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it by reference")]
fn is_none_yet(stages: &u64) -> bool {
    *stages == 0
}

impl ClusterId {
    /// The same for a host of the cluster.
    #[must_use]
    pub fn of(&self, host: &HostName) -> Self {
        Self { host: Some(host.clone()), ..self.clone() }
    }
    /// Whether both are of one cluster, regardless of CA rotations.
    pub fn same_cluster(&self, other: &Self) -> bool {
        (&self.cluster, self.ca) == (&other.cluster, other.ca)
    }
}

/// A file as found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFact {
    /// SHA-256 of its content.
    pub digest: Digest,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name, or number where there is no name.
    pub owner: String,
    /// Inode change time, milliseconds since 1970: when content, mode or owner last changed.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub changed_ms: i64,
}

/// A systemd unit as found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitFact {
    /// systemd's ActiveState: `active`, `activating`, `failed`, `inactive`.
    pub active: String,
    /// Whether it starts at boot.
    pub enabled: bool,
    /// When its main process started, milliseconds since 1970; 0 when it is not running.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub started_ms: i64,
    /// When it was last reloaded by hactl, milliseconds since 1970; 0 when never.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub reloaded_ms: i64,
}

impl HostFacts {
    /// Whether it has this identity, as this host of the cluster and as this machine.
    pub fn has_cluster_id(&self, cluster: &ClusterId, host: &HostName) -> bool {
        let machine = Some(self.machine_id.clone()).filter(|id| !id.is_empty());
        self.cluster_id == Some(ClusterId { machine, ..cluster.of(host) })
    }
    /// Its distribution as a bundle names it, such as `debian-12`.
    pub fn distribution(&self) -> String {
        self.os.replace(' ', "-")
    }
    /// Whether an etcd member ran here, by its unit: without data, the data is lost, or its volume is not mounted.
    pub fn ran_etcd(&self) -> bool {
        self.units.iter().any(|(name, unit)| name.as_str() == ETCD_UNIT && (unit.enabled || unit.started_ms > 0))
    }
    /// Why a component hangs, if it runs and does not answer: a unit, or a program of a static pod.
    pub fn why_hung(&self, component: &str) -> Option<&str> {
        let is_active = |(name, unit): (&UnitName, &UnitFact)| name.as_str() == component && unit.active == "active";
        let runs = self.processes.contains_key(component) || self.units.iter().any(is_active);
        self.hung.get(component).filter(|_| runs).map(String::as_str)
    }
    /// The file with the name servers of this host, for pods.
    pub fn name_servers(&self) -> &'static str {
        if self.systemd_resolved { RESOLVED } else { RESOLV_CONF }
    }
    /// Whether a member ran here, and its data is not there.
    pub fn misses_data(&self) -> bool {
        self.ran_etcd() && self.etcd.as_ref().is_some_and(|etcd| !etcd.data)
    }
}

pub use super::dns::{DnsFact, ResolvConf};
pub use super::units::ETCD_UNIT;

impl UnitFact {
    /// Whether it runs or systemd is starting it.
    pub fn runs_or_starts(&self) -> bool {
        matches!(self.active.as_str(), "active" | "activating")
    }
}

/// A leaf certificate as found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafFact {
    /// Common name.
    pub common_name: String,
    /// Organisations, sorted.
    pub organizations: Vec<String>,
    /// Subject alternative names as text, sorted.
    pub sans: Vec<String>,
    /// The authority key identifier, hexadecimal: a leaf certificate does not contain the issuer's public key.
    pub authority: String,
    /// The authority key identifier of the issuer, hexadecimal, if its certificate follows in the file and is an
    /// intermediate.
    pub through: Option<String>,
    /// Start of validity, seconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub not_before_s: i64,
    /// End of validity, seconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub not_after_s: i64,
    /// Whether the key next to it matches.
    pub key_matches: bool,
    /// When certificate or key last changed (the later of their inodes' change times), milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub changed_ms: i64,
}

/// A taken port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortFact {
    /// The port.
    pub port: u16,
    /// The process that listens, such as `nginx (pid 812)`.
    pub by: String,
}

/// etcd as one host sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdFact {
    /// Whether the data directory holds a member.
    pub data: bool,
    /// The data directory in the member's settings, if it is another one and holds a member.
    pub elsewhere: Option<String>,
    /// The token of the bootstrap that this host takes part in, while unconfirmed.
    pub token: Option<String>,
    /// The cluster id of the bootstrapped marker, written once quorum was confirmed.
    pub bootstrapped: Option<String>,
    /// The report of the running member; `None` when it does not answer.
    pub view: Option<EtcdView>,
    /// Why there is no view, or no linearizable one.
    pub trouble: Option<String>,
    /// Whether the member is slow: its process answers its own health check, but not the queries in time.
    pub slow: bool,
    /// The data on disk, read where the member has no quorum.
    pub disk: Option<DiskFact>,
    /// Whether no process had the database open when the data was read.
    pub closed: bool,
    /// Data that was moved aside, by directory name, as far as it can be read, when asked for.
    pub aside: BTreeMap<String, DiskFact>,
    /// The highest first revision of any restore on this host; `None`: there was none.
    pub high_water: Option<i64>,
    /// The positions of etcd members that this host has recorded, of its own and of others.
    pub positions: Vec<Position>,
    /// Why its member runs but cannot catch up, as far as the host can detect it.
    pub stuck: Option<String>,
    /// The ids of the members with which its own member has a connection; `None`: it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<BTreeSet<u64>>,
    /// Whether the canary Secret is ciphertext here; `None`: it does not exist or could not be read.
    pub secret_is_ciphertext: Option<bool>,
}

/// The data of a member, read from its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFact {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Member id.
    pub member: u64,
    /// Term of the last entry of the raft log. Of several members the one with the greatest (term, index) is the
    /// newest.
    pub term: u64,
    /// Index of the last entry of the raft log.
    pub index: u64,
    /// The commit index in the log; later entries may be committed, too.
    pub commit: u64,
    /// The revision of the database; it may lag behind the log. `None`: it cannot be read.
    pub revision: Option<i64>,
    /// The index of the last entry applied to the database.
    pub applied: Option<u64>,
    /// The member list in the database: id, name, peer URL, learner. `None`: it cannot be read.
    pub members: Option<Vec<(u64, String, PeerUrl, bool)>>,
    /// Size of the database file, bytes.
    pub db_bytes: u64,
    /// When the log was last written to, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub written_ms: i64,
    /// Whether a complete record of its log is damaged: no member starts from it, but entries before it are there.
    #[serde(default)]
    pub damaged: bool,
    /// What is wrong with it, in words.
    pub flaws: Vec<String>,
}

impl DiskFact {
    /// The position that decides which data is the newest, by raft's rule.
    pub fn reach(&self) -> (u64, u64) {
        (self.term, self.index)
    }
    /// Whether a member can start from it, as far as its files tell.
    pub fn is_usable(&self) -> bool {
        !self.damaged && self.revision.is_some()
    }
    /// Whether the member list in the database can be read.
    pub fn lists(&self) -> bool {
        self.members.is_some()
    }
    /// The voters in the member list of the database: id and peer URL. `None`: the list cannot be read.
    pub fn voters(&self) -> Option<impl Iterator<Item = (u64, &PeerUrl)>> {
        let members = self.members.as_ref()?;
        Some(members.iter().filter(|(.., learner)| !learner).map(|(id, _, peer, _)| (*id, peer)))
    }
}

/// The newest data on these hosts; `None`: none was read.
pub fn newest<'a>(hosts: impl Iterator<Item = &'a HostFacts>) -> Option<&'a DiskFact> {
    hosts.filter_map(|host| host.etcd.as_ref()?.disk.as_ref()).max_by_key(|disk| disk.reach())
}

/// The report of a running member about itself and its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdView {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Its own member id.
    pub member: u64,
    /// The member id of the leader; 0: none.
    pub leader: u64,
    /// Raft term.
    pub term: u64,
    /// Raft applied index.
    pub applied: u64,
    /// Store revision.
    pub revision: i64,
    /// Database size in bytes.
    pub db_bytes: i64,
    /// How much of it is in use, in bytes.
    pub in_use_bytes: i64,
    /// Its quota, in bytes; 0: not reported, as by etcd before 3.6.
    pub quota_bytes: i64,
    /// Server version.
    pub version: String,
    /// Whether it is a learner.
    pub learner: bool,
    /// Whether a linearizable read succeeded: the member has a quorum.
    pub linearizable: bool,
    /// Members as listed: id, name, peer URL, learner.
    pub members: Vec<(u64, String, PeerUrl, bool)>,
    /// Raised alarms in words, such as `NOSPACE`.
    pub alarms: Vec<String>,
}

/// A database is defragmented if it has at least so many bytes of free pages, and more than half of it is free.
const LOOSE: i64 = 256 << 20;

impl EtcdView {
    /// Whether this member is the leader.
    pub fn leads(&self) -> bool {
        self.leader == self.member
    }
    /// Whether another member could be the leader.
    pub fn has_peers(&self) -> bool {
        self.members.iter().any(|(id, _, _, learner)| *id != self.member && !learner)
    }
    /// Whether most of the database is free pages: the file never shrinks, and counts against the quota and in every
    /// snapshot.
    pub fn is_loose(&self) -> bool {
        let free = self.db_bytes.saturating_sub(self.in_use_bytes);
        self.in_use_bytes > 0 && free >= LOOSE && free > self.db_bytes / 2
    }
}

/// etcd's alarm for a database that has reached its quota.
pub const NOSPACE: &str = "NOSPACE";
/// etcd's alarm for members whose data differs: no member accepts writes.
pub const CORRUPT: &str = "CORRUPT";

/// The text that a host adds to the reason of a failed query if its FORWARD policy is DROP.
pub const DROPS: &str = "the policy of this host's FORWARD chain is DROP";
