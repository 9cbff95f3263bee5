//! Writes large files without delaying others: in steps, each of which is on the disk before the next begins.
//!
//! An etcd member on the same file system syncs its log many times a second, and each sync waits for all earlier
//! writes of the disk: it would wait for a gigabyte that is synced at the end.

use std::fs::File;
use std::io::{self, Write};

/// Bytes of a step: some milliseconds of a disk that is fast enough for etcd.
const STEP: u64 = 2 << 20;

/// A file written in steps.
pub struct Gentle {
    file: File,
    unsynced: u64,
}

impl Gentle {
    /// An empty file.
    pub fn new(file: File) -> Self {
        Self { file, unsynced: 0 }
    }

    /// Ends it: all of it is on the disk then.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn end(self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Write for Gentle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written as u64;
        if self.unsynced >= STEP {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_written_in_steps_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("file");
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let mut file = Gentle::new(File::create(&at).expect("it is made"));
        file.write_all(&bytes).expect("it is written");
        file.end().expect("it is synced");
        assert_eq!(std::fs::read(&at).expect("it is read"), bytes);
    }
}
