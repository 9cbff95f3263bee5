//! Keys that are made here and never leave, and the certificates for them.
//!
//! In: the wanted leaf certificates; signed certificates. Out: CSRs; both files in place. A new key waits beside its
//! destination, so that the old pair stays in use until the new one is complete.

use crate::agent::host::Host;
use crate::agent::machine::files::{Ready, put_all, remove, same, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::agent::pki::tls;
use crate::model::certificate::CertFact;
use crate::model::facts::LeafFact;
use crate::model::names::Digest;
use crate::model::target::{CertId, CertSpec, KUBELET_SERVES_WITH};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;
use zeroize::Zeroizing;

/// The path of a new key that waits for its certificate.
fn waiting(root: &Root, leaf: &CertSpec) -> Outcome<PathBuf> {
    root.path(&format!("{}.new", leaf.key_path))
}

/// Makes or keeps a key for each leaf certificate, and a CSR for it.
pub(crate) async fn make_keys(host: &Host, leaves: Vec<CertSpec>) -> Outcome<BTreeMap<CertId, String>> {
    host.root.blocking(move |root| leaves.iter().map(|leaf| Ok((leaf.id, request(root, leaf)?))).collect()).await
}

/// Makes or keeps a key for a leaf certificate, and a CSR for it.
pub(crate) fn request(root: &Root, leaf: &CertSpec) -> Outcome<String> {
    let path = waiting(root, leaf)?;
    let kept = fs::read_to_string(&path).map(Zeroizing::new).ok().and_then(|pem| KeyPair::from_pem(&pem).ok());
    let key = if let Some(key) = kept {
        key
    } else {
        let key = KeyPair::generate().map_err(|e| failed(format!("could not make a key for {}: {e}", leaf.id)))?;
        let pem = Zeroizing::new(key.serialize_pem());
        write_one(path, pem.as_bytes(), 0o600, me())?;
        key
    };
    let mut asked = CertificateParams::default();
    asked.distinguished_name = DistinguishedName::new();
    // For people who read the CSR: the signer takes the names from its own table, not from here.
    for organization in &leaf.organizations {
        asked.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    asked.distinguished_name.push(DnType::CommonName, leaf.common_name.as_str());
    asked.subject_alt_names = leaf.sans.iter().map(|san| alternative(san)).collect::<Outcome<_>>()?;
    let request = asked.serialize_request(&key).and_then(|r| r.pem());
    request.map_err(|e| failed(format!("could not make a CSR for {}: {e}", leaf.id)))
}

fn alternative(san: &str) -> Outcome<SanType> {
    let unfit = || bad(format!("the SAN {san:?} is neither DNS:name nor IP:address"));
    if let Some(name) = san.strip_prefix("DNS:") {
        return name.try_into().map(SanType::DnsName).map_err(|_| unfit());
    }
    san.strip_prefix("IP:").and_then(|a| a.parse().ok()).map(SanType::IpAddress).ok_or_else(unfit)
}

/// Installs certificates and the keys made for them.
pub(crate) async fn install(host: &Host, certs: Vec<(CertSpec, String)>) -> Outcome<()> {
    host.root.blocking(move |root| put(root, &certs)).await
}

/// The same.
pub(crate) fn put(root: &Root, certs: &[(CertSpec, String)]) -> Outcome<()> {
    let mut ready = Vec::new();
    for (leaf, pem) in certs {
        ready.extend(pair(root, leaf, pem)?);
    }
    put_all(ready)?;
    certs.iter().filter(|(leaf, _)| leaf.self_renewing).try_for_each(|(leaf, pem)| {
        point(root, leaf, pem)?;
        forget_serving(root, leaf)
    })?;
    certs.iter().try_for_each(|(leaf, _)| remove(&waiting(root, leaf)?))
}

/// Prepares a certificate and its key. The key may be in place already, after an interrupted run.
fn pair(root: &Root, leaf: &CertSpec, pem: &str) -> Outcome<Vec<Ready>> {
    let (cert_path, key_path, owner) =
        (root.path(&leaf.cert_path)?, root.path(&leaf.key_path)?, root.owner(&leaf.owner)?);
    let read = |path: &PathBuf| fs::read(path).map(Zeroizing::new).ok().filter(|key| belong(pem.as_bytes(), key));
    let key = read(&waiting(root, leaf)?).or_else(|| read(&key_path));
    let Some(key) = key else {
        return Err(bad(format!(
            "the certificate for {} does not match the key that was made for it on this host",
            leaf.id
        )));
    };
    // Only the key itself: a file with both would keep the old certificate.
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|e| failed(format!("{} does not contain a usable key: {e}", leaf.key_path)))?;
    let key = Zeroizing::new(to_pem(&key));
    let certificate = if pem.ends_with('\n') { pem.to_owned() } else { format!("{pem}\n") };
    let files = if cert_path == key_path {
        let both = Zeroizing::new(format!("{certificate}{}", key.as_str()));
        let path = if leaf.self_renewing { dated(&cert_path, pem) } else { cert_path };
        vec![(path, both, 0o600)]
    } else {
        // The key first: between the two renames the pair does not match; the next run detects that and makes
        // another.
        vec![(key_path, key, 0o600), (cert_path, Zeroizing::new(certificate), 0o600)]
    };
    files
        .into_iter()
        .filter(|(path, content, mode)| !same(path, content.as_bytes(), *mode, owner))
        .map(|(path, content, mode)| Ready::write(path, content.as_bytes(), mode, owner))
        .collect()
}

/// The file behind the link of a certificate that its component renews: kubelet only moves a link from one such file
/// to the next, and refuses a regular file in place of the link.
fn dated(link: &Path, pem: &str) -> PathBuf {
    let stem = link.file_stem().unwrap_or_default().to_string_lossy().replace("-current", "");
    link.with_file_name(format!("{stem}-{}.pem", Digest::of(pem.as_bytes()).short()))
}

/// Makes the link refer to its file, atomically.
fn point(root: &Root, leaf: &CertSpec, pem: &str) -> Outcome<()> {
    let link = root.path(&leaf.cert_path)?;
    let file = dated(&link, pem);
    let fresh = link.with_extension("link");
    remove(&fresh)?;
    std::os::unix::fs::symlink(file.file_name().unwrap_or_default(), &fresh).explain("link", &fresh)?;
    fs::rename(&fresh, &link).explain("replace", &link)
}

/// Deletes the serving certificate of a kubelet if another CA signed it than the present one: a kubelet without one
/// requests another at its next start.
fn forget_serving(root: &Root, leaf: &CertSpec) -> Outcome<()> {
    let link = root.path(KUBELET_SERVES_WITH)?;
    let signed_by = |pem: &[u8]| CertFact::read_pem(pem).into_iter().next().map(|fact| fact.authority);
    let before = fs::read(&link).map(Zeroizing::new).ok().and_then(|pem| signed_by(&pem));
    if before.is_some() && leaf.serves_by.is_some() && before != leaf.serves_by { remove(&link) } else { Ok(()) }
}

fn to_pem(key: &PrivateKeyDer<'_>) -> String {
    use base64::Engine as _;
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    let text = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(key.secret_der()));
    // Allocated at once: a growing buffer would leave copies of the key in memory.
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 100);
    pem.extend(["-----BEGIN ", label, "-----\n"]);
    for (i, letter) in text.chars().enumerate() {
        if i > 0 && i % 64 == 0 {
            pem.push('\n');
        }
        pem.push(letter);
    }
    pem.extend(["\n-----END ", label, "-----\n"]);
    pem
}

