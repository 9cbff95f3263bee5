//! Recovery bundles on this host: taken, proven, kept, told, read.
//!
//! In: the settings that `up` wrote, and the member on this host. Out: bundles in a folder of root's alone, each whole or not there. A
//! snapshot that could not be restored never becomes one. What went wrong last is kept beside them, so that nobody has to read a journal
//! to notice.

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

/// How the host takes and keeps them.
const SETTINGS: &str = "/etc/hactl/snapshots.json";
/// How long the member may take to answer, and each piece of the snapshot to arrive.
const ANSWER: Duration = Duration::from_secs(5);
const PIECE_WITHIN: Duration = Duration::from_secs(30);
const HASH: Duration = Duration::from_secs(60);
/// How often a member is asked for a snapshot that it does not send to its end, and how long it may take to come back in between.
const ATTEMPTS: u32 = 3;
const RESTARTED_WITHIN: Duration = Duration::from_secs(120);
/// How long a person waits for the timer's bundle to be done, which has a twentieth of a processor.
const OTHERS_TURN: Duration = Duration::from_secs(1200);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Room asked for: the snapshot, its proof, the bundle; and what must be left, for the proof's etcd reserves 128 MiB for its log, and
/// the living one lies on the same disk more often than not.
const TIMES: u64 = 3;
const RESERVE: u64 = 512 << 20;
/// Bytes of one answer, before base64: far below a frame.
const PIECE: u64 = 6 << 20;

/// Why one is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent) enum Occasion {
    /// A person asked for it.
    Asked,
    /// The timer: a member that leads leaves it to those that follow.
    Timer,
}

/// The settings, as `up` wrote them.
pub(in crate::agent) fn settings(root: &Root) -> Outcome<Settings> {
    let at = root.own(SETTINGS);
    let text = fs::read(&at).explain("read", &at)?;
    serde_json::from_slice(&text).map_err(|e| failed(format!("{} cannot be used: {e}; run `hactl up`", at.display())))
}

/// Takes one. `None`: it is others' turn.
pub(in crate::agent) async fn take(host: &Host, occasion: Occasion) -> Outcome<Option<BundleFact>> {
    let outcome = taken(host, occasion).await;
    let root = host.root.clone();
    // Whoever left it to others has mended nothing, and whoever did not come to it has broken nothing.
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

/// Why there is no bundle, and whether that is to be told until there is one.
struct Missed {
    fault: Fault,
    noted: bool,
}

impl From<Fault> for Missed {
    fn from(fault: Fault) -> Self {
        Self { fault, noted: true }
    }
}

/// The folder's lock, held while the file is open: a host takes or restores one bundle at a time. `None`: others had it for all that time.
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
        host.waits("the bundle that is being taken or restored here already");
        sleep(LOOK_AGAIN).await;
    }
    Ok(Some(lock))
}

async fn taken(host: &Host, occasion: Occasion) -> Result<Option<BundleFact>, Missed> {
    let root = host.root.clone();
    let folder = blocking(move || store::folder(&root)).await?;
    let timeout = if occasion == Occasion::Asked { OTHERS_TURN } else { Duration::ZERO };
    let Some(_turn) = turn(host, &folder, timeout).await? else {
        let what = "another recovery bundle is being taken or restored on this host";
        return Err(Missed { fault: failed(what), noted: false });
    };
    // Only now: whoever waited goes by what the inventory asks for since.
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
    // A member that does not answer is told of elsewhere; that bundles grow old meanwhile as well.
    let silent = |e| Missed { fault: trouble(&e), noted: false };
    let (view, _) = Box::pin(etcd::view(&access, ANSWER, etcd::Election::Awaited)).await.map_err(silent)?;
    let leads = view.leads() && view.has_peers();
    if occasion == Occasion::Timer && leads && !store::due(&folder, settings) {
        return Ok(None);
    }
    let work = folder.join(".work");
    {
        // What is not kept any more makes room for the next.
        let (folder, settings, living) = (folder.clone(), settings.clone(), view.cluster.clone());
        blocking(move || store::prune(&folder, &settings, Some(&living), &BTreeSet::new())).await?;
    }
    let needed = TIMES * view.db_bytes.unsigned_abs() + RESERVE;
    if free_bytes(&folder).is_some_and(|free| free < needed) {
        return Err(disk_full(&folder, Some(needed)).into());
    }
    // Left by one that was killed, or by a drill.
    for left in [&work, &folder.join(drill::WORK)] {
        absent(fs::remove_dir_all(left)).explain("remove", left)?;
    }
    DirBuilder::new().mode(0o700).create(&work).explain("create", &work)?;
    let made = made(host, settings, &access, &view, &folder, &work).await;
    blocking(move || absent(fs::remove_dir_all(&work)).explain("remove", &work)).await?;
    let Sealed { name, claimed, bytes, unsigned } = made?;
    host.waits("copies of the bundle");
    let mut troubles = directories(&host.root, settings, Some(&name)).await;
    match Box::pin(away::copies(&host.root, &folder.join(&name), &name, settings)).await {
        Ok(more) => troubles.extend(more),
        Err(fault) => troubles.push(fault.what),
    }
    let settings = settings.clone();
    blocking(move || {
        // What is too much is dropped only once there is a new one, and also when a copy failed.
        store::prune(&folder, &settings, Some(&view.cluster), &BTreeSet::from([name.clone()]))?;
        if let Some(why) = unsigned {
            return Err(failed(format!(
                "the bundle is on this host, and it is not signed: {}",
                [vec![why], troubles].concat().join("; ")
            )));
        }
        if troubles.is_empty() {
            return Ok(Some(BundleFact::of(name, bytes, &claimed)));
        }
        let what = "the bundle is on this host, and not all is well where copies of it go";
        Err(failed(format!("{what}: {}", troubles.join("; "))))
    })
    .await
    .map_err(Missed::from)
}

