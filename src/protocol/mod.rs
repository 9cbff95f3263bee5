//! The closed vocabulary of `hactl host`: the requests and the replies.
//!
//! Frames on stdin and stdout of the channel: a 4-byte big-endian length, one kind byte, the payload. Kind `J` is
//! JSON ([`Request`], [`Response`]), kind `B` is a piece of a blob or of relayed data, kind `E` ends it. Nothing is
//! interpolated into a shell. Replies are limited to [`LARGEST_FRAME`]; anything else on the channel is an error that
//! names the host.

use crate::model::blob::SnapshotBlob;
use crate::model::boot::{Boot, BootId};
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
mod hosting;
mod membership;
mod observing;
mod restore;
mod wait_condition;
pub use balancing::{Balancing, ETCD_BALANCER_SOCKET, PAUSE_MS, PAUSED_WITHIN, RESUMED_WITHIN};
pub use changes::changes;
pub use clearing::{Leftovers, WipeAsk};
pub use connectivity::{ConnectivityTest, Expected, Probe, ProbeResult};
pub use copies::CopiesAsk;
pub use hosting::HostingAsk;
pub use membership::{FirstBoot, MemberChange, MemberStart};
pub use observing::{ApiAsk, EtcdAsk, ObserveAsk};
pub use restore::{RestoreAsk, RestoreFrom, SNAPSHOT_PIECE, SnapshotAsk, SnapshotUse};
pub use wait_condition::WaitCondition;

/// The largest accepted frame, bytes. A full observation of a cluster of 100 nodes is below 4 MiB.
pub const LARGEST_FRAME: usize = 16 << 20;
/// The agent ends if it has received nothing for so long, seconds; the client pings every 5.
pub const DEAF_AFTER_S: u64 = 30;
/// The client considers a host lost if it has received nothing (not even a heartbeat, sent every 2 s) for so long,
/// seconds.
pub const DEAD_AFTER_S: u64 = 15;

/// One request. Requests on one channel are answered in order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Chosen by the client, repeated in the response.
    pub id: u64,
    /// The fencing epoch of the run, from [`Reply::Locked`]; 0 before the lock. The host refuses an operation that
    /// changes it if another run has taken the lock since.
    pub epoch: u64,
    /// The operation; `None` is a ping and is not answered.
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
        /// What it waits for, in words; empty if nothing.
        on: String,
    },
    /// The answer to `id`.
    Answer {
        /// The request.
        id: u64,
        /// Its outcome.
        outcome: Result<Reply, OpError>,
    },
}

/// Why an operation failed on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpError {
    /// The kind.
    pub kind: OpErrorKind,
    /// What happened, one sentence with the path or unit in it.
    pub what: String,
    /// The last lines of the log that explains it (journal of the unit, output of the program), oldest first, at most
    /// 20.
    pub tail: Vec<String>,
}

/// Kinds of failure that a caller may treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpErrorKind {
    /// Another run holds the lock now.
    Fenced,
    /// No space left.
    DiskFull,
    /// The content does not have the expected digest.
    Corrupt,
    /// A deadline passed.
    TimedOut,
    /// A check of the new content failed; the old content stays.
    Rejected,
    /// The request is invalid here.
    BadRequest,
    /// Anything else.
    Failed,
}

