//! The paths of parts on a host, and what is known about their content.
//!
//! In: an [`Item`]. Out: its paths, and whether its content exists, is intact, and is safely on the disk. A note
//! beside the content records which inode, size and change time were verified: content is read again only if those
//! differ. Until the content is known to be on the disk, the note also names the boot that wrote it, and is void in
//! the next one: after a power loss during a run, files may be empty. So the disk writes while the run continues.

use super::item::{Becomes, Item};
use crate::agent::machine::files::sync_parent;
use crate::agent::machine::root::Root;
use crate::agent::op_error::{Explain, Outcome};
use crate::model::names::Digest;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

/// `O_NOFOLLOW`.
pub(super) const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The paths of an item.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    /// A program as it runs, a snapshot as etcd's tools read it; an image in its compressed form.
    pub content: PathBuf,
    pub note: PathBuf,
    pub fresh: PathBuf,
    pub partial: PathBuf,
    pub link: Option<(PathBuf, String)>,
}

/// What is known about an item's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Missing, or damaged.
    No,
    /// Intact, as long as the host does not lose power.
    Written,
    /// Intact, and on the disk.
    Safe,
}

impl Paths {
    pub(super) fn of(root: &Root, item: &Item) -> Self {
        let content = item.place(root);
        let name = content.file_name().unwrap_or_default().to_string_lossy();
        let link = match item.becomes {
            Becomes::Program { link } => Some((root.own(link), item.path.clone())),
            Becomes::Image | Becomes::Snapshot => None,
        };
        Self {
            note: content.with_file_name(format!(".{name}.verified")),
            fresh: content.with_file_name(format!(".{name}.new")),
            // The length distinguishes compressed forms: the prefix of another one must not be resumed.
            partial: content.with_file_name(format!(".{name}.part-{}", item.sent_size)),
            link,
            content,
        }
    }

    /// Opens the content, never through a link.
    pub(super) fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(&self.content)
    }

    /// Records that this very file was verified in this boot.
    pub(super) fn note_written(&self, file: &File) -> Outcome<()> {
        let found = file.metadata().explain("stat", &self.content)?;
        // A boot without an id matches no later boot: the content is read again then, and nothing else is lost. The
        // id must not be empty, because that would mean that the content is on the disk.
        let boot = boot().unwrap_or_else(|| "a boot without a name\n".to_owned());
        fs::write(&self.note, format!("{}{boot}", identity(&found))).explain("write", &self.note)
    }

    /// Waits until the content is on the disk, and records it.
    pub(super) fn settle(&self) -> Outcome<()> {
        // One at a time: etcd's own writes are in the same queue.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = self.open().explain("open", &self.content)?;
        let found = file.metadata().explain("stat", &self.content)?;
        // A file that changed since was not the one verified.
        if !fs::read_to_string(&self.note).is_ok_and(|note| note.starts_with(&identity(&found))) {
            return Ok(());
        }
        file.sync_all().explain("write", &self.content)?;
        sync_parent(&self.content)?;
        // A disk that accepts no note (a full one, for example) keeps the content anyway; the next check comes here
        // again.
        let _ = fs::write(&self.note, identity(&found));
        Ok(())
    }

    /// Checks the content; reads it only if it changed since it was verified.
    pub(super) fn kept(&self, part: &Item) -> Outcome<Kept> {
        let Ok(mut file) = self.open() else { return Ok(Kept::No) };
        let found = file.metadata().explain("stat", &self.content)?;
        let (digest, size) = match part.becomes {
            Becomes::Program { .. } | Becomes::Snapshot => (part.digest, part.size),
            Becomes::Image => (part.sent_digest, part.sent_size),
        };
        // A file of another user could change after it was verified.
        let shape = found.is_file() && found.len() == size && found.mode() & 0o7777 == part.becomes.mode();
        if !shape || found.uid() != rustix::process::geteuid().as_raw() {
            return Ok(Kept::No);
        }
        let (note, identity) = (fs::read_to_string(&self.note).unwrap_or_default(), identity(&found));
        match note.strip_prefix(&identity) {
            Some("") => return Ok(Kept::Safe),
            Some(written) if boot().is_some_and(|boot| boot == written) => return Ok(Kept::Written),
            _ => {}
        }
        let whole = Digest::of_all(&mut file, size).map(|found| found == (digest, size));
        // Unreadable content counts as missing: it is sent again.
        if !whole.unwrap_or(false) {
            return Ok(Kept::No);
        }
        // Without the note the next check reads it again, which is no reason to fail.
        let _ = self.note_written(&file);
        Ok(Kept::Written)
    }
}

/// The attributes that must be as they were when the content was verified.
fn identity(file: &fs::Metadata) -> String {
    format!("{} {} {} {} {}\n", file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec())
}

/// The id of this boot: data that is not yet on the disk is lost with it.
fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|boot| boot.len() > 30)
}
