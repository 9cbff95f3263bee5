//! Which Nodes of a rollout begin next.
//!
//! In: what its author asks for, the Nodes as the API shows them, and the maintenances that the rollout has made. Out:
//! the Nodes that may begin now, what the others wait for, and how far the rollout is. Pure. A Node that has a maintenance
//! of the rollout gets no other one.

use crate::model::listed::listed;
use crate::model::names::HostName;
use crate::model::rollout::{MOST_WAITS, RolloutState, RolloutWanted, Selected, Turn};
use crate::model::selector::Labels;
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
}

/// Decides; `taken` are Nodes in maintenances that the rollout has not made.
pub fn next(
    wanted: &RolloutWanted,
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
    let mut next = Next { start: Vec::new(), waits_for, state, counts };
    if state == RolloutState::Progressing {
        view.start(&candidates, &mut next);
        if next.start.is_empty() && children.is_empty() {
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
mod tests {
    use super::*;
    use crate::model::maintenance::{DrainRequest, Work};
    use crate::model::rollout::{Most, Template, ZONE};
    use proptest::prelude::*;
    use std::time::Duration;

    const SOAK_MS: i64 = 30_000;

    fn wanted() -> RolloutWanted {
        let template = Template { reason: String::new(), work: Work::ByPerson, drain: DrainRequest::default() };
        RolloutWanted {
            nodes: Selected::All,
            only_if_required: false,
            control_plane: Turn::Last,
            max_unavailable: Most::Count(1),
            one_domain_of: None,
            soak: Duration::from_secs(30),
            max_failures: 0,
            paused: false,
            template,
        }
    }

    fn node(station: Station, zone: &str) -> NodeView {
        let labels = if zone.is_empty() { Labels::new() } else { [(ZONE.to_owned(), zone.to_owned())].into() };
        NodeView { labels, is_ready: true, is_cordoned: false, is_required: false, hold: None, station }
    }

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn nodes<const N: usize>(all: [(&str, NodeView); N]) -> BTreeMap<HostName, NodeView> {
        all.map(|(text, node)| (name(text), node)).into()
    }

    fn children<const N: usize>(all: [(&str, ChildView); N]) -> BTreeMap<HostName, ChildView> {
        all.map(|(text, child)| (name(text), child)).into()
    }

    fn next_of(
        wanted: &RolloutWanted,
        nodes: &BTreeMap<HostName, NodeView>,
        children: &BTreeMap<HostName, ChildView>,
        now_ms: i64,
    ) -> Next {
        next(wanted, nodes, (children, &BTreeSet::new()), now_ms)
    }

    fn started(next: &Next) -> Vec<&str> {
        next.start.iter().map(HostName::as_str).collect()
    }

    #[test]
    fn workers_come_first_then_the_control_plane_one_at_a_time_and_load_balancers_never() {
        let all = nodes([
            ("cp1", node(Station::ControlPlane, "")),
            ("cp2", node(Station::ControlPlane, "")),
            ("lb1", node(Station::Balancer, "")),
            ("w1", node(Station::Worker, "")),
            ("w2", node(Station::Worker, "")),
        ]);
        let wide = RolloutWanted { max_unavailable: Most::Count(5), ..wanted() };
        let none = BTreeMap::new();
        let first = next_of(&wide, &all, &none, 0);
        assert_eq!((started(&first), first.counts.selected, first.counts.left_out), (vec!["w1", "w2"], 4, 1));
        let under_way = children([("w1", ChildView::Done(-SOAK_MS)), ("w2", ChildView::UnderWay(String::new()))]);
        assert_eq!(started(&next_of(&wide, &all, &under_way, 0)), Vec::<&str>::new(), "w2 is not done");
        let done = children([("w1", ChildView::Done(-SOAK_MS)), ("w2", ChildView::Done(-SOAK_MS))]);
        assert_eq!(started(&next_of(&wide, &all, &done, 0)), ["cp1"]);

        let first = RolloutWanted { control_plane: Turn::First, ..wide.clone() };
        assert_eq!(started(&next_of(&first, &all, &none, 0)), ["cp1"]);
        let never = RolloutWanted { control_plane: Turn::Exclude, ..wide };
        let end = next_of(&never, &all, &done, 0);
        assert_eq!((end.state, end.counts.selected, end.counts.left_out), (RolloutState::Completed, 2, 3));
    }

    #[test]
    fn a_node_that_is_away_for_another_reason_counts_and_is_named() {
        let mut all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        all.get_mut(&name("w2")).unwrap().is_ready = false;
        let waits = next_of(&wanted(), &all, &BTreeMap::new(), 0);
        assert_eq!((started(&waits), waits.state), (vec![], RolloutState::Waiting));
        assert_eq!(waits.waits_for, ["w2 is not ready"]);
        all.get_mut(&name("w2")).unwrap().is_ready = true;
        all.get_mut(&name("w2")).unwrap().is_cordoned = true;
        assert_eq!(started(&next_of(&wanted(), &all, &BTreeMap::new(), 0)), ["w2"], "it is away in any case");
    }

    #[test]
    fn the_next_one_begins_when_the_one_before_has_been_ready_for_the_time_of_its_soak() {
        let all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        let done = children([("w1", ChildView::Done(0))]);
        let soaks = next_of(&wanted(), &all, &done, SOAK_MS - 1);
        assert_eq!(started(&soaks), Vec::<&str>::new());
        assert_eq!(soaks.waits_for, Vec::<String>::new(), "that is no news");
        assert_eq!(started(&next_of(&wanted(), &all, &done, SOAK_MS)), ["w2"]);
        assert_eq!(started(&next_of(&wanted(), &all, &done, -1)), ["w2"], "the clock was set back");
    }

    #[test]
    fn failures_stop_it_a_person_pauses_it_and_what_is_under_way_goes_on() {
        let all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        let failed = children([("w1", ChildView::Failed("pods did not leave".to_owned()))]);
        let stopped = next_of(&wanted(), &all, &failed, 0);
        assert_eq!((started(&stopped), stopped.state), (vec![], RolloutState::Stopped));
        assert_eq!(stopped.waits_for, ["w1 failed, and 0 may", "w1: pods did not leave"]);
        let more = RolloutWanted { max_failures: 1, ..wanted() };
        assert_eq!(started(&next_of(&more, &all, &failed, 0)), ["w2"]);
        let paused = RolloutWanted { paused: true, ..more };
        assert_eq!(next_of(&paused, &all, &failed, 0).state, RolloutState::Paused);
    }

    #[test]
    fn only_nodes_that_need_a_reboot_are_taken_if_its_author_asks_for_that() {
        let mut all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        all.get_mut(&name("w2")).unwrap().is_required = true;
        let required = RolloutWanted { only_if_required: true, ..wanted() };
        let first = next_of(&required, &all, &BTreeMap::new(), 0);
        assert_eq!((started(&first), first.counts.left_out), (vec!["w2"], 1));
        all.get_mut(&name("w2")).unwrap().is_required = false;
        let end = next_of(&required, &all, &children([("w2", ChildView::Done(0))]), 0);
        assert_eq!((end.state, end.counts.done), (RolloutState::Completed, 1), "it has rebooted, and counts");
    }

    #[test]
    fn a_node_that_is_held_or_in_another_maintenance_does_not_begin_or_counts_and_is_named() {
        let mut all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        all.get_mut(&name("w1")).unwrap().hold = Some("ops".to_owned());
        let held = next_of(&wanted(), &all, &BTreeMap::new(), 0);
        assert_eq!((started(&held), held.waits_for.as_slice()), (vec!["w2"], &["w1 is held by ops".to_owned()][..]));
        all.get_mut(&name("w1")).unwrap().hold = None;
        let taken = BTreeSet::from([name("w9"), name("w2")]);
        let waits = next(&RolloutWanted { paused: false, ..wanted() }, &all, (&BTreeMap::new(), &taken), 0);
        assert_eq!(started(&waits), ["w2"], "it is away in any case");
        let done = children([("w2", ChildView::Done(-SOAK_MS))]);
        let waits = next(&wanted(), &all, (&done, &taken), 0);
        assert_eq!(started(&waits), Vec::<&str>::new());
        assert_eq!(waits.waits_for, ["w2 is in another maintenance"]);
    }

    #[test]
    fn a_node_of_the_rollout_that_fails_later_is_named_and_one_whose_labels_change_still_counts() {
        let mut all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        all.get_mut(&name("w1")).unwrap().is_ready = false;
        let done = children([("w1", ChildView::Done(-SOAK_MS))]);
        assert_eq!(next_of(&wanted(), &all, &done, 0).waits_for, ["w1 is not ready"]);

        all.get_mut(&name("w2")).unwrap().labels = [("kernel".to_owned(), "old".to_owned())].into();
        let selector = serde_json::json!({"matchLabels": {"kernel": "old"}});
        let nodes = Selected::Labels(selector.clone(), crate::model::selector::Selector::of(&selector).unwrap());
        let by_label = RolloutWanted { nodes, ..wanted() };
        let under_way = children([("w1", ChildView::UnderWay(String::new()))]);
        let next = next_of(&by_label, &all, &under_way, 0);
        assert_eq!((started(&next), next.counts.selected, next.counts.in_progress), (vec![], 2, 1));
    }

    #[test]
    fn without_the_label_on_any_node_there_are_no_domains() {
        let all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
        let zones = RolloutWanted { one_domain_of: Some(ZONE.to_owned()), max_unavailable: Most::Count(2), ..wanted() };
        assert_eq!(started(&next_of(&zones, &all, &BTreeMap::new(), 0)), ["w1", "w2"]);
        let some = nodes([("w1", node(Station::Worker, "a")), ("w2", node(Station::Worker, ""))]);
        assert_eq!(started(&next_of(&zones, &some, &BTreeMap::new(), 0)), ["w1"], "w2 is a domain of its own");
    }

    /// What happens to Nodes.
    #[derive(Debug, Clone)]
    enum Step {
        /// The rollout is looked at.
        Look,
        /// A maintenance that is under way ends.
        Ends(usize),
        /// A Node fails, or a person cordons it.
        Leaves(usize, bool),
        /// All that others did is undone.
        Heals,
        /// Time passes.
        Passes,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => Just(Step::Look),
            3 => (0..20_usize).prop_map(Step::Ends),
            1 => (0..20_usize, any::<bool>()).prop_map(|(n, cordoned)| Step::Leaves(n, cordoned)),
            2 => Just(Step::Heals),
            2 => Just(Step::Passes),
        ]
    }

    struct World {
        wanted: RolloutWanted,
        nodes: BTreeMap<HostName, NodeView>,
        children: BTreeMap<HostName, ChildView>,
        now_ms: i64,
    }

    impl World {
        fn away(&self) -> BTreeSet<&HostName> {
            let under_way = |name: &HostName| self.children.get(name).is_some_and(ChildView::is_under_way);
            let is_away =
                |(name, node): (&'_ HostName, &NodeView)| !node.is_ready || node.is_cordoned || under_way(name);
            self.nodes.iter().filter(|(name, node)| is_away((name, node))).map(|(name, _)| name).collect()
        }

        fn look(&mut self) -> Result<(), TestCaseError> {
            let before = self.away().len();
            let next = next_of(&self.wanted, &self.nodes, &self.children, self.now_ms);
            for name in &next.start {
                prop_assert!(!self.children.contains_key(name), "{name} begins twice");
                self.children.insert(name.clone(), ChildView::UnderWay(String::new()));
                self.nodes.get_mut(name).unwrap().is_cordoned = true;
            }
            if next.start.is_empty() {
                return Ok(());
            }
            let most = self.wanted.max_unavailable.of_all(next.counts.selected);
            prop_assert!(self.away().len() <= most.max(before), "{:?}", self.away());
            let zones: BTreeSet<_> = self.away().iter().map(|name| &self.nodes[*name].labels).collect();
            prop_assert!(self.wanted.one_domain_of.is_none() || zones.len() == 1, "{:?}", self.away());
            let of_control_plane = |name: &&&HostName| self.nodes[**name].station == Station::ControlPlane;
            let away = self.away();
            let begins = next.start.iter().any(|name| self.nodes[name].station == Station::ControlPlane);
            prop_assert!(!begins || away.iter().filter(of_control_plane).count() == 1, "{away:?}");
            Ok(())
        }

        fn apply(&mut self, step: &Step) -> Result<(), TestCaseError> {
            match step {
                Step::Look => self.look()?,
                Step::Ends(n) => {
                    let under_way = self.children.iter().filter(|(_, child)| child.is_under_way());
                    if let Some(name) = under_way.map(|(name, _)| name).cycle().nth(*n).cloned() {
                        self.children.insert(name.clone(), ChildView::Done(self.now_ms));
                        self.nodes.get_mut(&name).unwrap().is_cordoned = false;
                    }
                }
                Step::Leaves(n, cordoned) => {
                    let name = self.nodes.keys().cycle().nth(*n).cloned().unwrap();
                    let node = self.nodes.get_mut(&name).unwrap();
                    if *cordoned { node.is_cordoned = true } else { node.is_ready = false }
                }
                Step::Heals => {
                    for (name, node) in &mut self.nodes {
                        node.is_ready = true;
                        node.is_cordoned = self.children.get(name).is_some_and(ChildView::is_under_way);
                    }
                }
                Step::Passes => self.now_ms += SOAK_MS,
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn never_are_more_away_than_may_be_nor_two_domains_nor_two_control_plane_hosts_and_it_ends(
            shapes in proptest::collection::vec((0..3_u8, 0..3_u8), 1..8),
            most in 1..4_usize, one_domain: bool, turn in 0..3_usize,
            steps in proptest::collection::vec(step(), 0..40),
        ) {
            let station = |n: u8| if n == 0 { Station::ControlPlane } else { Station::Worker };
            let nodes = shapes.iter().enumerate().map(|(n, (kind, zone))| {
                (name(&format!("n{n}")), node(station(*kind), &format!("z{zone}")))
            });
            let wanted = RolloutWanted {
                max_unavailable: Most::Count(most),
                one_domain_of: one_domain.then(|| ZONE.to_owned()),
                control_plane: Turn::ALL[turn],
                ..wanted()
            };
            let mut world = World { wanted, nodes: nodes.collect(), children: BTreeMap::new(), now_ms: 0 };
            for step in &steps {
                world.apply(step)?;
            }
            for _ in 0..=world.nodes.len() {
                for step in [Step::Heals, Step::Ends(0), Step::Ends(0), Step::Ends(0), Step::Passes, Step::Look] {
                    world.apply(&step)?;
                }
            }
            let end = next_of(&world.wanted, &world.nodes, &world.children, world.now_ms);
            prop_assert_eq!((end.state, end.counts.waiting, end.start), (RolloutState::Completed, 0, vec![]));
        }
    }
}
