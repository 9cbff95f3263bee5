//! Rollouts: each makes the maintenances of its Nodes, a few at a time, and these are acted on as those of people.
//!
//! In: an API client, and until when this process may write. Out: objects NodeMaintenance, and the status of each
//! rollout. The objects are the only memory. Nodes are watched while a rollout is under way, and only what matters of them
//! is kept.

use super::elected::Places;
use super::maintenance::soon;
use super::news::opened;
use super::occurrence::now_ms;
use crate::kube::{Change, Changes, Client, KubeError, next_change};
use crate::model::cordon::is_cordoned;
use crate::model::event::Sink;
use crate::model::hold::Hold;
use crate::model::labels::{REBOOT_REQUIRED, annotation};
use crate::model::maintenance::{API, Maintenance, PLURAL, State, Work, short};
use crate::model::names::HostName;
use crate::model::node::NodeFact;
use crate::model::rollout::{Rollout, RolloutState, owner};
use crate::model::selector::labels_of;
use crate::model::timestamp::parse_rfc3339;
use crate::model::window::NextWindow;
use crate::plan::maintain::{ChildView, NodeView, Station, next as next_of};
use futures::FutureExt as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
pub(super) const NODES: &str = "/api/v1/nodes";
/// The most Nodes whose maintenances are named as under way.
const MOST_NAMED: usize = 50;

/// What acts on rollouts.
pub(super) struct Rollouts<'a> {
    pub client: &'a Client,
    pub sink: &'a dyn Sink,
    pub places: Places<'a>,
    pub holds: watch::Receiver<Instant>,
}

/// A maintenance that a rollout has made, or another one that takes its Node away.
struct Child {
    /// The uid of the rollout.
    rollout: Option<String>,
    node: HostName,
    /// Whether it may have changed its Node.
    has_begun: bool,
    view: ChildView,
}

/// The Nodes and the maintenances of rollouts, as the watches show them.
struct Fleet {
    nodes: BTreeMap<HostName, NodeView>,
    /// By their uid.
    children: BTreeMap<String, Child>,
    node_changes: Option<Changes>,
    child_changes: Option<Changes>,
}

impl Fleet {
    /// The maintenances of a rollout, and the Nodes of all others that are under way.
    fn of_rollout(&self, uid: &str) -> (BTreeMap<HostName, ChildView>, BTreeSet<HostName>) {
        let (own, others): (Vec<&Child>, Vec<&Child>) =
            self.children.values().partition(|child| child.rollout.as_deref() == Some(uid));
        let taken =
            others.into_iter().filter(|child| child.view.is_under_way()).map(|child| child.node.clone()).collect();
        (own.into_iter().map(|child| (child.node.clone(), child.view.clone())).collect(), taken)
    }
}

fn node(object: &Value, places: Places<'_>) -> Option<(HostName, NodeView)> {
    node_view(object, |name| {
        let place = places(name);
        match (&place.control_plane, place.is_balancer) {
            (Some(_), _) => Station::ControlPlane,
            (None, true) => Station::Balancer,
            (None, false) => Station::Worker,
        }
    })
}

/// A Node of the API, as far as a rollout looks at it.
pub fn node_view(object: &Value, station: impl Fn(&HostName) -> Station) -> Option<(HostName, NodeView)> {
    let name: HostName = object.pointer("/metadata/name")?.as_str()?.parse().ok()?;
    let view = NodeView {
        labels: labels_of(object),
        is_ready: NodeFact::of(object).is_some_and(|node| node.ready),
        is_cordoned: is_cordoned(object),
        is_required: annotation(object, REBOOT_REQUIRED).is_some(),
        hold: Hold::of_node(object).map(|hold| hold.to_string()),
        station: station(&name),
    };
    Some((name, view))
}

/// A maintenance of a rollout, or another one that takes its Node away, with its uid.
fn child(object: &Value) -> Option<(String, Child)> {
    let rollout = owner(object).map(ToOwned::to_owned);
    let one = Maintenance::of(object).ok()?;
    if rollout.is_none() && (!one.takes() || one.is_later(now_ms())) {
        return None;
    }
    let since = |kind: &str| one.conditions.get(kind).and_then(|(_, since)| parse_rfc3339(since));
    let view = match one.state {
        // Somebody completed it, or its Node was deleted.
        Some(State::Completed)
            if one.wanted.work != Work::ByPerson && !one.reboot.as_ref().is_some_and(|reboot| reboot.is_done) =>
        {
            ChildView::Failed("its maintenance was ended before its host had rebooted".to_owned())
        }
        Some(State::Completed) => ChildView::Done(since("Completed").unwrap_or(0)),
        Some(State::Failed) => ChildView::Failed(one.why.clone()),
        Some(State::Overdue) => ChildView::Overdue(one.why.clone()),
        _ => ChildView::UnderWay(in_the_way(&one)),
    };
    Some((one.uid.clone(), Child { rollout, node: one.wanted.node, has_begun: one.holds || one.is_deleted, view }))
}

