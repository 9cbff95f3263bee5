//! Snapshots on this host: taken, proven, retained, reported, read.
//!
//! In: the settings that `up` wrote, and the member on this host. Out: snapshots in a directory of root, each
//! complete or absent. A snapshot that could not be restored is not kept. The last failure is stored beside them, so
//! that it is noticed without reading a journal.

mod away;
mod drill;
mod own;
mod proof;
mod sealing;
mod store;

pub(in crate::agent) use drill::hold;
pub(in crate::agent) use store::{fact, tended};

use crate::agent::etcd::member::{access, trouble};
use crate::agent::etcd::recover::high_water;
use crate::agent::fault::{Explain, Outcome, disk_full, failed, fault, free_bytes};
use crate::agent::machine::files::absent;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::{Host, backup::copies, machine::when, parts};
use crate::etcd::{self, EtcdError, disk};
use crate::model::blob::SnapshotBlob;
use crate::model::snapshot::{BundleFact, ENDING, Point, Proof, Settings};
use crate::protocol::{EtcdAsk, Fault, FaultKind, SnapshotUse};
use crate::snapshot::Gentle;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{FlockOperation, flock};
use sealing::{About, Sealed, private, sealed};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The settings for taking and retaining snapshots.
const SETTINGS: &str = "/etc/hactl/snapshots.json";
/// How long the member may take to answer, and each piece of the snapshot to arrive.
const ANSWER: Duration = Duration::from_secs(5);
const PIECE_WITHIN: Duration = Duration::from_secs(30);
const HASH: Duration = Duration::from_secs(60);
/// The number of attempts if a member does not send a snapshot completely, and how long it may take to return in
/// between.
const ATTEMPTS: u32 = 3;
const RESTARTED_WITHIN: Duration = Duration::from_secs(120);
/// How long a user waits for the snapshot of the timer, which has a twentieth of a processor.
const OTHERS_TURN: Duration = Duration::from_secs(1200);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Required space: the snapshot, its proof, the encrypted file; and the reserve, because the etcd of the proof
/// preallocates 128 MiB for its log, and usually shares the disk with the live one.
const TIMES: u64 = 3;
const RESERVE: u64 = 512 << 20;
/// Bytes of one answer, before base64: far below a frame.
const PIECE: u64 = 6 << 20;

/// Why a snapshot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Occasion {
    /// A user requested it.
    Asked,
    /// The timer: a leader leaves it to the followers.
    Timer,
}

/// The settings, as `up` wrote them.
pub(in crate::agent) fn settings(root: &Root) -> Outcome<Settings> {
    let at = root.own(SETTINGS);
    let text = fs::read(&at).explain("read", &at)?;
    serde_json::from_slice(&text).map_err(|e| failed(format!("{} cannot be used: {e}; run `hactl up`", at.display())))
}

/// Takes one. `None`: it is the turn of another host.
pub(in crate::agent) async fn take(host: &Host, occasion: Occasion) -> Outcome<Option<BundleFact>> {
    let outcome = taken(host, occasion).await;
    let root = host.root.clone();
    // A host that leaves it to others has fixed nothing; a host that skipped its turn has broken nothing.
    let said = match &outcome {
        Ok(Some(_)) => Some(Ok(())),
        Ok(None) => None,
        Err(missed) => missed.noted.then(|| Err(missed.fault.what.clone())),
    };
    if let Some(said) = said {
        blocking(move || store::note(&root, said)).await?;
    }
    outcome.map_err(|missed| missed.fault)
}

/// Why there is no snapshot, and whether that is reported until there is one.
struct Missed {
    fault: Fault,
    noted: bool,
}

impl From<Fault> for Missed {
    fn from(fault: Fault) -> Self {
        Self { fault, noted: true }
    }
}

/// The lock of the directory, held while the file is open: a host takes or restores one snapshot at a time. `None`:
/// other processes had it for the whole time.
async fn turn(host: &Host, folder: &Path, timeout: Duration) -> Outcome<Option<File>> {
    let lock = File::open(folder).explain("open", folder)?;
    let until = Instant::now() + timeout;
    while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error).explain("lock", folder);
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        host.waits("the snapshot that is already being taken or restored here");
        sleep(LOOK_AGAIN).await;
    }
    Ok(Some(lock))
}

