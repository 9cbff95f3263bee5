//! The reboot of a drained host: it is asked for once for each boot, and the maintenance goes on when the Node is ready
//! by another one. If a person reboots the host, the effect is the same.
//!
//! In: a maintenance whose Node is drained. Out: whether its host is back. A host is asked by the status of the object,
//! which the node agent on it watches; a command without guards asks it itself. A crash at any moment repeats the
//! question, and not the reboot.

use super::ended::MaintenanceError;
use super::maintenance::{Controller, soon};
use super::occurrence::{Occurrence, now_ms};
use crate::kube::ObjectRef;
use crate::model::boot::{Boot, BootId, NODE_AGENT, announced};
use crate::model::cordon::{CordonRecord, Holder, is_cordoned};
use crate::model::hold::Hold;
use crate::model::maintenance::{Maintenance, Reboot, RebootRequest, State, Work, short};
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::timestamp::rfc3339;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// While a host does not answer, the Lease is renewed in between.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// Hosts that this process reaches itself.
pub trait Hosts: Sync {
    /// How a host runs.
    fn boot<'a>(&'a self, host: &'a HostName) -> BoxFuture<'a, Result<Boot, String>>;
    /// Has it reboot, if it runs by this boot.
    fn reboot<'a>(&'a self, host: &'a HostName, boot: &'a BootId) -> BoxFuture<'a, Result<(), String>>;
}

/// How a host is.
struct Seen {
    /// The boot by which it runs; `None`: it is not known.
    boot: Option<BootId>,
    /// Whether its Node is ready by that boot.
    is_ready: bool,
    /// Why the boot is not known.
    why: String,
}

/// What else is done to the Node or its host.
fn in_the_way(node: &Value, all: &[Maintenance], found: &Maintenance) -> Option<String> {
    if let Some(hold) = Hold::of_node(node) {
        return Some(format!("{hold} holds it"));
    }
    if CordonRecord::of(node).is_some_and(|record| record.is_held_by(&Holder::Up)) {
        return Some("`hactl up` works on it".to_owned());
    }
    if !is_cordoned(node) {
        return Some("others uncordoned its Node".to_owned());
    }
    let is_under_way = |one: &&Maintenance| one.takes() && one.holds;
    // Of several reboots, the oldest one comes first.
    let older = all.iter().take_while(|one| one.uid != found.uid);
    let people = all.iter().filter(|one| !one.reboots() || one.reboot.is_some());
    let other = older.chain(people).filter(is_under_way).find(|one| one.uid != found.uid)?;
    Some(format!("NodeMaintenance {} is under way as well", other.name))
}

