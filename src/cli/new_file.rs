//! A file that a person named and that must be new: all of it or nothing.
//!
//! In: a path and a text. Out: the file; what is there already stays as it is, and a disk that is full leaves no half of one, which the next
//! run would take for somebody's own.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes it.
///
/// # Errors
/// Something of that name is there, or it cannot be written; then nothing is.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    with(path, |file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
}

// It is not written beside its place and linked: shared folders of virtual machines know no links.
fn with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    fill(&mut file).inspect_err(|_| {
        // The first error is the one to tell; if the rest stays, the next run says that it is there.
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
    fn what_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hactl.yaml");
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(write(&path, "schema: 1\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
