//! From a host's request to a certificate.
//!
//! In: a request in PEM, the leaf as the table has it, its authority. Out: the certificate in PEM, followed by the
//! authority's own when that is an intermediate. A host decides nothing but its public key: subject, names, usages and
//! lifetime are the table's, whatever the request asks for.

use super::PkiError;
use crate::model::certificate::BACKDATED;
use crate::model::target::Leaf;
use crate::vault::{Authority, PublicAuthority};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use std::net::IpAddr;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

/// A request is a few hundred bytes; a host that sends more is not asking for a certificate.
const LARGEST_REQUEST: usize = 16 << 10;

/// Signs the public key of a request as the leaf says.
pub fn sign(csr_pem: &str, leaf: &Leaf, ca: &Authority, now: OffsetDateTime) -> Result<String, PkiError> {
    if ca.id() != leaf.authority {
        return Err(PkiError::WrongAuthority {
            leaf: leaf.id.to_string(),
            wanted: leaf.authority.clone(),
            given: ca.id().to_owned(),
        });
    }
    let public = public_key(csr_pem).map_err(|why| PkiError::Request { leaf: leaf.id.to_string(), why })?;
    let order = Order {
        subject: Subject { common_name: &leaf.common_name, organizations: &leaf.organizations },
        sans: &leaf.sans,
        server: leaf.server,
        client: leaf.client,
        life: Duration::days(i64::from(leaf.days)),
    };
    order.sign(&public, ca, now).map(|issued| issued.pem)
}

/// The same, with what vouches for its authority behind it where the leaf is shown to clients: whoever trusts only the authority of before
/// goes on trusting it.
pub fn sign_vouched(
    csr_pem: &str,
    leaf: &Leaf,
    ca: &Authority,
    vouched: Option<&PublicAuthority>,
    now: OffsetDateTime,
) -> Result<String, PkiError> {
    let pem = sign(csr_pem, leaf, ca, now)?;
    let of_it = |cross: &&PublicAuthority| cross.id == ca.id() && cross.not_after_s > now.unix_timestamp();
    Ok(match vouched.filter(of_it).filter(|_| leaf.server) {
        Some(cross) => pem + &cross.cert_pem,
        None => pem,
    })
}

/// The public key of a request that is signed by its own private key and is a P-256 key.
fn public_key(csr_pem: &str) -> Result<SubjectPublicKeyInfo, String> {
    if csr_pem.len() > LARGEST_REQUEST {
        return Err(format!("it has {} bytes", csr_pem.len()));
    }
    let (_, pem) = x509_parser::pem::parse_x509_pem(csr_pem.as_bytes()).map_err(|_| "it is not PEM".to_owned())?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err("it is not labelled CERTIFICATE REQUEST".to_owned());
    }
    let (rest, csr) = X509CertificationRequest::from_der(&pem.contents).map_err(|_| "it cannot be read".to_owned())?;
    if !rest.is_empty() {
        return Err("something follows it".to_owned());
    }
    csr.verify_signature().map_err(|_| "it is not signed by the key it names".to_owned())?;
    let spki = csr.certification_request_info.subject_pki.raw;
    let public = SubjectPublicKeyInfo::from_der(spki).map_err(|_| "its key is of an unknown kind".to_owned())?;
    if public.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err("its key is not ECDSA P-256".to_owned());
    }
    Ok(public)
}

/// Who a certificate names.
pub(super) struct Subject<'a> {
    pub common_name: &'a str,
    pub organizations: &'a [String],
}

impl Subject<'_> {
    /// Parameters with nothing but this subject.
    pub fn params(&self) -> Result<CertificateParams, PkiError> {
        let refuse = |what: &str, why: &str| PkiError::Name { what: format!("{what:?}"), why: why.to_owned() };
        // X.520 bounds a common name at 64 characters, but nobody in Kubernetes checks that, and the name of a host
        // may need more: `system:node:` before a label of 63.
        if self.common_name.is_empty() {
            return Err(refuse(self.common_name, "a common name cannot be empty"));
        }
        let mut name = DistinguishedName::new();
        match self.organizations {
            [] => {}
            [one] => name.push(DnType::OrganizationName, one.as_str()),
            [_, second, ..] => return Err(refuse(second, "only one organisation fits into a subject here")),
        }
        name.push(DnType::CommonName, self.common_name);
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

/// Everything about a leaf but its key.
pub(super) struct Order<'a> {
    pub subject: Subject<'a>,
    pub sans: &'a [String],
    pub server: bool,
    pub client: bool,
    pub life: Duration,
}

/// A signed leaf.
pub(super) struct Issued {
    pub pem: String,
    pub serial: String,
    pub not_after: OffsetDateTime,
}

impl Order<'_> {
    /// Signs a public key.
    pub fn sign(&self, public: &impl PublicKeyData, ca: &Authority, now: OffsetDateTime) -> Result<Issued, PkiError> {
        let what = self.subject.common_name;
        let failed = |source| PkiError::Sign { what: what.to_owned(), source };
        let last = OffsetDateTime::from_unix_timestamp(ca.public().not_after_s).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        if last <= now {
            let at = last.format(&Rfc3339).unwrap_or_default();
            return Err(PkiError::AuthorityExpired { what: what.to_owned(), at });
        }
        let mut params = self.subject.params()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if self.server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if self.client {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        params.subject_alt_names = self.sans.iter().map(|san| name(san)).collect::<Result<_, _>>()?;
        let serial = random_serial()?;
        let shown = serial.to_string().replace(':', "");
        params.serial_number = Some(serial);
        params.not_before = now - BACKDATED;
        // A leaf that outlives its authority would only look valid.
        params.not_after = (now + self.life).min(last);
        let not_after = params.not_after;
        let key = KeyPair::from_pem(ca.key().reveal()).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(ca.cert_pem(), key).map_err(failed)?;
        let mut pem = params.signed_by(public, &issuer).map_err(failed)?.pem();
        if !ca.public().is_root {
            pem.push_str(ca.cert_pem());
        }
        Ok(Issued { pem, serial: shown, not_after })
    }
}

fn name(san: &str) -> Result<SanType, PkiError> {
    let refuse = |why: &str| PkiError::Name { what: format!("{san:?}"), why: why.to_owned() };
    match san.split_once(':') {
        Some(("DNS", name)) if !name.is_empty() => {
            name.try_into().map(SanType::DnsName).map_err(|_| refuse("it is not ASCII"))
        }
        Some(("IP", text)) => {
            text.parse::<IpAddr>().map(SanType::IpAddress).map_err(|_| refuse("it is not an address"))
        }
        _ => Err(refuse("expected DNS:name or IP:address")),
    }
}

/// 16 random bytes, positive and without a leading zero byte, so that every tool shows the same digits.
pub(super) fn random_serial() -> Result<SerialNumber, PkiError> {
    let mut raw = [0; 16];
    aws_lc_rs::rand::fill(&mut raw).map_err(|_| PkiError::Random(crate::vault::VaultError::Random))?;
    raw[0] = raw[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&raw))
}
