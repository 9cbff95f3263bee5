//! Requests that single pods leave their Nodes: each is brought to its end.
//!
//! In: an API client, until when this process may write, and the pace of all evictions. Out: evictions, and the status of
//! each request. The objects are the only memory: who takes over asks again.

use super::maintenance::soon;
use super::news::opened;
use super::occurrence::now_ms;
use crate::execute::Pace;
use crate::kube::{Change, Changes, Client, KubeError, next_change};
use crate::model::event::Sink;
use crate::model::eviction_request::{EvictionRequest, Outcome};
use futures::FutureExt as _;
use futures::future::join_all;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests that are looked at in one.
const AT_ONCE: usize = 8;
/// Those of one namespace among them.
const OF_ONE_NAMESPACE: usize = 4;
/// A pod that is held, or an error, is looked at again after this time.
const AGAIN: Duration = Duration::from_secs(15);
/// A pod that terminates.
const ENDS: Duration = Duration::from_secs(2);

/// What acts on requests.
pub(super) struct Requests<'a> {
    pub client: &'a Client,
    pub sink: &'a dyn Sink,
    pub holds: watch::Receiver<Instant>,
    pub pace: &'a Pace,
}

/// A request as the watch shows it.
struct Known {
    request: EvictionRequest,
    again: Instant,
    refusals: u32,
}

impl Requests<'_> {
    /// Acts until it is dropped.
    pub(super) async fn act(&self) {
        let mut all: BTreeMap<String, Known> = BTreeMap::new();
        let (mut live, mut changes): (Option<Changes>, _) = (None, self.open(Duration::ZERO).boxed());
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                begun = &mut changes, if live.is_none() => {
                    // It begins with each object as it is.
                    all.clear();
                    live = Some(begun);
                }
                change = next_change(&mut live) => match change {
                    Some(change) => changed(&mut all, &change),
                    None => {
                        live = None;
                        changes = self.open(LOOK_EVERY).boxed();
                    }
                },
                _ = looks.tick() => self.look(&mut all).await,
            }
        }
    }

    async fn open(&self, after: Duration) -> Changes {
        opened(after, || Box::pin(self.client.request_changes()), ("requests for evictions", self.sink)).await
    }

    /// Looks at those whose time has come.
    async fn look(&self, all: &mut BTreeMap<String, Known>) {
        let now = Instant::now();
        let mut due: Vec<_> = all.iter().filter(|(_, one)| one.again <= now && !one.request.is_over()).collect();
        // Nobody waits for ever because others ask for much.
        due.sort_by_key(|(_, one)| one.again);
        let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        due.retain(|(_, one)| {
            let count = of_namespace.entry(&one.request.namespace).or_default();
            *count += 1;
            *count <= OF_ONE_NAMESPACE
        });
        let looked =
            due.into_iter().take(AT_ONCE).map(async |(uid, known)| (uid.clone(), self.brought_on(known).await));
        for (uid, outcome) in join_all(looked).await {
            let Some(known) = all.get_mut(&uid) else { continue };
            match outcome {
                Ok((pause, is_refused)) => {
                    known.again = Instant::now() + pause;
                    known.refusals = if is_refused { known.refusals.saturating_add(1) } else { 0 };
                }
                Err(error) => {
                    known.again = Instant::now() + AGAIN;
                    let EvictionRequest { namespace, name, .. } = &known.request;
                    self.sink.warn(format!("the EvictionRequest {namespace}/{name} does not go on: {error}"));
                }
            }
        }
    }

    /// Brings a request on; returns when it is looked at again, and whether the API refused it.
    async fn brought_on(&self, known: &Known) -> Result<(Duration, bool), KubeError> {
        let request = &known.request;
        let pod = self.client.requested_pod(request, soon()).await?;
        let until = soon().min(*self.holds.borrow());
        let (outcome, pause, is_refused) = match (request.known(pod.as_ref()), pod) {
            (Some(outcome), Some(pod)) if pod.terminating => (outcome, ENDS, false),
            (Some(outcome @ Outcome::Awaited(_)), _) => (outcome, EvictionRequest::pause(known.refusals), true),
            (Some(outcome), _) => (outcome, AGAIN, false),
            (None, Some(pod)) => {
                let _turn = Pace::turn(Some(self.pace)).await;
                // A watch may be dead without a sign.
                if !self.client.is_requested(request, until).await? {
                    return Ok((AGAIN, false));
                }
                let answer = self.client.evict(&pod, until).await;
                self.pace.count(&answer);
                let (outcome, pause) = EvictionRequest::answered(&answer, known.refusals);
                let is_refused = matches!(&outcome, Outcome::Awaited(why) if !why.is_empty());
                (outcome, pause, is_refused)
            }
            (None, None) => (Outcome::Evicted("PodDeleted"), AGAIN, false),
        };
        if let Some(status) = request.status(&outcome, now_ms()) {
            self.client.report_request(request, &status, until).await?;
        }
        Ok((pause, is_refused))
    }
}

fn changed(all: &mut BTreeMap<String, Known>, change: &Change) {
    let (object, is_gone) = change.object();
    let Some(uid) = object.pointer("/metadata/uid").and_then(Value::as_str) else { return };
    // The schema lets no other objects in.
    match EvictionRequest::of(object).filter(|_| !is_gone) {
        None => drop(all.remove(uid)),
        Some(request) => {
            let before = all.remove(uid);
            // A change of its status is none of what it asks for.
            let same = before.filter(|before| before.request.generation == request.generation);
            let (again, refusals) = same.map_or((Instant::now(), 0), |before| (before.again, before.refusals));
            all.insert(uid.to_owned(), Known { request, again, refusals });
        }
    }
}
