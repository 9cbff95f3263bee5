//! Writes a new file that the user named, completely or not at all.
//!
//! In: a path and a text. Out: the file. An existing file stays unchanged. A full disk leaves no partial file, which
//! the next run would mistake for one of the user's.

use crate::report::Exit;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes the file.
///
/// # Errors
/// If a file of that name exists, or writing fails; then no file is left behind.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    with(path, |file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
}

/// The exit code and the message of a failed [`write`].
pub fn failed(path: &Path, error: &io::Error) -> (Exit, String) {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => (
            Exit::Refused,
            format!("{path} already exists and was not changed\n  do: name another file, or move this one away"),
        ),
        _ => (
            Exit::Failed,
            format!("cannot write {path}: {error}\n  do: name a file in an existing directory that you can write to"),
        ),
    }
}

// Not a temporary file and a hard link: shared folders of virtual machines do not support links.
fn with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    fill(&mut file).inspect_err(|_| {
        // The first error is reported. If the partial file stays, the next run reports that it exists.
        let _ = std::fs::remove_file(path);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_midway_leaves_nothing_and_the_next_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hactl.yaml");
        let full = |file: &mut File| file.write_all(b"sche").and(Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(with(&path, full).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!path.exists());
        write(&path, "schema: 1\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "schema: 1\n");
    }

    #[test]
    fn an_existing_file_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hactl.yaml");
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(write(&path, "schema: 1\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
