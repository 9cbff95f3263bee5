//! Hosts that the inventory does not name any more: who they are, how they are reached, and that they have left.
//!
//! In: the memory of who was taken in, and the names given with `--prune`. Out: hosts that are entered along with those of the inventory, and
//! hosts that are only told of.

use super::{Failure, Places, State};
use crate::model::desired::{Desired, Host};
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::reconcile::{Round, removed_hosts, replaced};

/// Hosts that may leave, as they were taken in. One that nobody remembers, and one whose place another has taken, cannot be entered: they are
/// dealt with from the cluster's side alone.
///
/// # Errors
/// State that cannot be used.
pub fn leaving(places: &Places, desired: &Desired, prune: &[HostName]) -> Result<Vec<Host>, Failure> {
    if prune.is_empty() {
        return Ok(Vec::new());
    }
    let Some(state) = State::open(&places.state, &desired.cluster)? else { return Ok(Vec::new()) };
    let known = state.known()?.into_iter().map(|known| known.host);
    let leaves = |h: &Host| prune.contains(&h.name) && desired.host(&h.name).is_none() && !replaced(h, desired);
    Ok(known.filter(leaves).collect())
}

/// Notes who is part of the cluster, before any of them is changed. Once a recovery went back to a bundle, hosts that the inventory does not
/// name are taken for lost.
pub(super) fn note_taken_in(state: &State, desired: &Desired, round: &Round, plan: &Plan) -> Result<(), Failure> {
    let stamped = |h: &&Host| round.facts.host(&h.name).is_some_and(|f| f.stamp.is_some());
    let touched = |h: &&Host| plan.steps.iter().any(|step| step.action.host() == Some(&h.name));
    let hosts: Vec<&Host> = desired.hosts.iter().filter(|h| stamped(h) || touched(h)).collect();
    let past = state.past()?;
    let lost = if past.abandons() { removed_hosts(state, desired)? } else { Vec::new() };
    // Until there is a cluster it is the inventory's to say; then what is seen to be so, which the plan has compared.
    let bootstrapped = past.bootstrapped.is_some();
    if !hosts.is_empty() && (!bootstrapped || crate::plan::ranges_seen(&round.target, &round.facts)) {
        state.note_ranges(&desired.network, !bootstrapped)?;
    }
    state.note_hosts(&hosts, &lost.iter().map(|h| &h.name).collect::<Vec<_>>())
}

/// Notes that those who were to leave have left: nothing is to be done about them any more.
pub(super) fn note_left(state: &State, desired: &Desired) -> Result<(), Failure> {
    state.note_hosts(&[], &desired.leaving.iter().map(|h| &h.name).collect::<Vec<_>>())
}
