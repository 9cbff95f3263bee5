//! Runs plans in the simulated world: any order that the graph allows, a crash after any effect, and power, cables and
//! disks that fail meanwhile. Every effect is judged.

use super::dice::Dice;
use super::effect::{effects, happen};
use super::law::{self, Broken};
use super::make;
use super::member::Stop;
use super::world::World;
use hactl::model::desired::Role;
use hactl::model::facts::{Etcd, Facts, Members};
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Plan, Precondition, Step};
use hactl::model::refusal::Refusal;
use hactl::observe::{Answers, KnownCluster};
use std::collections::BTreeSet;

/// What goes wrong around us. The number picks a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chaos {
    PowerOff(u8),
    PowerOn(u8),
    Wipe(u8),
    LoseData(u8),
    Cut(u8),
    Mend(u8),
    StopEtcd(u8),
}

/// One run of `hactl up`'s round.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Chooses among the steps that are ready.
    pub order: u64,
    /// `kill -9` after so many effects.
    pub crash_after: Option<u16>,
    /// What happens after so many effects.
    pub meanwhile: Vec<(u16, Chaos)>,
}

/// How a round ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// There was nothing to do.
    Converged,
    /// The planner refused.
    Refused(Refusal),
    /// All steps are done.
    Done(Plan),
    /// Killed.
    Crashed,
    /// Steps failed; those that depend on them were not started.
    Failed(Vec<String>),
}

impl World {
    /// What `hactl up` would do now. Asked twice: the same question must get the same answer.
    pub fn plan(&mut self) -> Result<(Result<Plan, Refusal>, Facts), Broken> {
        let facts = self.observe();
        let first = hactl::plan::up(&self.desired, &self.target, &facts, &self.intent);
        let second = hactl::plan::up(&self.desired, &self.target, &facts, &self.intent);
        if first != second {
            return Err(Broken::BadPlan("the same question got two answers".to_owned()));
        }
        Ok((first, facts))
    }

    /// One round: observe, plan, run.
    pub fn round(&mut self, script: &Script) -> Result<Ended, Broken> {
        let plan = match self.plan()?.0 {
            Err(refusal) => return Ok(Ended::Refused(refusal)),
            Ok(plan) if plan.is_empty() => return Ok(Ended::Converged),
            Ok(plan) => plan,
        };
        law::lint(self, &plan)?;
        self.run(&plan, script)
    }

    /// Runs a plan as `execute::walk` does: a failure stops only what depends on it.
    pub fn run(&mut self, plan: &Plan, script: &Script) -> Result<Ended, Broken> {
        let mut dice = Dice::new(script.order);
        let mut done = BTreeSet::new();
        let mut tried = BTreeSet::new();
        let mut failures = Vec::new();
        let mut count = 0_u16;
        let calm = script.meanwhile.is_empty();
        loop {
            let ready: Vec<usize> = (0..plan.steps.len())
                .filter(|i| !tried.contains(i) && plan.after[*i].iter().all(|w| done.contains(w)))
                .collect();
            if ready.is_empty() {
                break;
            }
            let index = ready[dice.below(ready.len())];
            tried.insert(index);
            let step = &plan.steps[index];
            if let Some(need) = step.requires.iter().find(|n| calm && !self.holds(n)) {
                return Err(Broken::NeedUnmet { step: step.action.to_string(), need: need.clone() });
            }
            match self.step(step, script, &mut count)? {
                Outcome::Done => {
                    if calm && !self.holds(&step.provides) {
                        return Err(Broken::GivesNothing {
                            step: step.action.to_string(),
                            provides: step.provides.clone(),
                        });
                    }
                    done.insert(index);
                }
                Outcome::Failed(why) => failures.push(format!("{}: {why}", step.action)),
                Outcome::Crashed => return Ok(Ended::Crashed),
            }
        }
        if failures.is_empty() { Ok(Ended::Done(plan.clone())) } else { Ok(Ended::Failed(failures)) }
    }

    fn step(&mut self, step: &Step, script: &Script, count: &mut u16) -> Result<Outcome, Broken> {
        if let Err(why) = self.precondition(step) {
            return Ok(Outcome::Failed(why));
        }
        let begun = *count;
        for effect in effects(self, &step.action) {
            if script.crash_after == Some(*count) {
                return Ok(Outcome::Crashed);
            }
            let before = law::scene(self);
            let outcome = happen(self, &effect);
            match outcome {
                Ok(()) => law::judge(&before, self, &effect)?,
                Err(Stop::Broken(broken)) => return Err(broken),
                Err(Stop::Failed(why)) => return Ok(Outcome::Failed(why)),
            }
            *count += 1;
            // Between a guard and the effect that it guards nobody can see a failure coming: it falls behind the step.
            if step.precondition == Precondition::None {
                self.meanwhile(script, *count - 1, *count);
            }
        }
        if step.precondition != Precondition::None {
            self.meanwhile(script, begun, *count);
        }
        Ok(Outcome::Done)
    }

    fn meanwhile(&mut self, script: &Script, after: u16, until: u16) {
        for (_, chaos) in script.meanwhile.iter().filter(|(at, _)| (after + 1..=until).contains(at)) {
            self.suffer(*chaos);
        }
    }