async fn taken(host: &Host, occasion: Occasion) -> Result<Option<BundleFact>, Missed> {
    let root = host.root.clone();
    let folder = blocking(move || store::folder(&root)).await?;
    let timeout = if occasion == Occasion::Asked { OTHERS_TURN } else { Duration::ZERO };
    let Some(_turn) = turn(host, &folder, timeout).await? else {
        let what = "another snapshot is being taken or restored on this host";
        return Err(Missed { fault: failed(what), noted: false });
    };
    // Read only now: the inventory may have changed while this waited.
    let root = host.root.clone();
    let settings = blocking(move || settings(&root)).await.map_err(|fault| Missed { fault, noted: false })?;
    if settings.drill {
        let root = host.root.clone();
        blocking(move || own::made(&root)).await?;
    }
    let settings = &settings;
    let ask = EtcdAsk {
        url: settings.url.clone(),
        data_dir: settings.data_dir.clone(),
        ca: settings.ca.clone(),
        cert: settings.cert.clone(),
        key: settings.key.clone(),
    };
    let access = access(&host.root, &ask)?;
    host.waits("etcd to answer");
    // An unreachable member is reported elsewhere, and so are outdated snapshots.
    let silent = |e| Missed { fault: trouble(&e), noted: false };
    let (view, _) = Box::pin(etcd::view(&access, ANSWER, etcd::Election::Awaited)).await.map_err(silent)?;
    let leads = view.leads() && view.has_peers();
    if occasion == Occasion::Timer && leads && !store::due(&folder, settings) {
        return Ok(None);
    }
    let work = folder.join(".work");
    {
        // Expired snapshots make space for the next.
        let (folder, settings, living) = (folder.clone(), settings.clone(), view.cluster.clone());
        blocking(move || store::prune(&folder, &settings, Some(&living), &BTreeSet::new())).await?;
    }
    let needed = TIMES * view.db_bytes.unsigned_abs() + RESERVE;
    if free_bytes(&folder).is_some_and(|free| free < needed) {
        return Err(disk_full(&folder, Some(needed)).into());
    }
    // Left by a killed process, or by a drill.
    for left in [&work, &folder.join(drill::WORK)] {
        absent(fs::remove_dir_all(left)).explain("remove", left)?;
    }
    DirBuilder::new().mode(0o700).create(&work).explain("create", &work)?;
    let made = made(host, settings, &access, &view, &folder, &work).await;
    blocking(move || absent(fs::remove_dir_all(&work)).explain("remove", &work)).await?;
    let Sealed { name, claimed, bytes, unsigned } = made?;
    host.waits("copies of the snapshot");
    let mut troubles = directories(&host.root, settings, Some(&name)).await;
    match Box::pin(away::copies(&host.root, &folder.join(&name), &name, settings)).await {
        Ok(more) => troubles.extend(more),
        Err(fault) => troubles.push(fault.what),
    }
    let settings = settings.clone();
    blocking(move || {
        // Excess snapshots are deleted only once there is a new one, and also if a copy failed.
        store::prune(&folder, &settings, Some(&view.cluster), &BTreeSet::from([name.clone()]))?;
        if let Some(why) = unsigned {
            return Err(failed(format!(
                "the snapshot is stored on this host, but it is not signed: {}",
                [vec![why], troubles].concat().join("; ")
            )));
        }
        if troubles.is_empty() {
            return Ok(Some(BundleFact::of(name, bytes, &claimed)));
        }
        let what = "the snapshot is stored on this host, but its copies failed";
        Err(failed(format!("{what}: {}", troubles.join("; "))))
    })
    .await
    .map_err(Missed::from)
}

/// Updates all directories for copies concurrently; returns the failures.
async fn directories(root: &Root, settings: &Settings, fresh: Option<&str>) -> Vec<String> {
    let each = store::directories(settings).map(|directory| copies::tend(root, directory, fresh));
    let tended = futures::future::join_all(each).await;
    tended.into_iter().filter_map(|tended| tended.err().map(|fault| fault.what)).collect()
}

/// The snapshot of a member and its report: term, index and revision, the compact revision, and the hash of its keys.
type Sent = (u64, u64, i64, i64, u32);

