//! Runs plans in the simulated world with the real executor: any order that the graph allows, a crash after any effect,
//! and power, cables and disks that fail meanwhile. Every effect is judged.

use super::agent::SimAgent;
use super::api::SimApi;
use super::effect::Effect;
use super::law::{self, Broken};
use super::live::{Halt, Live, Shared};
use super::make;
use super::world::World;
use hactl::execute::{Actuator, Outcome, Perform, Recoveries, StepError, walk};
use hactl::model::action::Kind;
use hactl::model::desired::{Desired, Host, Role};
use hactl::model::event::{Event, Sink};
use hactl::model::facts::{Facts, Members};
use hactl::model::names::{HostName, PeerUrl};
use hactl::model::plan::{Action, Condition, Plan, Precondition, Step};
use hactl::model::refusal::Refusal;
use hactl::model::target::{FileSet, FileTarget, HostTarget, Target};
use hactl::observe::{KnownCluster, Queries};
use hactl::protocol::{FilePut, ObserveAsk};
use hactl::transport::Agent;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// A failure outside hactl. The number picks a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chaos {
    PowerOff(u8),
    PowerOn(u8),
    Wipe(u8),
    LoseData(u8),
    Cut(u8),
    Mend(u8),
    StopEtcd(u8),
    /// Another tool adds a learner to the member list.
    ForeignLearner,
    /// Another tool removes the member of a host from the member list.
    ForeignRemoval(u8),
}

