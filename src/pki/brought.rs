//! CAs and keys that the administrator supplies for a new cluster.
//!
//! In: the files that the inventory names. Out: checked CAs and warnings, or an error with a remedy. The files are read
//! once, into the state directory. Each CA is tested: it signs a certificate, which is then verified as a Node would,
//! so that an unusable CA is found before there is a cluster. Only self-signed CAs are accepted: if hosts trusted the
//! root above an intermediate, every subject that the root certifies could become administrator; without the root, not
//! every program here can verify the chain.

use super::found::new_key;
use super::sign::signer;
use super::{Authority, PkiError, Publics};
use crate::issue::{Order, Subject, Usage};
use crate::model::desired::{BroughtAuthority, BroughtPki};
use crate::model::names::hex;
use crate::model::secret::Secret;
use crate::statedir::{KeyPairPem, PublicAuthority};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::{Pem, parse_x509_pem};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;

/// No certificate or key comes near this size.
const LARGEST: u64 = 64 << 10;
/// A CA that expires within this time causes a warning.
const SOON: Duration = Duration::days(365);

/// The supplied CAs and keys; the others are generated.
#[derive(Default)]
pub struct Brought {
    /// Kubernetes' CA.
    pub cluster: Option<Authority>,
    /// etcd's CA.
    pub etcd: Option<Authority>,
    /// The front proxy CA, for aggregated API servers.
    pub front_proxy: Option<Authority>,
    /// Signs service account tokens.
    pub service_account: Option<KeyPairPem>,
    /// Warnings for a person.
    pub warnings: Vec<String>,
}

/// A supplied file is unusable.
fn bad(path: &Path, why: impl Into<String>, remedy: impl Into<String>) -> PkiError {
    PkiError::Brought { path: path.to_owned(), why: why.into(), remedy: remedy.into() }
}

/// Reads and checks every file that the inventory names.
pub fn read(named: &BroughtPki, now: OffsetDateTime) -> Result<Brought, PkiError> {
    let mut brought = Brought::default();
    let mut known: Vec<(String, PathBuf)> = Vec::new();
    for (slot, files, below) in [
        (&mut brought.cluster, &named.cluster, 1),
        (&mut brought.etcd, &named.etcd, 0),
        (&mut brought.front_proxy, &named.front_proxy, 0),
    ] {
        let Some(files) = files else { continue };
        let (authority, warning) = authority(files, below, now)?;
        if let Some((_, other)) = known.iter().find(|(id, _)| id == authority.id()) {
            return Err(bad(
                &files.cert,
                format!("it has the key of {}", other.display()),
                "give each its own key: with a shared key, certificates of one CA would be valid for the other",
            ));
        }
        known.push((authority.id().to_owned(), files.cert.clone()));
        brought.warnings.extend(warning);
        *slot = Some(authority);
    }
    if let Some(path) = &named.service_account {
        brought.service_account = Some(service_account(path)?);
    }
    Ok(brought)
}

/// Files that differ from the CAs the cluster was bootstrapped with, in words. A missing file is ignored: after the
/// bootstrap only the state directory counts.
pub fn others(named: &BroughtPki, publics: &Publics) -> Vec<String> {
    let mut found = Vec::new();
    for (files, kept, what) in [
        (&named.cluster, &publics.cluster, "the cluster CA"),
        (&named.etcd, &publics.etcd, "the etcd CA"),
        (&named.front_proxy, &publics.front_proxy, "the front proxy CA"),
    ] {
        let Some(files) = files.as_ref().filter(|files| files.cert.exists()) else { continue };
        let same = certificate(&files.cert)
            .is_ok_and(|pem| PublicAuthority::new(pem).is_ok_and(|public| public.fingerprint == kept.fingerprint));
        if !same {
            found.push(format!("{} is not {what} that this cluster was bootstrapped with", files.cert.display()));
        }
    }
    if let Some(path) = named.service_account.as_ref().filter(|path| path.exists()) {
        let same = service_account(path).is_ok_and(|key| key.public.trim() == publics.service_account_pem.trim());
        if !same {
            let what = "the service account key that this cluster was bootstrapped with";
            found.push(format!("{} is not {what}", path.display()));
        }
    }
    found
}

fn bounded(path: &Path) -> Result<String, PkiError> {
    let failed = |e: std::io::Error| {
        let why = format!("it cannot be read: {e}");
        bad(
            path,
            why,
            "the files of `pki` are required until the cluster is bootstrapped; correct the path or its permissions",
        )
    };
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return Err(bad(path, "it is too large", "name a file with only the PEM in it"));
    }
    String::from_utf8(bytes).map_err(|_| {
        bad(path, "it is not PEM", "convert it with `openssl x509 -inform der` or `openssl pkey -inform der`")
    })
}

