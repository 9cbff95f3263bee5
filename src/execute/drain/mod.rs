//! The drain of one cordoned Node: evicts the pods that can run elsewhere, and waits until they have left.
//!
//! In: a Node's name, an API client, what is asked for, and how long it may take. Out: how far the drain is while it
//! lasts; at the end what is to be said of the pods that stay, or the pods that did not leave and why. What is done
//! next is decided by `plan/drain`; here it is done: several requests at once, one watch for all pods of the Node, and
//! a list where there is no watch. A Node is drained only by a list.

mod budgets;
mod pace;
mod preview;
#[cfg(test)]
mod tests;
mod words;

use budgets::{BudgetNews, Budgets};
pub use pace::Pace;

use crate::kube::{BudgetChanges, Client, Cordoned, KnownNode, KubeError, ObjectRef, PodChange, PodChanges};
use crate::model::action::counted;
use crate::model::cordon::Holder;
use crate::model::drain_rule::DrainRules;
use crate::model::eviction::{BudgetFact, BudgetRef, Eviction};
use crate::model::maintenance::{DrainPreview, DrainProgress, DrainRequest};
use crate::model::names::HostName;
use crate::model::pod::PodView;
use crate::plan::drain::{Drain, Left, Next, spare};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Evictions and reads of budgets at once.
const AT_ONCE: usize = 8;
/// The interval of lists without a watch.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// The interval of lists beside a watch, which may be dead without a sign.
const LIST_BESIDE_WATCH: Duration = Duration::from_secs(15);
/// How long a budget may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// What was found longer ago is read again.
const RECENT: Duration = Duration::from_secs(5);
/// How long a check before a drain may take.
const CHECK_WITHIN: Duration = Duration::from_secs(60);
/// How long before its timeout a drain ends, so that it can say what is in the way.
const LAST_WORD: Duration = Duration::from_secs(2);
/// The interval at which is said how far the drain is.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Why a Node is not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The API cannot be used.
    #[error(transparent)]
    Api(#[from] KubeError),
    /// Pods would be lost. They are not evicted.
    #[error(
        "{pods} would be lost, because no controller recreates them elsewhere: {names}; delete them, or create them with \
         a Deployment, then run the same command again"
    )]
    Lost {
        /// How many, and on which Node.
        pods: String,
        /// Their names.
        names: String,
    },
    /// The control plane cannot spare the host.
    #[error("{0}")]
    NotSpared(String),
    /// Pods did not leave in time.
    #[error("{pods} within {within_s} s: {why}; the Node stays cordoned; {advice}")]
    TimedOut {
        /// How many, and which Node they did not leave.
        pods: String,
        /// The timeout, seconds.
        within_s: u64,
        /// Their names, and what each waits for.
        why: String,
        /// What to do next.
        advice: String,
    },
}

/// The control plane that a drain takes a host from.
#[derive(Debug, Clone, Copy)]
pub struct ControlPlane<'a> {
    /// The Nodes with a member of etcd or an API server.
    pub hosts: &'a [HostName],
    /// Whether a host may be taken from one that cannot spare any.
    pub allow_outage: bool,
}

/// What a drain has to do, as it was read before the Node was cordoned.
#[derive(Debug)]
pub struct Found {
    rules: DrainRules,
    /// Rules that cannot be read.
    notes: Vec<String>,
    pods: Vec<PodView>,
    at: Instant,
}

/// A drain that is asked for.
#[derive(Debug, Clone)]
pub struct Draining<'a> {
    /// The Node.
    pub host: &'a HostName,
    /// What keeps it cordoned.
    pub by: Holder,
    /// How pods leave.
    pub request: DrainRequest,
    /// How long it may take from now.
    pub within: Duration,
    /// For how long it has lasted already, in an earlier run.
    pub lasts: Duration,
    /// The control plane that the host belongs to, and may be taken from by the drain; `None`: nothing of it is taken.
    pub taken_from: Option<ControlPlane<'a>>,
    /// What limits the evictions of all drains of this process, if there are several.
    pub pace: Option<&'a Pace>,
}

