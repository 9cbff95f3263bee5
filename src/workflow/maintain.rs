//! `hactl maintain`: takes a worker out of service and back, by an object NodeMaintenance.
//!
//! In: a session whose API servers answer, what a person asks for, and consent. Out: how far the maintenance was
//! brought. This process acts on it, as the only one in the cluster; if it is interrupted, the same command continues.

use super::{Failure, Session};
use crate::controllers::{Controller, Ended, MaintenanceError};
use crate::execute::{ApiClient, Draining};
use crate::kube::KubeError;
use crate::model::cordon::Holder;
use crate::model::desired::Role;
use crate::model::maintenance::{DrainPreview, Maintenance, Stage, State, Wanted};
use crate::model::names::HostName;
use crate::reconcile::{Ask, Choices, Failure as Stop, person};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// How long a request of the API may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long another process may take to restore a Node.
const RESTORED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn soon() -> Instant {
    Instant::now() + REQUEST
}

/// How a maintenance ends at a person's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The work on the host is done; with `true` the Node stays cordoned.
    Complete(bool),
    /// It is called off, and its object is deleted.
    Cancel,
}

/// All maintenances of a cluster, the newest last, and a sentence for each that cannot be read.
pub type Listed = (Vec<Maintenance>, Vec<String>);

/// The maintenances of the cluster.
///
/// # Errors
/// See [`Failure`].
pub async fn maintenances(session: &Session) -> Result<Listed, Failure> {
    let client = api(session).await?;
    listed(&client).await
}

async fn listed(client: &ApiClient) -> Result<Listed, Failure> {
    let (mut all, unread) = client.maintenances(soon()).await.map_err(unusable)?.ok_or(MaintenanceError::NotServed)?;
    all.sort_by(|a, b| (a.created_ms, &a.name).cmp(&(b.created_ms, &b.name)));
    Ok((all, unread))
}

fn unusable(error: KubeError) -> Failure {
    MaintenanceError::Api(error).into()
}

async fn api(session: &Session) -> Result<ApiClient, Failure> {
    let access = session.state(false).await?.api_access();
    crate::reconcile::api_client(session, &access).await.map_err(|stop| match stop {
        Stop::Api(error) => unusable(error),
        other => other.into(),
    })
}

/// Hosts of the control plane need more care than a drain: etcd's quorum, and the API servers that are left.
fn is_worker(session: &Session, node: &HostName) -> Result<(), MaintenanceError> {
    let roles = [Role::ControlPlane, Role::Etcd, Role::LoadBalancer];
    let host = session.desired.host(node);
    if host.is_some_and(|host| roles.into_iter().any(|role| host.is(role))) {
        return Err(MaintenanceError::ControlPlane(node.clone()));
    }
    Ok(())
}

/// What a drain would do, with the answer of the API server to each eviction. Changes nothing.
///
/// # Errors
/// See [`Failure`].
pub async fn would_maintain(session: &Session, wanted: &Wanted) -> Result<DrainPreview, Failure> {
    is_worker(session, &wanted.node)?;
    let client = api(session).await?;
    listed(&client).await?;
    Ok(draining(wanted).preview(&client, true).await.map_err(MaintenanceError::from)?)
}

fn draining(wanted: &Wanted) -> Draining<'_> {
    let (by, request) = (Holder::Up, wanted.drain.clone());
    Draining { host: &wanted.node, by, request, within: REQUEST, lasts: Duration::ZERO }
}

/// Begins a maintenance, or continues it, and brings it as far as is asked for. What an earlier one of this name asked
/// for is replaced.
///
/// # Errors
/// See [`Failure`].
pub async fn maintain(
    session: &Session,
    (name, wanted): (&str, &Wanted),
    (choices, ask): (&Choices, &dyn Ask),
    shows: &dyn Fn(&DrainPreview),
) -> Result<Ended, Failure> {
    is_worker(session, &wanted.node)?;
    let client = api(session).await?;
    of_this_node(&client, name, &wanted.node).await?;
    if wanted.stage == Stage::Drain {
        let preview = draining(wanted).preview(&client, false).await.map_err(MaintenanceError::from)?;
        if !preview.lost.is_empty() {
            draining(wanted).check(&client).await.map_err(MaintenanceError::from)?;
        }
        shows(&preview);
        if !choices.yes {
            let node = &wanted.node;
            ask.yes(&format!("Drain {node}?"), &format!("the drain of {node}: its pods are evicted"))?;
        }
    }
    as_the_only_one(session, &client, &wanted.node, async |controller| {
        controller.end_lost().await?;
        // Others may have changed it while the question was open.
        match of_this_node(&client, name, &wanted.node).await? {
            Some(found) if !found.ends() => {
                client.change_maintenance(&found, &wanted.spec(), soon()).await?;
            }
            found => {
                if let Some(ended) = found {
                    controller.remove(&ended).await?;
                }
                client.begin_maintenance(name, wanted, soon()).await?;
            }
        }
        controller.run(name).await
    })
    .await
}

