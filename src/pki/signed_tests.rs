//! Snapshots signed by hosts with certificates of the table, and verified with the CAs of a state directory.

use super::*;
use crate::model::authentic::{Authenticity, Signed};
use crate::model::blob::SnapshotBlob;
use crate::model::desired::{Desired, Role, sample};
use crate::model::names::{Digest, HostName};
use crate::model::rotation::Rotatable;
use crate::model::secret::Secret;
use crate::model::snapshot::{BundleFact, Claimed, Manifest, Piece, Point, Proof, SCHEMA};
use crate::model::target::CertId;
use crate::snapshot::{Bundle, Recipients, Signer, Writer, new_identity, public_of};
use crate::statedir::PublicAuthority;
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use std::fs::File;
use std::io::Write as _;
use time::{Duration, OffsetDateTime};

fn at(day: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap() + Duration::days(day)
}

fn ms(day: i64) -> i64 {
    at(day).unix_timestamp() * 1000
}

fn contents() -> Contents {
    found(&"lab".parse().unwrap(), brought::Brought::default(), at(0)).unwrap()
}

/// A key with the certificate of this row on this host.
fn signer_as(leaf: CertId, desired: &Desired, host: usize, contents: &Contents, by: &Authority, day: i64) -> Signer {
    let host = desired.with(Role::Etcd).nth(host).unwrap();
    let leaf = leaves(desired, host, &contents.publics()).into_iter().find(|one| one.id == leaf).unwrap();
    let leaf = crate::model::target::CertSpec { authority: by.id().to_owned(), ..leaf };
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let pem = sign(&request, &leaf, by, at(day)).unwrap();
    // The chain of an intermediate follows; a signer does not use it.
    let own = pem.split_inclusive("-----END CERTIFICATE-----").next().unwrap().to_owned();
    Signer::new(&key.serialize_pem(), own).unwrap()
}

fn signer(host: usize, contents: &Contents, day: i64) -> Signer {
    signer_as(CertId::SnapshotSigner, &sample(3), host, contents, &contents.cluster, day)
}

fn name(host: &str) -> HostName {
    host.parse().unwrap()
}

/// A snapshot file.
struct Made {
    folder: tempfile::TempDir,
    claimed: Claimed,
}

impl Made {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("lab.hactl")
    }
    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }
    fn open(&self, bytes: &[u8]) -> Result<Claimed, crate::snapshot::BundleError> {
        std::fs::write(self.path(), bytes).unwrap();
        Bundle::open(&self.path()).map(|bundle| bundle.claimed)
    }
}

fn made(host: &str, taken_ms: i64, signer: Option<&Signer>) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let to = Recipients::parse(&public_of(&new_identity()).unwrap()).unwrap();
    let mut writer = Writer::begin(File::create(folder.path().join("lab.hactl")).unwrap(), &to).unwrap();
    writer.write_all(b"a snapshot").unwrap();
    let state = to.text(&Secret::new("keys".to_owned())).unwrap();
    let digest = Digest::of(b"a snapshot");
    let manifest = |sealed: Piece, state: Piece| Manifest {
        schema: SCHEMA,
        cluster: "lab".parse().unwrap(),
        authority: digest,
        host: name(host),
        taken_ms,
        point: Point { cluster: "c".into(), term: 2, index: 3, revision: 4, high_water: 5 },
        etcd: "3.6.16".into(),
        hactl: "0.1.0".into(),
        snapshot: SnapshotBlob { digest, size: 10, sent_digest: digest, sent_size: 10 },
        sealed,
        state,
        proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
    };
    let claimed = writer.end(&state, signer, manifest).unwrap();
    Made { folder, claimed }
}

/// Edits a manifest.
type Change = fn(&mut serde_json::Value);

/// Start and end of the manifest in a file.
fn manifest_in(bytes: &[u8]) -> (usize, usize) {
    let end = bytes.len() - 36;
    let size = u32::from_be_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    (end - size, end)
}

/// Like `forge.py`: edits the manifest and recomputes everything that needs no key.
fn relabelled(bytes: &[u8], change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    let (begun, end) = manifest_in(bytes);
    let mut manifest = serde_json::from_slice(&bytes[begun..end]).unwrap();
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    let size = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&bytes[..begun], &text, &size, Digest::of(&text).bytes()].concat()
}

