//! Takes a snapshot from the files of a stopped member, for a recovery.
//!
//! In: the decision of the plan. Out: the snapshot, or a fault; existing data is only read. The snapshot is
//! the database of the member if that has applied its whole log. Otherwise it is taken from a copy, on which etcd
//! runs alone, as its own user and with sockets that no other user can open, until it has. That it has is verified in
//! the database afterwards.

use crate::agent::etcd::member::{OWNER, held};
use crate::agent::etcd::scratch::ScratchEtcd;
use crate::agent::host::Host;
use crate::agent::hosting;
use crate::agent::machine::files::{optional, piece, private_folder, remove, remove_all, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::run::blocking;
use crate::agent::machine::tree::Tree;
use crate::agent::machine::{units, when, wipe};
use crate::agent::op_error::{Explain, Outcome, bad, ensure_space, failed};
use crate::agent::parts;
use crate::agent::parts::packed::{End, packed};
use crate::etcd::disk;
use crate::model::blob::SnapshotBlob;
use crate::model::facts::DiskFact;
use crate::model::names::UnitName;
use crate::model::plausible::is_revision;
use crate::model::recovery::is_aside;
use crate::protocol::{SNAPSHOT_PIECE, SnapshotAsk, SnapshotUse};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Where the snapshots of recoveries are stored until they are fetched; for root alone.
const KEPT: &str = "/var/lib/hactl/recovery";
/// A file in it: the snapshot that is kept elsewhere on this host, because it is restored from it as well.
const STAYS: &str = "stays.json";
/// The highest base revision of any restore on this host: no later restore may begin below it.
pub(super) const HIGH_WATER: &str = "/var/lib/hactl/high-water";
/// How long etcd may take to apply its log: seconds per GB, and it starts within one.
const CATCH_UP: Duration = Duration::from_secs(300);
/// How long it may take to end.
const END: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
pub(super) const RESERVE: u64 = 64 << 20;
/// What etcd on the copy and its tool allocate for their logs: segments of 64 MiB, one in advance.
const LOGS: u64 = 3 * (64 << 20);
/// Before the recovery's name: a directory in the data directory with a copy of the member.
const COPY: &str = "hactl-recovery-";
/// Before the token: a directory in the data directory in which data is restored.
pub(super) const RESTORING: &str = "hactl-restoring-";

/// From when a balancer that has an API server again ignores this file, and until when it keeps the endpoint's
/// address without any API server; both in seconds since 1970. `endpoint-usable.sh` reads it.
const HELD: &str = "/run/hactl/endpoint-held";
/// That script; without it there is no address to keep.
const USABLE: &str = "/etc/hactl/endpoint-usable.sh";
/// How long balancers may take to detect that API servers have stopped: twice the interval of their checks.
const SEEN_GONE_S: i64 = 5;
/// A recovery of gigabytes takes a minute; after this a balancer without API servers releases the address.
const HELD_FOR_S: i64 = 300;

/// No API server serves until the recovery is complete, so that no other host has more to offer than this one: the
/// address does not move.
fn hold_endpoint(root: &Root) -> Outcome<()> {
    if !root.own(USABLE).exists() {
        return Ok(());
    }
    let at = root.own(HELD);
    private_folder(at.parent().unwrap_or(Path::new("/")))?;
    let now = when::now_ms() / 1000;
    write_one(at, format!("{} {}\n", now + SEEN_GONE_S, now + HELD_FOR_S).as_bytes(), 0o600, me())
}

/// Stops units, and kills processes of these programs in pods until none is left. The first unit would restart the
/// pods. The others stop while the pods end, and at once: an etcd without a quorum waits for requests that wait for
/// it, and everything it has acknowledged is on its disk.
pub(crate) async fn halt(host: &Host, stopped: &[UnitName], programs: &[String]) -> Outcome<()> {
    let hold = || host.root.blocking(hold_endpoint);
    hold().await?;
    // An older state may not know the pods that serve: the kubelet would end them all.
    host.root.blocking(hosting::hold_all).await?;
    host.waits("kubelet and etcd to stop");
    let (keeper, others) = stopped.split_at(stopped.len().min(1));
    units::end_now(host, keeper).await?;
    let pods = async {
        if !host.root.is_host() {
            return Ok(());
        }
        let programs = programs.to_vec();
        wipe::end_all("the control plane", END, move || wipe::pods_of(&programs)).await?;
        // Earlier, some balancer may have had an API server, and may have released the address.
        hold().await
    };
    tokio::try_join!(units::end_now(host, others), pods)?;
    units::stop(host, stopped).await
}

pub(super) fn plain(word: &str) -> Outcome<&str> {
    let good = (8..=64).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if good { Ok(word) } else { Err(bad("a recovery's name is 8 to 64 lower-case letters and digits")) }
}

fn kept(root: &Root, recovery: &str) -> Outcome<PathBuf> {
    Ok(root.own(KEPT).join(format!("{}.zst", plain(recovery)?)))
}

/// Takes the snapshot. The result of an earlier attempt is deleted: it may be incomplete.
pub(crate) async fn take(host: &Host, ask: SnapshotAsk) -> Outcome<SnapshotBlob> {
    let SnapshotAsk { data_dir, aside, recovery, reach, stays } = ask;
    if aside.as_deref().is_some_and(|name| !is_aside(name)) {
        return Err(bad("the directory is not one of moved-aside data"));
    }
    let place = kept(&host.root, &recovery)?;
    let data = host.root.path(&data_dir)?;
    let applied = Applied::of(host, data, (aside, reach), &recovery, Purpose::Snapshot).await?;
    host.waits("the snapshot to be compressed");
    let (root, member) = (host.root.clone(), Arc::clone(&applied.member));
    let taken = blocking(move || pack(&root, &member, &place, stays)).await;
    applied.end().await?;
    taken
}

/// What the files of a member are needed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A snapshot is taken of them.
    Snapshot,
    /// They become the new data of the member; of a copy, the database is moved, not copied again.
    Restore,
}

