//! What all actions need, and the course of a step: its precondition, the action, and the balancers around it.

use super::api::{ApiClient, ConnectApi};
use super::precondition;
use super::recoveries::Recoveries;
use super::walk::{Perform, StepError};
use crate::kube::KubeError;
use crate::model::desired::{Desired, Role};
use crate::model::event::{Event, Sink};
use crate::model::names::{Digest, HostName};
use crate::model::plan::{Precondition, Step};
use crate::model::target::{CertSpec, FileSet, Target};
use crate::observe::Queries;
use crate::protocol::{FilePut, Op, Reply};
use crate::transport::{Agent, Agents, HostError, Payload, Progress};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

/// Signs a request made on a host; the authority's key never leaves the administrator's side.
pub type Signing = Box<dyn Fn(&CertSpec, &str) -> Result<String, String> + Send + Sync>;
/// Finds the compressed, verified file of a blob.
pub type Blobs = Box<dyn Fn(&Digest) -> Result<PathBuf, String> + Send + Sync>;
/// Writes to the journal that etcd was born, or recovered, with its cluster id and revision.
pub type BootstrapRecord = Box<dyn Fn(&str, i64) -> Result<(), String> + Send + Sync>;

/// Deliveries under way at once to one host: one decompresses while the other arrives.
pub const DELIVERIES_PER_HOST: usize = 2;
/// Imports under way at once on one host: what is needed first is there first, and the disk has something to do meanwhile.
pub const IMPORTS_PER_HOST: usize = 2;

/// Everything the actions need.
pub struct Actuator {
    /// What is wanted.
    pub desired: Arc<Desired>,
    /// What each host should hold.
    pub target: Arc<Target>,
    /// The hosts that answered.
    pub machines: Agents,
    /// File contents by host and set.
    pub files: BTreeMap<HostName, BTreeMap<FileSet, Vec<FilePut>>>,
    /// What is asked of each host.
    pub queries: Queries,
    /// Signs leaf certificates.
    pub sign: Signing,
    /// Finds blobs.
    pub blob: Blobs,
    /// Writes to the journal that etcd was born, or recovered.
    pub record_bootstrap: BootstrapRecord,
    /// Where the snapshots of recoveries are kept on this side.
    pub recoveries: Recoveries,
    /// Makes API clients with a short-lived identity.
    pub api: Arc<dyn ConnectApi>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Slots for deliveries, per host.
    pub deliveries: BTreeMap<HostName, Arc<Semaphore>>,
    /// Slots for imports, per host.
    pub imports: BTreeMap<HostName, Arc<Semaphore>>,
    /// That the disk has the snapshot of a recovery, asked once for all hosts.
    pub synced: OnceCell<()>,
    /// The API client, made when the first API server serves.
    pub client: OnceCell<ApiClient>,
}

impl Actuator {
    /// So many fresh slots for each of these hosts.
    pub fn slots_for<'a>(hosts: impl Iterator<Item = &'a HostName>, each: usize) -> BTreeMap<HostName, Arc<Semaphore>> {
        hosts.map(|h| (h.clone(), Arc::new(Semaphore::new(each)))).collect()
    }

    /// An API client through the first control-plane host whose API server answers.
    ///
    /// # Errors
    /// When none does.
    pub async fn client(&self) -> Result<&ApiClient, StepError> {
        let connect = async {
            let mut last = failed("no control-plane host is connected".to_owned());
            for host in self.desired.with(Role::ControlPlane) {
                let Some(machine) = self.machines.get(&host.name) else { continue };
                match self.api.connect(&**machine, host.address, self.desired.api_port).await {
                    Ok(client) => return Ok(client),
                    Err(error) => last = failed(format!("{}: {error}", host.name)),
                }
            }
            Err(last)
        };
        self.client.get_or_try_init(|| connect).await
    }
}

/// How long a host may wait for something, milliseconds: a second less than we wait for its answer, so that it says what it saw last.
pub(super) fn within_ms(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).saturating_sub(1000)
}

/// A failed step without a log.
pub(super) fn failed(what: String) -> StepError {
    StepError::Failed { what, tail: Vec::new() }
}