/// Whether a key matches a certificate.
fn belong(certificate: &[u8], key: &[u8]) -> bool {
    let matches = || {
        let certificate = CertificateDer::from_pem_slice(certificate).ok()?;
        let key = any_supported_type(&PrivateKeyDer::from_pem_slice(key).ok()?).ok()?;
        CertifiedKey::new(vec![certificate], key).keys_match().ok()
    };
    matches().is_some()
}

/// The facts of a leaf certificate; `None` if there is none, or it cannot be parsed.
pub(crate) fn look(root: &Root, leaf: &CertSpec) -> Outcome<Option<LeafFact>> {
    let path = root.path(&leaf.cert_path)?;
    if !path.exists() {
        return Ok(None);
    }
    let Ok(list) = tls::certificates(root, &leaf.cert_path) else { return Ok(None) };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&list[0]) else { return Ok(None) };
    let Some(known) = CertFact::read(&list[0]) else { return Ok(None) };
    let certificate = fs::read(&path).explain("read", &path)?;
    let key = fs::read(root.path(&leaf.key_path)?).map(Zeroizing::new);
    let changed = |path: &Path| fs::metadata(path).map_or(0, |found| when::changed_ms(&found));
    let changed_ms = changed(&path).max(changed(&root.path(&leaf.key_path)?));
    let fact = facts(&parsed, known, key.is_ok_and(|key| belong(&certificate, &key)));
    let through = through(&fact.authority, &certificate);
    Ok(Some(LeafFact { through, changed_ms, ..fact }))
}

/// The CA above the one that signed, if the certificate of that one follows in the file.
fn through(authority: &str, pem: &[u8]) -> Option<String> {
    let behind = CertFact::read_pem(pem).into_iter().skip(1);
    let mut signers = behind.filter(|cert| cert.key_id == authority && cert.authority != cert.key_id);
    signers.next().map(|signer| signer.authority).filter(|above| !above.is_empty())
}

fn facts(certificate: &X509Certificate<'_>, known: CertFact, key_matches: bool) -> LeafFact {
    let subject = certificate.subject();
    let mut organizations: Vec<String> =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(ToOwned::to_owned).collect();
    organizations.sort();
    let mut sans: Vec<String> = certificate
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| names.value.general_names.iter().map(name).collect())
        .unwrap_or_default();
    sans.sort();
    LeafFact {
        common_name: known.common_name,
        organizations,
        sans,
        authority: known.authority,
        through: None,
        not_before_s: known.not_before_s,
        not_after_s: known.not_after_s,
        key_matches,
        changed_ms: 0,
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(text) => format!("DNS:{text}"),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => format!("IP:{}", std::net::Ipv4Addr::from(v4)),
            (_, Ok(v6)) => format!("IP:{}", std::net::Ipv6Addr::from(v6)),
            _ => "IP:?".to_owned(),
        },
        GeneralName::URI(text) => format!("URI:{text}"),
        other => format!("other:{other:?}").chars().take(200).collect(),
    }
}
