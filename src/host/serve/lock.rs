//! The run's lock on this host, and the fencing that makes an older run's late requests harmless.
//!
//! In: who wants it. Out: an epoch larger than every one before, or who has it. The lock is a `flock` on
//! `/var/lib/hactl/lock`, so it ends with the process; the file also says who, since when and which epoch. A second lock,
//! on `/var/lib/hactl/busy`, is shared by every operation that changes the host: the lock is given only when none of an
//! earlier run is still going on.

use super::fault::{Explain, Outcome, failed, fault};
use super::root::Root;
use super::when;
use crate::host::op::FaultKind;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

pub(super) const LOCK: &str = "/var/lib/hactl/lock";
pub(super) const BUSY: &str = "/var/lib/hactl/busy";
/// How long a new holder waits for the last operation of the old one: children killed with their channel need a moment.
const SETTLE: Duration = Duration::from_secs(3);

/// What the lock file says.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Holder {
    #[serde(rename = "holder")]
    name: String,
    since: String,
    epoch: u64,
}

/// The lock, held while this value lives.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    pub epoch: u64,
}

/// Proof that an operation may change the host; while it lives nobody else gets the lock.
#[derive(Debug)]
pub(super) struct Busy(File);

/// Who has the lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub by: String,
    pub since: String,
}

fn open(root: &Root, path: &'static str) -> Outcome<File> {
    let path = root.own(path);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).explain("create", parent)?;
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .explain("open", &path)
}

fn read(mut file: &File) -> Holder {
    let mut text = Vec::new();
    // More than one value: a shorter text was being written over a longer one when power failed. The first is whole.
    match file.read_to_end(&mut text).map(|_| serde_json::Deserializer::from_slice(&text).into_iter().next()) {
        Ok(None) => Holder::default(),
        Ok(Some(Ok(holder))) => holder,
        // Unreadable: any clock reading is larger than all epochs that were counted up to now.
        _ => Holder { epoch: u64::try_from(when::now_ms()).unwrap_or(0), ..Holder::default() },
    }
}

/// Takes the lock. Blocks for at most [`SETTLE`].
pub(super) fn take(root: &Root, holder: &str) -> Outcome<Result<Held, Other>> {
    let file = open(root, LOCK)?;
    let path = root.own(LOCK);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let Holder { name, since, .. } = read(&file);
            return Ok(Err(Other { by: name, since }));
        }
        error => error.explain("lock", &path)?,
    }
    let before = read(&file);
    // Unlocked when dropped, not merely closed: a child that is being started just now has a copy of every open file for a moment.
    let busy = Busy(open(root, BUSY)?);
    let until = Instant::now() + SETTLE;
    while let Err(error) = flock(&busy.0, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error).explain("lock", &root.own(BUSY));
        }
        if Instant::now() > until {
            let by = format!("{} (its run is gone, its last operation is not)", before.name);
            return Ok(Err(Other { by, since: before.since }));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let epoch = before.epoch.checked_add(1).ok_or_else(|| failed(format!("{} counts too high", path.display())))?;
    let now = Holder { name: holder.chars().take(300).collect(), since: when::rfc3339(when::now_ms()), epoch };
    let text = serde_json::to_vec(&now).map_err(|e| failed(format!("could not write the lock file: {e}")))?;
    file.write_all_at(&text, 0).explain("write", &path)?;
    file.set_len(text.len() as u64).explain("write", &path)?;
    file.sync_all().explain("write", &path)?;
    Ok(Ok(Held { file, epoch }))
}

/// Checks that `epoch` is still the newest, and keeps it so while the answer lives.
pub(super) fn enter(root: &Root, epoch: u64) -> Outcome<Busy> {
    let busy = open(root, BUSY)?;
    let path = root.own(BUSY);
    match flock(&busy, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(fault(FaultKind::Fenced, "another run is taking the lock of this host right now"));
        }
        error => error.explain("lock", &path)?,
    }
    let now = read(&open(root, LOCK)?);
    if epoch == 0 || now.epoch != epoch {
        let what = if epoch == 0 {
            "this operation changes the host and needs its lock first".to_owned()
        } else {
            format!(
                "the lock of this host went to {} since {} (epoch {}, ours was {epoch})",
                now.name, now.since, now.epoch
            )
        };
        return Err(fault(FaultKind::Fenced, what));
    }
    Ok(Busy(busy))
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Closing the file unlocks it as well; this only says so at once where a descriptor was duplicated.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // As above.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_grows_with_every_holder_and_the_second_is_told_who_was_first() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let first = take(&root, "alice@laptop pid 1 up").unwrap().unwrap();
        let other = take(&root, "bob").unwrap().unwrap_err();
        assert_eq!(other.by, "alice@laptop pid 1 up");
        assert!(other.since.ends_with('Z'), "{}", other.since);
        drop(first);
        assert_eq!(take(&root, "b").unwrap().unwrap().epoch, 2);
    }

    #[test]
    fn a_lock_that_was_just_taken_lets_its_run_work_whoever_has_a_copy_of_the_open_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        // As a fork does until its exec, many times over while the lock is taken.
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = std::process::Command::new("/bin/true").status();
                }
            });
            let outcomes: Vec<_> = (0..300)
                .map(|_| {
                    let held = take(&root, "a").map(|taken| taken.map_err(|other| other.by));
                    held.unwrap().map(|held| enter(&root, held.epoch).map(drop).map_err(|fault| fault.what))
                })
                .collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let bad = outcomes.iter().find(|o| !matches!(o, Ok(Ok(()))));
            assert_eq!(bad, None);
        });
    }

    #[test]
    fn an_older_epoch_may_not_change_anything() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(enter(&root, 0).unwrap_err().kind, FaultKind::Fenced);
        let first = take(&root, "a").unwrap().unwrap();
        drop(enter(&root, first.epoch).unwrap());
        let old = first.epoch;
        drop(first);
        let second = take(&root, "b").unwrap().unwrap();
        let fault = enter(&root, old).unwrap_err();
        assert!(fault.kind == FaultKind::Fenced && fault.what.contains("went to b"), "{fault:?}");
        drop(enter(&root, second.epoch).unwrap());
    }

    #[test]
    fn the_lock_waits_for_the_last_operation_of_a_run_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let first = take(&root, "a").unwrap().unwrap();
        let busy = enter(&root, first.epoch).unwrap();
        drop(first);
        let other = take(&root, "b").unwrap().unwrap_err();
        assert!(other.by.starts_with("a (its run is gone"), "{}", other.by);
        drop(busy);
        assert_eq!(take(&root, "b").unwrap().unwrap().epoch, 2);
    }

    #[test]
    fn a_lock_file_torn_by_power_loss_never_counts_backwards() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        drop(take(&root, "a").unwrap().unwrap());
        std::fs::write(root.own(LOCK), "{\"holder\":\"x\",\"since\":\"\",\"epoch\":7}er\":\"long\"}").unwrap();
        assert_eq!(take(&root, "b").unwrap().unwrap().epoch, 8);
        std::fs::write(root.own(LOCK), "\0\0\0\0").unwrap();
        assert!(take(&root, "c").unwrap().unwrap().epoch > 1_000_000);
    }
}
