use super::*;
use crate::model::hosting::Workload;
use proptest::prelude::*;

const GOOD: &str = "good";

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn mode() -> Mode {
    Mode::Workloads(GOOD.to_owned())
}

fn pod(uid: &str, revision: &str) -> Workload {
    Workload { uid: uid.to_owned(), revision: revision.to_owned() }
}

fn hosted() -> ComponentFact {
    let server = Some(Server::Workload(pod("a", GOOD)));
    ComponentFact { aside: true, server, answers: true, ..ComponentFact::default() }
}

fn missing() -> ComponentFact {
    ComponentFact { aside: true, ..ComponentFact::default() }
}

fn fixed() -> ComponentFact {
    ComponentFact { placed: true, server: Some(Server::Static), answers: true, ..ComponentFact::default() }
}

fn offered(uid: &str, revision: &str) -> ComponentFact {
    ComponentFact { waits: Some(pod(uid, revision)), ..fixed() }
}

const SAFE: Around = Around { has_others: true, others_serve: true, own_serves: false, turn: Turn::All };

/// The first move within so many seconds, and when.
fn first(keeper: &mut Keeper, from: u64, to: u64, seen: &ComponentFact, around: Around) -> Option<(u64, Move)> {
    (from..to).find_map(|at| Some((at, keeper.judge(second(at), &mode(), seen, around)?)))
}

#[test]
fn an_api_server_is_missed_for_half_a_minute_and_the_others_for_a_minute() {
    for (api_server, after) in [(true, 30), (false, 60)] {
        let mut keeper = Keeper::of(api_server);
        assert_eq!(first(&mut keeper, 0, 100, &hosted(), SAFE), None);
        let placed = first(&mut keeper, 100, 300, &missing(), SAFE);
        assert_eq!(placed, Some((100 + after, Move::Place(Why::Missing(second(after))))));
    }
}

#[test]
fn a_scheduler_is_missed_only_while_there_is_an_api_server() {
    let mut keeper = Keeper::of(false);
    let no_api = Around { others_serve: false, ..SAFE };
    assert_eq!(first(&mut keeper, 0, 900, &missing(), no_api), None);
    let own = Around { own_serves: true, ..no_api };
    let placed = first(&mut keeper, 900, 1000, &missing(), own);
    assert_eq!(placed, Some((960, Move::Place(Why::Missing(second(60))))));
}

#[test]
fn one_that_answers_now_and_then_is_not_missing() {
    let mut keeper = Keeper::of(true);
    for at in 0..500 {
        let seen = if at % 25 == 0 { hosted() } else { missing() };
        assert_eq!(keeper.judge(second(at), &mode(), &seen, SAFE), None, "second {at}");
    }
}

#[test]
fn a_static_pod_that_came_too_late_makes_way_and_comes_later_the_next_time() {
    let mut keeper = Keeper::of(true);
    let beaten = ComponentFact { placed: true, aside: false, ..hosted() };
    let mut at = 0;
    for delay in [30, 60, 120, 240, 240] {
        let placed = first(&mut keeper, at, at + 1000, &missing(), SAFE);
        assert_eq!(placed, Some((at + delay, Move::Place(Why::Missing(second(delay))))));
        at += delay + 1;
        assert_eq!(first(&mut keeper, at, at + 1000, &beaten, SAFE), Some((at + 10, Move::Withdraw(Why::Beaten))));
        at += 11;
    }
    assert_eq!(first(&mut keeper, at, at + 601, &hosted(), SAFE), None);
    let placed = first(&mut keeper, at + 601, at + 1000, &missing(), SAFE);
    assert_eq!(placed, Some((at + 631, Move::Place(Why::Missing(second(30))))), "it was well for ten minutes");
}

