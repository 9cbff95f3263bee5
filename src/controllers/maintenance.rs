//! One NodeMaintenance: cordons its Node, drains it, reports how far that is, and restores the Node at the end.
//!
//! In: the name of the object, and a client. Out: how it ended. Each change is one idempotent write: after a crash
//! between any two, the next run continues. The order is finalizer, record and cordon, evictions, status; at the end
//! record and cordon, status, finalizer. A Lease admits one process at a time for each Node.

use crate::execute::{DrainError, Draining};
use crate::kube::{Client, Cordoned, KubeError, Lease, LeaseAttempt};
use crate::model::event::Sink;
use crate::model::maintenance::{DrainProgress, Maintenance, Stage, State};
use crate::model::names::HostName;
use crate::model::timestamp::{millis, rfc3339};
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Before the name of the Node, the name of the Lease of the process that acts on its maintenances.
const LEASE: &str = "hactl-maintenance-";
/// How long to wait for a Lease that another process may have left.
const LEASE_WITHIN: Duration = Duration::from_secs(20);
/// How long a read or a write of the object may take.
const REQUEST: Duration = Duration::from_secs(30);
/// A drain without a limit lasts so long at most.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// So many times a Node is cordoned again that others uncordon.
pub(super) const CONTESTED: u32 = 3;

/// Why a maintenance does not go on.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The API cannot be used.
    #[error(transparent)]
    Api(#[from] KubeError),
    /// The API server does not serve the kind.
    #[error("the cluster does not serve NodeMaintenance")]
    NotServed,
    /// There is no such object.
    #[error("there is no maintenance of {0}")]
    None(String),
    /// Its Node does not exist.
    #[error("the API has no Node {0}")]
    NoNode(HostName),
    /// Another maintenance has the name.
    #[error("NodeMaintenance {name} is for {node}")]
    OtherNode {
        /// The name.
        name: String,
        /// Its Node.
        node: HostName,
    },
    /// The host is one of the control plane.
    #[error("{0} is a host of the control plane")]
    ControlPlane(HostName),
    /// Another process acts on maintenances of the Node.
    #[error("another process acts on the maintenance of {node}: {by}")]
    Held {
        /// The Node.
        node: HostName,
        /// The process.
        by: String,
    },
    /// Pods would be lost.
    #[error("{0}")]
    WouldLose(String),
    /// Pods did not leave in time.
    #[error("{0}")]
    GaveUp(String),
    /// Others uncordon the Node again and again.
    #[error("{0} was uncordoned {CONTESTED} times by others during the drain")]
    Contested(HostName),
    /// A person interrupted it.
    #[error("interrupted")]
    Interrupted,
}

impl From<DrainError> for MaintenanceError {
    fn from(error: DrainError) -> Self {
        match error {
            DrainError::Api(error) => error.into(),
            lost @ DrainError::Lost { .. } => Self::WouldLose(lost.to_string()),
            // Its advice is for a Node that stays cordoned.
            DrainError::TimedOut { pods, within_s, why, .. } => {
                Self::GaveUp(format!("{pods} within {within_s} s: {why}"))
            }
        }
    }
}

/// How far a maintenance was brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It is only announced.
    Idle,
    /// Its Node is cordoned.
    Cordoned,
    /// Its Node is drained; what is to be said of pods that stay.
    Drained(Vec<String>),
    /// Its Node is as it was before.
    Completed,
}

/// The only process that acts on the maintenances of a Node.
pub struct Controller<'a> {
    pub(super) client: &'a Client,
    pub(super) sink: &'a dyn Sink,
    pub(super) stop: &'a CancellationToken,
    node: &'a HostName,
    lease: Lease,
}

/// Until when a read may take.
pub(super) fn soon() -> Instant {
    Instant::now() + REQUEST
}

pub(super) fn now_ms() -> i64 {
    millis(OffsetDateTime::now_utc()).unwrap_or(0)
}

/// The drain of a maintenance.
pub(super) fn draining(found: &Maintenance) -> Draining<'_> {
    let (host, request) = (&found.wanted.node, found.wanted.drain.clone());
    // What is drained already was in time.
    let limit = request.give_up_after.filter(|_| found.state != Some(State::Drained));
    let within = limit.map_or(FOREVER, |after| after.saturating_sub(found.drain_lasted));
    Draining { host, by: found.holder(), request, within, lasts: found.drain_lasted }
}

impl<'a> Controller<'a> {
    /// Takes the Lease for a Node; `holder` is the name of this process.
    ///
    /// # Errors
    /// Another process has it.
    pub async fn elected(
        client: &'a Client,
        (sink, stop): (&'a dyn Sink, &'a CancellationToken),
        node: &'a HostName,
        holder: &str,
    ) -> Result<Self, MaintenanceError> {
        match Lease::take(client, &format!("{LEASE}{node}"), holder, Instant::now() + LEASE_WITHIN).await? {
            LeaseAttempt::Taken(lease) => Ok(Self { client, sink, stop, node, lease }),
            LeaseAttempt::HeldBy(by) => Err(MaintenanceError::Held { node: node.clone(), by }),
        }
    }

