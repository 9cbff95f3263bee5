//! The static pods of this host, while a maintenance holds them: what the node agent does about them, one step a turn.
//!
//! In: the maintenances of its Node, and two folders of the host. Out: manifests that are moved, the API server's the last
//! to go and the first to come back; an annotation of the Node, which says how many are held. Without the API nothing
//! changes: what is held stays so, also over a reboot.

use super::node_agent::{NodeAgent, TIMEOUT};
use super::setup;
use crate::agent::hosting::answers;
use crate::agent::{MovesStaticPods, has_ended, held_static_pods, placed_static_pods};
use crate::kube::{Client, KubeError, ObjectRef};
use crate::model::control_plane::API_MANIFEST;
use crate::model::desired::Role;
use crate::model::pod::PodView;
use crate::model::static_pods::{asks_to_hold, held, says_held};
use futures::future::join_all;
use std::time::{Duration, Instant as Since};
use tokio::time::Instant;

/// A pod ends, or is ready, after this time. Then the node agent does not wait for it any more.
const WAITS: Duration = Duration::from_secs(120);
/// How long another API server may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// What the Node says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Says {
    /// It is not known.
    #[default]
    Unknown,
    /// Its static pods run.
    Runs,
    /// So many are held.
    Holds(usize),
}

/// What the node agent knows of static pods.
#[derive(Debug, Default)]
pub(super) struct StaticPods {
    says: Says,
    /// When manifests were moved last.
    moved: Option<Since>,
}

impl StaticPods {
    /// The Node may be another one of its name by now.
    pub(super) fn forget(&mut self) {
        self.says = Says::Unknown;
    }

    fn waits(&self) -> bool {
        self.moved.is_some_and(|at| at.elapsed() < WAITS)
    }
}

fn is_api_server(name: &String) -> bool {
    API_MANIFEST.ends_with(&format!("/{name}"))
}

fn until() -> Instant {
    Instant::now() + TIMEOUT
}

impl NodeAgent {
    /// Moves manifests as the maintenances of the Node ask for, one step at a time.
    pub(super) async fn move_static_pods(&mut self, client: &Client) {
        let asked =
            self.known.values().find_map(|one| Some((one.name.clone(), asks_to_hold(one, &self.own)?.to_owned())));
        let done = match &asked {
            Some((name, request)) => self.hold(client, name, request).await,
            None => self.release(client).await,
        };
        if let Err(why) = done {
            let what = if asked.is_some() { "are not held" } else { "do not run again" };
            self.say_once(format!("static pods {what}: {why}"));
        }
    }

    async fn hold(&mut self, client: &Client, name: &str, request: &str) -> Result<(), String> {
        if has_ended(&self.root, request) {
            return Err(format!("the request of NodeMaintenance {name} has ended here before; begin it again"));
        }
        let placed = placed_static_pods(&self.root).map_err(|error| error.what)?;
        if placed.is_empty() {
            let count = held_static_pods(&self.root).map_err(|error| error.what)?.len();
            return self.say_held(client, Some(count)).await;
        }
        let (last, first): (Vec<_>, Vec<_>) = placed.into_iter().partition(is_api_server);
        if first.is_empty() && self.static_pods.waits() {
            // Pods that end may need the API server of their host.
            let pods = self.mirrors(client).await?;
            if pods.iter().any(|pod| !pod.is_api_server()) {
                return Ok(());
            }
        }
        self.is_asked(client, name, |one| asks_to_hold(one, &self.own) == Some(request)).await?;
        if first.is_empty() && !self.another_api_server_answers().await? {
            return Err("no other API server answers, and without one nobody could end the maintenance".to_owned());
        }
        let moves = MovesStaticPods::take(&self.root).await.map_err(|error| error.what)?;
        let now = if first.is_empty() { last } else { first };
        moves.note(request).and_then(|()| moves.hold(&now)).map_err(|error| error.what)?;
        self.static_pods.moved = Some(Since::now());
        (self.say)(&format!(
            "for NodeMaintenance {name} the kubelet does not run these static pods: {}",
            now.join(", ")
        ));
        Ok(())
    }

