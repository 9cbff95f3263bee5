//! Which of the states that were found is the cluster's: by the CA in each, and by the CAs that it follows.
//!
//! Pure. In: what was opened, and the fingerprint that a person knows. Out: one, or a refusal with every fingerprint and who has it. A
//! state holds its CA's private key, so that nobody else can have made it; of two that cannot both be right a person chooses.

use crate::model::names::{Digest, HostName};
use crate::model::refusal::{CaClaim, Refusal};
use crate::statedir::{Carried, Lineage};
use std::collections::{BTreeMap, BTreeSet};

/// A state that was found and opened.
pub(super) struct Candidate {
    /// Where.
    pub from: String,
    /// It.
    pub carried: Carried,
    /// The CAs that its CA follows without a break.
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
    /// What it says of its CA.
    pub fn claim(&self) -> CaClaim {
        let (anchor, own) = (self.lineage.anchor(), self.carried.contents.cluster.fingerprint());
        CaClaim {
            ca: anchor.fingerprint(),
            now: (own != anchor).then(|| own.fingerprint()),
            from: vec![self.from.clone()],
        }
    }
    /// In words, for the person who is to know it.
    pub fn described(&self) -> String {
        let (anchor, own) = (self.lineage.anchor(), self.carried.contents.cluster.fingerprint());
        let founded = if self.lineage.is_whole() {
            format!("a cluster that was founded with the CA {}", anchor.fingerprint())
        } else {
            let founded = self.lineage.founded.fingerprint();
            format!(
                "a cluster that says it was founded with the CA {founded}; nothing shows that the CA {} follows it",
                anchor.fingerprint()
            )
        };
        let now = if own == anchor {
            String::new()
        } else {
            format!("; its CA today is {}, by an unbroken chain of signatures", own.fingerprint())
        };
        format!("{} has the state of {founded}{now}", self.from)
    }
}

/// The latest of them, where all are of one line.
///
/// # Errors
/// None of the CA that is wanted; several CAs, or two heirs of one.
pub(super) fn choose(found: Vec<Candidate>, wanted: Option<Digest>) -> Result<Candidate, Refusal> {
    let claims = |found: &[Candidate]| merged(found.iter().map(Candidate::claim));
    let all = claims(&found);
    let found: Vec<Candidate> = match wanted {
        Some(wanted) => found.into_iter().filter(|one| one.lineage.has(&wanted)).collect(),
        None => found,
    };
    let latest = found.iter().map(|one| (one.lineage.length(), one.stages())).enumerate();
    // The first of those that are equal.
    let at = latest.max_by_key(|(at, how_far)| (*how_far, std::cmp::Reverse(*at))).map(|(at, _)| at);
    let Some(at) = at else { return Err(Refusal::OtherCa { wanted, claims: all }) };
    let one_line = found.iter().all(|one| one.lineage.goes_with(&found[at].lineage));
    let mut found = found;
    if one_line { Ok(found.swap_remove(at)) } else { Err(Refusal::SeveralCas { claims: claims(&found) }) }
}

/// The same claim once, with all who make it.
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

/// Compares a state with the authorities that hosts live with; in words. `known`: a person gave the fingerprint, and what hosts show keeps
/// nobody from it.
///
/// # Errors
/// More hosts show other authorities than show these.
pub(super) fn judge_shown(
    chosen: &Candidate,
    shown: &BTreeMap<HostName, BTreeSet<Digest>>,
    known: bool,
) -> Result<String, Refusal> {
    let etcd = chosen.carried.contents.etcd.fingerprint();
    let some: Vec<_> = shown.iter().filter(|(_, cas)| !cas.is_empty()).collect();
    let agrees = |cas: &BTreeSet<Digest>| cas.iter().any(|ca| *ca == etcd || chosen.lineage.has(ca));
    let (agree, differ): (Vec<_>, Vec<_>) = some.iter().partition(|(_, cas)| agrees(cas));
    let names = |of: &[&(&HostName, &BTreeSet<Digest>)]| {
        of.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>().join(", ")
    };
    if !differ.is_empty() && differ.len() >= agree.len() && !known {
        let ca = chosen.lineage.anchor().fingerprint();
        return Err(Refusal::CaNotShown { ca, from: chosen.from.clone(), differ: names(&differ) });
    }
    Ok(match (agree.len(), differ.len()) {
        (0, 0) => "no etcd or control-plane host that answers has a CA to compare it with".to_owned(),
        (0, _) => format!("{} live with ANOTHER CA", names(&differ)),
        (_, 0) => format!("all {} etcd and control-plane hosts that answer and are not bare live with it", agree.len()),
        _ => format!("{} live with it, and {} with ANOTHER CA", names(&agree), names(&differ)),
    })
}

#[cfg(test)]
mod tests;
