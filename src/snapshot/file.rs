//! The file of a snapshot: written in one pass, read piece by piece.
//!
//! In: streams. Out: a [`Bundle`] whose manifest matches its file, or a [`BundleError`] that says what to do about
//! it.

use super::authentic::Signer;
use super::gentle::Gentle;
use super::seal::{Identities, Recipients};
use super::sealed::Sealed;
use crate::model::authentic::Signed;
use crate::model::blob::LARGEST_SENT;
use crate::model::digester::Digester;
use crate::model::names::Digest;
use crate::model::secret::Secret;
use crate::model::snapshot::{Claimed, Manifest, Piece, SCHEMA};
use age::DecryptError;
use age::stream::StreamWriter;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The beginning of every snapshot file.
pub const MAGIC: &[u8] = b"hactl recovery bundle 1\n";
/// Length and digest of the manifest.
const END: u64 = 4 + 32;
/// Larger than any manifest.
const LARGEST_MANIFEST: u64 = 64 << 10;
/// A signature and a certificate: far less.
const LARGEST_SEAL: u64 = 16 << 10;
/// The most that has to be read of the end of a file to have its manifest.
pub(super) const MOST_END: u64 = LARGEST_SEAL + LARGEST_MANIFEST + END;
/// Keys, an inventory and their encryption: far less.
pub const LARGEST_STATE: u64 = 8 << 20;
/// The largest file: of the largest snapshot, which age enlarges by 16 bytes in 64 KiB.
pub const LARGEST_BUNDLE: u64 = sealed_at_most(LARGEST_SENT) + LARGEST_STATE + MOST_END + MAGIC.len() as u64;
const WINDOW: usize = 256 << 10;

/// The maximum size of so many bytes after encryption: each of many recipients takes some hundred bytes.
const fn sealed_at_most(bytes: u64) -> u64 {
    bytes + bytes / 2048 + (1 << 20)
}

/// Why a file is not a snapshot, or cannot be decrypted.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// An error of the file system.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another kind of file.
    #[error("{} is not a snapshot of hactl", .0.display())]
    Other(PathBuf),
    /// Its end is missing or does not match the manifest.
    #[error("{} is not complete: it was cut short, or has changed since it was written", .0.display())]
    NotWhole(PathBuf),
    /// A later format.
    #[error("{} has a later format ({schema}) than this hactl supports ({SCHEMA}): use the hactl that wrote it, or a newer one", .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        schema: u32,
    },
    /// A piece does not match the manifest.
    #[error("{}: {what} has changed since it was written", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The piece.
        what: &'static str,
    },
    /// Encrypted for others.
    #[error("{} is not encrypted for this identity", .0.display())]
    WrongIdentity(PathBuf),
    /// age could not decrypt it.
    #[error("{} cannot be decrypted: {why}", .path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
        /// The error of age.
        why: String,
    },
}

impl BundleError {
    /// Whether the file itself is damaged: no other key and no other hactl can read it.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Other(_) | Self::NotWhole(_) | Self::Damaged { .. })
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| BundleError::Io { doing, path, source }
}

/// A snapshot file being written: everything written into it is encrypted. The manifest comes last, because its
/// content is known only then.
pub struct Writer {
    sealing: StreamWriter<Digester<Gentle>>,
}

impl Writer {
    /// Begins a snapshot in an empty file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn begin(to: File, recipients: &Recipients) -> io::Result<Self> {
        let mut to = Gentle::new(to);
        to.write_all(MAGIC)?;
        Ok(Self { sealing: recipients.writer(Digester::new(to))? })
    }

    /// Ends it with the encrypted state and the manifest that `manifest` makes of the two pieces, signed if there is
    /// a signer; on disk when this returns.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn end(
        self,
        state: &str,
        signer: Option<&Signer>,
        manifest: impl FnOnce(Piece, Piece) -> Manifest,
    ) -> io::Result<Claimed> {
        let (mut file, sum, bytes) = self.sealing.finish()?.finish();
        file.write_all(state.as_bytes())?;
        let state = Piece { digest: Digest::of(state.as_bytes()), bytes: state.len() as u64 };
        let manifest = manifest(Piece { digest: sum, bytes }, state);
        let text = serde_json::to_string(&manifest).map_err(io::Error::other)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        let seal = signer.map(|signer| signer.seal(&text)).transpose().map_err(io::Error::other)?;
        if let Some(seal) = &seal {
            serde_json::to_writer(&mut file, seal).map_err(io::Error::other)?;
        }
        file.write_all(text.as_bytes())?;
        file.write_all(&length.to_be_bytes())?;
        file.write_all(Digest::of(text.as_bytes()).bytes())?;
        let signed = seal.map(|seal| Signed { manifest: text, seal });
        file.end()?;
        Ok(Claimed { manifest, signed })
    }
}