    async fn release(&mut self, client: &Client) -> Result<(), String> {
        let held = held_static_pods(&self.root).map_err(|error| error.what)?;
        if held.is_empty() && self.static_pods.says == Says::Runs {
            return Ok(());
        }
        // A watch that begins may not have shown all.
        match client.maintenances_of(&self.own, until()).await {
            Ok(all) if all.iter().any(|one| asks_to_hold(one, &self.own).is_some()) => return Ok(()),
            Err(error) if !error.is_not_found() => return Err(unread(&error)),
            _ => {}
        }
        if held.is_empty() {
            return self.say_back(client).await;
        }
        let (first, rest): (Vec<_>, Vec<_>) = held.into_iter().partition(is_api_server);
        if first.is_empty() && self.static_pods.waits() && self.own_api_server_starts(client).await? {
            return Ok(());
        }
        let now = if first.is_empty() { rest } else { first };
        let moves = MovesStaticPods::take(&self.root).await.map_err(|error| error.what)?;
        moves.place(&now).map_err(|error| error.what)?;
        self.static_pods.moved = Some(Since::now());
        (self.say)(&format!("the kubelet runs these static pods again: {}", now.join(", ")));
        Ok(())
    }

    /// Whether an API server of another host answers this one, by the policy of the guards.
    async fn another_api_server_answers(&self) -> Result<bool, String> {
        let (setup, _) = setup::read(&self.root, &self.own).map_err(|error| error.to_string())?;
        let policy = setup.policy;
        let others = policy.guards.iter().filter(|guard| guard.is(Role::ControlPlane) && guard.name != self.own);
        let asked = others.map(async |guard| answers(guard.address, policy.api_port, ANSWER).await);
        Ok(join_all(asked).await.contains(&true))
    }

    /// All manifests are back: has the Node say so once the pods are ready.
    async fn say_back(&mut self, client: &Client) -> Result<(), String> {
        let node = client.get(&ObjectRef::node(&self.own), until()).await.map_err(|error| unread(&error))?;
        if node.is_none_or(|node| held(&node).is_none()) {
            self.static_pods.says = Says::Runs;
            return Ok(());
        }
        let placed = placed_static_pods(&self.root).map_err(|error| error.what)?.len();
        let ready = self.mirrors(client).await?.iter().filter(|pod| pod.ready).count();
        if ready < placed && self.static_pods.waits() {
            return Ok(());
        }
        let moves = MovesStaticPods::take(&self.root).await.map_err(|error| error.what)?;
        moves.end().map_err(|error| error.what)?;
        self.say_held(client, None).await
    }

    async fn say_held(&mut self, client: &Client, count: Option<usize>) -> Result<(), String> {
        let says = count.map_or(Says::Runs, Says::Holds);
        if self.static_pods.says != says {
            let node = ObjectRef::node(&self.own);
            let written = client.merge(&node, &says_held(count), until()).await;
            written.map_err(|error| format!("the Node does not say so: {error}"))?;
            self.static_pods.says = says;
        }
        Ok(())
    }

    /// Whether the API server of this host has its manifest and is not ready yet.
    async fn own_api_server_starts(&self, client: &Client) -> Result<bool, String> {
        let placed = placed_static_pods(&self.root).map_err(|error| error.what)?;
        if !placed.iter().any(is_api_server) {
            return Ok(false);
        }
        Ok(!self.mirrors(client).await?.iter().any(|pod| pod.is_api_server() && pod.ready))
    }

    /// The static pods of this host, as the API shows them.
    async fn mirrors(&self, client: &Client) -> Result<Vec<PodView>, String> {
        let (pods, _) = client.pods(&self.own, until()).await.map_err(|error| unread(&error))?;
        Ok(pods.into_iter().filter(|pod| pod.mirror).collect())
    }
}

fn unread(error: &KubeError) -> String {
    format!("the API cannot be read: {error}")
}
