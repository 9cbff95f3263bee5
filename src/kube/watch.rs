//! A watch: what changes among objects, as an API server sends it.
//!
//! In: the path that lists them. Out: changes, until the watch ends. It may end at any time, and then the objects have
//! to be listed again.

use super::client::{Chunks, Request};
use super::{Client, KubeError};
use futures::stream::{BoxStream, StreamExt as _, try_unfold};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// After this time the API server ends a watch.
const LASTS_S: u32 = 300;
/// How long a watch may take to begin.
const BEGINS: Duration = Duration::from_secs(5);
/// The largest event of a watch. etcd stores no object of this size.
const LARGEST_EVENT: usize = 8 << 20;

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The object is new, or differs.
    Is(Value),
    /// The object does not exist any more; how it was.
    Gone(Value),
}

impl Change {
    /// The object as it is, or as it was when it was deleted; and whether it was.
    pub fn object(&self) -> (&Value, bool) {
        match self {
            Self::Is(object) => (object, false),
            Self::Gone(object) => (object, true),
        }
    }
}

/// The changes, as they happen; ends with the watch, or after an error.
pub type Changes = BoxStream<'static, Result<Change, KubeError>>;

impl Client {
    /// What changes after this version of a list. Without a version, each object comes first as it is. `query` selects
    /// the objects, as `fieldSelector=...`, or is empty.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn watch(&self, folder: &str, query: &str, version: Option<&str>) -> Result<Changes, KubeError> {
        let what = format!("watch {folder}");
        let mut path = format!("{folder}?watch=true&timeoutSeconds={LASTS_S}");
        for more in [query, &version.map_or_else(String::new, |version| format!("resourceVersion={version}"))] {
            if !more.is_empty() {
                path = format!("{path}&{more}");
            }
        }
        let begun = timeout_at(Instant::now() + BEGINS, self.http().stream(Request::get(&path))).await;
        let late = || KubeError::TimedOut { what: what.clone(), seen: "no answer".to_owned() };
        match begun.map_err(|_| late())?.map_err(|why| KubeError::Unreachable { what: what.clone(), why })? {
            (200, chunks) => Ok(changes(what, chunks)),
            (status, _) => {
                let message = "instead of a watch".to_owned();
                Err(KubeError::Refused { what, status, reason: String::new(), message })
            }
        }
    }
}

/// The events of a watch, each on a line of its own.
fn changes(what: String, chunks: Chunks) -> Changes {
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

fn change(what: &str, line: &[u8]) -> Result<Change, KubeError> {
    let garbled = |why: String| KubeError::Garbled { what: what.to_owned(), why };
    let mut event: Value = serde_json::from_slice(line).map_err(|error| garbled(error.to_string()))?;
    let object = event["object"].take();
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") if object.is_object() => Ok(Change::Is(object)),
        Some("DELETED") if object.is_object() => Ok(Change::Gone(object)),
        kind => Err(garbled(format!("an event {}", kind.unwrap_or("without a type")))),
    }
}

/// The next change; `None`: the watch has ended. Waits for ever without a watch.
pub async fn next_change(live: &mut Option<Changes>) -> Option<Change> {
    match live {
        Some(changes) => changes.next().await?.ok(),
        None => std::future::pending().await,
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
        let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
        let found = changes("watch".to_owned(), stream::iter(chunks).boxed()).map(|change| match change {
            Ok(Change::Is(object)) => Ok(format!("is {}", uid(&object))),
            Ok(Change::Gone(object)) => Ok(format!("gone {}", uid(&object))),
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
