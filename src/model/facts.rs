//! What is known of the world: one reply per host, and what the replies say together about etcd.
//!
//! In: decoded from `hactl host` by `host/`, put together by `observe/`. Out: read by `plan/` and `report/`.
//! Missing facts stay visible: a host that did not answer is a [`Unreachable`], never an empty answer.

use super::certificate::CertificatesFact;
use super::firewall::FirewallFact;
use super::names::{ClusterName, Digest, HostName, PeerUrl, UnitName};
use super::node::NodeFact;
use super::positions::Position;
use super::snapshot::BundlesFact;
use super::target::{CertId, FileSet};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Why a host told us nothing.
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
    /// The same of hosts that the inventory does not name any more and that may leave.
    pub leaving: BTreeMap<HostName, Result<HostFacts, Unreachable>>,
    /// What the hosts say together about etcd.
    pub etcd: Etcd,
    /// Per add-on, the objects that are missing or differ: object key and what differs. An add-on that is not named here
    /// could not be looked at.
    pub drift: BTreeMap<String, Vec<(String, String)>>,
    /// Per add-on, objects that hactl applied and that nobody asks for any more.
    pub stale: BTreeMap<String, Vec<Stale>>,
    /// How far members of etcd were seen by earlier runs, as the journal knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub noted: Vec<Position>,
}

/// An object that hactl applied and that nobody asks for any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stale {
    /// Its key.
    pub key: String,
    /// Why it stays all the same; `None`: it is to be deleted.
    pub kept: Option<String>,
}

impl Facts {
    /// Whether an object can be asked for now: the Node of a host that is silent is made by its kubelet, some day.
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
    /// The facts of a host that leaves, when it answered.
    pub fn leaver(&self, name: &HostName) -> Option<&HostFacts> {
        self.leaving.get(name).and_then(|r| r.as_ref().ok())
    }
    /// What was said and is not believed, each with who said it.
    pub fn doubts(&self) -> impl Iterator<Item = (&HostName, &String)> {
        let said = self.hosts.iter().chain(&self.leaving).filter_map(|(host, f)| Some((host, f.as_ref().ok()?)));
        said.flat_map(|(host, facts)| facts.doubts.iter().map(move |doubt| (host, doubt)))
    }
    /// The cluster that has a quorum behind it, by its id.
    pub fn living_cluster(&self) -> Option<&String> {
        self.living().map(|view| &view.cluster)
    }
    /// What a member says that has a quorum behind it; of several the one that as many are ahead of as behind: none of them decides alone.
    pub fn living(&self) -> Option<&EtcdView> {
        let Etcd::HasQuorum(_) = &self.etcd else { return None };
        let entered = self.hosts.values().chain(self.leaving.values());
        let views = entered.filter_map(|f| f.as_ref().ok()?.etcd.as_ref()?.view.as_ref());
        let mut views: Vec<&EtcdView> = views.filter(|v| v.linearizable).collect();
        views.sort_by_key(|v| v.revision);
        views.get(views.len().saturating_sub(1) / 2).copied()
    }
}

/// What is known about the etcd cluster. Silence never reads as "no cluster yet".
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Etcd {
    /// Every etcd host answered, and none has data, a genesis token or a seal.
    Uninitialized,
    /// Every etcd host answered; some hold data of a genesis that was never proven, all of the same token.
    Bootstrapping {
        /// The token of that genesis.
        token: String,
    },
    /// A quorum answered a linearizable read.
    HasQuorum(Members),
    /// A cluster exists or may exist, and no quorum answers.
    NoQuorum(Vec<Evidence>),
    /// Some members say that a quorum stands behind them, and no majority of those who must know says so.
    Disputed(Vec<Evidence>),
}

/// One thing that was seen (or not seen) on one host while no quorum answered.
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

