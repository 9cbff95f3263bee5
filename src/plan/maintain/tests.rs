//! Rollouts in a world of their own: Nodes fail and heal, and time passes.

use super::*;
use crate::model::gate::{Approval, Gate};
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
        gate: Gate::default(),
        approves_each: false,
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
    next(("kernel", wanted), nodes, (children, &BTreeSet::new()), now_ms)
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
    let waits = next(("kernel", &wanted()), &all, (&BTreeMap::new(), &taken), 0);
    assert_eq!(started(&waits), ["w2"], "it is away in any case");
    let done = children([("w2", ChildView::Done(-SOAK_MS))]);
    let waits = next(("kernel", &wanted()), &all, (&done, &taken), 0);
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
#[test]
fn nothing_begins_before_somebody_has_approved_it_and_the_window_is_named() {
    let all = nodes([("w1", node(Station::Worker, "")), ("w2", node(Station::Worker, ""))]);
    let gate = |approval| Gate { windows: vec!["0 1 * * * 1h".parse().unwrap()], approval };
    let with = |approval| RolloutWanted { gate: gate(approval), ..wanted() };
    let waits = next_of(&with(Approval::Required), &all, &BTreeMap::new(), 3_600_000);
    assert_eq!((started(&waits), waits.state), (Vec::<&str>::new(), RolloutState::Waiting));
    assert_eq!(waits.waits_for, ["nobody has approved it yet: hactl maintain approve kernel"]);
    let later = next_of(&with(Approval::Given), &all, &BTreeMap::new(), 0);
    assert_eq!((started(&later), later.state), (Vec::<&str>::new(), RolloutState::Waiting));
    assert_eq!(later.waits_for, ["its next window opens at Thu 1970-01-01 01:00 UTC"]);
    assert_eq!(later.next_window.unwrap().at_ms, 3_600_000);
    let open = next_of(&with(Approval::Given), &all, &BTreeMap::new(), 3_600_000);
    assert_eq!((started(&open), open.state, open.next_window.clone()), (vec!["w1"], RolloutState::Progressing, None));
    // What has begun ends after the window, and the rest waits for the next one.
    let under_way = children([("w1", ChildView::UnderWay(String::new()))]);
    let goes_on = next_of(&with(Approval::Given), &all, &under_way, 7_200_000);
    assert_eq!((started(&goes_on), goes_on.state), (Vec::<&str>::new(), RolloutState::Progressing));
    let done = children([("w1", ChildView::Done(0))]);
    assert_eq!(next_of(&with(Approval::Given), &all, &done, 7_200_000).state, RolloutState::Waiting);
}

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

/// Open in the first half of ten minutes.
const WINDOW: &str = "*/10 * * * * 5m";

impl World {
    /// How much time passes in a step.
    fn pass_ms(&self) -> i64 {
        if self.wanted.gate.windows.is_empty() { SOAK_MS } else { 240_000 }
    }

    fn is_open(&self) -> bool {
        self.wanted.gate.windows.is_empty() || self.now_ms / 60_000 % 10 < 5
    }

    fn away(&self) -> BTreeSet<&HostName> {
        let under_way = |name: &HostName| self.children.get(name).is_some_and(ChildView::is_under_way);
        let is_away = |(name, node): (&'_ HostName, &NodeView)| !node.is_ready || node.is_cordoned || under_way(name);
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
        prop_assert!(self.is_open(), "{:?} begin outside the window", next.start);
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
            Step::Passes => self.now_ms += self.pass_ms(),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn never_are_more_away_than_may_be_nor_two_domains_nor_two_control_plane_hosts_and_it_ends_in_its_windows(
        shapes in proptest::collection::vec((0..3_u8, 0..3_u8), 1..8),
        most in 1..4_usize, one_domain: bool, turn in 0..3_usize, windows in 0..2_usize,
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
            gate: Gate { windows: vec![WINDOW.parse().unwrap(); windows], approval: Approval::NotRequired },
            ..wanted()
        };
        let mut world = World { wanted, nodes: nodes.collect(), children: BTreeMap::new(), now_ms: 0 };
        for step in &steps {
            world.apply(step)?;
        }
        // Of three looks in a row, one is in the window.
        for _ in 0..3 * (world.nodes.len() + 1) {
            for step in [Step::Heals, Step::Ends(0), Step::Ends(0), Step::Ends(0), Step::Passes, Step::Look] {
                world.apply(&step)?;
            }
        }
        let end = next_of(&world.wanted, &world.nodes, &world.children, world.now_ms);
        prop_assert_eq!((end.state, end.counts.waiting, end.start), (RolloutState::Completed, 0, vec![]));
    }
}
