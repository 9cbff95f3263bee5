//! Pods that name responders: these are asked first, by the kind EvictionRequest of `lifecycle.k8s.io`, KEP-4563.
//!
//! In: a pod with `spec.evictionResponders`. Out: an [`Eviction`]: what the responders say, until the pod is gone. As of
//! Kubernetes 1.37 the API servers serve the kind behind a feature gate, and no component of Kubernetes acts on it. So a
//! request that nobody has taken up after a while, or that has failed, is followed by a plain eviction.

use super::{Client, KubeError, ObjectRef};
use crate::model::eviction::{Eviction, Refused};
use crate::model::labels::DRAINS_NODE;
use crate::model::maintenance::short;
use crate::model::names::HostName;
use crate::model::pod::PodView;
use crate::model::timestamp::parse_rfc3339;
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::Instant;

/// The group and version.
const API: &str = "lifecycle.k8s.io/v1alpha1";
const KIND: &str = "EvictionRequest";
/// Who asks, as the kind wants it.
const REQUESTER: &str = "lifecycle.hactl.dev/drain";
/// A request that is taken up has a status after this time.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(30);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(10);

fn place(pod: &PodView) -> ObjectRef {
    ObjectRef::new(API, KIND, Some(&pod.namespace), &format!("hactl-{}", pod.uid))
}

/// How far a request is.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Something acts on it.
    TakenUp,
    /// Nothing has acted on it yet.
    New,
    /// Nothing acts on it, or not any more.
    Over,
}

impl Request {
    fn of(object: &Value, now_s: i64) -> Self {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let is =
            |kind: &str| conditions.into_iter().flatten().any(|one| one["type"] == kind && one["status"] == "True");
        let created_s = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str).and_then(parse_rfc3339);
        let age_s = created_s.map_or(0, |created_ms| now_s.saturating_sub(created_ms / 1000));
        let is_observed = object.pointer("/status/observedGeneration").is_some_and(Value::is_u64);
        match () {
            () if is("Failed") => Self::Over,
            () if is_observed => Self::TakenUp,
            () if u64::try_from(age_s).is_ok_and(|age| age >= TAKEN_UP_WITHIN.as_secs()) => Self::Over,
            () => Self::New,
        }
    }
}

/// What the active responder of a pod says.
fn says(evictions: &[Value], pod: &PodView) -> Option<String> {
    let of_pod = |one: &&Value| one.pointer("/spec/target/pod/uid").and_then(Value::as_str) == Some(&pod.uid);
    let status = &evictions.iter().find(of_pod)?["status"];
    let list = |field: &str| status[field].as_array().into_iter().flatten();
    let active = list("targetResponders").find(|one| one["state"] == "Active")?["name"].as_str()?;
    let message = list("responders").find(|one| one["name"] == active).and_then(|one| one["message"].as_str());
    Some(match message.filter(|message| !message.is_empty()) {
        Some(message) => short(&format!("its eviction responder {active} acts: {message}")),
        None => short(&format!("its eviction responder {active} acts")),
    })
}

impl Client {
    /// Asks the responders of a pod, as part of the drain of this Node; without any that act, evicts it.
    pub async fn evict_by_responders(&self, pod: &PodView, node: &HostName, until: Instant) -> Eviction {
        match self.ask_responders(pod, node, until.min(Instant::now() + LOOK)).await {
            Ok(Some(says)) => Eviction::Refused(Refused::Responders(says)),
            Ok(None) => self.evict(pod, until).await,
            // A quota or a webhook lets nobody ask.
            Err(error) if error.is_final() => self.evict(pod, until).await,
            Err(error) => Eviction::NoAnswer(error.to_string()),
        }
    }