impl Draining<'_> {
    /// Whether it would lose pods, or take a host that the control plane cannot spare. Changes nothing.
    ///
    /// # Errors
    /// [`DrainError::Lost`], [`DrainError::NotSpared`], or the API cannot be used.
    pub async fn check(&self, client: &Client) -> Result<Found, DrainError> {
        let until = Instant::now() + self.within.min(CHECK_WITHIN);
        let found = self.find(client, until).await?;
        none_is_lost(
            self.host,
            &Drain::by(found.rules.clone(), self.request.clone()).next(&found.pods, Duration::ZERO),
        )?;
        self.spare(client, until).await?;
        Ok(found)
    }

    async fn find(&self, client: &Client, until: Instant) -> Result<Found, DrainError> {
        let (rules, notes) = client.drain_rules(self.host, until).await?;
        let (pods, _) = client.pods(self.host, until).await?;
        Ok(Found { rules, notes, pods, at: Instant::now() })
    }

    /// Whether it would lose pods, by what was seen before.
    ///
    /// # Errors
    /// [`DrainError::Lost`].
    pub fn loses_none(&self, preview: &DrainPreview) -> Result<(), DrainError> {
        no_names(self.host, preview.lost.clone())
    }

    /// Whether the pod leaves that stands for the control plane of the host, if the control plane can spare that now.
    async fn spare(&self, client: &Client, until: Instant) -> Result<bool, DrainError> {
        let Some(ControlPlane { hosts, allow_outage }) = self.taken_from else { return Ok(false) };
        let (pods, budget) = client.quorum(until).await?;
        if allow_outage && budget.as_ref().is_some_and(BudgetFact::never) {
            return Ok(false);
        }
        spare(self.host, hosts, &pods, budget.as_ref()).map_err(DrainError::NotSpared)?;
        Ok(true)
    }

    /// Drains the Node by the rules of the cluster, and says meanwhile how far it is; returns what is to be said of the
    /// pods that stay. It begins with what a check has found just now, if there was one. `up` has the Node cordoned here, a
    /// maintenance has done so before. A Node that does not exist is empty. A Node that could not be drained stays
    /// cordoned, and the next drain continues.
    ///
    /// # Errors
    /// See [`DrainError`].
    pub async fn run(
        &self,
        client: &Client,
        found: Option<Found>,
        report: &(dyn Fn(DrainProgress) + Sync),
    ) -> Result<Vec<String>, DrainError> {
        let Self { host, within, .. } = *self;
        let until = Instant::now() + within.saturating_sub(LAST_WORD);
        let Found { rules, mut notes, pods, .. } = match found {
            Some(found) if found.at.elapsed() < RECENT => found,
            _ => self.find(client, until).await?,
        };
        let takes_host = match self.spare(client, until).await {
            // While its pod is there, its eviction is asked for until the budget allows it, and no other one before.
            Err(DrainError::NotSpared(_)) if pods.iter().any(|pod| pod.quorum) => true,
            spared => spared?,
        };
        let drain = Drain::by(rules, self.request.clone()).taking_host(takes_host);
        let may_wait = self.by != Holder::Up;
        if !may_wait {
            none_is_lost(host, &drain.next(&pods, Duration::ZERO))?;
        }
        let is_there =
            may_wait || client.cordon(&mut KnownNode::new(host), (&self.by, &[]), until).await? != Cordoned::NoNode;
        if is_there {
            let engine = Engine { client, host, within, until, may_wait, pace: self.pace };
            notes.extend(engine.run(drain, self.lasts, report).await?);
        }
        if takes_host {
            // Others may have become worse since its pod left.
            self.spare(client, Instant::now() + CHECK_WITHIN).await?;
        }
        Ok(notes)
    }
}

fn none_is_lost(host: &HostName, next: &Next<'_>) -> Result<(), DrainError> {
    no_names(host, next.lost.iter().map(|pod| pod.called()).collect())
}

fn no_names(host: &HostName, lost: Vec<String>) -> Result<(), DrainError> {
    if lost.is_empty() {
        return Ok(());
    }
    Err(DrainError::Lost { pods: format!("{} on {host}", counted(lost.len(), "pod")), names: words::listed(lost) })
}

/// The pods of the Node, by uid.
struct View {
    pods: BTreeMap<String, PodView>,
    changes: Option<PodChanges>,
    /// Whether this is a list, without changes since.
    listed: bool,
}

