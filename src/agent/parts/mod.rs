//! Parts and snapshots: received compressed, verified while they arrive, and stored by digest.
//!
//! In: an [`Item`] and the pieces of its compressed form. Out: the verified content at its path; a program with its
//! link; of an image and of packages the compressed form, because containerd and the package manager make copies of
//! their own. The compressed pieces are kept until the end, so that an interrupted delivery resumes. They are
//! decompressed and hashed as they arrive, so that nothing is left to do after the last piece.

pub(super) mod blob;
pub(super) mod images;
mod item;
pub(super) mod packed;
pub(super) mod repository;
mod store;
mod unpack;

use crate::agent::host::Host;
use crate::agent::machine::files::{absent, fresh_beside, remove_all, sync_parent};
use crate::agent::machine::foreign;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::op_error::{Explain, Outcome, bad, disk_full, failed, free_bytes};
use crate::model::blob::{LARGEST_SENT, SnapshotBlob};
use crate::model::digester::Digester;
use crate::model::target::Part;
use crate::protocol::{OpErrorKind, SnapshotUse};
use blob::{Blob, Piece};
use item::Becomes;
pub(super) use item::Item;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use store::{Kept, NOFOLLOW, Paths};
use tokio::sync::mpsc;
use unpack::{Unpack, WINDOW, corrupt};

/// Largest accepted item, bytes, in either form: that of a snapshot.
const LARGEST: u64 = LARGEST_SENT;
/// Free space that must remain after a delivery, bytes.
const RESERVE: u64 = 64 << 20;

fn linked(paths: &Paths) -> bool {
    paths.link.as_ref().is_none_or(|(at, to)| fs::read_link(at).is_ok_and(|found| found == Path::new(to)))
}

/// Whether a part exists, intact, linked, on the disk, and where the users of units can run it.
pub(super) fn present(root: &Root, part: &Part) -> Outcome<bool> {
    let item = Item::part(part)?;
    let paths = Paths::of(root, &item);
    if !linked(&paths) || misfits(&paths, &item).next().is_some() {
        return Ok(false);
    }
    match paths.kept(&item)? {
        Kept::No => Ok(false),
        // Content that does not reach the disk counts as missing: delivering it again reports why.
        Kept::Written => Ok(paths.settle().is_ok()),
        Kept::Safe => Ok(true),
    }
}

/// The content of an image or of packages, decompressed while it is read, after it was verified.
pub(super) fn unpacked(root: &Root, part: &Part) -> Outcome<impl Read + Send + use<>> {
    let item = Item::part(part)?;
    let paths = Paths::of(root, &item);
    if paths.kept(&item)? == Kept::No {
        return Err(bad(format!("{} has not been delivered to this host", item.words)));
    }
    let file = paths.open().explain("open", &paths.content)?;
    zstd::stream::read::Decoder::new(file).explain("read", &paths.content)
}

/// The path of a delivered snapshot, after it was verified.
pub(super) fn snapshot(root: &Root, blob: SnapshotBlob, to: SnapshotUse) -> Outcome<PathBuf> {
    let item = Item::snapshot(blob, to);
    let paths = Paths::of(root, &item);
    if paths.kept(&item)? == Kept::No {
        return Err(bad("the snapshot has not been delivered to this host"));
    }
    Ok(paths.content)
}

/// Stores a snapshot that was made on this host, from a file of root, where a delivery for a recovery would store it.
pub(super) fn keep_snapshot(root: &Root, blob: SnapshotBlob, from: &Path) -> Outcome<()> {
    let item = Item::snapshot(blob, SnapshotUse::Recovery);
    let paths = Paths::of(root, &item);
    folder(&paths, &item)?;
    fs::rename(from, &paths.content).explain("replace", &paths.content)?;
    let file = paths.open().explain("open", &paths.content)?;
    paths.note_written(&file)
}

/// Removes an obsolete snapshot with all its files, and the directory of its kind with the last one.
pub(super) fn forget(root: &Root, blob: SnapshotBlob, to: SnapshotUse) -> Outcome<()> {
    let paths = Paths::of(root, &Item::snapshot(blob, to));
    let own = paths.content.parent().unwrap_or(&paths.content);
    remove_all(own)?;
    // Other snapshots of its kind may be there; a missing directory is fine.
    let _ = fs::remove_dir(item::folder_of(root, to));
    Ok(())
}

