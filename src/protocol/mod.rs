//! The closed vocabulary spoken with `hactl host`: what can be asked, and what comes back.
//!
//! Frames on the channel's stdin and stdout: a 4-byte big-endian length, one kind byte, the payload. Kind `J` is JSON
//! ([`Request`], [`Response`]), kind `B` is a piece of a blob or of what a relay carries, kind `E` ends it. Nothing is interpolated into a shell.
//! Replies are bounded to [`LARGEST_FRAME`]; anything else on the channel is an error naming the host.

use crate::model::blob::SnapshotBlob;
use crate::model::copies::CopiesFact;
use crate::model::facts::{ClusterId, HostFacts};
use crate::model::firewall::Opening;
use crate::model::names::UnitName;
use crate::model::plan::HowToRun;
use crate::model::recovery::Room;
use crate::model::snapshot::{BundleFact, Proof};
use crate::model::support::{GatherAsk, Page};
use crate::model::survey::Survey;
use crate::model::target::{CertId, CertSpec, FileSet, Part};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

mod balancing;
mod changes;
mod clearing;
mod connectivity;
mod copies;
pub mod frame;
mod membership;
mod observing;
mod restore;
mod wait_condition;
pub use balancing::{Balancing, ETCD_BALANCER_SOCKET};
pub use changes::changes;
pub use clearing::{Leftovers, WipeAsk};
pub use connectivity::{ConnectivityTest, Expected, Probe, ProbeResult};
pub use copies::CopiesAsk;
pub use membership::{FirstBoot, MemberChange, MemberStart};
pub use observing::{ApiAsk, EtcdAsk, ObserveAsk};
pub use restore::{RestoreAsk, SNAPSHOT_PIECE, SnapshotAsk, SnapshotUse};
pub use wait_condition::WaitCondition;

/// Largest frame either side accepts, bytes. A full observation of a cluster of 100 nodes is below 4 MiB.
pub const LARGEST_FRAME: usize = 16 << 20;
/// The host's side ends itself when it has heard nothing for this long, seconds; the client pings every 5.
pub const DEAF_AFTER_S: u64 = 30;
/// The client gives a host up when it has heard nothing (not even a heartbeat, sent every 2 s) for this long, seconds.
pub const DEAD_AFTER_S: u64 = 15;

/// One request. Requests on one channel are answered in order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Chosen by the client, repeated in the response.
    pub id: u64,
    /// The fencing epoch of the run, from [`Reply::Locked`]; 0 before the lock. Operations that change the host are
    /// refused when the host has since given the lock to somebody else.
    pub epoch: u64,
    /// What is asked; `None` is a ping and is not answered.
    pub op: Option<Op>,
}

/// One message from the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Response {
    /// Still alive, working on `id` (0: idle).
    Heartbeat {
        /// The request being worked on.
        id: u64,
        /// What it is waiting for, in words; empty when nothing in particular.
        on: String,
    },
    /// The answer to `id`.
    Answer {
        /// The request.
        id: u64,
        /// Its outcome.
        outcome: Result<Reply, Fault>,
    },
}

/// Why an operation failed on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What happened, one sentence with the path or unit in it.
    pub what: String,
    /// Last lines of the log that explains it (journal of the unit, output of the program), oldest first, at most 20.
    pub tail: Vec<String>,
}

/// Kinds of failure that a caller may treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The lock belongs to somebody else now.
    Fenced,
    /// No space left.
    DiskFull,
    /// Content does not have the digest it should have.
    Corrupt,
    /// A deadline passed.
    TimedOut,
    /// A check of the new content failed; the old content stands.
    Rejected,
    /// The request makes no sense here.
    BadRequest,
    /// Anything else.
    Failed,
}

