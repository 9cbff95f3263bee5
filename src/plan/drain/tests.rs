//! Laws of a drain, judged in a simulated Node: whatever pods, budgets, controllers and errors there are.

mod budgets;

use super::*;
use crate::model::drain_rule::DrainRule;
use crate::model::labels::DRAIN;
use crate::model::pod::Controller;
use proptest::prelude::*;

const TICK: Duration = Duration::from_millis(250);
/// 15 minutes.
const LAST_TICK: u32 = 3600;
/// The priorities of users, of the cluster's own pods, and beyond.
const PRIORITIES: [i32; 6] = [-7, 0, 1_000_000_000, 2_000_000_000, 2_000_001_000, i32::MAX];

fn pod(uid: &str) -> PodView {
    PodView {
        namespace: "shop".to_owned(),
        name: uid.to_owned(),
        uid: uid.to_owned(),
        labels: BTreeMap::new(),
        priority: 0,
        controller: Some(Controller { kind: "ReplicaSet".to_owned(), uid: "web".to_owned() }),
        mirror: false,
        quorum: false,
        ended: false,
        terminating: false,
        finalizers: Vec::new(),
        ready: true,
        tolerates_cordon: false,
        tolerates_drain: false,
        has_responders: false,
        hold: None,
    }
}

fn uids(pods: &[&PodView]) -> Vec<String> {
    pods.iter().map(|pod| pod.uid.clone()).collect()
}

fn came_back(next: &Next<'_>) -> Vec<String> {
    let back = next.kept.iter().filter(|kept| kept.why == Keep::CameBack);
    back.map(|kept| kept.pod.uid.clone()).collect()
}

fn by_budget(name: &str) -> Eviction {
    Eviction::Refused(Refused::Budget { name: name.to_owned(), says: "needs 1 healthy pods".to_owned() })
}

fn budget(allowed: u32, desired: u32, expected: u32) -> BudgetFact {
    BudgetFact { allowed, healthy: desired, desired, expected, computed: true, always_allows_unready: false }
}

fn shop(name: &str) -> BudgetRef {
    BudgetRef { namespace: "shop".to_owned(), name: name.to_owned() }
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn pods_of_the_node_stay_and_bare_pods_would_be_lost() {
    let daemon = Controller { kind: "DaemonSet".to_owned(), uid: "agent".to_owned() };
    let pods = [
        PodView { mirror: true, controller: None, ..pod("static") },
        PodView { quorum: true, ..pod("stands") },
        PodView { controller: Some(daemon), terminating: true, ..pod("daemon") },
        PodView { ended: true, ..pod("ended") },
        PodView { ended: true, controller: None, ..pod("ended-bare") },
        PodView { controller: None, ..pod("bare") },
        PodView { controller: None, terminating: true, ..pod("bare-terminating") },
        pod("web"),
    ];
    let drain = Drain::default();
    let next = drain.next(&pods, s(0));
    assert_eq!(uids(&next.lost), ["bare"]);
    assert_eq!(uids(&next.ask), ["web"]);
    let left: Vec<_> = next.left.iter().map(|left| (left.pod.uid.as_str(), left.state)).collect();
    assert_eq!(left, [("bare-terminating", State::Terminating), ("web", State::Asked)]);
}

#[test]
fn where_the_host_is_to_go_the_pod_that_stands_for_its_control_plane_leaves_first_and_never_by_force() {
    let pods = [PodView { quorum: true, ..pod("stands") }, PodView { priority: -7, ..pod("web") }];
    let request = DrainRequest { force_after: Some(s(60)), ..DrainRequest::default() };
    let mut drain = Drain::by(DrainRules::default(), request).taking_host(true);
    drain.seen(&pods);
    assert_eq!(uids(&drain.next(&pods, s(0)).ask), ["stands"]);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("quorum"), s(0));
    for at in [1, 59, 60, 61, 600, 6000] {
        let next = drain.next(&pods, s(at));
        assert!(next.force.is_empty() && !uids(&next.ask).contains(&"web".to_owned()), "after {at} s: {next:?}");
    }
    let next = drain.next(&pods[1..], s(6001));
    assert_eq!(uids(&next.ask), ["web"]);
}

