//! From a proven snapshot to a bundle with its name: compressed, sealed, on the disk.
//!
//! In: the snapshot's file, the state as `up` sealed it, whom to seal to. Out: a bundle that is whole or not there. The state is taken as it
//! is: it was sealed to the owners alone, and this host's own identity, to which the snapshot may be sealed as well, opens nothing of it.

use super::{SETTINGS, own};
use crate::agent::backup::packed::{End, packed};
use crate::agent::fault::{Explain, Outcome, bad, failed};
use crate::agent::machine::files::sync_parent;
use crate::agent::machine::root::Root;
use crate::model::authentic::{SIGNER_CERT, SIGNER_KEY};
use crate::model::snapshot::{Claimed, Manifest, Point, Proof, SCHEMA, Settings};
use crate::snapshot::{Recipients, Signer, Writer};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// The sealed state that goes into each.
pub(super) const STATE: &str = "/var/lib/hactl/state.age";

/// What a manifest says besides the pieces.
pub(super) struct About {
    pub settings: Settings,
    pub point: Point,
    pub etcd: String,
    pub proof: Proof,
    pub taken_ms: i64,
}

/// A bundle with its name.
pub(super) struct Sealed {
    /// Its file's name.
    pub name: String,
    /// What it says of itself, signed where this host can.
    pub claimed: Claimed,
    /// Its size.
    pub bytes: u64,
    /// Why it is not signed although this host should sign.
    pub unsigned: Option<String>,
}

/// An empty file that only root may read.
pub(super) fn private(at: &Path) -> Outcome<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600).open(at).explain("create", at)
}

/// What this host signs with; `None`: no `up` of a hactl that signs was here yet.
fn signer(root: &Root) -> Outcome<Option<Signer>> {
    let (certificate, key) = (root.own(SIGNER_CERT), root.own(SIGNER_KEY));
    let pem = match fs::read_to_string(&certificate) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.explain("read", &certificate)?,
    };
    let key = Zeroizing::new(fs::read_to_string(&key).explain("read", &key)?);
    let signer = Signer::new(&key, pem);
    signer
        .map(Some)
        .map_err(|why| failed(format!("{} signs no snapshot: {why}; run `hactl up`", certificate.display())))
}

/// Compresses, encrypts, signs and names it. Until it has its name it is nothing.
pub(super) fn sealed(root: &Root, snapshot: &Path, folder: &Path, name: String, about: About) -> Outcome<Sealed> {
    let state = root.own(STATE);
    let state = fs::read_to_string(&state).explain("read", &state)?;
    let mut keys = about.settings.recipients.clone();
    if about.settings.drill {
        keys.extend(own::recipients(root)?);
    }
    let recipients = Recipients::parse(&keys).map_err(|e| bad(format!("{SETTINGS}: {e}")))?;
    // Beside the snapshot: what a kill leaves there is cleared by the next.
    let (place, fresh) = (folder.join(&name), snapshot.with_file_name(&name));
    let from = File::open(snapshot).explain("open", snapshot)?;
    let writer = Writer::begin(private(&fresh)?, &recipients).explain("write", &fresh)?;
    let (writer, blob) = packed(from, End::There, snapshot, (writer, std::io::sink()))?;
    let About { settings, point, etcd, proof, taken_ms } = about;
    // One without a signature is better than none, and it is told.
    let (signer, unsigned) = match signer(root) {
        Ok(signer) => (signer, None),
        Err(fault) => (None, Some(fault.what)),
    };
    let claimed = writer.end(&state, signer.as_ref(), |sealed, state| Manifest {
        schema: SCHEMA,
        cluster: settings.cluster,
        authority: settings.authority,
        host: settings.host,
        taken_ms,
        point,
        etcd,
        hactl: env!("CARGO_PKG_VERSION").to_owned(),
        snapshot: blob,
        sealed,
        state,
        proof,
    });
    let claimed = claimed.explain("write", &fresh)?;
    fs::rename(&fresh, &place).explain("put in place", &place)?;
    sync_parent(&place)?;
    let bytes = fs::metadata(&place).explain("look at", &place)?.len();
    Ok(Sealed { name, claimed, bytes, unsigned })
}