impl Write for Writer {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.sealing.write(from)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.sealing.flush()
    }
}

/// A snapshot file that is complete, as far as its lengths and its manifest show.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its manifest: `authentic` decides whether to trust it.
    pub claimed: Claimed,
}

impl Bundle {
    /// Reads the manifest of a file.
    ///
    /// # Errors
    /// Not a snapshot, or an incomplete one.
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        // A pipe would block.
        if !std::fs::metadata(path).map_err(io_error("open", path))?.is_file() {
            return Err(BundleError::Other(path.to_owned()));
        }
        Self::read(File::open(path).map_err(io_error("open", path))?, path)
    }

    /// Reads the manifest of an open file: only its two ends. `path` is its path.
    ///
    /// # Errors
    /// As for [`Bundle::open`].
    pub fn read(mut file: File, path: &Path) -> Result<Self, BundleError> {
        let read = |source| io_error("read", path)(source);
        let length = file.metadata().map_err(read)?.len();
        let mut magic = vec![0; MAGIC.len()];
        if length < MAGIC.len() as u64 || file.read_exact(&mut magic).is_err() || magic != MAGIC {
            return Err(BundleError::Other(path.to_owned()));
        }
        file.seek(SeekFrom::Start(length.saturating_sub(MOST_END))).map_err(read)?;
        let mut end = Vec::new();
        file.take(MOST_END).read_to_end(&mut end).map_err(read)?;
        let claimed = claims_of(&end, length, path)?;
        Ok(Self { path: path.to_owned(), bytes: length, claimed })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn piece(&self, from: u64, piece: Piece) -> Result<io::Take<File>, BundleError> {
        let mut file = File::open(&self.path).map_err(io_error("open", &self.path))?;
        file.seek(SeekFrom::Start(MAGIC.len() as u64 + from)).map_err(io_error("read", &self.path))?;
        Ok(file.take(piece.bytes))
    }

    /// Whether every byte is as it was written. Requires no key.
    ///
    /// # Errors
    /// [`BundleError::Damaged`].
    pub fn check(&self) -> Result<(), BundleError> {
        let manifest = &self.claimed.manifest;
        for (from, piece, what) in
            [(0, manifest.sealed, "the snapshot"), (manifest.sealed.bytes, manifest.state, "the state")]
        {
            let found = Digest::of_all(self.piece(from, piece)?, piece.bytes).map_err(io_error("read", &self.path))?;
            if found != (piece.digest, piece.bytes) {
                return Err(BundleError::Damaged { path: self.path.clone(), what });
            }
        }
        Ok(())
    }

    /// The state that was encrypted into it: the one that `up` left on the host that took it.
    ///
    /// # Errors
    /// Another identity, or damage.
    pub fn state(&self, identities: &Identities) -> Result<Secret<String>, BundleError> {
        let mut sealed = Vec::new();
        let mut piece = self.piece(self.claimed.manifest.sealed.bytes, self.claimed.manifest.state)?;
        piece.read_to_end(&mut sealed).map_err(io_error("read", &self.path))?;
        if Digest::of(&sealed) != self.claimed.manifest.state.digest {
            return Err(BundleError::Damaged { path: self.path.clone(), what: "the state" });
        }
        identities.text(&sealed, LARGEST_STATE).map_err(|error| self.unsealed(error))
    }

    /// Writes the snapshot, compressed, as it can be delivered: [`Manifest::snapshot`] is its part.
    ///
    /// # Errors
    /// Another identity, or damage; the output is then useless.
    pub fn snapshot(&self, identities: &Identities, to: impl Write) -> Result<(), BundleError> {
        let part = &self.claimed.manifest.snapshot;
        let sealed = io::BufReader::with_capacity(WINDOW, self.piece(0, self.claimed.manifest.sealed)?);
        let opened = identities.reader(sealed).map_err(|error| self.unsealed(error))?;
        let mut sum = Digester::new(to);
        // One byte more than announced is detected; the rest is not even read.
        io::copy(&mut opened.take(part.sent_size.saturating_add(1)), &mut sum)
            .map_err(io_error("decrypt the snapshot in", &self.path))?;
        let (mut to, found, bytes) = sum.finish();
        to.flush().map_err(io_error("write the snapshot of", &self.path))?;
        if (found, bytes) != (part.sent_digest, part.sent_size) {
            return Err(BundleError::Damaged { path: self.path.clone(), what: "the snapshot" });
        }
        Ok(())
    }

    /// The snapshot in the form that is sent to a host, decrypted while it is sent.
    pub fn payload(&self, identities: Arc<Identities>) -> Sealed {
        let part = (MAGIC.len() as u64, self.claimed.manifest.sealed.bytes);
        Sealed::new(self.path.clone(), part, identities, self.claimed.manifest.snapshot.sent_size)
    }

    fn unsealed(&self, error: DecryptError) -> BundleError {
        match error {
            DecryptError::NoMatchingKeys => BundleError::WrongIdentity(self.path.clone()),
            other => BundleError::Sealed { path: self.path.clone(), why: other.to_string() },
        }
    }
}

