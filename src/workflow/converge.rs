//! Running plans: the hands, the walk, the probe, and the times told at the end.

use super::look::Round;
use super::{Failure, Session, State};
use crate::execute::{Actuator, Recoveries, walk};
use crate::model::check::Check;
use crate::model::desired::Host;
use crate::model::event::Event;
use crate::model::names::{ClusterName, HostName};
use crate::model::plan::{Impact, Plan, Stage};
use crate::model::refusal::Refusal;
use crate::model::target::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// How long the probe pod may take from creation to deletion.
const PROBE_WITHIN: Duration = Duration::from_secs(90);

/// What the person chose on the command line.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Agreed in advance.
    pub yes: bool,
    /// Hosts that may leave the cluster.
    pub prune: Vec<HostName>,
    /// The hosts that may be changed; `None`: all.
    pub limit: Option<BTreeSet<HostName>>,
    /// Members that are to leave and join anew though they run, each by the id that it has now.
    pub replace: BTreeMap<HostName, u64>,
    /// Hosts that are another machine on purpose, or were another host of the cluster.
    pub reassign: BTreeSet<HostName>,
    /// Whether Nodes that nobody names stay this time: whether their kubelets live was waited for already.
    pub unknown_nodes_stay: bool,
}

/// Asks the person. Kept apart so that a workflow runs without a terminal.
pub trait Ask: Send + Sync {
    /// Whether to go on with something disruptive.
    ///
    /// # Errors
    /// [`Refusal::NeedsConsent`] when nobody can be asked, [`Refusal::Declined`] on anything but yes.
    fn yes(&self, question: &str, what: &str) -> Result<(), Refusal>;
    /// Whether the person can type the cluster's name.
    ///
    /// # Errors
    /// [`Refusal::NeedsConsent`] when nobody can be asked, [`Refusal::Declined`] when it is not typed.
    fn name(&self, cluster: &ClusterName, what: &str) -> Result<(), Refusal>;
}

impl dyn Ask + '_ {
    /// Consent to a plan, asked only when it disturbs something.
    pub(super) fn consent(&self, plan: &Plan, choices: &Choices) -> Result<(), Refusal> {
        if choices.yes || plan.impact() == Impact::None {
            return Ok(());
        }
        let disturbing = plan.steps.iter().filter(|s| s.impact() > Impact::None);
        let what: Vec<String> = disturbing
            .map(|s| match s.action.host() {
                Some(host) => format!("{} on {host}", s.action),
                None => s.action.to_string(),
            })
            .collect();
        let what = what.join(", ");
        self.yes("Go on?", &what)
    }
}

/// Runs plans and keeps the times.
pub(super) struct Converge<'a> {
    state: &'a Arc<State>,
    stages: BTreeMap<Stage, Duration>,
}

impl<'a> Converge<'a> {
    pub fn new(state: &'a Arc<State>) -> Self {
        Self { state, stages: BTreeMap::new() }
    }

    fn actuator(&self, session: &Session, look: Round) -> Result<Actuator, Failure> {
        let bundle = session.bundle()?;
        let (signer, journal) = (Arc::clone(self.state), Arc::clone(self.state));
        Ok(Actuator {
            desired: Arc::clone(&session.desired),
            target: Arc::clone(&look.target),
            machines: session.machines.clone(),
            files: look.files,
            queries: look.queries,
            sign: Box::new(move |leaf, request| signer.sign(leaf, request).map_err(|e| e.to_string())),
            blob: Box::new(move |digest| bundle.blob(digest).map_err(|e| e.to_string())),
            record_bootstrap: Box::new(move |cluster, revision| {
                journal.answers(cluster, revision).map_err(|e| e.to_string())
            }),
            recoveries: Recoveries::of(&session.places.state),
            api: self.state.access()?,
            sink: Arc::clone(&session.sink),
            deliveries: Actuator::slots_for(session.machines.keys(), crate::execute::DELIVERIES_PER_HOST),
            imports: Actuator::slots_for(session.machines.keys(), crate::execute::IMPORTS_PER_HOST),
            synced: OnceCell::new(),
            client: OnceCell::new(),
        })
    }

    /// Runs a plan to its end, or to the first interrupt.
    pub async fn run(&mut self, session: &Session, look: Round, plan: &Plan) -> Result<(), Failure> {
        let actuator = Arc::new(self.actuator(session, look)?);
        let outcome = walk(plan, &actuator, &session.sink, &session.stop, session.at_once).await;
        for (stage, (start, end)) in &outcome.stages {
            *self.stages.entry(*stage).or_default() += end.saturating_sub(*start);
        }
        if outcome.interrupted {
            return Err(Failure::Interrupted { done: outcome.done, left: outcome.left });
        }
        let steps = plan.steps.len();
        match outcome.failed.into_iter().next() {
            None => Ok(()),
            Some((_, _, _, crate::execute::StepError::Refused(refusal))) => Err(refusal.into()),
            Some((_, host, what, error)) => Err(Failure::Steps {
                failed: steps - outcome.done - outcome.left,
                done: outcome.done,
                host,
                what,
                why: error.to_string(),
                put_back: matches!(error, crate::execute::StepError::RolledBack { .. }),
            }),
        }
    }

    /// The Node that a pod is to probe from: the last that answers, for the first has what comes first anyway.
    pub fn probed_host(session: &Session, look: &Round) -> Option<Host> {
        let desired = &session.desired;
        let connected = desired.network.is_whole();
        let mut nodes = desired.hosts.iter().filter(|h| connected && h.is_node());
        nodes.rfind(|h| look.facts.host(&h.name).is_some()).cloned()
    }

    /// A pod on a Node asks DNS, and is deleted again.
    pub async fn probe(&self, session: &Session, node: &Host, target: &Target) -> Result<Vec<Check>, Failure> {
        session.sink.emit(Event::Phase { doing: "verifying, also from inside a pod".to_owned() });
        let access = self.state.access()?;
        let client = super::kubeconfig::client(session, &access).await?;
        let hactl = session.machines.get(&node.name).map(|m| m.hactl_path()).unwrap_or_default();
        let pause = target.hosts.get(&node.name).and_then(|t| {
            t.parts.iter().find_map(|p| match (&p.place, p.name.as_str()) {
                (crate::model::target::Place::Image { reference }, "pause") => Some(reference.clone()),
                _ => None,
            })
        });
        let dns = session.desired.dns_address();
        let ask = crate::kube::probe::Ask {
            node: node.name.clone(),
            image: pause.unwrap_or_default(),
            hactl_path: hactl,
            dns,
            name: "kubernetes.default.svc.cluster.local".to_owned(),
        };
        Ok(crate::kube::probe::probe(&client, &ask, tokio::time::Instant::now() + PROBE_WITHIN).await?)
    }

    /// Adds a span to a stage.
    pub fn count(&mut self, stage: Stage, since: Instant) {
        *self.stages.entry(stage).or_default() += since.elapsed();
    }

    /// Says how long each stage took and what was sent.
    pub fn tell_times(&self, session: &Session, begun: Instant) {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let counters: Vec<_> = session.machines.values().map(|m| m.counters()).collect();
        session.sink.emit(Event::Times {
            stages: self.stages.iter().map(|(stage, span)| (*stage, ms(*span))).collect(),
            total_ms: ms(begun.elapsed()),
            bytes_sent: counters.iter().map(|c| c.sent).sum(),
            execs: counters.iter().map(|c| c.execs).sum(),
        });
    }
}
