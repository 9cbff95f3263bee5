//! What is done to one maintenance and its Node: it begins, waits, ends, and its status says so.
//!
//! In: the object as it was read. Out: writes, each of them idempotent, in an order that a process may leave at any
//! moment.

use super::ended::MaintenanceError;
use super::maintenance::{Controller, draining, soon};
use super::occurrence::{Occurrence, now_ms};
use crate::kube::Cordoned;
use crate::model::gate::Closed;
use crate::model::maintenance::{Conditions, Maintenance, Stage, State, Wanted, short};
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::timestamp::rfc3339;
use serde_json::{Value, json};

impl Controller<'_> {
    /// Has the status say what a maintenance waits for.
    pub(super) async fn wait(&mut self, found: &Maintenance, why: String) -> Result<(), MaintenanceError> {
        // What is drained stays so until its host can reboot.
        let is_drained = found.holds && found.state == Some(State::Drained);
        self.waits(found, if is_drained { State::Drained } else { State::Waiting }, why, None).await
    }

    /// A maintenance that may not begin now waits. A drain that is not complete ends, and its Node is restored.
    pub(super) async fn hold_back(&mut self, found: &Maintenance, closed: Closed) -> Result<(), MaintenanceError> {
        // A Node that was cordoned before its author asked for a drain stays cordoned.
        let was_cordoned = found.state == Some(State::Cordoned) && (!found.is_observed || !found.why.is_empty());
        let stays = found.holds && was_cordoned;
        if found.holds && !stays {
            self.end(found, State::Waiting, &closed.why).await?;
            self.tell(found, Occurrence::HeldBack).await;
        }
        let next = closed.next_window.map(|next| next.rfc3339());
        self.waits(found, if stays { State::Cordoned } else { State::Waiting }, closed.why, next).await
    }

    async fn waits(
        &mut self,
        found: &Maintenance,
        state: State,
        why: String,
        next_window: Option<String>,
    ) -> Result<(), MaintenanceError> {
        let written =
            self.written.get(&found.uid).map_or((found.state, found.why.as_str()), |(state, why)| (Some(*state), why));
        if found.next_window == next_window && found.is_observed && written == (Some(state), short(&why).as_str()) {
            return Ok(());
        }
        self.report(found, state, &why, next_window.map(|next| ("nextWindow", json!(next)))).await?;
        self.tell(found, Occurrence::Waiting(why)).await;
        Ok(())
    }

    /// Restores the Node of a drain that is given up.
    pub(super) async fn give_up(&mut self, found: &Maintenance, why: &str) -> Result<(), MaintenanceError> {
        self.end(found, State::Failed, why).await?;
        self.tell(found, Occurrence::GaveUp(why.to_owned())).await;
        Ok(())
    }

    /// The Node is cordoned, and the object cannot vanish before it is restored. Pods that would be lost are named before.
    /// `drains`: its drain follows at once, whose first report says so as well.
    pub(super) async fn begin(
        &mut self,
        all: &[Maintenance],
        found: &Maintenance,
        drains: bool,
    ) -> Result<(), MaintenanceError> {
        if found.wanted.stage == Stage::Drain && !found.holds {
            let seen = draining((self.node, &self.place), all, found).check(self.client).await?;
            self.checked = Some((found.uid.clone(), seen));
        }
        // Until pods leave, its author may ask for more than when it was cordoned.
        let begins = matches!(found.state, None | Some(State::Idle | State::Waiting | State::Cordoned));
        if !found.holds || begins {
            // A host that others believe to be off may be on again.
            let node = self.known.read(self.client, soon()).await?;
            let node = node.ok_or_else(|| MaintenanceError::NoNode(self.node.clone()))?;
            can_be_drained(self.node, node, &found.wanted)?;
        }
        let until = self.leased().await?;
        if !self.client.hold_maintenance(found, true, until).await? {
            return Err(MaintenanceError::None(found.name.clone()));
        }
        let (node, until) = (self.node, self.leased().await?);
        match self.client.cordon(&mut self.known, (&found.holder(), &found.wanted.taints()), until).await? {
            Cordoned::NoNode => {
                let until = self.leased().await?;
                self.client.hold_maintenance(found, false, until).await?;
                return Err(MaintenanceError::NoNode(node.clone()));
            }
            Cordoned::Before => {}
            Cordoned::Now if drains && found.state != Some(State::Drained) => {
                Occurrence::Cordoned.line(self.sink, self.node);
            }
            Cordoned::Now => self.tell(found, Occurrence::Cordoned).await,
        }
        let is_new = match found.state {
            None | Some(State::Idle) => true,
            Some(State::Waiting) => !found.holds,
            Some(_) => false,
        };
        if (is_new || found.is_over() || found.wanted.stage == Stage::Cordon) && !drains {
            self.report(found, State::Cordoned, "", None).await?;
        }
        Ok(())
    }

    /// Restores the Node, and lets the object go if it is deleted.
    pub(super) async fn end(&mut self, found: &Maintenance, state: State, why: &str) -> Result<(), MaintenanceError> {
        self.release_static_pods(found).await?;
        let (wanted, until) = (&found.wanted, self.leased().await?);
        let stays_cordoned = wanted.stays_cordoned && state.is_over();
        self.client.uncordon(&mut self.known, &found.holder(), stays_cordoned, until).await?;
        if found.state != Some(state) || !found.is_observed || !why.is_empty() {
            self.report(found, state, why, Some(("drain", ended()))).await?;
        }
        let until = self.leased().await?;
        self.client.hold_maintenance(found, false, until).await?;
        if state == State::Completed && found.holds {
            self.tell(found, Occurrence::Completed).await;
        }
        Ok(())
    }

    /// Writes the status: what it waits for or why it was given up, and a part of it that is known, by its name.
    pub(super) async fn report(
        &mut self,
        found: &Maintenance,
        state: State,
        why: &str,
        part: Option<(&'static str, Value)>,
    ) -> Result<(), MaintenanceError> {
        self.announce(found, state).await?;
        let waits: &[Value] =
            if why.is_empty() { &[] } else { &[json!({"reason": state.name(), "message": short(why)})] };
        let conditions = conditions(self.conditions.get(&found.uid).unwrap_or(&found.conditions), state);
        let mut status = json!({
            "state": state.name(),
            "observedGeneration": found.generation,
            "waitingFor": waits,
            "nextWindow": Value::Null,
            "conditions": written(&conditions, state),
        });
        if !matches!(state, State::Rebooting | State::Overdue | State::Completed) {
            // What was asked of the host is taken back.
            status["reboot"] = Value::Null;
        }
        if !matches!(state, State::Draining | State::Blocked | State::Drained) {
            status["staticPods"] = Value::Null;
        }
        if let Some((name, part)) = part {
            status[name] = part;
        }
        let until = self.leased().await?;
        self.client.report_maintenance(found, &status, until).await?;
        self.conditions.insert(found.uid.clone(), conditions);
        self.written.insert(found.uid.clone(), (state, short(why)));
        Ok(())
    }

    /// Has the conditions of the Node show a state: before the status does, so that after a crash that does not claim
    /// what the Node does not show.
    async fn announce(&mut self, found: &Maintenance, state: State) -> Result<(), MaintenanceError> {
        let shows = (state, found.wanted.reason.clone());
        if self.shown.get(&found.uid) == Some(&shows) {
            return Ok(());
        }
        let until = self.leased().await?;
        self.client.announce(&mut self.known, (found, state), now_ms(), until).await?;
        self.shown.insert(found.uid.clone(), shows);
        Ok(())
    }
}

