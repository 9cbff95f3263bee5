//! The plan so far: subjects read it, `join` adds what one of them plans, and `finish` connects what steps require to
//! what others provide.

use super::conditions::{Observed, is_of_control_plane};
use super::intent::Intent;
use super::rollout::Rollout;
use super::steps::{Noted, Steps};
use crate::model::action::Impact;
use crate::model::desired::{Desired, Host};
use crate::model::facts::{ClusterId, Etcd, Facts, Members, disbelief};
use crate::model::names::HostName;
use crate::model::plan::{Action, Condition, Plan, Precondition, Step};
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
    /// The member list once the steps planned so far are done; `None` while there is no cluster.
    pub members: Option<Members>,
    pub warnings: Vec<String>,
    /// Why the plan ends here: the steps that follow depend on the result of these.
    pub horizon: Option<String>,
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
            of_this_cluster(host, cluster_id, intent)?;
            if cluster_id.stages > intent.cluster_id.stages {
                return Err(Refusal::StateBehind { host: host.clone() });
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
        let mut steps = Steps::default();
        let done = steps.must(action, why, requires).provides();
        self.join(steps);
        done
    }

    /// API servers that are not ready now and that a step planned so far waits for.
    pub fn rising(&self) -> Vec<Condition> {
        let serving = self.steps.iter().map(|s| &s.provides);
        let rises =
            |mark: &&Condition| matches!(mark, Condition::Serving(h) | Condition::ApiServer(h) if !self.serves_now(h));
        serving.filter(rises).cloned().collect()
    }

    /// What steps planned so far provide that end a hung API server. Under load all may be late: the next one is ended
    /// only once these serve.
    pub fn ended(&self) -> Vec<Condition> {
        let ends = |step: &&Step| matches!(step.action, Action::AwaitServing { ends_hung: true, .. });
        self.steps.iter().filter(ends).map(|step| step.provides.clone()).collect()
    }

    /// Whether a step planned so far keeps the previous files of a set.
    fn keeps(&self, host: &HostName, set: FileSet) -> bool {
        let is = |action: &Action| matches!(action, Action::Configure { host: h, set: s, keep: true, .. } if h == host && *s == set);
        self.steps.iter().any(|step| is(&step.action))
    }

    /// Sets that are on trial on a host and that no step planned so far accepts or rolls back.
    pub fn undecided(&self, host: &HostName) -> Vec<FileSet> {
        let own = self.steps.iter().filter(|step| step.action.host() == Some(host));
        let decided: BTreeSet<&FileSet> = own.flat_map(|step| &step.rollback).collect();
        let kept = self.facts.host(host).into_iter().flat_map(|facts| &facts.on_trial);
        kept.filter(|set| !decided.contains(set)).copied().collect()
    }

    /// All conditions that the steps planned so far provide and that hold once all of them are done: a member that is
    /// removed and added again is not gone.
    pub fn given(&self) -> Vec<Condition> {
        self.given_by(|_| true)
    }

    /// Those that the removal of a worker waits for: not those of another worker whose kubelet does not report, because
    /// its trouble would keep this one in the cluster.
    pub fn given_beside_unreachable_workers(&self) -> Vec<Condition> {
        let is_worker = |host: &HostName| self.desired.host(host).is_some_and(|host| !is_of_control_plane(host));
        self.given_by(|step| step.action.host().is_none_or(|host| !is_worker(host) || !self.is_unreachable(host)))
    }

    /// The conditions of these steps, as far as they hold in the end.
    fn given_by(&self, counts: impl Fn(&Step) -> bool) -> Vec<Condition> {
        let later = |at: usize, mark: Condition| self.steps[at + 1..].iter().any(|step| step.provides == mark);
        let undone = |at: usize, mark: &Condition| match mark {
            Condition::Gone(peer) => later(at, Condition::Listed(peer.clone())),
            Condition::Cleared(host) => later(at, Condition::Started(host.clone())),
            Condition::Held(host) => later(at, Condition::Hosted(host.clone())),
            _ => false,
        };
        let given = self.steps.iter().enumerate().filter(|(at, step)| counts(step) && !undone(*at, &step.provides));
        given.map(|(_, step)| step.provides.clone()).collect()
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
        let count = self.steps.len();
        let giver: BTreeMap<&Condition, usize> = self.steps.iter().map(|step| &step.provides).zip(0..).collect();
        let (mut after, mut unmet) = (Vec::with_capacity(count), Vec::new());
        for (index, step) in self.steps.iter().enumerate() {
            let mut waits = BTreeSet::new();
            for need in &step.requires {
                match giver.get(need) {
                    Some(other) => waits.extend(Some(*other).filter(|other| *other != index)),
                    None if self.holds(need) => {}
                    None => unmet.push((index, need)),
                }
            }
            after.push(waits);
        }
        let mut blocked: Vec<bool> = (0..count).map(|index| unmet.iter().any(|(of, _)| *of == index)).collect();
        let waits_for_blocked = |blocked: &[bool], index: usize| after[index].iter().any(|wait| blocked[*wait]);
        while let Some(next) = (0..count).find(|&index| !blocked[index] && waits_for_blocked(&blocked, index)) {
            blocked[next] = true;
        }
        let why = |(index, need): &(usize, &Condition)| {
            let action = &self.steps[*index].action;
            let on = action.host().map_or_else(String::new, |host| format!(" on {host}"));
            format!("\"{action}\"{on} has to wait: it requires {need}")
        };
        let blocked_why: Vec<String> = unmet.iter().map(why).collect();
        let order = order(&after, &blocked);
        let stuck = blocked.iter().filter(|blocked| !**blocked).count() - order.len();
        let bug = (stuck > 0).then(|| {
            let steps = circle(&self.steps, &after, &order, &blocked).join(" waits for ");
            format!("{stuck} steps wait for one another and are left out; this is a bug in hactl: {steps}")
        });
        let place: BTreeMap<usize, usize> = order.iter().copied().zip(0..).collect();
        let places = |index: &usize| after[*index].iter().map(|wait| place[wait]).collect::<BTreeSet<usize>>();
        Plan {
            steps: order.iter().map(|index| self.steps[*index].clone()).collect(),
            after: order.iter().map(|index| places(index).into_iter().collect()).collect(),
            forecast: order.iter().map(|index| self.forecast[*index].clone()).collect(),
            horizon: self.horizon,
            warnings: [self.warnings, blocked_why.clone(), bug.into_iter().collect()].concat(),
            blocked: blocked_why,
        }
    }
}

