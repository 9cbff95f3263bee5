//! Which pods of a cordoned Node are asked to leave now, which wait, and what is in the way of the others.
//!
//! Pure, and without a clock: times are counted from the begin of the drain. In: the pods as the API shows them, the
//! outcome of each eviction, and the state of PodDisruptionBudgets. Out: [`Next`], what to ask and to read now, and when
//! to look again. `execute/drain` performs it.
//!
//! A budget that refused is watched, or else read again as soon as a pod has left, and at least every second: one small
//! request, however many pods wait for it. Then as many pods are asked as it allows. Pods of one controller are usually
//! under one budget: once it has refused one of them, the others wait for it without asking.

mod classify;
mod spare;
#[cfg(test)]
mod tests;

pub use classify::{Level, PodKind};
pub use spare::spare;

use crate::model::drain_rule::{Behavior, DrainRules};
use crate::model::eviction::{BudgetFact, BudgetRef, Eviction, Refused};
use crate::model::maintenance::{DrainRequest, Through};
use crate::model::pod::PodView;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Between two reads of a budget that refuses.
const READ_EVERY: Duration = Duration::from_secs(1);
/// The same beside a watch, which may be dead without a sign.
const READ_BESIDE_WATCH: Duration = Duration::from_secs(15);
/// After a refusal by a budget the pod is asked again after this time, whatever the budget says: it may select other
/// pods by then.
const UNDER_BUDGET: Duration = Duration::from_secs(60);
/// The pause after another refusal or an error; doubled each time, at most so often.
const AFTER_ERROR: (Duration, u32) = (Duration::from_secs(1), 4);
/// A pod whose eviction was accepted, and that still does not terminate, is asked again after this time.
const UNHEARD: Duration = Duration::from_secs(30);
/// A pod that is gone, by the answer to its eviction, and that is still listed, is asked again after this time.
const STALE: Duration = Duration::from_secs(1);
/// Times that pods of one controller are evicted after they came to the cordoned Node.
const RETURNS: u32 = 3;

/// What a drain knows of one Node.
#[derive(Debug, Default)]
pub struct Drain {
    /// How pods leave.
    rules: DrainRules,
    request: DrainRequest,
    /// Whether the host is to go: then the pod leaves first that stands for its control plane.
    takes_host: bool,
    /// The pods at the first look after the cordon, by uid.
    first: Option<BTreeSet<String>>,
    /// The latest attempt to evict each pod, by uid.
    attempts: BTreeMap<String, Attempt>,
    /// Accepted evictions of pods that came after the first look, by the uid of their controller.
    returned: BTreeMap<String, u32>,
    budgets: BTreeMap<BudgetRef, Budget>,
    /// The latest refusal by a budget of a pod of each controller, by its uid.
    siblings: BTreeMap<String, Sibling>,
    /// Nothing is asked before: the API server limits requests.
    paused_until: Duration,
}

#[derive(Debug, Default)]
struct Attempt {
    /// Whether a request is under way.
    under_way: bool,
    /// The latest answer.
    answer: Option<Eviction>,
    /// How many answers there were.
    answers: u32,
    /// When the pod is asked again without another cause.
    again: Duration,
    /// The budget that refused.
    budget: Option<BudgetRef>,
    /// Whether it was read since.
    budget_read: bool,
    /// Since when the pod cannot leave.
    refused_since: Option<Duration>,
}

/// A refusal that pods of the same controller expect as well.
#[derive(Debug)]
struct Sibling {
    by: Refused,
    budget: BudgetRef,
    /// When they are asked whatever the budget says: it may select only some of them.
    again: Duration,
}

#[derive(Debug, Default)]
struct Budget {
    fact: Option<BudgetFact>,
    /// Evictions that it allows, less those that were asked for since it was read.
    free: u32,
    /// When it is read again; `None` while it is being read.
    due: Option<Duration>,
    /// Whether each change of it is reported.
    is_watched: bool,
}

