//! What the API server answered to an eviction, and the state of the PodDisruptionBudget that refused it.
//!
//! In: a PodDisruptionBudget of the API. Out: whether it allows an eviction now, and whether it ever will.

use serde_json::Value;
use std::time::Duration;

/// The outcome of one request for an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is being deleted.
    Accepted,
    /// No pod with this uid exists any more.
    Gone,
    /// The API server serves the request, and refuses it.
    Refused(Refused),
    /// The API server limits requests (API priority and fairness), and asks for a pause.
    Throttled(Duration),
    /// Another error that the API server, or a webhook, answered.
    Failed(String),
    /// No answer, or that of something before an API server.
    NoAnswer(String),
}

/// What [`Eviction::result`] may be.
pub const RESULTS: [&str; 3] = ["accepted", "refused", "failed"];

impl Eviction {
    /// The outcome in one word, for a metric.
    pub const fn result(&self) -> &'static str {
        match self {
            Self::Accepted | Self::Gone => RESULTS[0],
            Self::Refused(_) => RESULTS[1],
            Self::Throttled(_) | Self::Failed(_) | Self::NoAnswer(_) => RESULTS[2],
        }
    }
}

/// Why an eviction was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A PodDisruptionBudget allows no eviction now.
    Budget {
        /// Its name; it is in the namespace of the pod.
        name: String,
        /// What the API server says of it, without its name.
        says: String,
    },
    /// More than one PodDisruptionBudget selects the pod. The API server then refuses every eviction.
    SeveralBudgets,
    /// Its namespace is being deleted, and the pod with it.
    NamespaceEnds,
    /// The responders that the pod names act first; what they say.
    Responders(String),
}

/// Identifies a PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for BudgetRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The state of a PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetFact {
    /// How many evictions it allows now.
    pub allowed: u32,
    /// How many pods are healthy.
    pub healthy: u32,
    /// How many pods have to be healthy.
    pub desired: u32,
    /// How many pods there should be.
    pub expected: u32,
    /// Whether its controller could compute these numbers from its present specification.
    pub computed: bool,
    /// Whether pods that are not ready may always leave (`unhealthyPodEvictionPolicy: AlwaysAllow`).
    pub always_allows_unready: bool,
}

impl BudgetFact {
    /// Parses a PodDisruptionBudget of the API.
    pub fn of(budget: &Value) -> Self {
        let number = |at: &str| budget.pointer(at).and_then(Value::as_u64).unwrap_or(0);
        let small = |at: &str| u32::try_from(number(at)).unwrap_or(u32::MAX);
        let conditions = budget.pointer("/status/conditions").and_then(Value::as_array);
        let failed = conditions.into_iter().flatten().any(|condition| condition["reason"] == "SyncFailed");
        Self {
            allowed: small("/status/disruptionsAllowed"),
            healthy: small("/status/currentHealthy"),
            desired: small("/status/desiredHealthy"),
            expected: small("/status/expectedPods"),
            computed: !failed && number("/status/observedGeneration") >= number("/metadata/generation"),
            always_allows_unready: budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str)
                == Some("AlwaysAllow"),
        }
    }

    /// Whether it refuses every eviction until a person changes it or the number of replicas, as with
    /// `maxUnavailable: 0`.
    pub fn never(&self) -> bool {
        self.computed && self.expected > 0 && self.desired >= self.expected
    }

    /// Whether it allows the eviction of a pod that is not ready, which is not counted.
    pub fn allows_unready(&self) -> bool {
        self.always_allows_unready || (self.desired > 0 && self.healthy >= self.desired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_budget_that_needs_all_its_pods_never_allows_an_eviction() {
        let budget = |desired: u32, expected: u32| {
            BudgetFact::of(&json!({
                "metadata": {"generation": 2},
                "spec": {"maxUnavailable": 0},
                "status": {"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": 1,
                    "desiredHealthy": desired, "expectedPods": expected},
            }))
        };
        assert!(budget(3, 3).never() && budget(4, 3).never());
        assert!(!budget(2, 3).never(), "one more healthy pod is enough");
        assert!(!budget(0, 0).never(), "it does not select the pod yet");
        assert!(!BudgetFact { computed: false, ..budget(3, 3) }.never(), "the numbers may be of an earlier time");
    }

    #[test]
    fn numbers_that_the_controller_could_not_compute_are_not_trusted() {
        let status = json!({"observedGeneration": 1, "desiredHealthy": 3, "expectedPods": 3,
            "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}]});
        assert!(!BudgetFact::of(&json!({"metadata": {"generation": 1}, "status": status})).computed);
        let late = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
        assert!(!BudgetFact::of(&late).computed);
    }

    #[test]
    fn pods_that_are_not_ready_leave_while_enough_others_are_healthy() {
        let fact = BudgetFact::of(&json!({"status": {"currentHealthy": 2, "desiredHealthy": 2}}));
        assert!(fact.allows_unready());
        assert!(!BudgetFact { healthy: 1, ..fact.clone() }.allows_unready());
        assert!(!BudgetFact { desired: 0, healthy: 0, ..fact }.allows_unready());
        let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, "status": {"desiredHealthy": 2}});
        assert!(BudgetFact::of(&always).allows_unready());
    }
}