    /// What they say; `None`: nothing acts on requests.
    async fn ask_responders(
        &self,
        pod: &PodView,
        node: &HostName,
        until: Instant,
    ) -> Result<Option<String>, KubeError> {
        let new = || Some("its eviction responders were asked, and have not begun yet".to_owned());
        let Some(found) = self.get(&place(pod), until).await? else {
            return Ok(if self.create_request(pod, node, until).await? { new() } else { None });
        };
        Ok(match Request::of(&found, OffsetDateTime::now_utc().unix_timestamp()) {
            Request::Over => None,
            Request::New => new(),
            Request::TakenUp => {
                let folder = format!("/apis/{API}/namespaces/{}/evictions", pod.namespace);
                let all = self.list(&folder, "", until).await?;
                says(&all, pod).or_else(|| Some("its eviction responders are being asked".to_owned()))
            }
        })
    }

    /// Creates the request; false: the API server does not serve the kind.
    async fn create_request(&self, pod: &PodView, node: &HostName, until: Instant) -> Result<bool, KubeError> {
        let object = json!({
            "apiVersion": API,
            "kind": KIND,
            "metadata": {
                "name": place(pod).name, "namespace": pod.namespace, "labels": {DRAINS_NODE: node},
            },
            "spec": {
                "target": {"pod": {"name": pod.name, "uid": pod.uid}}, "requester": REQUESTER, "intent": "Eviction",
            },
        });
        match self.create(&object, until).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Withdraws the requests of the drain of a Node: without them, responders stop.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn withdraw_requests(&self, node: &HostName, until: Instant) -> Result<(), KubeError> {
        let all = format!("/apis/{API}/evictionrequests");
        let found = match self.list(&all, &format!("labelSelector={DRAINS_NODE}%3D{node}"), until).await {
            // The API server does not serve the kind, or its administrator does not let this process use it.
            Err(error) if error.is_final() => return Ok(()),
            found => found?,
        };
        let text = |one: &Value, at: &str| one.pointer(at).and_then(Value::as_str).map(str::to_owned);
        for one in found {
            let Some(name) = text(&one, "/metadata/name") else { continue };
            let namespace = text(&one, "/metadata/namespace");
            self.delete(&ObjectRef::new(API, KIND, namespace.as_deref(), &name), None, until).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(status: Value) -> Value {
        json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status})
    }

    #[test]
    fn a_request_that_nobody_takes_up_or_that_failed_is_over() {
        let created_s = 1_767_225_600;
        let of = |status: Value, age_s: i64| Request::of(&request(status), created_s + age_s);
        assert_eq!((of(json!({}), 29), of(json!({}), 30)), (Request::New, Request::Over));
        assert_eq!(of(json!({}), -100), Request::New, "the clock of this host is late");
        assert_eq!(of(json!({"observedGeneration": 1}), 3600), Request::TakenUp);
        let failed = json!({"observedGeneration": 1, "conditions": [{"type": "Failed", "status": "True"}]});
        assert_eq!(of(failed, 1), Request::Over);
        let fine = json!({"observedGeneration": 1, "conditions": [{"type": "Failed", "status": "False"}]});
        assert_eq!(of(fine, 1), Request::TakenUp);
    }

    #[test]
    fn the_active_responder_of_this_pod_is_heard() {
        let pod = PodView::of(&json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "u1"}})).unwrap();
        let eviction = |uid: &str, message: &str| {
            json!({
                "spec": {"target": {"pod": {"name": "db-0", "uid": uid}}},
                "status": {
                    "targetResponders": [{"name": "a.example.org/x", "state": "Completed"}, {"name": "example.org/mover", "state": "Active"}],
                    "responders": [{"name": "a.example.org/x", "message": "done"}, {"name": "example.org/mover", "message": message}],
                },
            })
        };
        let all = [eviction("u0", "of another pod"), eviction("u1", "70 % copied")];
        assert_eq!(says(&all, &pod).as_deref(), Some("its eviction responder example.org/mover acts: 70 % copied"));
        assert_eq!(says(&[eviction("u1", "")], &pod).as_deref(), Some("its eviction responder example.org/mover acts"));
        assert_eq!(says(&[], &pod), None);
    }
}