/// Removes the remains of interrupted checks and installations.
pub(super) fn clear_interrupted(root: &Root) -> Outcome<()> {
    remove_all(&root.own(repository::FOLDER))?;
    remove_all(&item::folder_of(root, SnapshotUse::Check))
}

/// The directory of an item and the one above it, made or corrected: a run under another umask may have made them.
fn folder(paths: &Paths, item: &Item) -> Outcome<()> {
    let at = paths.content.parent().unwrap_or(Path::new("/"));
    let mode = item.becomes.folder_mode();
    DirBuilder::new().recursive(true).mode(mode).create(at).explain("create", at)?;
    for folder in misfits(paths, item) {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).explain("set the mode of", folder)?;
    }
    Ok(())
}

/// The directories of an item that do not exist, or that have another mode.
fn misfits<'a>(paths: &'a Paths, item: &Item) -> impl Iterator<Item = &'a Path> {
    let mode = item.becomes.folder_mode();
    let fits = move |at: &Path| fs::metadata(at).is_ok_and(|found| found.permissions().mode() & 0o777 == mode);
    paths.content.ancestors().skip(1).take(2).filter(move |at| !fits(at))
}

/// Installs an item; requests its content unless it is there.
pub(super) async fn deliver(host: &Host, part: Item, blob: &mut Blob<'_>) -> Outcome<()> {
    if part.size > LARGEST || part.sent_size > LARGEST {
        return Err(bad(format!(
            "{} has {} bytes, more than the limit of a delivery",
            part.words,
            part.size.max(part.sent_size)
        )));
    }
    let paths = Paths::of(&host.root, &part);
    let begun = {
        let (paths, part) = (paths.clone(), part.clone());
        blocking(move || begin(&paths, &part, free_bytes(&paths.content))).await?
    };
    let Some((kept, from)) = begun else { return Ok(()) };
    host.waits(format!("the content of {}", part.words));
    blob.appetite.want();
    // The receiving session ends only together with this operation.
    let _ = blob.wanted.send(from).await;
    // The thread gets a channel of its own: it must end when this operation is dropped.
    let (feed, intake) = mpsc::channel(2);
    let mut receiving = {
        let (part, paths) = (part.clone(), paths.clone());
        tokio::spawn(blocking(move || receive(&paths, &part, kept, intake)))
    };
    let outcome = loop {
        tokio::select! {
            outcome = &mut receiving => break outcome,
            piece = blob.pieces.recv(), if !feed.is_closed() => match piece {
                Some(piece) => { let _ = feed.send(piece).await; }
                None => break Ok(Err(failed("the channel closed in the middle of a blob"))),
            }
        }
    };
    outcome.unwrap_or_else(|error| Err(failed(format!("hactl itself failed: {error}"))))?;
    // The disk writes while the run continues. If that fails, or the process ends, the next check does it and reports
    // it. A snapshot is deleted before the disk has it.
    if part.becomes != Becomes::Snapshot {
        std::thread::spawn(move || paths.settle());
    }
    Ok(())
}

/// Stores a snapshot. A snapshot for a check that did not arrive leaves nothing.
pub(super) async fn deliver_snapshot(
    host: &Host,
    snapshot: SnapshotBlob,
    to: SnapshotUse,
    blob: &mut Blob<'_>,
) -> Outcome<()> {
    let delivered = deliver(host, Item::snapshot(snapshot, to), blob).await;
    if delivered.is_err() && to == SnapshotUse::Check {
        host.root.blocking(move |root| forget(root, snapshot, to)).await?;
    }
    delivered
}

