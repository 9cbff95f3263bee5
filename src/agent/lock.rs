//! The lock of a run on this host, and the fencing that makes late requests of an older run harmless.
//!
//! In: the holder. Out: an epoch larger than every previous one, or the current holder. The lock is a `flock` on
//! `/run/hactl/lock`, so it ends with the process; the file also contains the holder, its start and the epoch. A
//! second lock, on `/run/hactl/busy`, is shared by every operation that changes the host: the lock is granted only
//! once no operation of an earlier run is active.
//!
//! Both files are in memory, because a run that helps a host with a full disk must be able to lock it. A reboot may
//! delete them: late requests of an earlier run come over its connection, which ended with that boot. Earlier
//! versions of hactl know only files on the disk. As long as those versions exist, these files are locked as well,
//! and written as far as the disk has space.

use crate::agent::machine::root::Root;
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, failed, fault, is_full};
use crate::protocol::OpErrorKind;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For each lock the effective file, then that of earlier versions.
type Places = [&'static str; 2];
const LOCKS: Places = ["/run/hactl/lock", LOCK];
const BUSIES: Places = ["/run/hactl/busy", BUSY];
pub(super) const LOCK: &str = "/var/lib/hactl/lock";
pub(super) const BUSY: &str = "/var/lib/hactl/busy";
/// Touched by a person's run that waits for the lock.
const WANTED: &str = "/run/hactl/wanted";
/// A run that waits tries more often than this.
const WAITS: Duration = Duration::from_secs(5);
/// How long a new holder waits for the last operation of the old one: children killed with their channel take a
/// while.
const SETTLE: Duration = Duration::from_secs(3);

/// Larger than the text of any holder.
const LONGEST: u64 = 8192;

/// The content of the lock file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Holder {
    #[serde(rename = "holder")]
    name: String,
    since: String,
    epoch: u64,
    /// Whether it ends by itself within a minute.
    yields: bool,
}

/// Who takes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// A run that a person started.
    Person,
    /// A program of the host itself, which soon ends: a person's run waits for it.
    Resident,
}

/// The lock, held while this value lives.
#[derive(Debug)]
pub(super) struct Held {
    _files: Files,
    pub epoch: u64,
}

/// Proof that an operation may change the host; no other run gets the lock while it lives.
#[derive(Debug)]
pub(super) struct Busy {
    _files: Files,
}

/// The holder of the lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub by: String,
    pub since: String,
    pub yields: bool,
}

/// One of the two locks: its file in memory, and the one on the disk if that has space for it.
#[derive(Debug)]
struct Files(Vec<(PathBuf, File)>);

impl Files {
    fn open(root: &Root, places: Places) -> Outcome<Self> {
        let mut files = Vec::new();
        for (index, place) in places.into_iter().enumerate() {
            let path = root.own(place);
            // The directory on the disk is read by others as well, such as etcd's program.
            match open(&path, if index == 0 { 0o700 } else { 0o755 }) {
                // If there is no space for an empty file, no earlier version holds one.
                Err(error) if index > 0 && is_full(&error) => {}
                file => files.push((path.clone(), file.explain("open", &path)?)),
            }
        }
        Ok(Self(files))
    }

