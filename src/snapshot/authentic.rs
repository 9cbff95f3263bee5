//! The signature of a manifest: made on the host that takes a snapshot, verified on the administrator's machine.
//!
//! In: a key with a certificate of the cluster's CA, or the CAs in the state. Out: a [`Seal`], or an
//! [`Authenticity`]. A signer is an etcd host, with a leaf certificate that the cluster's CA itself signed:
//! intermediates and issuers of hosts are not accepted here, because control-plane hosts hold their keys. A signature
//! under a replaced CA is valid for snapshots taken before its end.

use crate::model::authentic::{Authenticity, DOCUMENT_SIGNING, SIGNER, Seal, Signed};
use crate::model::names::HostName;
use crate::model::snapshot::{BundleFact, Claimed, Manifest, by_name};
use crate::model::timestamp::rfc3339;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use std::path::Path;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The prefix of the signed data, so that the signature is valid for nothing else.
const DOMAIN: &[u8] = b"hactl snapshot manifest 1\n";

fn signed_bytes(manifest: &str) -> Vec<u8> {
    [DOMAIN, manifest.as_bytes()].concat()
}

/// The only certificate in PEM text, in DER.
fn only(pem: &str) -> Option<Vec<u8>> {
    let (rest, block) = parse_x509_pem(pem.as_bytes()).ok()?;
    (block.label == "CERTIFICATE" && rest.trim_ascii().is_empty()).then_some(block.contents)
}

/// The key of a host for its snapshots. No `Debug`: it contains a key.
pub struct Signer {
    key: KeyPair,
    certificate: String,
}

impl Signer {
    /// Combines the two, both PEM.
    ///
    /// # Errors
    /// Why they cannot sign, in words.
    pub fn new(key_pem: &str, certificate: String) -> Result<Self, String> {
        let key = KeyPair::from_pem(key_pem).map_err(|error| format!("its key cannot be used: {error}"))?;
        let der = only(&certificate).ok_or("its certificate cannot be parsed")?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| "its certificate cannot be parsed")?;
        if key.subject_public_key_info() != parsed.public_key().raw {
            return Err("its key does not match its certificate".to_owned());
        }
        Ok(Self { key, certificate })
    }

    /// Signs a serialized manifest.
    ///
    /// # Errors
    /// Those of the library.
    pub(super) fn seal(&self, manifest: &str) -> Result<Seal, rcgen::Error> {
        let signature = STANDARD.encode(self.key.sign(&signed_bytes(manifest))?);
        Ok(Seal { signature, certificate: self.certificate.clone() })
    }
}

/// The CA of the cluster, and its previous CAs.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Each in DER, and until when its signatures are valid, seconds since 1970; none: without limit.
    authorities: Vec<(Vec<u8>, Option<i64>)>,
}

