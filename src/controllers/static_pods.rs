//! The static pods of a drained Node: its node agent holds them while the maintenance lasts, and they run again before it
//! is over.
//!
//! In: a maintenance that asks for it. Out: the kubelet runs no static pod, or it does again. The request is in the status
//! of the object, which the node agent watches; its answer is an annotation of the Node. Without an API server nobody
//! could bring them back, so that another one has to serve.

use super::ended::MaintenanceError;
use super::maintenance::{Controller, soon};
use super::occurrence::{Occurrence, now_ms};
use crate::kube::Cordoned;
use crate::model::boot::NODE_AGENT;
use crate::model::event::Event;
use crate::model::maintenance::{Maintenance, State, Through};
use crate::model::pod::PodView;
use crate::model::static_pods::held;
use crate::model::timestamp::rfc3339;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// What takes longer than this is said in the status.
const SAID_AFTER: Duration = Duration::from_secs(4);
/// A node agent has obeyed within this time, or something is wrong with it.
const OBEYS_WITHIN: Duration = Duration::from_secs(60);
/// Pods take longer than that to end or to become ready.
const BACK_WITHIN: Duration = Duration::from_secs(360);

impl Controller<'_> {
    /// Has the node agent hold the static pods, and waits until they have ended. `false`: an author asks for something
    /// else meanwhile.
    pub(super) async fn hold_static_pods(
        &mut self,
        all: &[Maintenance],
        found: &Maintenance,
        within: Duration,
    ) -> Result<bool, MaintenanceError> {
        let begun = Instant::now();
        // What was drained stays so for others meanwhile.
        let state = if found.state == Some(State::Drained) { State::Drained } else { State::Draining };
        let mut is_asked = found.holds_static_pods().is_some();
        let mut said = String::new();
        loop {
            // Before the request, it may be too late for this window.
            if !self.are_unchanged(all).await? || (!is_asked && found.closed(now_ms()).is_some()) {
                return Ok(false);
            }
            let until = self.leased().await?;
            let cordoned =
                self.client.cordon(&mut self.known, (&found.holder(), &found.wanted.taints()), until).await?;
            if cordoned == Cordoned::Now {
                self.tell(found, Occurrence::Contested).await;
            }
            let (pods, _) = self.client.pods(self.node, soon()).await?;
            let runs: Vec<&PodView> = pods.iter().filter(|pod| pod.mirror).collect();
            let Some(node) = self.known.recent(self.client, soon()).await? else {
                return Err(MaintenanceError::NoNode(self.node.clone()));
            };
            let is_held = held(node).is_some();
            if is_held && is_asked && runs.is_empty() {
                return Ok(true);
            }
            let why = if is_asked {
                let late = begun.elapsed() >= OBEYS_WITHIN && !is_held;
                let hint = if late {
                    format!("; on its host, `journalctl -u {NODE_AGENT}` says why not")
                } else {
                    String::new()
                };
                let pods = runs.iter().map(|pod| pod.called()).collect::<Vec<_>>().join(", ");
                format!("the node agent of {} to hold its static pods: {pods}{hint}", self.node)
            } else if runs.iter().any(|pod| pod.is_api_server()) && !self.another_api_server_serves().await? {
                "another API server to be ready: without one, nobody could bring the static pods back".to_owned()
            } else {
                // The id tells requests apart: a node agent obeys none that it has obeyed and ended before.
                let request =
                    json!({"request": format!("{}/{}", found.uid, now_ms()), "requestTime": rfc3339(now_ms())});
                self.report(found, state, "static pods are to be held", Some(("staticPods", request))).await?;
                self.tell(found, Occurrence::StaticPodsAsked).await;
                is_asked = true;
                continue;
            };
            self.sink.emit(Event::Waiting { step: 0, on: why.clone() });
            if said != why && begun.elapsed() >= SAID_AFTER {
                self.report(found, state, &format!("it waits for {why}"), None).await?;
                said.clone_from(&why);
            }
            if begun.elapsed() >= within {
                let why = format!("in the time that was given it waited for {why}");
                // It has the request by now, which is to end before the Node is restored.
                let now = self.client.maintenance(&found.name, soon()).await?;
                self.give_up(now.as_ref().unwrap_or(found), &why).await?;
                return Err(MaintenanceError::GaveUp(why));
            }
            self.pause().await?;
        }
    }

    /// Has the static pods run again that a maintenance holds, and waits for them. Those that another one holds stay.
    pub(super) async fn release_static_pods(&mut self, found: &Maintenance) -> Result<(), MaintenanceError> {
        let is_asked = self.written.get(&found.uid).is_some_and(|(state, _)| *state == State::Completing);
        let may_hold = found.wanted.drain.through == Through::Static || found.static_pods.is_some();
        if !may_hold && found.state != Some(State::Completing) && !is_asked {
            return Ok(());
        }
        let node = self.known.read(self.client, soon()).await?;
        if found.static_pods.is_none() && node.is_none_or(|node| held(node).is_none()) {
            return Ok(());
        }
        let begun = Instant::now();
        if found.state != Some(State::Completing) && !is_asked {
            self.report(found, State::Completing, "its static pods are to run again", None).await?;
        }
        loop {
            let others = self.client.maintenances_of(self.node, soon()).await?;
            let is_back = self.known.read(self.client, soon()).await?.is_none_or(|node| held(node).is_none());
            if is_back || others.iter().any(|one| one.uid != found.uid && one.holds_static_pods().is_some()) {
                return Ok(());
            }
            if begun.elapsed() >= BACK_WITHIN {
                return Err(MaintenanceError::StaticPodsHeld(self.node.clone()));
            }
            self.sink.emit(Event::Waiting { step: 0, on: format!("the static pods of {} to run again", self.node) });
            self.pause().await?;
        }
    }

    /// Whether an API server of another host is ready, by its kubelet.
    async fn another_api_server_serves(&self) -> Result<bool, MaintenanceError> {
        Ok(self.client.api_server_hosts(soon()).await?.iter().any(|host| host != self.node.as_str()))
    }
}
