//! Chooses the cluster's state among those that were found, by the CA in each and the CAs that it succeeds.
//!
//! Pure. In: the decrypted states, and the fingerprint that a person knows. Out: one state, or a refusal with every
//! fingerprint and its sources. A state contains the private key of its CA, so only an owner of that key can have made
//! it; a person chooses between two that contradict each other.

use crate::model::names::{Digest, HostName};
use crate::model::refusal::{CaClaim, Refusal};
use crate::statedir::{Carried, Lineage};
use std::collections::{BTreeMap, BTreeSet};

/// A state that was found and opened.
pub(super) struct Candidate {
    /// Where it was found.
    pub from: String,
    /// Its content.
    pub carried: Carried,
    /// The CAs that its CA succeeds without a gap.
    pub lineage: Lineage,
}

impl Candidate {
    pub fn of(from: String, carried: Carried) -> Self {
        let lineage = carried.contents.lineage();
        Self { from, carried, lineage }
    }
    fn stages(&self) -> u64 {
        self.carried.contents.rotations.stages
    }
    /// Its CA and source.
    pub fn claim(&self) -> CaClaim {
        let (anchor, own) = (self.lineage.anchor(), self.carried.contents.cluster.fingerprint());
        let now = (own != anchor).then(|| own.fingerprint());
        CaClaim { ca: anchor.fingerprint(), now, from: vec![self.from.clone()] }
    }
    /// A description, for the person who has to confirm it.
    pub fn described(&self) -> String {
        let (anchor, own) = (self.lineage.anchor(), self.carried.contents.cluster.fingerprint());
        let founded = if self.lineage.is_whole() {
            format!("a cluster that was bootstrapped with the CA {}", anchor.fingerprint())
        } else {
            let (founded, anchor) = (self.lineage.founded.fingerprint(), anchor.fingerprint());
            format!(
                "a cluster that claims to be bootstrapped with the CA {founded}; no signature links the CA {anchor} to it"
            )
        };
        let now = if own == anchor {
            String::new()
        } else {
            format!("; its current CA is {}, linked by an unbroken chain of signatures", own.fingerprint())
        };
        format!("{} has the state of {founded}{now}", self.from)
    }
}

/// The latest state, if all have the same chain of CAs.
///
/// # Errors
/// No state has the wanted CA; there are several CAs, or two successors of one.
pub(super) fn choose(mut found: Vec<Candidate>, wanted: Option<Digest>) -> Result<Candidate, Refusal> {
    let claims = |found: &[Candidate]| merged(found.iter().map(Candidate::claim));
    let all = claims(&found);
    found.retain(|one| wanted.is_none_or(|wanted| one.lineage.has(&wanted)));
    let latest = found.iter().map(|one| (one.lineage.length(), one.stages())).enumerate();
    // The first of equal ones.
    let at = latest.max_by_key(|(at, how_far)| (*how_far, std::cmp::Reverse(*at))).map(|(at, _)| at);
    let Some(at) = at else { return Err(Refusal::OtherCa { wanted, claims: all }) };
    let one_line = found.iter().all(|one| one.lineage.goes_with(&found[at].lineage));
    if one_line { Ok(found.swap_remove(at)) } else { Err(Refusal::SeveralCas { claims: claims(&found) }) }
}

/// Merges equal claims and their sources.
fn merged(claims: impl Iterator<Item = CaClaim>) -> Vec<CaClaim> {
    let mut all: Vec<CaClaim> = Vec::new();
    for claim in claims {
        match all.iter_mut().find(|known| (&known.ca, &known.now) == (&claim.ca, &claim.now)) {
            Some(known) => known.from.extend(claim.from),
            None => all.push(claim),
        }
    }
    all
}

/// Compares a state with the CAs on the hosts, in words. `known`: a person gave the fingerprint, so other CAs on hosts
/// are no reason to refuse.
///
/// # Errors
/// Not more hosts have the CAs of the state than have others.
pub(super) fn judge_shown(
    chosen: &Candidate,
    shown: &BTreeMap<HostName, BTreeSet<Digest>>,
    known: bool,
) -> Result<String, Refusal> {
    let etcd = chosen.carried.contents.etcd.fingerprint();
    let some: Vec<_> = shown.iter().filter(|(_, cas)| !cas.is_empty()).collect();
    let agrees = |cas: &BTreeSet<Digest>| cas.iter().any(|ca| *ca == etcd || chosen.lineage.has(ca));
    let (agree, differ): (Vec<_>, Vec<_>) = some.iter().partition(|(_, cas)| agrees(cas));
    let names = |of: &[&(&HostName, _)]| of.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>().join(", ");
    if !differ.is_empty() && differ.len() >= agree.len() && !known {
        let ca = chosen.lineage.anchor().fingerprint();
        return Err(Refusal::CaNotShown { ca, from: chosen.from.clone(), differ: names(&differ) });
    }
    Ok(match (agree.len(), differ.len()) {
        (0, 0) => "no etcd or control-plane host that answers has a CA to compare it with".to_owned(),
        (0, _) => format!("hosts with ANOTHER CA: {}", names(&differ)),
        (_, 0) => format!("all {} etcd and control-plane hosts that answer and are not bare have this CA", agree.len()),
        _ => format!("hosts with this CA: {}; hosts with ANOTHER CA: {}", names(&agree), names(&differ)),
    })
}

#[cfg(test)]
mod tests;
