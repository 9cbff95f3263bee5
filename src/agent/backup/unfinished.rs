//! The file of a snapshot while it is written: beside its place, under a name that no reader takes for a snapshot.
//!
//! In: a directory, the name of a snapshot. Out: a complete file under that name, or none. What a killed process left
//! is removed later.

use crate::agent::machine::files::{absent, sync_parent};
use crate::agent::op_error::{Explain as _, Outcome};
use std::fs::{self, DirEntry, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The suffix of the name of an incomplete file.
const BEGUN: &str = ".new";

/// An incomplete file; removed again unless it is put in its place.
pub(super) struct Unfinished {
    at: PathBuf,
    place: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Renamed already, or useless: it may have filled the disk. What stays nevertheless is removed later.
        let _ = fs::remove_file(&self.at);
    }
}

impl Unfinished {
    /// Creates the file, for root alone.
    pub(super) fn create(folder: &Path, name: &str) -> Outcome<(Self, File)> {
        let unfinished = Self { at: folder.join(format!("{name}{BEGUN}")), place: folder.join(name) };
        let at = &unfinished.at;
        // Other clients may write there: an existing link of that name is not followed.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(at).explain("create", at)?;
        Ok((unfinished, file))
    }

    /// Where it is now.
    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// Puts the file in its place: it is complete, and on the disk.
    pub(super) fn put(self) -> Outcome<()> {
        fs::rename(&self.at, &self.place).explain("replace", &self.place)?;
        sync_parent(&self.place)
    }
}

/// Removes incomplete files from a directory, if `is_left` accepts the name of the snapshot and the entry.
pub(super) fn remove(folder: &Path, is_left: impl Fn(&str, &DirEntry) -> bool) -> Outcome<()> {
    for entry in fs::read_dir(folder).explain("list", folder)? {
        let entry = entry.explain("list", folder)?;
        let file = entry.file_name();
        if file.to_str().and_then(|file| file.strip_suffix(BEGUN)).is_some_and(|name| is_left(name, &entry)) {
            absent(fs::remove_file(entry.path())).explain("remove", &entry.path())?;
        }
    }
    Ok(())
}
