//! The CAs that were the cluster's own, one after the other, and how each vouched for the next.
//!
//! In: [`Contents`]. Out: the unbroken chain that ends in the CA in use, and what vouches for snapshots. A state that somebody sends proves
//! with its keys that it is of the CA in it; the chain proves that this CA is the heir of the one that a person knows by its fingerprint.

use super::contents::{BadAuthority, Contents, PublicAuthority};
use crate::model::names::Digest;
use crate::model::rotation::Rotatable;
use crate::snapshot::Trust;
use serde::{Deserialize, Serialize};
use x509_parser::pem::parse_x509_pem;

/// A CA that was the cluster's own.
pub struct Former {
    /// It.
    pub public: PublicAuthority,
    /// The one after it, signed by it; none where it had ended by then.
    pub next: Option<PublicAuthority>,
    /// Since when nobody trusts it any more, seconds since 1970; none: somebody still does.
    pub until_s: Option<i64>,
}

/// As JSON.
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

/// The fingerprints of the CAs that follow one another without a break, the oldest first. The last is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    chain: Vec<Digest>,
    /// The one that the cluster says it was founded with.
    pub founded: Digest,
}

impl Lineage {
    /// The oldest from which an unbroken chain leads to the CA in use.
    pub fn anchor(&self) -> Digest {
        self.chain.first().copied().unwrap_or(self.founded)
    }
    /// Whether the chain begins where the cluster did.
    pub fn is_whole(&self) -> bool {
        self.anchor() == self.founded
    }
    /// How many there are.
    pub fn length(&self) -> usize {
        self.chain.len()
    }
    /// Whether this CA is one of them.
    pub fn has(&self, authority: &Digest) -> bool {
        self.chain.contains(authority)
    }
    /// Whether one of the two goes on where the other ends. Two heirs of one CA are not both its heirs.
    pub fn goes_with(&self, other: &Self) -> bool {
        let (short, long) = if self.chain.len() < other.chain.len() { (self, other) } else { (other, self) };
        long.chain.starts_with(&short.chain)
    }
}

/// Whether `next` is `heir`'s key, signed by `old`, and may have issuers below it. Without that last rule the signing intermediate, whose
/// key is on control-plane hosts, could pass for the next CA.
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
    /// The CAs that follow one another without a break.
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

    /// What vouches for snapshots: the cluster's CA, one that takes or gives up its place, and those of before for what was taken in their time.
    pub fn snapshot_trust(&self) -> Trust {
        let own = (self.cluster.cert_pem(), None);
        let former = self.rotations.former.iter().map(|former| (former.public.cert_pem.as_str(), former.until_s));
        // An earlier hactl wrote no list of them.
        let turn = self.rotations.under_way.get(&Rotatable::ClusterCa).map(|turn| turn.other.public.as_str());
        let known = |pem: &str| self.rotations.former.iter().any(|former| former.public.cert_pem == pem);
        let turn = turn.filter(|pem| !known(pem)).map(|pem| (pem, None));
        Trust::new([own].into_iter().chain(former).chain(turn))
    }
}
