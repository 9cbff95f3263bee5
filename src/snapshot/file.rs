//! The file of a bundle: written in one go, read piece by piece.
//!
//! In: streams. Out: a [`Bundle`] whose manifest fits its file, or a [`BundleError`] that says what to do about it.

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

/// What every bundle begins with.
pub const MAGIC: &[u8] = b"hactl recovery bundle 1\n";
/// Length and digest of the manifest.
const END: u64 = 4 + 32;
/// No manifest comes near this.
const LARGEST_MANIFEST: u64 = 64 << 10;
/// A signature and a certificate: far less.
const LARGEST_SEAL: u64 = 16 << 10;
/// The most that has to be read of a bundle's end to have its manifest.
pub(super) const MOST_END: u64 = LARGEST_SEAL + LARGEST_MANIFEST + END;
/// Keys, an inventory and their encryption: far less.
pub const LARGEST_STATE: u64 = 8 << 20;
/// The largest file: of the largest snapshot, which age makes larger by 16 bytes in 64 KiB.
pub const LARGEST_BUNDLE: u64 = sealed_at_most(LARGEST_SENT) + LARGEST_STATE + MOST_END + MAGIC.len() as u64;
const WINDOW: usize = 256 << 10;

/// The most that so many bytes become when they are sealed: each of many recipients takes some hundred bytes.
const fn sealed_at_most(bytes: u64) -> u64 {
    bytes + bytes / 2048 + (1 << 20)
}

/// Why a file is no bundle, or cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file system said no.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else.
    #[error("{} is no recovery bundle of hactl's", .0.display())]
    Other(PathBuf),
    /// Its end is missing or not what the manifest says.
    #[error("{} is not whole: it was cut short, or has changed since it was written", .0.display())]
    NotWhole(PathBuf),
    /// A later form of bundles.
    #[error("{} is of a later form ({schema}) than this hactl knows ({SCHEMA}): use the hactl that wrote it, or a newer one", .path.display())]
    TooNew {
        /// Which.
        path: PathBuf,
        /// Its form.
        schema: u32,
    },
    /// A piece is not what the manifest says.
    #[error("{}: {what} has changed since it was written", .path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What of it.
        what: &'static str,
    },
    /// Sealed to others.
    #[error("{} is not sealed to this identity", .0.display())]
    WrongIdentity(PathBuf),
    /// age could not open it.
    #[error("{} cannot be opened: {why}", .path.display())]
    Sealed {
        /// Which.
        path: PathBuf,
        /// In age's words.
        why: String,
    },
}

impl BundleError {
    /// Whether the file itself is of no use: no other key and no other hactl opens it.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Other(_) | Self::NotWhole(_) | Self::Damaged { .. })
    }
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| BundleError::Io { doing, path, source }
}

/// A bundle being written: what is written into it is sealed. The manifest comes last, for only then is all known that stands in it.
pub struct Writer {
    sealing: StreamWriter<Digester<Gentle>>,
}

impl Writer {
    /// Begins a bundle in an empty file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(to: File, recipients: &Recipients) -> io::Result<Self> {
        let mut to = Gentle::new(to);
        to.write_all(MAGIC)?;
        Ok(Self { sealing: recipients.writer(Digester::new(to))? })
    }

    /// Ends it with the sealed state and what `manifest` makes of the two pieces, signed where there is somebody to sign; on disk when this
    /// returns.
    ///
    /// # Errors
    /// What the file system says.
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

/// A bundle that is there as a whole, as far as its lengths and its manifest go.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// What it says of itself: `authentic` tells whether to believe it.
    pub claimed: Claimed,
}

impl Bundle {
    /// Reads the manifest of a file.
    ///
    /// # Errors
    /// What is no bundle, or not a whole one.
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        // A pipe would be waited for.
        if !std::fs::metadata(path).map_err(io_error("open", path))?.is_file() {
            return Err(BundleError::Other(path.to_owned()));
        }
        Self::read(File::open(path).map_err(io_error("open", path))?, path)
    }

    /// Reads the manifest of a file that is open: no more of it than its two ends. `path` is where it lies.
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

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn piece(&self, from: u64, piece: Piece) -> Result<io::Take<File>, BundleError> {
        let mut file = File::open(&self.path).map_err(io_error("open", &self.path))?;
        file.seek(SeekFrom::Start(MAGIC.len() as u64 + from)).map_err(io_error("read", &self.path))?;
        Ok(file.take(piece.bytes))
    }

    /// Whether every byte is as it was written. Needs nobody's key.
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

    /// The state that was sealed into it: what `up` left on the host that took it.
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
    /// Another identity, or damage; what was written by then is worth nothing.
    pub fn snapshot(&self, identities: &Identities, to: impl Write) -> Result<(), BundleError> {
        let part = &self.claimed.manifest.snapshot;
        let sealed = io::BufReader::with_capacity(WINDOW, self.piece(0, self.claimed.manifest.sealed)?);
        let opened = identities.reader(sealed).map_err(|error| self.unsealed(error))?;
        let mut sum = Digester::new(to);
        // One more than announced shows; all that follows is not even read.
        io::copy(&mut opened.take(part.sent_size.saturating_add(1)), &mut sum)
            .map_err(io_error("open what is sealed in", &self.path))?;
        let (mut to, found, bytes) = sum.finish();
        to.flush().map_err(io_error("write the snapshot of", &self.path))?;
        if (found, bytes) != (part.sent_digest, part.sent_size) {
            return Err(BundleError::Damaged { path: self.path.clone(), what: "the snapshot" });
        }
        Ok(())
    }

    /// The snapshot as a host is fed with it, opened while it is sent.
    pub fn feed(&self, identities: Arc<Identities>) -> Sealed {
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

/// What the last [`MOST_END`] bytes of a bundle claim, or all of them where it is shorter; `length` is the whole bundle's.
///
/// # Errors
/// What is not the end of a whole bundle of that length. `path` is for its words.
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
    // What lies between the pieces and the manifest is its seal.
    let sealed = pieces.and_then(|pieces| at.checked_sub(pieces)).ok_or_else(not_whole)?;
    // What is announced fits what is there, so that a file of a kilobyte has nobody make room for a terabyte.
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

/// The last so many bytes, and what is before them.
fn last(bytes: &[u8], size: u64) -> Option<(&[u8], &[u8])> {
    let from = bytes.len().checked_sub(usize::try_from(size).ok()?)?;
    Some(bytes.split_at(from))
}

/// A form that is not known is told before anything else is looked at.
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
