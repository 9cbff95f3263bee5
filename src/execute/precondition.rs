//! Guards: what the planner assumed, checked against the living cluster just before a step disturbs it.

use super::act::{Actuator, failed};
use super::walk::StepError;
use crate::model::desired::Role;
use crate::model::facts::{Etcd, EtcdView, HostFacts, Members, Unreachable};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::Action;
use crate::model::refusal::Refusal;
use crate::observe::Answers;
use crate::protocol::{ObserveAsk, Op, Reply};
use crate::transport::Payload;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long one look at a member may take.
const LOOK: Duration = Duration::from_secs(12);
/// How long between two looks while waiting for the cluster to be able to bear a disturbance.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// How long looks may find that a step would not be safe until that is believed: longer than an election takes.
const ELECTION: Duration = Duration::from_secs(10);

async fn look(actuator: &Actuator, host: &HostName, api: bool) -> Result<HostFacts, Unreachable> {
    let unreachable = |why: String| Unreachable { why, hint: None };
    let machine = actuator.machines.get(host).ok_or_else(|| unreachable("not connected".to_owned()))?;
    let ask = ObserveAsk {
        etcd: actuator.queries.etcd(host),
        api: if api { actuator.queries.api(host) } else { None },
        ..ObserveAsk::default()
    };
    match machine.call(Op::Observe(Box::new(ask)), Payload::None, LOOK, &|_| {}).await {
        Ok(Reply::Facts(facts)) => Ok(*facts),
        Ok(_) => Err(unreachable("answered something else than was asked".to_owned())),
        Err(error) => Err(unreachable(error.to_string())),
    }
}

/// What holds of the members now, by a majority of them. One look may find a busy member silent, an election, or a change that not all have
/// seen: only what looks until the deadline find as well is believed to be wrong.
async fn until<T>(
    actuator: &Actuator,
    deadline: Instant,
    judge: impl Fn(&Members, &EtcdView) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    loop {
        let verdict = agreed(actuator).await.and_then(|(members, view)| judge(&members, &view));
        match verdict {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(BETWEEN_LOOKS).await,
            verdict => return verdict,
        }
    }
}

async fn members_now(actuator: &Actuator) -> Result<Members, Refusal> {
    agreed(actuator).await.map(|(members, _)| members)
}

/// The members that a majority agrees on, and what one says that speaks for it.
async fn agreed(actuator: &Actuator) -> Result<(Members, EtcdView), Refusal> {
    // Also who is to be no member any more, and is one still.
    let members = actuator.desired.entered().filter(|h| h.is(Role::Etcd) || actuator.queries.etcd(&h.name).is_some());
    let names: Vec<HostName> = members.map(|h| h.name.clone()).collect();
    let looks = futures::future::join_all(names.iter().map(|h| look(actuator, h, false))).await;
    let answers: Answers = names.into_iter().zip(looks).collect();
    let facts = crate::observe::assemble(&actuator.desired, &actuator.queries.known, answers, &[]);
    match (&facts.etcd, facts.living()) {
        (Etcd::HasQuorum(members), Some(view)) => Ok((members.clone(), view.clone())),
        (Etcd::Disputed(evidence), _) => Err(Refusal::Disputed { evidence: evidence.clone() }),
        (Etcd::NoQuorum(evidence), _) => Err(Refusal::NoQuorum { evidence: evidence.clone() }),
        (Etcd::HasQuorum(_) | Etcd::Uninitialized | Etcd::Bootstrapping { .. }, _) => {
            Err(Refusal::NoQuorum { evidence: vec![] })
        }
    }
}

/// The cluster that answers, by a majority of its members, and its revision; those that were only just started are waited for.
pub(super) async fn answers(actuator: &Actuator, timeout: Duration) -> Result<(String, i64), Refusal> {
    until(actuator, Instant::now() + timeout, |_, view| Ok((view.cluster.clone(), view.revision))).await
}

/// Who takes the lead from the member on a host right now: the one who is meant to if it is well, else another that is and stays.
pub(super) async fn heir(actuator: &Actuator, from: &HostName, to: Option<&PeerUrl>) -> Option<PeerUrl> {
    let now = members_now(actuator).await.ok()?;
    let well = |peer: &PeerUrl| now.0.get(peer).is_some_and(|m| m.healthy && !m.learner);
    let others =
        actuator.desired.with(Role::Etcd).filter(|h| &h.name != from).map(crate::model::desired::Host::peer_url);
    to.cloned().into_iter().chain(others).find(well)
}

