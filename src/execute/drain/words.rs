//! What is said of the pods that have not left: their names, what refuses each of them and whether that can pass, and
//! what a person can do.
//!
//! In: the pods that have to leave. Out: text.

use crate::model::action::counted;
use crate::model::eviction::{BudgetFact, BudgetRef, Eviction, Refused};
use crate::model::maintenance::{BlockedPod, DrainProgress, MOST_NAMED as MOST_OF_STATUS};
use crate::model::names::HostName;
use crate::model::pod::PodView;
use crate::plan::drain::{Keep, Kept, Left, Next, State};
use std::collections::BTreeMap;

/// The most pods that are named.
const MOST_NAMED: usize = 5;

/// The first names, and how many more there are.
pub(super) fn listed(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(MOST_NAMED);
    let named = names.into_iter().take(MOST_NAMED).collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// How far a drain is, of so many pods that had to leave, of which it deleted some.
pub(super) fn progress(next: &Next<'_>, to_leave: usize, forced: &[String]) -> DrainProgress {
    let refused = |left: &&Left<'_>| matches!(left.state, State::Refused { .. } | State::Failed(_) | State::Held(_));
    let blocked = next.left.iter().filter(refused);
    let named = blocked.clone().take(MOST_OF_STATUS).map(|left| BlockedPod {
        pod: left.pod.called(),
        message: match &left.state {
            State::Refused { by, budget } => refused_by(left.pod, by, *budget),
            State::Failed(why) => (*why).to_owned(),
            State::Held(by) => format!("{by} holds it"),
            _ => String::new(),
        },
        never: left.state.never(),
    });
    let lost = next.lost.iter().map(|pod| BlockedPod {
        pod: pod.called(),
        message: "no controller creates it again, so it is not evicted: delete it, or allow its loss".to_owned(),
        never: true,
    });
    let waits_for = match next.lost.first() {
        Some(pod) if next.left.is_empty() => {
            format!("{} to be deleted, which no controller creates again", pod.called())
        }
        _ => format!("{} to leave", in_the_way(&next.left).1),
    };
    DrainProgress {
        to_leave,
        left: to_leave.saturating_sub(next.left.len() + next.lost.len()),
        later: next.left.iter().filter(|left| left.state == State::Later).count(),
        blocked_count: blocked.count() + next.lost.len(),
        blocked: named.chain(lost).take(MOST_OF_STATUS).collect(),
        kept: reasons(&next.kept).take(MOST_OF_STATUS).collect(),
        forced: forced.to_vec(),
        waits_for,
    }
}

/// The names of pods that stay, and why each does.
pub(super) fn reasons(kept: &[Kept<'_>]) -> impl Iterator<Item = (String, String)> {
    kept.iter().map(|kept| {
        let why = match kept.why {
            Keep::CameBack => "it came back to the cordoned Node",
            Keep::Tolerates => "its DaemonSet would create it again: it tolerates the taint of the drain",
            Keep::Ruled(by) => by,
        };
        (kept.pod.called(), why.to_owned())
    })
}

/// A pod whose eviction would be refused by this answer to a dry run.
pub(super) fn would_refuse(pod: &PodView, answer: &Eviction) -> Option<BlockedPod> {
    let message = match answer {
        Eviction::Accepted | Eviction::Gone => return None,
        Eviction::Refused(by) => refused_by(pod, by, None),
        Eviction::Throttled(_) => "the API server limits requests".to_owned(),
        Eviction::Failed(why) | Eviction::NoAnswer(why) => why.clone(),
    };
    let never = matches!(answer, Eviction::Refused(Refused::SeveralBudgets));
    Some(BlockedPod { pod: pod.called(), message, never })
}

/// How many pods have to leave before others are asked, and their names with the reasons. Those that are refused come
/// first.
pub(super) fn in_the_way(left: &[Left<'_>]) -> (String, String) {
    let (later, mut now): (Vec<_>, Vec<_>) = left.iter().partition(|left| left.state == State::Later);
    now.sort_by_key(|left: &&Left<'_>| match left.state {
        State::Refused { .. } | State::Failed(_) | State::Held(_) => 0,
        State::Completing(_) | State::Terminating => 1,
        State::Asked | State::Later => 2,
    });
    let pods = counted(now.len(), "pod");
    let names = listed(now.into_iter().map(named).collect());
    match later.len() {
        0 => (pods, names),
        1 => (pods, format!("{names} (1 pod leaves after that)")),
        more => (pods, format!("{names} ({more} pods leave after that)")),
    }
}

/// What is said of the pods that stay on a Node, one sentence for each reason.
pub(super) fn kept(host: &HostName, kept: &[Kept<'_>]) -> Vec<String> {
    let mut by_reason: BTreeMap<Keep<'_>, Vec<String>> = BTreeMap::new();
    for Kept { pod, why } in kept {
        by_reason.entry(*why).or_default().push(pod.called());
    }
    let said = by_reason.into_iter().map(|(why, pods)| {
        let (stay, came, tolerate, them) =
            if pods.len() == 1 { ("stays", "comes", "it tolerates", "it") } else { ("stay", "come", "they tolerate", "them") };
        let pods = listed(pods);
        match why {
            Keep::CameBack => format!("{pods} {came} back to {host} although that is cordoned, and {stay} there"),
            Keep::Tolerates => {
                format!("{pods} {stay} on {host}: {tolerate} the taint of the drain, and a DaemonSet would create {them} again")
            }
            Keep::Ruled(by) => format!("{pods} {stay} on {host}, by {by}"),
        }
    });
    said.collect()
}

/// What to do before the next drain.
pub(super) fn advice(left: &[Left<'_>]) -> String {
    let by_several = |left: &Left<'_>| matches!(left.state, State::Refused { by: Refused::SeveralBudgets, .. });
    let mut advice = Vec::new();
    if left.iter().any(by_several) {
        advice.push("delete all but one of the budgets of such a pod");
    }
    if left.iter().any(|left| left.state.never() && !by_several(left)) {
        advice.push("raise the number of replicas, or let the budget allow an eviction");
    }
    if advice.is_empty() {
        return "run the same command again once they can leave".to_owned();
    }
    format!("{}, then run the same command again", advice.join(", and "))
}

fn named(Left { pod, state }: &Left<'_>) -> String {
    let called = pod.called();
    match state {
        State::Asked | State::Later => called,
        State::Completing(by) => format!("{called} (until it has completed, by {by})"),
        State::Terminating if pod.finalizers.is_empty() => format!("{called} (terminating)"),
        State::Terminating => format!("{called} (terminating; its finalizers: {})", listed(pod.finalizers.clone())),
        State::Failed(why) => format!("{called} ({why})"),
        State::Held(by) => format!("{called} ({by} holds it)"),
        State::Refused { by, budget } => format!("{called} ({})", refused_by(pod, by, *budget)),
    }
}

fn refused_by(pod: &PodView, by: &Refused, fact: Option<&BudgetFact>) -> String {
    let (name, says) = match by {
        Refused::Responders(says) => return says.clone(),
        Refused::NamespaceEnds => return "its namespace is being deleted".to_owned(),
        Refused::SeveralBudgets => {
            return "more than one PodDisruptionBudget selects it, and Kubernetes refuses every eviction then"
                .to_owned();
        }
        Refused::Budget { name, says } => (name, says),
    };
    let budget = BudgetRef { namespace: pod.namespace.clone(), name: name.clone() };
    match fact {
        Some(fact) if fact.never() => {
            let BudgetFact { desired, expected, .. } = fact;
            format!(
                "PodDisruptionBudget {budget} never allows an eviction: {desired} of its {expected} must be healthy"
            )
        }
        Some(fact) if !pod.ready && !fact.allows_unready() => format!(
            "PodDisruptionBudget {budget} {says}; the pod is not ready, and `unhealthyPodEvictionPolicy: AlwaysAllow` \
             would let it leave"
        ),
        _ => format!("PodDisruptionBudget {budget} {says}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, ready: bool) -> PodView {
        let pod = PodView::of(&json!({"metadata": {"name": name, "namespace": "shop", "uid": name}}));
        PodView { ready, ..pod.expect("it has a name") }
    }

    fn fact(healthy: u32, desired: u32, expected: u32) -> BudgetFact {
        BudgetFact { allowed: 0, healthy, desired, expected, computed: true, always_allows_unready: false }
    }

    #[test]
    fn a_refusal_says_which_budget_and_whether_it_can_ever_pass() {
        let by = Refused::Budget { name: "db".to_owned(), says: "needs 2 healthy pods and has 2 currently".to_owned() };
        let said = |ready, fact: Option<BudgetFact>| {
            let (pod, by) = (pod("db-1", ready), by.clone());
            let left = [Left { pod: &pod, state: State::Refused { by: &by, budget: fact.as_ref() } }];
            (in_the_way(&left).1, advice(&left))
        };
        let again = "run the same command again once they can leave".to_owned();
        let now = "shop/db-1 (PodDisruptionBudget shop/db needs 2 healthy pods and has 2 currently)";
        assert_eq!(said(true, None), (now.to_owned(), again.clone()));
        assert_eq!(said(true, Some(fact(2, 2, 3))), (now.to_owned(), again));
        let (never, change) = said(true, Some(fact(3, 3, 3)));
        assert_eq!(
            never,
            "shop/db-1 (PodDisruptionBudget shop/db never allows an eviction: 3 of its 3 must be healthy)"
        );
        assert!(change.starts_with("raise the number of replicas"), "{change}");
        assert!(said(false, Some(fact(1, 2, 3))).0.contains("AlwaysAllow` would let it leave"));
    }

    #[test]
    fn pods_that_stay_are_named_by_reason() {
        let (a, b, c) = (pod("a", true), pod("b", true), pod("c", true));
        let rule = Keep::Ruled("ClusterDrainRule monitoring");
        let all = [(&a, rule), (&b, Keep::CameBack), (&c, rule)].map(|(pod, why)| Kept { pod, why });
        let said = kept(&"w1".parse().unwrap(), &all);
        assert_eq!(
            said,
            [
                "shop/b comes back to w1 although that is cordoned, and stays there",
                "shop/a, shop/c stay on w1, by ClusterDrainRule monitoring",
            ]
        );
    }

    #[test]
    fn refused_pods_are_named_first_and_later_ones_are_counted() {
        let pods: Vec<_> = (0..9).map(|n| pod(&format!("p{n}"), true)).collect();
        let state = |n| match n {
            7 => State::Refused { by: &Refused::SeveralBudgets, budget: None },
            6 => State::Terminating,
            8 => State::Later,
            _ => State::Asked,
        };
        let left: Vec<_> = pods.iter().enumerate().map(|(n, pod)| Left { pod, state: state(n) }).collect();
        let (pods, names) = in_the_way(&left);
        assert_eq!(pods, "8 pods");
        assert!(names.starts_with("shop/p7 (more than one PodDisruptionBudget selects it"), "{names}");
        assert!(
            names.contains("shop/p6 (terminating), shop/p0, shop/p1, shop/p2 and 3 more (1 pod leaves after"),
            "{names}"
        );
        assert!(advice(&left).starts_with("delete all but one of the budgets"));
    }
}
