//! What may deny the pods of a self-hosted control plane at admission: static pods are never denied.
//!
//! In: webhook configurations, the Namespace `kube-system`, and its quotas and limits, as JSON. Out: those that may deny.
//! What cannot be understood may deny.

use super::labels::HOSTS;
use super::selector::selects;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// The most that one API server is believed to have.
const MOST: usize = 20;
/// The longest name of an object.
const LONGEST: usize = 253;

/// Something that may deny a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MayDeny {
    /// A webhook denies it by its answer, and also if it does not answer.
    Webhook {
        /// `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`, and its name.
        configuration: String,
        /// The name of the webhook in it.
        webhook: String,
    },
    /// A `ResourceQuota` or a `LimitRange` of `kube-system`, kind and name.
    Limit(String),
}

impl fmt::Display for MayDeny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Webhook { configuration, webhook } => write!(
                f,
                "webhook {webhook} of {configuration} has failurePolicy Fail and selects pods of kube-system; exclude \
                 kube-system by its namespaceSelector"
            ),
            Self::Limit(what) => write!(f, "{what} in kube-system limits what pods may use; delete it"),
        }
    }
}

/// The lists that are read for it, as the API serves them.
pub const LISTS: [&str; 4] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/api/v1/namespaces/kube-system/resourcequotas",
    "/api/v1/namespaces/kube-system/limitranges",
];
/// The Namespace whose labels webhooks select.
pub const NAMESPACE: &str = "/api/v1/namespaces/kube-system";

/// What may deny a pod of the control plane, by these lists, in their order.
pub fn may_deny(namespace: &Value, lists: [&Value; 4]) -> Vec<MayDeny> {
    let [validating, mutating, quotas, limits] = lists.map(items);
    let webhooks = [("Validating", validating), ("Mutating", mutating)].into_iter().flat_map(|(kind, list)| {
        list.iter().flat_map(move |configuration| {
            let named = format!("{kind}WebhookConfiguration {}", name(&configuration["metadata"]));
            let hooks = configuration["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
            hooks
                .iter()
                .filter(|hook| denies(hook, namespace))
                .map(move |hook| MayDeny::Webhook { configuration: named.clone(), webhook: name(hook) })
        })
    });
    let limits = [("ResourceQuota", quotas), ("LimitRange", limits)].into_iter().flat_map(|(kind, list)| {
        list.iter().map(move |object| MayDeny::Limit(format!("{kind} {}", name(&object["metadata"]))))
    });
    webhooks.chain(limits).take(MOST).collect()
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn name(of: &Value) -> String {
    of["name"].as_str().unwrap_or_default().chars().take(LONGEST).collect()
}

/// Whether a webhook may deny a pod of the control plane.
fn denies(hook: &Value, namespace: &Value) -> bool {
    let pod = json!({"metadata": {"labels": {HOSTS: "kube-apiserver", "tier": "control-plane"}}});
    let selected = |selector: &str, object| selects(&hook[selector], object);
    let rules = hook["rules"].as_array().map_or(&[][..], Vec::as_slice);
    hook["failurePolicy"] != "Ignore"
        && rules.iter().any(creates_pods)
        && selected("namespaceSelector", namespace)
        && selected("objectSelector", &pod)
}

/// Whether a rule is about the creation of pods, or about their binding to a Node.
fn creates_pods(rule: &Value) -> bool {
    let has = |field: &str, wanted: &[&str]| {
        let given = rule[field].as_array().map_or(&[][..], Vec::as_slice);
        given.iter().filter_map(Value::as_str).any(|word| wanted.contains(&word))
    };
    has("operations", &["*", "CREATE"])
        && has("apiGroups", &["*", ""])
        && has("apiVersions", &["*", "v1"])
        && has("resources", &["*", "*/*", "pods", "pods/*", "pods/binding", "*/binding"])
        && rule["scope"] != "Cluster"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(edit: impl Fn(&mut Value)) -> Value {
        let mut hook = json!({
            "name": "policy.example",
            "failurePolicy": "Fail",
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                       "resources": ["pods"], "scope": "*"}],
            "namespaceSelector": {},
            "objectSelector": {},
        });
        edit(&mut hook);
        hook
    }

    fn found(edit: impl Fn(&mut Value)) -> usize {
        let list = json!({"items": [{"metadata": {"name": "policy"}, "webhooks": [hook(edit)]}]});
        let namespace = json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "kube-system"}}});
        may_deny(&namespace, [&list, &Value::Null, &Value::Null, &Value::Null]).len()
    }

    #[test]
    fn a_webhook_may_deny_if_it_selects_pods_of_kube_system_and_fails_closed() {
        assert_eq!(found(|_| ()), 1);
        assert_eq!(found(|hook| hook["failurePolicy"] = Value::Null), 1, "Fail is the default");
        for resources in ["*", "*/*", "pods/*", "pods/binding"] {
            assert_eq!(found(|hook| hook["rules"][0]["resources"] = json!([resources])), 1, "{resources}");
        }
        let one = |key: &str, operator: &str| json!({"matchExpressions": [{"key": key, "operator": operator, "values": ["kube-system"]}]});
        assert_eq!(found(|hook| hook["namespaceSelector"] = one("kubernetes.io/metadata.name", "In")), 1);
        assert_eq!(found(|hook| hook["matchConditions"] = json!([{"expression": "false"}])), 1, "it is not evaluated");

        assert_eq!(found(|hook| hook["failurePolicy"] = json!("Ignore")), 0);
        assert_eq!(found(|hook| hook["rules"][0]["operations"] = json!(["DELETE"])), 0);
        assert_eq!(found(|hook| hook["rules"][0]["resources"] = json!(["pods/exec", "services"])), 0);
        assert_eq!(found(|hook| hook["rules"][0]["apiGroups"] = json!(["apps"])), 0);
        assert_eq!(found(|hook| hook["rules"][0]["scope"] = json!("Cluster")), 0);
        assert_eq!(found(|hook| hook["namespaceSelector"] = one("kubernetes.io/metadata.name", "NotIn")), 0);
        assert_eq!(found(|hook| hook["objectSelector"] = json!({"matchLabels": {"team": "a"}})), 0);
    }

    #[test]
    fn quotas_and_limits_are_named_and_a_server_that_lists_thousands_is_cut_short() {
        let list = json!({"items": [{"metadata": {"name": "small"}}]});
        let found = may_deny(&Value::Null, [&Value::Null, &Value::Null, &list, &list]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found[0], "ResourceQuota small in kube-system limits what pods may use; delete it");
        assert!(found[1].starts_with("LimitRange small"));
        let many = json!({"items": vec![json!({"metadata": {"name": "x".repeat(999)}}); 1000]});
        let found = may_deny(&Value::Null, [&Value::Null, &Value::Null, &many, &list]);
        assert_eq!(found.len(), MOST);
        assert_eq!(found[0], MayDeny::Limit(format!("ResourceQuota {}", "x".repeat(LONGEST))));
    }
}
