//! The lead of etcd, handed over before this host reboots for a maintenance.
//!
//! In: the files of the guard of this host. Out: another member leads, or a sentence why not. While the lead moves, the
//! balancers in front of etcd pause on all hosts, as for `hactl up` (`execute/lead`): a write that a follower forwards
//! meanwhile would be lost, and its client would wait for 7 s.

use super::setup;
use crate::agent::{Root, heir, yield_lead};
use crate::model::desired::Role;
use crate::model::healing::{Mode, POLICY};
use crate::model::names::HostName;
use crate::model::units::etcd_balancer_unit;
use crate::protocol::{Balancing, Op, PAUSE_MS, PAUSED_WITHIN, RESUMED_WITHIN};
use crate::transport::{Agent, Payload};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a host may take to be reached. Without it, a write of its API server may wait.
const REACHED_WITHIN: Duration = Duration::from_secs(3);
/// How long all of it may take.
const ALTOGETHER: Duration = Duration::from_secs(15);
/// How long etcd may take.
const MOVES_WITHIN: Duration = Duration::from_secs(5);

/// Has another member lead if that of this host does. The host may reboot in any case. Returns whether that took time.
pub(super) async fn hand_over(root: &Root, own: &HostName, say: fn(&str)) -> bool {
    let handed = timeout(ALTOGETHER, handed_over(root, own)).await;
    match handed.unwrap_or_else(|_| Err(format!("its handover takes more than {} s", ALTOGETHER.as_secs()))) {
        Ok(false) => return false,
        Ok(true) => say("another member leads etcd before this host reboots"),
        Err(why) => say(&format!("etcd's leader stays on {own}: {why}; writes may wait for an election")),
    }
    true
}

/// Whether it had to.
async fn handed_over(root: &Root, own: &HostName) -> Result<bool, String> {
    if !root.own(POLICY).exists() {
        return Ok(false);
    }
    let (setup, identity) = setup::read(root, own).map_err(|error| error.to_string())?;
    let policy = &setup.policy;
    // Without repairs, hosts permit nothing to the guards of others.
    if policy.healing.mode != Mode::On || !setup.own.may_vote() {
        return Ok(false);
    }
    let Some(to) = heir(root, policy, &setup.own).await.map_err(|error| error.what)? else { return Ok(false) };
    let peers = setup.peers(&identity).map_err(|error| error.to_string())?;
    // Others permit guards nothing: a write by their API servers may wait.
    let balancers = policy.guards.iter().filter(|guard| guard.is(Role::ControlPlane) && guard.may_vote());
    let reached = balancers.map(async |guard| timeout(REACHED_WITHIN, peers.reach(&guard.name)).await.ok()?.ok());
    let agents: Vec<Arc<dyn Agent>> = join_all(reached).await.into_iter().flatten().collect();
    balance(&agents, &Balancing::Pause { most_ms: PAUSE_MS }, PAUSED_WITHIN).await;
    let moved = yield_lead(root, policy, to, MOVES_WITHIN).await;
    balance(&agents, &Balancing::Resume, RESUMED_WITHIN).await;
    join_all(agents.iter().map(|agent| agent.close())).await;
    moved.map(|()| true).map_err(|error| error.what)
}

/// Has all balancers do it that answer in time: the others end a pause by themselves, or forward on.
async fn balance(agents: &[Arc<dyn Agent>], how: &Balancing, within: Duration) {
    let stated = agents.iter().map(async |agent| {
        let op = Op::Balance { unit: etcd_balancer_unit(), how: how.clone() };
        drop(timeout(within, agent.call(op, Payload::None, within, &|_| {})).await);
    });
    join_all(stated).await;
}
