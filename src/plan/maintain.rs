//! Which Nodes of a rollout begin next.
//!
//! In: what its author asks for, the Nodes as the API shows them, and the maintenances that the rollout has made. Out:
//! the Nodes that may begin now, what the others wait for, and how far the rollout is. Pure. A Node that has a maintenance
//! of the rollout gets no other one.

use crate::model::listed::listed;
use crate::model::names::HostName;
use crate::model::rollout::{MOST_WAITS, RolloutState, RolloutWanted, Selected, Turn};
use crate::model::selector::Labels;
use crate::model::window::NextWindow;
use std::collections::{BTreeMap, BTreeSet};

/// The most Nodes that a reason names.
const MOST_NAMED: usize = 5;

/// What the host of a Node is to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Station {
    /// Nothing.
    Worker,
    /// It has a member of etcd or an API server.
    ControlPlane,
    /// It is a load balancer only: nothing says whether it can be spared.
    Balancer,
}

/// A Node, as far as a rollout looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its labels.
    pub labels: Labels,
    /// Whether its kubelet reports it as ready.
    pub is_ready: bool,
    /// Whether it is cordoned.
    pub is_cordoned: bool,
    /// Whether its host needs a reboot, as its node agent says.
    pub is_required: bool,
    /// What holds it, in words, if something does.
    pub hold: Option<String>,
    /// What its host is.
    pub station: Station,
}

/// How far the maintenance of a Node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildView {
    /// It is under way, or waits for something, in words.
    UnderWay(String),
    /// Its host is not back in time.
    Overdue(String),
    /// It is over since then, milliseconds since 1970.
    Done(i64),
    /// Its drain was given up, and why.
    Failed(String),
}

impl ChildView {
    /// Whether it has its Node, or is about to.
    pub fn is_under_way(&self) -> bool {
        matches!(self, Self::UnderWay(_) | Self::Overdue(_))
    }

    fn has_failed(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Overdue(_))
    }
}

/// How many Nodes are how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that the rollout is for.
    pub selected: usize,
    /// Those that have not begun.
    pub waiting: usize,
    /// Those whose maintenance is under way.
    pub in_progress: usize,
    /// Those whose maintenance is over.
    pub done: usize,
    /// Those that have failed.
    pub failed: usize,
    /// Nodes that are selected and left out: they need no reboot, or belong to the control plane.
    pub left_out: usize,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// The Nodes that begin now.
    pub start: Vec<HostName>,
    /// What the others wait for, in words.
    pub waits_for: Vec<String>,
    /// How far the rollout is.
    pub state: RolloutState,
    /// How many Nodes are how far.
    pub counts: Counts,
    /// The next window, if the others wait for that.
    pub next_window: Option<NextWindow>,
}

/// Decides for the rollout of this name; `taken` are Nodes in maintenances that the rollout has not made.
pub fn next(
    (name, wanted): (&str, &RolloutWanted),
    nodes: &BTreeMap<HostName, NodeView>,
    (children, taken): (&BTreeMap<HostName, ChildView>, &BTreeSet<HostName>),
    now_ms: i64,
) -> Next {
    let view = View::of(wanted, nodes, (children, taken), now_ms);
    let counts = view.counts();
    let failed = view.names(|name| children.get(name).is_some_and(ChildView::has_failed));
    let mut waits_for = view.whys();
    let candidates = view.candidates();
    let state = if failed.len() > wanted.max_failures {
        RolloutState::Stopped
    } else if candidates.is_empty() && counts.in_progress == 0 {
        RolloutState::Completed
    } else if wanted.paused {
        RolloutState::Paused
    } else {
        RolloutState::Progressing
    };
    if state == RolloutState::Stopped {
        waits_for.insert(0, format!("{} failed, and {} may", some(&failed), wanted.max_failures));
    }
    let mut next = Next { start: Vec::new(), waits_for, state, counts, next_window: None };
    if state == RolloutState::Progressing {
        let closed = wanted.closed(name, now_ms).filter(|_| !candidates.is_empty());
        let is_closed = closed.is_some();
        if let Some(closed) = closed {
            next.waits_for.insert(0, closed.why);
            next.next_window = closed.next_window;
        } else {
            view.start(&candidates, &mut next);
        }
        if next.start.is_empty() && (children.is_empty() || (is_closed && counts.in_progress == 0)) {
            next.state = RolloutState::Waiting;
        }
    }
    next.waits_for.truncate(MOST_WAITS);
    next
}

