use super::*;
use crate::model::blob::SnapshotBlob;
use crate::model::snapshot::{Point, Proof};
use crate::snapshot::{new_identity, public_of};

struct Made {
    folder: tempfile::TempDir,
    identities: Identities,
    packed: Vec<u8>,
}

impl Made {
    fn path(&self) -> PathBuf {
        self.folder.path().join("lab-20261122T060000Z-cp1.hactl")
    }
    fn open(&self) -> Result<Bundle, BundleError> {
        Bundle::open(&self.path())
    }
    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).expect("it was written")
    }
    fn put(&self, bytes: &[u8]) {
        std::fs::write(self.path(), bytes).expect("the folder is there");
    }
}

fn manifest(packed: &[u8], sealed: Piece, state: Piece) -> Manifest {
    let digest = Digest::of(packed);
    Manifest {
        schema: SCHEMA,
        cluster: "lab".parse().expect("a name"),
        authority: digest,
        host: "cp1".parse().expect("a name"),
        taken_ms: 1,
        point: Point { cluster: "abc".into(), term: 2, index: 3, revision: 4, high_water: 5 },
        etcd: "3.6.16".into(),
        hactl: "0.1.0".into(),
        snapshot: SnapshotBlob {
            digest,
            size: packed.len() as u64,
            sent_digest: digest,
            sent_size: packed.len() as u64,
        },
        sealed,
        state,
        proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
    }
}

fn made() -> Made {
    let folder = tempfile::tempdir().expect("a folder");
    let identity = new_identity();
    let to = Recipients::parse(&public_of(&identity).expect("just made")).expect("a key");
    let packed: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let made = Made { folder, identities: Identities::parse(&identity).expect("just made"), packed };
    let mut writer = Writer::begin(File::create(made.path()).expect("a file"), &to).expect("it can be written");
    writer.write_all(&made.packed).expect("it can be written");
    let state = to.text(&Secret::new("the keys of everything".to_owned())).expect("memory");
    writer.end(&state, None, |sealed, state| manifest(&made.packed, sealed, state)).expect("it can be ended");
    made
}

#[test]
fn contents_are_read_back_and_nothing_is_stored_unencrypted() {
    let made = made();
    let bundle = made.open().expect("it is whole");
    bundle.check().expect("it is as it was written");
    let mut out = Vec::new();
    bundle.snapshot(&made.identities, &mut out).expect("it opens");
    assert_eq!(out, made.packed);
    assert_eq!(bundle.state(&made.identities).expect("it opens").reveal(), "the keys of everything");
    let bytes = made.bytes();
    assert!(!bytes.windows(8).any(|w| w == b"the keys" || w == &made.packed[4000..4008]));
}

#[test]
fn another_identity_gets_a_clear_error() {
    let made = made();
    let other = Identities::parse(&new_identity()).expect("just made");
    let bundle = made.open().expect("it is whole");
    assert!(matches!(bundle.snapshot(&other, io::sink()), Err(BundleError::WrongIdentity(_))));
    assert!(matches!(bundle.state(&other), Err(BundleError::WrongIdentity(_))));
}

#[test]
fn a_truncated_snapshot_is_not_complete() {
    let made = made();
    let bytes = made.bytes();
    for keep in (MAGIC.len()..bytes.len()).step_by(bytes.len() / 97).chain([bytes.len() - 1]) {
        made.put(&bytes[..keep]);
        assert!(matches!(made.open(), Err(BundleError::NotWhole(_))), "{keep} bytes of {}", bytes.len());
    }
    made.put(&bytes[..5]);
    assert!(matches!(made.open(), Err(BundleError::Other(_))));
}

#[test]
fn a_flipped_bit_anywhere_is_found_without_any_key() {
    let made = made();
    let bytes = made.bytes();
    for at in (0..bytes.len()).step_by(bytes.len() / 199).chain(bytes.len() - 900..bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        made.put(&flipped);
        assert!(made.open().and_then(|b| b.check()).is_err(), "byte {at} of {}", bytes.len());
    }
}

#[test]
fn a_later_form_is_named_and_nothing_else_of_it_is_believed() {
    let made = made();
    let bytes = made.bytes();
    let end = bytes.len() - usize::try_from(END).expect("small");
    let size = u32::from_be_bytes(bytes[end..end + 4].try_into().expect("four bytes"));
    let text = br#"{"schema": 2, "more": []}"#;
    let mut later = bytes[..end - size as usize].to_vec();
    later.extend_from_slice(text);
    later.extend_from_slice(&u32::try_from(text.len()).expect("small").to_be_bytes());
    later.extend_from_slice(Digest::of(text).bytes());
    made.put(&later);
    assert!(matches!(made.open(), Err(BundleError::TooNew { schema: 2, .. })));
}

#[test]
fn more_than_announced_is_not_unpacked() {
    let made = made();
    let mut bundle = made.open().expect("it is whole");
    bundle.claimed.manifest.snapshot.sent_size = 1000;
    let mut out = Vec::new();
    assert!(bundle.snapshot(&made.identities, &mut out).is_err());
    assert_eq!(out.len(), 1001);
}
