//! The files that are read besides the inventory, behind a trait, so that tests can pass texts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Limit for one file, bytes.
pub const LARGEST: usize = 1 << 20;

/// The source of files other than the inventory.
pub trait Files {
    /// The text of a file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// The names in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
}

/// The files of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(folder)?;
        Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }
}

/// No files at all.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Files for Nothing {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Texts in place of files, for tests.
impl Files for BTreeMap<PathBuf, String> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inside = self.keys().filter_map(|path| path.strip_prefix(folder).ok()?.components().next());
        Ok(inside.map(|name| name.as_os_str().to_string_lossy().into_owned()).collect())
    }
}
