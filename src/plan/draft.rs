//! A plan being written: `ensure` skips a step whose condition holds, `finish` connects what steps require to what
//! others provide.

use super::conditions::Observed;
use super::intent::Intent;
use super::rollout::Rollout;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{Etcd, Facts, HostFacts, Members, disbelief};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, HowToRun, Plan, Precondition, Step};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, HostTarget, Target};
use crate::model::units::etcd_unit;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// A plan being written.
pub(super) struct Draft<'a> {
    pub desired: &'a Desired,
    observed: Observed<'a>,
    steps: Vec<Step>,
    forecast: Vec<Option<Members>>,
    members: Option<Members>,
    warnings: Vec<String>,
    horizon: Option<String>,
    /// The last condition in the chain of disturbances: one host at a time.
    pub turn: Option<Condition>,
    /// The components that are to be upgraded.
    pub rollout: Rollout,
    /// The host that receives parts for an upgrade, and the conditions that the deliveries to the previous host
    /// provide.
    intake: (Option<HostName>, Vec<Condition>),
}

impl<'a> Deref for Draft<'a> {
    type Target = Observed<'a>;
    fn deref(&self) -> &Observed<'a> {
        &self.observed
    }
}

impl<'a> Draft<'a> {
    pub fn new(
        desired: &'a Desired,
        target: &'a Target,
        facts: &'a Facts,
        intent: &'a Intent,
    ) -> Result<Self, Refusal> {
        for (host, answer) in &facts.hosts {
            let Some(cluster_id) = answer.as_ref().ok().and_then(|f| f.cluster_id.as_ref()) else { continue };
            if cluster_id.same_cluster(&intent.cluster_id) && cluster_id.stages > intent.cluster_id.stages {
                return Err(Refusal::StateBehind { host: host.clone() });
            }
            if !cluster_id.same_cluster(&intent.cluster_id) {
                return Err(Refusal::OtherCluster {
                    host: host.clone(),
                    theirs: cluster_id.cluster.clone(),
                    ours: intent.cluster_id.cluster.clone(),
                    same_name: cluster_id.cluster == intent.cluster_id.cluster,
                });
            }
        }
        let members = match &facts.etcd {
            Etcd::HasQuorum(members) => Some(members.clone()),
            _ => None,
        };
        let observed = Observed { target, facts, intent };
        let mut draft = Self {
            desired,
            observed,
            steps: Vec::new(),
            forecast: Vec::new(),
            members,
            warnings: Vec::new(),
            horizon: None,
            turn: None,
            rollout: Rollout::of(desired, observed),
            intake: (None, Vec::new()),
        };
        if let Some(limit) = &intent.limit {
            let left: Vec<&str> =
                desired.hosts.iter().map(|h| &h.name).filter(|h| !limit.contains(*h)).map(HostName::as_str).collect();
            if !left.is_empty() {
                draft.warn(format!(
                    "--limit: nothing is planned for {}, nor for objects of the whole cluster",
                    left.join(", ")
                ));
            }
        }
        for (host, doubt) in facts.doubts() {
            draft.warn(disbelief(host, doubt));
        }
        for (host, answer) in &facts.hosts {
            if let Err(unreachable) = answer {
                draft.warn(format!("{host} is left out ({}): nothing is planned for it", unreachable.why));
            }
        }
        Ok(draft)
    }

