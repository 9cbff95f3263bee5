//! A partial file, kept so that the next attempt or run resumes it.
//!
//! In: the folder of downloads and the expected digest of the file. Out: `<digest>.part` with the bytes so far, beside
//! it `<digest>.json` with their source; in the end `<digest>`. Files are named by digest, so that none is mistaken for
//! another.

use super::super::error::{BundleError, io_error};
use super::super::store::replace;
use crate::model::names::Digest;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The source of a partial file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    url: String,
    validator: Option<String>,
    digest: String,
}

/// A download in progress.
pub struct Part {
    done: PathBuf,
    path: PathBuf,
    beside: PathBuf,
    digest: Digest,
    file: Option<File>,
    len: u64,
}

impl Part {
    /// Opens what is there.
    pub fn open(dir: &Path, digest: Digest) -> Result<Self, BundleError> {
        let name = |suffix: &str| dir.join(format!("{}{suffix}", digest.hex()));
        let path = name(".part");
        let len = match std::fs::metadata(&path) {
            Ok(meta) => meta.len(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
            Err(e) => return Err(io_error("read", &path)(e)),
        };
        Ok(Self { done: name(""), path, beside: name(".json"), digest, file: None, len })
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The complete file, if an earlier run finished it and it is unchanged.
    pub fn finished(&self) -> Result<Option<(PathBuf, u64)>, BundleError> {
        match Digest::of_file(&self.done) {
            Ok((found, size)) if found == self.digest => Ok(Some((self.done.clone(), size))),
            Ok(_) => {
                std::fs::remove_file(&self.done).map_err(io_error("remove", &self.done))?;
                Ok(None)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("read", &self.done)(e)),
        }
    }

    /// The validator that the same URL sent for this partial file.
    pub fn validator(&self, url: &str) -> Option<String> {
        let text = std::fs::read(&self.beside).ok()?;
        let note: Note = serde_json::from_slice(&text).ok()?;
        if note.url == url { note.validator } else { None }
    }

    /// Resumes at `start`; bytes after it are dropped.
    pub fn begin(&mut self, start: u64, url: &str, validator: Option<String>) -> Result<(), BundleError> {
        let note = Note { url: url.to_owned(), validator, digest: self.digest.hex() };
        let text = serde_json::to_vec(&note).map_err(|e| io_error("write", &self.beside)(e.into()))?;
        replace(&self.beside, &text)?;
        let write = || -> io::Result<File> {
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
            file.set_len(start)?;
            io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            Ok(file)
        };
        self.file = Some(write().map_err(io_error("write", &self.path))?);
        self.len = start;
        Ok(())
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        let file =
            self.file.as_mut().ok_or_else(|| io_error("write", &self.path)(io::ErrorKind::NotConnected.into()))?;
        file.write_all(bytes).map_err(io_error("write", &self.path))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The digest of the bytes so far.
    pub fn digest(&self) -> Result<Digest, BundleError> {
        Digest::of_file(&self.path).map(|(digest, _)| digest).map_err(io_error("read", &self.path))
    }

    /// Renames the complete file.
    pub fn finish(mut self) -> Result<(PathBuf, u64), BundleError> {
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(io_error("write", &self.path))?;
        }
        std::fs::rename(&self.path, &self.done).map_err(io_error("create", &self.done))?;
        forget(&self.beside)?;
        Ok((self.done, self.len))
    }

    /// Deletes bytes that turned out to be wrong.
    pub fn discard(&mut self) -> Result<(), BundleError> {
        self.file = None;
        self.len = 0;
        forget(&self.path)?;
        forget(&self.beside)
    }
}

fn forget(path: &Path) -> Result<(), BundleError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(e)),
        _ => Ok(()),
    }
}
