//! Directories that another user may write to, such as etcd's: walked by descriptors, never through a link.
//!
//! In: a path. Out: a directory that is held open, and its entries. Root follows a link only if root made it. The
//! owner of a tree could place a link to another user's file there at any time, also between a check and an action;
//! or, if the kernel permits it, a hard link to such a file. So each action uses the descriptor that was checked, and
//! a file with several names is changed only if it belongs to the owner of its directory.

use crate::agent::op_error::{Explain, Outcome, bad, disk_full, explained, failed, free_bytes};
use crate::etcd::disk::DiskError;
use crate::protocol::OpError;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawDir, Stat, Uid, chownat, fchmod, fstat, fsync, mkdirat, open, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// How many links of root a path may lead through; the limit of the kernel.
const LINKS: usize = 40;
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Opening a file with these flags neither blocks nor has side effects.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory, held open.
#[derive(Debug)]
pub(crate) struct Tree {
    fd: OwnedFd,
    shown: PathBuf,
}

impl Tree {
    /// Opens a directory; `None`: it does not exist.
    pub(crate) fn open(path: &Path) -> Outcome<Option<Self>> {
        match walk(path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            fd => fd.explain("open", path).map(|fd| Some(Self { fd, shown: path.to_owned() })),
        }
    }

    /// Opens a directory; makes it and its parents if they do not exist.
    pub(crate) fn made(path: &Path) -> Outcome<Self> {
        let fd = walk(path, true).explain("create", path)?;
        Ok(Self { fd, shown: path.to_owned() })
    }

    /// A directory that must exist.
    pub(crate) fn there(path: &Path) -> Outcome<Self> {
        Self::open(path)?.ok_or_else(|| bad(format!("{} does not exist", path.display())))
    }

    /// A path to this very directory, even if it is renamed; for this process alone.
    pub(crate) fn anchor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// The path for messages.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// Opens a directory in it; `None`: there is none of this name, or it is something else, such as a link.
    pub(crate) fn sub(&self, name: impl AsRef<OsStr>) -> Outcome<Option<Self>> {
        let shown = self.shown.join(name.as_ref());
        match openat(&self.fd, name.as_ref(), OFlags::RDONLY | FOLDER, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            fd => fd.explain("open", &shown).map(|fd| Some(Self { fd, shown })),
        }
    }

    /// Opens a directory below it that must exist.
    pub(crate) fn below(&self, names: &[&str]) -> Outcome<Self> {
        let mut at = Self { fd: self.fd.try_clone().explain("open", &self.shown)?, shown: self.shown.clone() };
        for name in names {
            let missing = || bad(format!("{} is not a directory", at.shown.join(name).display()));
            at = at.sub(name)?.ok_or_else(missing)?;
        }
        Ok(at)
    }

    /// Makes an empty directory of root in it; a previous entry of this name is removed.
    pub(crate) fn fresh(&self, name: &str) -> Outcome<Self> {
        self.clear(name)?;
        let shown = self.shown.join(name);
        mkdirat(&self.fd, name, Mode::RWXU).explain("create", &shown)?;
        let made = self.sub(name)?.ok_or_else(|| replaced(&shown))?;
        let ours = rustix::process::geteuid().as_raw();
        // Another process could have replaced it since.
        if fstat(&made.fd).explain("stat", &shown)?.st_uid == ours { Ok(made) } else { Err(replaced(&shown)) }
    }

    /// Opens a regular file in it for reading; `None`: there is none of this name.
    pub(crate) fn file(&self, name: impl AsRef<OsStr>) -> Outcome<Option<File>> {
        self.regular(name.as_ref(), OFlags::RDONLY)
    }

    fn regular(&self, name: &OsStr, access: OFlags) -> Outcome<Option<File>> {
        let shown = self.shown.join(name);
        let file = match openat(&self.fd, name, access | FILE, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.explain("open", &shown)?,
        };
        let found = fstat(&file).explain("stat", &shown)?;
        if kind(&found) != FileType::RegularFile {
            return Err(bad(format!("{} is not a regular file", shown.display())));
        }
        self.only_name(&found, &shown)?;
        Ok(Some(file.into()))
    }

    /// A regular file that must exist.
    pub(crate) fn file_there(&self, name: &str) -> Outcome<File> {
        self.file(name)?.ok_or_else(|| self.missing(name))
    }

