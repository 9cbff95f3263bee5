//! Writes new files that the user named, completely or not at all.
//!
//! In: paths and texts. Out: the files. An existing file stays unchanged. A full disk leaves no partial file, which
//! the next run would mistake for one of the user's.

use crate::report::Exit;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Why a file was not written.
#[derive(Debug)]
pub struct Unwritten {
    /// The exit code.
    pub exit: Exit,
    /// What failed.
    pub what: String,
    /// What to do.
    pub to_do: &'static str,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  do: {}", self.what, self.to_do)
    }
}

/// Writes the file.
///
/// # Errors
/// If a file of that name exists, or writing fails; then no file is left behind.
pub fn write(path: &Path, text: &str) -> Result<(), Unwritten> {
    filled(path, text, 0o666).map_err(|error| unwritten(path, &error))
}

/// Writes files, each with its name and mode, into a folder, which is made for its owner alone if there is none. All of
/// them or none; `make` makes the texts once nothing is in the way.
///
/// # Errors
/// See [`write`]; those of `make`.
pub fn write_all<const N: usize, E: From<Unwritten>>(
    folder: &Path,
    names: [(&str, u32); N],
    make: impl FnOnce() -> Result<[String; N], E>,
) -> Result<(), E> {
    let files = names.map(|(name, mode)| (folder.join(name), mode));
    if let Some((there, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        return Err(unwritten(there, &io::ErrorKind::AlreadyExists.into()).into());
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| unwritten(folder, &error))?;
    let mut written: Vec<&PathBuf> = Vec::new();
    for ((path, mode), text) in files.iter().zip(make()?) {
        if let Err(error) = filled(path, &text, *mode) {
            // Only the first error is reported.
            for path in written {
                drop(remove_file(path));
            }
            return Err(unwritten(path, &error).into());
        }
        written.push(path);
    }
    Ok(())
}

fn unwritten(path: &Path, error: &io::Error) -> Unwritten {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Unwritten {
            exit: Exit::Refused,
            what: format!("{path} already exists and was not changed"),
            to_do: "name another file, or move this one away",
        },
        _ => Unwritten {
            exit: Exit::Failed,
            what: format!("cannot write {path}: {error}"),
            to_do: "name a file in an existing directory that you can write to",
        },
    }
}

fn filled(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    with(path, mode, |file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
}

// Not a temporary file and a hard link: shared folders of virtual machines do not support links.
fn with(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill(&mut file).inspect_err(|_| {
        // The first error is reported. If the partial file stays, the next run reports that it exists.
        let _ = remove_file(path);
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
        assert_eq!(with(&path, 0o666, full).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!path.exists());
        write(&path, "schema: 1\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "schema: 1\n");
    }

    #[test]
    fn an_existing_file_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hactl.yaml");
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(write(&path, "schema: 1\n").unwrap_err().exit, Exit::Refused);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn of_several_files_all_are_written_or_none() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        let names = [("crt", 0o644), ("key", 0o600)];
        let texts = || Ok::<_, Unwritten>(["c", "k"].map(str::to_owned));
        write_all(&folder, names, texts).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("key"))), (0o700, 0o600));
        assert_eq!(std::fs::read_to_string(folder.join("key")).unwrap(), "k");
        std::fs::remove_file(folder.join("crt")).unwrap();
        let never = || -> Result<[String; 2], Unwritten> { panic!("the second is there") };
        assert_eq!(write_all(&folder, names, never).unwrap_err().exit, Exit::Refused);
        assert!(!folder.join("crt").exists());
        // The second cannot be made, once the texts are.
        let names = [("crt", 0o644), ("no/key", 0o600)];
        assert_eq!(write_all(&folder, names, texts).unwrap_err().exit, Exit::Failed);
        assert!(!folder.join("crt").exists(), "the first is removed");
    }
}
