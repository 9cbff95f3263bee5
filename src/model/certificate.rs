//! Certificates as found on hosts, and their future.
//!
//! In: the text of files, and certificates that running components present. Out: facts, rows of `certs list`, and one
//! rule for certificates that expire soon, so that `certs list` and `status` cannot disagree.

use super::facts::Unreachable;
use super::names::{Digest, HostName, hex};
use super::timestamp::millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;

/// `status` warns with less than this left, days.
pub const WARN_DAYS: i64 = 30;
/// The most certificates that are read from one file; a bundle of CAs has a handful.
const MOST: usize = 64;
/// Characters of a name that are kept.
const LONGEST_NAME: usize = 200;

/// Certificates to observe, besides those of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificatesAsk {
    /// Files with certificates, absolute paths.
    pub files: Vec<String>,
    /// Components that serve with a certificate.
    pub presented: Vec<Presenting>,
}

/// Where a component serves with a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Presenting {
    /// The file that it reads the certificate from, absolute path.
    pub path: String,
    /// Where it listens: loopback, or an address of the host.
    pub at: (IpAddr, u16),
    /// Paths of a client certificate and key, if it requires one.
    pub identity: Option<(String, String)>,
}

/// Certificates as found on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificatesFact {
    /// Per requested file that exists, its certificates in their order; other content is left out.
    pub files: BTreeMap<String, Vec<CertFact>>,
    /// Per requested file, the certificate that its component presents, or why that is not known.
    pub presented: BTreeMap<String, Result<CertFact, String>>,
}

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertFact {
    /// Common name.
    pub common_name: String,
    /// Subject key identifier, hexadecimal; empty where there is none.
    pub key_id: String,
    /// Authority key identifier, hexadecimal; empty where there is none.
    pub authority: String,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate in DER.
    pub fingerprint: Digest,
    /// Start of validity, seconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub not_before_s: i64,
    /// End of validity, seconds since 1970.
    #[serde(deserialize_with = "super::timestamp::bounded")]
    pub not_after_s: i64,
}

impl CertFact {
    /// Reads one certificate in DER; `None` if it is not a certificate.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let (mut key_id, mut authority) = (String::new(), String::new());
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => key_id = hex(id.0),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    authority = id.key_identifier.as_ref().map(|id| hex(id.0)).unwrap_or_default();
                }
                _ => {}
            }
        }
        let name = certificate.subject().iter_common_name().find_map(|n| n.as_str().ok()).unwrap_or_default();
        Some(Self {
            common_name: name.chars().take(LONGEST_NAME).collect(),
            key_id,
            authority,
            serial: hex(certificate.raw_serial()),
            fingerprint: Digest::of(der),
            not_before_s: certificate.validity().not_before.timestamp(),
            not_after_s: certificate.validity().not_after.timestamp(),
        })
    }

    /// Reads the certificates in PEM text, which may contain other blocks as well.
    pub fn read_pem(text: &[u8]) -> Vec<Self> {
        let blocks = Pem::iter_from_buffer(text).take(MOST).flatten().filter(|block| block.label == "CERTIFICATE");
        blocks.filter_map(|block| Self::read(&block.contents)).collect()
    }

    /// Whether it expires soon.
    pub fn term(&self, now_ms: i64) -> Term {
        term(self.not_before_s, self.not_after_s, now_ms)
    }
}

/// Whether a certificate expires soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// It is valid for long enough.
    Good,
    /// It expires soon.
    Near,
    /// It has expired.
    Ended,
}

/// Whether a certificate expires soon: with less than [`WARN_DAYS`] left. A certificate with a short lifetime is
/// renewed late, and expires soon in the last tenth of its lifetime.
pub fn term(not_before_s: i64, not_after_s: i64, now_ms: i64) -> Term {
    let now_s = now_ms.div_euclid(1000);
    let (life, left) = (not_after_s.saturating_sub(not_before_s), not_after_s.saturating_sub(now_s));
    if left <= 0 {
        Term::Ended
    } else if left < WARN_DAYS * 86_400 && left.saturating_mul(10) < life {
        Term::Near
    } else {
        Term::Good
    }
}