/// The member list as a quorum sees it, keyed by peer URL.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Members(pub BTreeMap<PeerUrl, Member>);

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id, looked up at the edge and never remembered.
    pub id: u64,
    /// Its name; empty until it first starts.
    pub name: String,
    /// Whether it does not vote yet.
    pub learner: bool,
    /// Whether it answered a linearizable read itself.
    pub healthy: bool,
}

impl Members {
    /// How many members vote.
    pub fn voters(&self) -> usize {
        self.0.values().filter(|m| !m.learner).count()
    }
    /// How many votes make a majority; counted over all voters, never over the healthy ones.
    pub fn quorum(&self) -> usize {
        self.voters() / 2 + 1
    }
    /// How many voters are healthy.
    pub fn healthy(&self) -> usize {
        self.0.values().filter(|m| !m.learner && m.healthy).count()
    }
    /// How many further voters may fail before writes stop; `None` when they have stopped already.
    pub fn spare(&self) -> Option<usize> {
        self.healthy().checked_sub(self.quorum())
    }
}

/// What one host said of itself.
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
    /// The host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub now_ms: i64,
    /// Whether `/run/systemd/resolve/resolv.conf` exists.
    pub systemd_resolved: bool,
    /// The host's addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Which cluster this host belongs to, written when it first joined.
    pub stamp: Option<ClusterId>,
    /// Files that were asked for and exist.
    pub files: BTreeMap<String, FileFact>,
    /// Parts that were asked for, exist and are intact.
    pub blobs: BTreeSet<Digest>,
    /// Sets whose earlier files are kept, because the new ones have not proven themselves yet.
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
    /// The recovery bundles on this host, when etcd was asked for.
    pub bundles: Option<BundlesFact>,
    /// DNS from inside a pod of this host, when asked for; `None` when there is no pod to ask from.
    pub dns: Option<DnsFact>,
    /// What it said and is not believed, in words; made on our side, never by the host. The facts are without that.
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

/// That something is not believed of what a host says, in words.
pub fn disbelief(host: &HostName, doubt: &str) -> String {
    format!("{host} is not believed: it {doubt}")
}

/// A host's membership of a cluster, kept in `/var/lib/hactl/cluster.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterId {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// SHA-256 of the DER of the certificate of the authority that the cluster was founded with: what makes two clusters of one name
    /// different.
    pub ca: Digest,
    /// How many stages of rotations this host has heard of. State that knows of fewer is an older copy, and its keys are not those that
    /// are in use.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub stages: u64,
    /// Which host of the cluster this is, by its name in the inventory; `None`: hactl did not write that yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The machine that was stamped, by its `/etc/machine-id`; the host writes it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_none_yet(stages: &u64) -> bool {
    *stages == 0
}

impl ClusterId {
    /// The same for a host of the cluster.
    #[must_use]
    pub fn of(&self, host: &HostName) -> Self {
        Self { host: Some(host.clone()), ..self.clone() }
    }
    /// Whether both are of one cluster, whatever has become of its authorities.
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
    /// Whether it carries this stamp, as this host of the cluster and as this machine.
    pub fn is_stamped(&self, cluster: &ClusterId, host: &HostName) -> bool {
        let machine = Some(self.machine_id.clone()).filter(|id| !id.is_empty());
        self.stamp == Some(ClusterId { machine, ..cluster.of(host) })
    }
    /// Whether a member of etcd ran here, by its unit: with no data beside that, the data is lost, or its volume is not mounted.
    pub fn ran_etcd(&self) -> bool {
        self.units.iter().any(|(name, unit)| name.as_str() == ETCD_UNIT && (unit.enabled || unit.started_ms > 0))
    }
    /// Whether a member ran here, and its data is not there.
    pub fn misses_data(&self) -> bool {
        self.ran_etcd() && self.etcd.as_ref().is_some_and(|etcd| !etcd.data)
    }
}