/// A snapshot in a file of its own. A member that restarts meanwhile, for an upgrade for example, ends its stream;
/// then it is requested again.
async fn sent(access: &etcd::Access, to: &Path) -> Outcome<Sent> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match asked(access, to).await? {
            Ok(sent) => return Ok(sent),
            Err(error) if left == 0 => return Err(trouble(&error)),
            Err(_) => {}
        }
        let until = Instant::now() + RESTARTED_WITHIN;
        while let Err(error) = Box::pin(etcd::view(access, ANSWER, etcd::Election::Awaited)).await {
            if Instant::now() >= until {
                return Err(trouble(&error));
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

async fn asked(access: &etcd::Access, to: &Path) -> Outcome<Result<Sent, EtcdError>> {
    let mut file = Gentle::new(private(to)?);
    if let Err(error) = Box::pin(etcd::snapshot(access, &mut file, PIECE_WITHIN)).await {
        return Ok(Err(error));
    }
    file.end().explain("write", to)?;
    let (term, index, revision) = disk::point(to).map_err(|error| failed(error.to_string()))?;
    // Before the proof, which may take minutes: by then the API servers may have compacted this revision. After a
    // compaction the hash covers other data.
    let hash = etcd::hash(access, revision, HASH).await;
    Ok(hash.map(|(_, compacted, hash)| (term, index, revision, compacted, hash)))
}

/// From the member to a named snapshot file.
async fn made(
    host: &Host,
    settings: &Settings,
    access: &etcd::Access,
    view: &crate::model::facts::EtcdView,
    folder: &Path,
    work: &Path,
) -> Outcome<Sealed> {
    let taken_ms = when::now_ms();
    let snapshot = work.join("snapshot.db");
    host.waits("the snapshot to arrive from etcd");
    let (term, index, revision, compacted, hash) = sent(access, &snapshot).await?;
    let proven = proof::prove(host, &snapshot, revision, work).await?;
    if compacted == proven.compacted && hash != proven.proof.hash {
        let what =
            format!("the restored keys at revision {revision} differ from those of the member: its hash differs");
        return Err(fault(FaultKind::Corrupt, what));
    }
    host.waits("the snapshot to be encrypted");
    let stamp = when::file_timestamp(taken_ms).replace('.', "");
    let name = format!("{}-{stamp}-{}.{ENDING}", settings.cluster, settings.host);
    let high = high_water(&host.root)?.unwrap_or(0).max(revision);
    let point = Point { cluster: view.cluster.clone(), term, index, revision, high_water: high };
    let about = About { settings: settings.clone(), point, etcd: view.version.clone(), proof: proven.proof, taken_ms };
    let (root, folder) = (host.root.clone(), folder.to_owned());
    blocking(move || sealed(&root, &snapshot, &folder, name, about)).await
}

/// A piece of a snapshot file; at its end nothing.
pub(in crate::agent) async fn read(host: &Host, name: String, from: u64) -> Outcome<String> {
    let place = store::place(&host.root, &name)?;
    blocking(move || {
        let mut file = File::open(&place).explain("open", &place)?;
        file.seek(SeekFrom::Start(from)).explain("read", &place)?;
        let mut piece = Vec::new();
        file.take(PIECE).read_to_end(&mut piece).explain("read", &place)?;
        Ok(STANDARD.encode(piece))
    })
    .await
}

/// Deletes the snapshots that exceed the retention, here and in the destinations of copies; returns which of them
/// were here.
pub(in crate::agent) async fn prune(host: &Host) -> Outcome<Vec<String>> {
    let root = host.root.clone();
    let (settings, removed) = blocking(move || {
        let (settings, folder) = (settings(&root)?, store::folder(&root)?);
        // This is possible while no etcd runs.
        let living = store::living(&folder, &settings)?;
        let removed = store::prune(&folder, &settings, living.as_deref(), &BTreeSet::new())?;
        Ok((settings, removed))
    })
    .await?;
    host.waits("the directories for copies of snapshots");
    let troubles = directories(&host.root, &settings, None).await;
    if troubles.is_empty() {
        return Ok(removed);
    }
    Err(failed(format!(
        "expired snapshots were deleted on this host, but not all of their copies: {}",
        troubles.join("; ")
    )))
}

/// Restores a snapshot that was delivered for a check, and removes all of it in any case. A drill is recorded if it
/// matches the proof from when the snapshot was taken; otherwise nothing on the host changes.
pub(in crate::agent) async fn rehearse(host: &Host, snapshot: SnapshotBlob, drill: Option<Proof>) -> Outcome<Proof> {
    let proven = rehearsed(host, snapshot).await;
    let root = host.root.clone();
    blocking(move || {
        parts::forget(&root, snapshot, SnapshotUse::Check)?;
        let proof = proven?;
        if drill.is_some_and(|taken| proof.is_of(&taken)) {
            store::drilled(&root, proof)?;
        }
        Ok(proof)
    })
    .await
}

async fn rehearsed(host: &Host, snapshot: SnapshotBlob) -> Outcome<Proof> {
    let root = host.root.clone();
    let (at, work) = blocking(move || {
        let at = parts::snapshot(&root, snapshot, SnapshotUse::Check)?;
        // Beside the snapshot, so that both are deleted at once.
        let work = at.with_file_name("work");
        let needed = 2 * snapshot.size + RESERVE;
        if free_bytes(&at).is_some_and(|free| free < needed) {
            return Err(disk_full(&at, Some(needed)));
        }
        absent(fs::remove_dir_all(&work)).explain("remove", &work)?;
        DirBuilder::new().mode(0o700).create(&work).explain("create", &work)?;
        Ok((at, work))
    })
    .await?;
    let revision = disk::revision(&at).map_err(|error| failed(error.to_string()))?;
    Ok(proof::prove(host, &at, revision, &work).await?.proof)
}

#[cfg(test)]
mod tests;
