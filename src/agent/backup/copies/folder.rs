//! One directory with copies: its content, and pieces of its files.
//!
//! In: a directory that others may write to. Out: facts, limited in number, in bytes read and in time. Only regular
//! files in the directory itself are opened, and only their two ends are read.

use crate::agent::machine::{files, when};
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::model::copies::{CopiesFact, CopyFact, CopyName};
use crate::model::names::{ClusterName, Digest};
use crate::model::snapshot::{PEERS, by_name, is_name};
use crate::model::timestamp::is_ahead;
use crate::snapshot::{Bundle, BundleError};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, statat};
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many entries are read. No retention keeps as many snapshots.
const ENTRIES: usize = 50_000;
/// How many snapshots of each host are read: damage to the newest may show only after all of it was fetched.
const OF_EACH: usize = 4;
/// How many files are opened, and how many snapshots, names and damaged files are reported.
const READ: usize = 2000;
const TOLD: usize = 200;
const NAMED: usize = 1000;
const DAMAGED: usize = 8;
/// After so long no further file is opened: a partial result is better than none at the deadline.
const UNTIL: Duration = Duration::from_secs(6);
/// Bytes of one piece, before base64: the output of a program is kept up to 8 MiB.
const PIECE: u64 = 4 << 20;

/// The search.
pub(super) struct Wanted {
    pub cluster: ClusterName,
    pub authority: Option<Digest>,
    pub named: Option<String>,
    pub all: bool,
}

/// Reads the directory.
pub(super) fn find(directory: String, at: &Path, wanted: &Wanted) -> CopiesFact {
    let mut found = CopiesFact { directory, ..CopiesFact::default() };
    if let Err(trouble) = look(at, wanted, &mut found) {
        found.trouble = Some(trouble);
    }
    found
}

fn look(at: &Path, wanted: &Wanted, found: &mut CopiesFact) -> Result<(), String> {
    let shown = found.directory.clone();
    let folder = open(at, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    // No copy of another host has come here yet.
    if shown == PEERS && matches!(folder, Err(Errno::NOENT)) {
        return Ok(());
    }
    let folder = folder.map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => format!("{shown} does not exist; check that it is mounted"),
        other => format!("{shown} cannot be opened: {}", std::io::Error::from(other)),
    })?;
    let listed = names(&folder, wanted).map_err(|error| format!("{shown} cannot be listed: {error}"))?;
    let whole = listed.ours.len();
    if listed.cut {
        found.trouble = Some(format!("{shown} contains more than {ENTRIES} files, and not all were read"));
    }
    let begun = Instant::now();
    let mut had: BTreeMap<String, usize> = BTreeMap::new();
    let (mut opened, mut others, mut damaged) = (0, Vec::new(), Vec::new());
    for name in listed.ours {
        let named = wanted.named.as_ref() == Some(&name);
        let by = by_name(&name).map(|by| by.host.to_owned()).unwrap_or_default();
        if !named && had.get(&by).is_some_and(|count| *count >= OF_EACH) {
            others.push(name);
            continue;
        }
        if opened >= READ || found.copies.len() >= TOLD || begun.elapsed() > UNTIL {
            found.trouble = Some(format!("{shown} was not read completely: {opened} of {whole} files were opened"));
            others.push(name);
            continue;
        }
        opened += 1;
        match read(&folder, &format!("{shown}/{name}"), &name) {
            // Snapshots of another cluster are ignored.
            Ok((copy, _)) if wanted.authority.is_some_and(|authority| copy.bundle.authority != authority) => {}
            Ok((copy, cluster)) if named || (cluster == wanted.cluster && copy.is_as_named(&cluster)) => {
                *had.entry(by).or_default() += 1;
                found.copies.push(copy);
            }
            Ok(_) => damaged.push(format!("the content of {shown}/{name} does not match its name")),
            Err(why) => damaged.push(why),
        }
    }
    found.copies.sort_by_key(|copy| (Reverse(copy.bundle.taken_ms), copy.bundle.name.clone()));
    let more = damaged.len().saturating_sub(DAMAGED);
    damaged.truncate(DAMAGED);
    if more > 0 {
        damaged.push(format!("{more} more files in {shown} cannot be used"));
    }
    found.damaged = damaged;
    if wanted.all {
        let sized = others.into_iter().take(NAMED).filter_map(|name| {
            let stat = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            Some(CopyName { name, bytes: u64::try_from(stat.st_size).ok().filter(|_| file)? })
        });
        found.others = sized.collect();
    }
    Ok(())
}

/// The listing of a directory.
struct Listed {
    /// The names of snapshots of this cluster, the newest first, after the one that was asked for by name. Those that
    /// a wrong clock dated in the future come last.
    ours: Vec<String>,
    /// Whether there is more.
    cut: bool,
}

fn names(folder: &OwnedFd, wanted: &Wanted) -> std::io::Result<Listed> {
    let (mut names, mut seen) = (Vec::new(), 0);
    for entry in Dir::read_from(folder)? {
        seen += 1;
        if seen > ENTRIES {
            break;
        }
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let ours = by_name(name).is_some_and(|by| by.cluster == wanted.cluster.as_str());
        if is_name(name) && (ours || wanted.named.as_deref() == Some(name)) {
            names.push(name.to_owned());
        }
    }
    let now = when::now_ms();
    names.sort_by_key(|name| {
        let taken = by_name(name).map(|by| by.taken_ms);
        let asked = wanted.named.as_ref() == Some(name);
        (!asked, taken.is_none_or(|at| is_ahead(at, now)), Reverse(taken), name.clone())
    });
    Ok(Listed { ours: names, cut: seen > ENTRIES })
}

/// The manifest of a copy, and its cluster.
fn read(folder: &OwnedFd, shown: &str, name: &str) -> Result<(CopyFact, ClusterName), String> {
    let file = regular(folder, shown, name)?;
    let bundle = Bundle::read(file, Path::new(shown)).map_err(|error: BundleError| error.to_string())?;
    Ok((CopyFact::of(name.to_owned(), bundle.bytes, &bundle.claimed), bundle.claimed.manifest.cluster))
}

/// Opens a file of the directory itself: no link is followed, and only regular files are opened, because opening a
/// pipe or a device has side effects.
fn regular(folder: &OwnedFd, shown: &str, name: &str) -> Result<File, String> {
    let cannot = |error: Errno| format!("cannot open {shown}: {}", std::io::Error::from(error));
    let kind = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(cannot)?;
    if !kind(stat.st_mode) {
        return Err(format!("{shown} is not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty()).map_err(cannot)?;
    // Another client may have replaced it meanwhile.
    if !kind(rustix::fs::fstat(&file).map_err(cannot)?.st_mode) {
        return Err(format!("{shown} is not a regular file"));
    }
    Ok(File::from(file))
}

/// A piece of a copy, in base64; at its end nothing.
pub(super) fn piece(at: &Path, name: &str, from: u64) -> Outcome<String> {
    if !is_name(name) {
        return Err(bad(format!("{name:?} is not the name of a snapshot")));
    }
    let folder = open(at, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let (folder, place) = (folder.explain("open", at)?, at.join(name));
    let file = regular(&folder, &place.display().to_string(), name).map_err(failed)?;
    files::piece(file, &place, from, PIECE)
}
