//! Signs certificates of the table and appends the chain.
//!
//! In: a host's request, the certificate's row of the table, its CA. Out: the certificate in PEM, followed by its
//! chain.

use super::PkiError;
use crate::issue::{self, Signer};
use crate::model::target::CertSpec;
use crate::statedir::{Authority, PublicAuthority};
use time::OffsetDateTime;

/// A CA as a signer: an intermediate's own certificate follows what it signs.
pub(super) fn signer(ca: &Authority) -> Signer<'_> {
    let public = ca.public();
    Signer {
        cert_pem: ca.cert_pem(),
        key: ca.key(),
        not_after_s: public.not_after_s,
        behind: if public.is_root { "" } else { ca.cert_pem() },
    }
}

/// Signs the public key of a request for a row of the table.
///
/// # Errors
/// A [`PkiError`] if the CA is not the row's, or the request is invalid.
pub fn sign(csr_pem: &str, leaf: &CertSpec, ca: &Authority, now: OffsetDateTime) -> Result<String, PkiError> {
    if ca.id() != leaf.authority {
        return Err(PkiError::WrongAuthority {
            leaf: leaf.id.to_string(),
            wanted: leaf.authority.clone(),
            given: ca.id().to_owned(),
        });
    }
    Ok(issue::sign(csr_pem, leaf, &signer(ca), now)?)
}

/// Like [`sign`], followed by the CA's cross-signed certificate if the certificate is presented to clients or is an
/// issuer: clients that trust only the previous CA accept it too.
///
/// # Errors
/// As [`sign`].
pub fn sign_vouched(
    csr_pem: &str,
    leaf: &CertSpec,
    ca: &Authority,
    vouched: Option<&PublicAuthority>,
    now: OffsetDateTime,
) -> Result<String, PkiError> {
    let pem = sign(csr_pem, leaf, ca, now)?;
    let of_it = |cross: &&PublicAuthority| cross.id == ca.id() && cross.not_after_s > now.unix_timestamp();
    Ok(match vouched.filter(of_it).filter(|_| leaf.server || leaf.id.issues()) {
        Some(cross) => pem + &cross.cert_pem,
        None => pem,
    })
}
