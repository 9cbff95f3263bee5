//! Compares an issued certificate with the request that was approved.
//!
//! In: a CertificateSigningRequest object. Out: how the certificate differs from the request. The approver checks a
//! request before another program signs it; this check covers the result.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::asn1_rs::Oid;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::csr::SIGNER;
use super::request::{KubeletRequest, SUBJECT_ALT_NAME, block, subject};

const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
/// Only the usage serverAuth, as the extension encodes it.
const SERVER_ALONE: &[u8] = &[0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1];
/// The reason in the condition that hactl's approver sets.
pub const REASON: &str = "HactlApproved";

/// How the certificate differs from what hactl approved. `None` if it does not, if none was issued yet, or if hactl did
/// not approve it.
pub fn difference(csr: &Value) -> Option<String> {
    let text = |path: &str| csr.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let conditions = csr.pointer("/status/conditions").and_then(Value::as_array);
    let ours = conditions.into_iter().flatten().any(|c| c["type"] == "Approved" && c["reason"] == REASON);
    let certificate = text("/status/certificate");
    if !ours || certificate.is_empty() || text("/spec/signerName") != SIGNER {
        return None;
    }
    compare(text("/spec/username"), text("/spec/request"), certificate).err()
}

fn compare(user: &str, request: &str, certificate: &str) -> Result<(), String> {
    let decoded = |text: &str| STANDARD.decode(text).map_err(|_| "it is not base64".to_owned());
    let asked = KubeletRequest::read(&decoded(request)?, user).map_err(|why| format!("the request: {why}"))?;
    let der = block(&decoded(certificate)?, "CERTIFICATE")?;
    let (rest, made) = X509Certificate::from_der(&der).map_err(|_| "it is not a certificate".to_owned())?;
    if !rest.is_empty() {
        return Err("there is data after it".to_owned());
    }
    if made.subject().as_raw() != subject(user) {
        return Err(format!("its subject is {:?}", made.subject().to_string()));
    }
    if made.public_key().raw != asked.public_key() {
        return Err("it has another key".to_owned());
    }
    if made.is_ca() {
        return Err("it is a CA certificate".to_owned());
    }
    let extension = |oid: &[u64]| {
        let oid = Oid::from(oid).map_err(|_| "it has an extension with an invalid OID".to_owned())?;
        let found = made.get_extension_unique(&oid).map_err(|_| "it has the same extension twice".to_owned())?;
        Ok::<_, String>(found.map_or(&[][..], |extension| extension.value))
    };
    if extension(EXTENDED_KEY_USAGE)? != SERVER_ALONE {
        return Err("its extended key usage is not serverAuth alone".to_owned());
    }
    if extension(SUBJECT_ALT_NAME)? != asked.subject_alt_names() {
        let names = made.subject_alternative_name().ok().flatten();
        let names: Vec<String> = names.iter().flat_map(|n| &n.value.general_names).map(ToString::to_string).collect();
        return Err(format!("it names {names:?} instead of {:?}", asked.names()));
    }
    Ok(())
}