    /// Hosts that answered, in the inventory's order.
    pub fn reachable(&self) -> Vec<Host> {
        self.desired.hosts.iter().filter(|h| self.facts.host(&h.name).is_some()).cloned().collect()
    }
    /// Whether a host may be changed in this run.
    pub fn may_change(&self, host: &HostName) -> bool {
        self.intent.limit.as_ref().is_none_or(|limit| limit.contains(host))
    }
    /// Whether only some hosts may be changed.
    pub fn limited(&self) -> bool {
        self.intent.limit.is_some()
    }
    /// Hosts that answered and may be changed.
    pub fn changing(&self) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| self.may_change(&h.name)).collect()
    }
    /// Hosts that answered and have a role.
    pub fn reachable_with(&self, role: Role) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| h.is(role)).collect()
    }
    pub fn host_target(&self, host: &HostName) -> &'a HostTarget {
        static NOTHING: std::sync::LazyLock<HostTarget> = std::sync::LazyLock::new(HostTarget::default);
        self.target.hosts.get(host).unwrap_or(&NOTHING)
    }
    /// The conditions that these parts are on a host, as far as it should have them.
    pub fn delivered(&self, host: &HostName, names: &[&str]) -> Vec<Condition> {
        let parts = self.host_target(host).parts.iter().filter(|part| names.contains(&part.name.as_str()));
        parts.map(|part| Condition::Delivered(host.clone(), part.digest)).collect()
    }
    /// The condition that the unit of a set runs, if the host should have that set and it has a unit.
    pub fn running(&self, host: &HostName, set: FileSet) -> Option<Condition> {
        let unit = self.host_target(host).sets.get(&set)?.unit.clone()?;
        Some(Condition::Running(host.clone(), unit))
    }
    pub fn host_facts(&self, host: &HostName) -> Option<&'a HostFacts> {
        self.facts.host(host)
    }
    /// Whether the API server of this host is ready now.
    pub fn serves_now(&self, host: &HostName) -> bool {
        self.host_facts(host).and_then(|f| f.api.as_ref()).is_some_and(|a| a.own_trouble.is_none())
    }
    /// API servers that are not ready now and that a step planned so far waits for.
    pub fn rising(&self) -> Vec<Condition> {
        let serving = self.steps.iter().map(|s| &s.provides);
        let rises =
            |mark: &&Condition| matches!(mark, Condition::Serving(h) | Condition::ApiServer(h) if !self.serves_now(h));
        serving.filter(rises).cloned().collect()
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

    /// Whether the plan ends here: the steps that follow depend on the result of these.
    pub fn ends_here(&self) -> bool {
        self.horizon.is_some()
    }

    /// Adds a step unless the condition that its action provides holds already; returns whether it was added.
    pub fn ensure(&mut self, action: Action, why: impl Into<String>, requires: Vec<Condition>) -> bool {
        let due = !self.holds(&action.provides());
        if due {
            self.must(action, why, requires);
        }
        due
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
        self.steps.push(Step { action, why, requires, provides, precondition, rollback });
        self.forecast.push(self.members.clone());
        done
    }

    /// The last step provides this condition instead: it does only a part of what its action can do.
    pub fn providing(&mut self, condition: &Condition) {
        if let Some(step) = self.steps.last_mut() {
            step.provides.clone_from(condition);
        }
    }

    /// The last step rolls back to the previous files of these sets if it fails, as far as any are kept at that time.
    pub fn or_back_to(&mut self, host: &HostName, sets: &[FileSet]) {
        let kept = |set: &&FileSet| self.on_trial(host, **set) || self.keeps(host, **set);
        let rollback: Vec<FileSet> = sets.iter().filter(kept).copied().collect();
        if let Some(step) = self.steps.last_mut() {
            step.rollback = rollback;
        }
    }

    /// Whether a step planned so far keeps the previous files of a set.
    fn keeps(&self, host: &HostName, set: FileSet) -> bool {
        let is = |action: &Action| matches!(action, Action::Configure { host: h, set: s, keep: true, .. } if h == host && *s == set);
        self.steps.iter().any(|step| is(&step.action))
    }

    /// Sets that are on trial on a host and that no step planned so far accepts or rolls back.
    pub fn undecided(&self, host: &HostName) -> Vec<FileSet> {
        let decided: BTreeSet<FileSet> = self
            .steps
            .iter()
            .filter(|step| step.action.host() == Some(host))
            .flat_map(|step| step.rollback.iter().copied())
            .collect();
        let kept = self.host_facts(host).map(|f| &f.on_trial);
        kept.into_iter().flatten().filter(|set| !decided.contains(set)).copied().collect()
    }

    /// Makes a step that was planned before wait for this condition as well.
    fn defer(&mut self, provides: &Condition, need: &Condition) {
        for step in self.steps.iter_mut().filter(|step| &step.provides == provides) {
            step.requires.push(need.clone());
        }
    }

    /// All conditions that the steps planned so far provide and that hold once all of them are done: a member that is
    /// removed and added again is not gone.
    pub fn given(&self) -> Vec<Condition> {
        let later = |at: usize, mark: Condition| self.steps[at + 1..].iter().any(|step| step.provides == mark);
        let undone = |at: usize, mark: &Condition| match mark {
            Condition::Gone(peer) => later(at, Condition::Listed(peer.clone())),
            Condition::Cleared(host) => later(at, Condition::Started(host.clone())),
            _ => false,
        };
        let given = self.steps.iter().enumerate().filter(|(at, step)| !undone(*at, &step.provides));
        given.map(|(_, step)| step.provides.clone()).collect()
    }

    /// The member list once the steps planned so far are done; `None` while there is no cluster.
    pub fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Whether any step is planned so far.
    pub fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether a step planned so far provides this condition.
    pub fn plans(&self, mark: &Condition) -> bool {
        self.steps.iter().any(|s| &s.provides == mark)
    }

    /// The conditions that deliveries to a host wait for in an upgrade: those of the previous host. Importing images
    /// takes CPU and disk I/O from the components that serve there; if all hosts did it at once, clients would notice.
    /// Without an upgrade, or if the parts wait for something else, there are none.
    pub fn delivery_turn(&mut self, host: &HostName, free: bool) -> Vec<Condition> {
        if !free || (self.rollout.api.is_empty() && self.rollout.kubelets.is_empty()) {
            return Vec::new();
        }
        if self.intake.0.as_ref() != Some(host) {
            let provides = |step: &Step| match &step.action {
                Action::Deliver { host: at, .. } | Action::Import { host: at, .. } => {
                    (self.intake.0.as_ref() == Some(at)).then(|| step.provides.clone())
                }
                _ => None,
            };
            let given: Vec<Condition> = self.steps.iter().filter_map(provides).collect();
            if !given.is_empty() {
                self.intake.1 = given;
            }
            self.intake.0 = Some(host.clone());
        }
        self.intake.1.clone()
    }

    /// Takes a turn in the chain of disturbances: the step must wait until the previous disturbance is over. So must
    /// the steps that write its files: if the previous one fails, no other host has the files that made it fail.
    pub fn take_turn(&mut self, requires: &mut Vec<Condition>, writes: &[Condition], healed: Condition) {
        if let Some(last) = self.turn.replace(healed) {
            for written in writes {
                self.defer(written, &last);
            }
            requires.push(last);
        }
    }

    /// What steps that use the API require. They wait until the last disturbance is over: the only API server may be
    /// restarting.
    pub fn api(&self) -> Vec<Condition> {
        std::iter::once(Condition::Api).chain(self.turn.clone()).collect()
    }

    /// Connects requirements to the steps that provide them. A step with a requirement that neither holds nor is
    /// provided is left out of the plan, with all steps that wait for it: the requirement may come to hold later, such
    /// as when a process has started.
    pub fn finish(self) -> Plan {
        let observed = self.observed;
        let mut giver: BTreeMap<&Condition, usize> = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            giver.insert(&step.provides, index);
        }
        let mut after = Vec::with_capacity(self.steps.len());
        let mut unmet = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let mut waits: Vec<usize> = Vec::new();
            for need in &step.requires {
                match giver.get(need) {
                    Some(&other) if other != index => waits.push(other),
                    Some(_) => {}
                    None if observed.holds(need) => {}
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
        let why = |(index, need): &(usize, Condition)| {
            let step = &self.steps[*index];
            match step.action.host() {
                Some(host) => format!("\"{}\" on {host} has to wait: it requires {need}", step.action),
                None => format!("\"{}\" has to wait: it requires {need}", step.action),
            }
        };
        let blocked_why: Vec<String> = unmet.iter().map(why).collect();
        warnings.extend(blocked_why.iter().cloned());
        let order = order(&after, &blocked);
        let stuck = blocked.iter().filter(|b| !**b).count() - order.len();
        if stuck > 0 {
            warnings.push(format!("{stuck} steps wait for one another and are left out; this is a bug in hactl"));
        }
        let mut plan = Plan { horizon: self.horizon, warnings, blocked: blocked_why, ..Plan::default() };
        let mut index_of = vec![usize::MAX; self.steps.len()];
        let mut steps: Vec<Option<Step>> = self.steps.into_iter().map(Some).collect();
        for index in order {
            let Some(step) = steps[index].take() else { continue };
            index_of[index] = plan.steps.len();
            plan.steps.push(step);
            plan.forecast.push(self.forecast[index].clone());
            let mut waits: Vec<usize> = after[index].iter().map(|&w| index_of[w]).collect();
            waits.sort_unstable();
            plan.after.push(waits);
        }
        plan
    }
}

/// No step may change a member or the member list if the list forecast for that step has no quorum: such a plan is
/// wrong, whatever led to it. Starting a member is allowed.
pub(super) fn quorate(plan: &Plan) -> Result<(), Refusal> {
    let etcd = etcd_unit();
    let touches = |step: &Step| match &step.action {
        Action::RunUnit { unit, how, .. } => *unit == etcd && *how == HowToRun::Restart,
        Action::Defragment { .. } | Action::MoveLeader { .. } => true,
        _ => matches!(step.precondition, Precondition::Members { .. }),
    };
    for (step, members) in plan.steps.iter().zip(&plan.forecast) {
        let Some(members) = members.as_ref().filter(|_| touches(step)) else { continue };
        members.quorate(&step.action)?;
    }
    Ok(())
}

/// The steps that can run, each after all steps it waits for, otherwise in the order they were planned. Steps that wait
/// for one another in a cycle can never run and are left out.
fn order(after: &[Vec<usize>], blocked: &[bool]) -> Vec<usize> {
    let mut open: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut followers = vec![Vec::new(); after.len()];
    for (index, waits) in after.iter().enumerate() {
        for &wait in waits {
            followers[wait].push(index);
        }
    }
    let mut ready: BTreeSet<usize> = (0..after.len()).filter(|&i| open[i] == 0 && !blocked[i]).collect();
    let mut order = Vec::with_capacity(after.len());
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for &follower in &followers[next] {
            open[follower] -= 1;
            if open[follower] == 0 && !blocked[follower] {
                ready.insert(follower);
            }
        }
    }
    order
}
