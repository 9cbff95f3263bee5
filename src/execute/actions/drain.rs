//! Draining a Node: cordons it and evicts the Pods that can run elsewhere, within their disruption budgets and a
//! timeout.
//!
//! In: a Node's name. Out: done, or the Pods that block it and why. A Node that could not be drained stays cordoned,
//! and the same command resumes. A Node that was already cordoned stays so afterwards.

use crate::execute::act::{Doing, failed};
use crate::execute::walk::StepError;
use crate::kube::{Client, KubeError, Leaving, ObjectRef};
use crate::model::names::HostName;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// The interval at which the remaining pods are listed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long before the step's timeout it fails and names the blocking pods.
const LAST_WORD: Duration = Duration::from_secs(2);
/// The most pods that are named.
const MOST_NAMED: usize = 5;

fn text<'a>(object: &'a Value, at: &str) -> &'a str {
    object.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// Namespace and name of a pod.
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

impl Doing<'_> {
    /// Cordons a Node and waits until all pods that can run elsewhere have left it. A Node that does not exist is
    /// empty.
    pub(super) async fn drain(&self, host: &HostName) -> Result<(), StepError> {
        let client = self.client().await?;
        let until = Instant::now() + self.timeout.saturating_sub(LAST_WORD);
        self.alone(client, host, until).await?;
        if !client.cordon(host, until).await? {
            return Ok(());
        }
        loop {
            let leaving = client.pods(host, Leaving::Leaves, until).await?;
            if leaving.is_empty() {
                // One may have been scheduled between the first check and the cordon.
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
                    Err(error) => return Err(error.into()),
                }
            }
            if Instant::now() + LOOK_EVERY >= until {
                return Err(failed(format!(
                    "{} did not leave {host} within {} s: {}; the Node stays cordoned; run the same command again once \
                     they can leave, or give up with `kubectl uncordon {host}`",
                    count(in_the_way.len()),
                    self.timeout.as_secs(),
                    in_words(&in_the_way)
                )));
            }
            self.waiting(format!("{} to leave", in_words(&in_the_way)));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Fails if a pod on the Node would be lost with it.
    async fn alone(&self, client: &Client, host: &HostName, until: Instant) -> Result<(), StepError> {
        let lost: Vec<String> = client.pods(host, Leaving::Lost, until).await?.iter().map(called).collect();
        if lost.is_empty() {
            return Ok(());
        }
        Err(failed(format!(
            "{} on {host} would be lost, because no controller recreates them elsewhere: {}; delete them, or create \
             them with a Deployment, then run the same command again",
            count(lost.len()),
            in_words(&lost)
        )))
    }

    /// Uncordons a Node that hactl cordoned.
    pub(in crate::execute) async fn uncordon(&self, host: &HostName) -> Result<(), StepError> {
        Ok(self.client().await?.uncordon(host, self.until()).await?)
    }
}