/// An operation of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Op {
    /// Takes the lock of the run, held while this process lives or until it is released.
    Lock {
        /// The holder: user@machine, pid, verb.
        holder: String,
    },
    /// Releases the lock of the run.
    Unlock,
    /// Observes all requested facts. Changes nothing.
    Observe(Box<ObserveAsk>),
    /// The contents of those files that exist: small files that hactl writes.
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
    /// Asks the network which hardware address has an IP address. Changes nothing.
    WhoHas {
        /// The address, in a network of the host.
        address: Ipv4Addr,
    },
    /// Surveys the host before it becomes part of a cluster, or runs a service that it did not run before. Changes
    /// nothing.
    Survey {
        /// The future data directory of etcd: its disk is measured.
        etcd_dir: Option<String>,
        /// The host's own address.
        address: IpAddr,
        /// Files and programs that are going to be written: what others put there is reported.
        places: Vec<String>,
    },
    /// Whether registries are reachable: one mirror of each is enough. Changes nothing.
    Dial {
        /// Registry to its mirrors, `host:port`.
        registries: BTreeMap<String, Vec<String>>,
    },
    /// Sends probes to other hosts and receives theirs at the same time. Changes nothing.
    Meet(ConnectivityTest),
    /// Writes the id of the cluster that this host belongs to.
    WriteClusterId(ClusterId),
    /// Users, directories, modules, kernel settings, swap.
    Prepare(Preparation),
    /// Installs packages with the host's own package manager.
    InstallPackages {
        /// Package names.
        packages: Vec<String>,
        /// From where.
        from: PackageSource,
    },
    /// Installs a part: answered with [`Reply::Wanted`] (send from this offset, zstd-compressed, as `B` frames closed
    /// by `E`) or [`Reply::Done`] if it is there already.
    Deliver(Part),
    /// Stores a snapshot for its use: answered and fed as [`Op::Deliver`].
    DeliverSnapshot {
        /// The snapshot.
        snapshot: SnapshotBlob,
        /// Its use.
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
        /// The set of the files, if the previous files are kept until the new ones have passed their trial. Previous
        /// files that are kept already stay: the files that replaced them have not passed.
        keep: Option<FileSet>,
    },
    /// Restores the previous files of these sets; a fault if there are none.
    RollBack {
        /// The sets.
        sets: Vec<FileSet>,
    },
    /// Deletes the previous files of these sets.
    Accept {
        /// The sets.
        sets: Vec<FileSet>,
    },
    /// Makes a key for each leaf certificate (or keeps one that is there and unused), answers with CSRs.
    MakeKeys {
        /// The leaf certificates.
        leaves: Vec<CertSpec>,
    },
    /// Installs certificates beside the keys made by [`Op::MakeKeys`].
    InstallCerts {
        /// The leaf certificates in PEM.
        certs: Vec<(CertSpec, String)>,
    },
    /// Starts, restarts or reloads a unit, enables it, and waits until systemd says active.
    RunUnit {
        /// The unit.
        unit: UnitName,
        /// How.
        how: HowToRun,
        /// Whether to return at once instead of waiting for `active` (etcd without quorum stays `activating`).
        no_wait: bool,
    },
    /// Explains why a unit does not stay up: always answered with a fault, which has the end of its journal.
    Blame {
        /// The unit.
        unit: UnitName,
    },
    /// Controls the balancer in front of etcd for a while.
    Balance {
        /// The unit of the balancer.
        unit: UnitName,
        /// The request.
        how: Balancing,
    },
    /// Stops and disables units.
    StopUnits {
        /// The units.
        units: Vec<UnitName>,
    },
    /// Writes the first-boot settings of an etcd member and starts it without waiting for quorum.
    StartMember(MemberStart),
    /// Stops the member and moves `member/` of its data directory aside, with a timestamp. Refused while the member
    /// serves.
    ArchiveData(EtcdAsk),
    /// Stops units and kills the processes of these programs in pods, so that none reads or writes the data to be
    /// replaced.
    Halt {
        /// How to reach the member: refused while it serves. `None`: the caller knows that it serves, and returns to
        /// an earlier state.
        unless_serving: Option<EtcdAsk>,
        /// The units: first the one that would restart the pods, then the others.
        units: Vec<UnitName>,
        /// The programs, by name.
        programs: Vec<String>,
    },
    /// Removes manifests of static pods, so that the kubelet stops the pods: first all but the last, then the last.
    /// Processes that do not stop in time are killed.
    EndPods {
        /// Absolute paths of the manifests, each with the name of its program.
        manifests: Vec<String>,
    },
    /// Ends the processes of the API server of this host if it does not answer, so that the kubelet starts it again.
    EndHungApiServer {
        /// Its address.
        address: IpAddr,
        /// Its port.
        port: u16,
    },
    /// Takes a snapshot from the files of a stopped member. Its data is only read.
    TakeSnapshot(SnapshotAsk),
    /// A piece of the snapshot taken for a recovery, in its compressed form.
    ReadSnapshot {
        /// The recovery.
        recovery: String,
        /// The first byte.
        from: u64,
    },
    /// Replaces the data of the member by a delivered snapshot, or by its own as that of a new cluster. The data is moved
    /// aside.
    Restore(Box<RestoreAsk>),
    /// Takes a snapshot with the settings on the host.
    SaveBundle,
    /// The newest snapshot that this host took.
    NewestBundle,
    /// A piece of a snapshot.
    ReadBundle {
        /// The name of its file.
        name: String,
        /// The first byte.
        from: u64,
    },
    /// Finds copies of snapshots in directories, or reads one.
    Copies(CopiesAsk),
    /// Deletes the snapshots that exceed the retention, with the settings on the host.
    PruneBundles,
    /// Restores a delivered snapshot into a temporary etcd to check it, and removes it in any case.
    Rehearse {
        /// The snapshot.
        snapshot: SnapshotBlob,
        /// The state of the cluster when it was taken, if this is a drill that the host must record.
        drill: Option<Proof>,
    },
    /// Marks the disk of the member as bootstrapped.
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
    /// Stops the member, defragments its database, and starts it again in any case.
    Defragment {
        /// Its unit.
        unit: UnitName,
        /// The data directory.
        data_dir: String,
    },
    /// Frees space in a database that has reached its quota.
    MakeRoom {
        /// How to reach the member.
        etcd: EtcdAsk,
        /// The step.
        room: Room,
    },
    /// Waits until a condition holds, or the deadline passes.
    Await {
        /// The condition.
        condition: WaitCondition,
        /// Milliseconds.
        within_ms: u64,
    },
    /// Connects to a port of this host and carries bytes: answered with [`Reply::Connected`], after which `B` frames
    /// flow in both directions until an `E` frame ends each; a second answer is [`Reply::Done`], or the failure. For
    /// an sshd that forbids forwarding.
    Relay {
        /// Loopback, or an address of the host: nothing else is ever dialled.
        to: IpAddr,
        /// The port.
        port: u16,
    },
    /// Stops all components of the cluster and moves their data aside, or deletes it.
    Wipe(WipeAsk),
    /// Removes what deleted pods left on the host.
    Sweep(Leftovers),
    /// Collects diagnostics of the host as text without secrets. Changes nothing.
    Gather(GatherAsk),
    /// Writes what a person wants of the guard of this host.
    Guard(GuardAsk),
    /// Moves manifests of static pods to the kubelet or away from it.
    Hosting(HostingAsk),
    /// Says by which boot the host runs.
    Boot,
    /// Reboots the host, if it still runs by this boot.
    Reboot {
        /// The boot that is to end.
        boot: BootId,
    },
}

