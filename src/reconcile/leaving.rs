//! Hosts that are no longer in the inventory, and hosts that lost a role, according to the records.
//!
//! In: all hosts that ever joined. Out: those that left the inventory and were not removed, and those that may still
//! hold the VIP.

use super::{Authority, Failure};
use crate::model::desired::{Desired, Host, Role};
use crate::model::names::HostName;
use std::collections::BTreeSet;

/// Whether a host of the inventory has the same address or SSH target: then that host would answer instead.
pub fn replaced(host: &Host, desired: &Desired) -> bool {
    let at = |h: &Host| (h.ssh.host.clone(), h.ssh.port, h.ssh.jump.clone());
    desired.hosts.iter().any(|other| other.address == host.address || at(other) == at(host))
}

/// Hosts that joined, are no longer in the inventory, and were not removed.
///
/// # Errors
/// The state cannot be used.
pub fn removed_hosts(authority: &dyn Authority, desired: &Desired) -> Result<Vec<Host>, Failure> {
    let gone = |name: &HostName| desired.entered().all(|h| &h.name != name);
    let known = authority.known_hosts()?.into_iter().filter(|known| !known.left && gone(&known.host.name));
    Ok(known.map(|known| known.host).filter(|h| !replaced(h, desired)).collect())
}

/// Hosts of the inventory that were load balancers on record: an unreachable one may still hold the endpoint's address.
///
/// # Errors
/// The state cannot be used.
pub fn balanced(authority: &dyn Authority, desired: &Desired) -> Result<BTreeSet<HostName>, Failure> {
    let no_more = |h: &Host| desired.host(&h.name).is_some_and(|now| !now.is(Role::LoadBalancer));
    let known = authority.known_hosts()?.into_iter().map(|known| known.host);
    Ok(known.filter(|h| h.is(Role::LoadBalancer) && no_more(h)).map(|h| h.name).collect())
}