/// Steps that wait for one another, each for the next and the last for the first.
fn circle(steps: &[Step], after: &[BTreeSet<usize>], order: &[usize], blocked: &[bool]) -> Vec<String> {
    let stuck = |index: &usize| !order.contains(index) && !blocked[*index];
    let mut path: Vec<usize> = (0..steps.len()).find(stuck).into_iter().collect();
    // Each stuck step waits for another one, so the path meets itself.
    while let Some(next) = path.last().and_then(|last| after[*last].iter().copied().find(stuck)) {
        if let Some(begin) = path.iter().position(|one| *one == next) {
            path.drain(..begin);
            break;
        }
        path.push(next);
    }
    let words = |index: &usize| {
        let action = &steps[*index].action;
        let on = action.host().map_or_else(String::new, |host| format!(" on {host}"));
        format!("\"{action}\"{on}")
    };
    path.iter().map(words).collect()
}

/// Refuses a host of another cluster.
pub(super) fn of_this_cluster(host: &HostName, theirs: &ClusterId, intent: &Intent) -> Result<(), Refusal> {
    let ours = &intent.cluster_id;
    if theirs.same_cluster(ours) {
        return Ok(());
    }
    let same_name = theirs.cluster == ours.cluster;
    let (theirs, ours) = (theirs.cluster.clone(), ours.cluster.clone());
    Err(Refusal::OtherCluster { host: host.clone(), theirs, ours, same_name })
}

/// What is left out of a plan from the start.
fn warnings(o: Observed<'_>) -> Vec<String> {
    let may_not = o.desired.hosts.iter().map(|h| &h.name).filter(|h| !o.is_chosen(h));
    let left: Vec<&str> = may_not.map(HostName::as_str).collect();
    let limited = (!left.is_empty())
        .then(|| format!("--limit: nothing is planned for {}, nor for objects of the whole cluster", left.join(", ")));
    let doubts = o.facts.doubts().map(|(host, doubt)| disbelief(host, doubt));
    let unreachable = o.facts.hosts.iter().filter_map(|(host, answer)| Some((host, answer.as_ref().err()?)));
    let unreachable =
        unreachable.map(|(host, why)| format!("{host} is left out ({}): nothing is planned for it", why.why));
    let maintained = o.desired.hosts.iter().map(|host| (&host.name, o.maintenances(&host.name)));
    let maintained = maintained.filter(|(host, names)| o.is_chosen(host) && !names.is_empty()).map(|(host, names)| {
        let names = names.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ");
        format!("{host} is left out: it is in maintenance ({names}); `hactl maintain finish {host}` ends that")
    });
    limited.into_iter().chain(doubts).chain(unreachable).chain(maintained).collect()
}

/// No step may change a member or the member list if the list forecast for that step has no quorum: such a plan is
/// wrong, whatever led to it. Starting a member is allowed.
pub(super) fn quorate(plan: &Plan) -> Result<(), Refusal> {
    let etcd = etcd_unit();
    let touches = |step: &Step| match &step.action {
        Action::RunUnit { unit, how, .. } => *unit == etcd && how.restarts(),
        Action::Defragment { .. } | Action::MoveLeader { .. } => true,
        _ => matches!(step.precondition, Precondition::Members { .. }),
    };
    for (step, members) in plan.steps.iter().zip(&plan.forecast) {
        let Some(members) = members.as_ref().filter(|_| touches(step)) else { continue };
        members.quorate(&step.action)?;
    }
    Ok(())
}

/// While a person works on a host of the control plane, no step may disturb another one.
pub(super) fn maintained(plan: &Plan, o: Observed<'_>) -> Result<(), Refusal> {
    let taken: Vec<_> = o.desired.hosts.iter().filter_map(|host| o.taken(&host.name)).collect();
    let disturbing = plan.steps.iter().filter(|step| step.impact() >= Impact::Restart);
    let of_control_plane = |host: &&HostName| o.desired.host(host).is_some_and(is_of_control_plane);
    for host in disturbing.filter_map(|step| step.action.host()).filter(of_control_plane) {
        if let Some((maintained, names)) = taken.iter().find(|(maintained, _)| *maintained != host) {
            let (host, maintained) = (host.clone(), (*maintained).clone());
            return Err(Refusal::InMaintenance { host, maintained, maintenances: names.to_vec() });
        }
    }
    Ok(())
}

/// The steps that can run, each after all steps it waits for, otherwise in the order they were planned. Steps that wait
/// for one another in a cycle can never run and are left out.
fn order(after: &[BTreeSet<usize>], blocked: &[bool]) -> Vec<usize> {
    let (mut done, mut order) = (blocked.to_vec(), Vec::with_capacity(after.len()));
    let ready = |done: &[bool], index: usize| after[index].iter().all(|wait| done[*wait]);
    while let Some(next) = (0..after.len()).find(|&index| !done[index] && ready(&done, index)) {
        done[next] = true;
        order.push(next);
    }
    order
}