#[test]
fn bare_pods_leave_if_that_is_asked_for() {
    let pods = [PodView { controller: None, ..pod("bare") }];
    let request = DrainRequest { evict_unmanaged: true, ..DrainRequest::default() };
    let drain = Drain::by(DrainRules::default(), request);
    let next = drain.next(&pods, s(0));
    assert_eq!((uids(&next.ask), next.lost), (vec!["bare".to_owned()], vec![]));
}

#[test]
fn a_pod_is_deleted_only_after_its_eviction_was_refused_for_as_long_as_was_asked_for() {
    let pods = [pod("db"), pod("web"), pod("terminating")];
    let mut drain = Drain::by(DrainRules::default(), DrainRequest { force_after: Some(s(60)), ..Default::default() });
    drain.seen(&pods);
    for pod in &pods {
        drain.asked(pod);
    }
    drain.answered(&pods[0], by_budget("db"), s(10));
    drain.answered(&pods[1], Eviction::Accepted, s(10));
    drain.answered(&pods[2], by_budget("db"), s(10));
    let pods = [pods[0].clone(), pods[1].clone(), PodView { terminating: true, ..pods[2].clone() }];
    drain.read(&shop("db"), Some(budget(0, 2, 2)), s(69));
    // The time counts from the first refusal.
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("db"), s(69));
    drain.read(&shop("db"), Some(budget(0, 2, 2)), s(69));
    let next = drain.next(&pods, s(69));
    assert_eq!((uids(&next.force), next.again), (vec![], Some(s(70))));
    let next = drain.next(&pods, s(70));
    assert_eq!(uids(&next.force), ["db"]);
    assert!(!uids(&next.ask).contains(&"db".to_owned()));

    drain.asked(&pods[0]);
    assert!(drain.next(&pods, s(71)).force.is_empty(), "the deletion is under way");
    drain.answered(&pods[0], Eviction::Failed("a webhook".to_owned()), s(71));
    assert!(drain.next(&pods, s(71)).force.is_empty(), "there is a pause after an error");
    assert_eq!(uids(&drain.next(&pods, s(90)).force), ["db"]);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], Eviction::Accepted, s(90));
    assert!(drain.next(&pods, s(200)).force.is_empty());

    let mut unheard = Drain::by(DrainRules::default(), DrainRequest { force_after: Some(s(60)), ..Default::default() });
    unheard.asked(&pods[0]);
    unheard.answered(&pods[0], Eviction::NoAnswer("no route".to_owned()), s(0));
    assert!(unheard.next(&pods, s(1_000_000)).force.is_empty(), "nobody refused it");

    let mut never = Drain::default();
    never.asked(&pods[0]);
    never.answered(&pods[0], by_budget("db"), s(0));
    assert!(never.next(&pods, s(1_000_000)).force.is_empty());
}

#[test]
fn a_pod_that_has_to_complete_is_evicted_after_the_time_that_was_given_to_it() {
    let pods = [PodView { labels: BTreeMap::from([(DRAIN.to_owned(), "wait-completed".to_owned())]), ..pod("job") }];
    let request = DrainRequest { wait_completed_for: Some(s(60)), ..DrainRequest::default() };
    let drain = Drain::by(DrainRules::default(), request);
    let next = drain.next(&pods, s(59));
    assert_eq!((next.ask.len(), next.again), (0, Some(s(60))));
    assert_eq!(uids(&drain.next(&pods, s(60)).ask), ["job"]);
}