impl View {
    /// Until the next list.
    fn pause(&self) -> Duration {
        if self.changes.is_some() { LIST_BESIDE_WATCH } else { LIST_EVERY }
    }

    /// The next change; waits for ever without a watch.
    async fn changed(&mut self) -> Option<Result<PodChange, KubeError>> {
        match &mut self.changes {
            Some(changes) => changes.next().await,
            None => std::future::pending().await,
        }
    }
}

/// A request that ended.
enum Done {
    Listed(Result<View, KubeError>),
    Evicted(PodView, Eviction),
    Deleted(PodView, Eviction),
    Read(BudgetRef, Result<Option<BudgetFact>, KubeError>),
    Watched(BudgetRef, Result<BudgetChanges, KubeError>),
}

#[derive(Clone, Copy)]
struct Engine<'a> {
    client: &'a Client,
    host: &'a HostName,
    within: Duration,
    until: Instant,
    /// Whether a pod that would be lost is waited for, as one that cannot leave. `up` ends at once.
    may_wait: bool,
    pace: Option<&'a Pace>,
}

impl<'a> Engine<'a> {
    /// The pods now. `watches`: more is to come.
    async fn list(self, watches: bool) -> Result<View, KubeError> {
        let (pods, version) = self.client.pods(self.host, self.until).await?;
        // Without a watch it lists more often.
        let changes = if watches { self.client.pod_changes(self.host, &version).await.ok() } else { None };
        let pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        Ok(View { pods, changes, listed: true })
    }

