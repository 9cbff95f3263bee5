//! TLS of the agent: one provider, the certificates of the request, no trust store of the host.
//!
//! In: paths of PEM files. Out: a client configuration, or a fault that names the file.

use crate::agent::machine::root::Root;
use crate::agent::op_error::{Explain, Outcome, failed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fs;

/// Makes aws-lc-rs the provider of this process; idempotent.
pub(crate) fn install_provider() {
    // An error means that there is one already, and the program has no other.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// A client that trusts one CA, with or without a certificate of its own.
pub(crate) fn client(root: &Root, ca: &str, identity: Option<(&str, &str)>) -> Outcome<ClientConfig> {
    install_provider();
    let mut trusted = RootCertStore::empty();
    for certificate in certificates(root, ca)? {
        trusted.add(certificate).map_err(|e| failed(format!("{ca} is not a CA certificate: {e}")))?;
    }
    let builder = ClientConfig::builder().with_root_certificates(trusted);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((cert, key)) => builder
            .with_client_auth_cert(certificates(root, cert)?, private_key(root, key)?)
            .map_err(|e| failed(format!("{cert} with {key} cannot be used: {e}"))),
    }
}

/// The certificates of a PEM file; at least one.
///
/// # Errors
/// It is missing, or no PEM file of certificates.
pub fn certificates(root: &Root, path: &str) -> Outcome<Vec<CertificateDer<'static>>> {
    let at = root.path(path)?;
    let pem = fs::read(&at).explain("read", &at)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(failed(format!("{path} does not contain a certificate"))),
        Err(error) => Err(failed(format!("{path} is not PEM: {error}"))),
    }
}

/// The key of a PEM file.
///
/// # Errors
/// It is missing, or not the PEM file of a key.
pub fn private_key(root: &Root, path: &str) -> Outcome<PrivateKeyDer<'static>> {
    let at = root.path(path)?;
    let pem = zeroize::Zeroizing::new(fs::read(&at).explain("read", &at)?);
    PrivateKeyDer::from_pem_slice(&pem).map_err(|e| failed(format!("{path} does not contain a usable key: {e}")))
}