#[test]
fn a_pod_takes_over_in_the_turn_of_its_host_while_another_api_server_answers() {
    let unsafe_ones = [
        Around { turn: Turn::Others, ..SAFE },
        Around { others_serve: false, ..SAFE },
        Around { others_serve: false, turn: Turn::None, ..SAFE },
    ];
    for around in unsafe_ones {
        assert_eq!(first(&mut Keeper::of(true), 0, 500, &offered("a", GOOD), around), None);
    }
    let alone = Around { has_others: false, others_serve: false, turn: Turn::None, ..SAFE };
    for around in [SAFE, alone] {
        let taken = first(&mut Keeper::of(true), 0, 500, &offered("a", GOOD), around);
        assert_eq!(taken, Some((10, Move::Withdraw(Why::Offered))));
    }
    let later = Around { turn: Turn::Others, ..SAFE };
    let taken = first(&mut Keeper::of(false), 0, 500, &offered("a", GOOD), later);
    assert_eq!(taken, Some((10, Move::Withdraw(Why::Offered))), "a scheduler, later in the turn");
    let other = Around { turn: Turn::None, ..SAFE };
    assert_eq!(first(&mut Keeper::of(false), 0, 500, &offered("a", GOOD), other), None, "in the turn of another host");
}

#[test]
fn a_pod_of_another_revision_never_takes_over() {
    let mut keeper = Keeper::of(true);
    assert_eq!(first(&mut keeper, 0, 500, &offered("a", "older"), SAFE), None);
    let server = Some(Server::Workload(pod("a", "older")));
    let port_lost = ComponentFact { placed: true, server, ..hosted() };
    assert_eq!(first(&mut keeper, 500, 1000, &port_lost, SAFE), None);
}

#[test]
fn a_pod_that_does_not_take_over_gets_no_second_turn_and_another_one_does() {
    let mut keeper = Keeper::of(true);
    assert_eq!(first(&mut keeper, 0, 50, &offered("a", GOOD), SAFE), Some((10, Move::Withdraw(Why::Offered))));
    assert_eq!(first(&mut keeper, 11, 500, &missing(), SAFE), Some((71, Move::Place(Why::NotTaken))));
    assert_eq!(first(&mut keeper, 72, 500, &offered("a", GOOD), SAFE), None);
    assert_eq!(first(&mut keeper, 500, 600, &offered("b", GOOD), SAFE), Some((510, Move::Withdraw(Why::Offered))));
    assert_eq!(first(&mut keeper, 511, 520, &hosted(), SAFE), None);
    let placed = first(&mut keeper, 520, 600, &missing(), SAFE);
    assert_eq!(placed, Some((550, Move::Place(Why::Missing(second(30))))), "it has taken over: missed as any other");
}

#[test]
fn a_host_that_starts_places_only_an_api_server_and_only_if_no_other_answers() {
    let start = |api_server, mode: &Mode, seen: &ComponentFact, others_serve| {
        Keeper::of(api_server).at_start(mode, seen, Around { others_serve, ..SAFE })
    };
    assert_eq!(start(true, &mode(), &missing(), false), Some(Move::Place(Why::Missing(Duration::ZERO))));
    assert_eq!(start(true, &mode(), &missing(), true), None);
    assert_eq!(start(true, &mode(), &hosted(), false), None, "only its keeper starts again");
    assert_eq!(start(false, &mode(), &missing(), false), None);
    for api_server in [true, false] {
        assert_eq!(start(api_server, &Mode::Held, &missing(), true), Some(Move::Place(Why::Held)));
        assert_eq!(start(api_server, &Mode::Held, &fixed(), true), None);
    }
}