/// What can be asked of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Op {
    /// Takes the run's lock, held while this process lives and until it gives it back.
    Lock {
        /// Who: user@machine, pid, verb.
        holder: String,
    },
    /// Gives the run's lock back.
    Unlock,
    /// Says all that is asked for. Changes nothing.
    Observe(Box<ObserveAsk>),
    /// The texts of files, as far as they are there: of those that hactl writes, which are none of them large.
    ReadFiles {
        /// Absolute paths.
        paths: Vec<String>,
    },
    /// The etcd hash at a revision, for comparison between members.
    EtcdHash {
        /// How to reach the member.
        etcd: EtcdAsk,
        /// The revision; 0: the newest.
        revision: i64,
    },
    /// Asks the network who has an address. Changes nothing.
    WhoHas {
        /// The address, of a network of the host's own.
        address: Ipv4Addr,
    },
    /// What the host is like before it becomes part of a cluster. Changes nothing.
    Survey {
        /// etcd's data directory, where one will be: its disk is measured.
        etcd_dir: Option<String>,
        /// The host's own address.
        address: IpAddr,
    },
    /// Whether registries can be reached: of each one of its places is enough. Changes nothing.
    Dial {
        /// Registry to places, `host:port`.
        registries: BTreeMap<String, Vec<String>>,
    },
    /// Knocks at other hosts and listens for theirs, at the same time as they do. Changes nothing.
    Meet(ConnectivityTest),
    /// Writes which cluster this host belongs to.
    WriteClusterId(ClusterId),
    /// Users, directories, modules, kernel settings, swap.
    Prepare(Preparation),
    /// Installs packages with the host's own package manager.
    InstallPackages {
        /// Package names.
        packages: Vec<String>,
        /// The proxy that it fetches them through, as variables; a URL with a password is never among them.
        proxy: Vec<(String, String)>,
    },
    /// Puts a part in its place: answered with [`Reply::Wanted`] (send from this offset, zstd-compressed, as `B`
    /// frames closed by `E`) or [`Reply::Done`] when it is there already.
    Deliver(Part),
    /// Puts a snapshot where what it is for has its place: answered and fed as [`Op::Deliver`].
    DeliverSnapshot {
        /// Which.
        snapshot: SnapshotBlob,
        /// What for.
        to: SnapshotUse,
    },
    /// Imports a delivered image and pins it.
    Import(Part),
    /// Writes files atomically; each check runs on the new content before anything is replaced.
    WriteFiles {
        /// The files.
        files: Vec<FilePut>,
        /// Files to remove.
        remove: Vec<String>,
        /// The set that they are of, where what they replace is to be kept until they have proven themselves. What is kept already
        /// stays: whatever replaced it has not.
        keep: Option<FileSet>,
    },
    /// Puts back what was kept of these sets; nothing kept is a fault.
    RollBack {
        /// Which.
        sets: Vec<FileSet>,
    },
    /// Lets go of what was kept of these sets.
    Accept {
        /// Which.
        sets: Vec<FileSet>,
    },
    /// Makes a key for each leaf (or keeps the one that is there and unused), answers with requests.
    MakeKeys {
        /// The leaves.
        leaves: Vec<CertSpec>,
    },
    /// Puts certificates beside the keys made by [`Op::MakeKeys`].
    InstallCerts {
        /// The leaves with their certificates in PEM.
        certs: Vec<(CertSpec, String)>,
    },
    /// Starts, restarts or reloads a unit, enables it, and waits until systemd says active.
    RunUnit {
        /// Which.
        unit: UnitName,
        /// How.
        how: HowToRun,
        /// Whether to return at once instead of waiting for `active` (etcd without quorum stays `activating`).
        no_wait: bool,
    },
    /// Asks why a unit does not stay up: always answered with a fault, which has the end of its journal.
    Blame {
        /// Which.
        unit: UnitName,
    },
    /// Has the balancer in front of etcd do something for a moment.
    Balance {
        /// The balancer's unit.
        unit: UnitName,
        /// What.
        how: Balancing,
    },
    /// Stops and disables units.
    StopUnits {
        /// Which.
        units: Vec<UnitName>,
    },
    /// Writes the first-boot settings of an etcd member and starts it without waiting for quorum.
    StartMember(MemberStart),
    /// Stops the member and moves `member/` of its data directory aside, with a timestamp. Refused while the member serves.
    ArchiveData(EtcdAsk),
    /// Stops units and kills the pods' processes of these programs, so that nobody reads or writes what is about to be replaced.
    Halt {
        /// How to reach the member: refused while it serves. `None`: whoever asks knows that, and goes back from what it has.
        unless_serving: Option<EtcdAsk>,
        /// The units: who would start the pods anew, then the others.
        units: Vec<UnitName>,
        /// The programs, by name.
        programs: Vec<String>,
    },
    /// Takes manifests of static pods away, so that the kubelet stops what runs by them: first all but the last, then the last. What it
    /// does not stop in time is killed.
    EndPods {
        /// Absolute paths of the manifests, each named for its program.
        manifests: Vec<String>,
    },
    /// Takes a snapshot from the files of a member that is stopped. Its data is only read.
    TakeSnapshot(SnapshotAsk),
    /// A piece of the snapshot taken for a recovery, in its compressed form.
    ReadSnapshot {
        /// Which recovery.
        recovery: String,
        /// From which byte.
        from: u64,
    },
    /// Puts a delivered snapshot in the place of the member's data, which is moved aside.
    Restore(Box<RestoreAsk>),
    /// Takes a recovery bundle by the settings that lie on the host.
    SaveBundle,
    /// A piece of a recovery bundle.
    ReadBundle {
        /// Its file's name.
        name: String,
        /// From which byte.
        from: u64,
    },
    /// Finds copies of recovery bundles in directories, or reads one.
    Copies(CopiesAsk),
    /// Drops the bundles that are not kept any more, by the settings that lie on the host.
    PruneBundles,
    /// Restores a snapshot that was delivered for a check into an etcd of its own, and removes it, whatever came of that.
    Rehearse {
        /// Which.
        snapshot: SnapshotBlob,
        /// What was seen when it was taken, where this is a drill that the host is to remember.
        drill: Option<Proof>,
    },
    /// Marks the member's disk as born.
    Seal {
        /// The data directory.
        data_dir: String,
        /// The cluster id, hexadecimal.
        cluster: String,
    },
    /// Changes the member list through this host's member.
    ChangeMembers {
        /// How to reach the member.
        etcd: EtcdAsk,
        /// The change.
        change: MemberChange,
    },
    /// Stops the member, writes its store anew, and starts it again whatever became of that.
    Defragment {
        /// Its unit.
        unit: UnitName,
        /// The data directory.
        data_dir: String,
    },
    /// Makes room in a store that has reached its quota.
    MakeRoom {
        /// How to reach the member.
        etcd: EtcdAsk,
        /// Which part of it.
        room: Room,
    },
    /// Waits until a condition holds, or the deadline passes.
    Await {
        /// The condition.
        condition: WaitCondition,
        /// Milliseconds.
        within_ms: u64,
    },
    /// Connects to a port of this very host and carries bytes: answered with [`Reply::Connected`], after which `B` frames flow both
    /// ways until an `E` frame ends each; a second answer says [`Reply::Done`], or what broke. For an sshd that forwards nothing.
    Relay {
        /// Loopback, or an address of the host's own: nothing else is ever dialled.
        to: IpAddr,
        /// The port.
        port: u16,
    },
    /// Stops everything of the cluster and moves its data aside, or deletes it.
    Wipe(WipeAsk),
    /// Removes what pods that are gone left on the host.
    Sweep(Leftovers),
    /// Everything that explains what goes on here, as text without secrets. Changes nothing.
    Gather(GatherAsk),
    /// Last lines of the journal of some units, for the person at the other end.
    Journal {
        /// Which units.
        units: Vec<UnitName>,
        /// How many lines each, at most 200.
        lines: u32,
    },
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Reply {
    /// Done, nothing to say.
    Done,
    /// The lock is ours.
    Locked {
        /// Fencing epoch, larger than all before it on this host.
        epoch: u64,
    },
    /// The lock is somebody else's.
    Held {
        /// Who.
        by: String,
        /// Since when, RFC 3339.
        since: String,
    },
    /// Everything observed.
    Facts(Box<HostFacts>),
    /// The etcd hash.
    Hash {
        /// The revision it was computed at.
        revision: i64,
        /// The compact revision.
        compacted: i64,
        /// The hash.
        hash: u32,
    },
    /// Send the blob from this offset of its compressed form.
    Wanted {
        /// Bytes of the compressed form that are already there.
        from: u64,
    },
    /// The relay is open: bytes follow.
    Connected,
    /// A snapshot was taken.
    Taken(SnapshotBlob),
    /// Bytes of a snapshot, in base64; none at its end.
    Bytes(String),
    /// What is in the directories.
    Copies(Vec<CopiesFact>),
    /// A bundle was taken.
    Saved(BundleFact),
    /// What restoring a snapshot showed.
    Proved(Proof),
    /// Certificate requests in PEM.
    Requests(BTreeMap<CertId, String>),
    /// The hardware address of whoever has the address asked for; `None`: nobody answered.
    Owner(Option<String>),
    /// Lines of text.
    Lines(Vec<String>),
    /// Texts of files, by path.
    Texts(BTreeMap<String, String>),
    /// What was gathered.
    Pages(Vec<Page>),
    /// What the host is like.
    Surveyed(Box<Survey>),
    /// Registries that cannot be reached, and why.
    Dialled(BTreeMap<String, String>),
    /// Who was heard, and who was reached.
    Met {
        /// Each that was expected.
        heard: Vec<ProbeResult>,
        /// Per knock, in their order: `None`, or why it did not get through.
        knocked: Vec<Option<String>>,
    },
}

/// Users, directories, modules, kernel settings, swap.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// System users to create, without a shell.
    pub users: Vec<String>,
    /// Directories: path, owner, mode.
    pub directories: Vec<(String, String, u32)>,
    /// Kernel modules to load; those that are built in are fine.
    pub modules: Vec<String>,
    /// Kernel settings to set now (files make them persistent).
    pub sysctls: BTreeMap<String, String>,
    /// Whether to turn swap off now and in fstab.
    pub swap_off: bool,
    /// What an active firewall has to let in for the cluster, now and after the next boot; `None`: it is left alone.
    pub openings: Option<BTreeSet<Opening>>,
}

/// A file to write.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePut {
    /// Absolute path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name; the group is the owner's.
    pub owner: String,
    /// Content, as text: every file hactl writes is text.
    pub content: String,
    /// A program that must accept the new content: arguments with `{}` for the temporary file's path.
    pub check: Option<Vec<String>>,
}

impl std::fmt::Debug for FilePut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FilePut({}, {} bytes)", self.path, self.content.len())
    }
}
