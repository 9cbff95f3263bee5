//! `hactl maintain reboot` of many Nodes: an object NodeMaintenanceRollout, on which the guards act.
//!
//! In: a session whose API servers answer, what a person asks for, and consent. Out: how far the rollout was brought. It
//! goes on if this process ends.

use super::maintain::{Api, api, listed, reconnected, unusable, waits_for_resume};
use super::{Failure, Session};
use crate::controllers::{Elected, MaintenanceError, node_view, now_ms, soon};
use crate::kube::{Client, KubeError};
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::maintenance::{Maintenance, State};
use crate::model::names::HostName;
use crate::model::rollout::{Rollout, RolloutState, RolloutWanted};
use crate::plan::maintain::{Next, Station, next};
use crate::reconcile::{Ask, Choices};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NODES: &str = "/api/v1/nodes";
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Without an answer of an API server for so long, it is not followed any more.
const UNHEARD: Duration = Duration::from_secs(120);
/// How long the Nodes of a rollout that is called off may take to be restored.
const RESTORED_WITHIN: Duration = Duration::from_secs(120);

/// How far a rollout was brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolledOut {
    /// The guards act on it; later, if there is a reason.
    Accepted(Option<String>),
    /// So many Nodes are done.
    Completed(String),
}

fn station(session: &Session, name: &HostName) -> Station {
    match session.desired.host(name) {
        Some(host) if host.is(Role::Etcd) || host.is(Role::ControlPlane) => Station::ControlPlane,
        Some(host) if host.is(Role::LoadBalancer) => Station::Balancer,
        _ => Station::Worker,
    }
}

/// What a rollout would do now.
///
/// # Errors
/// See [`Failure`].
pub async fn would_roll_out(
    session: &Session,
    (name, named, wanted): (&str, &[HostName], &RolloutWanted),
) -> Result<Next, Failure> {
    let client = api(session).await?;
    Ok(planned(session, &client, (name, named, wanted)).await?)
}

async fn planned(
    session: &Session,
    client: &Client,
    (name, named, wanted): (&str, &[HostName], &RolloutWanted),
) -> Result<Next, MaintenanceError> {
    let mut nodes = BTreeMap::new();
    client.each(NODES, |object| nodes.extend(node_view(object, |name| station(session, name))), soon()).await?;
    if let Some(missing) = named.iter().find(|name| !nodes.contains_key(*name)) {
        return Err(MaintenanceError::NoNode(missing.clone()));
    }
    let found = next((name, wanted), &nodes, (&BTreeMap::new(), &BTreeSet::new()), now_ms());
    if found.counts.selected == 0 { Err(MaintenanceError::NoneSelected) } else { Ok(found) }
}

/// Creates a rollout, and follows it until it is complete. Without `waits`, it is left to the guards.
///
/// # Errors
/// See [`Failure`].
pub async fn roll_out(
    session: &Session,
    (name, named, wanted, waits): (&str, &[HostName], &RolloutWanted, bool),
    (choices, ask): (&Choices, &dyn Ask),
    shows: &dyn Fn(&Next),
) -> Result<RolledOut, Failure> {
    let client = api(session).await?;
    if client.rollouts(soon()).await.map_err(unusable)?.is_none() {
        return Err(MaintenanceError::NotServed.into());
    }
    if waits_for_resume(&client).await? {
        return Err(MaintenanceError::Recovered.into());
    }
    let Some(elected) = Elected::look(&client, None).await.map_err(unusable)? else {
        return Err(MaintenanceError::NoGuard.into());
    };
    let found = planned(session, &client, (name, named, wanted)).await?;
    shows(&found);
    if !choices.yes {
        let nodes = found.counts.selected;
        ask.yes(&format!("Drain and reboot these {nodes} Nodes?"), &format!("the reboot of {nodes} Nodes"))?;
    }
    match client.begin_rollout(name, wanted, soon()).await {
        Err(error) if error.is_conflict() => return Err(MaintenanceError::RolloutExists(name.to_owned()).into()),
        outcome => outcome.map_err(unusable)?,
    }
    // A person does not have to stay for that.
    let each = || wanted.approves_each.then(|| "each Node waits for its own approval".to_owned());
    let later = wanted.closed(name, now_ms()).map(|closed| closed.why).or_else(each);
    if !waits || later.is_some() {
        return Ok(RolledOut::Accepted(later));
    }
    session.sink.note(format!("the {} acts on the rollout {name}", elected.name()));
    follow(session, client, (name, elected)).await
}

