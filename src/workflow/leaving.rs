//! Hosts that the inventory does not name any more: who they are, how they are reached, and that they have left.
//!
//! In: the memory of who was taken in, and the names given with `--prune`. Out: hosts that are entered along with those of the inventory, and
//! hosts that are only told of.

use super::look::Round;
use super::{Failure, Places, State};
use crate::model::desired::{Desired, Host, Role};
use crate::model::names::HostName;
use crate::model::plan::Plan;
use std::collections::BTreeSet;

/// Whether somebody of the inventory is reached the same way: then that is the machine that would answer, and nobody else is there.
fn replaced(host: &Host, desired: &Desired) -> bool {
    let at = |h: &Host| (h.ssh.host.clone(), h.ssh.port, h.ssh.jump.clone());
    desired.hosts.iter().any(|other| other.address == host.address || at(other) == at(host))
}

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
    let known = state.known_hosts()?.into_iter().map(|known| known.host);
    let leaves = |h: &Host| prune.contains(&h.name) && desired.host(&h.name).is_none() && !replaced(h, desired);
    Ok(known.filter(leaves).collect())
}

/// Hosts that were taken in, are in the inventory no more, and that nobody let go.
pub(super) fn removed_hosts(state: &State, desired: &Desired) -> Result<Vec<Host>, Failure> {
    let gone = |name: &HostName| desired.entered().all(|h| &h.name != name);
    let known = state.known_hosts()?.into_iter().filter(|known| !known.left && gone(&known.host.name));
    Ok(known.map(|known| known.host).filter(|h| !replaced(h, desired)).collect())
}

/// Hosts that stay and were balancers when they were taken in last: one that is silent may have the endpoint's address still.
pub(super) fn balanced(state: &State, desired: &Desired) -> Result<BTreeSet<HostName>, Failure> {
    let no_more = |h: &Host| desired.host(&h.name).is_some_and(|now| !now.is(Role::LoadBalancer));
    let known = state.known_hosts()?.into_iter().map(|known| known.host);
    Ok(known.filter(|h| h.is(Role::LoadBalancer) && no_more(h)).map(|h| h.name).collect())
}

/// Notes who is part of the cluster, before any of them is changed. Once a recovery went back to a bundle, hosts that the inventory does not
/// name are taken for lost.
pub(super) fn note_taken_in(state: &State, desired: &Desired, look: &Round, plan: &Plan) -> Result<(), Failure> {
    let stamped = |h: &&Host| look.facts.host(&h.name).is_some_and(|f| f.stamp.is_some());
    let touched = |h: &&Host| plan.steps.iter().any(|step| step.action.host() == Some(&h.name));
    let hosts: Vec<&Host> = desired.hosts.iter().filter(|h| stamped(h) || touched(h)).collect();
    let past = state.past()?;
    let lost = if past.abandons() { removed_hosts(state, desired)? } else { Vec::new() };
    // Until there is a cluster it is the inventory's to say; then what is seen to be so, which the plan has compared.
    let bootstrapped = past.bootstrapped.is_some();
    if !hosts.is_empty() && (!bootstrapped || crate::plan::ranges_seen(&look.target, &look.facts)) {
        state.note_ranges(&desired.network, !bootstrapped)?;
    }
    state.note_hosts(&hosts, &lost.iter().map(|h| &h.name).collect::<Vec<_>>())
}

/// Notes that those who were to leave have left: nothing is to be done about them any more.
pub(super) fn note_left(state: &State, desired: &Desired) -> Result<(), Failure> {
    state.note_hosts(&[], &desired.leaving.iter().map(|h| &h.name).collect::<Vec<_>>())
}
