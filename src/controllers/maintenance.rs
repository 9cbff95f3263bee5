//! The maintenances of one Node, brought as far as their authors ask for.
//!
//! In: the objects, and the right to act on them. Out: how they ended. Each change is one idempotent write: after a crash
//! between any two, the next run continues. The order is finalizer, record and cordon, evictions, status; at the end
//! record and cordon, status, finalizer.

use super::ended::{Ended, MaintenanceError};
use super::news::differs;
use super::occurrence::{Occurrence, now_ms};
use super::reboot::Hosts;
use super::right::Right;
use crate::execute::{ControlPlane, DrainFound, Draining, Pace};
use crate::kube::{Client, KnownNode, KubeError};
use crate::model::boot::BootId;
use crate::model::cordon::{CordonRecord, is_cordoned};
use crate::model::event::{Event, Sink};
use crate::model::maintenance::{Conditions, DrainRequest, Maintenance, Stage, State};
use crate::model::names::HostName;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How long a read or a write of the object may take.
const REQUEST: Duration = Duration::from_secs(30);
/// Between two looks for a host that reboots.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A drain without a limit lasts so long at most.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// Whether a maintenance has begun.
enum Begun {
    Yes,
    /// What it waits for.
    Waits(String),
    /// It may not begin or go on now, and its status says so.
    Later,
    /// Its object does not exist any more.
    Gone,
}

/// The only process that acts on the maintenances of a Node.
pub struct Controller<'a> {
    pub(super) client: &'a Client,
    pub(super) sink: &'a dyn Sink,
    pub(super) stop: &'a CancellationToken,
    pub(super) node: &'a HostName,
    pub(super) known: KnownNode,
    pub(super) place: Place,
    /// Hosts that this process reaches itself; `None`: their node agents watch the objects.
    pub(super) hosts: Option<&'a dyn Hosts>,
    right: Right,
    /// What the check before a drain has found, and for which maintenance, by its uid.
    pub(super) checked: Option<(String, DrainFound)>,
    /// Limits the evictions of all drains of this process.
    pub(super) pace: Option<&'a Pace>,
    /// What the conditions of the Node show of each maintenance, as this process wrote them, by its uid.
    pub(super) shown: BTreeMap<String, (State, String)>,
    /// The conditions of each maintenance, as this process wrote them, by its uid.
    pub(super) conditions: BTreeMap<String, Conditions>,
    /// The state of each maintenance, and what it waits for, as this process wrote them, by its uid.
    pub(super) written: BTreeMap<String, (State, String)>,
    /// The boot that the host was asked to end by this process itself.
    pub(super) asked: Option<BootId>,
    /// How many occurrences there were.
    occurrences: u32,
}

/// What a Node is to the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The Nodes with a member of etcd or an API server, if it is one of them.
    pub control_plane: Option<Vec<HostName>>,
    /// Why its host cannot be spared now, if more is known than the API shows.
    pub needed: Option<String>,
    /// Whether it is a load balancer of the control plane, and nothing else of it.
    pub is_balancer: bool,
}

/// Until when a request about a maintenance may take.
pub fn soon() -> Instant {
    Instant::now() + REQUEST
}

/// The drain of a maintenance, as all maintenances of its Node admit it.
pub(super) fn draining<'f>(
    (host, place): (&'f HostName, &'f Place),
    all: &[Maintenance],
    found: &Maintenance,
) -> Draining<'f> {
    let request = admitted(all, found);
    // What is drained already was in time.
    let limit = request.give_up_after.filter(|_| found.state != Some(State::Drained));
    let within = limit.map_or(FOREVER, |after| after.saturating_sub(found.drain_lasted));
    let (by, allow_outage) = (found.holder(), found.wanted.allow_outage);
    let taken_from = place.control_plane.as_deref().map(|hosts| ControlPlane { hosts, allow_outage });
    Draining { host, by, request, within, lasts: found.drain_lasted, taken_from, pace: None }
}