fn forged(judged: &Authenticity, why: &str) {
    assert!(matches!(judged, Authenticity::Forged(said) if said.contains(why)), "{judged:?}, not {why}");
}

#[test]
fn a_hosts_signature_is_valid_for_its_own_unchanged_snapshot_and_a_removed_signature_is_noticed() {
    let contents = contents();
    let trust = contents.snapshot_trust();
    let made = made("cp1", ms(1), Some(&signer(0, &contents, 0)));
    let whole = made.bytes();
    assert_eq!(made.open(&whole).unwrap(), made.claimed, "it is read as it was written");
    assert_eq!(trust.judge(&made.claimed), Authenticity::Signed(name("cp1")));
    let changes: [(&str, Change); 5] = [
        ("host", |m| m["host"] = "cp2".into()),
        ("date", |m| m["taken_ms"] = ms(2).into()),
        ("revision", |m| m["point"]["revision"] = 90_000.into()),
        ("high water", |m| m["point"]["high_water"] = 90_000.into()),
        ("entry", |m| (m["point"]["term"], m["point"]["index"]) = (50.into(), 200_000.into())),
    ];
    for (what, change) in changes {
        let claimed = made.open(&relabelled(&whole, change)).unwrap_or_else(|e| panic!("{what}: {e}"));
        forged(&trust.judge(&claimed), "changed after it was signed");
    }
    let seal = serde_json::to_vec(&made.claimed.signed.as_ref().unwrap().seal).unwrap();
    let (begun, _) = manifest_in(&whole);
    let bare = [&whole[..begun - seal.len()], &whole[begun..]].concat();
    let stripped = made.open(&bare).unwrap();
    assert_eq!((&stripped.manifest, trust.judge(&stripped)), (&made.claimed.manifest, Authenticity::Unsigned));
    let both = made.open(&relabelled(&bare, |m| m["host"] = "cp2".into())).unwrap();
    assert_eq!(trust.judge(&both), Authenticity::Unsigned);
    assert!(!Authenticity::Unsigned.may_be_taken(false) && Authenticity::Unsigned.may_be_taken(true));
    assert!(!Authenticity::Unchecked.may_be_taken(true), "a caller that does not ask accepts nothing");
}

#[test]
fn only_a_host_itself_signs_for_it_with_a_certificate_of_the_clusters_own_ca() {
    let (contents, theirs) = (contents(), contents());
    let desired = Desired { unattended_days: Some(1095), ..sample(3) };
    let trust = contents.snapshot_trust();
    let judged = |signer: &Signer| trust.judge(&made("cp1", ms(1), Some(signer)).claimed);
    forged(&judged(&signer(1, &contents, 0)), "cp2 signed it");
    forged(&judged(&signer(0, &theirs, 0)), "no CA of the cluster signed");
    forged(
        &judged(&signer_as(CertId::SnapshotSigner, &desired, 0, &contents, &contents.signing, 0)),
        "no CA of the cluster signed",
    );
    forged(
        &judged(&signer_as(CertId::SnapshotSigner, &desired, 0, &contents, &contents.etcd, 0)),
        "no CA of the cluster signed",
    );
    for leaf in [CertId::Observer, CertId::Scheduler, CertId::Apiserver, CertId::ClusterIssuer] {
        forged(&judged(&signer_as(leaf, &desired, 0, &contents, &contents.cluster, 0)), "is not for snapshots");
    }
    forged(&judged(&signer(0, &contents, 2)), "was not valid");
    let ended = made("cp1", ms(500), Some(&signer(0, &contents, 0)));
    forged(&trust.judge(&ended.claimed), "was not valid");
    assert_eq!(judged(&signer(0, &contents, 0)), Authenticity::Signed(name("cp1")));
}