/// What is in the way of a maintenance, in words.
fn in_the_way(one: &Maintenance) -> String {
    match one.progress.blocked.first() {
        Some(blocked) if one.why.is_empty() && one.state == Some(State::Blocked) => {
            format!("{}: {}", blocked.pod, blocked.message)
        }
        _ => one.why.clone(),
    }
}

impl Rollouts<'_> {
    /// Acts on all rollouts. Ends never.
    pub(super) async fn act(&self) {
        let mut all: BTreeMap<String, Rollout> = BTreeMap::new();
        let mut written: BTreeMap<String, Value> = BTreeMap::new();
        let (mut live, mut opening): (Option<Changes>, _) = (None, self.open(Duration::ZERO).boxed());
        let mut fleet: Option<Fleet> = None;
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                opened = &mut opening, if live.is_none() => {
                    all.clear();
                    live = Some(opened);
                }
                change = next_change(&mut live) => match change {
                    Some(change) => self.changed(&mut all, &change),
                    None => {
                        live = None;
                        opening = self.open(LOOK_EVERY).boxed();
                    }
                },
                change = next_of_fleet(&mut fleet) => self.seen(&mut fleet, change),
                _ = looks.tick() => {
                    let mut due: Vec<&Rollout> = all.values().filter(|one| !one.is_over()).collect();
                    if due.is_empty() {
                        fleet = None;
                        written.clear();
                        continue;
                    }
                    due.sort_by_key(|one| (one.created_ms, &one.name));
                    let looked = async {
                        if fleet.is_none() {
                            fleet = Some(self.fleet().await?);
                        }
                        let Some(fleet) = &mut fleet else { return Ok(()) };
                        for one in due {
                            self.look(one, fleet, &mut written).await?;
                        }
                        Ok::<_, KubeError>(())
                    };
                    if let Err(error) = looked.await {
                        self.sink.warn(format!("rollouts do not go on: {error}; it is tried again"));
                    }
                }
            }
        }
    }

    /// The watch of all rollouts, after a while.
    async fn open(&self, after: Duration) -> Changes {
        opened(after, || Box::pin(self.client.rollout_changes()), ("rollouts", self.sink)).await
    }

    fn changed(&self, all: &mut BTreeMap<String, Rollout>, change: &Change) {
        let (object, is_gone) = change.object();
        let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str) else { return };
        all.remove(uid);
        if !is_gone {
            match Rollout::of(object) {
                Ok(one) => drop(all.insert(uid.to_owned(), one)),
                Err(why) => self.sink.warn(why),
            }
        }
    }

    /// All Nodes and maintenances of rollouts, and what changes among them from then on.
    async fn fleet(&self) -> Result<Fleet, KubeError> {
        let (mut nodes, mut children) = (BTreeMap::new(), BTreeMap::new());
        let maintenances = format!("/apis/{API}/{PLURAL}");
        let of_children = self.client.each(&maintenances, |object| children.extend(child(object)), soon()).await?;
        let of_nodes = self.client.each(NODES, |object| nodes.extend(node(object, self.places)), soon()).await?;
        let node_changes = Some(self.client.watch(NODES, "", Some(&of_nodes)).await?);
        let child_changes = Some(self.client.watch(&maintenances, "", Some(&of_children)).await?);
        Ok(Fleet { nodes, children, node_changes, child_changes })
    }

    /// Takes note of a change; without one, a watch has ended, and all is read again.
    fn seen(&self, known: &mut Option<Fleet>, change: Option<OfFleet>) {
        let Some(fleet) = known else { return };
        match change {
            Some(OfFleet::Node(Change::Is(object))) => fleet.nodes.extend(node(&object, self.places)),
            Some(OfFleet::Node(Change::Gone(object))) => {
                if let Some((name, _)) = node(&object, self.places) {
                    fleet.nodes.remove(&name);
                }
            }
            Some(OfFleet::Child(change)) => {
                let (object, is_gone) = change.object();
                if let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str) {
                    fleet.children.remove(uid);
                }
                if !is_gone {
                    fleet.children.extend(child(object));
                }
            }
            None => *known = None,
        }
    }

    /// Has the next Nodes of a rollout begin, and its status say how far it is.
    async fn look(
        &self,
        of: &Rollout,
        fleet: &mut Fleet,
        written: &mut BTreeMap<String, Value>,
    ) -> Result<(), KubeError> {
        let (children, taken) = fleet.of_rollout(&of.uid);
        let mut found = next_of((&of.name, &of.wanted), &fleet.nodes, (&children, &taken), now_ms());
        let until = soon().min(*self.holds.borrow());
        for name in &found.start {
            if let Some(uid) = self.client.begin_of_rollout(of, name, until).await? {
                self.sink.note(format!("rollout {}: the maintenance of {name} begins", of.name));
                // Until the watch shows it.
                let view = ChildView::UnderWay(String::new());
                let begun = Child { rollout: Some(of.uid.clone()), node: name.clone(), has_begun: true, view };
                fleet.children.insert(uid, begun);
            } else {
                found.waits_for.push(format!("another NodeMaintenance has the name {}", of.child(name)));
            }
        }
        if matches!(found.state, RolloutState::Paused | RolloutState::Stopped) {
            self.take_back(of, fleet, until).await?;
        }
        let status = status(of, &found, &children);
        if written.get(&of.uid) != Some(&status) {
            self.client.report_rollout(of, &status, until).await?;
            written.insert(of.uid.clone(), status);
        }
        Ok(())
    }
}