/// What is done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Next<'a> {
    /// Pods to evict.
    pub ask: Vec<&'a PodView>,
    /// Pods to delete, because their eviction was refused for too long.
    pub force: Vec<&'a PodView>,
    /// Budgets to read.
    pub read: Vec<BudgetRef>,
    /// Pods that have to leave and have not; the Node is drained when there are none, and none that would be lost.
    pub left: Vec<Left<'a>>,
    /// Pods that stay, and that the drain does not wait for.
    pub kept: Vec<Kept<'a>>,
    /// Pods that no controller creates elsewhere.
    pub lost: Vec<&'a PodView>,
    /// When there may be something to do, if nothing changes until then.
    pub again: Option<Duration>,
}

/// A pod that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<'a> {
    /// The pod.
    pub pod: &'a PodView,
    /// Why.
    pub why: Keep<'a>,
}

/// Why a pod stays that its controller could create elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep<'a> {
    /// It came back to the cordoned Node.
    CameBack,
    /// Its DaemonSet would create it again, because it tolerates the taint of the drain.
    Tolerates,
    /// This rule says so, or its label.
    Ruled(&'a str),
}

/// A pod that has to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left<'a> {
    /// The pod.
    pub pod: &'a PodView,
    /// What it waits for.
    pub state: State<'a>,
}

