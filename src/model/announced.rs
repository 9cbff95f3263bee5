//! The conditions of a Node that announce its maintenance to others, by the names of KEP-5683.
//!
//! In: a Node as the API shows it, a maintenance, and its state. Out: the strategic merge patch of the Node's status. Only
//! conditions with the message of this maintenance are replaced or removed: those of others are theirs.

use super::maintenance::{KIND, Maintenance, State};
use super::timestamp::rfc3339;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The conditions that may be set, as KEP-5683 names them.
const ALL: [&str; 5] =
    ["MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress", "GracefulNodeShutdownInProgress"];
const PLANNED: (&str, &str) = (ALL[0], "AdminRequested");
const DRAINS: (&str, &str) = (ALL[1], "AdminRequested");
const DRAINED: (&str, &str) = (ALL[2], "DrainCompleted");
const IN_PROGRESS: (&str, &str) = (ALL[3], "AdminRequested");
const SHUTS_DOWN: (&str, &str) = (ALL[4], "NodeShutdown");

/// The conditions in a state, each with its reason.
fn conditions(state: State) -> &'static [(&'static str, &'static str)] {
    match state {
        State::Idle | State::Waiting | State::Cordoned | State::Completing => &[PLANNED],
        State::Draining | State::Blocked => &[PLANNED, DRAINS],
        State::Drained => &[DRAINED, IN_PROGRESS],
        State::Rebooting | State::Overdue => &[DRAINED, IN_PROGRESS, SHUTS_DOWN],
        State::Completed | State::Failed => &[],
    }
}

/// The maintenance that a condition names as its cause.
fn cause(condition: &Value) -> Option<&str> {
    let named = condition["message"].as_str()?.strip_prefix(KIND)?.strip_prefix(' ')?;
    Some(named.split_once(": ").map_or(named, |(name, _)| name))
}

/// The conditions of a Node that maintenances have set, and the name of each one's maintenance.
fn caused(node: &Value) -> impl Iterator<Item = (&Value, &str)> {
    let live = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let ours = live.filter(|one| ALL.iter().any(|kind| one["type"] == *kind));
    ours.filter_map(|one| Some((one, cause(one)?)))
}

/// The maintenances that conditions of a Node name.
pub fn announced_by(node: &Value) -> BTreeSet<String> {
    caused(node).map(|(_, name)| name.to_owned()).collect()
}

/// The patch that takes away the conditions of maintenances that do not exist any more; `None` if there are none.
pub fn forgotten(node: &Value, lives: impl Fn(&str) -> bool) -> Option<Value> {
    let lost = caused(node).filter(|(_, name)| !lives(name));
    let changes: Vec<Value> = lost.map(|(one, _)| json!({"$patch": "delete", "type": one["type"]})).collect();
    (!changes.is_empty()).then(|| json!({"status": {"conditions": changes}}))
}

/// The patch that makes a Node show this state of its maintenance; `None` if it does.
pub fn announcement(node: &Value, of: &Maintenance, state: State, now_ms: i64) -> Option<Value> {
    let own = format!("{KIND} {}", of.name);
    let message = match of.wanted.reason.as_str() {
        "" => own.clone(),
        reason => format!("{own}: {reason}"),
    };
    let live = node.pointer("/status/conditions").and_then(Value::as_array);
    let shown = |kind: &str| live.into_iter().flatten().find(|one| one["type"] == kind);
    let says = |kind: &str| shown(kind).and_then(|one| one["message"].as_str());
    // The reason may have been another one before.
    let is_ours = |text: &str| text.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "));
    let wanted = conditions(state);
    let mut changes = Vec::new();
    for kind in ALL {
        match wanted.iter().find(|(wanted, _)| *wanted == kind) {
            Some(_) if says(kind) == Some(message.as_str()) => {}
            Some((_, reason)) => {
                let now = rfc3339(now_ms);
                changes.push(json!({
                    "type": kind, "status": "True", "reason": reason, "message": message,
                    "lastTransitionTime": now, "lastHeartbeatTime": now,
                }));
            }
            None if says(kind).is_some_and(is_ours) => changes.push(json!({"$patch": "delete", "type": kind})),
            None => {}
        }
    }
    (!changes.is_empty()).then(|| json!({"status": {"conditions": changes}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maintenance(name: &str, reason: &str) -> Maintenance {
        let spec = json!({"nodeName": "w3", "stage": "Drain", "reason": reason});
        Maintenance::of(&json!({"metadata": {"name": name, "uid": "u"}, "spec": spec})).expect("it can be read")
    }

    /// What the API server makes of a patch: conditions are merged by their type.
    fn patched(node: &Value, patch: &Value) -> Value {
        let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for change in patch["status"]["conditions"].as_array().expect("a list") {
            conditions.retain(|one| one["type"] != change["type"]);
            if change.get("$patch").is_none() {
                conditions.push(change.clone());
            }
        }
        json!({"status": {"conditions": conditions}})
    }

    fn types(node: &Value) -> Vec<&str> {
        node["status"]["conditions"].as_array().expect("a list").iter().filter_map(|one| one["type"].as_str()).collect()
    }

    #[test]
    fn each_state_shows_its_conditions_and_at_the_end_there_are_none() {
        let (disk, mut node) = (maintenance("w3", "disk"), json!({"status": {"conditions": [{"type": "Ready"}]}}));
        for (state, shown) in [
            (State::Cordoned, vec!["Ready", "MaintenancePlanned"]),
            (State::Blocked, vec!["Ready", "MaintenancePlanned", "DrainInProgress"]),
            (State::Drained, vec!["Ready", "Drained", "MaintenanceInProgress"]),
            (State::Completed, vec!["Ready"]),
        ] {
            node = patched(&node, &announcement(&node, &disk, state, 0).expect("it differs"));
            assert_eq!(types(&node), shown, "{state:?}");
            assert_eq!(announcement(&node, &disk, state, 9), None, "{state:?}: it is shown already");
        }
    }

    #[test]
    fn another_reason_is_shown_and_its_conditions_are_removed_as_well() {
        let node = json!({"status": {"conditions": []}});
        let node =
            patched(&node, &announcement(&node, &maintenance("w3", "sdb"), State::Drained, 0).expect("it differs"));
        let other = maintenance("w3", "sdc");
        let shown = patched(&node, &announcement(&node, &other, State::Drained, 0).expect("it differs"));
        assert_eq!(shown["status"]["conditions"][0]["message"], "NodeMaintenance w3: sdc");
        let over = patched(&node, &announcement(&node, &other, State::Completed, 0).expect("it differs"));
        assert_eq!(types(&over), Vec::<&str>::new());
        assert_eq!(
            announcement(&node, &maintenance("w", "sdb"), State::Completed, 0),
            None,
            "a longer name is another one"
        );
    }

    #[test]
    fn conditions_of_others_are_not_removed() {
        let (disk, kernel) = (maintenance("disk", "sdb"), maintenance("kernel", ""));
        let node = json!({"status": {"conditions": []}});
        let node = patched(&node, &announcement(&node, &kernel, State::Cordoned, 0).expect("it differs"));
        assert_eq!(node["status"]["conditions"][0]["message"], "NodeMaintenance kernel");
        assert_eq!(announcement(&node, &disk, State::Completed, 0), None);
    }
}
