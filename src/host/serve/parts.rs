//! Parts: programs and images that arrive compressed, are verified while they arrive, and lie content-addressed.
//!
//! In: a [`Part`] and the pieces of its compressed form. Out: the content at [`Part::path`], verified, with its link. The
//! compressed pieces are kept until the end, so that a delivery that was cut off goes on where it stopped; decompressing and
//! hashing happen meanwhile, so that nothing is left to do when the last piece is there.
//!
//! A note beside the content says which inode, size and change time were verified: content is read again only when
//! those differ.

use super::Host;
use super::fault::{Explain, Outcome, bad, disk_full, failed, fault, free_bytes};
use super::root::Root;
use super::run::blocking;
use super::session::Appetite;
use crate::host::op::FaultKind;
use crate::model::names::Digest;
use crate::model::target::{Part, Place};
use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// A piece of a blob, or its end.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    End,
}

/// The blob that follows a request.
pub(super) struct Blob<'a> {
    pub pieces: &'a mut mpsc::Receiver<Piece>,
    pub appetite: &'a Appetite,
    /// Where to say from which offset the blob is wanted.
    pub wanted: &'a mpsc::Sender<u64>,
}

/// Decompressed bytes handled at once.
const WINDOW: usize = 1 << 20;
/// Largest part accepted, bytes.
const LARGEST: u64 = 8 << 30;
/// Free space that must remain after a delivery, bytes.
const RESERVE: u64 = 64 << 20;

/// Where everything about a part lies.
#[derive(Debug, Clone)]
struct Paths {
    content: PathBuf,
    note: PathBuf,
    fresh: PathBuf,
    partial: PathBuf,
    link: Option<(PathBuf, String)>,
}

fn paths(root: &Root, part: &Part) -> Outcome<Paths> {
    let name = &part.name;
    let plain = !name.is_empty()
        && name.len() <= 100
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !plain {
        return Err(bad(format!("{:?} is not the name of a part", name.chars().take(100).collect::<String>())));
    }
    let content = root.path(&part.path())?;
    let link = match &part.place {
        Place::Program { link: Some(link) } => Some((root.path(link)?, part.path())),
        Place::Program { link: None } | Place::Image { .. } => None,
    };
    Ok(Paths {
        note: content.with_file_name(format!(".{name}.verified")),
        fresh: content.with_file_name(format!(".{name}.new")),
        // The length tells compressed forms apart: a prefix of another one must not be continued.
        partial: content.with_file_name(format!(".{name}.part-{}", part.sent_size)),
        content,
        link,
    })
}

/// What must be as it was when the content was verified.
fn identity(file: &fs::Metadata) -> String {
    format!("{} {} {} {} {}\n", file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec())
}

/// Whether the content of a part is there and intact; reads it only when it changed since it was verified.
fn intact(paths: &Paths, part: &Part) -> Outcome<bool> {
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(&paths.content) else {
        return Ok(false);
    };
    let found = file.metadata().explain("look at", &paths.content)?;
    // Somebody else's file could change after it was verified.
    let shape = found.is_file() && found.len() == part.size && found.mode() & 0o7777 == mode(part);
    if !shape || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    if fs::read_to_string(&paths.note).is_ok_and(|note| note == identity(&found)) {
        return Ok(true);
    }
    let (mut sum, mut window) = (Context::new(&SHA256), vec![0; WINDOW]);
    loop {
        match file.read(&mut window).explain("read", &paths.content)? {
            0 => break,
            got => sum.update(&window[..got]),
        }
    }
    let whole = digest_of(sum) == part.digest;
    if whole {
        // Without the note the next look only takes longer.
        let _ = fs::write(&paths.note, identity(&found));
    }
    Ok(whole)
}

/// `O_NOFOLLOW`.
const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

fn mode(part: &Part) -> u32 {
    match part.place {
        Place::Program { .. } => 0o755,
        Place::Image { .. } => 0o644,
    }
}

fn digest_of(sum: Context) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(sum.finish().as_ref());
    Digest::new(bytes)
}

fn linked(paths: &Paths) -> bool {
    paths.link.as_ref().is_none_or(|(at, to)| fs::read_link(at).is_ok_and(|found| found == Path::new(to)))
}

/// Whether a part is there, intact and linked.
pub(super) fn present(root: &Root, part: &Part) -> Outcome<bool> {
    let paths = paths(root, part)?;
    Ok(linked(&paths) && intact(&paths, part)?)
}

/// Where a part's content lies, once it is certain that it is intact.
pub(super) fn content(root: &Root, part: &Part) -> Outcome<PathBuf> {
    let paths = paths(root, part)?;
    if intact(&paths, part)? {
        Ok(paths.content)
    } else {
        Err(bad(format!("{} {} has not been delivered to this host", part.name, part.version)))
    }
}