async fn follow(
    session: &Session,
    mut client: Api,
    (name, mut elected): (&str, Elected),
) -> Result<RolledOut, Failure> {
    let (mut shown, mut waits, mut heard) = (BTreeMap::new(), Vec::new(), Instant::now());
    loop {
        match looked(&client, name, &mut elected).await {
            Ok(Looked::Gone) => return Err(MaintenanceError::CalledOff(name.to_owned()).into()),
            Ok(Looked::Left) => {
                session.sink.note(format!(
                    "the rollout {name} goes on when a guard acts; `hactl maintain cancel {name}` calls it off"
                ));
                return Err(MaintenanceError::NoGuard.into());
            }
            Ok(Looked::Is(rollout, children)) => {
                heard = Instant::now();
                for one in &children {
                    show(session, one, &mut shown);
                }
                if rollout.waits_for != waits && rollout.state != Some(RolloutState::Completed) {
                    rollout
                        .waits_for
                        .iter()
                        .filter(|why| !waits.contains(*why))
                        .for_each(|why| session.sink.note(why.clone()));
                    waits.clone_from(&rollout.waits_for);
                }
                let closed = rollout.wanted.closed(name, now_ms());
                match rollout.state {
                    Some(RolloutState::Waiting) if closed.is_some() => {
                        return Ok(RolledOut::Accepted(closed.map(|closed| closed.why)));
                    }
                    Some(RolloutState::Completed) => return Ok(RolledOut::Completed(rollout.progress)),
                    Some(RolloutState::Stopped) => {
                        let why = rollout.waits_for.first().cloned().unwrap_or_default();
                        return Err(MaintenanceError::Stopped { name: name.to_owned(), why }.into());
                    }
                    _ => session
                        .sink
                        .emit(Event::Waiting { step: 0, on: format!("{} Nodes are done", rollout.progress) }),
                }
            }
            // The hosts of API servers reboot as well.
            Err(KubeError::Unreachable { .. } | KubeError::TimedOut { .. }) if heard.elapsed() < UNHEARD => {
                if let Ok(other) = reconnected(session).await {
                    client = other;
                }
            }
            Err(error) => return Err(unusable(error)),
        }
        tokio::select! {
            () = sleep(LOOK_EVERY) => {}
            () = session.stop.cancelled() => {
                session.sink.note(format!("the guards go on; `hactl maintain cancel {name}` calls the rollout off"));
                return Err(MaintenanceError::Interrupted.into());
            }
        }
    }
}

/// What a look at a rollout found.
enum Looked {
    /// It and its maintenances.
    Is(Box<Rollout>, Vec<Maintenance>),
    /// It does not exist any more.
    Gone,
    /// No guard acts on it any more.
    Left,
}

async fn looked(client: &Client, name: &str, elected: &mut Elected) -> Result<Looked, KubeError> {
    if !elected.acts(client).await? {
        return Ok(Looked::Left);
    }
    let Some(rollout) = client.rollout(name, soon()).await? else { return Ok(Looked::Gone) };
    let (all, _) = client.maintenances(soon()).await?.unwrap_or_default();
    let own = all.into_iter().filter(|one| one.name == rollout.child(&one.wanted.node)).collect();
    Ok(Looked::Is(Box::new(rollout), own))
}

/// Says what is new of a Node.
fn show(session: &Session, one: &Maintenance, shown: &mut BTreeMap<HostName, State>) {
    let Some(state) = one.state.filter(|state| shown.get(&one.wanted.node) != Some(state)) else { return };
    let node = &one.wanted.node;
    shown.insert(node.clone(), state);
    match state {
        State::Draining => session.sink.note(format!("{node}: its pods leave")),
        State::Rebooting => session.sink.note(format!("{node} reboots")),
        State::Completed => session.sink.note(format!("{node} is ready and restored")),
        // The rollout says why.
        State::Idle | State::Waiting | State::Cordoned | State::Drained | State::Completing => {}
        State::Blocked | State::Overdue | State::Failed => {}
    }
}

/// Has no other Node of a rollout begin, or lets the next one; returns the rollout as it was.
///
/// # Errors
/// See [`Failure`].
pub async fn pause_rollout(session: &Session, name: &HostName, paused: bool) -> Result<Rollout, Failure> {
    let client = api(session).await?;
    let found = client.rollout(name.as_str(), soon()).await.map_err(unusable)?;
    let found = found.ok_or_else(|| MaintenanceError::NoRollout(name.to_string()))?;
    client.pause_rollout(&found, paused, soon()).await.map_err(unusable)?;
    Ok(found)
}

/// Calls a rollout off: its object and its maintenances are deleted, and their Nodes restored.
pub(super) async fn cancel_rollout(session: &Session, client: &Client, of: &Rollout) -> Result<(), Failure> {
    client.delete_rollout(of, soon()).await.map_err(unusable)?;
    session.sink.phase(format!("the Nodes of {} are restored", of.name));
    let until = Instant::now() + RESTORED_WITHIN;
    loop {
        let (all, _) = listed(client).await?;
        let Some(one) = all.iter().find(|one| one.name == of.child(&one.wanted.node)) else { return Ok(()) };
        if Instant::now() >= until {
            return Err(MaintenanceError::NotRestored(one.wanted.node.clone()).into());
        }
        if session.stop.is_cancelled() {
            return Err(MaintenanceError::Interrupted.into());
        }
        sleep(LOOK_EVERY).await;
    }
}
