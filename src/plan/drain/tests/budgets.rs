//! What a drain does under PodDisruptionBudgets.

use super::*;

#[test]
fn a_budget_that_lets_one_go_at_a_time_is_asked_again_when_a_pod_has_left() {
    let pods = [pod("a"), pod("b"), pod("c")];
    let mut drain = Drain::default();
    drain.seen(&pods);
    assert_eq!(drain.next(&pods, s(0)).ask.len(), 3);
    for pod in &pods {
        drain.asked(pod);
    }
    assert!(drain.next(&pods, s(0)).ask.is_empty(), "the requests are under way");
    drain.answered(&pods[0], Eviction::Accepted, s(0));
    drain.answered(&pods[1], by_budget("db"), s(0));
    drain.answered(&pods[2], by_budget("db"), s(0));
    let next = drain.next(&pods, s(0));
    assert_eq!((next.ask.len(), next.read), (0, vec![shop("db")]), "one read for all its pods");
    drain.reading(&shop("db"));
    assert!(drain.next(&pods, s(0)).read.is_empty());
    drain.read(&shop("db"), Some(budget(0, 2, 3)), s(0));
    let next = drain.next(&pods, s(0));
    assert!(next.read.is_empty() && next.ask.is_empty() && next.left.iter().all(|left| !left.state.never()));
    assert_eq!(next.again, Some(READ_EVERY));

    let rest = &pods[1..];
    drain.seen(rest);
    assert_eq!(drain.next(rest, s(0)).read, [shop("db")], "one has left");
    drain.read(&shop("db"), Some(budget(1, 2, 3)), s(0));
    assert_eq!(uids(&drain.next(rest, s(0)).ask), ["b"], "the budget allows one");
    drain.asked(&pods[1]);
    assert!(drain.next(rest, s(0)).ask.is_empty());
    drain.answered(&pods[1], Eviction::Accepted, s(0));
    assert!(drain.next(rest, s(0)).ask.is_empty(), "that one is used");
    drain.read(&shop("db"), None, s(1));
    assert_eq!(uids(&drain.next(rest, s(1)).ask), ["c"], "the budget was deleted");
}

#[test]
fn a_budget_that_needs_all_its_pods_never_lets_one_go_and_hides_no_other_pod() {
    let pods = [pod("a"), pod("b"), PodView { priority: 2_000_000_000, ..pod("dns") }];
    let mut drain = Drain::default();
    drain.seen(&pods);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("cache"), s(0));
    drain.read(&shop("cache"), Some(budget(0, 3, 3)), s(0));
    let next = drain.next(&pods, s(0));
    assert!(next.left[0].state.never());
    assert!(next.ask.is_empty() && next.left[1].state.never(), "a pod of the same controller expects the same");
    assert_eq!(next.left[2].state, State::Later);
    let other =
        PodView { controller: Some(Controller { kind: "ReplicaSet".to_owned(), uid: "x".to_owned() }), ..pod("c") };
    assert_eq!(uids(&drain.next([&pods[0], &pods[1], &other], s(0)).ask), ["c"]);
    assert!(uids(&drain.next(&pods, s(60)).ask).contains(&"b".to_owned()), "the budget may select only some of them");
}

#[test]
fn pods_of_one_controller_wait_together_for_the_budget_that_refused_one_and_each_is_deleted_in_its_own_time() {
    let pods = [pod("a"), pod("b"), pod("c")];
    let mut drain = Drain::by(DrainRules::default(), DrainRequest { force_after: Some(s(60)), ..Default::default() });
    drain.seen(&pods);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("db"), s(1));
    drain.watching(&shop("db"), true, s(1));
    drain.read(&shop("db"), Some(budget(0, 2, 3)), s(1));
    assert!(drain.next(&pods, s(1)).ask.is_empty());
    drain.read(&shop("db"), Some(budget(2, 2, 3)), s(2));
    assert_eq!(uids(&drain.next(&pods, s(2)).ask), ["a", "b"], "as many as it allows");
    drain.asked(&pods[1]);
    drain.answered(&pods[1], Eviction::Accepted, s(2));
    drain.read(&shop("db"), Some(budget(0, 2, 3)), s(2));
    assert!(drain.next(&pods, s(2)).ask.is_empty());
    let pods = [pods[0].clone(), PodView { terminating: true, ..pods[1].clone() }, pods[2].clone()];
    // Only a pod that was refused for so long is deleted; the others are asked when nothing has moved for a minute.
    assert_eq!(
        (uids(&drain.next(&pods, s(61)).force), uids(&drain.next(&pods, s(61)).ask)),
        (vec!["a".to_owned()], vec![])
    );
    assert_eq!(uids(&drain.next(&pods, s(62)).ask), ["c"]);
    drain.asked(&pods[2]);
    drain.answered(&pods[2], by_budget("db"), s(62));
    assert_eq!(uids(&drain.next(&pods, s(121)).force), ["a"]);
    assert_eq!(uids(&drain.next(&pods, s(122)).force), ["a", "c"]);
}

#[test]
fn a_budget_that_is_watched_is_seldom_read_and_soon_after_a_refusal() {
    let pods = [pod("a")];
    let mut drain = Drain::default();
    drain.seen(&pods);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("db"), s(0));
    drain.watching(&shop("db"), true, s(0));
    drain.read(&shop("db"), Some(budget(0, 2, 3)), s(0));
    assert!(drain.next(&pods, s(14)).read.is_empty());
    assert_eq!(drain.next(&pods, s(15)).read, [shop("db")]);
    drain.read(&shop("db"), Some(budget(1, 2, 3)), s(16));
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("db"), s(16));
    assert_eq!(drain.next(&pods, s(17)).read, [shop("db")], "the watch may have said all before the refusal");
    drain.watching(&shop("db"), false, s(20));
    assert_eq!(drain.next(&pods, s(21)).read, [shop("db")]);
}

#[test]
fn a_pod_that_is_not_ready_leaves_when_enough_others_are_healthy() {
    let pods = [PodView { ready: false, ..pod("a") }, pod("b")];
    let mut drain = Drain::default();
    for pod in &pods {
        drain.asked(pod);
        drain.answered(pod, by_budget("db"), s(0));
    }
    drain.read(&shop("db"), Some(BudgetFact { healthy: 1, ..budget(0, 2, 3) }), s(0));
    assert!(drain.next(&pods, s(0)).ask.is_empty());
    drain.read(&shop("db"), Some(budget(0, 2, 3)), s(1));
    assert_eq!(uids(&drain.next(&pods, s(1)).ask), ["a"]);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("db"), s(1));
    assert!(drain.next(&pods, s(1)).ask.is_empty(), "once for each read");
}

#[test]
fn a_pod_that_is_refused_again_and_again_keeps_others_of_its_controller_waiting_for_a_minute_at_most() {
    let pods = [PodView { ready: false, ..pod("refused") }, pod("web")];
    let mut drain = Drain::default();
    drain.seen(&pods);
    drain.asked(&pods[0]);
    drain.answered(&pods[0], by_budget("db"), s(0));
    for at in 1..60 {
        // By what it says, the budget lets a pod go that is not ready.
        drain.read(&shop("db"), Some(budget(0, 3, 3)), s(at));
        assert_eq!(uids(&drain.next(&pods, s(at)).ask), ["refused"], "after {at} s");
        drain.asked(&pods[0]);
        drain.answered(&pods[0], by_budget("db"), s(at));
    }
    assert!(uids(&drain.next(&pods, s(60)).ask).contains(&"web".to_owned()));
}