impl Purpose {
    /// Required space beside a copy of the member, in databases: the snapshot and its compressed form.
    fn more(self) -> u64 {
        match self {
            Self::Snapshot => 2,
            Self::Restore => 0,
        }
    }
}

/// The files of a stopped member whose database has applied its whole log: its own, or a copy of them.
pub(super) struct Applied {
    /// The directory of the member.
    pub member: Arc<Tree>,
    /// Prevents etcd from starting on them.
    still: Option<File>,
    /// The data directory, and the copy in it.
    copy: Option<(Tree, String)>,
}

impl Applied {
    /// Those of a member, or those in a directory that was moved aside, which must reach this position.
    pub async fn of(
        host: &Host,
        data: PathBuf,
        (aside, reach): (Option<String>, (u64, u64)),
        recovery: &str,
        purpose: Purpose,
    ) -> Outcome<Self> {
        let owner = host.root.owner(OWNER)?;
        let (data, member, found, still) = blocking(move || {
            let data = Tree::there(&data)?;
            let member = data.below(&[aside.as_deref().unwrap_or("member")])?;
            let (found, still) = look(&member, reach)?;
            Ok((data, member, found, still))
        })
        .await?;
        if found.applied == Some(found.index) && found.flaws.is_empty() {
            // As with a member that had no quorum for a while: there is no log to apply.
            return Ok(Self { member: Arc::new(member), still, copy: None });
        }
        let work = format!("{COPY}{recovery}");
        host.waits("a copy of etcd's data");
        let (data, copied, end) = {
            let work = work.clone();
            let copying = blocking(move || {
                let more = purpose.more().saturating_mul(found.db_bytes).saturating_add(LOGS + RESERVE);
                let needed = member.bytes()?.saturating_add(more);
                let (copied, end) = copy(&data, &member, needed, &work, owner)?;
                drop(still);
                Ok((data, Arc::new(copied), end))
            });
            copying.await?
        };
        host.waits("etcd to bring the copy up to the end of its log");
        let (applied, written) = tokio::join!(caught_up(&copied, owner, end), written(&copied, purpose));
        match applied.and(written).and_then(|()| copied.below(&["member"])) {
            Ok(member) => Ok(Self { member: Arc::new(member), still: None, copy: Some((data, work)) }),
            Err(fault) => {
                blocking(move || data.clear(work)).await?;
                Err(fault)
            }
        }
    }