impl Trust {
    /// These CAs, in PEM; until when the signatures of each are valid, seconds since 1970. Invalid certificates are
    /// ignored.
    pub fn new<'a>(authorities: impl IntoIterator<Item = (&'a str, Option<i64>)>) -> Self {
        let read = |(pem, until): (&str, Option<i64>)| Some((only(pem)?, until));
        Self { authorities: authorities.into_iter().filter_map(read).collect() }
    }

    /// These CAs, in DER, without a limit of time.
    pub fn of(authorities: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { authorities: authorities.into_iter().map(|der| (der, None)).collect() }
    }

    /// Whether a host of the cluster signed the manifest of a file.
    pub fn judge(&self, claimed: &Claimed) -> Authenticity {
        let Some(signed) = &claimed.signed else { return Authenticity::Unsigned };
        match self.signer(&claimed.manifest, signed) {
            Ok(host) => Authenticity::Signed(host),
            Err(why) => Authenticity::Forged(why),
        }
    }

    /// Verifies the facts that a host reports of a file, as its own file if `own` is given: they must match the
    /// signed manifest and the name for it.
    pub fn judge_fact(&self, fact: &mut BundleFact, own: Option<&HostName>) {
        fact.authenticity = Authenticity::Unchecked;
        let judged = match fact.signed.as_deref() {
            None => Authenticity::Unsigned,
            Some(signed) => match super::file::parse(signed.manifest.as_bytes(), Path::new(&fact.name)) {
                Err(error) => Authenticity::Forged(error.to_string()),
                Ok(manifest) => self.judge_told(fact, Claimed { manifest, signed: Some(signed.clone()) }, own),
            },
        };
        fact.authenticity = judged;
    }

    fn judge_told(&self, fact: &BundleFact, claimed: Claimed, own: Option<&HostName>) -> Authenticity {
        if BundleFact::of(fact.name.clone(), fact.bytes, &claimed) != *fact {
            return Authenticity::Forged("the signed manifest differs from the reported facts".to_owned());
        }
        let manifest = &claimed.manifest;
        let named = by_name(&fact.name).map(|by| {
            (by.cluster, by.host, by.taken_ms) == (manifest.cluster.as_str(), manifest.host.as_str(), manifest.taken_ms)
        });
        if let (Some(false), _) | (None, Some(_)) = (named, own) {
            let (host, at) = (&manifest.host, rfc3339(manifest.taken_ms));
            return Authenticity::Forged(format!("it is a snapshot of {host} of {at} under another name"));
        }
        match own.filter(|own| **own != manifest.host) {
            Some(own) => Authenticity::Forged(format!("it is a snapshot of {}, not of {own}", manifest.host)),
            None => self.judge(&claimed),
        }
    }

    /// The signer of a manifest, or why no valid signer signed it.
    fn signer(&self, manifest: &Manifest, signed: &Signed) -> Result<HostName, String> {
        let der = only(&signed.seal.certificate).ok_or("the certificate of its signer cannot be parsed")?;
        let (rest, leaf) =
            X509Certificate::from_der(&der).map_err(|_| "the certificate of its signer cannot be parsed".to_owned())?;
        if !rest.is_empty() {
            return Err("the certificate of its signer has trailing data".to_owned());
        }
        let signature =
            STANDARD.decode(&signed.seal.signature).map_err(|_| "its signature cannot be decoded".to_owned())?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &leaf.public_key().subject_public_key.data);
        key.verify(&signed_bytes(&signed.manifest), &signature)
            .map_err(|_| "it was changed after it was signed: the signature does not match".to_owned())?;
        let taken_s = manifest.taken_ms.div_euclid(1000);
        self.vouched(&leaf, taken_s)?;
        let validity = leaf.validity();
        if !(validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&taken_s) {
            let at = rfc3339(manifest.taken_ms);
            return Err(format!("it is dated {at}, when the certificate of its signer was not valid"));
        }
        let usage = leaf.extended_key_usage().ok().flatten().map(|usage| usage.value);
        let signs = usage.is_some_and(|usage| {
            let more = usage.any || usage.server_auth || usage.client_auth;
            let ids: Vec<Option<Vec<u64>>> = usage.other.iter().map(|id| id.iter().map(Iterator::collect)).collect();
            !more && ids == [Some(DOCUMENT_SIGNING.to_vec())]
        });
        if leaf.is_ca() || !signs {
            return Err("the certificate of its signer is not for snapshots".to_owned());
        }
        let name = leaf.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default();
        match name.strip_prefix(SIGNER) {
            Some(host) if host == manifest.host.as_str() => Ok(manifest.host.clone()),
            Some(host) => {
                let host = host.escape_debug();
                Err(format!("its manifest says that {} took it, but {host} signed it", manifest.host))
            }
            None => Err("the certificate of its signer is not for snapshots".to_owned()),
        }
    }

    /// Whether one of the CAs signed this certificate, and is valid for that time.
    fn vouched(&self, leaf: &X509Certificate<'_>, taken_s: i64) -> Result<(), String> {
        let signs = |der: &Vec<u8>| {
            X509Certificate::from_der(der).is_ok_and(|(_, ca)| leaf.verify_signature(Some(ca.public_key())).is_ok())
        };
        match self.authorities.iter().find(|(der, _)| signs(der)) {
            None => Err("no CA of the cluster signed the certificate of its signer".to_owned()),
            Some((_, Some(until))) if taken_s > *until => {
                let (at, until) = (rfc3339(taken_s.saturating_mul(1000)), rfc3339(until.saturating_mul(1000)));
                Err(format!("it is dated {at}, but the CA of its signer was replaced at {until}"))
            }
            Some(_) => Ok(()),
        }
    }
}
