//! Certificates as they are found on hosts, and what becomes of each.
//!
//! In: the text of files, what running components present. Out: facts that travel, rows of `certs list`, and one rule for
//! how near its end a certificate is, so that `certs list` and `status` cannot disagree.

use super::facts::Unreachable;
use super::names::{Digest, HostName};
use super::timestamp::millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;

/// With less than this left `status` warns, days.
pub const WARN_DAYS: i64 = 30;
/// Certificates of one file that are looked at; a bundle of authorities has a handful.
const MOST: usize = 64;
/// Characters of a name that are kept.
const LONGEST_NAME: usize = 200;

/// What of certificates an observation should cover, besides the leaves of the table.
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
    /// Where it listens: loopback, or an address of the host's own.
    pub at: (IpAddr, u16),
    /// Certificate and key to show it, paths, where it demands one.
    pub identity: Option<(String, String)>,
}

/// Certificates as found on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificatesFact {
    /// Per file that was asked for and exists, the certificates in it in their order; what is none is left out.
    pub files: BTreeMap<String, Vec<CertFact>>,
    /// Per file that was asked for, what the component that reads it presents, or why that is not known.
    pub presented: BTreeMap<String, Result<CertFact, String>>,
}

/// What a certificate says.
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
    /// Reads one certificate in DER; `None` where it is none.
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

    /// Reads the certificates in PEM text, which may hold other things as well.
    pub fn read_pem(text: &[u8]) -> Vec<Self> {
        let blocks = Pem::iter_from_buffer(text).take(MOST).flatten().filter(|block| block.label == "CERTIFICATE");
        blocks.filter_map(|block| Self::read(&block.contents)).collect()
    }

    /// How near its end it is.
    pub fn term(&self, now_ms: i64) -> Term {
        term(self.not_before_s, self.not_after_s, now_ms)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// How near its end a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// There is time.
    Good,
    /// It ends soon.
    Near,
    /// It has ended.
    Ended,
}

/// How near its end a certificate is: near with less than [`WARN_DAYS`] left. One of a short life is renewed late in it, and is near in
/// its last tenth.
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

/// What `certs list` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Each host that was asked for, in the inventory's order: its certificates, or why there are none.
    pub hosts: Vec<(HostName, Result<OfHost, Unreachable>)>,
    /// What the administrator keeps; judged by this machine's clock.
    pub own: OfHost,
}

/// The certificates of one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfHost {
    /// The place's own clock, milliseconds since 1970.
    pub now_ms: i64,
    /// What is there, and what should be.
    pub certificates: Vec<Certificate>,
}

impl OfHost {
    /// Them, what is missing first and then by their end.
    pub fn sorted(mut certificates: Vec<Certificate>, now_ms: i64) -> Self {
        certificates.sort_by_key(|c| c.found.as_ref().map(|f| f.not_after_s));
        Self { now_ms, certificates }
    }
}

/// One certificate of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// What it is; for a leaf of the table the name that `certs renew` takes.
    pub name: String,
    /// Whom it names.
    pub subject: String,
    /// Which authority signed it, by the name of its own row; `itself`, or `unknown`.
    pub authority: String,
    /// Where it lies.
    pub paths: Vec<String>,
    /// What it says; `None`: it is not there.
    pub found: Option<CertFact>,
    /// What becomes of it.
    pub fate: Fate,
    /// What the component presents that serves with it; `None`: nobody serves with it, or nobody was asked.
    pub presented: Option<Presented>,
}

/// What becomes of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// `hactl up` issues another when less than a third of its life is left.
    ByUp,
    /// Its host makes another when less than a third of its life is left, and so does `hactl up`.
    ByHost,
    /// The kubelet asks for another by itself.
    ByKubelet,
    /// The next `hactl up` replaces it, for this reason.
    Due(String),
    /// It is an authority, or hactl's to keep as it is: no run replaces it.
    Stays,
    /// It has ended, and no run of `hactl up` replaces it.
    Expired,
    /// It is not there, for this reason, and no run of `hactl up` makes it.
    Missing(String),
}

/// What a component presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// Where it was asked.
    pub at: (IpAddr, u16),
    /// What was seen there.
    pub seen: Seen,
}

/// What was seen of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The certificate of its file.
    Same,
    /// Another one.
    Other {
        /// That one.
        certificate: CertFact,
        /// Whether it is older than the one in the file.
        older: bool,
    },
    /// Nothing, for this reason.
    Nothing(String),
}

/// The beginning of validity of whatever is issued at a moment: hosts whose clocks run a little behind must accept it at once.
pub const BACKDATED: time::Duration = time::Duration::minutes(5);

/// Since when something must be valid to have been issued at this moment or later, seconds since 1970.
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