    /// Whether they are a copy, which may be changed.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Deletes the copy, if there is one.
    pub async fn end(self) -> Outcome<()> {
        drop(self.still);
        match self.copy {
            Some((data, work)) => blocking(move || data.clear(work)).await,
            None => Ok(()),
        }
    }
}

/// Verifies that the files of the member reach the agreed position, and that no process writes them while the result
/// is kept.
fn look(member: &Tree, agreed: (u64, u64)) -> Outcome<(DiskFact, Option<File>)> {
    let still = held(member)?;
    let found = disk::member(&member.anchor()).map_err(|error| member.words(&error))?;
    if found.reach() < agreed {
        return Err(bad(format!(
            "the data ends at term {}, entry {}, but the agreed position is term {}, entry {}: run the recovery again",
            found.term, found.index, agreed.0, agreed.1
        )));
    }
    Ok((found, still))
}

/// Copies the files of the member for etcd's user, if so many bytes are free. Returns the copy and the index of the last
/// entry of its log.
fn copy(data: &Tree, member: &Tree, needed: u64, work: &str, owner: (u32, u32)) -> Outcome<(Tree, u64)> {
    clear_unfinished(data, &[COPY, RESTORING])?;
    member.ensure_space(needed)?;
    let copied = copied(data, member, work, owner);
    if copied.is_err() {
        // The first failure is the one reported; the next attempt begins with this.
        let _ = data.clear(work);
    }
    copied
}

/// Removes what interrupted recoveries left in the data directory, by the beginning of its name.
pub(super) fn clear_unfinished(data: &Tree, begins: &[&str]) -> Outcome<()> {
    for name in data.names()? {
        if name.to_str().is_some_and(|name| begins.iter().any(|begin| name.starts_with(begin))) {
            data.clear(name)?;
        }
    }
    Ok(())
}

fn copied(data: &Tree, member: &Tree, work: &str, owner: (u32, u32)) -> Outcome<(Tree, u64)> {
    // For root alone until it is complete: only then its owner changes and it may be opened.
    let work = data.fresh(work)?;
    let copied = work.fresh("member")?;
    // Files ending in tmp are space that etcd preallocates, or unfinished.
    member.copy_into(&copied, &|at| at.extension().is_some_and(|end| end == "tmp"))?;
    let (_, end) = disk::commit_all(&work.anchor()).map_err(|error| work.words(&error))?;
    work.own(owner)?;
    Ok((work, end))
}

/// Writes the database of a copy that stays to the disk, while etcd changes it: little is left for the end.
async fn written(work: &Arc<Tree>, purpose: Purpose) -> Outcome<()> {
    if purpose == Purpose::Snapshot {
        return Ok(());
    }
    let work = Arc::clone(work);
    blocking(move || {
        let snap = work.below(&["member", "snap"])?;
        snap.file_there("db")?.sync_data().explain("write", &snap.shown().join("db"))
    })
    .await
}

/// Runs etcd alone on the copy until its database has applied the last entry of its log.
async fn caught_up(work: &Arc<Tree>, owner: (u32, u32), end: u64) -> Outcome<()> {
    let mut etcd = ScratchEtcd::start(work, owner, "recovery", &["--force-new-cluster"])?;
    let until = Instant::now() + CATCH_UP;
    loop {
        etcd.runs()?;
        let at = work.clone();
        // While it is being written, the database may be temporarily unreadable.
        let far = blocking(move || Ok(disk::applied(&at.anchor()).ok())).await?;
        if far.is_some_and(|(index, _)| index >= end) {
            break;
        }
        if Instant::now() > until {
            return Err(etcd.fault(format!("etcd did not apply entry {end} of its log within {CATCH_UP:?}")));
        }
        sleep(LOOK_AGAIN).await;
    }
    etcd.stop().await?;
    let (index, _) = disk::applied(&work.anchor()).map_err(|error| work.words(&error))?;
    if index < end {
        return Err(failed(format!("the database of the copy ends at entry {index}, but its log at {end}")));
    }
    Ok(())
}