/// From where packages are installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum PackageSource {
    /// From the sources of the host's package manager.
    Host {
        /// The proxy for the download, as variables; it is never a URL with a password.
        proxy: Vec<(String, String)>,
    },
    /// From this delivered part alone; `None`: none was delivered, because the host has the programs.
    Bundle(Option<Part>),
}

/// What a person wants of a guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum GuardAsk {
    /// It repairs nothing on its host.
    Pause {
        /// The person.
        by: String,
        /// Why.
        reason: String,
        /// For how long, seconds; `None`: until it may repair again.
        lasts_s: Option<u64>,
    },
    /// It may repair again.
    Resume,
    /// Attempts until now no longer count.
    Retry,
}

/// The result of an operation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Reply {
    /// Done.
    Done,
    /// The lock is taken.
    Locked {
        /// Fencing epoch, larger than all previous ones on this host.
        epoch: u64,
        /// Whether a person's run waits for it.
        #[serde(default)]
        wanted: bool,
    },
    /// Another run holds the lock.
    Held {
        /// The holder.
        by: String,
        /// Since when, RFC 3339.
        since: String,
        /// Whether it is a program of the host itself, which soon ends.
        #[serde(default)]
        yields: bool,
    },
    /// The observed facts.
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
        /// Bytes of the compressed form that the host has already.
        from: u64,
    },
    /// The relay is open: bytes follow.
    Connected,
    /// A snapshot was taken.
    Taken(SnapshotBlob),
    /// Bytes of a snapshot, in base64; none at its end.
    Bytes(String),
    /// The copies in the directories.
    Copies(Vec<CopiesFact>),
    /// A bundle was taken.
    Saved(BundleFact),
    /// The newest bundle; `None`: there is none.
    Newest(Option<BundleFact>),
    /// The result of restoring a snapshot.
    Proved(Proof),
    /// Certificate requests in PEM.
    Requests(BTreeMap<CertId, String>),
    /// The hardware address that has the IP address; `None`: no answer.
    Owner(Option<String>),
    /// Lines of text.
    Lines(Vec<String>),
    /// Contents of files, by path.
    Texts(BTreeMap<String, String>),
    /// The boot by which the host runs.
    Boot(Boot),
    /// The collected diagnostics.
    Pages(Vec<Page>),
    /// The survey of the host.
    Surveyed(Box<Survey>),
    /// Registries that are unreachable, and why.
    Dialled(BTreeMap<String, String>),
    /// The probes that were received, and the probes that were sent.
    Met {
        /// Each expected probe.
        received: Vec<ProbeResult>,
        /// Per sent probe, in their order: `None`, or why it failed.
        probed: Vec<Option<String>>,
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
    /// Kernel modules to load; built-in ones are fine.
    pub modules: Vec<String>,
    /// Kernel settings to set now (files make them persistent).
    pub sysctls: BTreeMap<String, String>,
    /// Whether to turn swap off now and in fstab.
    pub swap_off: bool,
    /// The ports that an active firewall must open for the cluster, now and after the next boot; `None`: it is not
    /// changed.
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
