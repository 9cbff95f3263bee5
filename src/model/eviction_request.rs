//! A request that one pod leaves its Node, whatever happens to the Node: the kind EvictionRequest of hactl.
//!
//! In: an object of the API, and the pod that it names. Out: what is to be done about it, and its status. The fields for
//! those who ask are the same as those of `lifecycle.k8s.io/v1alpha1`, KEP-4563.

use super::eviction::{Eviction, Refused};
use super::maintenance::short;
use super::pod::PodView;
use super::timestamp::rfc3339;
use serde_json::{Value, json};
use std::time::Duration;

/// The kind.
pub const KIND: &str = "EvictionRequest";
/// Its plural, as in URLs.
pub const PLURAL: &str = "evictionrequests";
/// The pause after a refusal; doubled each time, at most so often.
const AFTER_REFUSAL: (Duration, u32) = (Duration::from_secs(2), 7);

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionRequest {
    /// Its namespace, which is that of the pod.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Changes with what is asked for.
    pub generation: Option<u64>,
    /// The pod.
    pub pod: String,
    /// Its uid: another pod of this name is not meant.
    pub pod_uid: String,
    /// Whether the pod is to leave; false: it was withdrawn.
    pub is_wanted: bool,
    /// Its conditions as they are, by their type: whether each holds, its reason and its message.
    said: Vec<(String, bool, String, String)>,
    /// Whether they are about what is asked for now.
    is_observed: bool,
}

