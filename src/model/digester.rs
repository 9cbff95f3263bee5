//! Digests of bytes in memory and of streams.
//!
//! In: bytes, or a stream that is read or written. Out: their SHA-256 and number, without reading them twice.

use super::names::Digest;
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

impl Digest {
    /// The digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        let mut sum = Digester::new(());
        sum.add(bytes);
        sum.so_far()
    }
    /// The digest of everything that can be read, and the number of bytes. Reading stops after the chunk that exceeds
    /// `most`.
    ///
    /// # Errors
    /// A failed read.
    pub fn of_all(from: impl Read, most: u64) -> io::Result<(Self, u64)> {
        let (mut from, mut piece) = (Digester::new(from), vec![0; PIECE]);
        while from.count() <= most {
            match from.read(&mut piece) {
                Ok(0) => break,
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok((from.so_far(), from.count()))
    }
    /// The digest of a whole file, and the number of bytes.
    ///
    /// # Errors
    /// A failure to open or read it.
    pub fn of_file(path: &Path) -> io::Result<(Self, u64)> {
        Self::of_all(File::open(path)?, u64::MAX)
    }
}

/// Chunk size, bytes.
const PIECE: usize = 256 << 10;

/// Computes the digest of everything that passes through it.
pub struct Digester<T> {
    inner: T,
    context: Context,
    bytes: u64,
}

impl<T> Digester<T> {
    /// Wraps a reader or a writer, or `()` if bytes are only added.
    pub fn new(inner: T) -> Self {
        Self { inner, context: Context::new(&SHA256), bytes: 0 }
    }
    /// The number of bytes so far.
    pub fn count(&self) -> u64 {
        self.bytes
    }
    /// The digest of the bytes so far.
    pub fn so_far(&self) -> Digest {
        let mut raw = [0; 32];
        raw.copy_from_slice(self.context.clone().finish().as_ref());
        Digest::new(raw)
    }
    /// The wrapped value, the digest and the number of bytes.
    pub fn finish(self) -> (T, Digest, u64) {
        let digest = self.so_far();
        (self.inner, digest, self.bytes)
    }
    /// Adds bytes without writing them.
    pub fn add(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Digester<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Digester<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_bytes_have_the_same_digest_as_bytes_in_memory() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").hex(), empty);
        let (mut to, mut from) = (Digester::new(Vec::new()), Digester::new(b"abcdef".as_slice()));
        to.write_all(b"abc").unwrap();
        assert_eq!(to.so_far(), Digest::of(b"abc"));
        to.write_all(b"def").unwrap();
        assert_eq!(to.finish(), (b"abcdef".to_vec(), Digest::of(b"abcdef"), 6));
        let mut text = Vec::new();
        from.read_to_end(&mut text).unwrap();
        assert_eq!((from.so_far(), from.count()), (Digest::of(b"abcdef"), 6));
        assert_eq!(Digest::of_all(b"abcdef".as_slice(), 6).unwrap(), (Digest::of(b"abcdef"), 6));
    }

    #[test]
    fn an_endless_input_is_not_read_for_ever() {
        let (_, read) = Digest::of_all(io::repeat(7), 1_000_000).unwrap();
        assert!(read > 1_000_000 && read <= 1_000_000 + PIECE as u64, "{read}");
    }
}