impl Controller<'_> {
    /// Has the host reboot, and looks whether it is back.
    pub(super) async fn reboot(&mut self, all: &[Maintenance], found: &Maintenance) -> Result<bool, MaintenanceError> {
        let Work::Reboot(request) = &found.wanted.work else { return Ok(false) };
        let Some(node) = self.client.get(&ObjectRef::node(self.node), soon()).await? else {
            self.end(found, State::Completed, "").await?;
            return Err(MaintenanceError::NoNode(self.node.clone()));
        };
        let seen = self.seen(&node).await?;
        let blocked = self.place.needed.clone().or_else(|| in_the_way(&node, all, found));
        match (&found.reboot, &seen.boot, blocked) {
            (None, None, _) => self.cannot_ask(found, &seen.why).await?,
            (None, Some(_), Some(why)) => self.cannot_ask(found, &why).await?,
            (None, Some(boot), None) => self.ask(found, boot).await?,
            (Some(asked), Some(now), _) if *now != asked.boot && seen.is_ready => {
                self.back(found, asked, now).await?;
                return Ok(true);
            }
            // It has not begun to shut down: what was asked for is taken back.
            (Some(asked), Some(now), Some(why)) if *now == asked.boot && seen.is_ready => {
                self.cannot_ask(found, &why).await?;
            }
            (Some(asked), now, _) => {
                let runs_on = now.as_ref() == Some(&asked.boot) && seen.is_ready;
                self.overdue(found, request, (asked, runs_on)).await?;
                if now.as_ref() == Some(&asked.boot) && self.asked.as_ref() != Some(&asked.boot) {
                    self.ask_host(&asked.boot).await?;
                }
            }
        }
        Ok(false)
    }

    async fn seen(&mut self, node: &Value) -> Result<Seen, MaintenanceError> {
        let Some(hosts) = self.hosts else {
            return Ok(Seen {
                boot: announced(node),
                // Its node agent says which boot it is once the Node is ready by it.
                is_ready: NodeFact::of(node).is_some_and(|node| node.ready),
                why: format!("no node agent on {} has said how the host runs", self.node),
            });
        };
        Ok(match self.while_leased(hosts.boot(self.node)).await? {
            Ok(boot) => Seen { is_ready: boot.is_ready(node), boot: Some(boot.id), why: String::new() },
            Err(why) => Seen { boot: None, is_ready: false, why },
        })
    }

    /// Waits for a host, which may take longer than the Lease lasts.
    async fn while_leased<T>(&mut self, work: impl Future<Output = T>) -> Result<T, MaintenanceError> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = sleep(RENEW_EVERY) => drop(self.leased().await?),
            }
        }
    }

    /// It stays drained, and its status says why it does not reboot.
    async fn cannot_ask(&mut self, found: &Maintenance, why: &str) -> Result<(), MaintenanceError> {
        let why = short(&format!("{} is not asked to reboot: {why}", self.node));
        if found.why != why || found.state != Some(State::Drained) {
            self.report(found, State::Drained, &why, None).await?;
            self.tell(found, Occurrence::Waiting(why)).await;
        }
        Ok(())
    }

    async fn ask(&mut self, found: &Maintenance, boot: &BootId) -> Result<(), MaintenanceError> {
        let reboot = json!({"boot": boot, "requestTime": rfc3339(now_ms()), "newBoot": null, "readyTime": null});
        self.report(found, State::Rebooting, "", Some(("reboot", reboot))).await?;
        self.tell(found, Occurrence::RebootAsked).await;
        self.ask_host(boot).await
    }

    /// Asks the host itself, if this process reaches it. A host that does not answer is asked again.
    async fn ask_host(&mut self, boot: &BootId) -> Result<(), MaintenanceError> {
        let Some(hosts) = self.hosts else { return Ok(()) };
        match self.while_leased(hosts.reboot(self.node, boot)).await? {
            Ok(()) => self.asked = Some(boot.clone()),
            Err(why) => self.sink.note(format!("{} does not reboot yet: {why}", self.node)),
        }
        Ok(())
    }

    async fn overdue(
        &mut self,
        found: &Maintenance,
        request: &RebootRequest,
        (asked, runs_on): (&Reboot, bool),
    ) -> Result<(), MaintenanceError> {
        let since_ms = now_ms().saturating_sub(asked.asked_ms).max(0);
        let since = Duration::from_millis(u64::try_from(since_ms).unwrap_or(0));
        if found.state == Some(State::Overdue) || since < request.timeout {
            return Ok(());
        }
        if request.then_heal {
            let until = self.leased().await?;
            self.client.heal_in_maintenance(self.node, until).await?;
        }
        let (node, minutes) = (self.node, since.as_secs() / 60);
        let why = if runs_on {
            format!(
                "{node} has not rebooted {minutes} min after it was asked to; on it, `journalctl -u {NODE_AGENT}` says why"
            )
        } else {
            format!("{node} is not back {minutes} min after it was asked to reboot")
        };
        self.report(found, State::Overdue, &why, None).await?;
        self.tell(found, Occurrence::Overdue(why)).await;
        Ok(())
    }

    async fn back(&mut self, found: &Maintenance, asked: &Reboot, now: &BootId) -> Result<(), MaintenanceError> {
        let reboot = json!({"newBoot": now, "readyTime": rfc3339(now_ms())});
        let state = found.state.unwrap_or(State::Rebooting);
        self.report(found, state, "", Some(("reboot", reboot))).await?;
        let took_s = now_ms().saturating_sub(asked.asked_ms).max(0) / 1000;
        self.tell(found, Occurrence::Rebooted(took_s)).await;
        self.end(found, State::Completed, "").await
    }
}
