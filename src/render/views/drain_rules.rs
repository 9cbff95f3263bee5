//! The view of the kinds for drain rules: what differs between the two, and the schema of a selector.
//!
//! In: nothing. Out: the same for every cluster.

use crate::model::drain_rule::{CLUSTER_KIND, KIND};
use serde::Serialize;
use serde_json::{Value, json};

/// For `manifests/lifecycle/drain-rules.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct DrainRules {
    kinds: [Kind; 2],
}

#[derive(Debug, Serialize)]
struct Kind {
    name: &'static str,
    plural: &'static str,
    singular: String,
    short: &'static str,
    scope: &'static str,
    purpose: &'static str,
    selectors: Vec<Selector>,
    /// The highest order.
    most: i32,
    least: i32,
}

#[derive(Debug, Serialize)]
struct Selector {
    name: &'static str,
    schema: Value,
}

impl DrainRules {
    pub fn new() -> Self {
        let pods = || selector("podSelector", "Pods with these labels; all pods without it.");
        let nodes = || selector("nodeSelector", "Only on Nodes with these labels; on all Nodes without it.");
        let namespaces = "Pods of namespaces with these labels; of all namespaces without it.";
        Self {
            kinds: [
                Kind {
                    name: CLUSTER_KIND.0,
                    plural: CLUSTER_KIND.1,
                    singular: CLUSTER_KIND.0.to_lowercase(),
                    short: "cdrule",
                    scope: "Cluster",
                    purpose: "How pods of any namespace leave a drained Node. It precedes the rules of namespaces.",
                    selectors: vec![selector("namespaceSelector", namespaces), pods(), nodes()],
                    most: 1000,
                    least: -1000,
                },
                Kind {
                    name: KIND.0,
                    plural: KIND.1,
                    singular: KIND.0.to_lowercase(),
                    short: "drule",
                    scope: "Namespaced",
                    purpose: "How pods of this namespace leave a drained Node.",
                    selectors: vec![pods(), nodes()],
                    most: 100,
                    least: -100,
                },
            ],
        }
    }
}

/// Bounded, so that the API server can estimate what its rules cost.
fn selector(name: &'static str, description: &str) -> Selector {
    let label = json!({"type": "string", "maxLength": 63});
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string", "minLength": 1, "maxLength": 317},
            "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic", "items": label},
        },
        "x-kubernetes-validations": [{
            "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "message": "In and NotIn need values; Exists and DoesNotExist must have none",
        }],
    });
    let schema = json!({
        "type": "object",
        "description": description,
        "maxProperties": 2,
        "properties": {
            "matchLabels": {"type": "object", "maxProperties": 16, "additionalProperties": label},
            "matchExpressions": {
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "atomic",
                "items": expression,
            },
        },
    });
    Selector { name, schema }
}
