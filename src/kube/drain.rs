//! What a drain asks of the API besides evictions: to cordon and uncordon a Node, and which pods are on it.
//!
//! In: a Node's name. Out: whether the Node exists, its pods, and what changes among them while they leave.

use super::client::{Chunks, Request};
use super::{Client, KubeError, ObjectRef};
use crate::model::cordon::{CordonRecord, Holder};
use crate::model::names::HostName;
use crate::model::pod::PodFact;
use futures::stream::{BoxStream, StreamExt as _, try_unfold};
use reqwest::Method;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// After this time the API server ends a watch.
const WATCH_S: u32 = 300;
/// How long a watch may take to begin.
const WATCH_BEGINS: Duration = Duration::from_secs(5);
/// The largest event of a watch. etcd stores no object of this size.
const LARGEST_EVENT: usize = 8 << 20;

/// A change among the pods of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodChange {
    /// The pod is new on the Node, or differs.
    Is(PodFact),
    /// The pod with this uid does not exist any more.
    Gone(String),
}

/// How a Node was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordoned {
    /// It does not exist.
    NoNode,
    /// It is as it was.
    Before,
    /// It was changed just now.
    Now,
}

/// The changes, as they happen; ends with the watch, or after an error.
pub type PodChanges = BoxStream<'static, Result<PodChange, KubeError>>;

fn pods_of(host: &HostName) -> String {
    format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{host}")
}

impl Client {
    /// The pods of a Node, and the version of this list.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn pods(&self, host: &HostName, until: Instant) -> Result<(Vec<PodFact>, String), KubeError> {
        let list = self.raw(Method::GET, &pods_of(host), until).await?;
        let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        match list.get("items").and_then(Value::as_array) {
            Some(pods) => Ok((pods.iter().filter_map(PodFact::of).collect(), version)),
            None => Err(KubeError::Garbled { what: pods_of(host), why: "it is not a list".to_owned() }),
        }
    }

    /// What changes among the pods of a Node after this version of their list.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn pod_changes(&self, host: &HostName, version: &str) -> Result<PodChanges, KubeError> {
        let what = format!("watch the pods of {host}");
        let path = format!("{}&watch=true&resourceVersion={version}&timeoutSeconds={WATCH_S}", pods_of(host));
        let begun = timeout_at(Instant::now() + WATCH_BEGINS, self.http().stream(Request::get(&path))).await;
        let late = || KubeError::TimedOut { what: what.clone(), seen: "no answer".to_owned() };
        match begun.map_err(|_| late())?.map_err(|why| KubeError::Unreachable { what: what.clone(), why })? {
            (200, chunks) => Ok(changes(what, chunks)),
            (status, _) => Err(KubeError::Garbled { what, why: format!("status {status} instead of a watch") }),
        }
    }

    /// Cordons a Node for a holder, and records that. A Node that is already cordoned stays so after the last holder.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn cordon(&self, host: &HostName, by: &Holder, until: Instant) -> Result<Cordoned, KubeError> {
        self.change_cordon(host, until, |node| CordonRecord::begin(node, by)).await
    }

    /// Ends what a holder began; the last one uncordons the Node, unless it was cordoned before or `stays` so.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn uncordon(&self, host: &HostName, by: &Holder, stays: bool, until: Instant) -> Result<(), KubeError> {
        self.change_cordon(host, until, |node| CordonRecord::end(node, by, stays)).await.map(drop)
    }

    async fn change_cordon(
        &self,
        host: &HostName,
        until: Instant,
        patch: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Cordoned, KubeError> {
        let node = ObjectRef::node(host);
        loop {
            let Some(live) = self.get(&node, until).await? else { return Ok(Cordoned::NoNode) };
            let Some(patch) = patch(&live) else { return Ok(Cordoned::Before) };
            match self.merge(&node, &patch, until).await {
                Err(error) if error.is_conflict() && Instant::now() < until => {}
                Err(error) if error.is_not_found() => return Ok(Cordoned::NoNode),
                outcome => return outcome.map(|_| Cordoned::Now),
            }
        }
    }
}

/// The events of a watch, each on a line of its own.
fn changes(what: String, chunks: Chunks) -> PodChanges {
    let events = try_unfold((what, chunks, Vec::new()), |(what, mut chunks, mut buffer): (_, _, Vec<u8>)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                return Ok(Some((change(&what, &line)?, (what, chunks, buffer))));
            }
            if buffer.len() > LARGEST_EVENT {
                return Err(KubeError::Garbled { what, why: "an event is too large".to_owned() });
            }
            match chunks.next().await {
                Some(Ok(chunk)) => buffer.extend(chunk),
                Some(Err(why)) => return Err(KubeError::Unreachable { what, why }),
                None => return Ok(None),
            }
        }
    });
    events.boxed()
}

fn change(what: &str, line: &[u8]) -> Result<PodChange, KubeError> {
    let garbled = |why: String| KubeError::Garbled { what: what.to_owned(), why };
    let event: Value = serde_json::from_slice(line).map_err(|error| garbled(error.to_string()))?;
    match (event["type"].as_str(), PodFact::of(&event["object"])) {
        (Some("ADDED" | "MODIFIED"), Some(pod)) => Ok(PodChange::Is(pod)),
        (Some("DELETED"), Some(pod)) => Ok(PodChange::Gone(pod.uid)),
        (kind, _) => Err(garbled(format!("an event {}", kind.unwrap_or("without a type")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use serde_json::json;

    fn event(kind: &str, uid: &str) -> String {
        json!({"type": kind, "object": {"metadata": {"name": "web", "namespace": "shop", "uid": uid}}}).to_string()
            + "\n"
    }

    async fn read(pieces: &[&str]) -> Vec<Result<String, String>> {
        let chunks: Vec<_> = pieces.iter().map(|piece| Ok(piece.as_bytes().to_vec())).collect();
        let found = changes("watch".to_owned(), stream::iter(chunks).boxed()).map(|change| match change {
            Ok(PodChange::Is(pod)) => Ok(format!("is {}", pod.uid)),
            Ok(PodChange::Gone(uid)) => Ok(format!("gone {uid}")),
            Err(error) => Err(error.to_string()),
        });
        found.collect().await
    }

    #[tokio::test]
    async fn events_are_read_however_the_network_cuts_them() {
        let text = event("ADDED", "a") + &event("MODIFIED", "a") + &event("DELETED", "a");
        let all = ["is a", "is a", "gone a"].map(|text| Ok(text.to_owned()));
        assert_eq!(read(&[&text]).await, all);
        let (begin, end) = text.split_at(text.len() / 2);
        assert_eq!(read(&[begin, end]).await, all);
    }

    #[tokio::test]
    async fn a_version_that_the_server_forgot_ends_the_watch_with_an_error() {
        let expired = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
        let found = read(&[&event("ADDED", "a"), &format!("{expired}\n"), &event("ADDED", "b")]).await;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].as_ref().is_err_and(|why| why.contains("ERROR")), "{found:?}");
    }
}
