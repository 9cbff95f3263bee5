//! Compares a live object with the one that was applied: every desired field must be there; other fields are ignored.
//!
//! In: the desired object and the live one. Out: the first path that differs. Changes that the API server itself makes
//! are no drift: defaults, omitted empty fields, other spellings of quantities and ports. Everything that another apply
//! would fix is drift.

use base64::Engine as _;
use serde_json::{Map, Value};

/// Lists whose elements have a key: the server merges them, and others may add elements.
const KEYED: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("env", &["name"]),
    ("ports", &["name"]),
];

/// Suffixes of quantities, longest first.
const UNITS: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
];

/// Fields that only the API server sets.
const NOT_DESIRED: &[&str] = &[
    "/status",
    "/metadata/managedFields",
    "/metadata/resourceVersion",
    "/metadata/uid",
    "/metadata/generation",
    "/metadata/creationTimestamp",
];

/// The first path at which `live` differs from `desired`.
pub fn drift(desired: &Value, live: &Value) -> Option<String> {
    let desired = with_data(desired);
    differs(&desired, live, "")
}

/// `stringData` is write-only; the server stores it as `data`.
fn with_data(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(map) = object.as_object_mut() else { return object };
    if let Some(Value::Object(texts)) = map.remove("stringData") {
        let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
        for (name, text) in texts {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            if let Some(data) = data.as_object_mut() {
                data.insert(name, Value::String(encoded));
            }
        }
    }
    object
}

fn differs(desired: &Value, live: &Value, path: &str) -> Option<String> {
    if NOT_DESIRED.contains(&path) {
        return None;
    }
    let here = || Some(if path.is_empty() { "/".to_owned() } else { path.to_owned() });
    match (desired, live) {
        (Value::Object(want), Value::Object(have)) => want.iter().find_map(|(key, value)| {
            let below = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
            match have.get(key) {
                Some(live) => differs(value, live, &below),
                None if is_empty(value) || NOT_DESIRED.contains(&below.as_str()) => None,
                None => Some(below),
            }
        }),
        (Value::Array(want), Value::Array(have)) => {
            let list = path.rsplit('/').next().unwrap_or_default();
            // Several parties add taints to a Node; the server replaces the list as a whole.
            let of_node = (path == "/spec/taints").then_some(&["key", "effect"] as &[&str]);
            let keys = of_node.or_else(|| KEYED.iter().find(|(name, _)| *name == list).map(|(_, keys)| *keys));
            match keys.filter(|keys| want.iter().all(|item| keys.iter().all(|key| item.get(key).is_some()))) {
                Some(keys) => want.iter().enumerate().find_map(|(at, item)| {
                    let below = format!("{path}/{at}");
                    let same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
                    match have.iter().find(same) {
                        Some(live) => differs(item, live, &below),
                        None => Some(below),
                    }
                }),
                None if want.len() != have.len() => here(),
                None => {
                    want.iter().zip(have).enumerate().find_map(|(at, (w, h))| differs(w, h, &format!("{path}/{at}")))
                }
            }
        }
        (want, have) if want == have => None,
        (want, have) if is_empty(want) && is_empty(have) => None,
        (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text))
            if *text == number.to_string() =>
        {
            None
        }
        (want, have) if is_quantity(path) => match (quantity(want), quantity(have)) {
            (Some(want), Some(have)) if (want - have).abs() <= want.abs() * 1e-12 => None,
            _ => here(),
        },
        _ => here(),
    }
}

/// Values that the server omits when it writes an object.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(Value::is_null),
    }
}

fn is_quantity(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let parent = parts.len().checked_sub(2).and_then(|at| parts.get(at)).copied().unwrap_or_default();
    matches!(parent, "requests" | "limits" | "capacity" | "hard" | "max" | "min" | "default" | "defaultRequest")
        || parts.last() == Some(&"sizeLimit")
}