/// Tends all directories that copies go to, at the same time; says what went wrong.
async fn directories(root: &Root, settings: &Settings, fresh: Option<&str>) -> Vec<String> {
    let each = store::directories(settings).map(|directory| copies::tend(root, directory, fresh));
    let tended = futures::future::join_all(each).await;
    tended.into_iter().filter_map(|tended| tended.err().map(|fault| fault.what)).collect()
}

/// What a member sent and says of it: term, index and revision, up to which one it is compacted, and the hash of its keys.
type Sent = (u64, u64, i64, i64, u32);

/// A snapshot in a file of its own. A member that is restarted meanwhile, by an upgrade say, ends its stream; then it is asked again.
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
    // Before the proof, which may take minutes: by then the API servers may have had this revision compacted. One that was compacted
    // meanwhile hashes something else.
    let hash = etcd::hash(access, revision, HASH).await;
    Ok(hash.map(|(_, compacted, hash)| (term, index, revision, compacted, hash)))
}

/// From the member to a bundle with its name.
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
        let what = format!("the restored keys at revision {revision} are not the member's: its hash is another");
        return Err(fault(FaultKind::Corrupt, what));
    }
    host.waits("the bundle to be sealed");
    let stamp = when::file_timestamp(taken_ms).replace('.', "");
    let name = format!("{}-{stamp}-{}.{ENDING}", settings.cluster, settings.host);
    let high = high_water(&host.root)?.unwrap_or(0).max(revision);
    let point = Point { cluster: view.cluster.clone(), term, index, revision, high_water: high };
    let about = About { settings: settings.clone(), point, etcd: view.version.clone(), proof: proven.proof, taken_ms };
    let (root, folder) = (host.root.clone(), folder.to_owned());
    blocking(move || sealed(&root, &snapshot, &folder, name, about)).await
}

/// A piece of a bundle; at its end nothing.
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

/// Drops those that are not kept, here and where copies go; says which of them were here.
pub(in crate::agent) async fn prune(host: &Host) -> Outcome<Vec<String>> {
    let root = host.root.clone();
    let (settings, removed) = blocking(move || {
        let (settings, folder) = (settings(&root)?, store::folder(&root)?);
        // A person may ask while no etcd runs.
        let living = store::living(&folder, &settings)?;
        let removed = store::prune(&folder, &settings, living.as_deref(), &BTreeSet::new())?;
        Ok((settings, removed))
    })
    .await?;
    host.waits("the directories that copies of bundles go to");
    let troubles = directories(&host.root, &settings, None).await;
    if troubles.is_empty() {
        return Ok(removed);
    }
    Err(failed(format!("what is not kept is dropped on this host, and not where copies go: {}", troubles.join("; "))))
}

/// Restores a snapshot that was delivered for a check, and removes all of it, whatever came of that. A drill is remembered where it shows what
/// was seen when the snapshot was taken; else nothing on the host is another than before.
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
        // Beside the snapshot, so that both go at once.
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
