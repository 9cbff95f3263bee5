//! Where parts lie on a host, and what is known about their content.
//!
//! In: an [`Item`]. Out: its paths, and whether its content is there, intact, and on the disk for good. A note beside the content
//! says which inode, size and change time were verified: content is read again only when those differ. Until the
//! content is known to be on the disk, the note also names the boot that wrote it, and means nothing in the next one: a
//! host that loses its power in mid-run may come back with files that are empty. So the disk writes while the run goes on.

use super::item::{Becomes, Item};
use super::{MODE_IMAGE, MODE_PROGRAM, MODE_SNAPSHOT, NOFOLLOW};
use crate::agent::fault::{Explain, Outcome};
use crate::agent::machine::files::sync_parent;
use crate::agent::machine::root::Root;
use crate::model::names::Digest;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;

/// Where everything about an item lies.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    /// A program as it runs, a snapshot as etcd's tools read it; an image as it was sent, compressed.
    pub content: PathBuf,
    pub note: PathBuf,
    pub fresh: PathBuf,
    pub partial: PathBuf,
    pub link: Option<(PathBuf, String)>,
}

/// What is known about an item's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Not there, or damaged.
    No,
    /// There and intact, as long as the host does not lose its power.
    Written,
    /// There, intact, and on the disk.
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
            // The length tells compressed forms apart: a prefix of another one must not be continued.
            partial: content.with_file_name(format!(".{name}.part-{}", item.sent_size)),
            link,
            content,
        }
    }

    /// Opens the content, never through a link.
    pub(super) fn open(&self) -> std::io::Result<File> {
        OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(&self.content)
    }

    /// Notes that this very file was verified in this boot.
    pub(super) fn note_written(&self, file: &File) -> Outcome<()> {
        let found = file.metadata().explain("look at", &self.content)?;
        // A boot without a name is no later look's boot: the content is read again then, and nothing else is lost. Empty it must
        // not be, for that would say that the content is on the disk.
        let boot = boot().unwrap_or_else(|| "a boot without a name\n".to_owned());
        fs::write(&self.note, format!("{}{boot}", identity(&found))).explain("write", &self.note)
    }

    /// Waits until the content is on the disk, and notes it.
    pub(super) fn settle(&self) -> Outcome<()> {
        // One at a time: etcd's own writes stand in the same queue.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = self.open().explain("open", &self.content)?;
        let found = file.metadata().explain("look at", &self.content)?;
        // Whatever changed since it was verified is not what was verified.
        if !fs::read_to_string(&self.note).is_ok_and(|note| note.starts_with(&identity(&found))) {
            return Ok(());
        }
        file.sync_all().explain("write", &self.content)?;
        sync_parent(&self.content)?;
        // A disk that takes no note (it is full, say) keeps the content all the same; the next look comes here again.
        let _ = fs::write(&self.note, identity(&found));
        Ok(())
    }

    /// Looks at the content; reads it only when it changed since it was verified.
    pub(super) fn kept(&self, part: &Item) -> Outcome<Kept> {
        let Ok(mut file) = self.open() else { return Ok(Kept::No) };
        let found = file.metadata().explain("look at", &self.content)?;
        let (mode, sized) = match part.becomes {
            Becomes::Program { .. } => (MODE_PROGRAM, found.len() == part.size),
            Becomes::Snapshot => (MODE_SNAPSHOT, found.len() == part.size),
            Becomes::Image => (MODE_IMAGE, found.len() == part.sent_size),
        };
        // Somebody else's file could change after it was verified.
        let shape = found.is_file() && sized && found.mode() & 0o7777 == mode;
        if !shape || found.uid() != rustix::process::geteuid().as_raw() {
            return Ok(Kept::No);
        }
        let (note, identity) = (fs::read_to_string(&self.note).unwrap_or_default(), identity(&found));
        match note.strip_prefix(&identity) {
            Some("") => return Ok(Kept::Safe),
            Some(written) if boot().is_some_and(|boot| boot == written) => return Ok(Kept::Written),
            _ => {}
        }
        let (digest, size) = match part.becomes {
            Becomes::Program { .. } | Becomes::Snapshot => (part.digest, part.size),
            Becomes::Image => (part.sent_digest, part.sent_size),
        };
        let whole = Digest::of_all(&mut file, size).map(|found| found == (digest, size));
        // What cannot be read is as good as gone: it is sent again.
        if !whole.unwrap_or(false) {
            return Ok(Kept::No);
        }
        // Without the note the next look reads it again, which is no reason to say nothing about the host.
        let _ = self.note_written(&file);
        Ok(Kept::Written)
    }
}

/// What must be as it was when the content was verified.
fn identity(file: &fs::Metadata) -> String {
    format!("{} {} {} {} {}\n", file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec())
}

/// The name of the time since the kernel started: what was written and not yet on the disk is lost with it.
fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().filter(|boot| boot.len() > 30)
}