/// Whether the member on a host leads others right now, as far as it can be asked.
pub(super) async fn leads(actuator: &Actuator, host: &HostName) -> bool {
    let facts = look(actuator, host, false).await;
    facts.is_ok_and(|f| f.etcd.and_then(|e| e.view).is_some_and(|v| v.leads() && v.has_peers()))
}

/// Whether the member on this host has a quorum behind it right now.
pub(super) async fn speaks(actuator: &Actuator, host: &HostName) -> bool {
    let facts = look(actuator, host, false).await;
    facts.is_ok_and(|f| f.etcd.and_then(|e| e.view).is_some_and(|v| v.linearizable))
}

/// The member list is exactly as forecast. That it could be read proves a quorum; a removal must leave one besides.
pub(super) async fn members_are(
    actuator: &Actuator,
    list: &BTreeMap<PeerUrl, bool>,
    action: &Action,
) -> Result<(), StepError> {
    let judge = |now: &Members, _: &EtcdView| {
        let shape = now.shape();
        let peers = list.keys().chain(shape.keys());
        if let Some(peer) = peers.into_iter().find(|p| list.get(*p) != shape.get(*p)) {
            return Err(Refusal::MembersChanged { peer: peer.clone() });
        }
        match action {
            Action::RemoveMember { peer } => now.without(peer).quorate(action),
            // Until its etcd has restarted, no member reaches it at the new URL.
            Action::MoveMember { from, to } => now.moved(from, to).quorate(action),
            _ => Ok(()),
        }
    };
    Ok(until(actuator, Instant::now() + ELECTION, judge).await?)
}

/// What a step is about to disturb on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbs {
    /// Its etcd member.
    Member,
    /// Its API server.
    ApiServer,
}

/// The cluster can bear the disturbance right now. What is only just coming back is waited for, within `timeout`.
pub(super) async fn tolerates(
    actuator: &Actuator,
    down: &HostName,
    what: Disturbs,
    timeout: Duration,
) -> Result<(), StepError> {
    let deadline = Instant::now() + timeout / 2;
    loop {
        let verdict = match what {
            Disturbs::Member => member_can_go(actuator, down).await,
            Disturbs::ApiServer => api_server_can_go(actuator, down).await,
        };
        match verdict {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => tokio::time::sleep(BETWEEN_LOOKS).await,
        }
    }
}

async fn member_can_go(actuator: &Actuator, down: &HostName) -> Result<(), StepError> {
    let now = members_now(actuator).await?;
    let peer = actuator.desired.host(down).map(crate::model::desired::Host::peer_url);
    let mine = peer.as_ref().and_then(|p| now.0.get(p)).is_some_and(|m| !m.learner && m.healthy);
    // A single member has nobody to stand in for it: restarting it is an interruption the person agreed to.
    if mine && now.voters() > 1 && now.connected(peer.as_ref()) < now.quorum() {
        return Err(now.would_lose_quorum(format!("restarting {down}"), peer.as_ref()).into());
    }
    Ok(())
}

async fn api_server_can_go(actuator: &Actuator, down: &HostName) -> Result<(), StepError> {
    let serves =
        |facts: Result<HostFacts, Unreachable>| facts.ok().and_then(|f| f.api).is_some_and(|a| a.own_trouble.is_none());
    let others: Vec<HostName> =
        actuator.desired.with(Role::ControlPlane).map(|h| h.name.clone()).filter(|h| h != down).collect();
    // One that is to have no API server any more is not asked about its own: whether others serve is what counts.
    let stays = actuator.desired.entered().any(|h| &h.name == down && h.is(Role::ControlPlane));
    if stays && (others.is_empty() || !serves(look(actuator, down, true).await)) {
        return Ok(());
    }
    let looks = futures::future::join_all(others.iter().map(|h| look(actuator, h, true))).await;
    if looks.into_iter().any(serves) {
        Ok(())
    } else {
        Err(failed(format!("no API server but the one on {down} is ready")))
    }
}
