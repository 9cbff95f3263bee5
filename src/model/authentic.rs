//! Who vouches for what a snapshot says of itself.
//!
//! In: a manifest as it was written, with the signature of the host that took it. Out: an [`Authenticity`]. Hosts carry the signature and
//! never judge it; the administrator's side judges it (`snapshot/authentic.rs`) before it believes a word of the manifest.

use super::names::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A manifest as it was written, and its signature. Nothing in it is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// The manifest, byte for byte.
    pub manifest: String,
    /// The seal over it.
    pub seal: Seal,
}

/// A signature, and the certificate of the key that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// ECDSA P-256 with SHA-256, ASN.1, base64.
    pub signature: String,
    /// The signer's certificate, PEM.
    pub certificate: String,
}

/// What the cluster's CA says of a manifest. Only the administrator's side knows that CA: a host can neither send nor choose this value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authenticity {
    /// Nobody has asked yet, or nobody here knows the CA.
    #[default]
    Unchecked,
    /// This host signed it, with a key that the cluster's CA vouches for.
    Signed(HostName),
    /// It has no signature: an earlier hactl made it, or somebody took the signature off.
    Unsigned,
    /// It is not what it claims to be.
    Forged(String),
}

impl Authenticity {
    /// Whether nobody has asked yet.
    pub fn is_unchecked(&self) -> bool {
        *self == Self::Unchecked
    }
    /// Whether it is known to be something else than it claims.
    pub fn is_forged(&self) -> bool {
        matches!(self, Self::Forged(_))
    }
    /// Whether it may be taken: signed, or without a signature where a person said so.
    pub fn may_be_taken(&self, accept_unsigned: bool) -> bool {
        match self {
            Self::Signed(_) => true,
            Self::Unsigned => accept_unsigned,
            Self::Unchecked | Self::Forged(_) => false,
        }
    }
}

impl fmt::Display for Authenticity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchecked => f.pad("not checked"),
            Self::Signed(host) => f.pad(host.as_str()),
            Self::Unsigned => f.pad("not signed"),
            Self::Forged(_) => f.pad("FORGED"),
        }
    }
}

/// How the common name of a signer's certificate begins; its host's name follows.
pub const SIGNER: &str = "hactl:snapshots:";
/// The one usage of such a certificate, `id-kp-documentSigning` (RFC 9336): no server and no client is authenticated by it.
pub const DOCUMENT_SIGNING: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 36];
/// Where it lies on an etcd host.
pub const SIGNER_CERT: &str = "/etc/etcd/pki/snapshot-signer.crt";
/// Where its key lies, which is made there.
pub const SIGNER_KEY: &str = "/etc/etcd/pki/snapshot-signer.key";