#[test]
fn a_signers_certificate_authenticates_no_client_and_no_server_and_outlasts_an_unattended_cluster() {
    let contents = contents();
    let pem = made("cp1", ms(1), Some(&signer(0, &contents, 0))).claimed.signed.unwrap().seal.certificate;
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let leaf = block.parse_x509().unwrap();
    let usage = leaf.extended_key_usage().unwrap().expect("without one it would be valid for everything").value;
    assert!(!usage.any && !usage.client_auth && !usage.server_auth && usage.other.len() == 1, "{usage:?}");
    assert!(leaf.subject().iter_organization().next().is_none() && leaf.subject_alternative_name().unwrap().is_none());
    let days = |unattended_days| {
        let desired = Desired { unattended_days, ..sample(3) };
        let all = leaves(&desired, &desired.hosts[0], &contents.publics());
        all.into_iter().find(|leaf| leaf.id == CertId::SnapshotSigner).unwrap().days
    };
    assert_eq!((days(None), days(Some(90)), days(Some(1095))), (365, 365, 3285));
    assert!(!CertId::SnapshotSigner.may_be_renewed_by_its_host());
}

#[test]
fn reported_facts_of_a_file_must_match_the_signature_its_name_and_its_host() {
    let contents = contents();
    let trust = contents.snapshot_trust();
    let claimed = made("cp1", ms(1), Some(&signer(0, &contents, 0))).claimed;
    let file_timestamp = crate::model::timestamp::file_timestamp(ms(1)).replace('.', "");
    let fact = BundleFact::of(format!("lab-{file_timestamp}-cp1.hactl"), 9, &claimed);
    let judged = |own: Option<&str>, change: &dyn Fn(&mut BundleFact)| {
        let mut fact = fact.clone();
        change(&mut fact);
        trust.judge_fact(&mut fact, own.map(name).as_ref());
        fact.authenticity
    };
    assert_eq!(judged(Some("cp1"), &|_| {}), Authenticity::Signed(name("cp1")));
    assert_eq!(judged(None, &|_| {}), Authenticity::Signed(name("cp1")));
    assert_eq!(judged(None, &|fact| fact.name = "mine.hactl".to_owned()), Authenticity::Signed(name("cp1")));
    forged(&judged(Some("cp2"), &|_| {}), "not of cp2");
    forged(&judged(Some("cp1"), &|fact| fact.name = "mine.hactl".to_owned()), "under another name");
    forged(&judged(None, &|fact| fact.name = fact.name.replace("cp1", "cp2")), "under another name");
    forged(&judged(None, &|fact| fact.name = fact.name.replace("-2", "-3")), "under another name");
    forged(&judged(None, &|fact| fact.point.revision += 1), "differs from the reported facts");
    forged(&judged(None, &|fact| fact.point.high_water = i64::MAX), "differs from the reported facts");
    forged(&judged(None, &|fact| fact.authority = Digest::of(b"another")), "differs from the reported facts");
    forged(&judged(None, &|fact| fact.signed.as_mut().unwrap().manifest.push(' ')), "changed after it was signed");
    assert_eq!(judged(None, &|fact| fact.signed = None), Authenticity::Unsigned);
    // A host cannot decide how its snapshot is judged.
    let mut stated = serde_json::to_value(&fact).unwrap();
    assert!(stated.get("authenticity").is_none(), "a host that has not checked reports nothing");
    assert_eq!(serde_json::from_value::<BundleFact>(stated.clone()).unwrap(), fact);
    stated["authenticity"] = serde_json::json!({"signed": "cp1"});
    assert!(serde_json::from_value::<BundleFact>(stated).is_err());
}

#[test]
fn a_replaced_ca_is_valid_for_snapshots_of_its_time_through_an_unbroken_chain_from_the_first() {
    let cluster = "lab".parse().unwrap();
    let mut contents = contents();
    let (first, old) = (contents.cluster.fingerprint(), signer(0, &contents, 0));
    let before = made("cp1", ms(1), Some(&old)).claimed;
    assert!(contents.lineage().is_whole() && contents.lineage().length() == 1);
    for turn in 1..=2 {
        rotate::begin(&cluster, &mut contents, Rotatable::ClusterCa, at(turn * 10)).unwrap();
        rotate::issue(&mut contents, Rotatable::ClusterCa, at(turn * 10 + 1)).unwrap();
        let between = made("cp1", ms(turn * 10 + 2), Some(&old)).claimed;
        if turn == 1 {
            assert_eq!(
                contents.snapshot_trust().judge(&between),
                Authenticity::Signed(name("cp1")),
                "not every host has the new CA yet"
            );
        }
        rotate::end(&mut contents, Rotatable::ClusterCa, at(turn * 10 + 3));
        rotate::finish(&mut contents, Rotatable::ClusterCa);
        let trust = contents.snapshot_trust();
        assert_eq!(trust.judge(&before), Authenticity::Signed(name("cp1")), "turn {turn}");
        forged(&trust.judge(&made("cp1", ms(turn * 10 + 4), Some(&old)).claimed), "was replaced");
        let lineage = contents.lineage();
        assert!(lineage.is_whole() && lineage.anchor() == first && lineage.has(&contents.cluster.fingerprint()));
        // It survives export and import of the state.
        let carried = crate::statedir::carry(&cluster, &contents, &new_identity(), "");
        assert_eq!(crate::statedir::uncarry(&carried).unwrap().contents.lineage(), lineage);
    }
    assert_eq!(contents.lineage().length(), 3);
}

