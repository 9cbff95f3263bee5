//! Evictions: one request each, and an outcome with a type instead of an error, because a pod that cannot leave now
//! must not end a drain.
//!
//! In: a pod, or a PodDisruptionBudget's name. Out: an [`Eviction`], or a [`BudgetFact`]. The outcomes are those of
//! `pkg/registry/core/pod/storage/eviction.go` of Kubernetes, of its admission, and of its flow control.

use super::client::{Answer, LONGEST_MESSAGE, Request, absent};
use super::watch::Change;
use super::{Client, KubeError};
use crate::model::eviction::{BudgetFact, BudgetRef, Eviction, Refused};
use crate::model::pod::PodView;
use futures::stream::{BoxStream, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What the API server writes before the name of a budget.
const BUDGET: &str = "The disruption budget ";

/// How a budget is, as it changes; ends with the watch, or after an error.
pub type BudgetChanges = BoxStream<'static, Result<Option<BudgetFact>, KubeError>>;

impl Client {
    /// Asks once for the eviction of the pod with this uid.
    pub async fn evict(&self, pod: &PodView, until: Instant) -> Eviction {
        self.ask_for_eviction(pod, &[], until).await
    }

    /// What the answer would be now. Changes nothing.
    pub async fn rehearse_eviction(&self, pod: &PodView, until: Instant) -> Eviction {
        self.ask_for_eviction(pod, &["All"], until).await
    }

    async fn ask_for_eviction(&self, pod: &PodView, dry_run: &[&str], until: Instant) -> Eviction {
        let query = if dry_run.is_empty() { "" } else { "?dryRun=All" };
        let path = format!("/api/v1/namespaces/{}/pods/{}/eviction{query}", pod.namespace, pod.name);
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}, "dryRun": dry_run},
        });
        match timeout_at(until, self.http().send(Request::with(Method::POST, &path, &body))).await {
            Ok(Ok(answer)) => outcome(&answer),
            Ok(Err(why)) => Eviction::NoAnswer(format!("no answer from the API server: {why}")),
            Err(_) => Eviction::NoAnswer("no answer from the API server".to_owned()),
        }
    }

    /// How a PodDisruptionBudget is, and each change of it; `None` when it does not exist any more.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn budget_changes(&self, budget: &BudgetRef) -> Result<BudgetChanges, KubeError> {
        let BudgetRef { namespace, name } = budget;
        let folder = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
        let changes = self.watch(&folder, &format!("fieldSelector=metadata.name%3D{name}"), None).await?;
        let fact = |change| match change {
            Change::Is(object) => Some(BudgetFact::of(&object)),
            Change::Gone(_) => None,
        };
        Ok(changes.map(move |change| change.map(fact)).boxed())
    }

    /// The state of a PodDisruptionBudget; `None` when it does not exist.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn budget(&self, budget: &BudgetRef, until: Instant) -> Result<Option<BudgetFact>, KubeError> {
        let BudgetRef { namespace, name } = budget;
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}");
        let found = absent(self.raw(Method::GET, &path, until).await)?;
        Ok(found.as_ref().map(BudgetFact::of))
    }
}

fn outcome(answer: &Answer) -> Eviction {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let plain = String::from_utf8_lossy(&answer.body);
    let message = status["message"].as_str().unwrap_or(&plain).trim().trim_end_matches('.');
    let message = || message.chars().take(LONGEST_MESSAGE).collect::<String>();
    let causes = status.pointer("/details/causes").and_then(Value::as_array);
    let cause = |reason: &str| causes.into_iter().flatten().find(|cause| cause["reason"] == reason);
    match answer.status {
        200..=299 => Eviction::Accepted,
        404 => Eviction::Gone,
        // A newer pod has the name. Other conflicts are about the pod's version, or about that of the budget.
        409 if message().contains("UID in precondition") => Eviction::Gone,
        403 if cause("NamespaceTerminating").is_some() => Eviction::Refused(Refused::NamespaceEnds),
        500 if message().contains("more than one PodDisruptionBudget") => Eviction::Refused(Refused::SeveralBudgets),
        429 => match cause("DisruptionBudget").and_then(refused_by) {
            Some(refused) => Eviction::Refused(refused),
            None => answer.retry_after_s.map_or_else(
                || Eviction::Failed(message()),
                |seconds| Eviction::Throttled(Duration::from_secs(seconds)),
            ),
        },
        code @ 502..=504 => Eviction::NoAnswer(format!("the API server answered {code}: {}", message())),
        code => Eviction::Failed(format!("the API server answered {code}: {}", message())),
    }
}