    /// Gives the Lease back.
    ///
    /// # Errors
    /// The API cannot be used; then the Lease ends by itself.
    pub async fn release(self) -> Result<(), KubeError> {
        self.lease.release(self.client).await
    }

    /// Keeps the Lease, and returns until when a write may take: before others may take the Lease over.
    pub(super) async fn leased(&mut self) -> Result<Instant, MaintenanceError> {
        match self.lease.renew(self.client).await {
            Ok(()) => Ok(soon().min(self.lease.until())),
            Err(KubeError::Missing { .. }) => {
                let by = "it took over the Lease of this one".to_owned();
                Err(MaintenanceError::Held { node: self.node.clone(), by })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends what maintenances hold of the Node whose objects are gone.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn end_lost(&mut self) -> Result<bool, MaintenanceError> {
        let until = self.leased().await?;
        let ended = self.client.end_lost_maintenances(self.node, until).await?;
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
        loop {
            let Some(found) = self.client.maintenance(name, soon()).await? else {
                return Err(MaintenanceError::None(name.to_owned()));
            };
            if found.ends() {
                self.end(&found, State::Completed).await?;
                return Ok(Ended::Completed);
            }
            if found.wanted.stage == Stage::Idle {
                return Ok(Ended::Idle);
            }
            if found.wanted.stage == Stage::Drain && !found.holds {
                draining(&found).check(self.client).await?;
            }
            self.cordon(&found).await?;
            if found.wanted.stage == Stage::Cordon {
                return Ok(Ended::Cordoned);
            }
            // Without notes, its author asks for something else now.
            if let Some(notes) = self.drain(&found).await? {
                return Ok(Ended::Drained(notes));
            }
        }
    }

    /// Restores the Node of a maintenance that ends, and deletes its object.
    ///
    /// # Errors
    /// See [`MaintenanceError`].
    pub async fn remove(&mut self, found: &Maintenance) -> Result<(), MaintenanceError> {
        self.end(found, State::Completed).await?;
        let until = self.leased().await?;
        Ok(self.client.delete_maintenance(found, until).await?)
    }

    /// The Node is cordoned, and the object cannot vanish before it is restored.
    async fn cordon(&mut self, found: &Maintenance) -> Result<(), MaintenanceError> {
        let until = self.leased().await?;
        if !self.client.hold_maintenance(found, true, until).await? {
            return Err(MaintenanceError::None(found.name.clone()));
        }
        let (node, until) = (&found.wanted.node, self.leased().await?);
        match self.client.cordon(node, &found.holder(), until).await? {
            Cordoned::NoNode => {
                let until = self.leased().await?;
                self.client.hold_maintenance(found, false, until).await?;
                return Err(MaintenanceError::NoNode(node.clone()));
            }
            Cordoned::Before => {}
            Cordoned::Now => self.sink.note(format!("{node} is cordoned")),
        }
        if found.is_over() || found.state.is_none_or(|state| state == State::Idle) {
            self.report(found, State::Cordoned, None).await?;
        }
        Ok(())
    }

    /// Restores the Node, and lets the object go if it is deleted.
    pub(super) async fn end(&mut self, found: &Maintenance, state: State) -> Result<(), MaintenanceError> {
        let (wanted, until) = (&found.wanted, self.leased().await?);
        self.client.uncordon(&wanted.node, &found.holder(), wanted.stays_cordoned, until).await?;
        if !found.is_over() {
            self.report(found, state, None).await?;
        }
        let until = self.leased().await?;
        self.client.hold_maintenance(found, false, until).await?;
        Ok(())
    }

    /// Writes the status, with how far the drain is, when it began and how long it lasted, if that is known.
    pub(super) async fn report(
        &mut self,
        found: &Maintenance,
        state: State,
        drain: Option<(&DrainProgress, i64, Duration)>,
    ) -> Result<(), MaintenanceError> {
        // First, so that after a crash the status does not claim what the Node does not show.
        let until = self.leased().await?;
        self.client.announce(found, state, now_ms(), until).await?;
        let mut status = json!({"state": state.name(), "conditions": conditions(found, state)});
        if let Some((progress, began_ms, lasted)) = drain {
            status["drain"] = progress.status(began_ms, lasted);
        }
        if state.is_over() {
            // The object stays for people, with its counts. The next drain has the whole time again.
            status["drain"] = json!({"blocked": [], "blockedCount": 0, "kept": [], "lastedSeconds": 0});
        }
        let until = self.leased().await?;
        Ok(self.client.report_maintenance(found, &status, until).await?)
    }
}

/// The conditions, as `kubectl wait --for=condition=Drained` reads them. The time is that of the last change.
fn conditions(found: &Maintenance, state: State) -> Vec<Value> {
    let one = |kind: &str, is: bool| {
        let before = found.conditions.get(kind).filter(|(was, _)| *was == is);
        let since = before.map_or_else(|| rfc3339(now_ms()), |(_, since)| since.clone());
        let status = if is { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": state.name(), "message": "", "lastTransitionTime": since})
    };
    let is_cordoned = matches!(state, State::Cordoned | State::Draining | State::Blocked | State::Drained);
    vec![
        one("Cordoned", is_cordoned),
        one("Drained", state == State::Drained),
        one("Completed", state == State::Completed),
    ]
}