pub(super) fn unexpected(reply: &Reply) -> StepError {
    let text = format!("{reply:?}");
    failed(format!("the host answered something else than was asked: {}", text.chars().take(80).collect::<String>()))
}

impl From<HostError> for StepError {
    fn from(error: HostError) -> Self {
        Self::Failed { what: error.to_string(), tail: error.tail().to_vec() }
    }
}

impl From<KubeError> for StepError {
    fn from(error: KubeError) -> Self {
        failed(error.to_string())
    }
}

/// A step that is being done: what all actions need, which step it is, and how long it may take.
#[derive(Clone, Copy)]
pub(super) struct Doing<'a> {
    actuator: &'a Actuator,
    pub index: usize,
    pub timeout: Duration,
}

impl Deref for Doing<'_> {
    type Target = Actuator;
    fn deref(&self) -> &Actuator {
        self.actuator
    }
}

impl Doing<'_> {
    /// The same with another timeout.
    pub fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The end of its timeout, if that begins now.
    pub fn until(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Says what the step waits for.
    pub fn waiting(&self, on: String) {
        self.sink.emit(Event::Waiting { step: self.index, on });
    }

    /// Has a host do one operation.
    pub async fn call(&self, host: &HostName, op: Op) -> Result<Reply, StepError> {
        self.call_with(host, op, Payload::None).await
    }

    /// The same, with data that is sent along.
    pub async fn call_with(&self, host: &HostName, op: Op, payload: Payload) -> Result<Reply, StepError> {
        let machine = self.machines.get(host).ok_or_else(|| failed(format!("{host} is not connected")))?;
        Ok(self.ask(&**machine, op, payload).await?)
    }

    /// Has a connected host do one operation, with the error as the host or the connection reports it.
    pub async fn ask(&self, machine: &dyn Agent, op: Op, payload: Payload) -> Result<Reply, HostError> {
        let watch = |progress: Progress| match progress {
            Progress::Waiting(on) => self.waiting(on),
            Progress::Sent { done, total } => self.sink.emit(Event::Moved { step: self.index, done, total }),
        };
        machine.call(op, payload, self.timeout, &watch).await
    }

    /// Checks what must still be true, and does the step without failing requests of clients.
    async fn perform(&self, step: &Step) -> Result<(), StepError> {
        let disturbed = self.disturbs(&step.action);
        match &step.precondition {
            Precondition::None => {}
            Precondition::Members { list } => precondition::members_are(self, list, &step.action).await?,
            Precondition::Tolerates { down } => {
                let member = disturbed.is_some();
                let what = if member { precondition::Disturbs::Member } else { precondition::Disturbs::ApiServer };
                precondition::tolerates(self, down, what, self.timeout).await?;
            }
        }
        let Some((host, away)) = disturbed else {
            self.act(step).await?;
            if let Some(host) = self.returns(&step.action) {
                self.pass_to(host).await;
            }
            return Ok(());
        };
        self.must_not_lead(host).await?;
        if !self.is_passed_over(host, away) {
            return self.act(step).await;
        }
        self.pass_over(host).await;
        let done = self.act(step).await;
        // One that is not back is left to the timer.
        if away.is_back(done.is_ok()) {
            self.pass_to(host).await;
        }
        done
    }
}

impl Actuator {
    fn doing(&self, index: usize, step: &Step) -> Doing<'_> {
        Doing { actuator: self, index, timeout: step.action.profile().timeout }
    }
}

impl Perform for Actuator {
    async fn perform(&self, index: usize, step: &Step) -> Result<(), StepError> {
        self.doing(index, step).perform(step).await
    }

    async fn conclude(&self, index: usize, step: &Step, result: Result<(), StepError>) -> Result<(), StepError> {
        let doing = self.doing(index, step);
        let ended = super::rollback::conclude(doing, step, result).await;
        // It runs again, by the earlier files.
        if matches!(ended, Err(StepError::RolledBack { .. }))
            && let Some((host, away)) = self.disturbs(&step.action)
            && self.is_passed_over(host, away)
        {
            doing.pass_to(host).await;
        }
        ended
    }
}