/// The one certificate of a file.
fn certificate(path: &Path) -> Result<String, PkiError> {
    let text = bounded(path)?;
    let mut certificates = Vec::new();
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.map_err(|_| bad(path, "it is not PEM", "export the certificate in PEM"))?;
        if block.label == "CERTIFICATE" {
            certificates.push(pem(&block));
        }
    }
    match certificates.len() {
        1 => Ok(certificates.remove(0)),
        0 => Err(bad(path, "it holds no certificate", "name the PEM file of the CA certificate")),
        n => Err(bad(
            path,
            format!("it holds {n} certificates"),
            "name a file with only the self-signed CA: every certificate of another CA in it would be trusted too",
        )),
    }
}

/// One block as PEM.
fn pem(block: &Pem) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(&block.contents);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN {0}-----\n{1}\n-----END {0}-----\n", block.label, lines.join("\n"))
}

/// The private key of a file; other blocks are ignored, because `openssl ecparam` writes its parameters before it.
fn private_key(path: &Path) -> Result<(Secret<String>, KeyPair), PkiError> {
    let text = Secret::new(bounded(path)?);
    let open = std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    if open {
        return Err(bad(path, "other users of this machine can read it", format!("chmod 600 {}", path.display())));
    }
    if text.reveal().contains("ENCRYPTED") {
        return Err(bad(
            path,
            "it is encrypted, and hactl does not ask for a passphrase",
            format!("decrypt it: (umask 077; openssl pkey -in {} -out plain.key)", path.display()),
        ));
    }
    let blocks = Pem::iter_from_buffer(text.reveal().as_bytes());
    let block = blocks.filter_map(Result::ok).find(|block| block.label.ends_with("PRIVATE KEY"));
    let block = block.ok_or_else(|| bad(path, "it holds no private key", "name the PEM file of the private key"))?;
    let own = Secret::new(pem(&block));
    let pair = KeyPair::from_pem(own.reveal()).map_err(|_| {
        bad(path, "its key cannot be used", "use ECDSA (P-256 or P-384) or RSA (2048 bits or more), in PEM")
    })?;
    Ok((own, pair))
}

fn service_account(path: &Path) -> Result<KeyPairPem, PkiError> {
    let (private, pair) = private_key(path)?;
    let public = pair.public_key_pem();
    let (_, block) =
        parse_x509_pem(public.as_bytes()).map_err(|_| bad(path, "its key cannot be used", "use another"))?;
    let spki = x509_parser::x509::SubjectPublicKeyInfo::from_der(&block.contents);
    let (_, spki) = spki.map_err(|_| bad(path, "its key cannot be used", "use another"))?;
    strong(path, &pair, &spki)?;
    Ok(KeyPairPem { private, public })
}

/// Accepts key types that every program here supports.
fn strong(path: &Path, pair: &KeyPair, spki: &x509_parser::x509::SubjectPublicKeyInfo<'_>) -> Result<(), PkiError> {
    let curve = [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384].contains(&pair.algorithm());
    let remedy = "use ECDSA (P-256 or P-384) or RSA (2048 bits or more)";
    match spki.parsed() {
        Ok(PublicKey::RSA(key)) if key.key_size() >= 2048 => Ok(()),
        Ok(PublicKey::RSA(key)) => Err(bad(path, format!("its RSA key has {} bits", key.key_size()), remedy)),
        Ok(PublicKey::EC(_)) if curve => Ok(()),
        _ => Err(bad(path, "its key type is not supported by every program here", remedy)),
    }
}

/// One CA, and a warning if it expires soon. `below`: how many CAs there must be able to be below it.
fn authority(
    files: &BroughtAuthority,
    below: u32,
    now: OffsetDateTime,
) -> Result<(Authority, Option<String>), PkiError> {
    let path = &files.cert;
    let cert_pem = certificate(path)?;
    let (key_pem, pair) = private_key(&files.key)?;
    let warning = {
        let unreadable = || bad(path, "it holds no readable certificate", "name the PEM file of a CA");
        let (_, block) = parse_x509_pem(cert_pem.as_bytes()).map_err(|_| unreadable())?;
        let cert = block.parse_x509().map_err(|_| unreadable())?;
        judge(path, &cert, below)?;
        strong(path, &pair, cert.public_key())?;
        term(path, &cert, now)?
    };
    let authority = Authority::new(cert_pem, key_pem).map_err(|error| {
        let why = error.to_string();
        let of_key = matches!(error, crate::statedir::BadAuthority::KeyMismatch | crate::statedir::BadAuthority::Key);
        bad(if of_key { &files.key } else { path }, why, "name a certificate and its private key")
    })?;
    try_out(path, &authority, now)?;
    Ok((authority, warning))
}

