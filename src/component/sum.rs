//! Digests of what flows by.
//!
//! In: bytes read or written. Out: their SHA-256 and number, without a second look at them.

use crate::model::names::Digest;
use aws_lc_rs::digest::{Context, SHA256};
use std::io::{self, Read, Write};

/// The digest of bytes in memory.
pub fn of(bytes: &[u8]) -> Digest {
    let mut raw = [0; 32];
    raw.copy_from_slice(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref());
    Digest::new(raw)
}

/// Adds up what goes through it.
pub struct Sum<T> {
    inner: T,
    context: Context,
    bytes: u64,
}

impl<T> Sum<T> {
    /// Around a reader or a writer.
    pub fn new(inner: T) -> Self {
        Self { inner, context: Context::new(&SHA256), bytes: 0 }
    }
    /// How many bytes so far.
    pub fn count(&self) -> u64 {
        self.bytes
    }
    /// The digest of what went through until now.
    pub fn so_far(&self) -> Digest {
        let mut raw = [0; 32];
        raw.copy_from_slice(self.context.clone().finish().as_ref());
        Digest::new(raw)
    }
    /// What was inside, the digest, the number of bytes.
    pub fn finish(self) -> (T, Digest, u64) {
        let mut raw = [0; 32];
        raw.copy_from_slice(self.context.finish().as_ref());
        (self.inner, Digest::new(raw), self.bytes)
    }
    fn add(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<R: Read> Read for Sum<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Sum<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.add(&buffer[..count]);
        Ok(count)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