#[test]
fn what_the_cluster_needs_leaves_last() {
    let of = |uid: &str, priority| PodView { priority, ..pod(uid) };
    let mut pods = vec![of("dns", 2_000_000_000), of("web", 0), of("own", 1_000_000_000), of("cni", 2_000_001_000)];
    let drain = Drain::default();
    let mut order = Vec::new();
    while !pods.is_empty() {
        let asked = uids(&drain.next(&pods, s(0)).ask);
        pods.retain(|pod| !asked.contains(&pod.uid));
        order.push(asked);
    }
    assert_eq!(order, [vec!["web", "own"], vec!["dns"], vec!["cni"]]);
}

#[test]
fn pods_of_daemon_sets_leave_last_and_only_if_that_is_asked_for() {
    let daemon = |uid: &str, tolerates_drain: bool| {
        let controller = Some(Controller { kind: "DaemonSet".to_owned(), uid: "agent".to_owned() });
        PodView { controller, tolerates_drain, tolerates_cordon: true, ..pod(uid) }
    };
    let pods = [daemon("agent", false), daemon("cni", true), pod("web")];
    assert_eq!(Drain::default().next(&pods, s(0)).left.len(), 1);
    for through in [Through::DaemonSet, Through::Static] {
        let drain = Drain::by(DrainRules::default(), DrainRequest { through, ..DrainRequest::default() });
        let next = drain.next(&pods, s(0));
        assert_eq!((uids(&next.ask), next.left[0].state), (vec!["web".to_owned()], State::Later));
        let kept: Vec<_> = next.kept.iter().map(|kept| (kept.pod.uid.as_str(), kept.why)).collect();
        assert_eq!(kept, [("cni", Keep::Tolerates)]);
        assert_eq!(uids(&drain.next(&pods[..2], s(0)).ask), ["agent"]);
    }
}

#[test]
fn a_pod_that_a_person_holds_is_neither_evicted_nor_deleted_and_the_drain_waits_for_it() {
    let pods =
        [PodView { hold: Some("the annotation hold.hactl.dev/x of the pod".to_owned()), ..pod("db") }, pod("web")];
    let mut drain = Drain::by(DrainRules::default(), DrainRequest { force_after: Some(s(60)), ..Default::default() });
    drain.seen(&pods);
    let next = drain.next(&pods, s(600));
    assert_eq!((uids(&next.ask), next.force.len(), next.left.len()), (vec!["web".to_owned()], 0, 2));
    assert_eq!(next.left[0].state, State::Held("the annotation hold.hactl.dev/x of the pod"));
}

#[test]
fn flow_control_pauses_everything_and_an_error_only_its_pod() {
    let pods = [pod("a"), pod("b")];
    let mut drain = Drain::default();
    drain.asked(&pods[0]);
    drain.answered(&pods[0], Eviction::Throttled(s(2)), s(1));
    let next = drain.next(&pods, s(1));
    assert_eq!((next.ask.len(), next.again), (0, Some(s(3))));
    assert_eq!(drain.next(&pods, s(3)).ask.len(), 2);
    let mut now = s(3);
    for pause in [1, 2, 4, 8, 16, 16] {
        drain.asked(&pods[0]);
        drain.answered(&pods[0], Eviction::Failed("webhook".to_owned()), now);
        let next = drain.next(&pods, now);
        assert_eq!((uids(&next.ask), next.left[0].state), (vec!["b".to_owned()], State::Failed("webhook")));
        now += s(pause);
        assert_eq!(drain.next(&pods, now).ask.len(), 2, "after {pause} s");
    }
}

#[test]
fn a_pod_that_tolerates_the_cordon_is_evicted_once_and_stays_when_it_is_back() {
    let first = [PodView { tolerates_cordon: true, ..pod("a") }];
    let mut drain = Drain::default();
    drain.seen(&first);
    assert_eq!(drain.next(&first, s(0)).ask.len(), 1);
    let back = [PodView { terminating: true, ..first[0].clone() }, PodView { uid: "b".to_owned(), ..first[0].clone() }];
    drain.seen(&back);
    let next = drain.next(&back, s(1));
    assert_eq!((came_back(&next), next.left.len()), (vec!["b".to_owned()], 1));
    assert!(drain.next(&back[1..], s(2)).left.is_empty(), "the Node is drained");
}