    fn evict(self, pod: PodView) -> BoxFuture<'a, Done> {
        async move {
            let _turn = Pace::turn(self.pace).await;
            let answer = if pod.has_responders {
                self.client.evict_by_responders(&pod, self.host, self.until).await
            } else {
                self.client.evict(&pod, self.until).await
            };
            if let Some(pace) = self.pace {
                pace.count(&answer);
            }
            Done::Evicted(pod, answer)
        }
        .boxed()
    }

    /// Deletes a pod that cannot be evicted. Its own grace period applies.
    fn delete(self, pod: PodView) -> BoxFuture<'a, Done> {
        async move {
            let _turn = Pace::turn(self.pace).await;
            let place = ObjectRef::new("v1", "Pod", Some(&pod.namespace), &pod.name);
            let until = self.until.min(Instant::now() + READ_WITHIN);
            let answer = match self.client.delete_if(&place, Some(&pod.uid), None, until).await {
                Ok(true) => Eviction::Accepted,
                // Another pod has its name.
                Err(error) if error.is_conflict() => Eviction::Gone,
                Ok(false) => Eviction::Gone,
                Err(error) => Eviction::NoAnswer(error.to_string()),
            };
            Done::Deleted(pod, answer)
        }
        .boxed()
    }

    fn watch(self, budget: BudgetRef) -> BoxFuture<'a, Done> {
        async move {
            let begun = self.client.budget_changes(&budget).await;
            Done::Watched(budget, begun)
        }
        .boxed()
    }

    fn read(self, budget: BudgetRef) -> BoxFuture<'a, Done> {
        async move {
            let until = self.until.min(Instant::now() + READ_WITHIN);
            let found = self.client.budget(&budget, until).await;
            Done::Read(budget, found)
        }
        .boxed()
    }

    async fn run(
        self,
        mut drain: Drain,
        lasts: Duration,
        report: &(dyn Fn(DrainProgress) + Sync),
    ) -> Result<Vec<String>, DrainError> {
        let now = Instant::now();
        let begun = now.checked_sub(lasts).unwrap_or(now);
        // What is there now was there when the Node was cordoned: what comes later has come back.
        let mut view = self.list(true).await?;
        let (mut listing, mut list_at) = (false, now + view.pause());
        let mut said: Option<(Instant, DrainProgress)> = None;
        let (mut to_leave, mut forced) = (BTreeSet::new(), Vec::new());
        let mut budgets = Budgets::default();
        let mut work = FuturesUnordered::new();
        loop {
            drain.seen(view.pods.values());
            let next = drain.next(view.pods.values(), begun.elapsed());
            if !self.may_wait {
                none_is_lost(self.host, &next)?;
            }
            let is_empty = next.left.is_empty() && next.lost.is_empty();
            let leaving = next.left.iter().map(|left| left.pod).chain(next.lost.iter().copied());
            to_leave.extend(leaving.map(|pod| pod.uid.clone()));
            let progress = || words::progress(&next, to_leave.len(), &forced);
            if is_empty && view.listed {
                report(progress());
                return Ok(words::kept(self.host, &next.kept));
            }
            if Instant::now() >= self.until {
                none_is_lost(self.host, &next)?;
                return Err(self.timed_out(&next.left));
            }
            if is_empty {
                list_at = Instant::now();
            } else if said.as_ref().is_none_or(|(at, _)| at.elapsed() >= SAY_EVERY) {
                let progress = progress();
                if said.as_ref().is_none_or(|(_, before)| *before != progress) {
                    report(progress.clone());
                }
                said = Some((Instant::now(), progress));
            }
            let again = next.again.map_or(self.until, |again| begun + again);

            let room = AT_ONCE.saturating_sub(work.len());
            let read: Vec<BudgetRef> = next.read.into_iter().take(room).collect();
            let force: Vec<PodView> = next.force.into_iter().take(room - read.len()).cloned().collect();
            let ask: Vec<PodView> = next.ask.into_iter().take(room - read.len() - force.len()).cloned().collect();
            for budget in read {
                drain.reading(&budget);
                work.push(if budgets.may_watch(&budget) { self.watch(budget) } else { self.read(budget) });
            }
            for pod in force {
                drain.asked(&pod);
                work.push(self.delete(pod));
            }
            for pod in ask {
                drain.asked(&pod);
                work.push(self.evict(pod));
            }
            if !listing && list_at <= Instant::now() {
                listing = true;
                work.push(self.list(!is_empty).map(Done::Listed).boxed());
            }
            let wake = if listing { again } else { again.min(list_at) };
            tokio::select! {
                Some(done) = work.next() => match done {
                    Done::Evicted(pod, answer) => drain.answered(&pod, answer, begun.elapsed()),
                    Done::Deleted(pod, answer) => {
                        if answer == Eviction::Accepted {
                            forced.push(pod.called());
                        }
                        drain.answered(&pod, answer, begun.elapsed());
                    }
                    Done::Read(budget, Ok(found)) => drain.read(&budget, found, begun.elapsed()),
                    Done::Read(budget, Err(_)) => drain.not_read(&budget, begun.elapsed()),
                    Done::Watched(budget, begins) => {
                        drain.watching(&budget, begins.is_ok(), begun.elapsed());
                        budgets.begins(budget, begins.ok());
                    }
                    Done::Listed(list) => {
                        listing = false;
                        match list {
                            Ok(list) => view = list,
                            // At the timeout it is more useful to say which pods are in the way.
                            Err(error) if error.is_transient() || matches!(error, KubeError::TimedOut { .. }) => {}
                            Err(error) => return Err(error.into()),
                        }
                        list_at = Instant::now() + view.pause();
                    }
                },
                Some((budget, news)) = budgets.changes.next() => match news {
                    BudgetNews::Is(found) => drain.read(&budget, found, begun.elapsed()),
                    BudgetNews::Ended => {
                        drain.watching(&budget, false, begun.elapsed());
                        budgets.watched.remove(&budget);
                    }
                },
                change = view.changed() => {
                    view.listed = false;
                    match change {
                        Some(Ok(PodChange::Is(pod))) => drop(view.pods.insert(pod.uid.clone(), pod)),
                        Some(Ok(PodChange::Gone(uid))) => drop(view.pods.remove(&uid)),
                        Some(Err(_)) | None => {
                            view.changes = None;
                            list_at = list_at.min(Instant::now() + view.pause());
                        }
                    }
                }
                () = sleep_until(wake.min(self.until)) => {}
            }
        }
    }

    fn timed_out(&self, left: &[Left<'_>]) -> DrainError {
        if left.is_empty() {
            let what = format!("list the pods of {}", self.host);
            return KubeError::TimedOut { what, seen: "all have left, by their watch".to_owned() }.into();
        }
        let (pods, why) = words::in_the_way(left);
        DrainError::TimedOut {
            pods: format!("{pods} did not leave {}", self.host),
            within_s: self.within.as_secs(),
            why,
            advice: format!("{}, or give up with `kubectl uncordon {}`", words::advice(left), self.host),
        }
    }
}
