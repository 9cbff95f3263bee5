//! Checks that each host is the one that the inventory names: a mistyped name or address would give one machine the
//! role of another. A person may confirm that, but not a name that leaves a Node behind or that another Node has.
//!
//! In: the identities of hosts of this cluster, the address of each when it joined, and the Nodes. Out: nothing, or a
//! refusal with both names. An identity without a host name was written by an earlier version: then an address that
//! belonged to another host is the evidence.

use super::conditions::Observed;
use crate::model::desired::Host;
use crate::model::facts::HostFacts;
use crate::model::names::HostName;
use crate::model::refusal::{Misnamed, Refusal};
use std::net::IpAddr;

/// Refuses a host that is another one, or another machine, unless a person reassigned it.
pub(super) fn judge(o: &Observed) -> Result<(), Refusal> {
    let asked = o.desired.hosts.iter().filter(|host| !o.intent.reassign.contains(&host.name));
    let misnamed = |host: &Host| other(o, host, o.facts.host(&host.name)?);
    let hosts: Vec<Misnamed> = asked.filter_map(misnamed).collect();
    if !hosts.is_empty() {
        return Err(Refusal::OtherHost { hosts });
    }
    let mut answered = o.desired.hosts.iter().filter_map(|host| Some((host, o.facts.host(&host.name)?)));
    answered.try_for_each(|(host, facts)| judge_name(o, host, facts))
}

/// Refuses a name that is new to a machine of the cluster whose Node would stay, and the name of a Node for which
/// another machine reports.
fn judge_name(o: &Observed, host: &Host, facts: &HostFacts) -> Result<(), Refusal> {
    let cluster_id = facts.cluster_id.as_ref().filter(|cluster_id| cluster_id.same_cluster(&o.intent.cluster_id));
    let was = cluster_id.and_then(|cluster_id| cluster_id.host.as_ref());
    if was == Some(&host.name) {
        return Ok(());
    }
    // If hosts exchange their names, the inventory has both, and no Node stays.
    if let Some(was) = was.filter(|was| o.desired.host(was).is_none() && o.registered(was)) {
        return Err(Refusal::Renamed { host: host.name.clone(), was: was.clone() });
    }
    let answered = || o.facts.hosts.values().filter_map(|answer| answer.as_ref().ok());
    let known = |at: IpAddr| answered().any(|facts| facts.addresses.iter().any(|has| has.address == at));
    match o.reports_from(&host.name).filter(|at| host.is_node() && !known(*at)) {
        Some(at) => Err(Refusal::NameInUse { host: host.name.clone(), at }),
        None => Ok(()),
    }
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