/// A Kubernetes quantity: `100m`, `0.1`, `1Gi`, `1e3`.
fn quantity(value: &Value) -> Option<f64> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    if let Ok(plain) = text.parse::<f64>() {
        return Some(plain);
    }
    UNITS.iter().find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn daemon_set() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "flannel", "namespace": "kube-flannel", "labels": {"app": "flannel"}, "creationTimestamp": null},
            "spec": {"template": {"spec": {
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "flannel", "image": "flannel:v1",
                    "resources": {"requests": {"cpu": "0.1", "memory": "1024Mi"}, "limits": {}},
                    "securityContext": {"privileged": false},
                    "volumeMounts": [{"name": "run", "mountPath": "/run/flannel", "readOnly": false}],
                    "readinessProbe": {"httpGet": {"port": 8287}},
                }],
            }}},
        })
    }

    fn live_daemon_set() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "flannel", "namespace": "kube-flannel", "labels": {"app": "flannel"}, "uid": "x",
                "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 2, "annotations": {"deprecated.daemonset.template.generation": "2"}},
            "spec": {"revisionHistoryLimit": 10, "template": {"spec": {
                "tolerations": [{"operator": "Exists"}], "dnsPolicy": "ClusterFirst",
                "containers": [{
                    "name": "flannel", "image": "flannel:v1", "terminationMessagePath": "/dev/termination-log",
                    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                    "securityContext": {"privileged": false},
                    "volumeMounts": [{"name": "run", "mountPath": "/run/flannel"}, {"name": "added", "mountPath": "/added"}],
                    "readinessProbe": {"httpGet": {"port": 8287, "scheme": "HTTP", "path": "/"}, "timeoutSeconds": 1},
                }],
            }}},
            "status": {"numberReady": 3},
        })
    }

    #[test]
    fn defaults_and_other_notations_of_the_server_are_no_drift() {
        assert_eq!(drift(&daemon_set(), &live_daemon_set()), None);
    }

    #[test]
    fn a_changed_image_a_lost_label_and_a_removed_container_are_drift_with_their_path() {
        let container = "/spec/template/spec/containers/0";
        let mut live = live_daemon_set();
        *live.pointer_mut(&format!("{container}/image")).unwrap() = json!("flannel:v2");
        assert_eq!(drift(&daemon_set(), &live), Some(format!("{container}/image")));

        let mut live = live_daemon_set();
        live["metadata"]["labels"] = json!({});
        assert_eq!(drift(&daemon_set(), &live), Some("/metadata/labels/app".to_owned()));

        let mut live = live_daemon_set();
        live["spec"]["template"]["spec"]["containers"] = json!([]);
        assert_eq!(drift(&daemon_set(), &live), Some(container.to_owned()));
    }

    #[test]
    fn a_smaller_request_is_drift_and_the_same_in_other_units_is_not() {
        let with = |cpu: Value| json!({"resources": {"requests": {"cpu": cpu}}});
        assert_eq!(drift(&with(json!("100m")), &with(json!("0.1"))), None);
        assert_eq!(drift(&with(json!(1)), &with(json!("1000m"))), None);
        assert_eq!(drift(&with(json!("200m")), &with(json!("100m"))), Some("/resources/requests/cpu".to_owned()));
    }

    #[test]
    fn a_subject_added_to_a_role_binding_is_drift() {
        let binding = |names: &[&str]| json!({"subjects": names.iter().map(|n| json!({"kind": "Group", "name": n})).collect::<Vec<_>>()});
        assert_eq!(drift(&binding(&["a"]), &binding(&["a", "b"])), Some("/subjects".to_owned()));
        assert_eq!(drift(&binding(&["a"]), &binding(&["a"])), None);
    }

    #[test]
    fn a_secret_is_compared_by_its_stored_data() {
        let desired = json!({"kind": "Secret", "stringData": {"a": "hello"}});
        assert_eq!(drift(&desired, &json!({"kind": "Secret", "data": {"a": "aGVsbG8="}})), None);
        assert_eq!(drift(&desired, &json!({"kind": "Secret", "data": {"a": "b3RoZXI="}})), Some("/data/a".to_owned()));
    }

    #[test]
    fn false_left_out_by_the_server_is_no_drift_but_true_turned_false_is() {
        assert_eq!(drift(&json!({"hostIPC": false}), &json!({})), None);
        assert_eq!(drift(&json!({"hostIPC": false}), &json!({"hostIPC": true})), Some("/hostIPC".to_owned()));
        assert_eq!(drift(&json!({"port": 53}), &json!({"port": "53"})), None);
        assert_eq!(drift(&json!({"replicas": 2}), &json!({"replicas": 1})), Some("/replicas".to_owned()));
    }

    #[test]
    fn arguments_are_compared_in_their_order() {
        assert!(drift(&json!({"args": ["-a", "-b"]}), &json!({"args": ["-b", "-a"]})).is_some());
        assert!(drift(&json!({"args": ["-a"]}), &json!({"args": ["-a", "-b"]})).is_some());
    }
}