#[test]
fn a_controller_that_binds_its_pods_itself_does_not_keep_a_drain_running() {
    let mut drain = Drain::default();
    drain.seen(&[]);
    for round in 0..RETURNS {
        let late = pod(&format!("late-{round}"));
        drain.seen([&late]);
        assert_eq!(drain.next([&late], s(1)).ask.len(), 1, "the scheduler may have bound it before the cordon");
        drain.asked(&late);
        drain.answered(&late, Eviction::Accepted, s(1));
        assert_eq!(drain.next([&late], s(1)).left.len(), 1, "it is waited for");
    }
    let late = pod("late");
    drain.seen([&late]);
    assert_eq!(came_back(&drain.next([&late], s(2))), ["late"]);
}

/// The label by which the rules of the simulated cluster select pods, and the orders that they have.
const ORDER: (&str, [i32; 2]) = ("order", [-3, 100]);

fn rules() -> DrainRules {
    let rule = |order: &i32| {
        let pods = serde_json::json!({"matchLabels": {ORDER.0: order.to_string()}});
        let spec = serde_json::json!({"behavior": "Drain", "order": order, "podSelector": pods});
        let metadata = serde_json::json!({"name": format!("order{order}")});
        DrainRule::of(&serde_json::json!({"metadata": metadata, "spec": spec})).expect("it can be read")
    };
    DrainRules::of(ORDER.1.iter().map(rule), &BTreeMap::new())
}

fn level(pod: &PodView) -> Level {
    Level::of(pod, pod.labels.get(ORDER.0).and_then(|order| order.parse().ok()).unwrap_or(0))
}

/// A pod of the simulated Node.
#[derive(Debug, Clone)]
struct Sim {
    fact: PodView,
    budget: Option<usize>,
    /// Its controller binds it to the Node without the scheduler.
    bound: bool,
    /// Ticks that it takes to end.
    grace: u32,
    ends: Option<u32>,
    /// When it completes by itself.
    completes: Option<u32>,
}

/// A budget: what it allows at most, and after how many ticks it allows one more. 0 at most: it never does.
#[derive(Debug, Clone)]
struct SimBudget {
    most: u32,
    every: u32,
    allowed: u32,
}

#[derive(Debug, Clone)]
struct Node {
    pods: Vec<Sim>,
    budgets: Vec<SimBudget>,
    /// Evictions and reads that fail before all succeed.
    errors: Vec<u8>,
    born: u32,
    requests: u32,
}

impl Node {
    fn evict(&mut self, uid: &str, tick: u32) -> Eviction {
        self.requests += 1;
        match self.errors.pop() {
            Some(0..60) => return Eviction::Failed("a webhook".to_owned()),
            Some(60..80) => return Eviction::Throttled(s(1)),
            Some(80..100) => return Eviction::Refused(Refused::SeveralBudgets),
            Some(100..120) => return Eviction::Gone,
            _ => {}
        }
        let Some(pod) = self.pods.iter_mut().find(|pod| pod.fact.uid == uid) else { return Eviction::Gone };
        if let Some(number) = pod.budget {
            let budget = &mut self.budgets[number];
            if budget.allowed == 0 {
                return by_budget(&number.to_string());
            }
            budget.allowed -= 1;
        }
        pod.fact.terminating = true;
        pod.ends = Some(tick + pod.grace);
        Eviction::Accepted
    }

    /// `None`: it could not be read.
    fn read(&mut self, name: &BudgetRef) -> Option<BudgetFact> {
        self.requests += 1;
        if matches!(self.errors.pop(), Some(0..80)) {
            return None;
        }
        let SimBudget { most, allowed, .. } = self.budgets[name.name.parse::<usize>().expect("a number")];
        Some(budget(allowed, 3 - most.min(2), 3))
    }

