//! Walking the graph: a step starts when all it waits for is done; a failure stops only what depends on it.

use crate::model::event::{Event, Sink};
use crate::model::names::HostName;
use crate::model::plan::{Plan, Stage, Step};
use crate::model::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Why a step did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Its guard does not hold any more.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// It took longer than it may.
    #[error("not done after {0:?}")]
    Overdue(Duration),
    /// It failed, and what ran before runs again by the earlier files.
    #[error("{what}; the previous files were restored, and the host runs with them again")]
    RolledBack {
        /// What happened.
        what: String,
        /// Last lines of the log that explains it, oldest first.
        tail: Vec<String>,
    },
    /// The host or the API failed it.
    #[error("{what}")]
    Failed {
        /// What happened.
        what: String,
        /// Last lines of the log that explains it, oldest first.
        tail: Vec<String>,
    },
}

/// Something that can do a step. One for the real world, one for the simulated.
pub trait Perform: Send + Sync + 'static {
    /// Checks the guard, does the step and waits until what it gives holds.
    fn perform(&self, index: usize, step: &Step) -> impl Future<Output = Result<(), StepError>> + Send;
    /// What follows once a step with a rollback has ended: the previous files are deleted, or restored.
    fn conclude(
        &self,
        _index: usize,
        _step: &Step,
        result: Result<(), StepError>,
    ) -> impl Future<Output = Result<(), StepError>> + Send {
        async move { result }
    }
}

/// How a walk ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps that are done.
    pub done: usize,
    /// Steps that failed: index, host, what it tried, why.
    pub failed: Vec<(usize, Option<HostName>, String, StepError)>,
    /// Steps never started, because of a failure before them or an interrupt.
    pub left: usize,
    /// Whether the person interrupted.
    pub interrupted: bool,
    /// First start and last end of each stage, relative to the start of the walk.
    pub stages: BTreeMap<Stage, (Duration, Duration)>,
}

