//! The plan so far: subjects read it, `join` adds what one of them plans, and `finish` connects what steps require to
//! what others provide.

use super::intent::Intent;
use super::observed::Observed;
use super::rollout::Rollout;
use super::steps::{Noted, Steps};
use crate::model::desired::{Desired, Host};
use crate::model::facts::{Etcd, Facts, Members, disbelief};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, HowToRun, Plan, Precondition, Step};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Target};
use crate::model::units::etcd_unit;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// The plan so far.
pub(super) struct Draft<'a> {
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
        let observed = Observed { desired, target, facts, intent };
        Ok(Self {
            observed,
            steps: Vec::new(),
            forecast: Vec::new(),
            members,
            warnings: warnings(observed),
            horizon: None,
            turn: None,
            rollout: Rollout::of(desired, observed),
            intake: (None, Vec::new()),
        })
    }

    /// Adds what a subject plans.
    pub fn join(&mut self, new: Steps) {
        if let Some(host) = new.receiver {
            self.intake = (Some(host.clone()), self.delivery_turn(&host));
        }
        for Noted { mut step, forecast, turn } in new.steps {
            if let Some((writes, healed)) = turn
                && let Some(last) = self.turn.replace(healed)
            {
                for written in self.steps.iter_mut().filter(|earlier| writes.contains(&earlier.provides)) {
                    written.requires.push(last.clone());
                }
                if !step.requires.contains(&last) {
                    step.requires.push(last);
                }
            }
            if let Some(host) = step.action.host() {
                step.rollback.retain(|set| self.on_trial(host, *set) || self.keeps(host, *set));
            }
            self.forecast.push(forecast.or_else(|| self.members.clone()));
            self.steps.push(step);
        }
        self.members = new.members.or(self.members.take());
        self.warnings.extend(new.warnings);
        self.horizon = self.horizon.take().or(new.horizon);
    }

    /// Adds what these subjects plan for each of the hosts.
    pub fn join_each(&mut self, hosts: &[Host], subjects: &[fn(&Draft<'_>, &Host) -> Steps]) {
        for host in hosts {
            for subject in subjects {
                self.join(subject(self, host));
            }
        }
    }

    /// Adds a single step, and returns the condition that it provides.
    pub fn must(&mut self, action: Action, why: impl Into<String>, requires: Vec<Condition>) -> Condition {
        let mut step = Steps::default();
        let done = step.must(action, why, requires);
        self.join(step);
        done
    }

    /// API servers that are not ready now and that a step planned so far waits for.
    pub fn rising(&self) -> Vec<Condition> {
        let serving = self.steps.iter().map(|s| &s.provides);
        let rises =
            |mark: &&Condition| matches!(mark, Condition::Serving(h) | Condition::ApiServer(h) if !self.serves_now(h));
        serving.filter(rises).cloned().collect()
    }

    /// Whether the plan ends here: the steps that follow depend on the result of these.
    pub fn ends_here(&self) -> bool {
        self.horizon.is_some()
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
    pub fn delivery_turn(&self, host: &HostName) -> Vec<Condition> {
        let (previous, turn) = &self.intake;
        let provides = |step: &Step| match &step.action {
            Action::Deliver { host: at, .. } | Action::Import { host: at, .. } => {
                (at != host && previous.as_ref() == Some(at)).then(|| step.provides.clone())
            }
            _ => None,
        };
        let given: Vec<Condition> = self.steps.iter().filter_map(provides).collect();
        if given.is_empty() { turn.clone() } else { given }
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

/// What is left out of a plan from the start.
fn warnings(o: Observed<'_>) -> Vec<String> {
    let may_not = o.desired.hosts.iter().map(|h| &h.name).filter(|h| !o.may_change(h));
    let left: Vec<&str> = may_not.map(HostName::as_str).collect();
    let limited = (!left.is_empty())
        .then(|| format!("--limit: nothing is planned for {}, nor for objects of the whole cluster", left.join(", ")));
    let doubts = o.facts.doubts().map(|(host, doubt)| disbelief(host, doubt));
    let silent = o.facts.hosts.iter().filter_map(|(host, answer)| Some((host, answer.as_ref().err()?)));
    let silent = silent.map(|(host, why)| format!("{host} is left out ({}): nothing is planned for it", why.why));
    limited.into_iter().chain(doubts).chain(silent).collect()
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
