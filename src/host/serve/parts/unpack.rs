//! The compressed form of a part as it arrives: decompressed, counted and hashed at once.
//!
//! In: pieces. Out: the content, known to be what was announced, or a fault that tells damage from a full disk.

use super::super::fault::{Explain, Outcome, disk_full, failed, fault};
use super::{WINDOW, digest_of};
use crate::host::op::{Fault, FaultKind};
use crate::model::target::Part;
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// A part whose content is not what it should be.
pub(super) fn corrupt(part: &Part, why: impl std::fmt::Display) -> Fault {
    fault(FaultKind::Corrupt, format!("{} {} arrived damaged: {why}", part.name, part.version))
}

/// Decompresses, counts and hashes into a file.
pub(super) struct Unpack<'a> {
    part: &'a Part,
    path: &'a Path,
    decoder: Decoder<'static>,
    sum: Context,
    size: u64,
    window: Vec<u8>,
    /// Whether the compressed form may end here: between two frames.
    between: bool,
    /// Where the content goes.
    out: File,
}

impl<'a> Unpack<'a> {
    pub(super) fn new(part: &'a Part, path: &'a Path, out: File) -> Outcome<Self> {
        let decoder = Decoder::new().map_err(|e| failed(format!("could not set up decompression: {e}")))?;
        Ok(Self {
            part,
            path,
            decoder,
            sum: Context::new(&SHA256),
            size: 0,
            window: vec![0; WINDOW],
            between: false,
            out,
        })
    }

    pub(super) fn take(&mut self, compressed: &[u8]) -> Outcome<()> {
        let mut input = InBuffer::around(compressed);
        loop {
            let mut output = OutBuffer::around(self.window.as_mut_slice());
            let more = self.decoder.run(&mut input, &mut output).map_err(|e| corrupt(self.part, e))?;
            let made = output.pos();
            self.between = more == 0;
            self.size += made as u64;
            if self.size > self.part.size {
                return Err(corrupt(self.part, format!("it is larger than {} bytes", self.part.size)));
            }
            self.sum.update(&self.window[..made]);
            write(&mut self.out, &self.window[..made], self.path, self.part)?;
            // A full window may have left more inside the decoder.
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
            return Err(corrupt(self.part, "it ends too early"));
        }
        if self.size != self.part.size {
            return Err(corrupt(self.part, format!("it has {} bytes instead of {}", self.size, self.part.size)));
        }
        let digest = digest_of(self.sum);
        if digest != self.part.digest {
            return Err(corrupt(self.part, format!("its digest is {digest} instead of {}", self.part.digest)));
        }
        Ok(self.out)
    }
}

fn write(out: &mut File, bytes: &[u8], path: &Path, part: &Part) -> Outcome<()> {
    match out.write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(disk_full(path, Some(part.size))),
        outcome => outcome.explain("write", path),
    }
}