/// What the drain of a Node may do by all its maintenances that ask for one.
fn admitted(all: &[Maintenance], found: &Maintenance) -> DrainRequest {
    let asks =
        |one: &&Maintenance| one.wanted.stage == Stage::Drain && !one.ends() && !(one.is_over() && one.is_observed);
    let now_ms = now_ms();
    let others = all.iter().filter(asks).filter(|one| one.uid != found.uid && !one.is_later(now_ms));
    others.fold(found.wanted.drain.clone(), |least, other| least.least(&other.wanted.drain))
}

impl<'a> Controller<'a> {
    /// Takes the Lease for a Node; `holder` is the name of this process.
    ///
    /// # Errors
    /// Another process has it.
    pub async fn elected(
        client: &'a Client,
        (sink, stop): (&'a dyn Sink, &'a CancellationToken),
        (node, place): (&'a HostName, Place),
        (hosts, holder): (&'a dyn Hosts, &str),
    ) -> Result<Self, MaintenanceError> {
        let right = Right::own(client, node, holder).await?;
        Ok(Self { hosts: Some(hosts), ..Self::with(client, (sink, stop), (node, place), right, None) })
    }

    pub(super) fn with(
        client: &'a Client,
        (sink, stop): (&'a dyn Sink, &'a CancellationToken),
        (node, place): (&'a HostName, Place),
        right: Right,
        pace: Option<&'a Pace>,
    ) -> Self {
        Self {
            client,
            sink,
            stop,
            node,
            known: KnownNode::new(node),
            place,
            hosts: None,
            right,
            checked: None,
            pace,
            shown: BTreeMap::new(),
            conditions: BTreeMap::new(),
            written: BTreeMap::new(),
            asked: None,
            occurrences: 0,
        }
    }

    /// Gives the Lease back.
    ///
    /// # Errors
    /// The API cannot be used; then the Lease ends by itself.
    pub async fn release(self) -> Result<(), KubeError> {
        self.right.release(self.client).await
    }

    /// Until when a write may take: before others may act.
    pub(super) async fn leased(&mut self) -> Result<Instant, MaintenanceError> {
        Ok(soon().min(self.right.until(self.client, self.node).await?))
    }

    /// Says something, and has the API show it.
    pub(super) async fn tell(&mut self, of: &Maintenance, occurrence: Occurrence) {
        self.occurrences += 1;
        occurrence.line(self.sink, self.node);
        occurrence.publish(self.client, self.sink, of, self.occurrences).await;
    }

    /// Ends what maintenances hold of the Node whose objects are gone.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn end_lost(&mut self) -> Result<bool, MaintenanceError> {
        let until = self.leased().await?;
        let ended = self.client.end_lost_maintenances(&mut self.known, until).await?;
        if ended {
            self.sink.note(format!("{} was kept cordoned by a maintenance that does not exist any more", self.node));
        }
        Ok(ended)
    }

    /// Brings a maintenance as far as its author asks for.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn run(&mut self, name: &str) -> Result<Ended, MaintenanceError> {
        let mut was_there = false;
        loop {
            let all = self.client.maintenances_of(self.node, soon()).await?;
            let Some(found) = all.iter().find(|one| one.name == name) else {
                // Others called it off while it waited.
                return if was_there { Ok(Ended::Completed) } else { Err(MaintenanceError::None(name.to_owned())) };
            };
            was_there = true;
            if found.ends() {
                self.end(found, State::Completed, "").await?;
                return Ok(Ended::Completed);
            }
            if found.wanted.stage == Stage::Idle {
                return Ok(Ended::Idle);
            }
            if found.state == Some(State::Completed) {
                self.end(found, State::Completed, "").await?;
                return Ok(Ended::Rebooted);
            }
            if let Some(closed) = found.closed(now_ms()) {
                self.sink.emit(Event::Waiting { step: 0, on: closed.why.clone() });
                self.hold_back(found, closed).await?;
                self.pause().await?;
                continue;
            }
            if found.reboot.is_none() || !found.reboots() {
                self.begin(&all, found, found.wanted.stage == Stage::Drain).await?;
                if found.wanted.stage == Stage::Cordon {
                    return Ok(Ended::Cordoned);
                }
                // Without notes, an author asks for something else now. Before each attempt to have the host reboot, what
                // has come meanwhile leaves, and whether the control plane can spare it is looked at again.
                let Some(notes) = self.drain(&all, found).await? else { continue };
                if !found.reboots() {
                    return Ok(Ended::Drained(notes));
                }
                if found.state != Some(State::Drained) {
                    continue;
                }
            }
            if self.reboot(&all, found).await? {
                return Ok(Ended::Rebooted);
            }
            self.pause().await?;
        }
    }

    /// Until the next look.
    pub(super) async fn pause(&mut self) -> Result<(), MaintenanceError> {
        self.leased().await?;
        tokio::select! {
            () = sleep(LOOK_EVERY) => Ok(()),
            () = self.stop.cancelled() => Err(MaintenanceError::Interrupted),
        }
    }

    /// Brings all maintenances of the Node as far as their authors ask for. Those that cannot begin wait, and their
    /// status says for what.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub(super) async fn settle(&mut self) -> Result<(), MaintenanceError> {
        let mut may_be_lost = true;
        'look: loop {
            let all = self.client.maintenances_of(self.node, soon()).await?;
            // While a host reboots, that is looked at every few seconds.
            if std::mem::take(&mut may_be_lost) && !all.iter().any(Maintenance::is_about_to_reboot) {
                self.end_lost().await?;
            }
            for found in all.iter().filter(|one| one.is_settled() && one.holds && !one.ends()) {
                self.still_holds(found).await?;
            }
            let unsettled = all.iter().filter(|one| !one.is_settled()).count();
            let (mut drains, mut drained) = (None, Vec::new());
            for found in all.iter().filter(|one| !one.is_settled()) {
                if found.ends() || found.state == Some(State::Completed) {
                    self.end(found, State::Completed, "").await?;
                } else if found.state == Some(State::Completing) && found.closed(now_ms()).is_none() {
                    self.give_up(found, "its static pods took too long to end or to run again").await?;
                } else if found.wanted.stage == Stage::Idle {
                    self.report(found, State::Idle, "", None).await?;
                } else if found.reboot.is_some() && found.reboots() {
                    self.look_for(&all, found).await?;
                } else {
                    // Otherwise others come before its drain.
                    let drains_next = found.wanted.stage == Stage::Drain && unsettled == 1;
                    match self.may_begin(&all, found, drains_next).await? {
                        Begun::Waits(why) => self.wait(found, why).await?,
                        // It only waits for its reboot.
                        Begun::Yes if found.state == Some(State::Drained) => drained.push(found),
                        Begun::Yes if found.wanted.stage == Stage::Drain => drains = drains.or(Some(found)),
                        Begun::Yes | Begun::Later => {}
                        Begun::Gone => {
                            may_be_lost = true;
                            continue 'look;
                        }
                    }
                }
            }
            let Some(found) = drains.or(drained.first().copied()) else { return Ok(()) };
            match self.drain(&all, found).await {
                Ok(Some(_)) if found.reboots() => {
                    // After a drain it is looked at again, with what is known of other hosts by then.
                    for one in drained.iter().filter(|_| drains.is_none()) {
                        self.look_for(&all, one).await?;
                    }
                    return Ok(());
                }
                // It may have taken long.
                Ok(None) => may_be_lost = true,
                Ok(_) | Err(MaintenanceError::GaveUp(_) | MaintenanceError::NoNode(_)) => {}
                Err(MaintenanceError::WouldLose(why) | MaintenanceError::NotSpared(why)) => {
                    return self.wait(found, why).await;
                }
                Err(contested @ MaintenanceError::Contested(_)) => self.give_up(found, &contested.to_string()).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Looks whether the Node of a maintenance that is as far as its author asks is still held by it. One that was deleted,
    /// or created again, has none any more; one that others uncordoned is cordoned again, and what has come leaves.
    async fn still_holds(&mut self, found: &Maintenance) -> Result<(), MaintenanceError> {
        let node = self.known.recent(self.client, soon()).await?;
        let record = node.and_then(CordonRecord::of);
        let stays_cordoned = node.is_some_and(is_cordoned);
        if !record.is_some_and(|record| record.is_held_by(&found.holder())) {
            return self.end(found, State::Completed, "").await;
        }
        if !stays_cordoned {
            let until = self.leased().await?;
            self.client.cordon(&mut self.known, (&found.holder(), &found.wanted.taints()), until).await?;
            self.tell(found, Occurrence::Contested).await;
            if found.state == Some(State::Drained) {
                self.report(found, State::Drained, "others uncordoned its Node", None).await?;
            }
        }
        Ok(())
    }

    /// Looks after the reboot of a host. A Node that is gone has ended its maintenance.
    async fn look_for(&mut self, all: &[Maintenance], found: &Maintenance) -> Result<(), MaintenanceError> {
        match self.reboot(all, found).await {
            Ok(_) | Err(MaintenanceError::NoNode(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Cordons the Node for a maintenance, or says what is in the way.
    async fn may_begin(
        &mut self,
        all: &[Maintenance],
        found: &Maintenance,
        drains: bool,
    ) -> Result<Begun, MaintenanceError> {
        if let Some(closed) = found.closed(now_ms()) {
            self.hold_back(found, closed).await?;
            return Ok(Begun::Later);
        }
        // A cordon takes nothing away.
        if let Some(why) = self.place.needed.as_ref().filter(|_| found.wanted.stage == Stage::Drain && !found.holds) {
            return Ok(Begun::Waits(why.clone()));
        }
        match self.begin(all, found, drains).await {
            Ok(()) => Ok(Begun::Yes),
            Err(MaintenanceError::WouldLose(why) | MaintenanceError::NotSpared(why)) => Ok(Begun::Waits(why)),
            Err(MaintenanceError::NotReady(node)) => Ok(Begun::Waits(format!(
                "{node} is not ready, and its kubelet ends no pods; if its host is off, set poweredOff"
            ))),
            Err(other @ (MaintenanceError::NoNode(_) | MaintenanceError::NotOff(_))) => {
                Ok(Begun::Waits(other.to_string()))
            }
            Err(MaintenanceError::None(_)) => Ok(Begun::Gone),
            Err(error) => Err(error),
        }
    }

    /// Restores the Node of a maintenance that ends. One that does not, or another one of its name, is left alone.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn finish(&mut self, known: &Maintenance) -> Result<(), MaintenanceError> {
        let now = self.client.maintenance(&known.name, soon()).await?;
        match now.filter(|now| now.uid == known.uid && now.ends()) {
            Some(now) => self.end(&now, State::Completed, "").await,
            None => Ok(()),
        }
    }

    /// Restores the Node of a maintenance that ends, and deletes its object.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn remove(&mut self, found: &Maintenance) -> Result<(), MaintenanceError> {
        self.end(found, State::Completed, "").await?;
        let until = self.leased().await?;
        Ok(self.client.delete_maintenance(found, until).await?)
    }

    /// Whether the authors of the Node's maintenances ask for the same as before.
    pub(super) async fn are_unchanged(&self, all: &[Maintenance]) -> Result<bool, MaintenanceError> {
        let now = self.client.maintenances_of(self.node, soon()).await?;
        let known = |now: &Maintenance| all.iter().any(|one| one.uid == now.uid && !differs(one, now));
        Ok(now.len() == all.len() && now.iter().all(known))
    }
}