/// The unit that runs etcd.
pub const ETCD_UNIT: &str = "etcd.service";

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
    /// SHA-256 of the issuer's subject public key info is not in a leaf, so: the authority key identifier, in hexadecimal.
    pub authority: String,
    /// The authority of that one, where its certificate follows in the file and is below another: hexadecimal.
    pub through: Option<String>,
    /// Start of validity, seconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub not_before_s: i64,
    /// End of validity, seconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub not_after_s: i64,
    /// Whether the key beside it is its own.
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
    /// Who listens, such as `nginx (pid 812)`.
    pub by: String,
}

/// etcd as one host sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdFact {
    /// Whether the data directory holds a member.
    pub data: bool,
    /// The directory that the member's settings name, when that is another one and holds a member.
    pub elsewhere: Option<String>,
    /// The token of the genesis this host was told to take part in, while unproven.
    pub token: Option<String>,
    /// The cluster id written once quorum was proven here ("born").
    pub bootstrapped: Option<String>,
    /// What the running member says; `None` when nothing answers.
    pub view: Option<EtcdView>,
    /// Why there is no view, or no linearizable one.
    pub trouble: Option<String>,
    /// Whether the member's process answers its own health check, though not what it was asked in the time that it had: slow, and not dead.
    pub slow: bool,
    /// How far the data goes by its files, looked at where no quorum stands behind the member.
    pub disk: Option<DiskFact>,
    /// Data of members that was moved aside, by the directory's name, as far as it can be read; looked at where it was asked for.
    pub aside: BTreeMap<String, DiskFact>,
    /// The greatest revision that a restored store was ever begun at on this host; `None`: none was.
    pub high_water: Option<i64>,
    /// How far this host has seen members of etcd, its own and others.
    pub positions: Vec<Position>,
    /// Why its member runs and will not catch up, as far as the host can tell by itself.
    pub stuck: Option<String>,
    /// Whether the canary Secret is ciphertext here; `None`: it does not exist or could not be read.
    pub secret_is_ciphertext: Option<bool>,
}

/// How far a member's data goes, by its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskFact {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Member id.
    pub member: u64,
    /// Term of the last entry of the raft log. Of several members the one with the greatest (term, index) is the newest.
    pub term: u64,
    /// Index of the last entry of the raft log.
    pub index: u64,
    /// Up to which entry the log itself knows of a majority; more may have one.
    pub commit: u64,
    /// The store's revision; it may lag behind the log. `None`: it cannot be read.
    pub revision: Option<i64>,
    /// Up to which entry the store goes.
    pub applied: Option<u64>,
    /// The member list as the store has it: id, name, peer URL, learner. `None`: it cannot be read.
    pub members: Option<Vec<(u64, String, PeerUrl, bool)>>,
    /// Size of the store's file, bytes.
    pub db_bytes: u64,
    /// When the log was last written to, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub written_ms: i64,
    /// Whether a record of its log is damaged that was whole once: what is before it can be recovered from, and no member starts from it.
    #[serde(default)]
    pub damaged: bool,
    /// What is not as it should be, in words.
    pub flaws: Vec<String>,
}

impl DiskFact {
    /// What tells which of several is the newest: raft's own rule.
    pub fn reach(&self) -> (u64, u64) {
        (self.term, self.index)
    }
    /// Whether the store's list of members can be read.
    pub fn lists(&self) -> bool {
        self.members.is_some()
    }
    /// Who has a vote, by the store's own list: id and peer URL. `None`: the list cannot be read.
    pub fn voters(&self) -> Option<impl Iterator<Item = (u64, &PeerUrl)>> {
        let members = self.members.as_ref()?;
        Some(members.iter().filter(|(.., learner)| !learner).map(|(id, _, peer, _)| (*id, peer)))
    }
}

/// The newest data on these hosts; `None`: none was looked at.
pub fn newest<'a>(hosts: impl Iterator<Item = &'a HostFacts>) -> Option<&'a DiskFact> {
    hosts.filter_map(|host| host.etcd.as_ref()?.disk.as_ref()).max_by_key(|disk| disk.reach())
}

