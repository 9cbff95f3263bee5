//! What others put on this host before hactl, and how it is kept.
//!
//! In: a file that is about to be replaced or removed; a host that is about to join its first cluster. Out: a file of
//! others under another name in its directory; a record of the directories that were in use, until the host leaves the
//! cluster.

use crate::agent::machine::files::{optional, remove, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, failed};
use crate::model::foreign::{COPY, FOLDERS, SHARED, WRITTEN};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The directories that were in use before this host belonged to a cluster.
const RECORD: &str = "/var/lib/hactl/before.json";
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

/// Whether hactl wrote this file, or made this link to one of its programs.
pub(crate) fn is_ours(path: &Path) -> bool {
    is_link(path) || is_written(path)
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
    let found = optional(fs::symlink_metadata(path)).explain("stat", path)?;
    if found.is_none_or(|found| found.is_dir()) || is_ours(path) {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let named = |end: &str| path.with_file_name(format!("{name}{COPY}{end}"));
    let same = |copy: &Path| fs::read(copy).is_ok_and(|kept| fs::read(path).is_ok_and(|now| now == kept));
    for copy in [named(""), named(&format!("-{}", when::file_timestamp(when::now_ms())))] {
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

/// The directories of [`FOLDERS`] that are in use.
pub(crate) fn folders_in_use(root: &Root) -> Outcome<Vec<&'static str>> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        if is_in_use(&root.own(folder))? {
            found.push(folder);
        }
    }
    Ok(found)
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
    let folders = folders_in_use(root)?;
    if folders.is_empty() {
        return forget(root);
    }
    let text = serde_json::to_vec(&folders)
        .map_err(|e| failed(format!("the names of directories in use cannot be serialized: {e}")))?;
    write_one(root.own(RECORD), &text, 0o644, me())
}

/// The recorded directories.
pub(crate) fn recorded(root: &Root) -> Outcome<BTreeSet<PathBuf>> {
    let record = root.own(RECORD);
    let Some(text) = optional(fs::read(&record)).explain("read", &record)? else { return Ok(BTreeSet::new()) };
    let folders: Vec<String> = serde_json::from_slice(&text)
        .map_err(|e| failed(format!("{} does not contain names of directories: {e}", record.display())))?;
    Ok(folders.iter().map(|folder| root.below(folder)).collect())
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
    fn every_content_of_others_is_kept_once_and_none_of_hactl() {
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
        replaced("others\n");
        replaced(ours);
        let kept = names(folder.path());
        assert!(kept.len() == 3 && kept[2].starts_with("haproxy.cfg.before-hactl-"), "{kept:?}");
        let texts = [&kept[1], &kept[2]].map(|name| fs::read_to_string(folder.path().join(name)).unwrap());
        assert_eq!(texts, ["theirs\n", "others\n"]);
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
