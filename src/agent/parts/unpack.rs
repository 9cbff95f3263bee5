//! The compressed form of an item as it arrives: decompressed, counted and hashed at once.
//!
//! In: pieces. Out: the verified content, or a fault that distinguishes damage from a full disk.

use super::item::Item;
use crate::agent::op_error::{Explain, Outcome, disk_full, failed, fault, is_full};
use crate::model::digester::Digester;
use crate::protocol::{OpError, OpErrorKind};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Decompressed bytes processed at once.
pub(super) const WINDOW: usize = 1 << 20;

/// An item with the wrong content.
pub(super) fn corrupt(part: &Item, why: impl std::fmt::Display) -> OpError {
    fault(OpErrorKind::Corrupt, format!("{} arrived damaged: {why}", part.words))
}

/// Decompresses, counts and hashes into a file.
pub(super) struct Unpack<'a> {
    part: &'a Item,
    path: &'a Path,
    decoder: Decoder<'static>,
    window: Vec<u8>,
    /// Whether the compressed form may end here: between two frames.
    between: bool,
    /// The destination of the content.
    out: Digester<File>,
}

impl<'a> Unpack<'a> {
    pub(super) fn new(part: &'a Item, path: &'a Path, out: File) -> Outcome<Self> {
        let decoder = Decoder::new().map_err(|e| failed(format!("could not set up decompression: {e}")))?;
        Ok(Self { part, path, decoder, window: vec![0; WINDOW], between: false, out: Digester::new(out) })
    }

    pub(super) fn take(&mut self, compressed: &[u8]) -> Outcome<()> {
        let mut input = InBuffer::around(compressed);
        loop {
            let mut output = OutBuffer::around(self.window.as_mut_slice());
            let more = self.decoder.run(&mut input, &mut output).map_err(|e| corrupt(self.part, e))?;
            let made = output.pos();
            self.between = more == 0;
            if self.out.count() + made as u64 > self.part.size {
                return Err(corrupt(self.part, format!("it is larger than {} bytes", self.part.size)));
            }
            write(&mut self.out, &self.window[..made], self.path, self.part)?;
            // A full window may have left more in the decoder.
            if input.pos() == compressed.len() && made < self.window.len() {
                return Ok(());
            }
            if self.between && input.pos() < compressed.len() {
                self.decoder.reinit().map_err(|e| corrupt(self.part, e))?;
            }
        }
    }

    pub(super) fn finish(self) -> Outcome<File> {
        if !self.between {
            return Err(corrupt(self.part, "it ends prematurely"));
        }
        let (out, digest, size) = self.out.finish();
        if size != self.part.size {
            return Err(corrupt(self.part, format!("it has {size} bytes instead of {}", self.part.size)));
        }
        if digest != self.part.digest {
            return Err(corrupt(self.part, format!("its digest is {digest} instead of {}", self.part.digest)));
        }
        Ok(out)
    }
}

fn write(out: &mut impl Write, bytes: &[u8], path: &Path, part: &Item) -> Outcome<()> {
    match out.write_all(bytes) {
        Err(error) if is_full(&error) => Err(disk_full(path, Some(part.size))),
        outcome => outcome.explain("write", path),
    }
}
