//! Running plans: the actuator, the walk, the probe Pod, and the times reported at the end.
//!
//! In: a round and its plan. Out: all steps done, or the first failure.

use super::{Authority, Failure, Fleet, Round};
use crate::execute::{Actuator, ApiClient, ConnectApi, walk};
use crate::model::check::Check;
use crate::model::desired::{Host, Role};
use crate::model::event::Event;
use crate::model::plan::{Plan, Stage};
use crate::model::target::Target;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Timeout of the probe Pod, from creation to deletion.
const PROBE_WITHIN: Duration = Duration::from_secs(90);

/// Runs plans and measures the times.
pub struct Run {
    authority: Arc<dyn Authority>,
    stages: BTreeMap<Stage, Duration>,
}

impl Run {
    /// For plans with this `Authority`.
    pub fn new(authority: Arc<dyn Authority>) -> Self {
        Self { authority, stages: BTreeMap::new() }
    }

    fn actuator(&self, fleet: &Fleet, round: Round) -> Result<Actuator, Failure> {
        let (signer, store, journal) =
            (Arc::clone(&self.authority), Arc::clone(&self.authority), Arc::clone(&self.authority));
        let desired = Arc::clone(&fleet.desired);
        Ok(Actuator {
            desired: Arc::clone(&fleet.desired),
            target: Arc::clone(&round.target),
            machines: fleet.machines.clone(),
            files: round.files,
            queries: round.queries,
            sign: Box::new(move |spec, request| signer.sign(spec, request)),
            blob: Box::new(move |digest| store.artifact(&desired, digest)),
            record_bootstrap: Box::new(move |cluster, revision| journal.record(cluster, revision)),
            recoveries: self.authority.recoveries(),
            api: self.authority.access()?,
            sink: Arc::clone(&fleet.sink),
            deliveries: Actuator::slots_for(fleet.machines.keys(), crate::execute::DELIVERIES_PER_HOST),
            imports: Actuator::slots_for(fleet.machines.keys(), crate::execute::IMPORTS_PER_HOST),
            synced: OnceCell::new(),
            client: OnceCell::new(),
        })
    }

    /// Runs a plan to its end, or to the first interrupt.
    ///
    /// # Errors
    /// A step failed or was refused.
    pub async fn run(&mut self, fleet: &Fleet, round: Round, plan: &Plan) -> Result<(), Failure> {
        let actuator = Arc::new(self.actuator(fleet, round)?);
        let outcome = walk(plan, &actuator, &fleet.sink, &fleet.stop, fleet.at_once).await;
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
                rolled_back: matches!(error, crate::execute::StepError::RolledBack { .. }),
            }),
        }
    }

    /// The Node from which a Pod probes: the last that answers, because the first gets most Pods anyway.
    pub fn probed_host(fleet: &Fleet, round: &Round) -> Option<Host> {
        let desired = &fleet.desired;
        let connected = desired.network.is_whole();
        let mut nodes = desired.hosts.iter().filter(|h| connected && h.is_node());
        nodes.rfind(|h| round.facts.host(&h.name).is_some()).cloned()
    }

    /// Queries DNS from a Pod on a Node, and deletes the Pod.
    ///
    /// # Errors
    /// The API cannot be used.
    pub async fn probe(&self, fleet: &Fleet, node: &Host, target: &Target) -> Result<Vec<Check>, Failure> {
        fleet.sink.emit(Event::Phase { doing: "verifying, also from inside a Pod".to_owned() });
        let access = self.authority.access()?;
        let client = api_client(fleet, &*access).await?;
        let hactl = fleet.machines.get(&node.name).map(|m| m.hactl_path()).unwrap_or_default();
        let pause = target.hosts.get(&node.name).and_then(|t| {
            t.parts.iter().find_map(|p| match (&p.place, p.name.as_str()) {
                (crate::model::target::Place::Image { reference }, "pause") => Some(reference.clone()),
                _ => None,
            })
        });
        let dns = fleet.desired.dns_address();
        let ask = crate::kube::probe::Ask {
            node: node.name.clone(),
            image: pause.unwrap_or_default(),
            hactl_path: hactl,
            dns,
            name: "kubernetes.default.svc.cluster.local".to_owned(),
        };
        Ok(crate::kube::probe::probe(&client, &ask, tokio::time::Instant::now() + PROBE_WITHIN).await?)
    }

    /// Adds a duration to a stage.
    pub fn count(&mut self, stage: Stage, since: Instant) {
        *self.stages.entry(stage).or_default() += since.elapsed();
    }

    /// Reports how long each stage took and how much was sent.
    pub fn tell_times(&self, fleet: &Fleet, begun: Instant) {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let counters: Vec<_> = fleet.machines.values().map(|m| m.counters()).collect();
        fleet.sink.emit(Event::Times {
            stages: self.stages.iter().map(|(stage, span)| (*stage, ms(*span))).collect(),
            total_ms: ms(begun.elapsed()),
            bytes_sent: counters.iter().map(|c| c.sent).sum(),
            execs: counters.iter().map(|c| c.execs).sum(),
        });
    }
}

/// An API client through the first control-plane host whose API server answers.
///
/// # Errors
/// No API server answers.
pub async fn api_client(fleet: &Fleet, access: &dyn ConnectApi) -> Result<ApiClient, Failure> {
    let mut last = None;
    for host in fleet.desired.with(Role::ControlPlane) {
        let Some(machine) = fleet.machines.get(&host.name) else { continue };
        match access.connect(&**machine, host.address, fleet.desired.api_port).await {
            Ok(client) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Failure::NoHost { hosts: vec![] }, Failure::Api))
}

/// Clients of all API servers that answer, at least of one.
///
/// # Errors
/// None answers.
pub async fn api_clients(fleet: &Fleet, access: &dyn ConnectApi) -> Result<Vec<ApiClient>, Failure> {
    let hosts = fleet.desired.with(Role::ControlPlane);
    let machines = hosts.filter_map(|host| Some((host, fleet.machines.get(&host.name)?)));
    let asked = machines.map(|(host, machine)| access.connect(&**machine, host.address, fleet.desired.api_port));
    let (mut clients, mut last) = (Vec::new(), None);
    for answer in futures::future::join_all(asked).await {
        match answer {
            Ok(client) => clients.push(client),
            Err(error) => last = Some(error),
        }
    }
    if clients.is_empty() {
        return Err(last.map_or_else(|| Failure::NoHost { hosts: vec![] }, Failure::Api));
    }
    Ok(clients)
}
