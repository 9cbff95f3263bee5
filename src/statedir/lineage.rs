//! The cluster CAs, one after the other, and how each cross-signed the next.
//!
//! In: [`Contents`]. Out: the unbroken chain that ends in the current CA, and the CAs that verify snapshots. The keys
//! in an imported state prove that it belongs to the CA in it; the chain proves that this CA succeeds the one that a
//! person knows by its fingerprint.

use super::contents::{BadAuthority, Contents, PublicAuthority};
use crate::model::names::Digest;
use crate::model::rotation::Rotatable;
use crate::snapshot::Trust;
use serde::{Deserialize, Serialize};
use x509_parser::pem::parse_x509_pem;

/// A previous cluster CA.
pub struct Former {
    /// Its certificate.
    pub public: PublicAuthority,
    /// Its successor, cross-signed by it; `None` if it had expired by then.
    pub next: Option<PublicAuthority>,
    /// Since when no host trusts it any more, seconds since 1970; `None`: some still do.
    pub until_s: Option<i64>,
}

/// The JSON form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FormerForm {
    public: String,
    next: Option<String>,
    until_s: Option<i64>,
}

impl FormerForm {
    pub fn of(former: &Former) -> Self {
        let next = former.next.as_ref().map(|next| next.cert_pem.clone());
        Self { public: former.public.cert_pem.clone(), next, until_s: former.until_s }
    }
    pub fn former(&self) -> Result<Former, BadAuthority> {
        let next = self.next.clone().map(PublicAuthority::new).transpose()?;
        Ok(Former { public: PublicAuthority::new(self.public.clone())?, next, until_s: self.until_s })
    }
}

/// The fingerprints of an unbroken chain of CAs, the oldest first. The last one is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    chain: Vec<Digest>,
    /// The CA that the cluster claims to have been bootstrapped with.
    pub founded: Digest,
}

impl Lineage {
    /// The oldest CA from which an unbroken chain leads to the current one.
    pub fn anchor(&self) -> Digest {
        self.chain.first().copied().unwrap_or(self.founded)
    }
    /// Whether the chain starts at the cluster's first CA.
    pub fn is_whole(&self) -> bool {
        self.anchor() == self.founded
    }
    /// Length of the chain.
    pub fn length(&self) -> usize {
        self.chain.len()
    }
    /// Whether this CA is in the chain.
    pub fn has(&self, authority: &Digest) -> bool {
        self.chain.contains(authority)
    }
    /// Whether one chain continues the other. If two chains diverge, neither continues the other.
    pub fn goes_with(&self, other: &Self) -> bool {
        let (short, long) = if self.chain.len() < other.chain.len() { (self, other) } else { (other, self) };
        long.chain.starts_with(&short.chain)
    }
}

/// Whether `next` has `heir`'s key, is signed by `old`, and may have issuers below it. Without the last rule the
/// signing intermediate, whose key is on control-plane hosts, could pass for the next CA.
fn vouches(old: &PublicAuthority, next: &PublicAuthority, heir: &PublicAuthority) -> bool {
    let signed = || {
        let (_, above) = parse_x509_pem(old.cert_pem.as_bytes()).ok()?;
        let (_, below) = parse_x509_pem(next.cert_pem.as_bytes()).ok()?;
        let (above, below) = (above.parse_x509().ok()?, below.parse_x509().ok()?);
        below.verify_signature(Some(above.public_key())).ok()
    };
    let same_key = next.public_key().is_ok_and(|key| heir.public_key().is_ok_and(|other| key == other));
    same_key && next.below != Some(0) && signed().is_some()
}

impl Contents {
    /// The unbroken chain of CAs.
    pub fn lineage(&self) -> Lineage {
        let mut chain = vec![self.cluster.fingerprint()];
        let mut heir = self.cluster.public();
        for former in self.rotations.former.iter().rev() {
            if !former.next.as_ref().is_some_and(|next| vouches(&former.public, next, heir)) {
                break;
            }
            chain.insert(0, former.public.fingerprint);
            heir = &former.public;
        }
        Lineage { chain, founded: self.rotations.founded }
    }

    /// The CAs that verify snapshots: the cluster CA, the other CA of a rotation in progress, and previous CAs for
    /// snapshots of their time.
    pub fn snapshot_trust(&self) -> Trust {
        let own = (self.cluster.cert_pem(), None);
        let former = self.rotations.former.iter().map(|former| (former.public.cert_pem.as_str(), former.until_s));
        // An older hactl did not record previous CAs.
        let turn = self.rotations.under_way.get(&Rotatable::ClusterCa).map(|turn| turn.other.public.as_str());
        let known = |pem: &str| self.rotations.former.iter().any(|former| former.public.cert_pem == pem);
        let turn = turn.filter(|pem| !known(pem)).map(|pem| (pem, None));
        Trust::new([own].into_iter().chain(former).chain(turn))
    }
}