/// Puts a part in its place, asking for its content unless it is there.
pub(super) async fn deliver(host: &Host, part: Part, blob: &mut Blob<'_>) -> Outcome<()> {
    if part.size > LARGEST || part.sent_size > LARGEST {
        return Err(bad(format!(
            "{} of {} bytes is larger than any part may be",
            part.name,
            part.size.max(part.sent_size)
        )));
    }
    let paths = paths(&host.root, &part)?;
    let begun = {
        let (paths, part) = (paths.clone(), part.clone());
        blocking(move || begin(&paths, &part, free_bytes(&paths.content))).await?
    };
    let Some((kept, from)) = begun else { return Ok(()) };
    host.waits(format!("the content of {} {}", part.name, part.version));
    blob.appetite.want();
    // The session that listens ends only together with this operation.
    let _ = blob.wanted.send(from).await;
    // The thread gets a channel of its own: it must end when this operation is dropped.
    let (feed, intake) = mpsc::channel(2);
    let mut receiving = {
        let part = part.clone();
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
    outcome.unwrap_or_else(|error| Err(failed(format!("hactl itself failed: {error}"))))
}

/// Looks what is there: `None` when nothing need be sent, else the partial file and its length.
fn begin(paths: &Paths, part: &Part, free: Option<u64>) -> Outcome<Option<(File, u64)>> {
    let directory = paths.content.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).explain("create", directory)?;
    if intact(paths, part)? {
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
        return Err(failed(format!("{} is being delivered over another channel already", part.name)));
    }
    let mut from = partial.metadata().explain("look at", &paths.partial)?.len();
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

/// Takes the pieces in. On a fault about content the partial file goes too; on any other it stays for the next time.
fn receive(paths: &Paths, part: &Part, mut partial: File, mut pieces: mpsc::Receiver<Piece>) -> Outcome<()> {
    let _ = fs::remove_file(&paths.fresh);
    let outcome = take_in(paths, part, &mut partial, &mut pieces);
    if outcome.is_err() {
        let _ = fs::remove_file(&paths.fresh);
    }
    match &outcome {
        Err(fault) if fault.kind == FaultKind::Corrupt => {
            fs::remove_file(&paths.partial).explain("remove", &paths.partial)?;
        }
        Err(_) => {}
        Ok(()) => {
            fs::remove_file(&paths.partial).explain("remove", &paths.partial)?;
            link(paths)?;
        }
    }
    outcome
}

fn take_in(paths: &Paths, part: &Part, partial: &mut File, pieces: &mut mpsc::Receiver<Piece>) -> Outcome<()> {
    let out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&paths.fresh)
        .explain("create", &paths.fresh)?;
    label(part, &paths.fresh, &out)?;
    let mut unpack = Unpack::new(part, &paths.fresh, out)?;
    let (mut got, mut window) = (0_u64, vec![0; WINDOW]);
    loop {
        // Opened for reading and appending: reading starts at the front.
        match partial.read(&mut window).explain("read", &paths.partial)? {
            0 => break,
            more => {
                got += more as u64;
                unpack.take(&window[..more])?;
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
                unpack.take(&piece)?;
            }
            Some(Piece::End) => break,
            None => return Err(failed(format!("the delivery of {} was cut off after {got} bytes", part.name))),
        }
    }
    let out = unpack.finish()?;
    out.set_permissions(fs::Permissions::from_mode(mode(part))).explain("set the mode of", &paths.fresh)?;
    out.sync_all().explain("write", &paths.fresh)?;
    fs::rename(&paths.fresh, &paths.content).explain("put in place", &paths.content)?;
    super::files::sync_parent(&paths.content)?;
    // After the rename, which counts as a change of the inode.
    let found = out.metadata().explain("look at", &paths.content)?;
    fs::write(&paths.note, identity(&found)).explain("write", &paths.note)
}

/// Where SELinux rules, systemd runs only what is labelled as a program.
fn label(part: &Part, path: &Path, file: &File) -> Outcome<()> {
    if !matches!(part.place, Place::Program { .. }) || !Path::new("/sys/fs/selinux/enforce").exists() {
        return Ok(());
    }
    let label = b"system_u:object_r:bin_t:s0\0";
    rustix::fs::fsetxattr(file, "security.selinux", label, rustix::fs::XattrFlags::empty()).explain("label", path)
}

fn corrupt(part: &Part, why: impl std::fmt::Display) -> crate::host::op::Fault {
    fault(FaultKind::Corrupt, format!("{} {} arrived damaged: {why}", part.name, part.version))
}

