//! What people learn of a maintenance while it lasts: a line where the process runs, and Events of the API at the Node
//! and at the object, as `kubectl describe` shows them.
//!
//! In: an occurrence. Out: the line and the Events. Nothing depends on Events: without them the status says the same.

use crate::kube::Client;
use crate::model::event::Sink;
use crate::model::maintenance::{API, KIND, Maintenance};
use crate::model::names::HostName;
use crate::model::timestamp::{millis, rfc3339};
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::Instant;

/// How long an Event may take to be created.
const CREATED_WITHIN: Duration = Duration::from_secs(5);
/// What creates the Events.
const COMPONENT: &str = "hactl-maintenance";

/// Something that happened to a maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Occurrence {
    /// Something is in the way of its begin.
    Waiting(String),
    /// Its drain was not complete and may not go on now; the Node is as it was before.
    HeldBack,
    /// The Node is cordoned.
    Cordoned,
    /// Others uncordoned the Node; it is cordoned again.
    Contested,
    /// The Node is cordoned, and its pods begin to leave.
    DrainStarted,
    /// A pod does not leave, and why.
    Blocked(String),
    /// A pod was deleted.
    Forced(String),
    /// Its node agent was asked to hold its static pods.
    StaticPodsAsked,
    /// All pods that have to leave have left.
    Drained,
    /// Its host was asked to reboot.
    RebootAsked,
    /// Its Node is ready by another boot, so many seconds later.
    Rebooted(i64),
    /// Its host is not back in time.
    Overdue(String),
    /// The drain ends without that, and why.
    GaveUp(String),
    /// The Node is as it was before.
    Completed,
}

impl Occurrence {
    fn reason(&self) -> &'static str {
        match self {
            Self::Waiting(_) => "MaintenanceWaiting",
            Self::HeldBack => "DrainHeldBack",
            Self::Cordoned => "NodeCordoned",
            Self::Contested => "CordonContested",
            Self::DrainStarted => "DrainStarted",
            Self::Blocked(_) => "EvictionBlocked",
            Self::Forced(_) => "EvictionForced",
            Self::StaticPodsAsked => "StaticPodsHeld",
            Self::Drained => "DrainCompleted",
            Self::RebootAsked => "RebootRequested",
            Self::Rebooted(_) => "NodeRebooted",
            Self::Overdue(_) => "RebootTimedOut",
            Self::GaveUp(_) => "DrainGaveUp",
            Self::Completed => "MaintenanceCompleted",
        }
    }

    fn is_warning(&self) -> bool {
        matches!(self, Self::Contested | Self::Blocked(_) | Self::Forced(_) | Self::GaveUp(_) | Self::Overdue(_))
    }

    /// What happened.
    fn words(&self, node: &HostName) -> String {
        match self {
            Self::Waiting(why) => format!("the maintenance of {node} waits: {why}"),
            Self::HeldBack => {
                format!("the drain of {node} is not complete and may not go on now, so it is undone")
            }
            Self::Cordoned => format!("{node} is cordoned"),
            Self::Contested => format!("others uncordoned {node} during its drain; it is cordoned again"),
            Self::DrainStarted => format!("{node} is cordoned, and its pods begin to leave"),
            Self::Blocked(why) => format!("{node}: {why}"),
            Self::Forced(pod) => format!("{node}: {pod} was deleted, because its eviction was refused for too long"),
            Self::StaticPodsAsked => format!("the node agent of {node} is asked to hold its static pods"),
            Self::Drained => format!("{node} is drained"),
            Self::RebootAsked => format!("{node} reboots"),
            Self::Rebooted(seconds) => format!("{node} is ready again, {seconds} s after it was asked to reboot"),
            Self::Overdue(why) => format!("{why}; it stays cordoned"),
            Self::GaveUp(why) => format!("the drain of {node} was given up, and the Node is as before: {why}"),
            Self::Completed => format!("the maintenance of {node} is over, and the Node is as before"),
        }
    }

    /// Whether a line where the process runs says it. A command shows the others by itself.
    fn has_line(&self) -> bool {
        !matches!(self, Self::DrainStarted | Self::Drained | Self::GaveUp(_) | Self::Completed)
    }

    /// As an Event about an object.
    fn event(&self, of: &Maintenance, about: &Value, at_ms: i64, number: u32) -> Value {
        let at = rfc3339(at_ms);
        let name = about["name"].as_str().unwrap_or_default();
        let kind = if about["kind"] == KIND { "nmt" } else { "node" };
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": "default", "name": format!("{kind}.{name}.{at_ms}.{number}")},
            "involvedObject": about,
            "reason": self.reason(),
            "message": format!("{KIND} {}: {}", of.name, self.words(&of.wanted.node)),
            "type": if self.is_warning() { "Warning" } else { "Normal" },
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        })
    }

    /// Says it where this process runs.
    pub(super) fn line(&self, sink: &dyn Sink, node: &HostName) {
        if self.is_warning() && self.has_line() {
            sink.warn(self.words(node));
        } else if self.has_line() {
            sink.note(self.words(node));
        }
    }

    /// Creates its Events. `number` tells those of one millisecond apart.
    pub(super) async fn publish(&self, client: &Client, sink: &dyn Sink, of: &Maintenance, number: u32) {
        let node = &of.wanted.node;
        let at_ms = now_ms();
        // `kubectl describe node` finds it by the name as UID, as those of the kubelet.
        let of_node = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node});
        let of_object = json!({"apiVersion": API, "kind": KIND, "name": of.name, "uid": of.uid});
        let until = Instant::now() + CREATED_WITHIN;
        for about in [of_node, of_object] {
            let event = self.event(of, &about, at_ms, number);
            if let Err(error) = client.create(&event, until).await {
                sink.note(format!("{node}: an Event could not be created: {error}"));
                return;
            }
        }
    }
}

/// The time, milliseconds since 1970.
pub fn now_ms() -> i64 {
    millis(OffsetDateTime::now_utc()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_the_maintenance_and_what_happened_and_warns_of_what_a_person_should_look_at() {
        let object = json!({"metadata": {"name": "disk", "uid": "u1"}, "spec": {"nodeName": "w3"}});
        let of = Maintenance::of(&object).unwrap();
        let about = json!({"apiVersion": "v1", "kind": "Node", "name": "w3", "uid": "w3"});
        let blocked = Occurrence::Blocked("shop/db-1 does not leave: its budget".to_owned());
        let event = blocked.event(&of, &about, 1_767_225_600_000, 7);
        assert_eq!(event["metadata"]["name"], "node.w3.1767225600000.7");
        assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("EvictionBlocked")));
        assert_eq!(event["message"], "NodeMaintenance disk: w3: shop/db-1 does not leave: its budget");
        assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(Occurrence::Cordoned.event(&of, &about, 0, 1)["type"], "Normal");
    }
}
