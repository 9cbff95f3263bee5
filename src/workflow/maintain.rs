//! `hactl maintain`: takes a Node out of service and back, by an object NodeMaintenance.
//!
//! In: a session whose API servers answer, what a person asks for, and consent. Out: how far the maintenance was
//! brought. Where guards act on maintenances, it is left to them and followed. Else this process acts on it, as the only
//! one in the cluster; if it is interrupted, the same command continues.

use super::boots::OverSsh;
use super::roll_out::cancel_rollout;
use super::{Failure, Session};
use crate::controllers::{
    Controller, Elected, Ended, Followed, MaintenanceError, Place, follow, now_ms, resume_after_recovery, soon,
    waits_after_recovery,
};
use crate::execute::{ApiClient, ConnectApi as _, ControlPlane, Draining};
use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::cordon::{CordonRecord, Holder, is_cordoned};
use crate::model::desired::{Host, Role};
use crate::model::gate::Approval;
use crate::model::maintenance::{DrainPreview, Maintenance, Stage, State, Through, Wanted, Work};
use crate::model::names::HostName;
use crate::model::rollout::Rollout;
use crate::reconcile::{Ask, Choices, Failure as Stop, person};
use crate::transport::Agent;
use serde_json::{Value, json};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long another process may take to restore a Node.
const RESTORED_WITHIN: Duration = Duration::from_secs(60);
/// How long static pods may take, which another process has run again before.
const RUN_AGAIN_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

/// The maintenances of the cluster, and its rollouts, the oldest first.
///
/// # Errors
/// See [`Failure`].
pub async fn maintenances(session: &Session) -> Result<(Vec<Rollout>, Listed), Failure> {
    let client = api(session).await?;
    let (all, mut unread) = listed(&client).await?;
    let (rollouts, garbled) = client.rollouts(soon()).await.map_err(unusable)?.unwrap_or_default();
    unread.extend(garbled);
    if waits_for_resume(&client).await? {
        unread.push(MaintenanceError::Recovered.to_string() + ": hactl maintain resume");
    }
    Ok((rollouts, (all, unread)))
}

pub(super) async fn listed(client: &Client) -> Result<Listed, Failure> {
    let (mut all, unread) = client.maintenances(soon()).await.map_err(unusable)?.ok_or(MaintenanceError::NotServed)?;
    all.sort_by(|a, b| (a.created_ms, &a.name).cmp(&(b.created_ms, &b.name)));
    Ok((all, unread))
}

pub(super) fn unusable(error: KubeError) -> Failure {
    MaintenanceError::Api(error).into()
}

/// A client of all API servers that answer: one of their hosts may be the one that goes.
pub(super) struct Api {
    client: Client,
    // Dropping one closes its port.
    _each: Vec<ApiClient>,
    // Those of connections of its own.
    _agents: Vec<Arc<dyn Agent>>,
}