/// Decompresses, counts and hashes into a file.
struct Unpack<'a> {
    part: &'a Part,
    path: &'a Path,
    decoder: Decoder<'static>,
    sum: Context,
    size: u64,
    window: Vec<u8>,
    /// Whether the compressed form may end here: between two frames.
    between: bool,
    out: File,
}

impl<'a> Unpack<'a> {
    fn new(part: &'a Part, path: &'a Path, out: File) -> Outcome<Self> {
        let decoder = Decoder::new().map_err(|e| failed(format!("could not set up decompression: {e}")))?;
        Ok(Self {
            part,
            path,
            decoder,
            sum: Context::new(&SHA256),
            size: 0,
            window: vec![0; WINDOW],
            between: false,
            out,
        })
    }

    fn take(&mut self, compressed: &[u8]) -> Outcome<()> {
        let mut input = InBuffer::around(compressed);
        loop {
            let mut output = OutBuffer::around(self.window.as_mut_slice());
            let more = self.decoder.run(&mut input, &mut output).map_err(|e| corrupt(self.part, e))?;
            let made = output.pos();
            self.between = more == 0;
            self.size += made as u64;
            if self.size > self.part.size {
                return Err(corrupt(self.part, format!("it is larger than {} bytes", self.part.size)));
            }
            self.sum.update(&self.window[..made]);
            write(&mut self.out, &self.window[..made], self.path, self.part)?;
            // A full window may have left more inside the decoder.
            if input.pos() == compressed.len() && made < self.window.len() {
                return Ok(());
            }
            if self.between && input.pos() < compressed.len() {
                self.decoder.reinit().map_err(|e| corrupt(self.part, e))?;
            }
        }
    }

    fn finish(self) -> Outcome<File> {
        if !self.between {
            return Err(corrupt(self.part, "it ends too early"));
        }
        if self.size != self.part.size {
            return Err(corrupt(self.part, format!("it has {} bytes instead of {}", self.size, self.part.size)));
        }
        let digest = digest_of(self.sum);
        if digest != self.part.digest {
            return Err(corrupt(self.part, format!("its digest is {digest} instead of {}", self.part.digest)));
        }
        Ok(self.out)
    }
}

fn write(out: &mut File, bytes: &[u8], path: &Path, part: &Part) -> Outcome<()> {
    match out.write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(disk_full(path, Some(part.size))),
        outcome => outcome.explain("write", path),
    }
}

/// Makes the link point at the content, atomically.
fn link(paths: &Paths) -> Outcome<()> {
    let Some((at, to)) = &paths.link else { return Ok(()) };
    if linked(paths) {
        return Ok(());
    }
    let directory = at.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).explain("create", directory)?;
    let name = at.file_name().unwrap_or_default().to_string_lossy();
    let fresh = at.with_file_name(format!(".{name}.hactl-new"));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).explain("remove", &fresh),
        _ => {}
    }
    symlink(to, &fresh).explain("create", &fresh)?;
    fs::rename(&fresh, at).explain("put in place", at)?;
    super::files::sync_parent(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(content: &[u8]) -> (Part, Vec<u8>) {
        let sent = zstd::encode_all(content, 1).unwrap();
        let mut sum = Context::new(&SHA256);
        sum.update(content);
        let part = Part {
            name: "x".to_owned(),
            version: "1".to_owned(),
            digest: digest_of(sum),
            size: content.len() as u64,
            sent_size: sent.len() as u64,
            place: Place::Program { link: None },
        };
        (part, sent)
    }

    #[test]
    fn a_disk_without_room_says_so_with_numbers_before_anything_is_sent() {
        let directory = tempfile::tempdir().unwrap();
        let (mut part, _) = part(b"content");
        part.size = 500 << 20;
        let paths = paths(&Root::at(directory.path()), &part).unwrap();
        let fault = begin(&paths, &part, Some(400 << 20)).unwrap_err();
        assert!(fault.kind == FaultKind::DiskFull && fault.what.contains("565 MiB are needed"), "{fault:?}");
        assert!(begin(&paths, &part, Some(600 << 20)).unwrap().is_some());
    }

    #[test]
    fn a_disk_that_fills_up_meanwhile_is_told_from_damage() {
        let (part, sent) = part(&vec![7; 3 << 20]);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut unpack = Unpack::new(&part, Path::new("/dev/full"), full).unwrap();
        let fault = unpack.take(&sent).unwrap_err();
        assert!(fault.kind == FaultKind::DiskFull && fault.what.contains("MiB free"), "{fault:?}");
    }
}