/// The manifest in the last [`MOST_END`] bytes of a file, or in all of them if it is shorter; `length` is that of the
/// whole file.
///
/// # Errors
/// Not the end of a complete snapshot of that length. `path` is for the message.
pub(super) fn claims_of(end: &[u8], length: u64, path: &Path) -> Result<Claimed, BundleError> {
    let not_whole = || BundleError::NotWhole(path.to_owned());
    let (text, sum) = end.split_last_chunk::<32>().ok_or_else(not_whole)?;
    let (text, size) = text.split_last_chunk::<4>().ok_or_else(not_whole)?;
    let size = u64::from(u32::from_be_bytes(*size));
    let begun = MAGIC.len() as u64;
    let at = length.checked_sub(END).and_then(|end| end.checked_sub(size));
    let at = at.filter(|at| *at >= begun && size <= LARGEST_MANIFEST).ok_or_else(not_whole)?;
    let (before, text) = last(text, size).ok_or_else(not_whole)?;
    if Digest::of(text).bytes() != sum {
        return Err(not_whole());
    }
    let manifest = parse(text, path)?;
    let pieces = manifest.sealed.bytes.checked_add(manifest.state.bytes).and_then(|p| p.checked_add(begun));
    // Between the pieces and the manifest is its signature.
    let sealed = pieces.and_then(|pieces| at.checked_sub(pieces)).ok_or_else(not_whole)?;
    // The announced size must match the file, so that a file of a kilobyte does not allocate space for a terabyte.
    let fits = manifest.snapshot.sent_size <= manifest.sealed.bytes
        && manifest.sealed.bytes <= sealed_at_most(manifest.snapshot.sent_size);
    if !fits || manifest.state.bytes > LARGEST_STATE || sealed > LARGEST_SEAL {
        return Err(not_whole());
    }
    if sealed == 0 {
        return Ok(Claimed { manifest, signed: None });
    }
    let (_, seal) = last(before, sealed).ok_or_else(not_whole)?;
    let seal = serde_json::from_slice(seal).map_err(|_| not_whole())?;
    let text = String::from_utf8(text.to_vec()).map_err(|_| not_whole())?;
    Ok(Claimed { manifest, signed: Some(Signed { manifest: text, seal }) })
}

/// The last so many bytes, and those before them.
fn last(bytes: &[u8], size: u64) -> Option<(&[u8], &[u8])> {
    let from = bytes.len().checked_sub(usize::try_from(size).ok()?)?;
    Some(bytes.split_at(from))
}

/// An unknown format is reported before anything else is parsed.
pub(super) fn parse(text: &[u8], path: &Path) -> Result<Manifest, BundleError> {
    #[derive(serde::Deserialize)]
    struct Form {
        schema: u32,
    }
    let not_whole = |_| BundleError::NotWhole(path.to_owned());
    let form: Form = serde_json::from_slice(text).map_err(not_whole)?;
    if form.schema > SCHEMA {
        return Err(BundleError::TooNew { path: path.to_owned(), schema: form.schema });
    }
    serde_json::from_slice(text).map_err(not_whole)
}

#[cfg(test)]
mod tests;
