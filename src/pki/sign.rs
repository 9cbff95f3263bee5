//! What authorities sign: leaves by the table, and the chain that goes with them.
//!
//! In: a host's request, the leaf as the table has it, its authority. Out: the certificate in PEM, followed by what vouches for it.

use super::PkiError;
use crate::issue::{self, Signer};
use crate::model::target::CertSpec;
use crate::statedir::{Authority, PublicAuthority};
use time::OffsetDateTime;

/// An authority as who signs: what one below another signs comes with its certificate.
pub(super) fn signer(ca: &Authority) -> Signer<'_> {
    let public = ca.public();
    Signer {
        cert_pem: ca.cert_pem(),
        key: ca.key(),
        not_after_s: public.not_after_s,
        behind: if public.is_root { "" } else { ca.cert_pem() },
    }
}

/// Signs the public key of a request as the leaf says.
///
/// # Errors
/// A [`PkiError`] for another authority than the leaf's, or a request that is none.
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

/// The same, with what vouches for its authority behind it where the leaf is shown to clients, or signs what is: whoever trusts only the
/// authority of before goes on trusting it.
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
