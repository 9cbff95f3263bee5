//! What others put on this host before hactl, and how it is kept.
//!
//! In: a file that is about to be replaced or removed; a host that is about to join its first cluster. Out: a file of
//! others under another name in its directory; a record of the directories that were in use, until the host leaves the
//! cluster.

use crate::agent::machine::files::{optional, remove, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::op_error::{Explain, Outcome, failed};
use crate::model::foreign::{COPY, FOLDERS, SHARED, WRITTEN};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The directories that were in use before this host belonged to a cluster.
const RECORD: &str = "/var/lib/hactl/before.json";
/// The most copies of one file.
const COPIES: u32 = 1000;
/// The programs that hactl's links lead to.
const PROGRAMS: &str = "/var/lib/hactl";

/// Whether hactl wrote this file: its first line says so.
pub(crate) fn is_written(path: &Path) -> bool {
    let mut start = Vec::with_capacity(WRITTEN.len());
    let read = fs::File::open(path).and_then(|file| file.take(WRITTEN.len() as u64).read_to_end(&mut start));
    read.is_ok() && start == WRITTEN.as_bytes()
}

/// Whether it is a link to one of hactl's programs.
fn is_link(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|to| to.starts_with(PROGRAMS))
}

/// Whether there is a file of others: not one that hactl wrote, nor a link to one of its programs, nor an empty file.
/// An empty one has nothing to keep, and may be hactl's after a loss of power.
pub(crate) fn is_of_others(path: &Path) -> Outcome<bool> {
    let found = optional(fs::symlink_metadata(path)).explain("stat", path)?;
    let has_content = found.is_some_and(|found| !(found.is_dir() || found.is_file() && found.len() == 0));
    Ok(has_content && !is_link(path) && !is_written(path))
}

/// Removes hactl's links to its programs from a directory of others.
pub(crate) fn remove_links(folder: &Path) -> Outcome<()> {
    for entry in optional(fs::read_dir(folder)).explain("read the directory", folder)?.into_iter().flatten() {
        let path = entry.explain("read the directory", folder)?.path();
        if is_link(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Keeps a file of others under another name in its directory, before it is replaced or removed.
pub(crate) fn keep(path: &Path) -> Outcome<()> {
    if !is_of_others(path)? {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let same = |copy: &Path| fs::read(copy).is_ok_and(|kept| fs::read(path).is_ok_and(|now| now == kept));
    for number in 1..=COPIES {
        let end = if number == 1 { String::new() } else { format!("-{number}") };
        let copy = path.with_file_name(format!("{name}{COPY}{end}"));
        // A link replaces no file, so no earlier copy is lost.
        match fs::hard_link(path, &copy) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && same(&copy) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => return linked.explain("keep a copy of", path),
        }
    }
    Err(failed(format!("no copy of {} could be kept: files with the names of copies exist", path.display())))
}

/// The same for the files that hactl shares with others. The names of its other files show that they are hactl's.
pub(crate) fn keep_shared(root: &Root, path: &Path) -> Outcome<()> {
    if SHARED.iter().any(|shared| root.own(shared.path) == path) { keep(path) } else { Ok(()) }
}

/// Those of some directories that are wanted.
fn filter_folders<'a>(
    root: &Root,
    folders: impl IntoIterator<Item = &'a str>,
    is_wanted: impl Fn(&Path) -> Outcome<bool>,
) -> Outcome<Vec<&'a str>> {
    let judged = folders.into_iter().map(|folder| Ok(is_wanted(&root.below(folder))?.then_some(folder)));
    judged.filter_map(Result::transpose).collect()
}

/// The directories of [`FOLDERS`] that are in use.
pub(crate) fn folders_in_use(root: &Root) -> Outcome<Vec<&'static str>> {
    filter_folders(root, FOLDERS, is_in_use)
}

