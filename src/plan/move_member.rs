//! A member moves with its data: its host has another address, or its disk is in another host.
//!
//! In: data on a host whose peer URL is not in the member list. Out: the member gets the new peer URL under its own id,
//! and is started where its data is. No data is copied or lost.

use super::draft::Draft;
use super::etcd::{etcd_fact, ready_to_start};
use super::reconcile_members::{Chain, Change, balancers_first, change};
use crate::model::desired::Host;
use crate::model::facts::{Members, UnitFact};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Condition, HowToRun, InitialClusterState};
use crate::model::refusal::Refusal;
use crate::model::units::etcd_unit;
use std::collections::BTreeSet;

/// Where the data on a host comes from whose peer URL is not in the member list.
pub(super) enum Moved {
    /// It is the member of this peer URL, and no other process runs that member.
    From(PeerUrl),
    /// It is a member whose own host may come back with a copy.
    Doubtful,
}

/// Whether the data on a host is of a member with another peer URL: the host has another address, or the disk is from a
/// host that is gone. Two processes must never share one vote.
pub(super) fn moved(d: &Draft, host: &Host, members: &Members) -> Option<Moved> {
    let fact = etcd_fact(d, &host.name).filter(|e| e.data)?;
    if members.0.contains_key(&host.peer_url()) || d.intent.prune.contains(&host.name) {
        return None;
    }
    let (cluster, id) = match (&fact.view, &fact.disk) {
        (Some(view), _) => (&view.cluster, view.member),
        (None, Some(disk)) => (&disk.cluster, disk.member),
        (None, None) => return None,
    };
    let (from, member) = members.0.iter().find(|(_, m)| m.id == id)?;
    if d.facts.living_cluster() != Some(cluster) {
        return None;
    }
    let own = member.name == host.name.as_str();
    // Named with --prune, no longer in the inventory, and unreachable: then its disk was moved here.
    let left = |name: &HostName| {
        d.desired.host(name).is_none() && d.intent.prune.contains(name) && d.facts.leaver(name).is_none()
    };
    let runs_here = fact.view.is_some();
    let inherited = !member.healthy && member.name.parse().is_ok_and(|name| left(&name));
    Some(if own && (runs_here || !member.healthy) || inherited { Moved::From(from.clone()) } else { Moved::Doubtful })
}

/// Members whose data is on a host with another address than the member list has. Their peer URLs are changed one after
/// the other, and each member must run before the next is moved.
pub(super) fn move_member(
    d: &Draft,
    chain: &mut Chain,
    hosts: &[Host],
    members: &Members,
) -> Result<BTreeSet<HostName>, Refusal> {
    let mut followed = BTreeSet::new();
    for host in hosts {
        let Some(Moved::From(from)) = moved(d, host, members) else { continue };
        if !d.may_change(&host.name) {
            continue;
        }
        let (to, requires) = (host.peer_url(), ready_to_start(d, &host.name));
        change(chain, &from, Change::Move(to.clone()), format!("its data is on {} now", host.name), requires)?;
        let unit = d.facts.host(&host.name).and_then(|f| f.units.get(&etcd_unit()));
        let mut requires = ready_to_start(d, &host.name);
        requires.push(Condition::Listed(to.clone()));
        let started = if unit.is_some_and(UnitFact::runs_or_starts) {
            requires.extend(balancers_first(d));
            let action = Action::RunUnit { host: host.name.clone(), unit: etcd_unit(), how: HowToRun::Restart };
            chain.steps.must(action, "it still uses its previous peer URL", requires).provides()
        } else {
            let action = Action::StartMember { host: host.name.clone(), state: InitialClusterState::Restart };
            chain.steps.must(action, "its peer URL is current, and it does not run", requires).provides()
        };
        if let Some(member) = chain.list.0.get_mut(&to) {
            member.healthy = true;
        }
        chain.steps.members = Some(chain.list.clone());
        chain.woken.push(started.clone());
        chain.last = Some(started);
        followed.insert(host.name.clone());
    }
    Ok(followed)
}
