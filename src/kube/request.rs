//! Reads a kubelet's certificate request so strictly that no other parser can find anything else in it.
//!
//! In: the bytes of a request from the API, and the kubelet's user name. Out: the names and the key in it. The signer
//! is another program with another parser, and a request can be crafted so that two parsers find different names. So
//! hactl encodes the user, the names and the key that it found again, the way every kubelet does (Go's
//! `x509.CreateCertificateRequest` and `pem.EncodeToMemory`), and the result must be identical to the received bytes.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;
use yasna::models::ObjectIdentifier;
use yasna::tags::TAG_PRINTABLESTRING;
use yasna::{DERWriter, Tag, construct_der};

/// The group of all kubelets.
pub const NODES: &str = "system:nodes";
/// A request with a hundred names is smaller.
const LARGEST: usize = 16 << 10;
/// Go's encoder breaks lines here.
const COLUMNS: usize = 64;

const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const EC_PUBLIC_KEY: &[u64] = &[1, 2, 840, 10045, 2, 1];
const P256: &[u64] = &[1, 2, 840, 10045, 3, 1, 7];
const ECDSA_WITH_SHA256: &[u64] = &[1, 2, 840, 10045, 4, 3, 2];
const EXTENSION_REQUEST: &[u64] = &[1, 2, 840, 113_549, 1, 9, 14];
pub(super) const SUBJECT_ALT_NAME: &[u64] = &[2, 5, 29, 17];
const DNS_NAME: u64 = 2;
const IP_ADDRESS: u64 = 7;

/// The content of a kubelet's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletRequest {
    /// DNS names, in the order of the request.
    pub dns: Vec<String>,
    /// Addresses, in the order of the request.
    pub ips: Vec<IpAddr>,
    /// The public key: an uncompressed point of P-256, the only kind that kubelets create.
    pub point: Vec<u8>,
}

impl KubeletRequest {
    /// Reads the request of a user.
    ///
    /// # Errors
    /// Why it is not a kubelet's request, for the log.
    pub fn read(pem: &[u8], user: &str) -> Result<Self, String> {
        let der = block(pem, "CERTIFICATE REQUEST")?;
        let (_, parsed) = X509CertificationRequest::from_der(&der).map_err(|_| "the request is not a CSR")?;
        let info = &parsed.certification_request_info;
        if info.subject.as_raw() != subject(user) {
            return Err(format!("its subject {:?} is not {user} of {NODES}", info.subject.to_string()));
        }
        let (dns, ips) = names(&parsed)?;
        let read = Self { dns, ips, point: info.subject_pki.subject_public_key.data.to_vec() };
        let signature = &parsed.signature_value.data;
        if read.written(user, signature) != der {
            return Err(
                "it is not encoded the way kubelets encode requests: another program may read it differently".into()
            );
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &read.point);
        key.verify(info.raw, signature).map_err(|_| "it is not signed with its own key")?;
        Ok(read)
    }

    /// The names in the notation of the allowed names: `DNS:cp1`, `IP:10.0.0.1`.
    pub fn names(&self) -> Vec<String> {
        let dns = self.dns.iter().map(|name| format!("DNS:{name}"));
        dns.chain(self.ips.iter().map(|ip| format!("IP:{ip}"))).collect()
    }

