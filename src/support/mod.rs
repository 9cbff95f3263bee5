//! The archive of a support bundle: one compressed tar without secrets that only its owner can read.
//!
//! In: pages of text, and the known secrets. Out: a `.tar.zst`, complete or not there: it gets its name after
//! everything is written. The creator of a page may have redacted it already; here every page is redacted once more.

use crate::model::redact::{Known, Redactor};
use crate::model::support::is_place;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// zstd's default: logs shrink to a twentieth; more effort gains little.
const LEVEL: i32 = 3;

/// Why there is no archive.
#[derive(Debug, thiserror::Error)]
pub enum SupportError {
    /// The file exists already.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// It cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The archive.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Secrets cannot be redacted, so nothing may be written.
    #[error("nothing was written, because secrets could not be redacted: {0}")]
    Blind(String),
}

/// An archive in progress. If it is dropped before `finish`, no file is left.
pub struct Archive {
    tar: tar::Builder<zstd::Encoder<'static, File>>,
    redactor: Redactor,
    path: PathBuf,
    part: Part,
    folder: String,
    now: u64,
    pages: usize,
    struck: u64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Path.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of pages.
    pub pages: usize,
    /// How many places were redacted here and on the hosts.
    pub struck: u64,
}

/// The unfinished file, which is removed when this is dropped.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // After `finish` the file has another name; a file that cannot be removed was reported by the failed write.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Archive {
    /// Starts an archive whose pages are in `folder`.
    ///
    /// # Errors
    /// The file exists, it cannot be written, or secrets could not be redacted.
    pub fn create(path: &Path, folder: &str, known: &Known, now: OffsetDateTime) -> Result<Self, SupportError> {
        let redactor = Redactor::new(known).map_err(SupportError::Blind)?;
        if path.symlink_metadata().is_ok() {
            return Err(SupportError::Exists(path.to_owned()));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        let failed = |source| SupportError::Write { path: path.to_owned(), source };
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part).map_err(failed)?;
        let part = Part(part);
        let tar = tar::Builder::new(zstd::Encoder::new(file, LEVEL).map_err(failed)?);
        let now = u64::try_from(now.unix_timestamp()).unwrap_or_default();
        Ok(Self { tar, redactor, path: path.to_owned(), part, folder: folder.to_owned(), now, pages: 0, struck: 0 })
    }

    /// Adds a page; `struck` is how many places its creator redacted already.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn add(&mut self, name: &str, text: &str, struck: u32) -> Result<(), SupportError> {
        debug_assert!(is_place(name), "{name:?} is no place in an archive");
        let (text, more) = self.redactor.strike(text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.now);
        let place = format!("{}/{name}", self.folder);
        let written = self.tar.append_data(&mut header, place, text.as_bytes());
        written.map_err(|source| SupportError::Write { path: self.path.clone(), source })?;
        self.pages += 1;
        self.struck += u64::from(struck) + u64::from(more);
        Ok(())
    }

    /// Completes the archive and gives it its name.
    ///
    /// # Errors
    /// The archive cannot be completed.
    pub fn finish(self) -> Result<Written, SupportError> {
        let Self { tar, path, part, pages, struck, .. } = self;
        let end = || {
            let file = tar.into_inner()?.finish()?;
            file.sync_all()?;
            // Unlike a rename, a link never replaces a file that was created meanwhile.
            std::fs::hard_link(&part.0, &path)?;
            Ok(file.metadata()?.len())
        };
        let bytes = end().map_err(|source| SupportError::Write { path: path.clone(), source })?;
        Ok(Written { path, bytes, pages, struck })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    fn known() -> Known {
        let mut known = Known::default();
        known.value("a-secret-of-the-house");
        known
    }

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap()
    }

    #[test]
    fn the_archive_is_its_owners_and_holds_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tar.zst");
        let mut archive = Archive::create(&path, "x", &known(), now()).unwrap();
        let long = format!("pods/{}/0.log", "n".repeat(150));
        archive.add("a.txt", "it is a-secret-of-the-house\n", 2).unwrap();
        archive.add(&long, "fine\n", 0).unwrap();
        assert!(!path.exists(), "it has no name before its end");
        let written = archive.finish().unwrap();
        assert_eq!((written.pages, written.struck), (2, 3));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let mut tar = tar::Archive::new(zstd::Decoder::new(File::open(&path).unwrap()).unwrap());
        let pages: Vec<(String, String)> = tar
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (entry.path().unwrap().display().to_string(), text)
            })
            .collect();
        let expected =
            [("x/a.txt".to_owned(), "it is [redacted]\n".to_owned()), (format!("x/{long}"), "fine\n".to_owned())];
        assert_eq!(pages, expected);
    }

    #[test]
    fn an_existing_file_is_not_replaced_and_an_incomplete_one_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tar.zst");
        drop(Archive::create(&path, "x", &known(), now()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(Archive::create(&path, "x", &known(), now()), Err(SupportError::Exists(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let nowhere = dir.path().join("missing/x.tar.zst");
        assert!(matches!(Archive::create(&nowhere, "x", &known(), now()), Err(SupportError::Write { .. })));
    }
}
