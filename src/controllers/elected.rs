//! The controllers of a cluster: of all processes that run this, one at a time has their Lease, and brings every
//! maintenance as far as its author asks for. The others wait to take over.
//!
//! In: an API client, and the name of this process. Out: changed objects. The state is in the API alone: who takes over
//! continues. Beside the Lease, an idle cluster costs one watch.

use super::ended::MaintenanceError;
use super::maintenance::{Controller, Place, soon};
use super::news::opened;
use super::recovered::{InCluster, may_act};
use super::requests::Requests;
use super::right::{Right, WITHIN};
use super::rollouts::{self, Rollouts};
use crate::execute::Pace;
use crate::kube::{Change, Changes, Client, Lease, LeaseAttempt, is_marked, next_change};
use crate::model::event::Sink;
use crate::model::maintained::Maintained;
use crate::model::maintenance::{CONTROLLERS_LEASE, Maintenance, State, Wanted};
use crate::model::names::HostName;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

/// Between two attempts to take the Lease.
const STAND_BY: Duration = Duration::from_secs(8);
/// Between two renewals. The Lease itself decides whether one is due.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Between two looks for Nodes whose time has come.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A maintenance that waits, or an error, is looked at again after this time.
const AGAIN: Duration = Duration::from_secs(30);
/// After an error.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// A host that reboots is looked for so often.
const REBOOTS_AGAIN: Duration = Duration::from_secs(2);
/// Before its own host reboots, a guard leaves the Lease to another one for so long.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(30);
/// While it waits after a recovery, the ConfigMap is read so often.
const LOOK_FOR_RESUME: Duration = Duration::from_secs(5);
const WAITS: &str = "etcd was recovered: maintenances and rollouts wait until `hactl maintain resume`";
/// Nodes that are acted on at once.
const NODES: usize = 50;
/// Nodes on which work begins within a second: each begins with a list of its pods.
const STARTS: usize = 8;
/// Pods that are asked to leave at once, and one in so much time.
const PODS: usize = 32;
const POD_EVERY: Duration = Duration::from_millis(50);

/// What each Node is to the control plane, asked whenever its maintenances are looked at.
pub type Places<'a> = &'a (dyn Fn(&HostName) -> Place + Sync);

/// Learns what all maintenances come to while this process acts on them; `None`: it does not any more.
pub type Shows<'a> = &'a (dyn Fn(Option<Maintained>) + Sync);

/// What a guard knows beside the API.
#[derive(Clone, Copy)]
pub struct Guarding<'a> {
    /// What each Node is to the control plane.
    pub places: Places<'a>,
    /// Learns what the maintenances come to.
    pub shows: Shows<'a>,
    /// In which cluster of etcd it is, now.
    pub cluster: &'a (dyn Fn() -> InCluster + Sync),
}

/// Acts on the maintenances of a cluster whenever this process, on this host, has the Lease. Ends never.
pub async fn control(client: &Client, sink: &dyn Sink, (holder, own): (&str, &HostName), knows: Guarding<'_>) {
    // If no other guard takes the Lease that this one has left, this one has its own host reboot.
    let mut leaves = true;
    loop {
        if (knows.cluster)() == InCluster::None {
            sleep(STAND_BY).await;
            continue;
        }
        match Lease::take(client, CONTROLLERS_LEASE, holder, Instant::now() + WITHIN).await {
            Ok(LeaseAttempt::Taken(lease)) => {
                sink.note("this guard acts on maintenances of Nodes");
                let own = Some(own).filter(|_| leaves);
                let ended = Term { client, sink, holder, knows, own }.run(lease).await;
                (knows.shows)(None);
                sink.note(format!("this guard does not act on maintenances any more: {ended}"));
                leaves = !matches!(ended, TermEnded::OwnReboots);
                if !leaves {
                    sleep(LEFT_TO_OTHERS).await;
                }
            }
            Ok(LeaseAttempt::HeldBy(_)) => {}
            Err(error) => sink.warn(format!("the Lease {CONTROLLERS_LEASE} cannot be taken: {error}")),
        }
        sleep(STAND_BY).await;
    }
}

/// What an author asks for, as far as it decides whether there is something to do.
type Asked = Vec<(String, Wanted, bool)>;

/// The time during which this process has the Lease.
struct Term<'a> {
    client: &'a Client,
    sink: &'a dyn Sink,
    holder: &'a str,
    knows: Guarding<'a>,
    /// The Node of this process, if it leaves its reboot to another process.
    own: Option<&'a HostName>,
}

/// Why it ends.
#[derive(Debug, thiserror::Error)]
enum TermEnded {
    /// The Lease is lost.
    #[error("{0}")]
    Lost(String),
    /// The own host is to reboot.
    #[error("its own host is about to reboot")]
    OwnReboots,
    /// The own host has no member of etcd any more.
    #[error("its own host has no member of etcd")]
    NoMember,
}