/// Names, or the first and how many more there are.
fn some(names: &[&HostName]) -> String {
    let shown: Vec<&str> = names.iter().take(MOST_NAMED).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(MOST_NAMED) {
        0 => listed(&shown),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A rollout and what it is for.
struct View<'a> {
    wanted: &'a RolloutWanted,
    /// All that its author selects.
    matching: BTreeMap<&'a HostName, &'a NodeView>,
    children: &'a BTreeMap<HostName, ChildView>,
    taken: &'a BTreeSet<HostName>,
    /// Whether a Node of another domain is in the way: without the label on any Node, there are no domains.
    has_domains: bool,
    now_ms: i64,
}

impl<'a> View<'a> {
    fn of(
        wanted: &'a RolloutWanted,
        nodes: &'a BTreeMap<HostName, NodeView>,
        (children, taken): (&'a BTreeMap<HostName, ChildView>, &'a BTreeSet<HostName>),
        now_ms: i64,
    ) -> Self {
        let is_selected = |node: &NodeView| match &wanted.nodes {
            Selected::All => true,
            Selected::Labels(_, selector) => selector.matches(&node.labels),
        };
        // The labels of a Node may be others after its reboot.
        let matches = |(name, node): &(&HostName, &NodeView)| is_selected(node) || children.contains_key(*name);
        let matching: BTreeMap<_, _> = nodes.iter().filter(matches).collect();
        let key = wanted.one_domain_of.as_ref();
        let has_domains = key.is_some_and(|key| matching.values().any(|node| node.labels.contains_key(key)));
        Self { wanted, matching, children, taken, has_domains, now_ms }
    }

    /// Whether the rollout is for this Node.
    fn is_for(&self, name: &HostName, node: &NodeView) -> bool {
        let is_meant = match node.station {
            Station::Worker => true,
            Station::ControlPlane => self.wanted.control_plane != Turn::Exclude,
            Station::Balancer => false,
        };
        // A Node that has rebooted needs no reboot any more, and was one of them.
        let is_due = !self.wanted.only_if_required || node.is_required || self.children.contains_key(name);
        is_meant && is_due
    }

    fn names(&self, is: impl Fn(&HostName) -> bool) -> Vec<&'a HostName> {
        self.matching.iter().filter(|(name, node)| self.is_for(name, node) && is(name)).map(|(name, _)| *name).collect()
    }

    /// Those that have no maintenance yet.
    fn candidates(&self) -> Vec<&'a HostName> {
        self.names(|name| !self.children.contains_key(name))
    }

    fn counts(&self) -> Counts {
        let is = |is: fn(&ChildView) -> bool| self.names(|name| self.children.get(name).is_some_and(is)).len();
        let selected = self.names(|_| true).len();
        Counts {
            selected,
            waiting: self.candidates().len(),
            in_progress: is(ChildView::is_under_way),
            done: is(|child| matches!(child, ChildView::Done(_))),
            failed: is(ChildView::has_failed),
            left_out: self.matching.len() - selected,
        }
    }

    /// Why a Node is away; `None`: it is there.
    fn away(&self, name: &HostName, node: &NodeView) -> Option<String> {
        let soak_ms = i64::try_from(self.wanted.soak.as_millis()).unwrap_or(i64::MAX);
        match self.children.get(name) {
            Some(child) if child.is_under_way() => Some(format!("{name} is in maintenance")),
            _ if !node.is_ready => Some(format!("{name} is not ready")),
            _ if self.taken.contains(name) => Some(format!("{name} is in another maintenance")),
            _ if node.is_cordoned => Some(format!("{name} is cordoned")),
            // A clock that was set back must not hold it up for ever.
            Some(ChildView::Done(since_ms)) if (0..soak_ms).contains(&self.now_ms.saturating_sub(*since_ms)) => {
                Some(format!("{name} was restored just now"))
            }
            _ => None,
        }
    }

    /// The domain of failure of a Node. One without the label is a domain of its own.
    fn domain(&self, name: &'a HostName, node: &'a NodeView) -> &'a str {
        let key = self.wanted.one_domain_of.as_deref().unwrap_or_default();
        node.labels.get(key).map_or(name.as_str(), String::as_str)
    }

    /// The place of a Node in the order: those with a lower one are done before.
    fn turn(&self, node: &NodeView) -> u8 {
        match (self.wanted.control_plane, node.station) {
            (Turn::First, Station::ControlPlane) | (Turn::Last, Station::Worker) => 0,
            _ => 1,
        }
    }

    /// What is in the way of maintenances that are under way, or was.
    fn whys(&self) -> Vec<String> {
        let why = |name: &&HostName| match self.children.get(*name)? {
            ChildView::UnderWay(why) | ChildView::Overdue(why) | ChildView::Failed(why) if !why.is_empty() => {
                Some(if why.contains(name.as_str()) { why.clone() } else { format!("{name}: {why}") })
            }
            _ => None,
        };
        self.names(|_| true).iter().filter_map(why).collect()
    }

    /// Has as many candidates begin as may.
    fn start(&self, candidates: &[&'a HostName], next: &mut Next) {
        let mut away: BTreeMap<&HostName, String> =
            self.matching.iter().filter_map(|(name, node)| Some((*name, self.away(name, node)?))).collect();
        let most = self.wanted.max_unavailable.of_all(next.counts.selected);
        let domain =
            |name: &HostName| self.matching.get_key_value(name).map_or("", |(name, node)| self.domain(name, node));
        let mut domains: BTreeSet<&str> = away.keys().map(|name| domain(name)).collect();
        let under_way = self.names(|name| self.children.get(name).is_some_and(ChildView::is_under_way));
        let first = candidates.iter().chain(&under_way).map(|name| self.turn(self.matching[name])).min();
        let mut order: Vec<&HostName> =
            candidates.iter().copied().filter(|name| Some(self.turn(self.matching[name])) == first).collect();
        order.sort_by_key(|name| (!domains.contains(domain(name)), domain(name), *name));
        let is_control_plane = |name: &HostName| self.matching[name].station == Station::ControlPlane;
        let mut in_the_way = None;
        for name in order {
            let node = self.matching[name];
            if let Some(hold) = &node.hold {
                in_the_way = in_the_way.or_else(|| Some(format!("{name} is held by {hold}")));
                continue;
            }
            if !node.is_ready {
                in_the_way = in_the_way.or_else(|| away.get(name).cloned());
                continue;
            }
            let is_full = !away.contains_key(name) && away.len() >= most;
            let other_domain = self.has_domains && domains.iter().any(|one| *one != domain(name));
            // One host of the control plane at a time, whatever its author allows.
            let other_host = is_control_plane(name) && away.keys().any(|away| *away != name && is_control_plane(away));
            if is_full || other_domain || other_host {
                // What this rollout has taken itself, or restored just now, is no news.
                let is_own = |name: &HostName| {
                    let node = self.matching[name];
                    let is_there = node.is_ready && !node.is_cordoned && !self.taken.contains(name);
                    let is_new = next.start.contains(name) || under_way.contains(&name);
                    is_new || (self.children.contains_key(name) && is_there)
                };
                let other = away.iter().find(|(away, _)| *away != &name && !is_own(away));
                in_the_way = in_the_way.or_else(|| other.map(|(_, why)| why.clone()));
                continue;
            }
            away.insert(name, format!("{name} is in maintenance"));
            domains.insert(domain(name));
            next.start.push(name.clone());
        }
        next.waits_for.extend(in_the_way);
    }
}

#[cfg(test)]
mod tests;
