//! Hosts that are no longer in the inventory: how to reach them, and the record that they were removed.
//!
//! In: the hosts on record, and the names given with `--prune`. Out: hosts that hactl connects to beside those of the
//! inventory, and hosts that it only reports.

use super::{Failure, Places, State};
use crate::model::desired::{Desired, Host};
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::reconcile::{Round, removed_hosts, replaced};

/// Hosts that may be removed, as they are on record. A host without a record, or one whose address another host has
/// now, cannot be connected to; it is only removed from the cluster.
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

/// Records the hosts of the cluster before any of them is changed. After a recovery from a snapshot, hosts that are not
/// in the inventory are recorded as lost.
pub(super) fn note_taken_in(state: &State, desired: &Desired, round: &Round, plan: &Plan) -> Result<(), Failure> {
    let stamped = |h: &&Host| round.facts.host(&h.name).is_some_and(|f| f.cluster_id.is_some());
    let touched = |h: &&Host| plan.steps.iter().any(|step| step.action.host() == Some(&h.name));
    let hosts: Vec<&Host> = desired.hosts.iter().filter(|h| stamped(h) || touched(h)).collect();
    let past = state.past()?;
    let lost = if past.abandons() { removed_hosts(state, desired)? } else { Vec::new() };
    // Before the bootstrap the ranges of the inventory are recorded; later those observed, if they are the same.
    let bootstrapped = past.bootstrapped.is_some();
    if !hosts.is_empty() && (!bootstrapped || crate::plan::ranges_seen(&round.target, &round.facts)) {
        state.note_ranges(&desired.network, !bootstrapped)?;
    }
    state.note_hosts(&hosts, &lost.iter().map(|h| &h.name).collect::<Vec<_>>())
}

/// Records that the hosts to be removed were removed.
pub(super) fn note_left(state: &State, desired: &Desired) -> Result<(), Failure> {
    state.note_hosts(&[], &desired.leaving.iter().map(|h| &h.name).collect::<Vec<_>>())
}
