//! The authorities and keys of a new cluster.
//!
//! In: the cluster's name, what was brought along, and the time. Out: [`Contents`] for its vault. Authorities live ten years; the signing
//! intermediate, the one signing key that leaves the vault, lives five and can sign nothing but leaves.

use super::PkiError;
use super::brought::Brought;
use super::sign::{Subject, random_serial};
use crate::model::certificate::BACKDATED;
use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use crate::vault::{Authority, Contents, KeyPairPem, new_encryption_key};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use time::{Duration, OffsetDateTime};

const AUTHORITY_DAYS: i64 = 3652;
const INTERMEDIATE_DAYS: i64 = 1826;

/// Makes everything a new cluster is founded on, around what was brought along.
pub fn found(cluster: &ClusterName, brought: Brought, now: OffsetDateTime) -> Result<Contents, PkiError> {
    let root = |what: &str, below: u8| {
        let name = format!("{cluster} {what} authority");
        let key = new_key(&name)?;
        let cert = params(&name, below, now + Duration::days(AUTHORITY_DAYS), now)?.self_signed(&key);
        joined(name, cert, &key)
    };
    let or_made = |brought: Option<Authority>, what: &str, below: u8| match brought {
        Some(authority) => Ok(authority),
        None => root(what, below),
    };
    let cluster_ca = or_made(brought.cluster, "cluster", 1)?;
    let name = format!("{cluster} signing authority");
    let key = new_key(&name)?;
    let above = KeyPair::from_pem(cluster_ca.key().reveal())
        .and_then(|key| Issuer::from_ca_cert_pem(cluster_ca.cert_pem(), key))
        .map_err(|source| PkiError::Sign { what: name.clone(), source })?;
    // One that outlives the authority above it would only look valid.
    let last = OffsetDateTime::from_unix_timestamp(cluster_ca.public().not_after_s).unwrap_or(now);
    let until = (now + Duration::days(INTERMEDIATE_DAYS)).min(last);
    let cert = params(&name, 0, until, now)?.signed_by(&key, &above);
    let signing = joined(name, cert, &key)?;
    let service_account = match brought.service_account {
        Some(pair) => pair,
        None => {
            let tokens = new_key("service account tokens")?;
            KeyPairPem { private: Secret::new(tokens.serialize_pem()), public: tokens.public_key_pem() }
        }
    };
    Ok(Contents {
        etcd: or_made(brought.etcd, "etcd", 0)?,
        front_proxy: or_made(brought.front_proxy, "front-proxy", 0)?,
        cluster: cluster_ca,
        signing,
        service_account,
        encryption: new_encryption_key().map_err(PkiError::Random)?,
    })
}

/// A new P-256 key.
pub(super) fn new_key(what: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| PkiError::MakeKey { what: what.to_owned(), source })
}

fn params(name: &str, below: u8, until: OffsetDateTime, now: OffsetDateTime) -> Result<CertificateParams, PkiError> {
    let mut params = Subject { common_name: name, organizations: &["hactl".to_owned()] }.params()?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(random_serial()?);
    params.not_before = now - BACKDATED;
    params.not_after = until;
    Ok(params)
}

fn joined(what: String, cert: Result<rcgen::Certificate, rcgen::Error>, key: &KeyPair) -> Result<Authority, PkiError> {
    let cert = cert.map_err(|source| PkiError::Sign { what: what.clone(), source })?;
    Authority::new(cert.pem(), Secret::new(key.serialize_pem())).map_err(|source| PkiError::Authority { what, source })
}
