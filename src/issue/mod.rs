//! From a certificate request to a certificate, whoever signs it: the administrator's side with an authority, a host with an issuer of its own.
//!
//! In: a request in PEM, the leaf as the table has it, who signs. Out: the certificate in PEM, followed by what vouches for who signed
//! it. Of a request only the public key is believed: subject, names, usages and lifetime are the table's.

use crate::model::authentic::DOCUMENT_SIGNING;
use crate::model::certificate::BACKDATED;
use crate::model::secret::Secret;
use crate::model::target::{CertId, CertSpec};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use std::net::IpAddr;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

/// A request is a few hundred bytes; a host that sends more is not asking for a certificate.
const LARGEST_REQUEST: usize = 16 << 10;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A certificate could not be written or signed.
    #[error("cannot sign the certificate of {what}")]
    Sign {
        /// Of what.
        what: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// What was sent is no certificate request, or not signed by its own key.
    #[error("the certificate request for {leaf} is unusable: {why}")]
    Request {
        /// For which leaf.
        leaf: String,
        /// What is wrong.
        why: String,
    },
    /// The signer's own certificate has expired.
    #[error("the authority that should sign {what} expired at {at}; replace it with `hactl certs rotate`")]
    Expired {
        /// What was to be signed.
        what: String,
        /// When.
        at: String,
    },
    /// A subject or name that a certificate cannot hold.
    #[error("{what} cannot stand in a certificate: {why}")]
    Name {
        /// Which.
        what: String,
        /// Why not.
        why: String,
    },
    /// No randomness.
    #[error("cannot draw a random number")]
    Random,
}

/// Who signs. No `Debug`: it borrows a key.
#[derive(Clone, Copy)]
pub struct Signer<'a> {
    /// Its certificate in PEM; only the first is looked at.
    pub cert_pem: &'a str,
    /// Its private key in PEM.
    pub key: &'a Secret<String>,
    /// End of its validity, seconds since 1970.
    pub not_after_s: i64,
    /// What follows everything that it signs, PEM: nothing behind an authority that everybody trusts.
    pub behind: &'a str,
}

/// Signs the public key of a request as the leaf says.
///
/// # Errors
/// A request that is none, a signer that has expired, a name that does not fit.
pub fn sign(csr_pem: &str, leaf: &CertSpec, by: &Signer<'_>, now: OffsetDateTime) -> Result<String, IssueError> {
    let public = public_key(csr_pem).map_err(|why| IssueError::Request { leaf: leaf.id.to_string(), why })?;
    let order = Order {
        subject: Subject { common_name: &leaf.common_name, organizations: &leaf.organizations },
        sans: &leaf.sans,
        usage: match leaf.id {
            CertId::SnapshotSigner => Usage::Documents,
            id if id.issues() => Usage::Issuer,
            _ => Usage::CertSpec { server: leaf.server, client: leaf.client },
        },
        life: Duration::days(i64::from(leaf.days)),
    };
    order.sign(&public, by, now).map(|issued| issued.pem)
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
pub struct Subject<'a> {
    /// Common name.
    pub common_name: &'a str,
    /// Organisations: at most one.
    pub organizations: &'a [String],
}

impl Subject<'_> {
    /// Parameters with nothing but this subject.
    ///
    /// # Errors
    /// A name that does not fit.
    pub fn params(&self) -> Result<CertificateParams, IssueError> {
        let refuse = |what: &str, why: &str| IssueError::Name { what: format!("{what:?}"), why: why.to_owned() };
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
pub struct Order<'a> {
    /// Whom it names.
    pub subject: Subject<'a>,
    /// What it is valid for besides: `DNS:name` and `IP:address`.
    pub sans: &'a [String],
    /// What it is for.
    pub usage: Usage,
    /// How long it is valid, unless its signer ends before.
    pub life: Duration,
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// To show.
    CertSpec {
        /// To clients.
        server: bool,
        /// To servers.
        client: bool,
    },
    /// To sign leaves with, and nothing that signs.
    Issuer,
    /// To sign documents with. A certificate without any usage would be one for all of them.
    Documents,
}

/// A signed certificate.
pub struct Issued {
    /// It in PEM, and what vouches for its signer.
    pub pem: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// End of its validity.
    pub not_after: OffsetDateTime,
}

impl Order<'_> {
    /// Signs a public key.
    ///
    /// # Errors
    /// A signer that has expired, a name that does not fit.
    pub fn sign(
        &self,
        public: &impl PublicKeyData,
        by: &Signer<'_>,
        now: OffsetDateTime,
    ) -> Result<Issued, IssueError> {
        let what = self.subject.common_name;
        let failed = |source| IssueError::Sign { what: what.to_owned(), source };
        let last = OffsetDateTime::from_unix_timestamp(by.not_after_s).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        if last <= now {
            let at = last.format(&Rfc3339).unwrap_or_default();
            return Err(IssueError::Expired { what: what.to_owned(), at });
        }
        let mut params = self.subject.params()?;
        match self.usage {
            Usage::Issuer => {
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
                params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            }
            Usage::Documents => {
                params.is_ca = IsCa::ExplicitNoCa;
                params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(DOCUMENT_SIGNING.to_vec())];
            }
            Usage::CertSpec { server, client } => {
                params.is_ca = IsCa::ExplicitNoCa;
                params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
                let usages =
                    [(server, ExtendedKeyUsagePurpose::ServerAuth), (client, ExtendedKeyUsagePurpose::ClientAuth)];
                params.extended_key_usages =
                    usages.into_iter().filter_map(|(has, usage)| has.then_some(usage)).collect();
            }
        }
        params.subject_alt_names = self.sans.iter().map(|san| name(san)).collect::<Result<_, _>>()?;
        let serial = random_serial()?;
        let shown = serial.to_string().replace(':', "");
        params.serial_number = Some(serial);
        params.not_before = now - BACKDATED;
        // What outlives its signer would only look valid.
        params.not_after = (now + self.life).min(last);
        let not_after = params.not_after;
        let key = KeyPair::from_pem(by.key.reveal()).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(by.cert_pem, key).map_err(failed)?;
        let mut pem = params.signed_by(public, &issuer).map_err(failed)?.pem();
        pem.push_str(by.behind);
        Ok(Issued { pem, serial: shown, not_after })
    }
}

fn name(san: &str) -> Result<SanType, IssueError> {
    let refuse = |why: &str| IssueError::Name { what: format!("{san:?}"), why: why.to_owned() };
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
///
/// # Errors
/// No randomness.
pub fn random_serial() -> Result<SerialNumber, IssueError> {
    let mut raw = [0; 16];
    aws_lc_rs::rand::fill(&mut raw).map_err(|_| IssueError::Random)?;
    raw[0] = raw[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&raw))
}
