//! A file that is not whole yet, kept so that the next attempt, or the next run, goes on from where it ended.
//!
//! In: the folder of downloads and the digest that the file will have. Out: `<digest>.part` with what came so far, beside
//! it `<digest>.json` with where it came from; in the end `<digest>`. What is there is named by its digest, so that nothing
//! else can be taken for it.

use super::super::lock::replace;
use super::super::{BundleError, io_error};
use crate::model::names::Digest;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where a part came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    url: String,
    validator: Option<String>,
    digest: String,
}

/// A download in the making.
pub struct Part {
    done: PathBuf,
    path: PathBuf,
    beside: PathBuf,
    digest: Digest,
    file: Option<File>,
    len: u64,
}

impl Part {
    /// Looks at what is there.
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

    /// Bytes that are there.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The whole file, if an earlier run finished it and it still is what it was.
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

    /// What the part's own server said of it, if it is the one that is asked now.
    pub fn validator(&self, url: &str) -> Option<String> {
        let text = std::fs::read(&self.beside).ok()?;
        let note: Note = serde_json::from_slice(&text).ok()?;
        if note.url == url { note.validator } else { None }
    }

    /// Goes on at `start`; what is there beyond it is dropped.
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

    /// The digest of what is there.
    pub fn digest(&self) -> Result<Digest, BundleError> {
        Digest::of_file(&self.path).map(|(digest, _)| digest).map_err(io_error("read", &self.path))
    }

    /// The part becomes the file.
    pub fn finish(mut self) -> Result<(PathBuf, u64), BundleError> {
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(io_error("write", &self.path))?;
        }
        std::fs::rename(&self.path, &self.done).map_err(io_error("create", &self.done))?;
        forget(&self.beside)?;
        Ok((self.done, self.len))
    }

    /// Throws away what turned out to be something else.
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