    /// The same for reading and writing.
    pub(crate) fn file_to_write(&self, name: &str) -> Outcome<File> {
        self.regular(name.as_ref(), OFlags::RDWR)?.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> OpError {
        bad(format!("{} does not exist", self.shown.join(name).display()))
    }

    /// Makes a file of root in it, to write and to read; a previous entry of this name is removed.
    pub(crate) fn fresh_file(&self, name: &str) -> Outcome<File> {
        let shown = self.shown.join(name);
        self.clear(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | FILE;
        openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR).explain("create", &shown).map(File::from)
    }

    /// The path of a socket in it, for this process alone and as long as the descriptor is open.
    pub(crate) fn socket(&self, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
        let fd = openat(&self.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd()).into();
        Ok((fd, path))
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Outcome<Vec<OsString>> {
        let list = openat(&self.fd, ".", OFlags::RDONLY | FOLDER, Mode::empty()).explain("list", &self.shown)?;
        let mut names = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(list, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.explain("list", &self.shown)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Sets this owner and mode, if it has others.
    pub(crate) fn set(&self, owner: (u32, u32), mode: u32) -> Outcome<()> {
        let found = fstat(&self.fd).explain("stat", &self.shown)?;
        give(&self.fd, &found, owner).explain("change the owner of", &self.shown)?;
        if found.st_mode & 0o7777 != mode {
            fchmod(&self.fd, Mode::from_raw_mode(mode)).explain("set the mode of", &self.shown)?;
        }
        Ok(())
    }

    /// Sets the owner of it and all directories and regular files below. Links and sockets keep their owner, and are
    /// not followed.
    ///
    /// # Errors
    /// Also for a file of another user that has another name: that may be anywhere.
    pub(crate) fn own(&self, owner: (u32, u32)) -> Outcome<()> {
        let found = fstat(&self.fd).explain("stat", &self.shown)?;
        give(&self.fd, &found, owner).explain("change the owner of", &self.shown)?;
        for name in self.names()? {
            if let Some(folder) = self.sub(&name)? {
                folder.own(owner)?;
                continue;
            }
            let shown = self.shown.join(&name);
            let file = match openat(&self.fd, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                file => file.explain("open", &shown)?,
            };
            let found = fstat(&file).explain("stat", &shown)?;
            if kind(&found) == FileType::RegularFile && (found.st_uid, found.st_gid) != owner {
                self.only_name(&found, &shown)?;
                give(&file, &found, owner).explain("change the owner of", &shown)?;
            }
        }
        Ok(())
    }

    /// Refuses a file that may also be in another place and belong to another user there.
    fn only_name(&self, file: &Stat, shown: &Path) -> Outcome<()> {
        if file.st_nlink == 1 || file.st_uid == fstat(&self.fd).explain("stat", &self.shown)?.st_uid {
            return Ok(());
        }
        let (names, owner) = (file.st_nlink, file.st_uid);
        Err(bad(format!(
            "{} has {names} names and belongs to user {owner}, not to the owner of its directory: it may be a file \
             outside of it, so it is not changed; remove this name, then run the same command again",
            shown.display()
        )))
    }

    /// Syncs it and everything below, and nothing else: others write to the file system as well.
    pub(crate) fn sync(&self) -> Outcome<()> {
        for name in self.names()? {
            if let Some(folder) = self.sub(&name)? {
                folder.sync()?;
            } else if let Some(file) = self.file(&name)? {
                file.sync_all().explain("write", &self.shown.join(&name))?;
            }
        }
        fsync(&self.fd).explain("write", &self.shown)
    }

    /// Copies all directories and regular files into another one, except those that `leave` matches.
    pub(crate) fn copy_into(&self, to: &Self, leave: &impl Fn(&Path) -> bool) -> Outcome<()> {
        for name in self.names()? {
            let at = self.shown.join(&name);
            if let Some(folder) = self.sub(&name)? {
                mkdirat(&to.fd, &name, Mode::RWXU).explain("create", &to.shown.join(&name))?;
                let into = to.sub(&name)?.ok_or_else(|| replaced(&to.shown.join(&name)))?;
                folder.copy_into(&into, leave)?;
            } else if kind(&statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW).explain("stat", &at)?)
                == FileType::RegularFile
                && !leave(&at)
                && let Some(mut file) = self.file(&name)?
            {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FILE;
                let copy = openat(&to.fd, &name, flags, Mode::RUSR | Mode::WUSR).explain("copy", &at)?;
                // Shares the blocks if the file system can.
                io::copy(&mut file, &mut File::from(copy)).explain("copy", &at)?;
            }
        }
        Ok(())
    }

    /// Bytes of the files in it and below it.
    pub(crate) fn bytes(&self) -> Outcome<u64> {
        let mut sum = 0_u64;
        for name in self.names()? {
            let size = || statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW).map(|found| found.st_size);
            // Sparse files may add up to more than a disk has.
            sum = sum.saturating_add(match self.sub(&name)? {
                Some(folder) => folder.bytes()?,
                None => u64::try_from(size().explain("stat", &self.shown.join(&name))?).unwrap_or(0),
            });
        }
        Ok(sum)
    }

    /// Moves an entry to another directory of the same file system, and syncs both.
    pub(crate) fn move_to(&self, name: impl AsRef<OsStr>, to: &Self, new: impl AsRef<OsStr>) -> Outcome<()> {
        let (name, new) = (name.as_ref(), new.as_ref());
        renameat(&self.fd, name, &to.fd, new).explain("move", &self.shown.join(name))?;
        fsync(&to.fd).explain("write", &to.shown)?;
        fsync(&self.fd).explain("write", &self.shown)
    }

    /// Removes an entry with everything below; a missing one is fine.
    pub(crate) fn clear(&self, name: impl AsRef<OsStr>) -> Outcome<()> {
        self.clear_but(name.as_ref(), &[]).map(drop)
    }

    /// The same, except for paths that must stay; a mount point is emptied and stays as well. Returns whether
    /// everything is gone.
    pub(crate) fn clear_but(&self, name: &OsStr, keep: &[PathBuf]) -> Outcome<bool> {
        let shown = self.shown.join(name);
        if keep.contains(&shown) {
            return Ok(false);
        }
        let Some(folder) = self.sub(name)? else {
            return gone(unlinkat(&self.fd, name, AtFlags::empty())).explain("remove", &shown).map(|()| true);
        };
        let mut all = true;
        for inner in folder.names()? {
            all &= folder.clear_but(&inner, keep)?;
        }
        let removed = if all { unlinkat(&self.fd, name, AtFlags::REMOVEDIR) } else { Err(Errno::BUSY) };
        match removed {
            Err(Errno::BUSY) => Ok(false),
            outcome => gone(outcome).explain("remove", &shown).map(|()| true),
        }
    }

    /// A fault unless so many bytes are free here, as far as that is known.
    pub(crate) fn ensure_space(&self, needed: u64) -> Outcome<()> {
        match free_bytes(&self.anchor()) {
            Some(free) if free < needed => Err(disk_full(&self.shown, Some(needed))),
            _ => Ok(()),
        }
    }

    /// An error of etcd's files below the anchor, with the path that users know.
    pub(crate) fn words(&self, error: &DiskError) -> OpError {
        let anchor = self.anchor();
        match error {
            DiskError::Write { path, source } => {
                explained(source, "write", &self.shown.join(path.strip_prefix(&anchor).unwrap_or(path)))
            }
            _ => failed(error.to_string().replace(&anchor.display().to_string(), &self.shown.display().to_string())),
        }
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn replaced(at: &Path) -> OpError {
    bad(format!("{} was replaced while it was created: another program writes there", at.display()))
}

fn gone(outcome: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match outcome {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

fn give(what: &impl AsFd, found: &Stat, owner: (u32, u32)) -> rustix::io::Result<()> {
    if (found.st_uid, found.st_gid) == owner {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    chownat(what, "", Some(user), Some(group), AtFlags::EMPTY_PATH)
}

/// Opens a directory step by step from the root. A link in the path is followed if the user of this process made it.
fn walk(path: &Path, make: bool) -> io::Result<OwnedFd> {
    let start = if path.is_absolute() { "/" } else { "." };
    let mut at = open(start, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut left = names(path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        match openat(&at, &name, OFlags::PATH | FOLDER, Mode::empty()) {
            Ok(next) => at = next,
            Err(Errno::NOENT) if make => {
                match mkdirat(&at, &name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                at = openat(&at, &name, OFlags::PATH | FOLDER, Mode::empty())?;
            }
            Err(error @ (Errno::NOTDIR | Errno::LOOP)) => {
                let link = openat(&at, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                let found = fstat(&link)?;
                links += 1;
                if kind(&found) != FileType::Symlink || links > LINKS {
                    return Err(error.into());
                }
                if found.st_uid != rustix::process::geteuid().as_raw() {
                    let (name, owner) = (name.display(), found.st_uid);
                    return Err(io::Error::other(format!("{name} in the path is a link that user {owner} made")));
                }
                let to = readlinkat(&link, "", Vec::new())?;
                let to = Path::new(OsStr::from_bytes(to.as_bytes()));
                if to.is_absolute() {
                    at = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
                }
                names(to).into_iter().rev().for_each(|name| left.push_front(name));
            }
            Err(error) => return Err(error.into()),
        }
    }
    // A descriptor opened with `O_PATH` can be neither listed nor synced.
    Ok(openat(&at, ".", OFlags::RDONLY | FOLDER, Mode::empty())?)
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests;
