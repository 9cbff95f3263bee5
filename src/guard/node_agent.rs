//! The node agent, `hactl host-node-agent`: a small resident program of every Node of a cluster with guards. It reboots
//! its host when a maintenance asks for it, holds its static pods (see `held`), and says by which boot the Node is
//! ready, and whether a reboot is due.
//!
//! In: the maintenances of its Node, by one watch; the certificate of the kubelet, which may read these objects and
//! write its own Node; on etcd hosts also that of the guard, see `lead`. Out: annotations of the Node; a host that shuts down. A request names the boot that it ends, so it
//! is obeyed once. Without the API nothing happens.

use super::held::StaticPods;
use super::lead;
use super::notify;
use super::setup::GuardError;
use super::shared::turns;
use crate::agent::{Root, ShutsDown, boot_of, is_reboot_due};
use crate::kube::{Change, Changes, Client, KubeError, ObjectRef, next_change};
use crate::model::boot::{BootId, announcement, asks};
use crate::model::cordon::{CordonRecord, is_cordoned};
use crate::model::hold::Hold;
use crate::model::maintenance::Maintenance;
use crate::model::names::HostName;
use crate::model::target::KUBELET_CLIENT;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// The CA of the API servers on every Node.
const CA: &str = "/etc/kubernetes/pki/ca.crt";
/// Between two looks: at what is not said yet, at requests that were not obeyed, and at whether a reboot is due.
const EVERY: Duration = Duration::from_secs(3);
/// Before a watch that ended is opened again: an API server that starts is not asked by all Nodes at once.
const OPEN_AGAIN: Duration = Duration::from_secs(5);
/// A host that shuts down has ended this program after so long.
const GOES_DOWN: Duration = Duration::from_secs(300);
/// How long a request to the API may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// What the node agent knows.
pub(super) struct NodeAgent {
    pub(super) root: Root,
    pub(super) own: HostName,
    server: String,
    /// The kernel's name of the boot.
    kernel: String,
    boot: BootId,
    /// Whether a reboot was due when the Node was last written; `None`: the Node does not say yet by which boot it is
    /// ready.
    said: Option<bool>,
    /// The maintenances of the Node, by their uid.
    pub(super) known: BTreeMap<String, Maintenance>,
    pub(super) static_pods: StaticPods,
    /// Held from the request to systemd until this program is ended, or the host does not shut down.
    ends: Option<(ShutsDown, Instant)>,
    last: String,
    pub(super) say: fn(&str),
}

/// Serves its Node until it is stopped; `kernel` is the kernel's name of the boot.
///
/// # Errors
/// This host does not say by which boot it runs.
pub async fn run(root: Root, own: HostName, (server, kernel): (String, &str), say: fn(&str)) -> Result<(), GuardError> {
    let mut agent = NodeAgent {
        root,
        own,
        server,
        kernel: kernel.to_owned(),
        boot: boot_of(kernel).map_err(|error| GuardError::Files(error.what))?.id,
        said: None,
        known: BTreeMap::new(),
        static_pods: StaticPods::default(),
        ends: None,
        last: String::new(),
        say,
    };
    notify::ready();
    let mut turn = turns(EVERY);
    let (mut client, mut live, mut open_at): (Option<Client>, Option<Changes>, _) = (None, None, Instant::now());
    loop {
        tokio::select! {
            _ = turn.tick() => {
                notify::alive();
                if live.is_none() && Instant::now() >= open_at {
                    open_at = Instant::now() + OPEN_AGAIN;
                    (client, live) = agent.open().await.unzip();
                }
                if let Some(client) = client.as_ref().filter(|_| live.is_some()) {
                    agent.announce(client).await;
                    agent.obey(client).await;
                    agent.move_static_pods(client).await;
                }
            }
            change = next_change(&mut live) => match change {
                Some(change) => agent.changed(&change),
                None => {
                    open_at = Instant::now() + OPEN_AGAIN;
                    live = None;
                }
            }
        }
    }
}

impl NodeAgent {
    pub(super) fn say_once(&mut self, text: String) {
        if self.last != text {
            (self.say)(&text);
            self.last = text;
        }
    }