/// Pods of a host whose kubelet does not answer are only marked; those of a host that is off are deleted.
fn can_be_drained(name: &HostName, node: &Value, wanted: &Wanted) -> Result<(), MaintenanceError> {
    let is_ready = NodeFact::of(node).is_some_and(|node| node.ready);
    match (wanted.stage, is_ready, wanted.powered_off) {
        (Stage::Drain, false, false) => Err(MaintenanceError::NotReady(name.clone())),
        (Stage::Drain, true, true) => Err(MaintenanceError::NotOff(name.clone())),
        _ => Ok(()),
    }
}

/// The drain that has ended, as the status shows it. The object stays for people, with its counts. The next drain has
/// the whole time again.
fn ended() -> Value {
    json!({"blocked": [], "blockedCount": 0, "kept": [], "lastedSeconds": 0})
}

/// The conditions in a state, each with the time of its last change.
fn conditions(before: &Conditions, state: State) -> Conditions {
    let is_drained = matches!(state, State::Drained | State::Rebooting | State::Overdue);
    let begins = matches!(state, State::Cordoned | State::Draining | State::Blocked);
    let is_cordoned = is_drained || begins || state == State::Completing;
    let now = [("Cordoned", is_cordoned), ("Drained", is_drained), ("Completed", state == State::Completed)];
    let since = |kind: &str, is: bool| {
        let before = before.get(kind).filter(|(was, _)| *was == is);
        before.map_or_else(|| rfc3339(now_ms()), |(_, since)| since.clone())
    };
    now.into_iter().map(|(kind, is)| (kind.to_owned(), (is, since(kind, is)))).collect()
}

/// The same as `kubectl wait --for=condition=Drained` reads them.
fn written(conditions: &Conditions, state: State) -> Vec<Value> {
    let one = |(kind, (is, since)): (&String, &(bool, String))| {
        let status = if *is { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": state.name(), "message": "", "lastTransitionTime": since})
    };
    conditions.iter().map(one).collect()
}
