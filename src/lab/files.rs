//! File operations of the lab: exact modes and owners regardless of the umask, locks, templates.

use super::error::{LabError, Result};
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than another run needs to create a base.
const LOCK_TIMEOUT: Duration = Duration::from_mins(10);

/// Creates a folder and those above it, each 0755, regardless of the umask.
pub(crate) fn folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        folder(above)?;
    }
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => chmod(path, 0o755),
        // Another thread or run created it meanwhile.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(LabError::io("make the folder", path)(e)),
    }
}

/// Writes a file through a temporary file, so that no reader sees half of it.
pub(crate) fn write(path: &Path, mode: u32, text: &str) -> Result<()> {
    if let Some(above) = path.parent() {
        folder(above)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    fs::write(&new, text).map_err(LabError::io("write", &new))?;
    chmod(&new, mode)?;
    rename(&new, path)
}

/// Moves a file into its place.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(LabError::io("put in place", to))
}

/// Sets a mode.
pub(crate) fn chmod(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(LabError::io("set the mode of", path))
}

/// Sets the owner of a path to a user and the group with the same ID.
pub(crate) fn own(path: &Path, id: u32) -> Result<()> {
    chown(path, Some(id), Some(id)).map_err(LabError::io("set the owner of", path))
}

/// Reads a text.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(LabError::io("read", path))
}

/// Reads a text; `None` if there is no such file.
pub(crate) fn read_if(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(LabError::io("read", path)(e)),
    }
}

/// Removes a file or a whole folder, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let Ok(found) = path.symlink_metadata() else { return Ok(()) };
    let removed = if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(LabError::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Removes a folder and those above it up to `top`, as far as they are empty.
pub(crate) fn prune(path: &Path, top: &Path) {
    let mut at = path;
    while at.starts_with(top) && fs::remove_dir(at).is_ok() {
        match at.parent() {
            Some(above) => at = above,
            None => return,
        }
    }
}

/// Removes an empty folder of ours, and an empty `hactl` directly above it.
pub(crate) fn prune_ours(path: &Path) {
    let above = path.parent().filter(|above| above.file_name().is_some_and(|name| name == "hactl"));
    prune(path, above.unwrap_or(path));
}

/// The names in a folder, sorted; empty if there is no such folder.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LabError::io("list", path)(e)),
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// The folders in a folder.
pub(crate) fn folders(path: &Path) -> Result<Vec<PathBuf>> {
    let all = names(path)?.into_iter().map(|name| path.join(name));
    Ok(all.filter(|entry| entry.is_dir()).collect())
}

/// Fills `{{word}}` placeholders; each must have a value.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (word, value) in values {
        text = text.replace(&format!("{{{{{word}}}}}"), value);
    }
    debug_assert!(!text.contains("{{"), "a placeholder without a value in {text}");
    text
}

/// A file lock; released when dropped or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Waits for the lock at `path`; its holder may remove the file.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        if let Some(above) = path.parent() {
            folder(above)?;
        }
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            let opened = File::options().create(true).truncate(false).write(true).open(path);
            let file = opened.map_err(LabError::io("open the lock", path))?;
            match file.try_lock() {
                Ok(()) if same(&file, path) => return Ok(Self { file, path: path.to_owned() }),
                // The previous holder removed the file: this lock is void.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(LabError::Locked { path: path.to_owned(), timeout: LOCK_TIMEOUT });
                }
                Err(TryLockError::Error(e)) => return Err(LabError::io("lock", path)(e)),
            }
        }
    }

    /// Removes the lock's file and releases the lock.
    pub(crate) fn remove(self) -> Result<()> {
        remove(&self.path)?;
        self.file.unlock().map_err(LabError::io("unlock", &self.path))
    }
}

/// Whether the path still names the open file.
fn same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => ours.ino() == theirs.ino() && ours.dev() == theirs.dev(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_replaces_every_placeholder() {
        assert_eq!(fill("{{a}}-{{b}}-{{a}}", &[("a", "1"), ("b", "2")]), "1-2-1");
    }

    #[test]
    fn prune_stops_at_a_directory_that_is_not_empty() {
        let top = std::env::temp_dir().join(format!("hactl-prune-{}", std::process::id()));
        folder(&top.join("a/b/c")).expect("folders");
        write(&top.join("a/kept"), 0o644, "").expect("file");
        prune(&top.join("a/b/c"), &top);
        assert_eq!(names(&top.join("a")).expect("listing"), ["kept"]);
        remove(&top).expect("cleaning up");
    }

    #[test]
    fn a_removed_lock_does_not_admit_two_holders() {
        let path = std::env::temp_dir().join(format!("hactl-lock-{}", std::process::id()));
        let first = Lock::take(&path).expect("free");
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || Lock::take(&path).map(|lock| same(&lock.file, &lock.path))
        });
        std::thread::sleep(Duration::from_millis(60));
        first.remove().expect("removing");
        assert!(waiter.join().expect("no panic").expect("locked"), "the waiter holds the file at the path");
        remove(&path).expect("cleaning up");
    }
}
