//! CAs created by others, as openssl and rcgen create them, checked and used.

use super::*;
use crate::pki::{Contents, found};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose};
use rcgen::{GeneralSubtree, NameConstraints, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize};
use std::fs;
use tempfile::TempDir;

const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:00 UTC);

/// A CA as somebody else would create it: another key identifier than ours, and the changes of `edit`.
fn params(edit: impl Fn(&mut CertificateParams)) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
    params.distinguished_name.push(rcgen::DnType::CommonName, "their CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(vec![7; 20]);
    params.not_before = NOW - Duration::days(1);
    params.not_after = NOW + Duration::days(3650);
    edit(&mut params);
    params
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
    fn put(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
    fn pair(&self, name: &str, cert: &str, key: &str) -> BroughtAuthority {
        let cert = self.put(&format!("{name}.crt"), cert, 0o644);
        BroughtAuthority { cert, key: self.put(&format!("{name}.key"), key, 0o600) }
    }
    fn made(&self, name: &str, key: &KeyPair, edit: impl Fn(&mut CertificateParams)) -> BroughtAuthority {
        let cert = params(edit).self_signed(key).unwrap();
        self.pair(name, &cert.pem(), &key.serialize_pem())
    }
}

fn key() -> KeyPair {
    new_key("a test").unwrap()
}

fn only(cluster: BroughtAuthority) -> BroughtPki {
    BroughtPki { cluster: Some(cluster), ..BroughtPki::default() }
}

fn contents(named: &BroughtPki) -> Contents {
    found(&"lab".parse().unwrap(), read(named, NOW).unwrap(), NOW).unwrap()
}

fn refused(named: &BroughtPki) -> String {
    read(named, NOW).err().expect("it is refused").to_string()
}

#[test]
fn a_ca_of_the_user_signs_the_intermediate_and_hactl_creates_the_rest() {
    let files = Files::new();
    let pair = files.made("ca", &key(), |_| {});
    let contents = contents(&only(pair.clone()));
    assert_eq!(contents.cluster.id(), "07".repeat(20), "the key identifier is the CA's own");
    assert_eq!(contents.cluster.cert_pem().trim(), fs::read_to_string(&pair.cert).unwrap().trim());
    let (_, signing) = parse_x509_pem(contents.signing.cert_pem().as_bytes()).unwrap();
    let signing = signing.parse_x509().unwrap();
    let (_, ca) = parse_x509_pem(contents.cluster.cert_pem().as_bytes()).unwrap();
    assert!(signing.verify_signature(Some(ca.parse_x509().unwrap().public_key())).is_ok());
    assert_ne!(contents.etcd.id(), contents.cluster.id());
}

#[test]
fn an_intermediate_never_outlives_the_ca_above_it() {
    let files = Files::new();
    let soon = NOW + Duration::days(400);
    let contents = contents(&only(files.made("ca", &key(), |p| p.not_after = soon)));
    assert_eq!(contents.signing.public().not_after_s, soon.unix_timestamp());
}

#[test]
fn rsa_and_the_older_forms_of_keys_will_do() {
    let files = Files::new();
    let rsa = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let pair = files.made("rsa", &rsa, |_| {});
    assert_eq!(contents(&only(pair)).cluster.id(), "07".repeat(20));
    if !openssl(&files, &["ecparam", "-name", "prime256v1", "-genkey", "-out", "sec1.key"]) {
        return;
    }
    fs::set_permissions(files.folder.path().join("sec1.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let request = [
        "req",
        "-x509",
        "-new",
        "-key",
        "sec1.key",
        "-days",
        "3650",
        "-subj",
        "/C=DE/O=Example/CN=theirs",
        "-out",
        "sec1.crt",
    ];
    assert!(openssl(&files, &request));
    let at = |name: &str| files.folder.path().join(name);
    let named = only(BroughtAuthority { cert: at("sec1.crt"), key: at("sec1.key") });
    // openssl uses this machine's clock.
    let brought = read(&named, OffsetDateTime::now_utc()).unwrap();
    let contents = found(&"lab".parse().unwrap(), brought, OffsetDateTime::now_utc()).unwrap();
    assert!(contents.cluster.key().reveal().starts_with("-----BEGIN EC PRIVATE KEY-----"), "without the parameters");
}

/// Whether openssl is installed and succeeded.
fn openssl(files: &Files, arguments: &[&str]) -> bool {
    let run = std::process::Command::new("openssl").args(arguments).current_dir(files.folder.path()).output();
    run.is_ok_and(|output| output.status.success())
}

/// A slightly wrong certificate.
type Edit = dyn Fn(&mut CertificateParams);

#[test]
fn an_unusable_ca_is_refused_with_the_reason() {
    let files = Files::new();
    let refusal = |name: &str, edit: &dyn Fn(&mut CertificateParams)| refused(&only(files.made(name, &key(), edit)));
    let cases: [(&str, &Edit, &str); 7] = [
        ("leaf", &|p| p.is_ca = IsCa::ExplicitNoCa, "not a CA certificate"),
        ("short", &|p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)), "path length is 0"),
        ("usage", &|p| p.key_usages = vec![KeyUsagePurpose::DigitalSignature], "key usage"),
        ("server", &|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth], "extended key usage"),
        ("old", &|p| p.not_after = NOW - Duration::hours(1), "it expired"),
        ("new", &|p| p.not_before = NOW + Duration::days(1), "not valid before"),
        (
            "domain",
            &|p| {
                let permitted_subtrees = vec![GeneralSubtree::DnsName("example.org".to_owned())];
                p.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: vec![] });
            },
            "name constraints",
        ),
    ];
    for (name, edit, why) in cases {
        let said = refusal(name, edit);
        assert!(said.contains(why) && said.contains(name) && said.contains("do: "), "{name}: {said}");
    }
    let short = files.made("etcd", &key(), |p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    assert!(read(&BroughtPki { etcd: Some(short), ..BroughtPki::default() }, NOW).is_ok(), "etcd has nothing below");
}

