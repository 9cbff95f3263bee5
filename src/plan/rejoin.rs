//! The plan by which a host repairs its own etcd member: it rejoins with an empty disk. It may take over the vote of a
//! host that is gone, or remove the members of several.
//!
//! In: the etcd hosts and what their members are started from, the facts, and the host. Out: a plan that changes these
//! members and nothing else, or a refusal. The member is removed only by a plan that also makes it a voter again:
//! a member that is only removed leaves fewer, and tolerates no more failures than before.

use super::draft::{Draft, quorate};
use super::intent::Intent;
use super::reconcile_members::reconcile_members;
use super::votes::removable;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{Etcd, Facts, Members};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, Plan};
use crate::model::refusal::Refusal;
use crate::model::target::Target;
use std::collections::BTreeSet;

/// Why a guard does not repair a member.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRejoined {
    /// It would not be safe.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The host is none of etcd's.
    #[error("{0} has no etcd member by the policy of guards")]
    NoMember(HostName),
    /// A step is needed that only `up` takes.
    #[error("{why}; `hactl up` does it")]
    NeedsUp {
        /// The step, or what it waits for.
        why: String,
    },
}

/// The plan; an empty one if the member needs no repair.
///
/// # Errors
/// Why there is none.
pub fn rejoin(
    desired: &Desired,
    target: &Target,
    facts: &Facts,
    intent: &Intent,
    host: &HostName,
) -> Result<Plan, NotRejoined> {
    let member = desired.host(host).filter(|host| host.is(Role::Etcd));
    let member = member.ok_or_else(|| NotRejoined::NoMember(host.clone()))?;
    let replaced: Vec<&Host> = desired.hosts.iter().filter(|h| h.standby && facts.host(&h.name).is_none()).collect();
    let intent = Intent {
        limit: Some([host.clone()].into()),
        prune: replaced.iter().map(|host| host.name.clone()).collect(),
        ..intent.clone()
    };
    let mut draft = Draft::new(desired, target, facts, &intent)?;
    let members = with_quorum(&facts.etcd)?;
    let hosts = draft.reachable_with(Role::Etcd);
    draft.join(reconcile_members(&draft, &hosts, members)?);
    let plan = draft.finish();
    if let Some(why) = plan.blocked.first() {
        return Err(NotRejoined::NeedsUp { why: why.clone() });
    }
    if let Some(step) = plan.steps.iter().find(|step| !is_of_rejoining(&step.action, member, &replaced)) {
        return Err(NotRejoined::NeedsUp { why: format!("it also takes \"{}\"", step.action) });
    }
    let voter = Condition::Voter(member.peer_url());
    let changes = plan.changes_members();
    if changes && !plan.steps.iter().any(|step| step.provides == voter) {
        return Err(NotRejoined::NeedsUp { why: format!("nothing would make the member of {host} a voter again") });
    }
    quorate(&plan)?;
    Ok(plan)
}

/// The plan that removes the members of hosts that are gone, and changes nothing else; an empty one if fewer of them are
/// gone than it takes to tolerate more failures.
///
/// # Errors
/// Why there is none.
pub fn remove_gone(
    desired: &Desired,
    target: &Target,
    facts: &Facts,
    intent: &Intent,
    gone: &[HostName],
) -> Result<Plan, NotRejoined> {
    let is_gone = |host: &Host| gone.contains(&host.name) && facts.host(&host.name).is_none();
    let mut left = desired.clone();
    left.hosts.iter_mut().filter(|host| is_gone(host)).for_each(|host| host.roles.retain(|role| *role != Role::Etcd));
    let intent = Intent { limit: Some(BTreeSet::new()), prune: gone.to_vec(), ..intent.clone() };
    let mut draft = Draft::new(&left, target, facts, &intent)?;
    let members = with_quorum(&facts.etcd)?;
    let there = gone.iter().filter_map(|name| desired.host(name)).filter(|host| is_gone(host));
    let listed = there.filter(|host| members.0.get(&host.peer_url()).is_some_and(|member| !member.learner)).count();
    if removable(members.voters(), listed) != listed {
        return Ok(Plan::default());
    }
    let hosts = draft.reachable_with(Role::Etcd);
    draft.join(reconcile_members(&draft, &hosts, members)?);
    let plan = draft.finish();
    let peers: Vec<_> = desired.hosts.iter().filter(|host| is_gone(host)).map(Host::peer_url).collect();
    let removes = |action: &Action| matches!(action, Action::RemoveMember { peer } if peers.contains(peer));
    if let Some(step) = plan.steps.iter().find(|step| !removes(&step.action)) {
        return Err(NotRejoined::NeedsUp { why: format!("it also takes \"{}\"", step.action) });
    }
    quorate(&plan)?;
    Ok(plan)
}

fn with_quorum(etcd: &Etcd) -> Result<&Members, Refusal> {
    match etcd {
        Etcd::HasQuorum(members) => Ok(members),
        Etcd::Disputed(evidence) => Err(Refusal::Disputed { evidence: evidence.clone() }),
        Etcd::NoQuorum(evidence) => Err(Refusal::NoQuorum { evidence: evidence.clone() }),
        Etcd::Uninitialized | Etcd::Bootstrapping { .. } => Err(Refusal::NoQuorum { evidence: vec![] }),
    }
}

/// Whether an action belongs to the repair of this host's member, which may take over the vote of one of these.
fn is_of_rejoining(action: &Action, member: &Host, replaced: &[&Host]) -> bool {
    let peer = member.peer_url();
    match action {
        Action::RemoveMember { peer: of } if replaced.iter().any(|host| host.peer_url() == *of) => true,
        Action::RemoveMember { peer: of } | Action::AddLearner { peer: of } | Action::Promote { peer: of } => {
            *of == peer
        }
        Action::ArchiveData { host }
        | Action::StartMember { host, .. }
        | Action::Seal { host }
        | Action::MoveLeader { host, .. } => *host == member.name,
        _ => false,
    }
}
