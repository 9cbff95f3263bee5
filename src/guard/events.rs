//! Events of Kubernetes about faults and repairs, so that `kubectl describe node` shows them: copies for people.
//!
//! In: what a guard reports, one occurrence after the other. Out: Events in the namespace `default`, where those of Nodes
//! are. Nothing depends on them: without an API server they wait for a while, and the journal has the same.

use super::api::servers;
use super::shared::Shared;
use crate::agent::Root;
use crate::kube::KubeError;
use crate::model::fault::{Fault, FaultKind};
use crate::model::healing::Policy;
use crate::model::names::HostName;
use crate::model::timestamp::rfc3339;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep};

/// So many occurrences wait for an API server; more are only in the journal.
pub(super) const WAITING: usize = 64;
/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(15);
/// API servers keep Events for an hour: one that waited for so long is not worth creating, milliseconds.
const OLD_MS: i64 = 3_600_000;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// A fault is reported.
    Fault,
    /// It is over.
    FaultCleared,
    /// A step begins.
    RepairStarted,
    /// It helped.
    Repaired,
    /// It failed.
    RepairFailed,
}

impl Reason {
    /// As in an Event.
    fn name(self) -> &'static str {
        match self {
            Self::Fault => "HactlFault",
            Self::FaultCleared => "HactlFaultCleared",
            Self::RepairStarted => "HactlRepairStarted",
            Self::Repaired => "HactlRepaired",
            Self::RepairFailed => "HactlRepairFailed",
        }
    }

    /// `Warning` or `Normal`.
    fn severity(self) -> &'static str {
        match self {
            Self::Fault | Self::RepairFailed => "Warning",
            Self::FaultCleared | Self::RepairStarted | Self::Repaired => "Normal",
        }
    }
}

/// Something that happened on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    /// The host.
    pub host: HostName,
    /// The kind of fault that it is about.
    pub kind: FaultKind,
    /// What.
    pub reason: Reason,
    /// A sentence without a full stop.
    pub message: String,
    /// When, milliseconds since 1970.
    pub at_ms: i64,
}

impl Occurrence {
    /// About a fault.
    pub fn of(fault: &Fault, reason: Reason, message: String, at_ms: i64) -> Self {
        Self { host: fault.host.clone(), kind: fault.kind, reason, message, at_ms }
    }

    /// As an Event about the Node. `kubectl describe node` finds it by the name as UID, as those of the kubelet.
    fn event(&self, by: &HostName) -> Value {
        let (node, at) = (self.host.as_str(), rfc3339(self.at_ms));
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": "default",
                "name": format!("{node}.{}.{}.{}", self.reason.name(), self.kind, self.at_ms).to_lowercase(),
            },
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
            "reason": self.reason.name(),
            "message": format!("{}: {}", self.kind, self.message),
            "type": self.reason.severity(),
            "source": {"component": "hactl-guard", "host": by},
            "reportingComponent": "hactl-guard",
            "reportingInstance": by,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        })
    }
}

/// Creates Events until the guard ends.
pub(super) async fn publish(shared: Arc<Shared>, root: Root, policy: Policy, mut occurrences: Receiver<Occurrence>) {
    while let Some(occurrence) = occurrences.recv().await {
        let event = occurrence.event(&shared.own.name);
        while shared.now().wall_ms.saturating_sub(occurrence.at_ms) < OLD_MS {
            match created(&root, &policy, &shared.own.name, &event).await {
                Ok(()) => break,
                Err(why) => {
                    shared.say_once(&format!("cannot create Events: {why}"));
                    // Another attempt would have the same answer.
                    if why.is_final() {
                        break;
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }
}

/// Creates an Event through the own API server, or another one.
async fn created(root: &Root, policy: &Policy, own: &HostName, event: &Value) -> Result<(), KubeError> {
    let mut outcome = Ok(());
    for server in servers(root, policy, own)? {
        outcome = server.create(event, Instant::now() + TIMEOUT).await.map(drop);
        // An earlier attempt may have been carried out although its answer was lost.
        if outcome.as_ref().map_or_else(KubeError::is_conflict, |()| true) {
            return Ok(());
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_the_node_the_fault_and_when_it_happened() {
        let occurrence = Occurrence {
            host: "cp1".parse().unwrap(),
            kind: FaultKind::EtcdFrozen,
            reason: Reason::Fault,
            message: "its etcd member runs but does not answer".to_owned(),
            at_ms: 1_767_225_600_000,
        };
        let event = occurrence.event(&"cp2".parse().unwrap());
        assert_eq!(event["metadata"]["name"], "cp1.hactlfault.etcdfrozen.1767225600000");
        assert_eq!(event["involvedObject"]["uid"], "cp1");
        assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("HactlFault")));
        assert_eq!(event["message"], "EtcdFrozen: its etcd member runs but does not answer");
        assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(event["source"]["host"], "cp2");
    }
}
