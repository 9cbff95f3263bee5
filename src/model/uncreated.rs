//! Pods of a DaemonSet or a Deployment that are not of its current version, and why they are not created.
//!
//! In: the object and its Events, as JSON. Out: numbers, and the words of the API. A quota, a webhook or another
//! admission plug-in that refuses pods shows only here: there is no pod that could name it.

use super::timestamp::parse_rfc3339;
use serde_json::Value;

/// A controller that could not create a pod tries again after 1000 s at the latest: an older Event has no meaning,
/// milliseconds.
const MEANS_MS: i64 = 1_200_000;
/// The most that is repeated of a message, characters.
const LONGEST: usize = 400;

fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// How many of its pods are of its current version, and how many are to be; `None`: all are, or it has none.
pub fn outdated(object: &Value) -> Option<(i64, i64)> {
    // An object without a status was never on an API server.
    object.get("status")?;
    let number = |at: &str| object.pointer(at).and_then(Value::as_i64).unwrap_or_default();
    let (now, wanted) = match object["kind"].as_str()? {
        "DaemonSet" => (number("/status/updatedNumberScheduled"), number("/status/desiredNumberScheduled")),
        "Deployment" => (number("/status/updatedReplicas"), number("/spec/replicas")),
        _ => return None,
    };
    let unseen = number("/status/observedGeneration") < number("/metadata/generation");
    (unseen || now < wanted).then_some((now, wanted))
}

/// Where the API lists the Events about pods of a DaemonSet that were not created. A Deployment has that in its status.
pub fn events_of(object: &Value) -> Option<String> {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let about = format!("involvedObject.kind%3DDaemonSet%2CinvolvedObject.name%3D{name}%2Creason%3DFailedCreate");
    (object["kind"] == "DaemonSet").then(|| format!("/api/v1/namespaces/{namespace}/events?fieldSelector={about}"))
}

/// Why pods of an object are not created, by its status and by the list of its Events.
pub fn why_uncreated(object: &Value, events: &Value, now_ms: i64) -> Option<String> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let fails = |c: &&Value| c["type"] == "ReplicaFailure" && c["status"] == "True";
    let own = conditions.and_then(|all| all.iter().find(fails)).map(|condition| text(condition, "/message"));
    let recent = events["items"].as_array().into_iter().flatten().filter_map(|event| {
        let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        let last_ms = times.iter().filter_map(|at| parse_rfc3339(text(event, at))).max()?;
        (now_ms.saturating_sub(last_ms) < MEANS_MS).then(|| (last_ms, text(event, "/message")))
    });
    let why = own.or_else(|| recent.max_by_key(|(last_ms, _)| *last_ms).map(|(_, message)| message))?;
    let why = why.strip_prefix("Error creating: ").unwrap_or(why);
    (!why.is_empty()).then(|| why.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_event_of_a_daemon_set_says_why_its_pods_are_not_created_unless_it_is_old() {
        let set = json!({"kind": "DaemonSet", "metadata": {"name": "kube-proxy", "namespace": "kube-system"}});
        let path = events_of(&set).expect("it is a DaemonSet");
        assert!(path.starts_with("/api/v1/namespaces/kube-system/events?fieldSelector="), "{path}");
        assert!(path.contains("involvedObject.name%3Dkube-proxy"), "{path}");
        let now_ms = parse_rfc3339("2026-01-01T12:00:00Z").expect("a timestamp");
        let event = |at: &str, message: &str| json!({"lastTimestamp": at, "message": message});
        let says = |events: Vec<Value>| why_uncreated(&set, &json!({"items": events}), now_ms);
        let first = event("2026-01-01T11:58:00Z", "Error creating: a webhook said no");
        let quota = event("2026-01-01T11:59:00Z", "Error creating: pods \"x\" is forbidden: failed quota: q");
        assert_eq!(says(vec![quota, first]).as_deref(), Some("pods \"x\" is forbidden: failed quota: q"));
        assert_eq!(says(vec![event("2026-01-01T11:30:00Z", "it is over")]), None);
        assert_eq!(says(vec![]), None);
        let series = json!({"series": {"lastObservedTime": "2026-01-01T11:59:59.5Z"}, "lastTimestamp": null,
            "metadata": {"creationTimestamp": "2026-01-01T11:00:00Z"}, "message": "still"});
        assert_eq!(says(vec![series]).as_deref(), Some("still"));
    }

    #[test]
    fn a_deployment_says_in_its_status_why_its_pods_are_not_created() {
        let deployment = |status: &str| {
            json!({"kind": "Deployment", "status": {"conditions": [
                {"type": "Available", "status": "True", "message": "it is"},
                {"type": "ReplicaFailure", "status": status, "message": "pods \"coredns-x\" is forbidden"},
            ]}})
        };
        assert_eq!(events_of(&deployment("True")), None);
        let says = |status: &str| why_uncreated(&deployment(status), &Value::Null, 0);
        assert_eq!(says("True").as_deref(), Some("pods \"coredns-x\" is forbidden"));
        assert_eq!(says("False"), None);
    }
}