/// Determines what to send: `None` if nothing, else the partial file and its length.
fn begin(paths: &Paths, part: &Item, free: Option<u64>) -> Outcome<Option<(File, u64)>> {
    folder(paths, part)?;
    if paths.kept(part)? != Kept::No {
        link(paths)?;
        return Ok(None);
    }
    let partial = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .open(&paths.partial)
        .explain("open", &paths.partial)?;
    if flock(&partial, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(failed(format!("{} is already being delivered over another channel", part.words)));
    }
    let mut from = partial.metadata().explain("stat", &paths.partial)?.len();
    if from > part.sent_size {
        partial.set_len(0).explain("empty", &paths.partial)?;
        from = 0;
    }
    let needed = part.size + (part.sent_size - from) + RESERVE;
    if free.is_some_and(|free| free < needed) {
        return Err(disk_full(&paths.content, Some(needed)));
    }
    Ok(Some((partial, from)))
}

/// Receives the pieces. A fault of the content deletes the partial file; after any other it stays for the next
/// attempt.
fn receive(paths: &Paths, part: &Item, mut partial: File, mut pieces: mpsc::Receiver<Piece>) -> Outcome<()> {
    let _ = fs::remove_file(&paths.fresh);
    let outcome = take_in(paths, part, &mut partial, &mut pieces);
    if outcome.is_err() {
        let _ = fs::remove_file(&paths.fresh);
    }
    match &outcome {
        Err(fault) if fault.kind == OpErrorKind::Corrupt => {
            fs::remove_file(&paths.partial).explain("remove", &paths.partial)?;
        }
        Err(_) => {}
        Ok(()) => link(paths)?,
    }
    outcome
}

fn take_in(paths: &Paths, part: &Item, partial: &mut File, pieces: &mut mpsc::Receiver<Piece>) -> Outcome<()> {
    let mut intake = Intake::new(paths, part)?;
    let (mut got, mut window) = (0_u64, vec![0; WINDOW]);
    loop {
        // Opened for reading and appending: reading starts at the beginning.
        match partial.read(&mut window).explain("read", &paths.partial)? {
            0 => break,
            more => {
                got += more as u64;
                intake.take(&window[..more])?;
            }
        }
    }
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Bytes(piece)) => {
                got += piece.len() as u64;
                if got > part.sent_size {
                    return Err(corrupt(part, format!("more than the {} bytes announced were sent", part.sent_size)));
                }
                partial.write_all(&piece).explain("write", &paths.partial)?;
                intake.take(&piece)?;
            }
            Some(Piece::End) => break,
            None => return Err(failed(format!("the delivery of {} was interrupted after {got} bytes", part.words))),
        }
    }
    let unpacked = intake.finish(part, got)?;
    let (from, file) = unpacked.as_ref().map_or((&paths.partial, &*partial), |whole| (&paths.fresh, whole));
    file.set_permissions(fs::Permissions::from_mode(part.becomes.mode())).explain("set the mode of", from)?;
    fs::rename(from, &paths.content).explain("replace", &paths.content)?;
    if unpacked.is_some() {
        fs::remove_file(&paths.partial).explain("remove", &paths.partial)?;
    }
    // After the rename, which counts as a change of the inode.
    paths.note_written(file)
}

/// The treatment of compressed pieces as they arrive: programs and snapshots are unpacked; an image stays as it is,
/// because only containerd reads its content, and unpacks it.
enum Intake<'a> {
    Program(Box<Unpack<'a>>),
    Image(Digester<()>),
}

impl<'a> Intake<'a> {
    fn new(paths: &'a Paths, part: &'a Item) -> Outcome<Self> {
        Ok(match part.becomes {
            Becomes::Program { .. } | Becomes::Snapshot => {
                Self::Program(Box::new(Unpack::new(part, &paths.fresh, fresh(paths, part)?)?))
            }
            Becomes::Image => Self::Image(Digester::new(())),
        })
    }

    fn take(&mut self, piece: &[u8]) -> Outcome<()> {
        match self {
            Self::Program(unpack) => unpack.take(piece),
            Self::Image(sum) => {
                sum.add(piece);
                Ok(())
            }
        }
    }

    /// The unpacked program, if it is one.
    fn finish(self, part: &Item, got: u64) -> Outcome<Option<File>> {
        let sum = match self {
            Self::Program(unpack) => return unpack.finish().map(Some),
            Self::Image(sum) => sum.so_far(),
        };
        if got != part.sent_size {
            return Err(corrupt(part, format!("it has {got} bytes instead of {}", part.sent_size)));
        }
        if sum != part.sent_digest {
            return Err(corrupt(part, format!("its digest is {sum} instead of {}", part.sent_digest)));
        }
        Ok(None)
    }
}