    /// Takes all of them; false if another process has one.
    fn lock(&self, how: FlockOperation) -> Outcome<bool> {
        for (path, file) in &self.0 {
            match flock(file, how) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
                error => error.explain("lock", path)?,
            }
        }
        Ok(true)
    }

    /// The latest content; an unreadable file counts as epoch `torn`.
    fn read(&self, torn: u64) -> Holder {
        let said =
            |(_, file): &(PathBuf, File)| read(file).unwrap_or_else(|| Holder { epoch: torn, ..Holder::default() });
        self.0.iter().map(said).max_by_key(|holder| holder.epoch).unwrap_or_default()
    }

    fn write(&self, holder: &Holder) -> Outcome<()> {
        let text = serde_json::to_vec(holder).map_err(|e| failed(format!("could not write the lock file: {e}")))?;
        for (index, (path, file)) in self.0.iter().enumerate() {
            let written = file.write_all_at(&text, 0).and_then(|()| file.set_len(text.len() as u64));
            match written.and_then(|()| file.sync_all()) {
                // The other file has it; this one is for earlier versions of hactl.
                Err(error) if index > 0 && is_full(&error) => {}
                written => written.explain("write", path)?,
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for (_, file) in &self.0 {
            // Closing the file unlocks it as well. This unlocks it at once even if a descriptor was duplicated: a
            // child that is just being started has a copy of every open file for a while.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

fn open(path: &Path, folder: u32) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(folder).create(parent)?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// The content of a file; none: it was torn.
fn read(file: &File) -> Option<Holder> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    // More than one value: power failed while a shorter text was being written over a longer one. The first is whole.
    match serde_json::Deserializer::from_slice(&text).into_iter().next() {
        None => Some(Holder::default()),
        Some(holder) => holder.ok(),
    }
}

/// Takes the lock for a program of the host itself.
///
/// # Errors
/// A run of hactl changes the host.
pub(super) async fn take_as_resident(root: &Root, holder: &'static str) -> Outcome<Held> {
    let held = root.blocking(move |root| take(root, holder, Rank::Resident)).await?;
    held.map_err(|other| failed(format!("{} has the lock of the host since {}", other.by, other.since)))
}

/// Takes the lock. Blocks for at most [`SETTLE`].
pub(super) fn take(root: &Root, holder: &str, rank: Rank) -> Outcome<Result<Held, Other>> {
    let files = Files::open(root, LOCKS)?;
    if !files.lock(FlockOperation::NonBlockingLockExclusive)? {
        let Holder { name, since, yields, .. } = files.read(0);
        if rank == Rank::Person && yields {
            want(root);
        }
        return Ok(Err(Other { by: name, since, yields }));
    }
    // Any clock reading is larger than all epochs counted so far.
    let before = files.read(u64::try_from(when::now_ms()).unwrap_or(0));
    let busy = Files::open(root, BUSIES)?;
    let until = Instant::now() + SETTLE;
    while !busy.lock(FlockOperation::NonBlockingLockExclusive)? {
        if Instant::now() > until {
            let by = format!("{} (its run is gone, but its last operation is still active)", before.name);
            return Ok(Err(Other { by, since: before.since, yields: before.yields }));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let last = before.epoch.checked_add(1);
    let epoch = last.ok_or_else(|| failed(format!("{} has too high an epoch", root.own(LOCKS[0]).display())))?;
    let yields = rank == Rank::Resident;
    let now = Holder { name: holder.chars().take(300).collect(), since: when::rfc3339(when::now_ms()), epoch, yields };
    files.write(&now)?;
    Ok(Ok(Held { _files: files, epoch }))
}

/// Remembers that a person's run waits. If that fails, the holder ends a little later.
fn want(root: &Root) {
    let _ = std::fs::write(root.own(WANTED), []);
}

/// Whether a person's run has just tried to take the lock from a program of the host itself.
pub(super) fn is_wanted(root: &Root) -> bool {
    let tried = std::fs::metadata(root.own(WANTED)).and_then(|meta| meta.modified());
    tried.is_ok_and(|tried| tried.elapsed().is_ok_and(|ago| ago < WAITS))
}

/// Checks that `epoch` is still the newest, and keeps it so while the result lives.
pub(super) fn enter(root: &Root, epoch: u64) -> Outcome<Busy> {
    let busy = Files::open(root, BUSIES)?;
    if !busy.lock(FlockOperation::NonBlockingLockShared)? {
        return Err(fault(OpErrorKind::Fenced, "another run is just taking the lock of this host"));
    }
    // The holder wrote the effective file. A torn file on a full disk contains nothing.
    let now = Files::open(root, LOCKS)?.read(0);
    if epoch == 0 || now.epoch != epoch {
        let what = if epoch == 0 {
            "this operation changes the host and requires its lock first".to_owned()
        } else {
            format!(
                "the lock of this host went to {} since {} (epoch {}, ours was {epoch})",
                now.name, now.since, now.epoch
            )
        };
        return Err(fault(OpErrorKind::Fenced, what));
    }
    Ok(Busy { _files: busy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_grows_with_every_holder_and_the_second_learns_the_first_holder() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let first = take(&root, "alice@laptop pid 1 up", Rank::Person).unwrap().unwrap();
        let other = take(&root, "bob", Rank::Person).unwrap().unwrap_err();
        assert_eq!(other.by, "alice@laptop pid 1 up");
        assert!(other.since.ends_with('Z') && !other.yields, "{}", other.since);
        drop(first);
        let first = take(&root, "the guard", Rank::Resident).unwrap().unwrap();
        assert!(take(&root, "bob", Rank::Person).unwrap().unwrap_err().yields);
        drop(first);
        assert_eq!(take(&root, "b", Rank::Person).unwrap().unwrap().epoch, 3);
    }

    #[test]
    fn a_lock_that_was_just_taken_works_while_other_processes_have_copies_of_the_open_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        // As a fork does until its exec, many times while the lock is taken.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = std::process::Command::new("/bin/true").status();
                }
            });
            let outcomes: Vec<_> = (0..300)
                .map(|_| {
                    let held = take(&root, "a", Rank::Person).map(|taken| taken.map_err(|other| other.by));
                    held.unwrap().map(|held| enter(&root, held.epoch).map(drop).map_err(|fault| fault.what))
                })
                .collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let bad = outcomes.iter().find(|o| !matches!(o, Ok(Ok(()))));
            assert_eq!(bad, None);
        });
    }

    #[test]
    fn only_a_person_that_waits_for_a_program_of_the_host_itself_asks_it_to_end() {
        let wanted_after = |holder, waits| {
            let directory = tempfile::tempdir().unwrap();
            let root = Root::at(directory.path());
            let _held = take(&root, "first", holder).unwrap().unwrap();
            assert!(!is_wanted(&root));
            take(&root, "second", waits).unwrap().unwrap_err();
            is_wanted(&root)
        };
        assert!(wanted_after(Rank::Resident, Rank::Person));
        assert!(!wanted_after(Rank::Resident, Rank::Resident), "two guards");
        assert!(!wanted_after(Rank::Person, Rank::Person), "a run that a person started ends as it is");
    }

    #[test]
    fn an_older_epoch_may_not_change_anything() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(enter(&root, 0).unwrap_err().kind, OpErrorKind::Fenced);
        let first = take(&root, "a", Rank::Person).unwrap().unwrap();
        drop(enter(&root, first.epoch).unwrap());
        let old = first.epoch;
        drop(first);
        let second = take(&root, "b", Rank::Person).unwrap().unwrap();
        let fault = enter(&root, old).unwrap_err();
        assert!(fault.kind == OpErrorKind::Fenced && fault.what.contains("went to b"), "{fault:?}");
        drop(enter(&root, second.epoch).unwrap());
    }

    #[test]
    fn the_lock_waits_for_the_last_operation_of_an_ended_run() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let first = take(&root, "a", Rank::Person).unwrap().unwrap();
        let busy = enter(&root, first.epoch).unwrap();
        drop(first);
        let other = take(&root, "b", Rank::Person).unwrap().unwrap_err();
        assert!(other.by.starts_with("a (its run is gone"), "{}", other.by);
        drop(busy);
        assert_eq!(take(&root, "b", Rank::Person).unwrap().unwrap().epoch, 2);
    }

    #[test]
    fn a_lock_file_torn_by_power_loss_never_counts_backwards() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        drop(take(&root, "a", Rank::Person).unwrap().unwrap());
        for place in LOCKS {
            std::fs::write(root.own(place), "{\"holder\":\"x\",\"since\":\"\",\"epoch\":7}er\":\"long\"}").unwrap();
        }
        assert_eq!(take(&root, "b", Rank::Person).unwrap().unwrap().epoch, 8);
        std::fs::write(root.own(LOCKS[0]), "\0\0\0\0").unwrap();
        assert!(take(&root, "c", Rank::Person).unwrap().unwrap().epoch > 1_000_000);
    }

    #[test]
    fn a_full_disk_prevents_neither_locking_the_host_nor_fencing() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        // The directory has no space for new files, and its files are torn.
        std::fs::create_dir_all(root.own(LOCK).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/dev/full", root.own(LOCK)).unwrap();
        let first = take(&root, "a", Rank::Person).unwrap().unwrap();
        let old = first.epoch;
        drop(enter(&root, old).unwrap());
        assert_eq!(take(&root, "b", Rank::Person).unwrap().unwrap_err().by, "a");
        drop(first);
        let second = take(&root, "b", Rank::Person).unwrap().unwrap();
        assert!(second.epoch > old);
        assert_eq!(enter(&root, old).unwrap_err().kind, OpErrorKind::Fenced);
        drop(enter(&root, second.epoch).unwrap());
    }

    #[test]
    fn an_earlier_version_and_this_one_keep_each_other_out_and_count_on_from_one_another() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.own(LOCK).parent().unwrap()).unwrap();
        std::fs::write(root.own(LOCK), "{\"holder\":\"earlier\",\"since\":\"then\",\"epoch\":41}").unwrap();
        let earlier = File::open(root.own(LOCK)).unwrap();
        flock(&earlier, FlockOperation::LockExclusive).unwrap();
        let other = take(&root, "a", Rank::Person).unwrap().unwrap_err();
        assert_eq!((other.by.as_str(), other.since.as_str()), ("earlier", "then"));
        flock(&earlier, FlockOperation::Unlock).unwrap();
        let held = take(&root, "a", Rank::Person).unwrap().unwrap();
        assert_eq!(held.epoch, 42);
        assert_eq!(
            read(&File::open(root.own(LOCK)).unwrap()).unwrap().epoch,
            42,
            "so that its late requests are refused there"
        );
        assert!(flock(&earlier, FlockOperation::NonBlockingLockExclusive).is_err());
        // A reboot: the files in memory are gone.
        drop(held);
        std::fs::remove_dir_all(directory.path().join("run")).unwrap();
        assert_eq!(take(&root, "b", Rank::Person).unwrap().unwrap().epoch, 43);
    }
}
