//! From a certificate request to a certificate: the administrator's machine signs with a CA, a host with its own
//! issuer.
//!
//! In: a request in PEM, the certificate's row of the table, the signer. Out: the certificate in PEM, followed by the
//! chain of its signer. Only the public key of a request is used: subject, names, usages and lifetime are the table's.

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

/// A request has a few hundred bytes; more than this is refused.
const LARGEST_REQUEST: usize = 16 << 10;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A certificate could not be encoded or signed.
    #[error("cannot sign the certificate of {what}")]
    Sign {
        /// Its common name.
        what: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The input is no certificate request, or is not signed by its own key.
    #[error("the certificate request for {leaf} is unusable: {why}")]
    Request {
        /// Which certificate.
        leaf: String,
        /// What is wrong.
        why: String,
    },
    /// The signer's own certificate has expired.
    #[error("the CA that signs {what} expired at {at}; replace it with `hactl certs rotate`")]
    Expired {
        /// The certificate to sign.
        what: String,
        /// When.
        at: String,
    },
    /// A subject or name that a certificate cannot hold.
    #[error("{what} is not allowed in a certificate: {why}")]
    Name {
        /// Which.
        what: String,
        /// Why not.
        why: String,
    },
    /// The random number generator failed.
    #[error("the random number generator failed")]
    Random,
}

/// A CA or issuer with its key. No `Debug`: it borrows a key.
#[derive(Clone, Copy)]
pub struct Signer<'a> {
    /// Its certificate in PEM; only the first one is used.
    pub cert_pem: &'a str,
    /// Its private key in PEM.
    pub key: &'a Secret<String>,
    /// End of its validity, seconds since 1970.
    pub not_after_s: i64,
    /// The PEM that follows each certificate it signs; empty for a CA that everyone trusts.
    pub behind: &'a str,
}

/// Signs the public key of a request for a row of the table.
///
/// # Errors
/// An invalid request, an expired signer, an invalid name.
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

/// The public key of a request; it must be a P-256 key, and the request must be signed by it.
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
        return Err("there is data after it".to_owned());
    }
    csr.verify_signature().map_err(|_| "it is not signed by the key it names".to_owned())?;
    let spki = csr.certification_request_info.subject_pki.raw;
    let public = SubjectPublicKeyInfo::from_der(spki).map_err(|_| "its key is of an unknown kind".to_owned())?;
    if public.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err("its key is not ECDSA P-256".to_owned());
    }
    Ok(public)
}

/// The subject of a certificate.
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
    /// An invalid name.
    pub fn params(&self) -> Result<CertificateParams, IssueError> {
        let refuse = |what: &str, why: &str| IssueError::Name { what: format!("{what:?}"), why: why.to_owned() };
        // X.520 limits a common name to 64 characters, but Kubernetes does not check that, and a host's name may need
        // more: `system:node:` before a label of 63.
        if self.common_name.is_empty() {
            return Err(refuse(self.common_name, "a common name cannot be empty"));
        }
        let mut name = DistinguishedName::new();
        match self.organizations {
            [] => {}
            [one] => name.push(DnType::OrganizationName, one.as_str()),
            [_, second, ..] => return Err(refuse(second, "a subject can have only one organisation")),
        }
        name.push(DnType::CommonName, self.common_name);
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

/// A certificate without its key.
pub struct Order<'a> {
    /// Subject.
    pub subject: Subject<'a>,
    /// Subject alternative names: `DNS:name` and `IP:address`.
    pub sans: &'a [String],
    /// Usages.
    pub usage: Usage,
    /// Lifetime; it is cut at the end of the signer's.
    pub life: Duration,
}

/// The usage of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// TLS.
    CertSpec {
        /// As a server.
        server: bool,
        /// As a client.
        client: bool,
    },
    /// Signs certificates, but no CAs.
    Issuer,
    /// Signs documents. A certificate without any usage would be valid for all of them.
    Documents,
}

/// A signed certificate.
pub struct Issued {
    /// The certificate in PEM, followed by the chain of its signer.
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
    /// An expired signer, an invalid name.
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
        // A certificate that outlives its signer would only look valid.
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
/// The random number generator failed.
pub fn random_serial() -> Result<SerialNumber, IssueError> {
    let mut raw = [0; 16];
    aws_lc_rs::rand::fill(&mut raw).map_err(|_| IssueError::Random)?;
    raw[0] = raw[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&raw))
}
