//! A plan being written: `ensure` drops what holds already, `finish` joins needs to gives.

use super::Intent;
use super::holds::Look;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{Etcd, Facts, HostFacts, Members};
use crate::model::names::HostName;
use crate::model::plan::{Action, Guard, Mark, Plan, Step};
use crate::model::refusal::Refusal;
use crate::model::target::{HostTarget, Target};
use std::collections::BTreeMap;

/// A plan being written.
pub(super) struct Draft<'a> {
    pub desired: &'a Desired,
    pub target: &'a Target,
    pub facts: &'a Facts,
    pub intent: &'a Intent,
    steps: Vec<Step>,
    forecast: Vec<Option<Members>>,
    members: Option<Members>,
    warnings: Vec<String>,
    horizon: Option<String>,
    /// The last mark of the chain of disturbances: one host at a time.
    turn: Option<Mark>,
}

impl<'a> Draft<'a> {
    pub fn new(
        desired: &'a Desired,
        target: &'a Target,
        facts: &'a Facts,
        intent: &'a Intent,
    ) -> Result<Self, Refusal> {
        for (host, answer) in &facts.hosts {
            let Some(stamp) = answer.as_ref().ok().and_then(|f| f.stamp.as_ref()) else { continue };
            if stamp != &intent.stamp {
                return Err(Refusal::OtherCluster {
                    host: host.clone(),
                    theirs: stamp.cluster.clone(),
                    ours: intent.stamp.cluster.clone(),
                    same_name: stamp.cluster == intent.stamp.cluster,
                });
            }
        }
        let members = match &facts.etcd {
            Etcd::Speaks(members) => Some(members.clone()),
            _ => None,
        };
        let mut draft = Self {
            desired,
            target,
            facts,
            intent,
            steps: Vec::new(),
            forecast: Vec::new(),
            members,
            warnings: Vec::new(),
            horizon: None,
            turn: None,
        };
        for (host, answer) in &facts.hosts {
            if let Err(silence) = answer {
                draft.warn(format!("{host} did not answer ({}): nothing is planned for it", silence.why));
            }
        }
        Ok(draft)
    }

    /// Hosts that answered, in the inventory's order.
    pub fn reachable(&self) -> Vec<Host> {
        self.desired.hosts.iter().filter(|h| self.facts.host(&h.name).is_some()).cloned().collect()
    }
    /// Hosts that answered and have a role.
    pub fn reachable_with(&self, role: Role) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| h.is(role)).collect()
    }
    pub fn look(&self) -> Look<'a> {
        Look { desired: self.desired, target: self.target, facts: self.facts, intent: self.intent }
    }
    pub fn host_target(&self, host: &HostName) -> &'a HostTarget {
        static NOTHING: std::sync::LazyLock<HostTarget> = std::sync::LazyLock::new(HostTarget::default);
        self.target.hosts.get(host).unwrap_or(&NOTHING)
    }
    pub fn host_facts(&self, host: &HostName) -> Option<&'a HostFacts> {
        self.facts.host(host)
    }
    pub fn holds(&self, mark: &Mark) -> bool {
        self.look().holds(mark)
    }
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }
    pub fn forecast(&mut self, members: Members) {
        self.members = Some(members);
    }
    pub fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
    pub fn stop_at(&mut self, why: String) {
        self.horizon.get_or_insert(why);
    }

    /// Adds a step unless what it gives holds already and nothing planned so far takes it away.
    pub fn ensure(&mut self, action: Action, why: impl Into<String>, needs: Vec<Mark>, gives: Mark) -> bool {
        if self.holds(&gives) {
            return false;
        }
        self.must(action, why, needs, gives, Guard::None);
        true
    }

    /// Adds a step whatever holds.
    pub fn must(&mut self, action: Action, why: impl Into<String>, needs: Vec<Mark>, gives: Mark, guard: Guard) {
        self.steps.push(Step { action, why: why.into(), needs, gives, guard });
        self.forecast.push(self.members.clone());
    }

    /// Whether some step planned so far gives this mark.
    pub fn plans(&self, mark: &Mark) -> bool {
        self.steps.iter().any(|s| &s.gives == mark)
    }

    /// Takes a turn in the chain of disturbances: the step that disturbs must wait for what the last one healed.
    pub fn take_turn(&mut self, needs: &mut Vec<Mark>, healed: Mark) {
        if let Some(last) = self.turn.replace(healed) {
            needs.push(last);
        }
    }

    /// Joins needs to gives. A need that neither holds nor is given is a mistake of the planner, reported as a warning
    /// and kept out of the plan together with everything that waits for it.
    pub fn finish(self) -> Result<Plan, Refusal> {
        let look = self.look();
        let mut giver: BTreeMap<&Mark, usize> = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            giver.insert(&step.gives, index);
        }
        let mut after = Vec::with_capacity(self.steps.len());
        let mut unmet = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let mut waits: Vec<usize> = Vec::new();
            for need in &step.needs {
                match giver.get(need) {
                    Some(&other) if other != index => waits.push(other),
                    Some(_) => {}
                    None if look.holds(need) => {}
                    None => unmet.push((index, need.clone())),
                }
            }
            waits.sort_unstable();
            waits.dedup();
            after.push(waits);
        }
        let mut blocked = vec![false; self.steps.len()];
        for (index, _) in &unmet {
            blocked[*index] = true;
        }
        loop {
            let before = blocked.iter().filter(|b| **b).count();
            for index in 0..blocked.len() {
                blocked[index] = blocked[index] || after[index].iter().any(|&w| blocked[w]);
            }
            if blocked.iter().filter(|b| **b).count() == before {
                break;
            }
        }
        let mut warnings = self.warnings;
        for (index, need) in &unmet {
            let step = &self.steps[*index];
            let place = step.action.host().map(|h| format!(" on {h}")).unwrap_or_default();
            warnings.push(format!("cannot {}{place} yet: {need:?} does not hold", step.action));
        }
        let mut index_of = vec![usize::MAX; self.steps.len()];
        let mut plan = Plan { horizon: self.horizon, warnings, ..Plan::default() };
        for (index, step) in self.steps.into_iter().enumerate() {
            if blocked[index] {
                continue;
            }
            index_of[index] = plan.steps.len();
            plan.steps.push(step);
            plan.forecast.push(self.forecast[index].clone());
            plan.after.push(after[index].clone());
        }
        for waits in &mut plan.after {
            for wait in waits.iter_mut() {
                *wait = index_of[*wait];
            }
        }
        Ok(plan)
    }
}