impl Deref for Api {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

pub(super) async fn api(session: &Session) -> Result<Api, Failure> {
    let access = session.state(false).await?.api_access();
    let each = crate::reconcile::api_clients(session, &access).await.map_err(|stop| match stop {
        Stop::Api(error) => unusable(error),
        other => other.into(),
    })?;
    Api::of(each, Vec::new())
}

impl Api {
    fn of(each: Vec<ApiClient>, agents: Vec<Arc<dyn Agent>>) -> Result<Self, Failure> {
        let client = Client::of_servers(each.iter().map(|one| Client::clone(one)).collect());
        let client = client.ok_or(Stop::NoHost { hosts: vec![] })?;
        Ok(Self { client, _each: each, _agents: agents })
    }
}

/// The same by connections of its own: those of the session to hosts that have booted since are gone.
pub(super) async fn reconnected(session: &Session) -> Result<Api, Failure> {
    let access = session.state(false).await?.api_access();
    let asked = session.desired.with(Role::ControlPlane).map(|host| {
        let access = &access;
        async move {
            let agent = session.connect.connect(&host.name, &host.ssh).await.ok()?;
            let client = access.connect(&*agent, host.address, session.desired.api_port).await.ok()?;
            Some((client, agent))
        }
    });
    let (each, agents) = futures::future::join_all(asked).await.into_iter().flatten().unzip();
    Api::of(each, agents)
}

/// The Nodes with a member of etcd or an API server, if this is one of them: such a host is taken only if it can be
/// spared.
fn control_plane(session: &Session, node: &HostName) -> Result<Option<Vec<HostName>>, MaintenanceError> {
    let counts = |host: &&Host| host.is_node() && (host.is(Role::Etcd) || host.is(Role::ControlPlane));
    match session.desired.host(node) {
        Some(host) if counts(&host) => {
            Ok(Some(session.desired.hosts.iter().filter(counts).map(|host| host.name.clone()).collect()))
        }
        Some(host) if host.is(Role::LoadBalancer) => Err(MaintenanceError::Balancer(node.clone())),
        _ => Ok(None),
    }
}

/// What a drain would do, with the answer of the API server to each eviction. Changes nothing.
///
/// # Errors
/// See [`Failure`].
pub async fn would_maintain(session: &Session, (name, wanted): (&str, &Wanted)) -> Result<DrainPreview, Failure> {
    let place = control_plane(session, &wanted.node)?;
    let client = api(session).await?;
    listed(&client).await?;
    let mut preview =
        draining(wanted, place.as_deref()).preview(&client, true).await.map_err(MaintenanceError::from)?;
    preview.notes.extend(wanted.closed(name, now_ms()).map(|closed| format!("it begins later: {}", closed.why)));
    Ok(preview)
}

fn draining<'a>(wanted: &'a Wanted, place: Option<&'a [HostName]>) -> Draining<'a> {
    let (by, request) = (Holder::Up, wanted.drain.clone());
    let taken_from = place.map(|hosts| ControlPlane { hosts, allow_outage: wanted.allow_outage });
    Draining { host: &wanted.node, by, request, within: Duration::ZERO, lasts: Duration::ZERO, taken_from, pace: None }
}

/// Begins a maintenance, or continues it, and brings it as far as is asked for. What an earlier one of this name asked
/// for is replaced. Without `waits`, it is left to the guards.
///
/// # Errors
/// See [`Failure`].
pub async fn maintain(
    session: &Session,
    (name, wanted, waits): (&str, &Wanted, bool),
    (choices, ask): (&Choices, &dyn Ask),
    shows: &dyn Fn(&DrainPreview),
) -> Result<Ended, Failure> {
    let place = control_plane(session, &wanted.node)?;
    let client = api(session).await?;
    if waits_for_resume(&client).await? {
        return Err(MaintenanceError::Recovered.into());
    }
    if let Some(found) = of_this_node(&client, name, &wanted.node).await?
        && found.takes()
        && found.wanted.work != wanted.work
    {
        let why = if found.wanted.reason.is_empty() { String::new() } else { format!(": {}", found.wanted.reason) };
        return Err(MaintenanceError::OtherWork { name: found.name, node: wanted.node.clone(), why }.into());
    }
    let is_later = wanted.closed(name, now_ms()).is_some();
    if wanted.stage == Stage::Drain {
        let draining = draining(wanted, place.as_deref());
        match draining.preview(&client, false).await.map_err(MaintenanceError::from) {
            Ok(preview) => {
                draining.loses_none(&preview).map_err(MaintenanceError::from)?;
                shows(&preview);
            }
            // The guards wait until it can be spared.
            Err(MaintenanceError::NotSpared(why)) if !waits || is_later => session.sink.note(why),
            Err(error) => return Err(error.into()),
        }
        if !choices.yes {
            let node = &wanted.node;
            match wanted.work {
                Work::ByPerson if wanted.powered_off => {
                    let what = "Its pods are deleted at once, whatever their budgets say, and its volumes detached";
                    let consent = format!(
                        "the drain of {node} as a host that is off: its pods are deleted, and its volumes detached"
                    );
                    ask.yes(&format!("Is the host of {node} off? {what}"), &consent)?;
                }
                Work::ByPerson => {
                    ask.yes(&format!("Drain {node}?"), &format!("the drain of {node}: its pods are evicted"))?;
                }
                Work::Reboot(_) => {
                    let what = format!("the reboot of {node}: its pods are evicted before");
                    ask.yes(&format!("Drain and reboot {node}?"), &what)?;
                }
            }
        }
    }
    let mut left = None;
    loop {
        if let Some(elected) = Elected::look(&client, left.as_ref()).await.map_err(unusable)? {
            put(&client, name, wanted, async |ended| gone(&client, ended).await).await?;
            // Others may have approved it before.
            let put = client.maintenance(name, soon()).await.map_err(unusable)?;
            if let Some(closed) = put.and_then(|put| put.closed(now_ms())) {
                return Ok(Ended::Later(closed.why));
            }
            if !waits {
                return Ok(Ended::Accepted);
            }
            match follow(&client, (&*session.sink, &session.stop), name, elected).await? {
                Followed::Ended(ended) => return Ok(ended),
                Followed::Left(elected) => left = Some(elected),
            }
            session.sink.note("no guard acts on maintenances any more: this process does".to_owned());
        } else if !waits {
            return Err(MaintenanceError::NoGuard.into());
        }
        if wanted.drain.through == Through::Static {
            return Err(MaintenanceError::NoNodeAgent.into());
        }
        if is_later {
            session.sink.note("no guard acts on maintenances, so this command has to run until then".to_owned());
        }
        let this = (&wanted.node, Place { control_plane: place.clone(), ..Place::default() });
        let is_put = left.is_some();
        let ended = as_the_only_one((session, &client, Some(left.as_ref())), this, async |controller| {
            controller.end_lost().await?;
            // Others may have changed it while the question was open.
            if !is_put {
                put(&client, name, wanted, async |ended| controller.remove(ended).await).await?;
            }
            controller.run(name).await
        });
        // Without an end, a guard was elected just now.
        if let Some(ended) = ended.await? {
            return Ok(ended);
        }
    }
}

/// Creates the object, or changes what the one of this name asks for. One that has ended is removed first.
async fn put(
    client: &Client,
    name: &str,
    wanted: &Wanted,
    remove: impl AsyncFnOnce(&Maintenance) -> Result<(), MaintenanceError>,
) -> Result<(), MaintenanceError> {
    match of_this_node(client, name, &wanted.node).await? {
        Some(found) if !found.ends() && !found.is_over() && is_true(client, &found).await? => {
            let mut wanted = wanted.clone();
            if found.wanted.gate.approval == Approval::Given {
                wanted.gate.approval = Approval::Given;
            }
            return Ok(client.change_maintenance(&found, &wanted.spec(), soon()).await?);
        }
        Some(ended) => remove(&ended).await?,
        None => {}
    }
    Ok(client.begin_maintenance(name, wanted, soon()).await?)
}

/// Whether the Node is as the state of its maintenance says: others may have uncordoned it, or it was created again.
async fn is_true(client: &Client, found: &Maintenance) -> Result<bool, MaintenanceError> {
    if !matches!(found.state, Some(State::Cordoned | State::Drained)) {
        return Ok(true);
    }
    let node = client.get(&ObjectRef::node(&found.wanted.node), soon()).await?;
    let holds = |node: &Value| CordonRecord::of(node).is_some_and(|record| record.is_held_by(&found.holder()));
    Ok(node.is_some_and(|node| is_cordoned(&node) && holds(&node)))
}

/// Deletes a maintenance that has ended, and waits until the guards have let it go.
async fn gone(client: &Client, ended: &Maintenance) -> Result<(), MaintenanceError> {
    client.delete_maintenance(ended, soon()).await?;
    let until = Instant::now() + RESTORED_WITHIN;
    while client.maintenance(&ended.name, soon()).await?.is_some_and(|now| now.uid == ended.uid) {
        if Instant::now() >= until {
            return Err(MaintenanceError::NotRestored(ended.wanted.node.clone()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// The maintenance of this name, which must be for this Node.
async fn of_this_node(client: &Client, name: &str, node: &HostName) -> Result<Option<Maintenance>, MaintenanceError> {
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

/// What was meant by a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// The maintenance of a Node.
    Node(HostName),
    /// A rollout, and the maintenances of its Nodes.
    Rollout(String),
}

/// What was ended, or will be when guards act again after a recovery of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// It is over.
    Now(Meant),
    /// Its name, or that of its Node.
    AfterResume(String),
}

/// Ends the rollout or the maintenance of this name, or the maintenance of this Node, and restores what was away.
///
/// # Errors
/// See [`Failure`].
pub async fn finish(
    session: &Session,
    which: &HostName,
    how: Finish,
    (choices, ask): (&Choices, &dyn Ask),
) -> Result<Finished, Failure> {
    let client = api(session).await?;
    if let Some(rollout) = client.rollout(which.as_str(), soon()).await.map_err(unusable)? {
        if how != Finish::Cancel {
            return Err(MaintenanceError::IsRollout(rollout.name).into());
        }
        if waits_for_resume(&client).await? {
            client.delete_rollout(&rollout, soon()).await.map_err(unusable)?;
            return Ok(Finished::AfterResume(rollout.name));
        }
        cancel_rollout(session, &client, &rollout).await?;
        return Ok(Finished::Now(Meant::Rollout(rollout.name)));
    }
    let (all, _) = listed(&client).await?;
    let found = meant(&all, which);
    if how == Finish::Cancel {
        for one in &found {
            let Some(name) = &one.rollout else { continue };
            let rollout = client.rollout(name, soon()).await.map_err(unusable)?;
            if rollout.is_some_and(|rollout| !rollout.is_over() && !rollout.wanted.paused) {
                let (node, rollout) = (one.wanted.node.clone(), name.clone());
                return Err(MaintenanceError::OfRollout { node, rollout }.into());
            }
        }
    }
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
    // One that has not begun is gone, or complete, already.
    if found.iter().any(|one| one.holds) && waits_for_resume(&client).await? {
        return Ok(Finished::AfterResume(node.to_string()));
    }
    let mut left = None;
    loop {
        let elected = Elected::look(&client, left.as_ref()).await.map_err(unusable)?.filter(|_| !found.is_empty());
        if elected.is_none() {
            // Without an object, the guards have nothing to act on.
            let guards = if found.is_empty() { None } else { Some(left.as_ref()) };
            match end((session, &client, guards), (which, node), &found).await {
                Ok(Some(())) => return Ok(Finished::Now(Meant::Node(node.clone()))),
                Ok(None) => continue,
                Err(Failure::Maintenance(MaintenanceError::Held { .. })) if !found.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        session.sink.phase(format!("another process restores {node}"));
        match restored((session, &client), node, &found, elected).await? {
            None => return Ok(Finished::Now(Meant::Node(node.clone()))),
            gone => left = gone,
        }
    }
}

/// Whether guards wait after a recovery of etcd.
pub(super) async fn waits_for_resume(client: &Client) -> Result<bool, Failure> {
    waits_after_recovery(client, soon()).await.map_err(unusable)
}

/// Lets guards act on maintenances after a recovery of etcd; returns whether they waited.
///
/// # Errors
/// See [`Failure`].
pub async fn resume_maintenances(session: &Session) -> Result<bool, Failure> {
    resume_after_recovery(&*api(session).await?, soon()).await.map_err(unusable)
}

/// Approves the rollout or the maintenance of this name, or those of this Node.
///
/// # Errors
/// See [`Failure`].
pub async fn approve(session: &Session, which: &HostName) -> Result<Meant, Failure> {
    let client = api(session).await?;
    if let Some(rollout) = client.rollout(which.as_str(), soon()).await.map_err(unusable)? {
        if rollout.wanted.approves_each {
            return Err(MaintenanceError::ApprovesEach(rollout.name).into());
        }
        match rollout.wanted.gate.approval {
            Approval::NotRequired => return Err(MaintenanceError::NotGated(rollout.name).into()),
            Approval::Required => client.approve_rollout(&rollout, soon()).await.map_err(unusable)?,
            Approval::Given => {}
        }
        return Ok(Meant::Rollout(rollout.name));
    }
    let (all, _) = listed(&client).await?;
    let found = meant(&all, which);
    let node = found.first().ok_or_else(|| MaintenanceError::None(which.to_string()))?.wanted.node.clone();
    let gated: Vec<_> = found.iter().filter(|one| one.wanted.gate.approval != Approval::NotRequired).collect();
    match gated.as_slice() {
        [] => Err(MaintenanceError::NotGated(format!("the maintenance of {node}")).into()),
        [one] => {
            if one.wanted.gate.approval == Approval::Required {
                client.approve_maintenance(one, soon()).await.map_err(unusable)?;
            }
            Ok(Meant::Node(node))
        }
        several => {
            let names = several.iter().map(|one| one.name.clone()).collect();
            Err(MaintenanceError::Several { node, names }.into())
        }
    }
}

/// Waits until another process has restored the Node. Returns the guard that should have, if it acts no more.
async fn restored(
    (session, client): (&Session, &Client),
    node: &HostName,
    found: &[&Maintenance],
    mut elected: Option<Elected>,
) -> Result<Option<Elected>, Failure> {
    let holds = found.iter().any(|one| one.static_pods.is_some());
    let until = Instant::now() + if holds { RUN_AGAIN_WITHIN } else { RESTORED_WITHIN };
    while !are_over(client, found).await.map_err(unusable)? {
        if let Some(guard) = &mut elected
            && !guard.acts(client).await.map_err(unusable)?
        {
            return Ok(elected);
        }
        if session.stop.is_cancelled() {
            return Err(MaintenanceError::Interrupted.into());
        }
        if Instant::now() >= until {
            return Err(MaintenanceError::NotRestored(node.clone()).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(None)
}

/// Ends maintenances in this process. `None`: the guards do.
async fn end(
    by: Process<'_>,
    (which, node): (&HostName, &HostName),
    found: &[&Maintenance],
) -> Result<Option<()>, Failure> {
    // What ends takes no host away.
    as_the_only_one(by, (node, Place::default()), async |controller| {
        let lost = controller.end_lost().await?;
        if found.is_empty() && !lost {
            return Err(MaintenanceError::None(which.to_string()));
        }
        for one in found {
            controller.finish(one).await?;
        }
        Ok(())
    })
    .await
}

async fn ask_to_end(client: &Client, one: &Maintenance, how: Finish) -> Result<(), KubeError> {
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
async fn are_over(client: &Client, all: &[&Maintenance]) -> Result<bool, KubeError> {
    for one in all {
        let now = client.maintenance(&one.name, soon()).await?.filter(|now| now.uid == one.uid);
        if now.is_some_and(|now| now.holds || !now.is_over()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// This process: its session, its client, and whether it leaves the work to guards: to any but the one that is known to
/// act no more.
type Process<'a> = (&'a Session, &'a Client, Option<Option<&'a Elected>>);

/// Works while this process holds the Lease for a Node, and gives it back. `None`: the guards act on maintenances.
async fn as_the_only_one<T>(
    (session, client, guards): Process<'_>,
    (node, place): (&HostName, Place),
    work: impl AsyncFnOnce(&mut Controller<'_>) -> Result<T, MaintenanceError>,
) -> Result<Option<T>, Failure> {
    // Processes in containers share their numbers.
    let since = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    let holder = format!("{}, pid {}, {since}", person(), std::process::id());
    let hosts = OverSsh::of(session);
    let (says, is) = ((&*session.sink, &session.stop), (node, place));
    let mut controller = Controller::elected(client, says, is, (&hosts, &holder)).await?;
    // After the Lease was taken: a guard that is elected later finds it.
    let elected = match guards {
        Some(left) => Elected::look(client, left).await,
        None => Ok(None),
    };
    let result = match elected {
        Ok(None) => work(&mut controller).await.map(Some),
        Ok(Some(_)) => Ok(None),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = controller.release().await {
        session.sink.note(format!("the Lease of this run ends by itself, because it could not be given back: {error}"));
    }
    Ok(result?)
}