/// How far a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The pod is gone, or has ended.
    Evicted(&'static str),
    /// The pod is to leave, and has not; what it waits for, in words.
    Awaited(String),
    /// It is not acted on any more, and why.
    Failed(&'static str, String),
}

impl EvictionRequest {
    /// Reads an object of the kind; `None`: it cannot be read.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let said = |one: &Value| {
            let text = |field: &str| one[field].as_str().map(short);
            Some((text("type")?, one["status"] == "True", text("reason")?, text("message")?))
        };
        Some(Self {
            namespace: text("/metadata/namespace")?,
            name: text("/metadata/name")?,
            uid: text("/metadata/uid")?,
            generation: object.pointer("/metadata/generation").and_then(Value::as_u64),
            pod: text("/spec/target/pod/name")?,
            pod_uid: text("/spec/target/pod/uid")?,
            is_wanted: text("/spec/intent")? == "Eviction",
            said: conditions.filter_map(said).collect(),
            is_observed: object.pointer("/metadata/generation") == object.pointer("/status/observedGeneration"),
        })
    }

    /// What is known before the API is asked for an eviction, of the pod as it is; `None`: it is to be asked.
    pub fn known(&self, pod: Option<&PodView>) -> Option<Outcome> {
        let Some(pod) = pod.filter(|pod| pod.uid == self.pod_uid) else {
            return Some(Outcome::Evicted("PodDeleted"));
        };
        if pod.ended {
            return Some(Outcome::Evicted("PodTerminal"));
        }
        if !self.is_wanted {
            return Some(Outcome::Failed("CanceledDueToNoRequesters", "it was withdrawn".to_owned()));
        }
        if pod.terminating {
            return Some(Outcome::Awaited(String::new()));
        }
        let is_of_node = pod.mirror || pod.controller.as_ref().is_some_and(|one| one.kind == "DaemonSet");
        if is_of_node {
            let why = "a pod of a DaemonSet, or of the kubelet itself, would come back to its Node";
            return Some(Outcome::Failed("EvictionInvalid", why.to_owned()));
        }
        let hold = pod.hold.as_ref()?;
        Some(Outcome::Awaited(format!("{hold} holds it")))
    }

    /// The pause after so many refusals.
    pub fn pause(refusals: u32) -> Duration {
        AFTER_REFUSAL.0 * 2_u32.pow(refusals.min(AFTER_REFUSAL.1))
    }

    /// What the answer to an eviction comes to, and how long after it the pod is looked at again.
    pub fn answered(answer: &Eviction, refusals: u32) -> (Outcome, Duration) {
        let pause = Self::pause(refusals);
        let awaited = |why: String| (Outcome::Awaited(why), pause);
        match answer {
            Eviction::Accepted => (Outcome::Awaited(String::new()), AFTER_REFUSAL.0),
            Eviction::Gone => (Outcome::Evicted("PodDeleted"), AFTER_REFUSAL.0),
            Eviction::Throttled(pause) => (Outcome::Awaited("the API server limits requests".to_owned()), *pause),
            Eviction::Refused(Refused::Budget { name, says }) => awaited(format!("PodDisruptionBudget {name} {says}")),
            Eviction::Refused(Refused::SeveralBudgets) => {
                awaited("more than one PodDisruptionBudget selects the pod".to_owned())
            }
            Eviction::Refused(Refused::NamespaceEnds) => awaited("its namespace is being deleted".to_owned()),
            Eviction::Refused(Refused::Responders(says)) => awaited(says.clone()),
            Eviction::Failed(why) | Eviction::NoAnswer(why) => awaited(why.clone()),
        }
    }

    /// Whether nothing is to be done about it any more.
    pub fn is_over(&self) -> bool {
        self.is_observed && self.said.iter().any(|(_, holds, ..)| *holds)
    }

    /// The status that says so; `None`: it does.
    pub fn status(&self, outcome: &Outcome, now_ms: i64) -> Option<Value> {
        let (evicted, failed) = match outcome {
            Outcome::Evicted(reason) => ((true, *reason, ""), (false, "Succeeded", "")),
            Outcome::Awaited(why) => ((false, "AwaitingEviction", why.as_str()), (false, "AwaitingEviction", "")),
            Outcome::Failed(reason, why) => ((false, "EvictionFailed", ""), (true, *reason, why.as_str())),
        };
        let of = |kind: &str, (holds, reason, message): (bool, &str, &str)| {
            (kind.to_owned(), holds, reason.to_owned(), short(message))
        };
        let all = [of("TargetEvicted", evicted), of("Failed", failed)];
        if self.is_observed && all.iter().all(|one| self.said.contains(one)) {
            return None;
        }
        let conditions: Vec<Value> = all
            .iter()
            .map(|(kind, holds, reason, message)| {
                let status = if *holds { "True" } else { "False" };
                json!({
                    "type": kind, "status": status, "reason": reason, "message": message,
                    "observedGeneration": self.generation, "lastTransitionTime": rfc3339(now_ms),
                })
            })
            .collect();
        Some(json!({"observedGeneration": self.generation, "conditions": conditions}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::merge_patch::merged;

    fn object(intent: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": "move-db", "uid": "r", "generation": 2},
            "spec": {"target": {"pod": {"name": "db-0", "uid": "u1"}}, "requester": "example.org/me", "intent": intent},
        })
    }

    fn pod(change: Value) -> PodView {
        let metadata = json!({"name": "db-0", "namespace": "shop", "uid": "u1",
            "ownerReferences": [{"kind": "StatefulSet", "uid": "s", "controller": true}]});
        PodView::of(&merged(&json!({"metadata": metadata}), &change)).unwrap()
    }

    #[test]
    fn a_pod_is_evicted_while_it_is_wanted_and_is_the_one_that_is_meant() {
        let (wanted, withdrawn) =
            (EvictionRequest::of(&object("Eviction")).unwrap(), EvictionRequest::of(&object("Withdrawn")).unwrap());
        let is = pod(json!({}));
        assert_eq!(wanted.known(Some(&is)), None);
        assert!(matches!(withdrawn.known(Some(&is)), Some(Outcome::Failed("CanceledDueToNoRequesters", _))));
        for gone in [None, Some(PodView { uid: "u2".to_owned(), ..is.clone() })] {
            assert_eq!(wanted.known(gone.as_ref()), Some(Outcome::Evicted("PodDeleted")));
        }
        let ended = PodView { ended: true, ..is.clone() };
        assert_eq!(wanted.known(Some(&ended)), Some(Outcome::Evicted("PodTerminal")));
        let leaves = PodView { terminating: true, ..is.clone() };
        assert_eq!(wanted.known(Some(&leaves)), Some(Outcome::Awaited(String::new())));
        for of_node in [
            json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "uid": "d", "controller": true}]}}),
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
        ] {
            assert!(matches!(wanted.known(Some(&pod(of_node))), Some(Outcome::Failed("EvictionInvalid", _))));
        }
        let held = pod(json!({"metadata": {"annotations": {"hold.hactl.dev/backup": "until noon"}}}));
        let Some(Outcome::Awaited(why)) = wanted.known(Some(&held)) else { panic!("it is held") };
        assert_eq!(why, "the annotation hold.hactl.dev/backup of the pod: \"until noon\" holds it");
    }

    #[test]
    fn a_status_is_written_once_and_says_whether_the_request_is_over() {
        let mut now = object("Eviction");
        let waits = Outcome::Awaited("PodDisruptionBudget db needs 2 healthy pods and has 2 currently".to_owned());
        for (outcome, is_over) in [
            (waits, false),
            (Outcome::Evicted("PodDeleted"), true),
            (Outcome::Failed("EvictionInvalid", "it would come back".to_owned()), true),
        ] {
            let before = EvictionRequest::of(&now).unwrap();
            now["status"] = before.status(&outcome, 0).expect("it does not say so yet");
            let after = EvictionRequest::of(&now).unwrap();
            assert_eq!((after.status(&outcome, 9), after.is_over()), (None, is_over), "{outcome:?}");
        }
        now["metadata"]["generation"] = json!(3);
        assert!(!EvictionRequest::of(&now).unwrap().is_over(), "it asks for something else by now");
    }

    #[test]
    fn a_refusal_is_repeated_after_a_pause_that_grows_to_some_minutes() {
        let answer = Eviction::Refused(Refused::SeveralBudgets);
        let pauses: Vec<u64> = (0..9).map(|n| EvictionRequest::answered(&answer, n).1.as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 256]);
    }
}