/// The file that becomes a program or a snapshot once it is complete.
fn fresh(paths: &Paths, item: &Item) -> Outcome<File> {
    let out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&paths.fresh)
        .explain("create", &paths.fresh)?;
    if item.becomes != Becomes::Snapshot {
        label(&paths.fresh, &out)?;
    }
    Ok(out)
}

/// With SELinux, systemd runs only files labelled as programs.
fn label(path: &Path, file: &File) -> Outcome<()> {
    if !Path::new("/sys/fs/selinux/enforce").exists() {
        return Ok(());
    }
    let label = b"system_u:object_r:bin_t:s0\0";
    rustix::fs::fsetxattr(file, "security.selinux", label, rustix::fs::XattrFlags::empty()).explain("label", path)
}

/// Makes the link point at the content, atomically. A program of others is kept under another name.
fn link(paths: &Paths) -> Outcome<()> {
    let Some((at, to)) = &paths.link else { return Ok(()) };
    if linked(paths) {
        return Ok(());
    }
    let directory = at.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).explain("create", directory)?;
    let fresh = fresh_beside(at);
    absent(fs::remove_file(&fresh)).explain("remove", &fresh)?;
    symlink(to, &fresh).explain("create", &fresh)?;
    foreign::keep(at)?;
    fs::rename(&fresh, at).explain("replace", at)?;
    sync_parent(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::names::Digest;

    fn blob(content: &[u8]) -> (SnapshotBlob, Vec<u8>) {
        let sent = zstd::encode_all(content, 1).unwrap();
        let (size, sent_size) = (content.len() as u64, sent.len() as u64);
        let blob = SnapshotBlob { digest: Digest::of(content), size, sent_digest: Digest::of(&sent), sent_size };
        (blob, sent)
    }

    fn item(content: &[u8]) -> (Item, Vec<u8>) {
        let (blob, sent) = blob(content);
        (Item::snapshot(blob, SnapshotUse::Recovery), sent)
    }

    #[test]
    fn a_disk_without_space_is_reported_with_numbers_before_anything_is_sent() {
        let directory = tempfile::tempdir().unwrap();
        let (mut part, _) = item(b"content");
        part.size = 500 << 20;
        let paths = Paths::of(&Root::at(directory.path()), &part);
        let fault = begin(&paths, &part, Some(400 << 20)).unwrap_err();
        assert!(fault.kind == OpErrorKind::DiskFull && fault.what.contains("565 MiB are required"), "{fault:?}");
        assert!(begin(&paths, &part, Some(600 << 20)).unwrap().is_some());
    }

    #[test]
    fn a_snapshot_that_was_made_here_is_not_asked_for_again_until_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let (made_of, item) = (blob(b"all keys").0, item(b"all keys").0);
        let made = directory.path().join("made");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&made).unwrap().write_all(b"all keys").unwrap();
        keep_snapshot(&root, made_of, &made).unwrap();
        let paths = Paths::of(&root, &item);
        assert!(begin(&paths, &item, None).unwrap().is_none());
        assert_eq!(fs::read(snapshot(&root, made_of, SnapshotUse::Recovery).unwrap()).unwrap(), b"all keys");
        assert!(snapshot(&root, made_of, SnapshotUse::Check).is_err(), "for a check it is delivered separately");
        fs::write(&paths.content, b"no keys!").unwrap();
        assert!(begin(&paths, &item, None).unwrap().is_some(), "changed content is requested");
        forget(&root, made_of, SnapshotUse::Recovery).unwrap();
        assert_eq!(fs::read_dir(directory.path().join("var/lib/hactl")).unwrap().count(), 0, "nothing of it is left");
    }

    #[test]
    fn a_disk_that_fills_up_meanwhile_is_distinguished_from_damage() {
        let (part, sent) = item(&vec![7; 3 << 20]);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut unpack = Unpack::new(&part, Path::new("/dev/full"), full).unwrap();
        let fault = unpack.take(&sent).unwrap_err();
        assert!(fault.kind == OpErrorKind::DiskFull && fault.what.contains("MiB free"), "{fault:?}");
    }
}
