//! A Node as this process read or wrote it last: most changes of it need no read before.
//!
//! In: patches by how the Node is. Out: one request for each, if nobody else has changed the Node since. A patch is of the
//! version that is known, and "nothing to change" is said only of a Node that was read just now.

use super::{Client, Cordoned, KubeError, ObjectRef};
use crate::model::names::HostName;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What was read before this time is read again.
const RECENT: Duration = Duration::from_secs(5);

/// Before a Node that others change again and again is read once more.
const PAUSE: Duration = Duration::from_millis(100);

/// A Node, and how it was.
#[derive(Debug)]
pub struct KnownNode {
    name: HostName,
    last: Option<(Value, Instant)>,
}

impl KnownNode {
    /// One of which nothing is known yet.
    pub fn new(name: &HostName) -> Self {
        Self { name: name.clone(), last: None }
    }

    /// Its name.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// How it is now; `None`: it does not exist.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn read(&mut self, client: &Client, until: Instant) -> Result<Option<&Value>, KubeError> {
        let now = client.get(&ObjectRef::node(&self.name), until).await?;
        self.last = now.map(|now| (now, Instant::now()));
        Ok(self.last.as_ref().map(|(node, _)| node))
    }

    /// How it was a moment ago; `None`: it does not exist.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn recent(&mut self, client: &Client, until: Instant) -> Result<Option<&Value>, KubeError> {
        if self.last.as_ref().is_none_or(|(_, at)| at.elapsed() > RECENT) {
            self.read(client, until).await?;
        }
        Ok(self.last.as_ref().map(|(node, _)| node))
    }

    /// Changes the Node, or a part of it such as `/status`, by what `patch` makes of it; nothing if that is `None`.
    pub(super) async fn change(
        &mut self,
        client: &Client,
        (part, media): (&str, &'static str),
        until: Instant,
        patch: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Cordoned, KubeError> {
        loop {
            let known = self.last.take();
            let was_known = known.is_some();
            let live = match known {
                Some((live, _)) => live,
                None => match client.get(&ObjectRef::node(&self.name), until).await? {
                    Some(live) => live,
                    None => return Ok(Cordoned::NoNode),
                },
            };
            let Some(mut patch) = patch(&live) else {
                if was_known {
                    continue;
                }
                self.last = Some((live, Instant::now()));
                return Ok(Cordoned::Before);
            };
            if let Some(version) = live.pointer("/metadata/resourceVersion") {
                patch["metadata"]["resourceVersion"] = version.clone();
            }
            match client.change(&ObjectRef::node(&self.name), part, media, &patch, until).await {
                Ok(now) => {
                    self.last = Some((now, Instant::now()));
                    return Ok(Cordoned::Now);
                }
                Err(error) if error.is_conflict() && Instant::now() + PAUSE < until => {
                    if !was_known {
                        sleep(PAUSE).await;
                    }
                }
                Err(error) if error.is_not_found() => return Ok(Cordoned::NoNode),
                Err(error) => return Err(error),
            }
        }
    }
}
