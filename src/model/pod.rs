//! A pod as a drain sees it: the few fields that decide whether it leaves its Node, and when.
//!
//! In: a pod of the API. Out: a [`PodView`], and whether the pod tolerates the taint of a cordoned Node.

use super::hold::Hold;
use super::labels::{DRAINED, QUORUM};
use super::selector::{Labels, labels_of};
use serde_json::Value;

/// The namespace of the control plane. In another one, a label means nothing.
pub const NAMESPACE: &str = "kube-system";
/// The label `app` of the pods with which `up` looks whether pods run and end.
pub const PROBE: &str = "hactl-probe";
/// The taint of a cordoned Node. Its effect is NoSchedule.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

/// The object that creates a pod again when it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Its kind, such as `ReplicaSet`.
    pub kind: String,
    /// Its uid.
    pub uid: String,
}

/// A pod, as far as a drain looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of one another, as the API shows them")]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; a later pod of the same name has another one.
    pub uid: String,
    /// Its labels.
    pub labels: Labels,
    /// Its priority, as the API resolved it.
    pub priority: i32,
    /// What creates it again.
    pub controller: Option<Controller>,
    /// Whether it shows a static pod of the kubelet.
    pub mirror: bool,
    /// Whether it stands for the control plane of its host.
    pub quorum: bool,
    /// Whether it has terminated: its phase is Succeeded or Failed.
    pub ended: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// What keeps it in the API when its containers have ended.
    pub finalizers: Vec<String>,
    /// Whether its Ready condition is True.
    pub ready: bool,
    /// Whether it tolerates the taint of a cordoned Node, so that it may be scheduled there again.
    pub tolerates_cordon: bool,
    /// Whether it tolerates the taint of a drain, so that its DaemonSet may create it there again.
    pub tolerates_drain: bool,
    /// Whether it names responders, which are to act before it is evicted (`spec.evictionResponders`).
    pub has_responders: bool,
    /// What holds it, in words: a person's annotation `hold.hactl.dev/NAME`.
    pub hold: Option<String>,
}

impl PodView {
    /// Parses a pod of the API; `None` for an object without a name or a uid.
    pub fn of(pod: &Value) -> Option<Self> {
        let text = |at: &str| pod.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let list = |at: &str| pod.pointer(at).and_then(Value::as_array).into_iter().flatten();
        let controller = list("/metadata/ownerReferences").find(|owner| owner["controller"] == true);
        let of_controller = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let labels = labels_of(pod);
        Some(Self {
            namespace: text("/metadata/namespace").unwrap_or_default(),
            name: text("/metadata/name")?,
            uid: text("/metadata/uid")?,
            priority: pod
                .pointer("/spec/priority")
                .and_then(Value::as_i64)
                .and_then(|priority| i32::try_from(priority).ok())
                .unwrap_or(0),
            controller: controller
                .map(|owner| Controller { kind: of_controller(owner, "kind"), uid: of_controller(owner, "uid") }),
            quorum: text("/metadata/namespace").as_deref() == Some(NAMESPACE) && labels.contains_key(QUORUM),
            mirror: pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some(),
            ended: matches!(text("/status/phase").as_deref(), Some("Succeeded" | "Failed")),
            terminating: pod.pointer("/metadata/deletionTimestamp").is_some(),
            finalizers: list("/metadata/finalizers").filter_map(Value::as_str).map(str::to_owned).collect(),
            ready: list("/status/conditions").any(|c| c["type"] == "Ready" && c["status"] == "True"),
            labels,
            tolerates_cordon: list("/spec/tolerations").any(|one| tolerates(one, CORDON_TAINT)),
            tolerates_drain: list("/spec/tolerations").any(|one| tolerates(one, DRAINED)),
            hold: Hold::of_pod(pod).map(|hold| hold.to_string()),
            has_responders: list("/spec/evictionResponders").next().is_some(),
        })
    }

    /// Whether `up` looks with it whether pods run and end.
    pub fn is_probe(&self) -> bool {
        self.namespace == NAMESPACE && self.labels.get("app").is_some_and(|app| app == PROBE)
    }

    /// Whether it shows the static pod of an API server.
    pub fn is_api_server(&self) -> bool {
        self.mirror
            && self.namespace == NAMESPACE
            && self.labels.get("component").is_some_and(|one| one == "kube-apiserver")
    }

    /// Its namespace and name, as people write them.
    pub fn called(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Whether a toleration matches a taint of this key without a value, whose effect is NoSchedule, by the rules of the
/// scheduler.
fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let exists = text("operator") == "Exists";
    let value = exists || text("value").is_empty();
    matches!(text("effect"), "" | "NoSchedule")
        && match text("key") {
            "" => exists,
            key => key == taint && value,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fact(mut pod: Value) -> PodView {
        pod["metadata"]["name"] = json!("web-0");
        pod["metadata"]["namespace"] = json!("shop");
        pod["metadata"]["uid"] = json!("u1");
        PodView::of(&pod).expect("it has a name and a uid")
    }

    #[test]
    fn a_pod_is_read_as_the_api_shows_it() {
        let pod = fact(json!({
            "metadata": {
                "finalizers": ["example.org/backup"],
                "ownerReferences": [
                    {"kind": "Note", "uid": "n"},
                    {"kind": "ReplicaSet", "uid": "r", "controller": true},
                ],
            },
            "spec": {"priority": 2_000_001_000},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        let controller = Controller { kind: "ReplicaSet".to_owned(), uid: "r".to_owned() };
        assert_eq!((pod.called().as_str(), pod.priority), ("shop/web-0", 2_000_001_000));
        assert_eq!((pod.controller, pod.ready), (Some(controller), true));
        assert_eq!(pod.finalizers, ["example.org/backup"]);
        assert!(!pod.mirror && !pod.ended && !pod.terminating && !pod.tolerates_cordon);
        let ended =
            fact(json!({"status": {"phase": "Failed"}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert!(ended.ended && ended.terminating && !ended.ready && ended.controller.is_none());
        assert!(fact(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}})).mirror);
        assert_eq!(PodView::of(&json!({"metadata": {"name": "x"}})), None);
    }

    #[test]
    fn a_pod_stands_for_the_control_plane_only_in_its_namespace() {
        let pod = |namespace: &str, label: &str| {
            let labels = json!({label: "control-plane-quorum"});
            let metadata = json!({"name": "x", "uid": "u", "namespace": namespace, "labels": labels});
            PodView::of(&json!({"metadata": metadata})).expect("it has a name and a uid").quorum
        };
        assert!(pod("kube-system", QUORUM));
        assert!(!pod("shop", QUORUM) && !pod("kube-system", "app"));
    }

    #[test]
    fn a_pod_tolerates_the_cordon_if_one_of_its_tolerations_matches_the_taint() {
        let tolerates = |toleration: Value| fact(json!({"spec": {"tolerations": [toleration]}})).tolerates_cordon;
        assert!(tolerates(json!({"operator": "Exists"})));
        assert!(tolerates(json!({"operator": "Exists", "effect": "NoSchedule"})));
        assert!(tolerates(json!({"key": CORDON_TAINT, "operator": "Exists"})));
        assert!(tolerates(json!({"key": CORDON_TAINT})), "the taint has no value");
        assert!(!tolerates(json!({"key": CORDON_TAINT, "operator": "Equal", "value": "x"})));
        assert!(!tolerates(json!({"operator": "Exists", "effect": "NoExecute"})));
        assert!(!tolerates(json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"})));
        assert!(!tolerates(json!({})));
    }
}
