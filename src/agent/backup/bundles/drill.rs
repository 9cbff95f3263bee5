//! A drill that the host runs automatically: its newest snapshot, restored, and compared with the proof from when it
//! was taken.
//!
//! In: the newest file in the directory, and the host's own identity. Out: the result, recorded beside the snapshots.
//! It proceeds as a rehearsal, without the two things that a host must not have: the identity of the owners, and the
//! state that it decrypts.

use super::sealing::private;
use super::store::{self, RESERVE, settings, turn};
use super::{own, proof};
use crate::agent::host::Host;
use crate::agent::machine::files::{fresh_folder, remove_all};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, disk_full, ensure_space, failed, fault, is_full};
use crate::model::digester::Digester;
use crate::model::drill::{DrillOutcome, OwnDrill, Showed};
use crate::model::snapshot::Manifest;
use crate::protocol::{OpError, OpErrorKind};
use crate::snapshot::{Bundle, BundleError, Gentle};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The working directory, in the directory of snapshots.
pub(super) const WORK: &str = ".drill";
/// How long it waits for a snapshot in progress, which also has a twentieth of a processor: its next turn may be a
/// week away.
const TIMEOUT: Duration = Duration::from_secs(7200);

/// Why there is no proof.
struct Unproven {
    fault: OpError,
    /// Whether the snapshot itself is damaged.
    damaged: bool,
}

impl From<OpError> for Unproven {
    fn from(fault: OpError) -> Self {
        Self { damaged: fault.kind == OpErrorKind::Corrupt, fault }
    }
}

impl From<BundleError> for Unproven {
    fn from(error: BundleError) -> Self {
        match &error {
            BundleError::Io { path, source, .. } if is_full(source) => disk_full(path, None).into(),
            _ if error.is_damage() => fault(OpErrorKind::Corrupt, error.to_string()).into(),
            _ => failed(error.to_string()).into(),
        }
    }
}

/// Runs a drill, and records the result.
pub(crate) async fn hold(host: &Host) -> Outcome<DrillOutcome> {
    let folder = host.root.blocking(store::folder).await?;
    let Some(_turn) = turn(host, &folder, TIMEOUT).await? else { return Ok(DrillOutcome::Busy) };
    let at = folder.clone();
    let newest = host.root.blocking(move |root| {
        let settings = settings(root)?;
        if settings.drill { store::newest(&at, &settings) } else { Err(not_asked()) }
    });
    let Some((taken_ms, bundle)) = newest.await? else { return Ok(DrillOutcome::NoBundle) };
    let work = folder.join(WORK);
    let showed = restored(host, folder.join(&bundle), work.clone()).await;
    let cleared = blocking(move || remove_all(&work)).await;
    let (showed, tail) = match showed {
        Ok(showed) => (showed, Vec::new()),
        Err(Unproven { fault, damaged }) => (Showed::Failed { what: fault.what, damaged }, fault.tail),
    };
    let held = OwnDrill { at_ms: when::now_ms(), bundle, taken_ms, showed };
    let noted = held.clone();
    let noting = host.root.blocking(move |root| {
        // If the drills were disabled meanwhile, the record of the last one was deleted.
        if settings(root)?.drill { store::held(root, &noted) } else { Err(not_asked()) }
    });
    noting.await?;
    cleared?;
    Ok(DrillOutcome::Held(held, tail))
}

fn not_asked() -> OpError {
    failed("the inventory does not enable drills on this host")
}

/// The result of restoring the snapshot, in a working directory.
async fn restored(host: &Host, at: PathBuf, work: PathBuf) -> Result<Showed, Unproven> {
    host.waits("the newest snapshot to be read and decrypted");
    let (snapshot, place) = (work.join("snapshot.db"), work.clone());
    let content = snapshot.clone();
    let opened = host.root.blocking(move |root| Ok(opened(root, &at, &place, &content))).await??;
    let Some(manifest) = opened else { return Ok(Showed::SealedBefore) };
    let proven = Box::pin(proof::prove(host, &snapshot, manifest.point.revision, &work)).await?.proof;
    let was = manifest.proof;
    if proven.is_of(&was) {
        return Ok(Showed::Restored(proven));
    }
    let what = format!("it restores to {} keys with the hash {:08x}", proven.keys, proven.hash);
    let what = format!("{what}, but {} keys with {:08x} were taken", was.keys, was.hash);
    Err(fault(OpErrorKind::Corrupt, what).into())
}

/// Reads every byte, decrypts and decompresses the snapshot. `None`: it is older than the identity of this host.
fn opened(root: &Root, at: &Path, work: &Path, to: &Path) -> Result<Option<Manifest>, Unproven> {
    let bundle = Bundle::open(at)?;
    // Requires no key, so that damage is found in a snapshot of any age.
    bundle.check()?;
    let Some((identities, since_ms)) = own::identity(root)? else { return Ok(None) };
    let part = &bundle.claimed.manifest.snapshot;
    ensure_space(at, part.size.saturating_mul(2).saturating_add(RESERVE))?;
    fresh_folder(work)?;
    let content = Content { to: Digester::new(Gentle::new(private(to)?)), left: part.size };
    let mut unpacking = zstd::stream::write::Decoder::new(content).explain("decompress", at)?;
    match bundle.snapshot(&identities, &mut unpacking) {
        Err(BundleError::WrongIdentity(_))
            if since_ms.is_some_and(|since| bundle.claimed.manifest.taken_ms < since) =>
        {
            return Ok(None);
        }
        opened => opened?,
    }
    let (file, digest, bytes) = unpacking.into_inner().to.finish();
    file.end().explain("write", to)?;
    if (digest, bytes) != (part.digest, part.size) {
        return Err(BundleError::Damaged { path: at.to_owned(), what: "its decompressed content" }.into());
    }
    Ok(Some(bundle.claimed.manifest))
}

/// The decompressed content, limited to the announced size.
struct Content {
    to: Digester<Gentle>,
    left: u64,
}

impl Write for Content {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is larger than announced"))?;
        self.to.write_all(bytes)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
