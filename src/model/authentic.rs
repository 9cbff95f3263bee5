//! Authenticity of the manifest of a snapshot.
//!
//! In: a manifest as it was written, with the signature of the host that took it. Out: an [`Authenticity`]. Hosts store
//! the signature and never check it; the administrator's machine checks it (`snapshot/authentic.rs`) before it uses the
//! manifest.

use super::names::HostName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A manifest as it was written, and its signature. Neither is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// The manifest, byte for byte.
    pub manifest: String,
    /// Its signature.
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

/// The result of the signature check with the cluster CA. Only the administrator's machine knows that CA: a host can
/// neither send nor choose this value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authenticity {
    /// Not checked yet, or the CA is not known here.
    #[default]
    Unchecked,
    /// Signed by this host, with a key that the cluster CA certified.
    Signed(HostName),
    /// It has no signature: an earlier hactl made it, or the signature was removed.
    Unsigned,
    /// It is not what it claims to be.
    Forged(String),
}

impl Authenticity {
    /// Whether it is not checked yet.
    pub fn is_unchecked(&self) -> bool {
        *self == Self::Unchecked
    }
    /// Whether it is known not to be what it claims.
    pub fn is_forged(&self) -> bool {
        matches!(self, Self::Forged(_))
    }
    /// Whether the snapshot may be used: signed, or unsigned if a person accepts that.
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

/// Prefix of the common name of a signer's certificate; the host name follows.
pub const SIGNER: &str = "hactl:snapshots:";
/// The only extended key usage of such a certificate, `id-kp-documentSigning` (RFC 9336): it authenticates no server
/// and no client.
pub const DOCUMENT_SIGNING: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 36];
/// Its path on an etcd host.
pub const SIGNER_CERT: &str = "/etc/etcd/pki/snapshot-signer.crt";
/// The path of its key, which is created on the host.
pub const SIGNER_KEY: &str = "/etc/etcd/pki/snapshot-signer.key";