/// What a pod that has to leave waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State<'a> {
    /// Pods of a smaller level.
    Later,
    /// The answer to its eviction, or its end.
    Asked,
    /// Its own end: this rule, or its label, keeps it from being evicted.
    Completing(&'a str),
    /// The end of its containers, and of its finalizers.
    Terminating,
    /// What refuses its eviction.
    Refused {
        /// By what.
        by: &'a Refused,
        /// The state of that budget.
        budget: Option<&'a BudgetFact>,
    },
    /// An error of its eviction.
    Failed(&'a str),
    /// The end of this hold, which a person has set.
    Held(&'a str),
}

impl State<'_> {
    /// Whether the refusal lasts until a person changes something.
    pub fn never(&self) -> bool {
        match self {
            Self::Refused { by: Refused::SeveralBudgets, .. } => true,
            Self::Refused { by: Refused::Budget { .. }, budget } => budget.is_some_and(BudgetFact::never),
            _ => false,
        }
    }
}

enum Decision<'a> {
    Stays,
    Leaves(Level),
    /// It leaves when it has completed.
    Completes(Level, &'a str),
    Kept(Keep<'a>),
    Lost,
}

impl Drain {
    /// With these rules, as far as this request asks for.
    pub fn by(rules: DrainRules, request: DrainRequest) -> Self {
        Self { rules, request, ..Self::default() }
    }

    /// A drain after which the host of the Node may go. If a budget does not spare it, nothing else is asked to leave.
    #[must_use]
    pub fn taking_host(self, takes_host: bool) -> Self {
        Self { takes_host, ..self }
    }

    /// Notes which pods are on the Node. When one has left, its budget may allow another eviction.
    pub fn seen<'a>(&mut self, pods: impl IntoIterator<Item = &'a PodView>) {
        let present: BTreeSet<String> = pods.into_iter().map(|pod| pod.uid.clone()).collect();
        let before = self.attempts.len();
        self.attempts.retain(|uid, _| present.contains(uid));
        if self.attempts.len() < before {
            let unwatched = self.budgets.values_mut().filter(|budget| !budget.is_watched);
            unwatched.filter_map(|budget| budget.due.as_mut()).for_each(|due| *due = Duration::ZERO);
        }
        self.first.get_or_insert(present);
    }

    /// What to do now, with these pods on the Node.
    pub fn next<'a>(&'a self, pods: impl IntoIterator<Item = &'a PodView>, now: Duration) -> Next<'a> {
        let mut next = Next::default();
        let mut leaving = Vec::new();
        for pod in pods {
            match self.decide(pod, now) {
                Decision::Stays => {}
                Decision::Leaves(level) => leaving.push((level, pod, None)),
                Decision::Completes(level, by) => leaving.push((level, pod, Some(by))),
                Decision::Kept(why) => next.kept.push(Kept { pod, why }),
                Decision::Lost => next.lost.push(pod),
            }
        }
        let level = leaving.iter().map(|(level, ..)| *level).min();
        let mut free: BTreeMap<&BudgetRef, u32> = self.budgets.iter().map(|(name, b)| (name, b.free)).collect();
        let mut times = vec![self.paused_until];
        times.extend(self.request.wait_completed_for);
        for (its, pod, completes) in leaving {
            let attempt = self.attempts.get(&pod.uid);
            let sibling = attempt.is_none().then(|| self.sibling(pod)).flatten();
            let budget = attempt.and_then(|attempt| attempt.budget.as_ref()).or(sibling.map(|one| &one.budget));
            let known = budget.and_then(|budget| self.budgets.get(budget));
            let answer = attempt.and_then(|attempt| attempt.answer.as_ref());
            let state = match (answer, completes) {
                _ if pod.terminating => State::Terminating,
                (_, Some(by)) => State::Completing(by),
                _ if pod.hold.is_some() => State::Held(pod.hold.as_deref().unwrap_or_default()),
                _ if Some(its) != level => State::Later,
                (Some(Eviction::Refused(by)), _) => State::Refused { by, budget: known.and_then(|b| b.fact.as_ref()) },
                (Some(Eviction::Failed(why) | Eviction::NoAnswer(why)), _) => State::Failed(why),
                _ => match sibling {
                    Some(one) => State::Refused { by: &one.by, budget: known.and_then(|b| b.fact.as_ref()) },
                    None => State::Asked,
                },
            };
            next.left.push(Left { pod, state });
            if matches!(state, State::Terminating | State::Completing(_) | State::Held(_) | State::Later) {
                continue;
            }
            if let Some(budget) = budget {
                let due = known.map_or(Some(Duration::ZERO), |budget| budget.due);
                times.extend(due);
                if due.is_some_and(|due| due <= now) && !next.read.contains(budget) {
                    next.read.push(budget.clone());
                }
            }
            times.extend(attempt.map(|attempt| attempt.again));
            if let Some(sibling) = sibling {
                times.push(sibling.again);
                if sibling.again <= now || self.is_allowed(pod, &sibling.budget, &mut free) {
                    next.ask.push(pod);
                }
                continue;
            }
            let forced_at = attempt.filter(|_| its != Level::FIRST).and_then(|attempt| self.forced_at(attempt));
            times.extend(forced_at);
            if forced_at.is_some_and(|at| at <= now) {
                next.force.push(pod);
            } else if attempt.is_none_or(|attempt| self.may_ask_again(pod, attempt, &mut free, now)) {
                next.ask.push(pod);
            }
        }
        if now < self.paused_until {
            next.ask.clear();
            next.force.clear();
            next.read.clear();
        }
        next.again = times.into_iter().filter(|time| *time > now).min();
        next
    }

    fn decide(&self, pod: &PodView, now: Duration) -> Decision<'_> {
        let kind = PodKind::of(pod);
        if kind == PodKind::Quorum && self.takes_host {
            return Decision::Leaves(Level::FIRST);
        }
        let leaves = match kind {
            PodKind::Bare | PodKind::Controlled => true,
            PodKind::DaemonSet => self.request.through >= Through::DaemonSet,
            PodKind::Static | PodKind::Quorum | PodKind::Ended => false,
        };
        if !leaves {
            return Decision::Stays;
        }
        let order = match self.rules.applied_to(pod) {
            (Behavior::Skip, by) => return Decision::Kept(Keep::Ruled(by.unwrap_or_default())),
            (Behavior::WaitCompleted, by) if self.request.wait_completed_for.is_none_or(|wait| now < wait) => {
                return Decision::Completes(Level::of(pod, 0), by.unwrap_or_default());
            }
            (Behavior::WaitCompleted, _) => 0,
            (Behavior::Drain(order), _) => order,
        };
        // One that is being deleted already is not lost because of the drain.
        if kind == PodKind::Bare && !pod.terminating && !self.request.evict_unmanaged {
            return Decision::Lost;
        }
        if kind == PodKind::DaemonSet && pod.tolerates_drain && !pod.terminating {
            return Decision::Kept(Keep::Tolerates);
        }
        let came = self.first.as_ref().is_some_and(|first| !first.contains(&pod.uid));
        let tried = self.attempts.contains_key(&pod.uid);
        let returned = pod.controller.as_ref().and_then(|controller| self.returned.get(&controller.uid));
        // A DaemonSet ignores the cordon anyway.
        let ignores_cordon = pod.tolerates_cordon && kind == PodKind::Controlled;
        let comes_back = ignores_cordon || returned.is_some_and(|times| *times >= RETURNS);
        match kind {
            PodKind::Controlled | PodKind::DaemonSet if came && !tried && comes_back => Decision::Kept(Keep::CameBack),
            _ => Decision::Leaves(Level::of(pod, order)),
        }
    }

    /// When a pod is deleted that cannot leave otherwise, if it is.
    fn forced_at(&self, attempt: &Attempt) -> Option<Duration> {
        let at = attempt.refused_since? + self.request.force_after?;
        // After an error, which may be that of the deletion, there is a pause.
        let is_error = matches!(attempt.answer, Some(Eviction::Failed(_) | Eviction::NoAnswer(_)));
        let pause = is_error.then_some(attempt.again);
        (!attempt.under_way).then(|| pause.map_or(at, |again| at.max(again)))
    }

    /// Whether a pod is asked again now. Takes one eviction of its budget if that is the cause.
    fn may_ask_again<'a>(
        &'a self,
        pod: &PodView,
        attempt: &'a Attempt,
        free: &mut BTreeMap<&'a BudgetRef, u32>,
        now: Duration,
    ) -> bool {
        if attempt.under_way {
            return false;
        }
        if attempt.again <= now {
            return true;
        }
        let budget = attempt.budget.as_ref().filter(|_| attempt.budget_read);
        budget.is_some_and(|budget| self.is_allowed(pod, budget, free))
    }

    /// Whether a budget allows the eviction of a pod now; takes it.
    fn is_allowed<'a>(&'a self, pod: &PodView, budget: &'a BudgetRef, free: &mut BTreeMap<&'a BudgetRef, u32>) -> bool {
        let fact = self.budgets.get(budget).and_then(|known| known.fact.as_ref());
        if !pod.ready && fact.is_some_and(BudgetFact::allows_unready) {
            return true;
        }
        let more = free.get_mut(budget).filter(|free| **free > 0);
        more.map(|free| *free -= 1).is_some()
    }

    /// The refusal that a pod has to expect, by that of another one of its controller.
    fn sibling(&self, pod: &PodView) -> Option<&Sibling> {
        let sibling = self.siblings.get(&pod.controller.as_ref()?.uid)?;
        (sibling.budget.namespace == pod.namespace).then_some(sibling)
    }

    /// Notes that the eviction of a pod is under way.
    pub fn asked(&mut self, pod: &PodView) {
        let expected = self.sibling(pod).map(|sibling| sibling.budget.clone());
        let attempt =
            self.attempts.entry(pod.uid.clone()).or_insert_with(|| Attempt { budget: expected, ..Attempt::default() });
        (attempt.under_way, attempt.budget_read) = (true, false);
        if let Some(budget) = attempt.budget.as_ref().and_then(|budget| self.budgets.get_mut(budget)) {
            budget.free = budget.free.saturating_sub(1);
        }
    }

    /// Notes the answer to an eviction.
    pub fn answered(&mut self, pod: &PodView, answer: Eviction, now: Duration) {
        let attempt = self.attempts.entry(pod.uid.clone()).or_default();
        if let Eviction::Throttled(pause) = answer {
            (attempt.under_way, attempt.again) = (false, now);
            self.paused_until = self.paused_until.max(now + pause);
            return;
        }
        let came = self.first.as_ref().is_some_and(|first| !first.contains(&pod.uid));
        if let (Eviction::Accepted, true, Some(controller)) = (&answer, came, &pod.controller) {
            *self.returned.entry(controller.uid.clone()).or_default() += 1;
        }
        let budget = match &answer {
            Eviction::Refused(Refused::Budget { name, .. }) => {
                Some(BudgetRef { namespace: pod.namespace.clone(), name: name.clone() })
            }
            _ => None,
        };
        let pause = match &answer {
            Eviction::Accepted => UNHEARD,
            Eviction::Gone => STALE,
            _ if budget.is_some() => UNDER_BUDGET,
            _ => AFTER_ERROR.0 * 2_u32.pow(attempt.answers.min(AFTER_ERROR.1)),
        };
        let controller = pod.controller.as_ref().map(|controller| controller.uid.clone());
        let expected = controller.as_ref().and_then(|uid| self.siblings.get_mut(uid));
        // No answer is no refusal, and does not end one.
        let since = match answer {
            Eviction::Refused(_) | Eviction::Failed(_) => Some(attempt.refused_since.unwrap_or(now)),
            Eviction::NoAnswer(_) => attempt.refused_since,
            Eviction::Accepted | Eviction::Gone | Eviction::Throttled(_) => None,
        };
        let moves = expected.filter(|_| answer == Eviction::Accepted).map(|one| {
            one.again = now + UNDER_BUDGET;
            one.budget.clone()
        });
        if let (Eviction::Refused(by), Some(budget), Some(uid)) = (&answer, &budget, controller) {
            // One pod that is refused again and again does not keep the others waiting.
            let waits = self.siblings.get(&uid).filter(|one| one.budget == *budget && one.again > now);
            let again = waits.map_or(now + UNDER_BUDGET, |one| one.again);
            let one = Sibling { by: by.clone(), budget: budget.clone(), again };
            self.siblings.insert(uid, one);
            // What it allowed may have been used meanwhile, and a watch has said so before.
            let known = self.budgets.get_mut(budget).filter(|known| known.is_watched);
            if let Some(due) = known.and_then(|known| known.due.as_mut()) {
                *due = (*due).min(now + READ_EVERY);
            }
        }
        *attempt = Attempt {
            under_way: false,
            answers: attempt.answers.saturating_add(1),
            again: now + pause,
            budget,
            budget_read: false,
            refused_since: since,
            answer: Some(answer),
        };
        // A budget that allows evictions need not be tried.
        let same = self.attempts.values_mut().filter(|one| one.budget.is_some() && one.budget == moves);
        same.for_each(|one| one.again = one.again.max(now + UNDER_BUDGET));
    }

    /// Notes that a budget is being read.
    pub fn reading(&mut self, budget: &BudgetRef) {
        self.budgets.entry(budget.clone()).or_default().due = None;
    }

    /// Notes the state of a budget; `None`: it does not exist any more.
    pub fn read(&mut self, budget: &BudgetRef, fact: Option<BudgetFact>, now: Duration) {
        let free = fact.as_ref().map_or(u32::MAX, |fact| fact.allowed);
        let known = self.budgets.entry(budget.clone()).or_default();
        (known.fact, known.free) = (fact, free);
        known.due = Some(now + if known.is_watched { READ_BESIDE_WATCH } else { READ_EVERY });
        let refused = self.attempts.values_mut().filter(|attempt| attempt.budget.as_ref() == Some(budget));
        refused.for_each(|attempt| attempt.budget_read = true);
    }

    /// Notes whether each change of a budget is reported from now on.
    pub fn watching(&mut self, budget: &BudgetRef, is_watched: bool, now: Duration) {
        let known = self.budgets.entry(budget.clone()).or_default();
        // A watch begins with the budget as it is, if it exists.
        (known.is_watched, known.due) = (is_watched, Some(now + READ_EVERY));
    }

    /// Notes that a budget could not be read.
    pub fn not_read(&mut self, budget: &BudgetRef, now: Duration) {
        self.budgets.entry(budget.clone()).or_default().due = Some(now + READ_EVERY);
    }
}
