//! What one subject plans: its steps in order, and everything else that it adds to the plan.
//!
//! A subject creates [`Steps`], fills them and returns them; `Draft::join` alone adds them to the plan. What depends on
//! the steps of other subjects is only noted here and decided there.

use super::conditions::Observed;
use crate::model::facts::Members;
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, Precondition, Step};

/// A step, and what is decided when it is joined to the plan.
pub(super) struct Noted {
    /// Its `rollback` names the sets that roll back to their previous files if it fails, as far as any are kept.
    pub step: Step,
    /// The member list that its subject forecasts for it; `None`: the subject has not changed the list so far.
    pub forecast: Option<Members>,
    /// The files that it starts to use, and the condition that it is over, if it is a disturbance: it waits until the
    /// previous one is over. So do the steps that write these files: if the previous one fails, no other host has the
    /// files that made it fail.
    pub turn: Option<(Vec<Condition>, Condition)>,
}

impl Noted {
    /// Its precondition is checked live just before it runs.
    pub fn guarded(&mut self, precondition: Precondition) -> &mut Self {
        self.step.precondition = precondition;
        self
    }
    pub fn provides(&self) -> Condition {
        self.step.provides.clone()
    }
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
    /// Whether one of these steps provides this condition.
    pub fn plans(&self, mark: &Condition) -> bool {
        self.steps.iter().any(|noted| &noted.step.provides == mark)
    }
    /// The condition that the last step provides.
    pub fn last(&self) -> Option<Condition> {
        self.steps.last().map(Noted::provides)
    }

    /// Adds a step unconditionally.
    pub fn must(&mut self, action: Action, why: impl Into<String>, requires: Vec<Condition>) -> &mut Noted {
        let (why, provides, precondition) = (why.into(), action.provides(), Precondition::None);
        let step = Step { action, why, requires, provides, precondition, rollback: Vec::new() };
        self.steps.push_mut(Noted { step, forecast: self.members.clone(), turn: None })
    }

    /// A step that waits for everything that the previous ones waited for, and for those.
    pub fn then(&mut self, requires: &mut Vec<Condition>, action: Action, why: &str, precondition: Precondition) {
        let done = self.must(action, why, requires.clone()).guarded(precondition).provides();
        requires.push(done);
    }

    /// Adds what another part of the same subject plans.
    pub fn add(&mut self, next: Self) {
        self.steps.extend(next.steps.into_iter().map(|mut noted| {
            noted.forecast = noted.forecast.or_else(|| self.members.clone());
            noted
        }));
        self.members = next.members.or(self.members.take());
        self.warnings.extend(next.warnings);
        self.horizon = self.horizon.take().or(next.horizon);
        self.receiver = next.receiver.or(self.receiver.take());
    }
}

impl Observed<'_> {
    /// A step, unless the condition that its action provides holds already.
    pub fn ensure(&self, action: Action, why: impl Into<String>, requires: Vec<Condition>) -> Steps {
        let mut steps = Steps::default();
        if !self.holds(&action.provides()) {
            steps.must(action, why, requires);
        }
        steps
    }
}

impl FromIterator<Steps> for Steps {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        let mut all = Self::default();
        parts.into_iter().for_each(|part| all.add(part));
        all
    }
}