/// Writes the database as an etcd snapshot (the file, then its SHA-256), compressed. One that `stays` is also stored
/// where a delivery would store it.
fn pack(root: &Root, member: &Tree, place: &Path, stays: bool) -> Outcome<SnapshotBlob> {
    let_go(root)?;
    let folder = place.parent().unwrap_or(Path::new("/"));
    private_folder(folder)?;
    let snap = member.below(&["snap"])?;
    let db = (snap.file_there("db")?, snap.shown().join("db"));
    let bytes = db.0.metadata().explain("read", &db.1)?.len();
    ensure_space(folder, bytes * (1 + u64::from(stays)) + RESERVE)?;
    let outcome = write_packed(root, db, place, stays);
    if outcome.is_err() {
        // The first failure is the one reported; the next attempt begins with this.
        let _ = let_go(root);
    }
    outcome
}

fn write_packed(root: &Root, db: (File, PathBuf), place: &Path, stays: bool) -> Outcome<SnapshotBlob> {
    let create = |at: &Path| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(at).explain("create", at)
    };
    let (fresh, whole) = (place.with_extension("new"), place.with_extension("db"));
    // Not synced: it is read at once, and after a power loss the snapshot is taken again.
    let copy: Box<dyn Write> = if stays { Box::new(create(&whole)?) } else { Box::new(std::io::sink()) };
    let (_, snapshot) = packed(db.0, End::Digester, &db.1, (create(&fresh)?, copy))?;
    if stays {
        let note = place.with_file_name(STAYS);
        let text = serde_json::to_vec(&snapshot)
            .map_err(|error| failed(format!("the snapshot cannot be recorded: {error}")))?;
        fs::write(&note, text).explain("write", &note)?;
        if parts::keep_snapshot(root, snapshot, &whole).is_err() {
            // As where parts are on a file system of their own. It is sent as to any other host.
            remove(&whole)?;
        }
    }
    fs::rename(&fresh, place).explain("replace", place)?;
    Ok(snapshot)
}

/// Removes the files of finished or abandoned recoveries: they are not encrypted.
pub(crate) fn let_go(root: &Root) -> Outcome<()> {
    let folder = root.own(KEPT);
    let note = folder.join(STAYS);
    let noted = optional(fs::read(&note)).explain("read", &note)?;
    if let Some(snapshot) = noted.and_then(|text| serde_json::from_slice(&text).ok()) {
        parts::forget(root, snapshot, SnapshotUse::Recovery)?;
    }
    remove_all(&folder)
}

/// A piece of the compressed snapshot; at its end nothing, and then the file is no longer needed.
pub(crate) async fn read(host: &Host, recovery: String, from: u64) -> Outcome<String> {
    let place = kept(&host.root, &recovery)?;
    blocking(move || {
        let piece = piece(File::open(&place).explain("open", &place)?, &place, from, SNAPSHOT_PIECE)?;
        if piece.is_empty() {
            remove(&place)?;
        }
        Ok(piece)
    })
    .await
}

/// The highest base revision of any restore on this host. A revision that no cluster reaches was a false claim that
/// an earlier version believed: it is ignored.
pub(crate) fn high_water(root: &Root) -> Outcome<Option<i64>> {
    let at = root.own(HIGH_WATER);
    let Some(text) = optional(fs::read_to_string(&at)).explain("read", &at)? else { return Ok(None) };
    let revision = text.trim().parse().map_err(|_| failed(format!("{} does not contain a revision", at.display())))?;
    Ok(Some(revision).filter(|revision| is_revision(*revision)))
}
