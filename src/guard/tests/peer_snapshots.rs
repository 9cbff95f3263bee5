//! Copies of the snapshots of another host, over loopback with real certificates and signatures.

use super::peer::Place;
use super::{Issuer, name, root, subject};
use crate::agent::Root;
use crate::guard::peer_snapshots::copied;
use crate::model::authentic::{DOCUMENT_SIGNING, SIGNER};
use crate::model::blob::SnapshotBlob;
use crate::model::healing::Mode;
use crate::model::names::Digest;
use crate::model::secret::Secret;
use crate::model::snapshot::{FOLDER, Keep, Manifest, PEERS, Point, Proof, SCHEMA, Settings, by_name};
use crate::snapshot::{Recipients, Signer, Trust, Writer, new_identity, public_of};
use crate::transport::Peers;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

/// The cluster's own fingerprint in its snapshots.
const OURS: &[u8] = b"ours";

/// The key of a host for its snapshots.
fn signer(host: &str, by: &Issuer) -> Signer {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("{SIGNER}{host}"), "hactl");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(DOCUMENT_SIGNING.to_vec())];
    let certificate = params.signed_by(&key, by).unwrap();
    Signer::new(&key.serialize_pem(), certificate.pem()).unwrap()
}

/// The snapshot that a host took in this minute.
fn of(host: &str, minute: u32) -> String {
    format!("lab-20261122T06{minute:02}00000Z-{host}.hactl")
}

/// cp1, which serves, and cp2, which copies.
struct Pair {
    place: Place,
    cp2: tempfile::TempDir,
    to: Recipients,
}

impl Pair {
    async fn new(net: u8) -> Self {
        let to = Recipients::parse(&public_of(&new_identity()).unwrap()).unwrap();
        let pair = Self { place: Place::new(net, Mode::On).await, cp2: tempfile::tempdir().unwrap(), to };
        for host in ["cp1", "cp2"] {
            let settings = Settings {
                cluster: "lab".parse().unwrap(),
                authority: Digest::of(OURS),
                host: name(host),
                every_s: 900,
                keep: Keep { last: 9, daily: 0, weekly: 0 },
                recipients: vec![],
                drill: false,
                to: vec![],
                url: String::new(),
                data_dir: String::new(),
                ca: String::new(),
                cert: String::new(),
                key: String::new(),
            };
            let at = pair.at(host, "/etc/hactl/snapshots.json");
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, serde_json::to_vec(&settings).unwrap()).unwrap();
            fs::create_dir_all(pair.at(host, FOLDER)).unwrap();
        }
        pair
    }

    fn at(&self, host: &str, path: &str) -> PathBuf {
        let directory = if host == "cp1" { &self.place.directory } else { &self.cp2 };
        directory.path().join(path.trim_start_matches('/'))
    }

    /// A host takes a snapshot of so many bytes at this revision; `says` changes its manifest.
    fn take(&self, name: &str, (bytes, revision): (usize, i64), by: Option<&Signer>, says: impl Fn(&mut Manifest)) {
        let parts = by_name(name).unwrap();
        let at = self.at(parts.host, FOLDER).join(name);
        let mut writer = Writer::begin(File::create(at).unwrap(), &self.to).unwrap();
        let block = vec![7; bytes.min(1 << 20)];
        for from in (0..bytes).step_by(block.len()) {
            writer.write_all(&block[..block.len().min(bytes - from)]).unwrap();
        }
        let state = self.to.text(&Secret::new("keys".to_owned())).unwrap();
        let manifest = |sealed, state| {
            let digest = Digest::of(b"snapshot");
            let mut manifest = Manifest {
                schema: SCHEMA,
                cluster: "lab".parse().unwrap(),
                authority: Digest::of(OURS),
                host: parts.host.parse().unwrap(),
                taken_ms: parts.taken_ms,
                point: Point { cluster: "c".into(), term: 2, index: 3, revision, high_water: revision },
                etcd: "3.6.16".into(),
                hactl: "0.1.0".into(),
                snapshot: SnapshotBlob { digest, size: bytes as u64, sent_digest: digest, sent_size: bytes as u64 },
                sealed,
                state,
                proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
            };
            says(&mut manifest);
            manifest
        };
        writer.end(&state, by, manifest).unwrap();
    }

    fn ca(&self) -> &Issuer {
        &self.place.ca
    }

    /// cp2 copies; returns why it has not copied from cp1. cp3 does not answer.
    async fn copy(&self) -> Option<String> {
        let root = Root::at(self.cp2.path());
        let identity = self.place.identity("cp2", "cp2", self.ca());
        let peers = Peers::new(self.place.address("cp2"), &identity, &self.place.policy).unwrap();
        let trust = Trust::of([self.ca().der().to_vec()]);
        let outcome = copied(&root, &self.place.policy, &name("cp2"), (&peers, trust), |_| {}).await;
        let why = outcome.expect_err("cp3 does not answer").to_string();
        let text = fs::read(self.at("cp2", PEERS).join("troubles.json")).unwrap();
        let mut troubles: BTreeMap<String, (i64, String)> = serde_json::from_slice(&text).unwrap();
        assert!(troubles.contains_key("cp3"), "{troubles:?}");
        let of_cp1 = troubles.remove("cp1").map(|(_, why)| why);
        assert_eq!(of_cp1.is_some(), why.contains("cp1: "), "{why}");
        of_cp1
    }

    /// What cp2 keeps.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.at("cp2", PEERS))
            .map(|all| all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<String>>());
        let mut names: Vec<String> = entries.unwrap_or_default();
        names.retain(|name| name != "troubles.json");
        names.sort();
        names
    }
}