/// The maintenances of all Nodes as the watch shows them, and what is done about them.
#[derive(Default)]
struct Nodes {
    all: BTreeMap<String, Maintenance>,
    under_way: BTreeSet<HostName>,
    /// What was asked for when a Node was looked at last, and when that was.
    looked: BTreeMap<HostName, (Asked, Instant)>,
    /// Nodes of objects that are gone: if somebody removed their finalizer, they still hold something of the Node.
    lost: BTreeSet<HostName>,
}

impl Nodes {
    fn asked(&self, node: &HostName) -> Asked {
        let of_node = self.all.values().filter(|one| one.wanted.node == *node);
        of_node.map(|one| (one.uid.clone(), one.wanted.clone(), one.is_deleted)).collect()
    }

    /// After which time a Node is looked at again, if its authors ask for nothing else.
    fn again(&self, node: &HostName) -> Duration {
        let reboots = |one: &Maintenance| one.wanted.node == *node && one.is_about_to_reboot();
        if self.all.values().any(reboots) { REBOOTS_AGAIN } else { AGAIN }
    }

    /// Nodes with something to do: first those that are to be restored, which take little time, then as many others as
    /// there is room for.
    fn due(&mut self) -> Vec<HostName> {
        let mut open: BTreeMap<&HostName, bool> = self.lost.iter().map(|node| (node, true)).collect();
        // A Node that is held may be deleted, or uncordoned by others, at any time.
        for one in self.all.values().filter(|one| !one.is_settled() || one.holds) {
            *open.entry(&one.wanted.node).or_default() |= one.ends();
        }
        let waits = |node: &HostName| {
            let looked = self.looked.get(node);
            looked.is_some_and(|(asked, at)| at.elapsed() < self.again(node) && *asked == self.asked(node))
        };
        open.retain(|node, _| !self.under_way.contains(*node) && (self.lost.contains(*node) || !waits(node)));
        let room = NODES.saturating_sub(self.under_way.len()).min(STARTS);
        let (ends, mut begin): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, ends)| *ends);
        // Those that were not looked at for the longest time come first.
        begin.sort_by_key(|(node, _)| self.looked.get(*node).map(|(_, at)| *at));
        let due: Vec<HostName> =
            ends.into_iter().take(STARTS).chain(begin.into_iter().take(room)).map(|(node, _)| node.clone()).collect();
        for node in &due {
            let asked = self.asked(node);
            self.looked.insert(node.clone(), (asked, Instant::now()));
            self.under_way.insert(node.clone());
            self.lost.remove(node);
        }
        due
    }

    /// After an error it is looked at again soon.
    fn ended(&mut self, node: &HostName, has_failed: bool) {
        self.under_way.remove(node);
        if let Some((_, at)) = self.looked.get_mut(node) {
            let sooner = if has_failed { AGAIN.saturating_sub(AFTER_ERROR) } else { Duration::ZERO };
            let now = Instant::now();
            *at = now.checked_sub(sooner).unwrap_or(now);
        }
        let known: BTreeSet<&HostName> = self.all.values().map(|one| &one.wanted.node).collect();
        self.looked.retain(|node, _| known.contains(node));
    }

    fn changed(&mut self, change: &Change, sink: &dyn Sink) {
        let (object, is_gone) = change.object();
        let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str) else { return };
        match Maintenance::of(object) {
            Ok(one) if !is_gone => drop(self.all.insert(uid.to_owned(), one)),
            Ok(gone) => {
                self.all.remove(uid);
                self.lost.insert(gone.wanted.node);
            }
            Err(why) => {
                self.all.remove(uid);
                if !is_gone {
                    sink.warn(why);
                }
            }
        }
    }
}

