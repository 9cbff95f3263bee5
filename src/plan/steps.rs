//! What one subject plans: its steps in order, and everything else that it adds to the plan.
//!
//! A subject creates [`Steps`], fills them and returns them; `Draft::join` alone adds them to the plan. What depends on
//! the steps of other subjects is only noted here and decided there.

use super::observed::Observed;
use crate::model::facts::Members;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, Precondition, Step};
use crate::model::target::FileSet;

/// A step, and what is decided when it is joined to the plan.
pub(super) struct Noted {
    /// Its `rollback` names the sets that it would roll back if their previous files are kept.
    pub step: Step,
    /// The member list that its subject forecasts for it; `None`: the subject has not changed the list so far.
    pub forecast: Option<Members>,
    /// Its place in the chain of disturbances, if it is one: the conditions of the files that it starts to use, and the
    /// condition that the disturbance is over.
    pub turn: Option<(Vec<Condition>, Condition)>,
}

/// What one subject plans.
#[derive(Default)]
pub(super) struct Steps {
    pub steps: Vec<Noted>,
    /// The member list after these steps; `None`: as before.
    pub members: Option<Members>,
    pub warnings: Vec<String>,
    /// Why the plan ends here.
    pub horizon: Option<String>,
    /// The host whose deliveries these are, in an upgrade.
    pub receiver: Option<HostName>,
}

impl Steps {
    /// Only a warning.
    pub fn warning(text: String) -> Self {
        Self { warnings: vec![text], ..Self::default() }
    }
    pub fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
    pub fn forecast(&mut self, members: Members) {
        self.members = Some(members);
    }
    pub fn stop_at(&mut self, why: String) {
        self.horizon.get_or_insert(why);
    }
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
    /// Whether one of these steps provides this condition.
    pub fn plans(&self, mark: &Condition) -> bool {
        self.steps.iter().any(|noted| &noted.step.provides == mark)
    }
    /// The condition that the last step provides.
    pub fn last(&self) -> Option<Condition> {
        self.steps.last().map(|noted| noted.step.provides.clone())
    }

    /// Adds a step unless the condition that its action provides holds already.
    pub fn ensure(&mut self, o: &Observed, action: Action, why: impl Into<String>, requires: Vec<Condition>) {
        if !o.holds(&action.provides()) {
            self.must(action, why, requires);
        }
    }

    /// Adds a step unconditionally, and returns the condition that it provides.
    pub fn must(&mut self, action: Action, why: impl Into<String>, requires: Vec<Condition>) -> Condition {
        self.guarded(action, why, requires, Precondition::None)
    }

    /// The same, with what is checked live just before it runs.
    pub fn guarded(
        &mut self,
        action: Action,
        why: impl Into<String>,
        requires: Vec<Condition>,
        precondition: Precondition,
    ) -> Condition {
        let provides = action.provides();
        let (why, rollback, done) = (why.into(), Vec::new(), provides.clone());
        let step = Step { action, why, requires, provides, precondition, rollback };
        self.steps.push(Noted { step, forecast: self.members.clone(), turn: None });
        done
    }

    /// A step that waits for everything that the previous ones waited for, and for those.
    pub fn then(&mut self, requires: &mut Vec<Condition>, action: Action, why: &str, precondition: Precondition) {
        let done = self.guarded(action, why, requires.clone(), precondition);
        requires.push(done);
    }

    /// The last step provides this condition instead: it does only a part of what its action can do.
    pub fn providing(&mut self, condition: &Condition) {
        if let Some(Noted { step, .. }) = self.steps.last_mut() {
            step.provides.clone_from(condition);
        }
    }

    /// The last step rolls back to the previous files of these sets if it fails, as far as any are kept at that time.
    pub fn or_back_to(&mut self, sets: &[FileSet]) {
        if let Some(Noted { step, .. }) = self.steps.last_mut() {
            step.rollback = sets.to_vec();
        }
    }

    /// The last step is a disturbance: it waits until the previous one is over, which `healed` says of this one. So do
    /// the steps that write its files: if the previous one fails, no other host has the files that made it fail.
    pub fn in_turn(&mut self, writes: &[Condition], healed: Condition) {
        if let Some(noted) = self.steps.last_mut() {
            noted.turn = Some((writes.to_vec(), healed));
        }
    }

    /// Adds what another part of the same subject plans.
    pub fn add(&mut self, next: Self) {
        let forecast = |mut noted: Noted| {
            noted.forecast = noted.forecast.or_else(|| self.members.clone());
            noted
        };
        self.steps.extend(next.steps.into_iter().map(forecast).collect::<Vec<_>>());
        self.members = next.members.or(self.members.take());
        self.warnings.extend(next.warnings);
        self.horizon = self.horizon.take().or(next.horizon);
        self.receiver = next.receiver.or(self.receiver.take());
    }
}

impl FromIterator<Steps> for Steps {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, next| {
            all.add(next);
            all
        })
    }
}
