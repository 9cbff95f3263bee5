//! Draining a Node: nothing new comes to it, and what can run elsewhere is evicted, as far as disruption budgets allow it and time is left.
//!
//! In: a Node's name. Out: done, or which pods are in the way and who says so. A Node that could not be drained stays cordoned: the same
//! command goes on where it was. What somebody else cordoned stays cordoned afterwards.

use super::act::{Actuator, failed};
use super::walk::StepError;
use crate::kube::{Client, KubeError, Leaving, ObjectRef};
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::model::node::CORDONED;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at the pods that are left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much earlier than the step itself is given up, it says what is in the way.
const LAST_WORD: Duration = Duration::from_secs(2);
/// So many pods are named.
const MOST_NAMED: usize = 5;

fn said(error: KubeError) -> StepError {
    failed(error.to_string())
}

fn node(name: &HostName) -> ObjectRef {
    ObjectRef::new("v1", "Node", None, name.as_str())
}

fn text<'a>(object: &'a Value, at: &str) -> &'a str {
    object.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// A pod as people name it.
fn called(pod: &Value) -> String {
    format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}

fn count(pods: usize) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

fn in_words(names: &[String]) -> String {
    let more = names.len().saturating_sub(MOST_NAMED);
    let named = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

impl Actuator {
    /// Cordons a Node and waits until what can run elsewhere has left it. One that is not there is empty.
    pub(super) async fn drain(&self, index: usize, host: &HostName, timeout: Duration) -> Result<(), StepError> {
        let client = self.client().await?;
        let until = Instant::now() + timeout.saturating_sub(LAST_WORD);
        self.alone(client, host, until).await?;
        if !cordon(client, host, until).await? {
            return Ok(());
        }
        loop {
            let leaving: Vec<Value> = pods(client, host, Leaving::Leaves, until).await?;
            if leaving.is_empty() {
                // One may have come between the look before and the cordon.
                return self.alone(client, host, until).await;
            }
            let mut in_the_way = Vec::new();
            for pod in &leaving {
                let ends = pod.pointer("/metadata/deletionTimestamp").is_some();
                let reference =
                    ObjectRef::new("v1", "Pod", Some(text(pod, "/metadata/namespace")), text(pod, "/metadata/name"));
                let evicted =
                    if ends { Ok(()) } else { client.evict(&reference, text(pod, "/metadata/uid"), until).await };
                match evicted {
                    Ok(()) => in_the_way.push(called(pod)),
                    Err(KubeError::Refused { status: 429, message, .. }) => {
                        in_the_way.push(format!("{} ({})", called(pod), message.trim_end_matches('.')));
                    }
                    Err(error) if error.is_transient() => in_the_way.push(format!("{} ({error})", called(pod))),
                    Err(KubeError::TimedOut { .. }) => in_the_way.push(called(pod)),
                    Err(error) => return Err(said(error)),
                }
            }
            if Instant::now() + LOOK_EVERY >= until {
                return Err(failed(format!(
                    "{} did not leave {host} within {} s: {}; the Node stays cordoned; run the same command again once they can leave, or \
                     `kubectl uncordon {host}` to give it up",
                    count(in_the_way.len()),
                    timeout.as_secs(),
                    in_words(&in_the_way)
                )));
            }
            self.sink.emit(Event::Waiting { step: index, on: format!("{} to leave", in_words(&in_the_way)) });
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// No pod is on the Node that would be lost with it.
    async fn alone(&self, client: &Client, host: &HostName, until: Instant) -> Result<(), StepError> {
        let lost: Vec<String> = pods(client, host, Leaving::Lost, until).await?.iter().map(called).collect();
        if lost.is_empty() {
            return Ok(());
        }
        Err(failed(format!(
            "{} on {host} would be lost, for nobody makes them again elsewhere: {}; delete them, or let a Deployment make them, then run \
             the same command again",
            count(lost.len()),
            in_words(&lost)
        )))
    }

    /// Lets pods come again where hactl kept them away.
    pub(super) async fn uncordon(&self, host: &HostName, timeout: Duration) -> Result<(), StepError> {
        let (client, until) = (self.client().await?, Instant::now() + timeout);
        let Some(live) = client.get(&node(host), until).await.map_err(said)? else { return Ok(()) };
        if live.pointer(CORDONED).is_none() {
            return Ok(());
        }
        let open = json!({"spec": {"unschedulable": null}, "metadata": {"annotations": {"hactl.dev/cordoned": null}}});
        client.merge(&node(host), &open, until).await.map(drop).map_err(said)
    }
}

/// The pods of a Node with which this happens.
async fn pods(client: &Client, host: &HostName, what: Leaving, until: Instant) -> Result<Vec<Value>, StepError> {
    let on = format!("fieldSelector=spec.nodeName%3D{host}");
    let all = client.list("/api/v1/pods", &on, until).await.map_err(said)?;
    Ok(all.into_iter().filter(|pod| Leaving::of(pod) == what).collect())
}

/// Keeps pods away from a Node, and notes that it was hactl; whether there is such a Node.
async fn cordon(client: &Client, host: &HostName, until: Instant) -> Result<bool, StepError> {
    let Some(live) = client.get(&node(host), until).await.map_err(said)? else { return Ok(false) };
    if live.pointer("/spec/unschedulable") != Some(&Value::Bool(true)) {
        let shut = json!({"spec": {"unschedulable": true}, "metadata": {"annotations": {"hactl.dev/cordoned": "to drain it"}}});
        client.merge(&node(host), &shut, until).await.map_err(said)?;
    }
    Ok(true)
}