impl Term<'_> {
    /// Whether the host of this process is to reboot, which another process had better look after.
    fn own_reboots(&self, nodes: &Nodes) -> bool {
        // Whatever is in the way of it now.
        let is_asked = |one: &Maintenance| {
            one.reboots() && !one.ends() && one.state == Some(State::Drained) && one.reboot.is_none()
        };
        self.own.is_some_and(|own| nodes.all.values().any(|one| one.wanted.node == *own && is_asked(one)))
    }

    /// Acts until the Lease is lost or left.
    async fn run(&self, mut lease: Lease) -> TermEnded {
        let (until, holds) = watch::channel(lease.until());
        let renewed = async {
            loop {
                sleep(RENEW_EVERY).await;
                if let Err(error) = lease.renew(self.client).await {
                    return error.to_string();
                }
                until.send_replace(lease.until());
            }
        };
        let ended = tokio::select! {
            why = renewed => return TermEnded::Lost(why),
            ended = self.work(holds) => ended,
        };
        if let Err(error) = lease.release(self.client).await {
            self.sink.warn(format!("the Lease {CONTROLLERS_LEASE} is not given back: {error}"));
        }
        ended
    }

    /// Acts until the own host is to reboot, or has no member of etcd any more. After a recovery, it waits for a person.
    async fn work(&self, holds: watch::Receiver<Instant>) -> TermEnded {
        loop {
            let cluster = (self.knows.cluster)();
            match &cluster {
                InCluster::None => return TermEnded::NoMember,
                InCluster::Unknown => {}
                InCluster::Of(id) => match may_act(self.client, id, soon()).await {
                    Ok(true) => {}
                    outcome => {
                        self.sink.warn(match outcome {
                            Err(error) => format!("maintenances do not go on: {error}; it is tried again"),
                            Ok(_) => WAITS.to_owned(),
                        });
                        sleep(LOOK_FOR_RESUME).await;
                        continue;
                    }
                },
            }
            let Self { client, sink, knows: Guarding { places, .. }, .. } = *self;
            let pace = Pace::new(PODS, POD_EVERY);
            let requests = Requests { client, sink, holds: holds.clone(), pace: &pace };
            let rollouts = Rollouts { client, sink, places, holds: holds.clone() };
            tokio::select! {
                () = rollouts.act() => {}
                () = requests.act() => {}
                () = self.is_held(&cluster) => {}
                reboots = self.act(holds.clone(), &cluster, &pace) => if reboots { return TermEnded::OwnReboots },
            }
        }
    }

    /// Acts in this cluster of etcd. Returns true if the own host is to reboot, and false if it is in another one.
    async fn act(&self, holds: watch::Receiver<Instant>, cluster: &InCluster, pace: &Pace) -> bool {
        let (mut nodes, mut changes) = (Nodes::default(), self.open(Duration::ZERO).boxed());
        let mut live: Option<Changes> = None;
        let mut work: FuturesUnordered<BoxFuture<'_, (HostName, Result<(), MaintenanceError>)>> =
            FuturesUnordered::new();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                opened = &mut changes, if live.is_none() => {
                    // It begins with each object as it is. What was deleted before is not among them.
                    nodes.all.clear();
                    nodes.lost.extend(self.marked().await);
                    live = Some(opened);
                }
                change = next_change(&mut live) => match change {
                    Some(change) => nodes.changed(&change, self.sink),
                    None => {
                        live = None;
                        changes = self.open(LOOK_EVERY).boxed();
                    }
                },
                Some((node, result)) = work.next() => {
                    nodes.ended(&node, result.is_err());
                    if let Err(error) = result {
                        self.sink.warn(format!("{node}: its maintenance does not go on: {error}; it is tried again"));
                    }
                }
                _ = looks.tick() => {
                    // Without a watch, what is known is old.
                    if (self.knows.cluster)() != *cluster {
                        return false;
                    }
                    (self.knows.shows)(live.is_some().then(|| Maintained::of(nodes.all.values(), pace.counted())));
                    if self.own_reboots(&nodes) {
                        return true;
                    }
                    for node in nodes.due() {
                        work.push(self.settled(node, holds.clone(), pace).boxed());
                    }
                }
            }
        }
    }

    /// The Nodes on which a maintenance may hold something, whether its object exists or not.
    async fn marked(&self) -> BTreeSet<HostName> {
        let mut found = BTreeSet::new();
        let name =
            |node: &Value| node.pointer("/metadata/name").and_then(Value::as_str).and_then(|name| name.parse().ok());
        let read = |node: &Value| found.extend(name(node).filter(|_| is_marked(node)));
        if let Err(error) = self.client.each(rollouts::NODES, read, soon()).await {
            self.sink
                .warn(format!("the Nodes cannot be listed, so that what lost maintenances hold is not ended: {error}"));
        }
        found
    }

    /// Ends when guards are to wait in this cluster of etcd.
    async fn is_held(&self, cluster: &InCluster) {
        let InCluster::Of(id) = cluster else { return std::future::pending().await };
        loop {
            sleep(AGAIN).await;
            if matches!(may_act(self.client, id, soon()).await, Ok(false)) {
                return;
            }
        }
    }

    /// The watch of all maintenances, after a while.
    async fn open(&self, after: Duration) -> Changes {
        opened(after, || Box::pin(self.client.maintenance_changes(None)), ("maintenances", self.sink)).await
    }

    async fn settled(
        &self,
        node: HostName,
        holds: watch::Receiver<Instant>,
        pace: &Pace,
    ) -> (HostName, Result<(), MaintenanceError>) {
        let result = async {
            let right = Right::term(self.client, &node, self.holder, holds).await?;
            let stop = CancellationToken::new();
            let place = (&node, (self.knows.places)(&node));
            Controller::with(self.client, (self.sink, &stop), place, right, Some(pace)).settle().await
        };
        let result = result.await;
        (node, result)
    }
}
