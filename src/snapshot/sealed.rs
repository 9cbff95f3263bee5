//! The plain text of an encrypted file, or part of one: read from any byte on, so that it can be sent to a host
//! without storing it unencrypted.
//!
//! In: the path and the identities. Out: readers. age authenticates every piece before it is returned.

use super::seal::Identities;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A chunk of age, encrypted.
const WINDOW: usize = 64 << 10;

/// Encrypted bytes, and the identities for them.
#[derive(Clone)]
pub struct Sealed {
    path: PathBuf,
    /// Their offset in the file, and their number.
    part: (u64, u64),
    identities: Arc<Identities>,
    opened: u64,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({}, {} bytes)", self.path.display(), self.opened)
    }
}

impl Sealed {
    /// So many bytes of a file from an offset on, and the size of their plain text.
    pub fn new(path: PathBuf, part: (u64, u64), identities: Arc<Identities>, opened: u64) -> Self {
        Self { path, part, identities, opened }
    }
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The size of its plain text.
    pub fn opened(&self) -> u64 {
        self.opened
    }
    /// Its plain text, from a byte on.
    ///
    /// # Errors
    /// Those of the file system; another identity, or damage.
    pub fn read(&self, from: u64) -> io::Result<Box<dyn Read + Send>> {
        let (start, bytes) = self.part;
        let section = Section { file: File::open(&self.path)?, start, bytes, at: 0 };
        let mut reader = self.identities.reader(BufReader::with_capacity(WINDOW, section)).map_err(io::Error::other)?;
        // At the end there is nothing to seek to.
        if from >= self.opened {
            return Ok(Box::new(io::empty()));
        }
        if from > 0 {
            reader.seek(SeekFrom::Start(from))?;
        }
        Ok(Box::new(reader))
    }
}

/// Part of a file as if it were the whole file.
struct Section {
    file: File,
    start: u64,
    bytes: u64,
    at: u64,
}

impl Read for Section {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = into.len().min(left);
        let read = self.file.read_at(&mut into[..most], self.start.saturating_add(self.at))?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Section {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.bytes.checked_add_signed(by),
        };
        self.at = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Recipients, new_identity, public_of};
    use std::io::Write as _;

    #[test]
    fn an_encrypted_section_of_a_file_is_read_from_any_offset() {
        let identity = new_identity();
        let to = Recipients::parse(&public_of(&identity).expect("just made")).expect("a key");
        let plain: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut sealing = to.writer(Vec::new()).expect("memory");
        sealing.write_all(&plain).expect("memory");
        let sealed = sealing.finish().expect("memory");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [&b"before"[..], &sealed, b"behind it"].concat()).expect("ours");
        let identities = Arc::new(Identities::parse(&identity).expect("just made"));
        let (part, opened) = ((6, sealed.len() as u64), plain.len() as u64);
        let whole = Sealed::new(path.clone(), part, Arc::clone(&identities), opened);
        for from in [0, 1, 65_535, 65_536, 65_537, 200_000, plain.len() - 1, plain.len()] {
            let mut read = Vec::new();
            whole.read(from as u64).expect("it opens").read_to_end(&mut read).expect("it can be read");
            assert!(read == plain[from..], "from {from}");
        }
        let other = Arc::new(Identities::parse(&new_identity()).expect("just made"));
        assert!(Sealed::new(path.clone(), part, other, opened).read(0).is_err());
        let short = Sealed::new(path, (6, sealed.len() as u64 - 1), identities, opened);
        let mut read = Vec::new();
        assert!(short.read(0).expect("its head is there").read_to_end(&mut read).is_err(), "what was cut short shows");
    }
}