/// One run of `hactl up`'s round.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Chooses among the steps that are ready.
    pub order: u64,
    /// `kill -9` after so many effects.
    pub crash_after: Option<u16>,
    /// Events after so many effects.
    pub meanwhile: Vec<(u16, Chaos)>,
    /// The question about etcd, by number, from which on it has no leader for some seconds.
    pub leaderless_at: Option<u32>,
    /// The actions whose precondition is not checked, to see which law it protects.
    pub without: Option<Kind>,
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

    /// Runs a plan with the real executor (its walk, preconditions and actions) against this world's agents and APIs.
    pub fn run(&mut self, plan: &Plan, script: &Script) -> Result<Ended, Broken> {
        let checked = script.meanwhile.is_empty();
        self.drive(plan, script, checked)
    }

    fn drive(&mut self, plan: &Plan, script: &Script, checked: bool) -> Result<Ended, Broken> {
        let mut world = self.clone();
        world.store = std::mem::take(&mut self.store);
        let live: Shared = Arc::new(Mutex::new(Live::new(world, script)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let outcome = runtime.expect("a runtime").block_on(walked(&live, plan, checked, script.without));
        let mut live = live.lock().expect("no panic holds it");
        std::mem::swap(self, &mut live.world);
        // A lock ends with the process that holds it.
        self.hosts.values_mut().for_each(|host| host.lock = None);
        match (live.halt.take(), outcome) {
            (Some(Halt::Broken(broken)), _) => Err(broken),
            (Some(Halt::Crashed), _) | (None, None) => Ok(Ended::Crashed),
            (None, Some(outcome)) if outcome.failed.is_empty() => Ok(Ended::Done(plan.clone())),
            (None, Some(outcome)) => {
                let words = |(_, _, what, why): (usize, _, String, StepError)| format!("{what}: {why}");
                Ok(Ended::Failed(outcome.failed.into_iter().map(words).collect()))
            }
        }
    }

    /// What the executor needs to work on this world.
    fn actuator(&mut self, live: &Shared) -> Actuator {
        let desired = Arc::new(self.desired.clone());
        let target = Arc::new(self.target.clone());
        let connected: Vec<HostName> =
            desired.entered().map(|h| h.name.clone()).filter(|h| self.host(h).answers()).collect();
        let agent = |host: &HostName| {
            let agent: Arc<dyn Agent> = Arc::new(SimAgent { host: host.clone(), live: Arc::clone(live) });
            (host.clone(), agent)
        };
        let store = self.store.path().to_owned();
        let journal = Arc::clone(live);
        Actuator {
            machines: connected.iter().map(agent).collect(),
            files: contents(&target),
            queries: self.queries(&desired),
            sign: Box::new(|_, _| Ok("certificate".to_owned())),
            blob: Box::new(|_| Ok(std::path::PathBuf::new())),
            record_bootstrap: Box::new(move |_, _| {
                let mut live = journal.lock().expect("no panic holds it");
                live.happen(&Effect::BootstrapRecorded).map_err(|why| why.unwrap_or_else(|| "killed".to_owned()))
            }),
            recoveries: Recoveries::of(&store, &store.join("identity.txt")),
            api: Arc::new(SimApi(Arc::clone(live))),
            sink: Arc::new(Nobody),
            deliveries: Actuator::slots_for(connected.iter(), hactl::execute::DELIVERIES_PER_HOST),
            imports: Actuator::slots_for(connected.iter(), hactl::execute::IMPORTS_PER_HOST),
            synced: OnceCell::new(),
            client: OnceCell::new(),
            desired,
            target,
        }
    }

    /// What the hosts are asked.
    pub fn queries(&self, desired: &Arc<Desired>) -> Queries {
        let ask = |host: &Host| {
            let member = host.may_vote() || self.host(&host.name).disk.is_some();
            let ask = ObserveAsk {
                etcd: member.then(|| hactl::render::own_etcd(desired)),
                api: hactl::render::api_ask(desired, host, &self.target.addons),
                ..ObserveAsk::default()
            };
            (host.name.clone(), ask)
        };
        let asks = desired.entered().map(ask).collect();
        Queries::new(Arc::clone(desired), self.intent.cluster_id.clone(), KnownCluster::default(), asks)
    }

    /// Whether a step's precondition holds, as the executor checks it. The world stays as it is.
    pub fn precondition(&self, step: &Step) -> Result<(), String> {
        match self.clone().drive(&alone(step.clone()), &Script::default(), false) {
            Ok(Ended::Failed(why)) => Err(why.join("; ")),
            ended => ended.map(drop).map_err(|broken| format!("{broken:?}")),
        }
    }

    /// Performs an action without its precondition and its required conditions. The laws are still judged.
    pub fn force(&mut self, action: &Action) -> Result<(), Broken> {
        let step = Step {
            action: action.clone(),
            why: String::new(),
            requires: vec![],
            provides: Condition::Quorum,
            precondition: Precondition::None,
            rollback: vec![],
        };
        match self.drive(&alone(step), &Script::default(), false)? {
            Ended::Failed(why) => Err(Broken::Endless(why.join("; "))),
            _ => Ok(()),
        }
    }

    /// Something fails or changes outside hactl.
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
            Chaos::ForeignLearner => {
                let peer = "https://10.88.9.9:2380".parse().expect("a peer URL");
                // It cannot do so without a quorum.
                let _ = self.change_members(&super::member::Change::AddLearner(peer));
            }
            Chaos::ForeignRemoval(n) => {
                let _ = self.change_members(&super::member::Change::Remove(self.peer(&pick(n))));
            }
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
                    if let Some(host) = self.cordoned.iter().find(|h| self.desired.host(h).is_some()) {
                        return Err(Broken::LeftCordoned { host: host.clone() });
                    }
                    if let Some(host) = self.desired.hosts.iter().find(|h| self.keeps_what_has_passed(&h.name)) {
                        return Err(Broken::LeftOnTrial { host: host.name.clone() });
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

fn alone(step: Step) -> Plan {
    Plan { after: vec![vec![]], forecast: vec![None], steps: vec![step], ..Plan::default() }
}

/// Files whose content is never read.
pub fn contents(target: &Target) -> BTreeMap<HostName, BTreeMap<FileSet, Vec<FilePut>>> {
    let put = |file: &FileTarget| FilePut {
        path: file.path.clone(),
        mode: file.mode,
        owner: file.owner.clone(),
        content: String::new(),
        check: None,
    };
    let sets =
        |host: &HostTarget| host.sets.iter().map(|(set, of)| (*set, of.files.iter().map(put).collect())).collect();
    target.hosts.iter().map(|(name, host)| (name.clone(), sets(host))).collect()
}

pub struct Nobody;
impl Sink for Nobody {
    fn emit(&self, _: Event) {}
}

/// The real actuator, with the laws about steps.
struct Watched {
    actuator: Actuator,
    live: Shared,
    checked: bool,
    without: Option<Kind>,
    /// The member list as the plan announces it after each step: peer URL and right to vote.
    announced: Vec<Option<BTreeMap<PeerUrl, bool>>>,
}

impl Watched {
    fn live(&self) -> std::sync::MutexGuard<'_, Live> {
        self.live.lock().expect("no panic holds it")
    }
}

impl Perform for Watched {
    async fn perform(&self, index: usize, step: &Step) -> Result<(), StepError> {
        let on_the_list = matches!(step.precondition, Precondition::Members { .. });
        // Also a step whose precondition is switched off: the event that it misses falls before it, not into it.
        let protected = step.precondition != Precondition::None;
        let mut step = step.clone();
        if self.without == Some(step.action.kind()) {
            step.precondition = Precondition::None;
        }
        let step = &step;
        {
            let mut live = self.live();
            let need = step.requires.iter().find(|need| self.checked && !live.world.holds(need)).cloned();
            if let Some(need) = need {
                live.stop(Halt::Broken(Broken::NeedUnmet { step: step.action.to_string(), need }));
            }
            if protected {
                live.protect();
            }
        }
        let done = self.actuator.perform(index, step).await;
        let mut live = self.live();
        let announced = self.announced.get(index).and_then(Option::as_ref).filter(|_| on_the_list && done.is_ok());
        if announced.is_some_and(|list| live.world.member_list().as_ref() != Some(list)) {
            live.stop(Halt::Broken(Broken::NotAsAnnounced { step: step.action.to_string() }));
        }
        if protected {
            live.unprotect();
        }
        let left = match &step.action {
            Action::Accept { host, sets } => sets.iter().any(|set| live.world.host(host).previous.contains_key(set)),
            _ => false,
        };
        if self.checked && done.is_ok() && (left || !live.world.holds(&step.provides)) {
            let (step, provides) = (step.action.to_string(), step.provides.clone());
            live.stop(Halt::Broken(Broken::GivesNothing { step, provides }));
        }
        done
    }

    async fn conclude(&self, index: usize, step: &Step, result: Result<(), StepError>) -> Result<(), StepError> {
        self.actuator.conclude(index, step, result).await
    }
}

/// Walks a plan until it ends or is killed.
async fn walked(live: &Shared, plan: &Plan, checked: bool, without: Option<Kind>) -> Option<Outcome> {
    let (actuator, ended) = {
        let mut live_now = live.lock().expect("no panic holds it");
        let ended = Arc::clone(&live_now.ended);
        (live_now.world.actuator(live), ended)
    };
    let announced = plan.forecast.iter().map(|list| list.as_ref().map(Members::shape)).collect();
    let watched = Arc::new(Watched { actuator, live: Arc::clone(live), checked, without, announced });
    let (sink, stop): (Arc<dyn Sink>, _) = (Arc::new(Nobody), CancellationToken::new());
    tokio::select! {
        biased;
        () = ended.notified() => None,
        outcome = walk(plan, &watched, &sink, &stop, 32) => Some(outcome),
    }
}