/// The maintenance of this name, which must be for this Node.
async fn of_this_node(
    client: &ApiClient,
    name: &str,
    node: &HostName,
) -> Result<Option<Maintenance>, MaintenanceError> {
    let (all, _) = client.maintenances(soon()).await?.ok_or(MaintenanceError::NotServed)?;
    match all.into_iter().find(|one| one.name == name) {
        Some(other) if other.wanted.node != *node => {
            Err(MaintenanceError::OtherNode { name: other.name, node: other.wanted.node })
        }
        found => Ok(found),
    }
}

/// Those that are meant: of this name if it is under way, else all of this Node that are, else the one of this name.
fn meant<'a>(all: &'a [Maintenance], which: &HostName) -> Vec<&'a Maintenance> {
    let is_under_way = |one: &&Maintenance| !one.is_over() || one.holds || one.is_deleted;
    let by_name = |one: &&Maintenance| one.name == which.as_str();
    let of_node = |one: &&Maintenance| one.wanted.node == *which;
    let choices: [Vec<&Maintenance>; 3] = [
        all.iter().filter(is_under_way).filter(by_name).collect(),
        all.iter().filter(is_under_way).filter(of_node).collect(),
        all.iter().filter(by_name).collect(),
    ];
    choices.into_iter().find(|choice| !choice.is_empty()).unwrap_or_default()
}

/// Ends the maintenance of this name, or of this Node, and restores the Node. Returns the Node's name.
///
/// # Errors
/// See [`Failure`].
pub async fn finish(
    session: &Session,
    which: &HostName,
    how: Finish,
    (choices, ask): (&Choices, &dyn Ask),
) -> Result<HostName, Failure> {
    let client = api(session).await?;
    let (all, _) = listed(&client).await?;
    let found = meant(&all, which);
    let drains = |one: &&&Maintenance| matches!(one.state, Some(State::Draining | State::Blocked));
    if let Some(one) = found.iter().find(drains).filter(|_| how != Finish::Cancel && !choices.yes) {
        let node = &one.wanted.node;
        let question = format!("{node} is not drained ({} pods have left). Finish its maintenance?", one.progress);
        ask.yes(&question, &format!("the end of the drain of {node}"))?;
    }
    // Before the election: a process that drains the Node sees it, and restores the Node.
    for one in &found {
        ask_to_end(&client, one, how).await.map_err(unusable)?;
    }
    let node = found.first().map_or(which, |one| &one.wanted.node);
    let ended = as_the_only_one(session, &client, node, async |controller| {
        let lost = controller.end_lost().await?;
        if found.is_empty() && !lost {
            return Err(MaintenanceError::None(which.to_string()));
        }
        for one in &found {
            match controller.run(&one.name).await {
                // Without our finalizer it was gone at once.
                Err(MaintenanceError::None(_)) if how == Finish::Cancel => {}
                ended => drop(ended?),
            }
        }
        Ok(())
    });
    match ended.await {
        Err(Failure::Maintenance(held @ MaintenanceError::Held { .. })) => {
            session.sink.phase(format!("another process restores {node}"));
            let until = Instant::now() + RESTORED_WITHIN;
            while !are_over(&client, &found).await.map_err(unusable)? {
                if Instant::now() >= until || session.stop.is_cancelled() {
                    return Err(held.into());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        ended => ended?,
    }
    Ok(node.clone())
}

async fn ask_to_end(client: &ApiClient, one: &Maintenance, how: Finish) -> Result<(), KubeError> {
    match how {
        Finish::Cancel => client.delete_maintenance(one, soon()).await,
        Finish::Complete(_) if one.ends() => Ok(()),
        Finish::Complete(stays) => {
            let mut spec = json!({"stage": Stage::Complete.name()});
            if stays {
                spec["after"] = json!("StayCordoned");
            }
            client.change_maintenance(one, &spec, soon()).await
        }
    }
}

/// Whether another process has brought all of these to their end.
async fn are_over(client: &ApiClient, all: &[&Maintenance]) -> Result<bool, KubeError> {
    for one in all {
        let now = client.maintenance(&one.name, soon()).await?.filter(|now| now.uid == one.uid);
        if now.is_some_and(|now| now.holds || !now.is_over()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Works while this process holds the Lease for a Node, and gives it back.
async fn as_the_only_one<T>(
    session: &Session,
    client: &ApiClient,
    node: &HostName,
    work: impl AsyncFnOnce(&mut Controller<'_>) -> Result<T, MaintenanceError>,
) -> Result<T, Failure> {
    // Processes in containers share their numbers.
    let since = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    let holder = format!("{}, pid {}, {since}", person(), std::process::id());
    let mut controller = Controller::elected(client, (&*session.sink, &session.stop), node, &holder).await?;
    let result = work(&mut controller).await;
    if let Err(error) = controller.release().await {
        session.sink.note(format!("the Lease of this run ends by itself, because it could not be given back: {error}"));
    }
    Ok(result?)
}