/// Whether there are files below a directory, besides those of a new file system and those that a former cluster left.
fn is_in_use(folder: &Path) -> Outcome<bool> {
    for entry in optional(fs::read_dir(folder)).explain("read the directory", folder)?.into_iter().flatten() {
        let entry = entry.explain("read the directory", folder)?;
        let (name, path) = (entry.file_name(), entry.path());
        if name == "lost+found" || name.to_string_lossy().starts_with("wiped-") {
            continue;
        }
        if !entry.file_type().explain("stat", &path)?.is_dir() || is_in_use(&path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Records the directories that are in use. Only for a host that belongs to no cluster: later, hactl uses them.
pub(crate) fn record(root: &Root) -> Outcome<()> {
    write(root, &folders_in_use(root)?)
}

fn write(root: &Root, folders: &[&str]) -> Outcome<()> {
    if folders.is_empty() {
        return forget(root);
    }
    let text = serde_json::to_vec(folders)
        .map_err(|e| failed(format!("the names of directories in use cannot be serialized: {e}")))?;
    write_one(root.own(RECORD), &text, 0o644, me())
}

fn read(root: &Root) -> Outcome<Vec<String>> {
    let record = root.own(RECORD);
    let Some(text) = optional(fs::read(&record)).explain("read", &record)? else { return Ok(Vec::new()) };
    serde_json::from_slice(&text)
        .map_err(|e| failed(format!("{} does not contain names of directories: {e}", record.display())))
}

/// The recorded directories.
pub(crate) fn recorded(root: &Root) -> Outcome<BTreeSet<PathBuf>> {
    Ok(read(root)?.iter().map(|folder| root.below(folder)).collect())
}

/// Takes directories off the record that were moved aside as a whole: what is there later is hactl's. A mount point
/// stays on it, because the data that was moved aside is inside.
pub(crate) fn forget_moved(root: &Root) -> Outcome<()> {
    let is_there = |at: &Path| Ok(optional(fs::symlink_metadata(at)).explain("stat", at)?.is_some());
    let before = read(root)?;
    let left = filter_folders(root, before.iter().map(String::as_str), is_there)?;
    if left.len() < before.len() { write(root, &left) } else { Ok(()) }
}

/// Deletes the record.
pub(crate) fn forget(root: &Root) -> Outcome<()> {
    remove(&root.own(RECORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_content_of_others_is_kept_once_and_neither_an_empty_one_nor_one_of_hactl() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haproxy.cfg");
        let replaced = |content: &str| {
            keep(&path).unwrap();
            let fresh = folder.path().join(".new");
            fs::write(&fresh, content).unwrap();
            fs::rename(&fresh, &path).unwrap();
        };
        replaced("theirs\n");
        assert_eq!(names(folder.path()), ["haproxy.cfg"], "there was nothing to keep");
        let ours = "# Written by hactl.\n";
        for content in [ours, "# Written by hactl: another one.\n", "theirs\n", ours] {
            replaced(content);
        }
        assert_eq!(names(folder.path()), ["haproxy.cfg", "haproxy.cfg.before-hactl"]);
        for content in ["", ours, "others\n", "a third\n", "theirs\n", "others\n", ours] {
            replaced(content);
        }
        let kept = names(folder.path());
        assert_eq!(kept[1..], ["", "-2", "-3"].map(|end| format!("haproxy.cfg.before-hactl{end}")));
        let texts: Vec<String> =
            kept[1..].iter().map(|name| fs::read_to_string(folder.path().join(name)).unwrap()).collect();
        assert_eq!(texts, ["theirs\n", "others\n", "a third\n"]);
    }

    #[test]
    fn a_program_of_others_is_kept_and_a_link_to_one_of_hactl_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubectl");
        std::os::unix::fs::symlink("/var/lib/hactl/parts/0/kubectl", &path).unwrap();
        keep(&path).unwrap();
        assert_eq!(names(folder.path()), ["kubectl"]);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/opt/kubectl", &path).unwrap();
        keep(&path).unwrap();
        assert_eq!(fs::read_link(folder.path().join("kubectl.before-hactl")).unwrap(), Path::new("/opt/kubectl"));
    }

    #[test]
    fn directories_without_files_or_with_archived_data_alone_are_not_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let archived = "/var/lib/containerd/wiped-20261130T000000.000Z";
        for path in ["/var/lib/kubelet/lost+found", archived, "/etc/kubernetes/manifests"] {
            fs::create_dir_all(root.own(path)).unwrap();
        }
        fs::write(root.own("/var/lib/containerd/wiped-20261130T000000.000Z/meta.db"), "").unwrap();
        assert_eq!(folders_in_use(&root).unwrap(), [""; 0]);
        fs::create_dir_all(root.own("/var/lib/containerd/io.containerd.metadata.v1.bolt")).unwrap();
        fs::write(root.own("/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"), "").unwrap();
        assert_eq!(folders_in_use(&root).unwrap(), ["/var/lib/containerd"]);
    }
}
