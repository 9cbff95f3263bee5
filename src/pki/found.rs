//! The CAs and keys of a new cluster.
//!
//! In: the cluster's name, the supplied CAs and keys, the time. Out: [`Contents`] for the state directory. CAs are
//! valid for ten years. Two signing keys leave the state directory, and neither can sign a CA: the signing
//! intermediate's, valid for five years, and that of the CA for kubelet serving certificates, which is below no other
//! CA and trusted for nothing else.

use super::PkiError;
use super::brought::Brought;
use crate::issue::{IssueError, Subject, random_serial};
use crate::model::certificate::BACKDATED;
use crate::model::names::ClusterName;
use crate::model::secret::Secret;
use crate::statedir::{Authority, Contents, KeyPairPem, Rotations, new_encryption_key};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use time::{Duration, OffsetDateTime};

const AUTHORITY_DAYS: i64 = 3652;
const INTERMEDIATE_DAYS: i64 = 1826;

/// Creates the CAs and keys of a new cluster, except for those that were supplied.
pub fn found(cluster: &ClusterName, brought: Brought, now: OffsetDateTime) -> Result<Contents, PkiError> {
    let or_made = |brought: Option<Authority>, what: &str, below: u8| match brought {
        Some(authority) => Ok(authority),
        None => root(&format!("{cluster} {what} CA"), below, now),
    };
    let cluster_ca = or_made(brought.cluster, "cluster", BELOW_CLUSTER)?;
    let signing = intermediate(&format!("{cluster} signing CA"), &cluster_ca, now)?;
    let service_account = match brought.service_account {
        Some(pair) => pair,
        None => token_key()?,
    };
    Ok(Contents {
        etcd: or_made(brought.etcd, "etcd", BELOW_OTHERS)?,
        front_proxy: or_made(brought.front_proxy, "front-proxy", BELOW_OTHERS)?,
        rotations: Rotations::never(cluster_ca.fingerprint()),
        cluster: cluster_ca,
        signing,
        kubelet_serving: Some(kubelet_serving(&format!("{cluster} kubelet-serving CA"), now)?),
        service_account,
        encryption: new_encryption_key().map_err(PkiError::Random)?,
    })
}

/// How many CAs there may be below the cluster CA, one under the other: its successor, cross-signed by it, and the CA
/// that signs for it, which is the signing intermediate or a host's issuer.
pub(super) const BELOW_CLUSTER: u8 = 2;
/// How many CAs there may be below the others: a host's issuer.
pub(super) const BELOW_OTHERS: u8 = 1;

/// A new self-signed CA.
pub(super) fn root(name: &str, below: u8, now: OffsetDateTime) -> Result<Authority, PkiError> {
    let key = new_key(name)?;
    let cert = params(name, below, now + Duration::days(AUTHORITY_DAYS), now)?.self_signed(&key);
    joined(name.to_owned(), cert, &key)
}

/// A new CA for kubelet serving certificates: for servers only, and below no other CA, so that trust in the cluster CA
/// does not include it.
pub(super) fn kubelet_serving(name: &str, now: OffsetDateTime) -> Result<Authority, PkiError> {
    let key = new_key(name)?;
    let mut params = params(name, 0, now + Duration::days(AUTHORITY_DAYS), now)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    joined(name.to_owned(), params.self_signed(&key), &key)
}

/// A new intermediate below another CA; it may not sign CAs.
pub(super) fn intermediate(name: &str, above: &Authority, now: OffsetDateTime) -> Result<Authority, PkiError> {
    let key = new_key(name)?;
    let cert = below(name, &key, 0, above, (now + Duration::days(INTERMEDIATE_DAYS), now))?;
    joined(name.to_owned(), Ok(cert), &key)
}

/// An existing CA cross-signed by another one, in PEM.
pub(super) fn signed_by(
    authority: &Authority,
    name: &str,
    above: &Authority,
    now: OffsetDateTime,
) -> Result<String, PkiError> {
    let key = KeyPair::from_pem(authority.key().reveal());
    let key = key.map_err(|source| IssueError::Sign { what: name.to_owned(), source })?;
    let last = OffsetDateTime::from_unix_timestamp(authority.public().not_after_s).unwrap_or(now);
    // The path length that the cross-signing CA allows below itself.
    let room = above.public().below.map_or(BELOW_CLUSTER - 1, |most| most.saturating_sub(1).min(BELOW_CLUSTER - 1));
    below(name, &key, room, above, (last, now)).map(|cert| cert.pem())
}

fn below(
    name: &str,
    key: &KeyPair,
    room: u8,
    above: &Authority,
    (until, now): (OffsetDateTime, OffsetDateTime),
) -> Result<rcgen::Certificate, PkiError> {
    let failed = |source| IssueError::Sign { what: name.to_owned(), source };
    let issuer = KeyPair::from_pem(above.key().reveal())
        .and_then(|key| Issuer::from_ca_cert_pem(above.cert_pem(), key))
        .map_err(failed)?;
    // An intermediate that outlives its CA would only look valid.
    let last = OffsetDateTime::from_unix_timestamp(above.public().not_after_s).unwrap_or(now);
    Ok(params(name, room, until.min(last), now)?.signed_by(key, &issuer).map_err(failed)?)
}

/// A new key for service account tokens.
pub(super) fn token_key() -> Result<KeyPairPem, PkiError> {
    let tokens = new_key("service account tokens")?;
    Ok(KeyPairPem { private: Secret::new(tokens.serialize_pem()), public: tokens.public_key_pem() })
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
    let cert = cert.map_err(|source| IssueError::Sign { what: what.clone(), source })?;
    Authority::new(cert.pem(), Secret::new(key.serialize_pem())).map_err(|source| PkiError::Authority { what, source })
}