impl Rollouts<'_> {
    /// Deletes maintenances of a rollout that have not begun: otherwise they would, in the next window perhaps, although
    /// it is paused or has stopped. Their Nodes are candidates again.
    async fn take_back(&self, of: &Rollout, fleet: &mut Fleet, until: Instant) -> Result<(), KubeError> {
        let waits =
            |child: &Child| child.rollout.as_deref() == Some(&of.uid) && !child.has_begun && child.view.is_under_way();
        let waiting: Vec<String> =
            fleet.children.iter().filter(|(_, child)| waits(child)).map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            let Some(child) = fleet.children.get(&uid) else { continue };
            self.client.take_back(&of.child(&child.node), &uid, until).await?;
            self.sink.note(format!("rollout {}: the maintenance of {} is taken back", of.name, child.node));
            fleet.children.remove(&uid);
        }
        Ok(())
    }
}

fn status(of: &Rollout, found: &crate::plan::maintain::Next, children: &BTreeMap<HostName, ChildView>) -> Value {
    let counts = found.counts;
    let under_way = children.iter().filter(|(_, child)| child.is_under_way());
    let current: Vec<&HostName> = found.start.iter().chain(under_way.map(|(name, _)| name)).take(MOST_NAMED).collect();
    let waits: Vec<Value> =
        found.waits_for.iter().map(|why| json!({"reason": found.state.name(), "message": short(why)})).collect();
    let is = |state: RolloutState| if found.state == state { "True" } else { "False" };
    json!({
        "state": found.state.name(),
        "observedGeneration": of.generation,
        "progress": format!("{}/{}", counts.done, counts.selected),
        "nodes": {
            "selected": counts.selected,
            "waiting": counts.waiting - found.start.len(),
            "inProgress": counts.in_progress + found.start.len(),
            "done": counts.done,
            "failed": counts.failed,
            "leftOut": counts.left_out,
        },
        "current": current,
        "waitingFor": waits,
        "nextWindow": found.next_window.as_ref().map(NextWindow::rfc3339),
        "conditions": [
            {"type": "Completed", "status": is(RolloutState::Completed), "reason": found.state.name()},
            {"type": "Stopped", "status": is(RolloutState::Stopped), "reason": found.state.name()},
        ],
    })
}

/// A change of what a rollout looks at.
enum OfFleet {
    Node(Change),
    Child(Change),
}

/// The next change; `None`: a watch has ended. Waits for ever without watches.
async fn next_of_fleet(fleet: &mut Option<Fleet>) -> Option<OfFleet> {
    let Some(Fleet { node_changes, child_changes, .. }) = fleet else { return std::future::pending().await };
    tokio::select! {
        change = next_change(node_changes) => change.map(OfFleet::Node),
        change = next_change(child_changes) => change.map(OfFleet::Child),
    }
}
