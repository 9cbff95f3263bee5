//! Hosts that the inventory no longer names, and roles that it no longer gives: what the authority remembers of them.
//!
//! In: the hosts that ever joined. Out: those that left the inventory and were not removed, and those that may hold the VIP still.

use super::{Authority, Failure};
use crate::model::desired::{Desired, Host, Role};
use crate::model::names::HostName;
use std::collections::BTreeSet;

/// Whether somebody of the inventory is reached the same way: then that is the machine that would answer, and nobody else is there.
pub fn replaced(host: &Host, desired: &Desired) -> bool {
    let at = |h: &Host| (h.ssh.host.clone(), h.ssh.port, h.ssh.jump.clone());
    desired.hosts.iter().any(|other| other.address == host.address || at(other) == at(host))
}

/// Hosts that were taken in, are in the inventory no more, and that nobody let go.
///
/// # Errors
/// State that cannot be used.
pub fn removed_hosts(authority: &dyn Authority, desired: &Desired) -> Result<Vec<Host>, Failure> {
    let gone = |name: &HostName| desired.entered().all(|h| &h.name != name);
    let known = authority.known_hosts()?.into_iter().filter(|known| !known.left && gone(&known.host.name));
    Ok(known.map(|known| known.host).filter(|h| !replaced(h, desired)).collect())
}

/// Hosts that stay and were balancers when they were taken in last: one that is silent may have the endpoint's address still.
///
/// # Errors
/// State that cannot be used.
pub fn balanced(authority: &dyn Authority, desired: &Desired) -> Result<BTreeSet<HostName>, Failure> {
    let no_more = |h: &Host| desired.host(&h.name).is_some_and(|now| !now.is(Role::LoadBalancer));
    let known = authority.known_hosts()?.into_iter().map(|known| known.host);
    Ok(known.filter(|h| h.is(Role::LoadBalancer) && no_more(h)).map(|h| h.name).collect())
}