/// The budget that a cause names, as in `The disruption budget db needs 2 healthy pods and has 2 currently`.
fn refused_by(cause: &Value) -> Option<Refused> {
    let (name, says) = cause["message"].as_str()?.strip_prefix(BUDGET)?.split_once(' ')?;
    Some(Refused::Budget {
        name: name.to_owned(),
        says: says.trim_end_matches('.').chars().take(LONGEST_MESSAGE).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Status as API servers send it.
    fn failure(code: u16, reason: &str, message: &str, details: Value) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": code});
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
        if !details.is_null() {
            status["details"] = details;
        }
        status
    }

    fn of(status: Value) -> Eviction {
        let code = u16::try_from(status["code"].as_u64().unwrap_or(201)).expect("a status");
        // The server repeats the number of the details in its header.
        let retry_after_s = status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64);
        outcome(&Answer { status: code, retry_after_s, body: status.to_string().into_bytes() })
    }

    const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

    fn budget(says: &str, details: Value) -> Eviction {
        let mut details = details;
        details["causes"] = json!([{"reason": "DisruptionBudget", "message": format!("{BUDGET}{says}")}]);
        of(failure(429, "TooManyRequests", VIOLATES, details))
    }

    fn by(name: &str, says: &str) -> Eviction {
        Eviction::Refused(Refused::Budget { name: name.to_owned(), says: says.to_owned() })
    }

    #[test]
    fn an_accepted_eviction_and_a_pod_that_is_gone() {
        let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        assert_eq!(of(success), Eviction::Accepted);
        let details = json!({"name": "db-1", "kind": "pods"});
        assert_eq!(of(failure(404, "NotFound", "pods \"db-1\" not found", details.clone())), Eviction::Gone);
        let other = "Operation cannot be fulfilled on Pod \"db-1\": StorageError: invalid object, Code: 4, Key: \
                     /pods/shop/db-1, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
                     precondition: a, UID in object meta: b";
        assert_eq!(of(failure(409, "Conflict", other, details)), Eviction::Gone);
    }

    #[test]
    fn a_conflict_about_the_budget_is_not_a_pod_that_is_gone() {
        let message = "Operation cannot be fulfilled on poddisruptionbudgets.policy \"db\": the object has been modified; \
                       please apply your changes to the latest version and try again";
        let details = json!({"name": "db", "group": "policy", "kind": "poddisruptionbudgets"});
        assert!(matches!(of(failure(409, "Conflict", message, details)), Eviction::Failed(why) if why.contains("409")));
    }

    #[test]
    fn a_budget_is_named_with_what_the_server_says_of_it() {
        let needs = "needs 2 healthy pods and has 2 currently";
        assert_eq!(budget(&format!("db {needs}"), json!({})), by("db", needs));
        let failed =
            "does not allow evicting pods currently because it failed sync: found no controllers for pod \"db-1\"";
        assert_eq!(budget(&format!("db {failed}"), json!({})), by("db", failed));
        let pending = budget("db is still being processed by the server.", json!({"retryAfterSeconds": 10}));
        assert_eq!(pending, by("db", "is still being processed by the server"));
    }

    #[test]
    fn flow_control_is_not_a_budget() {
        let body = b"Too many requests, please try again later.\n".to_vec();
        let answer = Answer { status: 429, retry_after_s: Some(2), body };
        assert_eq!(outcome(&answer), Eviction::Throttled(Duration::from_secs(2)));
        let details = json!({"retryAfterSeconds": 1});
        let storage = failure(429, "TooManyRequests", "storage is (re)initializing", details);
        assert_eq!(of(storage), Eviction::Throttled(Duration::from_secs(1)));
    }

    #[test]
    fn two_budgets_on_one_pod_are_refused_without_a_reason() {
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        assert_eq!(of(failure(500, "", message, Value::Null)), Eviction::Refused(Refused::SeveralBudgets));
    }

    #[test]
    fn a_namespace_that_is_being_deleted_deletes_its_pods_itself() {
        let message = "pods \"db-1\" is forbidden: unable to create new content in namespace shop because it is being \
                       terminated";
        let cause = json!({"reason": "NamespaceTerminating", "message": "namespace shop is being terminated",
            "field": "metadata.namespace"});
        let details = json!({"name": "db-1", "kind": "pods", "causes": [cause]});
        let refused = of(failure(403, "Forbidden", message, details));
        assert_eq!(refused, Eviction::Refused(Refused::NamespaceEnds));
    }

    #[test]
    fn what_a_webhook_answers_is_an_error_with_its_message() {
        let denied = "admission webhook \"evictions.example.org\" denied the request: db-1 is the leader.";
        for code in [403, 429, 500] {
            let Eviction::Failed(why) = of(failure(code, "Forbidden", denied, Value::Null)) else {
                panic!("{code} is refused by a budget");
            };
            assert!(why.ends_with("db-1 is the leader"), "{why}");
        }
        let broken = outcome(&Answer { status: 502, retry_after_s: None, body: b"bad gateway".to_vec() });
        assert_eq!(broken, Eviction::NoAnswer("the API server answered 502: bad gateway".to_owned()));
    }
}