#[test]
fn an_intermediate_is_refused_with_or_without_its_root() {
    let files = Files::new();
    let (root, own) = (key(), key());
    let above = params(|p| p.distinguished_name.push(rcgen::DnType::CommonName, "their root"));
    let issuer = Issuer::new(above.clone(), &root);
    let below = params(|_| {}).signed_by(&own, &issuer).unwrap().pem();
    let said = refused(&only(files.pair("below", &below, &own.serialize_pem())));
    assert!(said.contains("not self-signed") && said.contains("administrator"), "{said}");
    let both = format!("{below}{}", above.self_signed(&root).unwrap().pem());
    assert!(refused(&only(files.pair("both", &both, &own.serialize_pem()))).contains("2 certificates"));
}

#[test]
fn keys_that_do_not_fit_are_encrypted_or_open_to_others_are_refused() {
    let files = Files::new();
    let cert = params(|_| {}).self_signed(&key()).unwrap().pem();
    let other = files.pair("other", &cert, &key().serialize_pem());
    assert!(refused(&only(other)).contains("is not the certificate's"));
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let said = refused(&only(files.pair("locked", &cert, locked)));
    assert!(said.contains("encrypted") && said.contains("openssl pkey -in"), "{said}");
    let pair = files.made("open", &key(), |_| {});
    fs::set_permissions(&pair.key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(refused(&only(pair)).contains("chmod 600"));
    let ed = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    assert!(refused(&only(files.made("ed", &ed, |_| {}))).contains("key type"));
    let gone = BroughtAuthority { cert: "/nowhere/ca.crt".into(), key: "/nowhere/ca.key".into() };
    assert!(refused(&only(gone)).contains("cannot be read"));
}

#[test]
fn one_key_for_two_cas_is_refused() {
    let files = Files::new();
    let same = key();
    let named = BroughtPki {
        cluster: Some(files.made("a", &same, |_| {})),
        etcd: Some(files.made("b", &same, |_| {})),
        ..BroughtPki::default()
    };
    assert!(refused(&named).contains("has the key of"));
}

#[test]
fn a_ca_that_expires_within_a_year_is_accepted_with_a_warning() {
    let files = Files::new();
    let soon = files.made("ca", &key(), |p| p.not_after = NOW + Duration::days(100));
    let warnings = read(&only(soon), NOW).unwrap().warnings;
    assert!(warnings[0].contains("in 100 days"), "{warnings:?}");
    assert!(read(&only(files.made("later", &key(), |_| {})), NOW).unwrap().warnings.is_empty());
}

#[test]
fn a_service_account_key_is_kept_as_it_is() {
    let files = Files::new();
    let own = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let path = files.put("sa.key", &own.serialize_pem(), 0o600);
    let named = BroughtPki { service_account: Some(path), ..BroughtPki::default() };
    let contents = contents(&named);
    assert_eq!(contents.service_account.public, own.public_key_pem());
    assert_eq!(others(&named, &contents.publics()), Vec::<String>::new());
}

#[test]
fn a_ca_that_differs_from_the_bootstrap_is_reported_and_a_missing_file_is_not() {
    let files = Files::new();
    let named = only(files.made("ca", &key(), |_| {}));
    let publics = contents(&named).publics();
    assert_eq!(others(&named, &publics), Vec::<String>::new());
    let another = only(files.made("another", &key(), |_| {}));
    assert!(others(&another, &publics)[0].contains("is not the cluster CA"));
    fs::remove_file(&named.cluster.as_ref().unwrap().cert).unwrap();
    assert_eq!(others(&named, &publics), Vec::<String>::new());
}
