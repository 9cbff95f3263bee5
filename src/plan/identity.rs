//! Checks that each host is the one that the inventory names: a mistyped name or address would give one machine the
//! role of another.
//!
//! In: the identities of hosts of this cluster, and the address of each when it joined. Out: nothing, or a refusal with
//! both names. An identity without a host name was written by an earlier version: then an address that belonged to
//! another host is the evidence.

use super::conditions::Observed;
use crate::model::desired::Host;
use crate::model::facts::HostFacts;
use crate::model::names::HostName;
use crate::model::refusal::{Misnamed, Refusal};

/// Refuses a host that is another one, or another machine, unless a person reassigned it.
pub(super) fn judge(o: &Observed) -> Result<(), Refusal> {
    let asked = o.desired.hosts.iter().filter(|host| !o.intent.reassign.contains(&host.name));
    let misnamed = |host: &Host| other(o, host, o.facts.host(&host.name)?);
    let hosts: Vec<Misnamed> = asked.filter_map(misnamed).collect();
    if hosts.is_empty() { Ok(()) } else { Err(Refusal::OtherHost { hosts }) }
}

/// The evidence that this is another host or another machine; `None`: there is none.
fn other(o: &Observed, host: &Host, facts: &HostFacts) -> Option<Misnamed> {
    let is = |is: Option<&HostName>| {
        let (address, is) = (host.address, is.cloned());
        Some(Misnamed { host: host.name.clone(), address, is })
    };
    let cluster_id = facts.cluster_id.as_ref().filter(|cluster_id| cluster_id.same_cluster(&o.intent.cluster_id))?;
    match (&cluster_id.host, &cluster_id.machine) {
        (Some(name), _) if name != &host.name => is(Some(name)),
        (_, Some(machine)) if !facts.machine_id.is_empty() && machine != &facts.machine_id => is(None),
        (Some(_), _) => None,
        (None, _) => {
            let known = &o.intent.remembered;
            let there = known.iter().find(|(name, at)| **at == host.address && *name != &host.name);
            there.filter(|_| known.get(&host.name) != Some(&host.address)).and_then(|(name, _)| is(Some(name)))
        }
    }
}
