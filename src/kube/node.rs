//! Labels and taints of Nodes. The kubelet and others label and taint a Node too. So an annotation of the Node records
//! which labels and taints are from the inventory: hactl removes those that the inventory no longer has, from any
//! machine, and never touches others.
//!
//! In: the Node as it should be and as it is. Out: the one patch between them.

use crate::model::labels::{OWNS, annotation};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Keys of labels, and `key:Effect` of taints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owned {
    labels: BTreeSet<String>,
    taints: BTreeSet<String>,
}

/// The labels and taints that an earlier run set. An annotation that cannot be read counts as empty: nothing is
/// removed.
fn owned(live: &Value) -> Owned {
    let text = annotation(live, OWNS).and_then(Value::as_str).unwrap_or_default();
    let memory: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let list = |key: &str| {
        let items = memory.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    Owned { labels: list("labels"), taints: list("taints") }
}

fn taint_key(taint: &Value) -> String {
    let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default();
    format!("{}:{}", text("key"), text("effect"))
}

fn taints(node: &Value) -> Vec<Value> {
    node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The merge patch that sets what is desired and removes what an earlier run set and the inventory no longer has. It is
/// bound to this resourceVersion: taints are replaced as a whole, so a Node that has changed meanwhile is a conflict.
pub(super) fn patch(desired: &Value, live: &Value) -> Value {
    let owned = owned(live);
    let wanted = taints(desired);
    let wanted_keys: BTreeSet<String> = wanted.iter().map(taint_key).collect();
    let mut kept = taints(live);
    kept.retain(|taint| !owned.taints.contains(&taint_key(taint)) || wanted_keys.contains(&taint_key(taint)));
    for taint in wanted {
        let value = |taint: &Value| taint.get("value").and_then(Value::as_str).unwrap_or_default().to_owned();
        match kept.iter_mut().find(|other| taint_key(other) == taint_key(&taint)) {
            Some(same) if value(same) == value(&taint) => {}
            Some(other) => *other = taint,
            None => kept.push(taint),
        }
    }
    let mut labels = desired.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    for gone in &owned.labels {
        if labels.get(gone).is_none() {
            labels[gone] = Value::Null;
        }
    }
    let mut patch = json!({
        "metadata": {
            "resourceVersion": live.pointer("/metadata/resourceVersion"),
            "labels": labels,
            "annotations": desired.pointer("/metadata/annotations"),
        },
    });
    if kept != taints(live) {
        patch["spec"] = json!({"taints": kept});
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::merge_patch::merged;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn node(labels: &[(&str, &str)], taints: &[(&str, &str, &str)], owns: Option<Value>) -> Value {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let taints: Vec<Value> = taints.iter().map(|(k, v, e)| json!({"key": k, "value": v, "effect": e})).collect();
        let mut node = json!({"metadata": {"resourceVersion": "7", "labels": labels}, "spec": {"taints": taints}});
        if let Some(owns) = owns {
            node["metadata"]["annotations"] = json!({"hactl.dev/owns": owns.to_string()});
        }
        node
    }

    #[test]
    fn values_dropped_from_the_inventory_are_removed_and_values_of_others_stay() {
        let owns = json!({"labels": ["disk", "old"], "taints": ["gpu:NoSchedule"]});
        let live = node(
            &[("disk", "hdd"), ("old", "x"), ("theirs", "y")],
            &[
                ("gpu", "yes", "NoSchedule"),
                ("node.kubernetes.io/unschedulable", "", "NoSchedule"),
                ("by-hand", "", "NoExecute"),
            ],
            Some(owns),
        );
        let desired = node(&[("disk", "nvme")], &[], Some(json!({"labels": ["disk"], "taints": []})));
        let after = merged(&live, &patch(&desired, &live));
        assert_eq!(after.pointer("/metadata/labels"), Some(&json!({"disk": "nvme", "theirs": "y"})));
        let left: Vec<String> = taints(&after).iter().map(taint_key).collect();
        assert_eq!(left, ["node.kubernetes.io/unschedulable:NoSchedule", "by-hand:NoExecute"]);
    }

    #[test]
    fn a_taint_with_another_value_is_replaced_and_the_patch_is_of_one_version_of_the_node() {
        let live = node(&[], &[("gpu", "old", "NoSchedule")], None);
        let desired =
            node(&[], &[("gpu", "new", "NoSchedule")], Some(json!({"labels": [], "taints": ["gpu:NoSchedule"]})));
        let patch = patch(&desired, &live);
        assert_eq!(patch.pointer("/metadata/resourceVersion"), Some(&json!("7")));
        assert_eq!(taints(&merged(&live, &patch))[0]["value"], "new");
    }

    #[test]
    fn taints_that_are_right_are_not_written_again() {
        let live = node(&[], &[("gpu", "yes", "NoSchedule")], None);
        let desired =
            node(&[], &[("gpu", "yes", "NoSchedule")], Some(json!({"labels": [], "taints": ["gpu:NoSchedule"]})));
        assert_eq!(patch(&desired, &live).get("spec"), None);
    }

    fn names() -> impl Strategy<Value = BTreeSet<String>> {
        proptest::collection::btree_set("[a-f]", 0..5)
    }

    proptest! {
        #[test]
        fn nothing_of_others_is_ever_touched_and_a_patched_node_needs_no_patch(
            ours in names(), theirs in names(), wanted in names(),
        ) {
            let text = |set: &BTreeSet<String>| set.iter().map(|n| (n.clone(), "v".to_owned())).collect::<Vec<_>>();
            let keys = |set: &BTreeSet<String>| set.iter().map(|n| format!("{n}:NoSchedule")).collect::<Vec<_>>();
            let with = |all: &BTreeSet<String>, own: &BTreeSet<String>| {
                let all = text(all);
                let labels: Vec<_> = all.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                let taints: Vec<_> = all.iter().map(|(k, _)| (k.as_str(), "", "NoSchedule")).collect();
                node(&labels, &taints, Some(json!({"labels": own, "taints": keys(own)})))
            };
            let live = with(&ours.union(&theirs).cloned().collect(), &ours);
            let desired = with(&wanted, &wanted);
            let after = merged(&live, &patch(&desired, &live));
            let left: BTreeSet<String> = after["metadata"]["labels"].as_object().unwrap().keys().cloned().collect();
            let expected: BTreeSet<String> = theirs.difference(&ours).chain(&wanted).cloned().collect();
            prop_assert_eq!(&left, &expected);
            let tainted: BTreeSet<String> = taints(&after).iter().map(taint_key).collect();
            prop_assert_eq!(tainted, keys(&expected).into_iter().collect::<BTreeSet<_>>());
            prop_assert_eq!(merged(&after, &patch(&desired, &after)), after.clone());
            prop_assert_eq!(super::super::drift(&desired, &after), None);
        }
    }
}