    /// Whether pods changed.
    fn tick(&mut self, tick: u32) -> bool {
        let (gone, stay): (Vec<Sim>, _) =
            self.pods.drain(..).partition(|pod| pod.ends.is_some_and(|ends| ends <= tick));
        self.pods = stay;
        let mut changed = !gone.is_empty();
        for pod in self.pods.iter_mut().filter(|pod| pod.completes == Some(tick)) {
            (pod.fact.ended, changed) = (true, true);
        }
        for mut pod in gone {
            if pod.fact.tolerates_cordon || pod.bound {
                self.born += 1;
                pod.fact.uid = format!("again-{}", self.born);
                (pod.fact.terminating, pod.ends) = (false, None);
                self.pods.push(pod);
            }
        }
        for budget in &mut self.budgets {
            if tick.is_multiple_of(budget.every) {
                budget.allowed = budget.most.min(budget.allowed + 1);
            }
        }
        changed
    }

    /// Pods that leave some time: those that no budget holds for ever, and that wait for no such pod.
    fn can_leave(&self) -> impl Iterator<Item = &Sim> {
        let held = |pod: &&Sim| pod.budget.is_some_and(|number| self.budgets[number].most == 0);
        let leaves = |pod: &&Sim| PodKind::of(&pod.fact) == PodKind::Controlled && !pod.fact.labels.contains_key(DRAIN);
        let least = self.pods.iter().filter(leaves).filter(held).map(|pod| level(&pod.fact)).min();
        let free = move |pod: &&Sim| !held(pod) && least.is_none_or(|least| level(&pod.fact) <= least);
        self.pods.iter().filter(leaves).filter(free)
    }
}