const SMALL: (usize, i64) = (1000, 10);

#[tokio::test]
async fn a_host_keeps_the_newest_snapshot_of_another_and_replaces_it_by_the_next() {
    let pair = Pair::new(91).await;
    let (cp1, cp2) = (signer("cp1", pair.ca()), signer("cp2", pair.ca()));
    pair.take(&of("cp2", 0), SMALL, Some(&cp2), |_| {});
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![]), "cp1 has none yet");
    pair.take(&of("cp1", 1), SMALL, Some(&cp1), |_| {});
    // More than one piece.
    pair.take(&of("cp1", 2), (20 << 20, 20), Some(&cp1), |_| {});
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 2)]));
    let [there, here] = [("cp1", FOLDER), ("cp2", PEERS)].map(|(host, at)| pair.at(host, at).join(of("cp1", 2)));
    assert!(fs::read(there).unwrap() == fs::read(&here).unwrap(), "every byte");
    let made = fs::metadata(&here).unwrap().modified().unwrap();
    assert_eq!((pair.copy().await, fs::metadata(&here).unwrap().modified().unwrap()), (None, made), "not again");
    pair.take(&of("cp1", 3), (1000, 30), Some(&cp1), |_| {});
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 3)]));
}

#[tokio::test]
async fn a_host_that_lies_about_its_snapshot_has_no_copy_of_it_and_the_one_before_stays() {
    let pair = Pair::new(92).await;
    let (cp1, cp2) = (signer("cp1", pair.ca()), signer("cp2", pair.ca()));
    pair.take(&of("cp2", 0), SMALL, Some(&cp2), |_| {});
    pair.take(&of("cp1", 0), SMALL, Some(&cp1), |_| {});
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 0)]));
    let stranger = root("another");
    let refused = async |minute, said: &str| {
        let why = pair.copy().await.expect("it is refused");
        assert!(why.contains(said), "{why}");
        assert_eq!(pair.kept(), [of("cp1", 0)], "{why}");
        fs::remove_file(pair.at("cp1", FOLDER).join(of("cp1", minute))).unwrap();
    };
    pair.take(&of("cp1", 1), SMALL, None, |_| {});
    refused(1, "is not signed; `hactl up` lets cp1 sign its snapshots").await;
    pair.take(&of("cp1", 2), SMALL, Some(&signer("cp1", &stranger)), |_| {});
    refused(2, "no CA of the cluster signed the certificate of its signer").await;
    pair.take(&of("cp1", 3), SMALL, Some(&cp2), |_| {});
    refused(3, "but cp2 signed it").await;
    pair.take(&of("cp1", 4), SMALL, Some(&cp1), |manifest| manifest.taken_ms -= 60_000);
    refused(4, "under another name").await;
    // Its bytes are not those of its manifest.
    pair.take(&of("cp1", 5), SMALL, Some(&cp1), |manifest| manifest.sealed.digest = Digest::of(b"others"));
    refused(5, "has changed since it was written").await;
    pair.take(&of("cp1", 6), SMALL, Some(&cp1), |manifest| manifest.authority = Digest::of(b"theirs"));
    // A host leaves such a snapshot out itself, as one of an earlier cluster.
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 0)]));
    pair.take(&of("cp1", 7), (1000, 9), Some(&cp1), |_| {});
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 0)]), "an older state than before");
}

#[tokio::test]
async fn a_snapshot_that_is_much_larger_than_the_own_ones_is_not_copied() {
    let pair = Pair::new(93).await;
    let (cp1, cp2) = (signer("cp1", pair.ca()), signer("cp2", pair.ca()));
    pair.take(&of("cp2", 0), SMALL, Some(&cp2), |_| {});
    pair.take(&of("cp1", 0), (300 << 20, 10), Some(&cp1), |_| {});
    let why = pair.copy().await.expect("it is refused");
    assert!(why.contains("cp1 offers 314") && why.contains("but the own newest has "), "{why}");
    assert_eq!(pair.kept(), Vec::<String>::new());
    pair.take(&of("cp2", 1), (80 << 20, 10), Some(&cp2), |_| {});
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 0)]));
}

#[tokio::test]
async fn what_an_interrupted_copy_left_is_removed_and_copies_of_hosts_that_left_expire() {
    let pair = Pair::new(94).await;
    let (cp1, cp2) = (signer("cp1", pair.ca()), signer("cp2", pair.ca()));
    pair.take(&of("cp2", 0), SMALL, Some(&cp2), |_| {});
    pair.take(&of("cp1", 0), SMALL, Some(&cp1), |_| {});
    let peers = pair.at("cp2", PEERS);
    fs::create_dir_all(&peers).unwrap();
    for left in [format!("{}.new", of("cp1", 0)), "lab-20200101T000000000Z-gone.hactl".to_owned()] {
        fs::write(peers.join(left), "").unwrap();
    }
    let lately = "lab-29990101T000000000Z-gone.hactl";
    fs::write(peers.join(lately), "").unwrap();
    assert_eq!((pair.copy().await, pair.kept()), (None, vec![of("cp1", 0), lately.to_owned()]));
}
