//! Whether the certificate that was issued for an approved request is the one that was approved.
//!
//! In: a CertificateSigningRequest object as the API holds it. Out: how they differ. The approver judges a request before another program
//! signs it; this is the look at what that program made of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::asn1_rs::Oid;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::csr::SIGNER;
use super::request::{KubeletRequest, SUBJECT_ALT_NAME, block, subject};

const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
/// The usage serverAuth and no other, as the extension has it.
const SERVER_ALONE: &[u8] = &[0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1];
/// The reason in the condition by which hactl's approver approves.
pub const REASON: &str = "HactlApproved";

/// How what was issued differs from what hactl approved; nothing where it does not, where nothing was issued yet, or where somebody else approved.
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
        return Err("something follows it".to_owned());
    }
    if made.subject().as_raw() != subject(user) {
        return Err(format!("its subject is {:?}", made.subject().to_string()));
    }
    if made.public_key().raw != asked.public_key() {
        return Err("it has another key".to_owned());
    }
    if made.is_ca() {
        return Err("it is of a CA".to_owned());
    }
    let extension = |oid: &[u64]| {
        let oid = Oid::from(oid).map_err(|_| "it has an extension without a name".to_owned())?;
        let found = made.get_extension_unique(&oid).map_err(|_| "it has one extension twice".to_owned())?;
        Ok::<_, String>(found.map_or(&[][..], |extension| extension.value))
    };
    if extension(EXTENDED_KEY_USAGE)? != SERVER_ALONE {
        return Err("it is good for more than serving, or not for that".to_owned());
    }
    if extension(SUBJECT_ALT_NAME)? != asked.subject_alt_names() {
        let names = made.subject_alternative_name().ok().flatten();
        let names: Vec<String> = names.iter().flat_map(|n| &n.value.general_names).map(ToString::to_string).collect();
        return Err(format!("it names {names:?} and not {:?}", asked.names()));
    }
    Ok(())
}
