//! From a proven snapshot to a named snapshot file: compressed, encrypted, on the disk.
//!
//! In: the file of the snapshot, the state as `up` encrypted it, the recipients. Out: a snapshot file that is
//! complete or absent. The state is included as it is: it was encrypted for the owners alone, and this host's own
//! identity, for which the snapshot may be encrypted as well, decrypts none of it.

use super::own;
use super::store::SETTINGS;
use crate::agent::machine::files::{optional, sync_parent};
use crate::agent::machine::root::Root;
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::agent::parts::packed::{End, packed};
use crate::model::authentic::{SIGNER_CERT, SIGNER_KEY};
use crate::model::snapshot::{Claimed, Manifest, Point, Proof, SCHEMA, Settings};
use crate::snapshot::{Recipients, Signer, Writer};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// The encrypted state that each snapshot contains.
pub(super) const STATE: &str = "/var/lib/hactl/state.age";

/// The content of a manifest besides the pieces.
pub(super) struct About {
    pub settings: Settings,
    pub point: Point,
    pub etcd: String,
    pub proof: Proof,
    pub taken_ms: i64,
}

/// A named snapshot file.
pub(super) struct Sealed {
    /// The name of its file.
    pub name: String,
    /// Its manifest, signed if this host can sign.
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

/// The signer of this host; `None`: no `up` of a hactl that signs has run here yet.
fn signer(root: &Root) -> Outcome<Option<Signer>> {
    let (certificate, key) = (root.own(SIGNER_CERT), root.own(SIGNER_KEY));
    let pem = optional(fs::read_to_string(&certificate)).explain("read", &certificate)?;
    let Some(pem) = pem else { return Ok(None) };
    let key = Zeroizing::new(fs::read_to_string(&key).explain("read", &key)?);
    let signer = Signer::new(&key, pem);
    signer
        .map(Some)
        .map_err(|why| failed(format!("{} cannot sign a snapshot: {why}; run `hactl up`", certificate.display())))
}

/// Compresses, encrypts, signs and names it. Without its name it is not valid.
pub(super) fn sealed(root: &Root, snapshot: &Path, folder: &Path, name: String, about: About) -> Outcome<Sealed> {
    let state = root.own(STATE);
    let state = fs::read_to_string(&state).explain("read", &state)?;
    let mut keys = about.settings.recipients.clone();
    if about.settings.drill {
        keys.extend(own::recipients(root)?);
    }
    let recipients = Recipients::parse(&keys).map_err(|e| bad(format!("{SETTINGS}: {e}")))?;
    // Beside the snapshot: the next snapshot removes the remains of a killed one.
    let (place, fresh) = (folder.join(&name), snapshot.with_file_name(&name));
    let from = File::open(snapshot).explain("open", snapshot)?;
    let writer = Writer::begin(private(&fresh)?, &recipients).explain("write", &fresh)?;
    let (writer, blob) = packed(from, End::There, snapshot, (writer, std::io::sink()))?;
    let About { settings, point, etcd, proof, taken_ms } = about;
    // One without a signature is better than none, and it is reported.
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
    fs::rename(&fresh, &place).explain("replace", &place)?;
    sync_parent(&place)?;
    let bytes = fs::metadata(&place).explain("stat", &place)?.len();
    Ok(Sealed { name, claimed, bytes, unsigned })
}