/// Checks that the certificate has the required extensions.
fn judge(path: &Path, cert: &X509Certificate<'_>, below: u32) -> Result<(), PkiError> {
    let make = "create one with `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=NAME -keyout ca.key -out ca.crt`";
    if !cert.is_ca() {
        return Err(bad(path, "it is not a CA certificate", make));
    }
    if cert.issuer().as_raw() != cert.subject().as_raw() || cert.verify_signature(Some(cert.public_key())).is_err() {
        return Err(bad(
            path,
            "it is not self-signed",
            "supply a CA of its own for this cluster: if hosts trusted its root, every subject of that root \
             could become administrator; without the root, not every program can verify the chain",
        ));
    }
    for extension in cert.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(basic)
                if basic.path_len_constraint.is_some_and(|length| length < below) =>
            {
                return Err(bad(
                    path,
                    format!("its path length is {}", basic.path_len_constraint.unwrap_or(0)),
                    "use one of at least 1, or without a path length: the controller manager signs with an \
                     intermediate below it, so that the CA's own key is on no host",
                ));
            }
            ParsedExtension::KeyUsage(usage) if !usage.key_cert_sign() => {
                return Err(bad(path, "its key usage does not allow it to sign certificates", make));
            }
            ParsedExtension::ExtendedKeyUsage(usage) if !(usage.any || usage.server_auth && usage.client_auth) => {
                let why = "its extended key usage does not allow certificates of both servers and clients";
                return Err(bad(path, why, "use one without extended key usage, or with both"));
            }
            ParsedExtension::NameConstraints(_) => {
                let why = "it has name constraints, and the names in a cluster are not in one domain";
                return Err(bad(path, why, "use one without name constraints"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the validity period; returns a warning if it ends soon.
fn term(path: &Path, cert: &X509Certificate<'_>, now: OffsetDateTime) -> Result<Option<String>, PkiError> {
    let (from, to) = (cert.validity().not_before.to_datetime(), cert.validity().not_after.to_datetime());
    if now < from {
        return Err(bad(
            path,
            format!("it is not valid before {}", from.date()),
            "use one that is valid, or set this machine's clock",
        ));
    }
    if to <= now {
        return Err(bad(path, format!("it expired on {}", to.date()), "use one that is valid for about ten years"));
    }
    let soon = to - now < SOON;
    Ok(soon.then(|| {
        format!(
            "{} expires on {}, in {} days: no certificate of this cluster is valid longer",
            path.display(),
            to.date(),
            (to - now).whole_days()
        )
    }))
}

/// Signs a certificate and verifies it: a subject that cannot be encoded identically again would break every chain.
fn try_out(path: &Path, authority: &Authority, now: OffsetDateTime) -> Result<(), PkiError> {
    let key = new_key("a test of a CA")?;
    let order = Order {
        subject: Subject { common_name: "trial", organizations: &[] },
        sans: &[],
        usage: Usage::CertSpec { server: true, client: true },
        life: Duration::hours(1),
    };
    let issued = order.sign(&key, &signer(authority), now)?;
    let verified = || {
        let (_, ca) = parse_x509_pem(authority.cert_pem().as_bytes()).ok()?;
        let (_, leaf) = parse_x509_pem(issued.pem.as_bytes()).ok()?;
        let (ca, leaf) = (ca.parse_x509().ok()?, leaf.parse_x509().ok()?);
        let named = leaf.issuer().as_raw() == ca.subject().as_raw();
        let keyed = leaf.extensions().iter().any(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                id.key_identifier.as_ref().is_some_and(|id| hex(id.0) == authority.id())
            }
            _ => false,
        });
        (named && keyed && leaf.verify_signature(Some(ca.public_key())).is_ok()).then_some(())
    };
    verified().ok_or_else(|| {
        bad(
            path,
            "its certificates do not verify: its subject cannot be encoded identically, or its key identifier is odd",
            "use one with a plain subject, such as /O=Example/CN=NAME",
        )
    })
}

#[cfg(test)]
mod tests;
