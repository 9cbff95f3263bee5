//! Who signed a manifest: made on the host that takes a snapshot, judged on the administrator's machine.
//!
//! In: a key with a certificate of the cluster's CA, or the CAs that the state knows. Out: a [`Seal`], or an [`Authenticity`]. A signer is
//! an etcd host, by a leaf that the cluster's CA itself signed: an intermediate or a host's issuer vouches for nothing here, because
//! control-plane hosts hold their keys. What a CA signed that was replaced counts for what was taken before its end.

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

/// What is signed begins with this, so that the signature is good for nothing else.
const DOMAIN: &[u8] = b"hactl snapshot manifest 1\n";

fn signed_bytes(manifest: &str) -> Vec<u8> {
    [DOMAIN, manifest.as_bytes()].concat()
}

/// The only certificate in PEM text, in DER.
fn only(pem: &str) -> Option<Vec<u8>> {
    let (rest, block) = parse_x509_pem(pem.as_bytes()).ok()?;
    (block.label == "CERTIFICATE" && rest.trim_ascii().is_empty()).then_some(block.contents)
}

/// A host's key for its snapshots. No `Debug`: it holds a key.
pub struct Signer {
    key: KeyPair,
    certificate: String,
}

impl Signer {
    /// Joins the two, both PEM.
    ///
    /// # Errors
    /// Why they cannot sign, in words.
    pub fn new(key_pem: &str, certificate: String) -> Result<Self, String> {
        let key = KeyPair::from_pem(key_pem).map_err(|error| format!("its key cannot be used: {error}"))?;
        let der = only(&certificate).ok_or("its certificate cannot be read")?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| "its certificate cannot be read")?;
        if key.subject_public_key_info() != parsed.public_key().raw {
            return Err("its key is not its certificate's".to_owned());
        }
        Ok(Self { key, certificate })
    }

    /// Signs a manifest as it is written.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn seal(&self, manifest: &str) -> Result<Seal, rcgen::Error> {
        let signature = STANDARD.encode(self.key.sign(&signed_bytes(manifest))?);
        Ok(Seal { signature, certificate: self.certificate.clone() })
    }
}

/// The cluster's CA, and those that were it before.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Each in DER, and until when what it vouches for counts, seconds since 1970; none: it still does.
    authorities: Vec<(Vec<u8>, Option<i64>)>,
}

impl Trust {
    /// These, in PEM; until when what each vouches for counts, seconds since 1970. What is no certificate vouches for nothing.
    pub fn new<'a>(authorities: impl IntoIterator<Item = (&'a str, Option<i64>)>) -> Self {
        let read = |(pem, until): (&str, Option<i64>)| Some((only(pem)?, until));
        Self { authorities: authorities.into_iter().filter_map(read).collect() }
    }

    /// Whether what a file says of itself is what a host of the cluster signed.
    pub fn judge(&self, claimed: &Claimed) -> Authenticity {
        let Some(signed) = &claimed.signed else { return Authenticity::Unsigned };
        match self.signer(&claimed.manifest, signed) {
            Ok(host) => Authenticity::Signed(host),
            Err(why) => Authenticity::Forged(why),
        }
    }

    /// Judges what a host tells of a file, as this host's own where that is named: it must be what the signed manifest says, under the name
    /// that goes with it.
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
            return Authenticity::Forged("what was signed is something else than what is told of it".to_owned());
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

    /// Who signed a manifest, or why nobody did who may.
    fn signer(&self, manifest: &Manifest, signed: &Signed) -> Result<HostName, String> {
        let der = only(&signed.seal.certificate).ok_or("its signer's certificate cannot be read")?;
        let (rest, leaf) =
            X509Certificate::from_der(&der).map_err(|_| "its signer's certificate cannot be read".to_owned())?;
        if !rest.is_empty() {
            return Err("something follows its signer's certificate".to_owned());
        }
        let signature =
            STANDARD.decode(&signed.seal.signature).map_err(|_| "its signature cannot be read".to_owned())?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &leaf.public_key().subject_public_key.data);
        key.verify(&signed_bytes(&signed.manifest), &signature)
            .map_err(|_| "it was changed after it was signed: the signature is of something else".to_owned())?;
        let taken_s = manifest.taken_ms.div_euclid(1000);
        self.vouched(&leaf, taken_s)?;
        let validity = leaf.validity();
        if !(validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&taken_s) {
            let at = rfc3339(manifest.taken_ms);
            return Err(format!("it is dated {at}, when its signer's certificate was not valid"));
        }
        let usage = leaf.extended_key_usage().ok().flatten().map(|usage| usage.value);
        let signs = usage.is_some_and(|usage| {
            let more = usage.any || usage.server_auth || usage.client_auth;
            let ids: Vec<Option<Vec<u64>>> = usage.other.iter().map(|id| id.iter().map(Iterator::collect)).collect();
            !more && ids == [Some(DOCUMENT_SIGNING.to_vec())]
        });
        if leaf.is_ca() || !signs {
            return Err("its signer's certificate is not for snapshots".to_owned());
        }
        let name = leaf.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default();
        match name.strip_prefix(SIGNER) {
            Some(host) if host == manifest.host.as_str() => Ok(manifest.host.clone()),
            Some(host) => {
                let host = host.escape_debug();
                Err(format!("it says that {} took it, and {host} signed it", manifest.host))
            }
            None => Err("its signer's certificate is not for snapshots".to_owned()),
        }
    }

    /// Whether one of the authorities signed this certificate, and vouches for that time.
    fn vouched(&self, leaf: &X509Certificate<'_>, taken_s: i64) -> Result<(), String> {
        let signs = |der: &Vec<u8>| {
            X509Certificate::from_der(der).is_ok_and(|(_, ca)| leaf.verify_signature(Some(ca.public_key())).is_ok())
        };
        match self.authorities.iter().find(|(der, _)| signs(der)) {
            None => Err("the cluster's CA does not vouch for its signer".to_owned()),
            Some((_, Some(until))) if taken_s > *until => {
                let (at, until) = (rfc3339(taken_s.saturating_mul(1000)), rfc3339(until.saturating_mul(1000)));
                Err(format!("it is dated {at}, and the CA of its signer was replaced at {until}"))
            }
            Some(_) => Ok(()),
        }
    }
}