    /// A client with the certificate that the kubelet has now, and its watch, which begins with each maintenance as it is.
    async fn open(&mut self) -> Option<(Client, Changes)> {
        let opened = async {
            let client = Client::with_files(&self.server, [CA, KUBELET_CLIENT, KUBELET_CLIENT].map(Path::new))?;
            let changes = client.maintenance_changes(Some(&self.own)).await?;
            Ok::<_, KubeError>((client, changes))
        };
        match opened.await {
            Ok(opened) => {
                self.known.clear();
                // The Node may be another one of its name by now, or as it was before a recovery of etcd.
                self.said = None;
                self.static_pods.forget();
                Some(opened)
            }
            Err(error) => {
                self.say_once(format!("cannot watch the maintenances of {}: {error}", self.own));
                None
            }
        }
    }

    fn changed(&mut self, change: &Change) {
        let (object, is_gone) = change.object();
        match Maintenance::of(object) {
            Ok(one) if is_gone => drop(self.known.remove(&one.uid)),
            Ok(one) => {
                if one.reboots() {
                    self.said = None;
                }
                self.known.insert(one.uid.clone(), one);
            }
            Err(why) => self.say_once(why),
        }
    }

    /// Has the Node say by which boot it is ready, and whether a reboot is due.
    async fn announce(&mut self, client: &Client) {
        let is_due = is_reboot_due(&self.root);
        if self.said == Some(is_due) {
            return;
        }
        let (node, until) = (ObjectRef::node(&self.own), Instant::now() + TIMEOUT);
        // Its clock may have been set meanwhile.
        let Ok(boot) = boot_of(&self.kernel) else { return };
        let written = async {
            let Some(live) = client.get(&node, until).await?.filter(|live| boot.is_ready(live)) else {
                return Ok(false);
            };
            if let Some(patch) = announcement(&live, &boot.id, is_due) {
                client.merge(&node, &patch, until).await?;
            }
            Ok::<_, KubeError>(true)
        };
        match written.await {
            Ok(true) => self.said = Some(is_due),
            Ok(false) => {}
            Err(error) => self.say_once(format!("cannot say by which boot {} is ready: {error}", self.own)),
        }
    }

    /// Reboots the host if a maintenance asks for that, as the API shows it now. Until it goes down, and after a failure,
    /// it is tried again.
    async fn obey(&mut self, client: &Client) {
        let wanted = self.known.values().find(|one| asks(one, &self.own, &self.boot)).map(|one| one.name.clone());
        let is_over = |(_, since): &(ShutsDown, Instant)| wanted.is_none() || since.elapsed() >= GOES_DOWN;
        drop(self.ends.take_if(|ends| is_over(ends)));
        let Some(name) = wanted.filter(|_| self.ends.is_none()) else { return };
        let ends = async {
            let asked = |one: &Maintenance| asks(one, &self.own, &self.boot);
            self.is_asked(client, &name, asked).await?;
            let lock = ShutsDown::take(&self.root).await.map_err(|error| error.what)?;
            // That takes seconds, so that it is looked at again what the API shows.
            if lead::hand_over(&self.root, &self.own, self.say).await {
                self.is_asked(client, &name, asked).await?;
            }
            lock.reboot().await.map_err(|error| error.what)?;
            Ok::<_, String>(lock)
        };
        match ends.await {
            Ok(ends) => {
                (self.say)(&format!("the host reboots for NodeMaintenance {name}"));
                self.ends = Some((ends, Instant::now()));
            }
            Err(why) => self.say_once(format!("the host does not reboot for NodeMaintenance {name}: {why}")),
        }
    }

    /// Whether a maintenance asks for this, by what the API shows now; else why not.
    pub(super) async fn is_asked(
        &self,
        client: &Client,
        name: &str,
        asks: impl Fn(&Maintenance) -> bool,
    ) -> Result<(), String> {
        let until = Instant::now() + TIMEOUT;
        let unread = |error: KubeError| format!("the API cannot be read: {error}");
        let now = client.maintenance(name, until).await.map_err(unread)?;
        let now = now.filter(asks).ok_or("it does not ask for that any more")?;
        let node = client.get(&ObjectRef::node(&self.own), until).await.map_err(unread)?;
        let node = node.ok_or_else(|| format!("there is no Node {}", self.own))?;
        let is_held = CordonRecord::of(&node).is_some_and(|record| record.is_held_by(&now.holder()));
        if !is_held || !is_cordoned(&node) {
            return Err(format!("the Node {} is not cordoned for it", self.own));
        }
        Hold::of_node(&node).map_or(Ok(()), |hold| Err(format!("{hold} holds it")))
    }
}