    /// The guard, as `execute::precondition` checks it.
    pub fn precondition(&self, step: &Step) -> Result<(), String> {
        match &step.precondition {
            Precondition::None => Ok(()),
            Precondition::Members { list } => {
                let now = self.members_now()?;
                if &now.shape() != list {
                    return Err("the member list is not as planned".to_owned());
                }
                // That a quorum answers is proven by the list itself; what counts is what is left after the change.
                let after = match &step.action {
                    Action::RemoveMember { peer } => now.without(peer),
                    Action::MoveMember { from, to } => now.moved(from, to),
                    _ => return Ok(()),
                };
                if after.healthy() < after.quorum() {
                    return Err(format!(
                        "{} would leave {} healthy of {}",
                        step.action,
                        after.healthy(),
                        after.voters()
                    ));
                }
                Ok(())
            }
            Precondition::Tolerates { down } => self.tolerates(down, &step.action),
        }
    }

    fn members_now(&self) -> Result<Members, String> {
        let member = |h: &&hactl::model::desired::Host| h.is(Role::Etcd) || self.host(&h.name).disk.is_some();
        let members = self.desired.entered().filter(member).map(|h| h.name.clone());
        let mut hosts: Answers = members.map(|h| (h.clone(), self.say(&h))).collect();
        match hactl::observe::classify(&self.desired, &KnownCluster::default(), &mut hosts) {
            Etcd::HasQuorum(members) => Ok(members),
            _ => Err("no quorum answers".to_owned()),
        }
    }

    /// What the step is about to disturb, and nothing else, must have somebody to stand in for it.
    fn tolerates(&self, down: &HostName, action: &Action) -> Result<(), String> {
        let restarts =
            |action: &Action| matches!(action, Action::RunUnit { unit, .. } if unit.as_str() == "etcd.service");
        if restarts(action) || matches!(action, Action::Defragment { .. }) {
            let now = self.members_now()?;
            let mine = now.0.get(&self.peer(down)).is_some_and(|m| !m.learner && m.healthy);
            let left = now.healthy() - usize::from(mine);
            if mine && now.voters() > 1 && left < now.quorum() {
                return Err(format!("{action} on {down} would leave {left} of {} voters", now.voters()));
            }
            return Ok(());
        }
        let control = self.with(Role::ControlPlane);
        let others = control.iter().filter(|h| *h != down);
        let serves = self.api_serves(down);
        if serves && control.len() > 1 && !others.into_iter().any(|h| self.host(h).answers() && self.api_serves(h)) {
            return Err(format!("no API server but the one on {down} is ready"));
        }
        Ok(())
    }

    /// Does what no plan would: an action whatever its guard and needs. The laws are judged all the same.
    pub fn force(&mut self, action: &Action) -> Result<(), Broken> {
        for effect in effects(self, action) {
            let before = law::scene(self);
            match happen(self, &effect) {
                Ok(()) => law::judge(&before, self, &effect)?,
                Err(Stop::Broken(broken)) => return Err(broken),
                Err(Stop::Failed(why)) => return Err(Broken::Endless(why)),
            }
        }
        Ok(())
    }

    /// Something happens that is not our doing.
    pub fn suffer(&mut self, chaos: Chaos) {
        let names: Vec<HostName> = self.desired.hosts.iter().map(|h| h.name.clone()).collect();
        let pick = |n: u8| names[usize::from(n) % names.len()].clone();
        match chaos {
            Chaos::PowerOff(n) => self.power_off(&pick(n)),
            Chaos::PowerOn(n) => self.power_on(&pick(n)),
            Chaos::Wipe(n) => self.wipe(&pick(n)),
            Chaos::LoseData(n) => self.lose_data(&pick(n)),
            Chaos::Cut(n) => self.host_mut(&pick(n)).cut = true,
            Chaos::Mend(n) => self.host_mut(&pick(n)).cut = false,
            Chaos::StopEtcd(n) => {
                self.unit_stopped(&pick(n), &make::unit("etcd.service"), false);
                self.settle();
            }
        }
    }

    /// All power and all cables are back.
    pub fn mend_everything(&mut self) {
        let names: Vec<HostName> = self.hosts.keys().cloned().collect();
        for name in names {
            self.host_mut(&name).cut = false;
            self.power_on(&name);
        }
    }

    /// Rounds without trouble until there is nothing to do, or a refusal. Nothing may fail in a calm world.
    pub fn converge(&mut self, order: u64, rounds: usize) -> Result<Ended, Broken> {
        let mut story = Vec::new();
        for round in 0..rounds {
            let script = Script { order: order.wrapping_add(u64::try_from(round).unwrap_or(0)), ..Script::default() };
            match self.round(&script)? {
                Ended::Converged => {
                    let blocked = self.plan()?.0.map(|plan| plan.blocked).unwrap_or_default();
                    if !blocked.is_empty() {
                        return Err(Broken::Endless(format!("work is left that cannot begin: {}", blocked.join("; "))));
                    }
                    return Ok(Ended::Converged);
                }
                Ended::Done(plan) => story.push(format!("{} steps", plan.steps.len())),
                Ended::Failed(why) => story.push(format!("failed: {}", why.join("; "))),
                end @ (Ended::Refused(_) | Ended::Crashed) => return Ok(end),
            }
        }
        Err(Broken::Endless(format!("after {rounds} rounds: {}", story.join(" | "))))
    }
}

enum Outcome {
    Done,
    Failed(String),
    Crashed,
}