fn sim_pod() -> impl Strategy<Value = Sim> {
    let kind = prop_oneof![6 => Just("ReplicaSet"), 1 => Just("DaemonSet"), 1 => Just("static"), 1 => Just("ended"), 1 => Just("quorum")];
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let budget = prop::option::of(0..3_usize);
    let priority = prop::sample::select(PRIORITIES.to_vec());
    let labels = prop_oneof![
        8 => Just(None),
        1 => prop::sample::select(ORDER.1.map(|order| (ORDER.0, order.to_string())).to_vec()).prop_map(Some),
        1 => prop::sample::select(["skip", "wait-completed"].map(|word| (DRAIN, word.to_owned())).to_vec()).prop_map(Some),
    ];
    (kind, flags, budget, priority, 0..4_u8, (1..40_u32, labels)).prop_map(
        |(kind, (tolerates_cordon, bound, unready), budget, priority, controller, (grace, label))| {
            let completes = label.as_ref().is_some_and(|(_, value)| value == "wait-completed").then_some(grace * 10);
            let labels = label.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            let controller = Controller { kind: kind.to_owned(), uid: controller.to_string() };
            let fact = PodView {
                priority,
                labels,
                controller: Some(controller),
                mirror: kind == "static",
                quorum: kind == "quorum",
                ended: kind == "ended",
                ready: !unready,
                tolerates_cordon,
                ..pod("")
            };
            Sim { fact, budget, bound, grace, ends: None, completes }
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let budget = (0..4_u32, 1..30_u32).prop_map(|(most, every)| SimBudget { most, every, allowed: most });
    let pods = prop::collection::vec(sim_pod(), 0..24);
    (pods, prop::collection::vec(budget, 3), prop::collection::vec(any::<u8>(), 0..40)).prop_map(
        |(mut pods, budgets, errors)| {
            for (number, pod) in pods.iter_mut().enumerate() {
                pod.fact.uid = format!("pod-{number}");
            }
            Node { pods, budgets, errors, born: 0, requests: 0 }
        },
    )
}

/// The laws of one answer of the planner.
fn judge(next: &Next<'_>, drain: &Drain, pods: &[PodView], now: Duration) -> Result<(), TestCaseError> {
    prop_assert_eq!(next, &drain.next(pods, now), "the same view gives the same answer");
    let least = next.left.iter().map(|left| level(left.pod)).min();
    let asked: BTreeSet<&str> = next.ask.iter().map(|pod| pod.uid.as_str()).collect();
    prop_assert_eq!(asked.len(), next.ask.len(), "no pod is asked twice at once");
    for pod in &next.ask {
        prop_assert_eq!(Some(level(pod)), least, "a smaller level has pods left: {:?}", pod);
        prop_assert_eq!(PodKind::of(pod), PodKind::Controlled, "{:?}", pod);
        prop_assert!(!pod.labels.contains_key(DRAIN), "its owner wants to keep it: {:?}", pod);
        prop_assert!(!pod.terminating && !next.kept.iter().any(|kept| kept.pod == *pod), "{:?}", pod);
        prop_assert!(
            drain.attempts.get(&pod.uid).is_none_or(|attempt| !attempt.under_way),
            "its request is under way: {:?}",
            pod
        );
    }
    for left in next.left.iter().filter(|left| Some(level(left.pod)) == least) {
        let waits = left.pod.terminating || matches!(left.state, State::Completing(_));
        let known = drain.attempts.contains_key(&left.pod.uid) || drain.sibling(left.pod).is_some();
        let hidden = drain.paused_until > now || waits || known;
        prop_assert!(hidden || asked.contains(left.pod.uid.as_str()), "nothing holds it back: {:?}", left.pod);
    }
    prop_assert!(next.again.is_none_or(|again| again > now));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_pod_that_can_leave_leaves_in_order_whatever_happens(mut node in node()) {
        let mut drain = Drain::by(rules(), DrainRequest::default());
        let begun = node.pods.len();
        let (mut drained, mut again) = (false, Some(Duration::ZERO));
        for tick in 0..LAST_TICK {
            let now = TICK * tick;
            // Between a change and the time that the planner names there is nothing to do.
            if !node.tick(tick) && again.is_none_or(|again| again > now) {
                continue;
            }
            for turn in 0.. {
                let pods: Vec<PodView> = node.pods.iter().map(|pod| pod.fact.clone()).collect();
                drain.seen(&pods);
                let next = drain.next(&pods, now);
                judge(&next, &drain, &pods, now)?;
                (drained, again) = (next.left.is_empty(), next.again);
                let (read, ask) = (next.read.clone(), next.ask.iter().map(|pod| (*pod).clone()).collect::<Vec<_>>());
                if drained || (read.is_empty() && ask.is_empty()) {
                    break;
                }
                prop_assert!(turn < 100, "it asks again and again at the same time: {:?}", ask);
                for budget in read {
                    drain.reading(&budget);
                    match node.read(&budget) {
                        Some(fact) => drain.read(&budget, Some(fact), now),
                        None => drain.not_read(&budget, now),
                    }
                }
                for pod in ask {
                    drain.asked(&pod);
                    let answer = node.evict(&pod.uid, tick);
                    drain.answered(&pod, answer, now);
                }
            }
            if drained {
                break;
            }
        }
        let left: Vec<_> = node.can_leave().filter(|pod| !pod.fact.tolerates_cordon && !pod.bound).collect();
        prop_assert!(left.is_empty(), "after a quarter of an hour: {:?}", left);
        let held = node.pods.iter().any(|pod| pod.budget.is_some_and(|number| node.budgets[number].most == 0));
        prop_assert!(drained || held, "the drain does not end: {:?}", node.pods);
        let comes_back = node.pods.iter().any(|pod| pod.fact.tolerates_cordon || pod.bound);
        prop_assert!(comes_back || held || node.born == 0);
        prop_assert!(usize::try_from(node.born).unwrap_or(usize::MAX) <= begun * 5, "{} came back", node.born);
    }
}