/// The output of `certs list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Each requested host, in the order of the inventory: its certificates, or why there are none.
    pub hosts: Vec<(HostName, Result<OfHost, Unreachable>)>,
    /// Certificates in the state directory; judged by the clock of this machine.
    pub own: OfHost,
}

/// The certificates of one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfHost {
    /// The clock of that place, milliseconds since 1970.
    pub now_ms: i64,
    /// Certificates that exist, and those that are wanted.
    pub certificates: Vec<Certificate>,
}

impl OfHost {
    /// Them, missing ones first, then by expiry.
    pub fn sorted(mut certificates: Vec<Certificate>, now_ms: i64) -> Self {
        certificates.sort_by_key(|c| c.found.as_ref().map(|f| f.not_after_s));
        Self { now_ms, certificates }
    }
}

/// One certificate of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its name; for a certificate of the table, the name for `certs renew`.
    pub name: String,
    /// Its subject.
    pub subject: String,
    /// The CA that issued it, by the name of its row; `itself`, or `unknown`.
    pub authority: String,
    /// Its path.
    pub paths: Vec<String>,
    /// Its content; `None`: it is missing.
    pub found: Option<CertFact>,
    /// Its future.
    pub fate: Fate,
    /// The certificate that its component presents; `None`: it is no serving certificate, or the component was not
    /// queried.
    pub presented: Option<Presented>,
}

/// The future of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// `hactl up` renews it when less than a third of its lifetime is left.
    ByUp,
    /// Its host renews it when less than a third of its lifetime is left, and so does `hactl up`.
    ByHost,
    /// The kubelet renews it.
    ByKubelet,
    /// The next `hactl up` replaces it, for this reason.
    Due(String),
    /// It is a CA, or hactl keeps it as it is: no run replaces it.
    Stays,
    /// It has expired, and no run of `hactl up` replaces it.
    Expired,
    /// It is missing, for this reason, and no run of `hactl up` creates it.
    Missing(String),
}

/// What a component presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// The address that was queried.
    pub at: (IpAddr, u16),
    /// The result.
    pub seen: Seen,
}

/// The result of querying a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The certificate of its file.
    Same,
    /// Another one.
    Other {
        /// The presented certificate.
        certificate: CertFact,
        /// Whether it is older than the one in the file.
        older: bool,
    },
    /// Nothing, for this reason.
    Nothing(String),
}

/// The start of validity of a certificate issued at this time: hosts whose clocks are a little behind must accept it
/// immediately.
pub const BACKDATED: time::Duration = time::Duration::minutes(5);

/// The earliest start of validity of a certificate issued at this time or later, seconds since 1970.
pub fn issued_since(moment: time::OffsetDateTime) -> i64 {
    millis(moment - BACKDATED).unwrap_or(i64::MAX).div_euclid(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn a_certificate_is_near_its_end_with_less_than_thirty_days_left_and_a_short_one_in_its_last_tenth() {
        let at = |life: i64, left: i64| term(0, life * DAY, (life - left) * DAY * 1000);
        assert_eq!((at(365, 31), at(365, 30), at(365, 29)), (Term::Good, Term::Good, Term::Near));
        assert_eq!((at(3652, 29), at(3652, 0), at(3652, -1)), (Term::Near, Term::Ended, Term::Ended));
        assert_eq!((at(90, 29), at(90, 9), at(90, 8)), (Term::Good, Term::Good, Term::Near), "kubelets renew in time");
        assert_eq!(term(i64::MIN, i64::MAX, 0), Term::Good, "a host may say anything");
        assert_eq!(term(i64::MAX, i64::MIN, i64::MAX), Term::Ended);
    }

    #[test]
    fn certificates_are_read_from_text_that_holds_keys_and_other_things_as_well() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "who");
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let text = format!("some words\n{}{pem}-----BEGIN X-----\nAAAA\n-----END X-----\n{pem}", key.serialize_pem());
        let found = CertFact::read_pem(text.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].common_name.as_str(), &found[0]), ("who", &found[1]));
        assert_eq!(found[0].serial.len() % 2, 0);
        for text in
            ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\n"]
        {
            assert_eq!(CertFact::read_pem(text.as_bytes()), [], "{text:?}");
        }
        assert!(CertFact::read_pem(pem.repeat(200).as_bytes()).len() <= MOST);
    }
}