#[test]
fn turns_of_two_hosts_are_far_apart() {
    let apart = |missing: Option<Duration>, seconds: u64| {
        let begins: Vec<(u64, u32)> = (0..2000)
            .flat_map(|at| (0..3).map(move |place| (at, place)))
            .filter(|(at, place)| turn_of(second(*at), (*place, 3), missing) == Turn::All)
            .collect();
        assert!((0..3).all(|place| begins.iter().any(|(_, of)| *of == place)));
        for (at, place) in &begins {
            let near = begins.iter().find(|(other, of)| of != place && at.abs_diff(*other) <= seconds);
            assert_eq!(near, None, "at {at}");
        }
        for at in 0..2000 {
            let turns = (0..3).filter(|place| turn_of(second(at), (*place, 3), missing) != Turn::None);
            assert_eq!(turns.count(), 1, "one slot at a time");
        }
    };
    apart(None, 20);
    apart(Some(second(75)), 60);
    assert_eq!(turn_of(second(5), (7, 3), None), Turn::None, "a place that does not exist");
    assert_eq!(turn_of(second(3), (0, 0), None), Turn::All);
}

#[test]
fn while_another_api_server_may_be_in_a_hand_over_nobody_has_a_turn() {
    for at in 0..2000 {
        for missing in [0, 10, 74] {
            assert_eq!(turn_of(second(at), (0, 3), Some(second(missing))), Turn::None, "{at}");
        }
    }
}

fn any_fact() -> impl Strategy<Value = ComponentFact> {
    let workload = || {
        (prop::sample::select(vec!["a", "b"]), prop::sample::select(vec![GOOD, "older"]))
            .prop_map(|(uid, revision)| pod(uid, revision))
    };
    let server = prop_oneof![
        Just(None),
        Just(Some(Server::Static)),
        Just(Some(Server::Other)),
        workload().prop_map(|pod| Some(Server::Workload(pod)))
    ];
    (server, any::<bool>(), prop::option::of(workload())).prop_map(|(server, answers, waits)| ComponentFact {
        answers: answers && server.is_some(),
        server,
        waits,
        ..ComponentFact::default()
    })
}

proptest! {
    /// Whatever a host sees: its manifest leaves the kubelet only for a pod that may serve, and comes back in time.
    #[test]
    fn a_manifest_leaves_only_for_a_pod_that_may_serve(
        api_server in any::<bool>(),
        course in prop::collection::vec((any_fact(), 1_u64..40, any::<bool>(), any::<bool>()), 1..40),
    ) {
        let (mut keeper, mut placed, mut at) = (Keeper::of(api_server), true, 0);
        let mut missing = 0;
        for (fact, lasts, others_serve, turn) in course {
            for _ in 0..lasts {
                at += 1;
                let seen = ComponentFact { placed, aside: !placed, ..fact.clone() };
                let around = Around { others_serve, turn: if turn { Turn::All } else { Turn::None }, ..SAFE };
                let is_missed = api_server || others_serve;
                missing = if seen.answers || placed || !is_missed { 0 } else { missing + 1 };
                match keeper.judge(second(at), &mode(), &seen, around) {
                    Some(Move::Withdraw(Why::Beaten)) => {
                        let pod = seen.workload().expect("a pod has the port");
                        prop_assert!(placed && seen.answers && pod.revision == GOOD);
                        placed = false;
                    }
                    Some(Move::Withdraw(_)) => {
                        let pod = seen.waits.expect("a pod waits");
                        prop_assert!(placed && pod.revision == GOOD && others_serve && turn);
                        placed = false;
                    }
                    Some(Move::Place(_)) => {
                        prop_assert!(!placed && !seen.answers);
                        placed = true;
                    }
                    None => {}
                }
                prop_assert!(missing <= 60 * 8 + 1, "nobody answers, and no manifest comes");
            }
        }
    }

    /// Where static pods are to run, nothing takes them away, and one that is away comes at once.
    #[test]
    fn a_host_that_is_held_keeps_its_static_pods(facts in prop::collection::vec((any_fact(), any::<bool>()), 1..50)) {
        let mut keeper = Keeper::of(true);
        for (at, (fact, placed)) in facts.into_iter().enumerate() {
            let seen = ComponentFact { placed, aside: !placed, ..fact };
            let moved = keeper.judge(second(at as u64), &Mode::Held, &seen, SAFE);
            prop_assert_eq!(moved, (!placed).then_some(Move::Place(Why::Held)));
        }
    }
}