/// What a running member says of itself and of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdView {
    /// Cluster id, hexadecimal.
    pub cluster: String,
    /// Its own member id.
    pub member: u64,
    /// Who leads; 0: nobody.
    pub leader: u64,
    /// Raft term.
    pub term: u64,
    /// Raft applied index.
    pub applied: u64,
    /// Store revision.
    pub revision: i64,
    /// Database size in bytes.
    pub db_bytes: i64,
    /// How much of it holds something, in bytes.
    pub in_use_bytes: i64,
    /// The size at which it takes no more writes; 0: not told, as by etcd before 3.6.
    pub quota_bytes: i64,
    /// Server version.
    pub version: String,
    /// Whether it is a learner.
    pub learner: bool,
    /// Whether a linearizable read succeeded: a quorum stands behind this view.
    pub linearizable: bool,
    /// Members as listed: id, name, peer URL, learner.
    pub members: Vec<(u64, String, PeerUrl, bool)>,
    /// Raised alarms in words, such as `NOSPACE`.
    pub alarms: Vec<String>,
}

/// A store is written anew when so many bytes of it hold nothing, and more than half of it does.
const LOOSE: i64 = 256 << 20;

impl EtcdView {
    /// Whether this member leads.
    pub fn leads(&self) -> bool {
        self.leader == self.member
    }
    /// Whether a member besides this one could lead.
    pub fn has_peers(&self) -> bool {
        self.members.iter().any(|(id, _, _, learner)| *id != self.member && !learner)
    }
    /// Whether most of the store holds nothing: a file that only grows, and counts against the quota and in every snapshot.
    pub fn is_loose(&self) -> bool {
        let free = self.db_bytes.saturating_sub(self.in_use_bytes);
        self.in_use_bytes > 0 && free >= LOOSE && free > self.db_bytes / 2
    }
}

/// etcd's alarm for a store that has reached its quota.
pub const NOSPACE: &str = "NOSPACE";
/// etcd's alarm for members whose data differs: nobody can write, on any of them.
pub const CORRUPT: &str = "CORRUPT";

/// The API as one host sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ApiFact {
    /// `None`: its own API server says ready. Else why not.
    pub own_trouble: Option<String>,
    /// `None`: the endpoint, asked from this host, says ready. Else why not.
    pub endpoint_trouble: Option<String>,
    /// The version that its own API server says it is, with the `v`; empty when it does not say.
    pub version: String,
    /// Leader election leases of the control plane.
    pub leases: Vec<LeaseFact>,
    /// Nodes.
    pub nodes: Vec<NodeFact>,
    /// Pods of kube-system and of what hactl installs.
    pub pods: Vec<PodFact>,
    /// Live objects that were asked for; absent ones are missing here.
    pub objects: BTreeMap<String, serde_json::Value>,
}

/// What a host adds to why a question failed, where it forwards only what some rule lets through.
pub const DROPS: &str = "the policy of this host's FORWARD chain is DROP";

/// How cluster DNS answered a question from inside a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DnsFact {
    /// With an address.
    Answered,
    /// Not, for this reason.
    Failed(String),
}

/// A leader election lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseFact {
    /// `kube-scheduler` or `kube-controller-manager`.
    pub name: String,
    /// Who holds it.
    pub holder: String,
    /// Age of the last renewal by the host's clock, milliseconds.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub age_ms: i64,
    /// How long a renewal lasts, seconds.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub duration_s: i64,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodFact {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Node it is bound to; empty when none.
    pub node: String,
    /// Phase.
    pub phase: String,
    /// Whether it is Ready (or has succeeded).
    pub ready: bool,
    /// Why it is not, such as `CrashLoopBackOff`.
    pub reason: String,
    /// How long past its deletion grace period it still exists, seconds; 0 when it is not being deleted.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub overdue_s: i64,
}