#[test]
fn neither_another_ca_nor_the_signing_intermediate_is_accepted_as_the_successor_ca() {
    let ours = contents();
    let first = ours.cluster.fingerprint();
    let claims = |next: Option<PublicAuthority>, mine: Authority| {
        let mut made = contents();
        made.rotations.founded = first;
        made.rotations.stages = 999_999;
        made.rotations.former =
            vec![crate::statedir::Former { public: ours.cluster.public().clone(), next, until_s: None }];
        made.cluster = mine;
        made.lineage()
    };
    let copy = |authority: &Authority| {
        Authority::new(authority.cert_pem().to_owned(), Secret::new(authority.key().reveal().clone())).unwrap()
    };
    let theirs = contents();
    for next in [None, Some(theirs.cluster.public().clone()), Some(ours.cluster.public().clone())] {
        let lineage = claims(next, copy(&theirs.cluster));
        assert!(!lineage.is_whole() && lineage.anchor() == theirs.cluster.fingerprint() && !lineage.has(&first));
    }
    // A thief has the signing intermediate, which the CA did sign.
    let lineage = claims(Some(ours.signing.public().clone()), copy(&ours.signing));
    assert!(!lineage.is_whole() && !lineage.has(&first));
}

/// A signed snapshot with its manifest and CAs, created once.
fn one() -> &'static (Vec<u8>, Manifest, crate::snapshot::Trust) {
    static ONE: std::sync::OnceLock<(Vec<u8>, Manifest, crate::snapshot::Trust)> = std::sync::OnceLock::new();
    ONE.get_or_init(|| {
        let contents = contents();
        let made = made("cp1", ms(1), Some(&signer(0, &contents, 0)));
        (made.bytes(), made.claimed.manifest.clone(), contents.snapshot_trust())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_changed_file_is_accepted_as_signed(
        at in 0_usize..4000, byte: u8, cut in 0_usize..40, put in proptest::collection::vec(any::<u8>(), 0..20)
    ) {
        let (whole, manifest, trust) = one();
        let at = whole.len() - 1 - at % whole.len();
        let mut bytes = whole[..at].to_vec();
        bytes.push(byte);
        bytes.extend(&put);
        bytes.extend(whole.iter().skip(at + 1 + cut));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab.hactl");
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(bundle) = Bundle::open(&path)
            && let Authenticity::Signed(by) = trust.judge(&bundle.claimed)
        {
            prop_assert_eq!((&bundle.claimed.manifest, by), (manifest, name("cp1")));
        }
    }
}

#[test]
fn a_signature_record_must_hold_exactly_one_certificate_and_one_signature() {
    let contents = contents();
    let trust = contents.snapshot_trust();
    let claimed = made("cp1", ms(1), Some(&signer(0, &contents, 0))).claimed;
    let changed = |change: &dyn Fn(&mut Signed)| {
        let mut claimed = claimed.clone();
        change(claimed.signed.as_mut().unwrap());
        trust.judge(&claimed)
    };
    forged(&changed(&|s| s.seal.certificate.clear()), "cannot be parsed");
    forged(&changed(&|s| s.seal.certificate = s.seal.certificate.repeat(2)), "cannot be parsed");
    forged(&changed(&|s| s.seal.signature.clear()), "does not match");
    forged(&changed(&|s| s.seal.signature = "?".to_owned()), "cannot be decoded");
}
