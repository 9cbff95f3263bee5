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

pub(crate) use drill::hold;
pub(crate) use store::{
    RESERVE, fact, last_drills, names, newest_bundle, newest_fact, newest_here as newest, settings, tended,
};

use crate::agent::backup::copies;
use crate::agent::etcd::member::{access, trouble};
use crate::agent::etcd::recover::high_water;
use crate::agent::host::Host;
use crate::agent::machine::files::{fresh_folder, piece, remove_all};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, ensure_space, failed, fault};
use crate::agent::parts;
use crate::etcd::{self, EtcdError, disk};
use crate::model::blob::SnapshotBlob;
use crate::model::snapshot::{BundleFact, ENDING, Point, Proof, Settings};
use crate::protocol::{EtcdAsk, OpError, OpErrorKind, SnapshotUse};
use crate::snapshot::Gentle;
use sealing::{About, Sealed, private, sealed};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use store::LOOK_AGAIN;
use tokio::time::{Instant, sleep};

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
/// Required space besides the reserve: the snapshot, its proof, the encrypted file.
pub(crate) const TIMES: u64 = 3;
/// Bytes of one answer, before base64: far below a frame.
const PIECE: u64 = 6 << 20;

/// Why a snapshot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A user requested it.
    Asked,
    /// The timer: a leader leaves it to the followers.
    Timer,
}

/// Takes one. `None`: it is the turn of another host.
pub(crate) async fn take(host: &Host, occasion: Occasion) -> Outcome<Option<BundleFact>> {
    let outcome = taken(host, occasion).await;
    // A host that leaves it to others has fixed nothing; a host that skipped its turn has broken nothing.
    let said = match &outcome {
        Ok(Some(_)) => Some(Ok(())),
        Ok(None) => None,
        Err(missed) => missed.noted.then(|| Err(missed.fault.what.clone())),
    };
    if let Some(said) = said {
        host.root.blocking(|root| store::note(root, said)).await?;
    }
    outcome.map_err(|missed| missed.fault)
}

/// Why there is no snapshot, and whether that is reported until there is one.
struct Missed {
    fault: OpError,
    noted: bool,
}

impl From<OpError> for Missed {
    fn from(fault: OpError) -> Self {
        Self { fault, noted: true }
    }
}

async fn taken(host: &Host, occasion: Occasion) -> Result<Option<BundleFact>, Missed> {
    let folder = host.root.blocking(store::folder).await?;
    let timeout = if occasion == Occasion::Asked { OTHERS_TURN } else { Duration::ZERO };
    let Some(_turn) = store::turn(host, &folder, timeout).await? else {
        let what = "another snapshot is being taken or restored on this host";
        return Err(Missed { fault: failed(what), noted: false });
    };
    // Read only now: the inventory may have changed while this waited.
    let settings = host.root.blocking(settings).await.map_err(|fault| Missed { fault, noted: false })?;
    if settings.drill {
        host.root.blocking(own::made).await?;
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
    ensure_space(&folder, TIMES * view.db_bytes.unsigned_abs() + RESERVE)?;
    // Left by a killed drill.
    remove_all(&folder.join(drill::WORK))?;
    fresh_folder(&work)?;
    let made = made(host, settings, &access, &view, &folder, &work).await;
    blocking(move || remove_all(&work)).await?;
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
        return Err(fault(OpErrorKind::Corrupt, what));
    }
    host.waits("the snapshot to be encrypted");
    let stamp = when::file_timestamp(taken_ms).replace('.', "");
    let name = format!("{}-{stamp}-{}.{ENDING}", settings.cluster, settings.host);
    let high = high_water(&host.root)?.unwrap_or(0).max(revision);
    let point = Point { cluster: view.cluster.clone(), term, index, revision, high_water: high };
    let about = About { settings: settings.clone(), point, etcd: view.version.clone(), proof: proven.proof, taken_ms };
    let folder = folder.to_owned();
    host.root.blocking(move |root| sealed(root, &snapshot, &folder, name, about)).await
}

/// A piece of a snapshot file; at its end nothing.
pub(crate) async fn read(host: &Host, name: String, from: u64) -> Outcome<String> {
    let place = store::place(&host.root, &name)?;
    blocking(move || piece(File::open(&place).explain("open", &place)?, &place, from, PIECE)).await
}

/// Deletes the snapshots that exceed the retention, here and in the destinations of copies; returns which of them
/// were here.
pub(crate) async fn prune(host: &Host) -> Outcome<Vec<String>> {
    let deleting = host.root.blocking(|root| {
        let (settings, folder) = (settings(root)?, store::folder(root)?);
        // This is possible while no etcd runs.
        let living = store::living(&folder, &settings)?;
        let removed = store::prune(&folder, &settings, living.as_deref(), &BTreeSet::new())?;
        Ok((settings, removed))
    });
    let (settings, removed) = deleting.await?;
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
pub(crate) async fn rehearse(host: &Host, snapshot: SnapshotBlob, drill: Option<Proof>) -> Outcome<Proof> {
    let proven = rehearsed(host, snapshot).await;
    let recording = host.root.blocking(move |root| {
        parts::forget(root, snapshot, SnapshotUse::Check)?;
        let proof = proven?;
        if drill.is_some_and(|taken| proof.is_of(&taken)) {
            store::drilled(root, proof)?;
        }
        Ok(proof)
    });
    recording.await
}

async fn rehearsed(host: &Host, snapshot: SnapshotBlob) -> Outcome<Proof> {
    let preparing = host.root.blocking(move |root| {
        let at = parts::snapshot(root, snapshot, SnapshotUse::Check)?;
        // Beside the snapshot, so that both are deleted at once.
        let work = at.with_file_name("work");
        ensure_space(&at, 2 * snapshot.size + RESERVE)?;
        fresh_folder(&work)?;
        Ok((at, work))
    });
    let (at, work) = preparing.await?;
    let revision = disk::revision(&at).map_err(|error| failed(error.to_string()))?;
    Ok(proof::prove(host, &at, revision, &work).await?.proof)
}

#[cfg(test)]
mod tests;