/// Runs a plan, working on so many hosts at once. After `stop` is cancelled nothing new starts; what runs is waited for.
pub async fn walk<P: Perform>(
    plan: &Plan,
    actuator: &Arc<P>,
    sink: &Arc<dyn Sink>,
    stop: &CancellationToken,
    at_once: usize,
) -> Outcome {
    let begun = Instant::now();
    let count = plan.steps.len();
    let mut waiting: Vec<BTreeSet<usize>> = plan.after.iter().map(|w| w.iter().copied().collect()).collect();
    let mut started = vec![false; count];
    // Hosts with a step under way, and how many. Steps of the cluster itself take no host's place.
    let mut busy: BTreeMap<HostName, usize> = BTreeMap::new();
    let mut outcome = Outcome::default();
    let mut running: JoinSet<(usize, Duration, Result<(), StepError>)> = JoinSet::new();
    loop {
        if !stop.is_cancelled() {
            for index in 0..count {
                if started[index] || !waiting[index].is_empty() {
                    continue;
                }
                if let Some(host) = plan.steps[index].action.host() {
                    if busy.len() >= at_once.max(1) && !busy.contains_key(host) {
                        continue;
                    }
                    *busy.entry(host.clone()).or_default() += 1;
                }
                started[index] = true;
                let step = plan.steps[index].clone();
                sink.emit(Event::Started {
                    step: index,
                    what: step.action.to_string(),
                    host: step.action.host().cloned(),
                });
                let actuator = Arc::clone(actuator);
                running.spawn(async move {
                    let start = begun.elapsed();
                    let timeout = step.action.profile().timeout;
                    let result = match tokio::time::timeout(timeout, actuator.perform(index, &step)).await {
                        Ok(result) => result,
                        Err(_) => Err(StepError::Overdue(timeout)),
                    };
                    let result =
                        if step.rollback.is_empty() { result } else { actuator.conclude(index, &step, result).await };
                    (index, start, result)
                });
            }
        }
        let ended = tokio::select! {
            ended = running.join_next() => ended,
            () = stop.cancelled(), if !outcome.interrupted => {
                outcome.interrupted = true;
                continue;
            }
        };
        let Some(ended) = ended else { break };
        let (index, start, result) = match ended {
            Ok(triple) => triple,
            Err(crash) => {
                outcome.failed.push((
                    count,
                    None,
                    "run a step".to_owned(),
                    StepError::Failed { what: format!("a step ended abnormally: {crash}"), tail: vec![] },
                ));
                continue;
            }
        };
        let (step, end) = (&plan.steps[index], begun.elapsed());
        if let Some(host) = step.action.host()
            && let Some(under_way) = busy.get_mut(host)
        {
            *under_way -= 1;
            if *under_way == 0 {
                busy.remove(host);
            }
        }
        let (host, what) = (step.action.host().cloned(), step.action.to_string());
        let span = outcome.stages.entry(step.action.profile().stage).or_insert((start, end));
        *span = (span.0.min(start), span.1.max(end));
        match result {
            Ok(()) => {
                outcome.done += 1;
                let ms = u64::try_from(end.saturating_sub(start).as_millis()).unwrap_or(u64::MAX);
                sink.emit(Event::Done { step: index, ms, host, what });
                for waits in &mut waiting {
                    waits.remove(&index);
                }
            }
            Err(error) => {
                let tail = match &error {
                    StepError::Failed { tail, .. } | StepError::RolledBack { tail, .. } => tail.clone(),
                    _ => Vec::new(),
                };
                let why = error.to_string();
                sink.emit(Event::Failed { step: index, host: host.clone(), what: what.clone(), why, tail });
                outcome.failed.push((index, host, what, error));
            }
        }
    }
    outcome.left = started.iter().filter(|s| !**s).count();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::plan::{Action, Condition, Precondition};
    use std::sync::Mutex;

    /// Remembers on how many hosts it worked at once.
    #[derive(Default)]
    struct Actuator {
        now: Mutex<Vec<HostName>>,
        most: Mutex<usize>,
    }

    impl Perform for Actuator {
        async fn perform(&self, _: usize, step: &Step) -> Result<(), StepError> {
            let Some(host) = step.action.host() else { return Ok(()) };
            {
                let mut now = self.now.lock().unwrap();
                now.push(host.clone());
                let hosts: BTreeSet<&HostName> = now.iter().collect();
                let mut most = self.most.lock().unwrap();
                *most = hosts.len().max(*most);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut now = self.now.lock().unwrap();
            let at = now.iter().position(|h| h == host).unwrap();
            now.remove(at);
            Ok(())
        }
    }

    struct Nobody;
    impl Sink for Nobody {
        fn emit(&self, _: Event) {}
    }

    /// Two steps on each of six hosts, and one that waits for all of them.
    fn plan() -> Plan {
        let mut plan = Plan::default();
        for n in 0..12_usize {
            let host: HostName = format!("h{}", n % 6).parse().unwrap();
            let provides = Condition::ClusterIdWritten(host.clone());
            let action = Action::WriteClusterId { host };
            plan.steps.push(Step {
                action,
                why: String::new(),
                requires: vec![],
                provides,
                precondition: Precondition::None,
                rollback: vec![],
            });
            plan.after.push(vec![]);
        }
        let last = Step {
            action: Action::ProveQuorum,
            why: String::new(),
            requires: vec![],
            provides: Condition::Quorum,
            precondition: Precondition::None,
            rollback: vec![],
        };
        plan.steps.push(last);
        plan.after.push((0..12).collect());
        plan
    }

    #[tokio::test]
    async fn no_more_hosts_are_worked_on_at_once_than_was_asked_for() {
        let sink: Arc<dyn Sink> = Arc::new(Nobody);
        for (at_once, most) in [(1, 1), (2, 2), (32, 6), (0, 1)] {
            let actuator = Arc::new(Actuator::default());
            let outcome = walk(&plan(), &actuator, &sink, &CancellationToken::new(), at_once).await;
            assert_eq!((outcome.done, outcome.left), (13, 0));
            assert_eq!(*actuator.most.lock().unwrap(), most, "{at_once} at once");
        }
    }
}