    /// The public key as certificates contain it (SubjectPublicKeyInfo, DER).
    pub fn public_key(&self) -> Vec<u8> {
        construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_sequence(|writer| {
                    oid(writer.next(), EC_PUBLIC_KEY);
                    oid(writer.next(), P256);
                });
                bits(writer.next(), &self.point);
            });
        })
    }

    /// The same request as a kubelet encodes it, in DER.
    fn written(&self, user: &str, signature: &[u8]) -> Vec<u8> {
        construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_sequence(|writer| {
                    writer.next().write_u8(0);
                    writer.next().write_der(&subject(user));
                    writer.next().write_der(&self.public_key());
                    writer.next().write_tagged_implicit(Tag::context(0), |writer| {
                        writer.write_set(|writer| self.write_extensions(writer.next()));
                    });
                });
                writer.next().write_sequence(|writer| oid(writer.next(), ECDSA_WITH_SHA256));
                bits(writer.next(), signature);
            });
        })
    }

    /// One attribute, with one list of one extension.
    fn write_extensions(&self, writer: DERWriter<'_>) {
        writer.write_sequence(|writer| {
            oid(writer.next(), EXTENSION_REQUEST);
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    writer.next().write_sequence(|writer| {
                        oid(writer.next(), SUBJECT_ALT_NAME);
                        writer.next().write_bytes(&self.subject_alt_names());
                    });
                });
            });
        });
    }

    /// DNS names before addresses, and an IPv4 address in four bytes.
    pub(super) fn subject_alt_names(&self) -> Vec<u8> {
        construct_der(|writer| {
            writer.write_sequence(|writer| {
                let mut name = |tag: u64, value: &[u8]| {
                    writer.next().write_tagged_implicit(Tag::context(tag), |writer| writer.write_bytes(value));
                };
                for dns in &self.dns {
                    name(DNS_NAME, dns.as_bytes());
                }
                for ip in &self.ips {
                    match ip.to_canonical() {
                        IpAddr::V4(ip) => name(IP_ADDRESS, &ip.octets()),
                        IpAddr::V6(ip) => name(IP_ADDRESS, &ip.octets()),
                    }
                }
            });
        })
    }
}

/// The content of the only PEM block in these bytes, which must be encoded exactly as by Go: nothing before, after or
/// in between.
///
/// # Errors
/// Why they are not, for the log.
pub fn block(pem: &[u8], label: &str) -> Result<Vec<u8>, String> {
    let other = || format!("it is not a single PEM block {label} as kubelets encode it");
    if pem.len() > LARGEST {
        return Err(format!("it has {} bytes", pem.len()));
    }
    let text = std::str::from_utf8(pem).map_err(|_| other())?;
    let body = text.strip_prefix(&format!("-----BEGIN {label}-----\n"));
    let body = body.and_then(|body| body.strip_suffix(&format!("-----END {label}-----\n"))).ok_or_else(other)?;
    let der = STANDARD.decode(body.replace('\n', "")).map_err(|_| other())?;
    if lines(&der) == body { Ok(der) } else { Err(other()) }
}

/// Base64 in lines of 64.
fn lines(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = (0..text.len()).step_by(COLUMNS).map(|at| &text[at..text.len().min(at + COLUMNS)]);
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The subject of a kubelet, in DER.
pub fn subject(user: &str) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            for (which, text) in [(ORGANIZATION, NODES), (COMMON_NAME, user)] {
                writer.next().write_set(|writer| {
                    writer.next().write_sequence(|writer| {
                        oid(writer.next(), which);
                        let text = |writer: DERWriter<'_>| writer.write_bytes(text.as_bytes());
                        writer.next().write_tagged_implicit(TAG_PRINTABLESTRING, text);
                    });
                });
            }
        });
    })
}

fn oid(writer: DERWriter<'_>, components: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(components));
}

fn bits(writer: DERWriter<'_>, bytes: &[u8]) {
    writer.write_bitvec_bytes(bytes, bytes.len() * 8);
}

/// The subject alternative names. Everything else, and everything omitted here, is found by encoding the request again.
fn names(request: &X509CertificationRequest<'_>) -> Result<(Vec<String>, Vec<IpAddr>), String> {
    let (mut dns, mut ips) = (Vec::new(), Vec::new());
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(san) = extension else {
            return Err("it requests more than subject alternative names".to_owned());
        };
        for name in &san.general_names {
            match name {
                GeneralName::DNSName(name) => dns.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => ips.push(address(bytes)?),
                other => return Err(format!("it requests the name {:?}", other.to_string())),
            }
        }
    }
    Ok((dns, ips))
}

fn address(bytes: &[u8]) -> Result<IpAddr, String> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let any = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    any.map_err(|_| "it requests an invalid address".to_owned())
}
