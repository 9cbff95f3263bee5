//! Whether each host is the one that the inventory calls it: a name or an address that was mistyped would move what one machine is to another.
//!
//! In: the stamps of hosts of this cluster, and where each was when it was taken in. Out: nothing, or a refusal with both names. A stamp that
//! does not say which host it is was written by an earlier version: then the address that another host had speaks against it.

use super::draft::Draft;
use crate::model::desired::Host;
use crate::model::facts::HostFacts;
use crate::model::names::HostName;
use crate::model::refusal::{Misnamed, Refusal};

/// Refuses where a host is another one, or another machine, and nobody said that this is meant.
pub(super) fn judge(d: &Draft) -> Result<(), Refusal> {
    let asked = d.desired.hosts.iter().filter(|host| !d.intent.reassign.contains(&host.name));
    let misnamed = |host: &Host| other(d, host, d.host_facts(&host.name)?);
    let hosts: Vec<Misnamed> = asked.filter_map(misnamed).collect();
    if hosts.is_empty() { Ok(()) } else { Err(Refusal::OtherHost { hosts }) }
}

/// That this is another host, or another machine; `None`: nothing speaks against it.
fn other(d: &Draft, host: &Host, facts: &HostFacts) -> Option<Misnamed> {
    let is = |is: Option<&HostName>| {
        let (address, is) = (host.address, is.cloned());
        Some(Misnamed { host: host.name.clone(), address, is })
    };
    let stamp = facts.stamp.as_ref().filter(|stamp| stamp.same_cluster(&d.intent.stamp))?;
    match (&stamp.host, &stamp.machine) {
        (Some(name), _) if name != &host.name => is(Some(name)),
        (_, Some(machine)) if !facts.machine_id.is_empty() && machine != &facts.machine_id => is(None),
        (Some(_), _) => None,
        (None, _) => {
            let known = &d.intent.remembered;
            let there = known.iter().find(|(name, at)| **at == host.address && *name != &host.name);
            there.filter(|_| known.get(&host.name) != Some(&host.address)).and_then(|(name, _)| is(Some(name)))
        }
    }
}
