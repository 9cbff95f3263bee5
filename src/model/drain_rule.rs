//! Rules for the pods of a drained Node: which leave, in which order, which stay, and for which a drain waits.
//!
//! In: `ClusterDrainRule` and `DrainRule` objects, and labels of pods, namespaces and Nodes. Out: for each pod what
//! applies to it, and why. The first match decides: a label of the pod, cluster rules by name, rules of its namespace by
//! name; else it leaves, in the order 0.

use super::labels::{CAPI_DRAIN, DRAIN};
use super::pod::PodView;
use super::selector::{Labels, Selector};
use serde_json::Value;
use std::collections::BTreeMap;

/// The group and version of the kinds.
pub const API: &str = "lifecycle.hactl.dev/v1alpha1";
/// The administrator's kind, and its plural.
pub const CLUSTER_KIND: (&str, &str) = ("ClusterDrainRule", "clusterdrainrules");
/// The kind of a namespace, and its plural.
pub const KIND: (&str, &str) = ("DrainRule", "drainrules");

/// What happens to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    /// It is evicted, after all pods of a lower order have left.
    Drain(i32),
    /// It stays, and the drain does not wait for it.
    Skip,
    /// It is never evicted, and the drain waits until it has completed.
    WaitCompleted,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainRule {
    /// As people write it, such as `DrainRule shop/db`.
    pub called: String,
    /// Its namespace; `None`: it is the administrator's.
    pub namespace: Option<String>,
    /// The namespaces that it is for.
    pub namespaces: Selector,
    /// The pods.
    pub pods: Selector,
    /// The Nodes.
    pub nodes: Selector,
    /// What happens to such pods.
    pub behavior: Behavior,
}

impl DrainRule {
    /// Reads an object of one of the two kinds.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn of(object: &Value) -> Result<Self, String> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("/metadata/name").ok_or("a drain rule has no name")?;
        let namespace = text("/metadata/namespace");
        let called = match namespace {
            Some(namespace) => format!("{} {namespace}/{name}", KIND.0),
            None => format!("{} {name}", CLUSTER_KIND.0),
        };
        let spec = &object["spec"];
        let selector = |field: &str| {
            Selector::of(&spec[field]).map_err(|why| format!("{called}: its {field} cannot be read: {why}"))
        };
        let order = match &spec["order"] {
            Value::Null => Some(0),
            order => order.as_i64().and_then(|order| i32::try_from(order).ok()),
        };
        let behavior = match spec["behavior"].as_str() {
            Some("Drain") => Behavior::Drain(order.ok_or_else(|| format!("{called}: its order cannot be read"))?),
            Some("Skip") => Behavior::Skip,
            Some("WaitCompleted") => Behavior::WaitCompleted,
            _ => return Err(format!("{called}: its behavior cannot be read")),
        };
        Ok(Self {
            namespaces: selector("namespaceSelector")?,
            pods: selector("podSelector")?,
            nodes: selector("nodeSelector")?,
            namespace: namespace.map(str::to_owned),
            behavior,
            called,
        })
    }
}

/// The rules of a cluster, as they apply to one Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainRules {
    /// Those for this Node, in the order in which they are asked.
    rules: Vec<DrainRule>,
    /// The labels of each namespace, as far as a rule asks for them.
    namespaces: BTreeMap<String, Labels>,
}

/// What applies to a pod, and what says so; `None`: nothing does, and it leaves.
pub type Ruled<'a> = (Behavior, Option<&'a str>);

impl DrainRules {
    /// The rules that apply to a Node with these labels.
    pub fn of(rules: impl IntoIterator<Item = DrainRule>, node: &Labels) -> Self {
        let mut rules: Vec<DrainRule> = rules.into_iter().filter(|rule| rule.nodes.matches(node)).collect();
        rules.sort_by(|a, b| (a.namespace.is_some(), &a.called).cmp(&(b.namespace.is_some(), &b.called)));
        Self { rules, namespaces: BTreeMap::new() }
    }

    /// Whether a rule asks for labels of namespaces.
    pub fn ask_for_namespaces(&self) -> bool {
        self.rules.iter().any(|rule| !rule.namespaces.is_empty())
    }

    /// The same with the labels of namespaces.
    #[must_use]
    pub fn with_namespaces(self, namespaces: BTreeMap<String, Labels>) -> Self {
        Self { namespaces, ..self }
    }

    /// What applies to a pod.
    pub fn applied_to(&self, pod: &PodView) -> Ruled<'_> {
        let by_label = [DRAIN, CAPI_DRAIN].into_iter().find_map(|key| match pod.labels.get(key)?.as_str() {
            "skip" => Some((Behavior::Skip, Some("its label"))),
            "wait-completed" => Some((Behavior::WaitCompleted, Some("its label"))),
            _ => None,
        });
        let nothing = Labels::new();
        let of_namespace = self.namespaces.get(&pod.namespace).unwrap_or(&nothing);
        let applies = |rule: &&DrainRule| {
            rule.namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace)
                && rule.namespaces.matches(of_namespace)
                && rule.pods.matches(&pod.labels)
        };
        let by_rule = || self.rules.iter().find(applies).map(|rule| (rule.behavior, Some(rule.called.as_str())));
        by_label.or_else(by_rule).unwrap_or((Behavior::Drain(0), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn pod(namespace: &str, pairs: &[(&str, &str)]) -> PodView {
        let metadata = json!({"name": "x", "uid": "u", "namespace": namespace, "labels": labels(pairs)});
        PodView::of(&json!({"metadata": metadata})).expect("it has a name and a uid")
    }

    fn rule(namespace: Option<&str>, name: &str, spec: Value) -> DrainRule {
        DrainRule::of(&json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})).unwrap()
    }

    #[test]
    fn the_label_of_the_pod_then_cluster_rules_then_those_of_its_namespace_decide() {
        let rules = DrainRules::of(
            [
                rule(Some("shop"), "a", json!({"behavior": "WaitCompleted"})),
                rule(
                    None,
                    "z",
                    json!({"behavior": "Drain", "order": 7, "podSelector": {"matchLabels": {"app": "db"}}}),
                ),
                rule(None, "b", json!({"behavior": "Skip", "podSelector": {"matchLabels": {"app": "db", "keep": ""}}})),
            ],
            &Labels::new(),
        );
        let said = |pod: PodView| {
            let (behavior, by) = rules.applied_to(&pod);
            (behavior, by.unwrap_or("nothing").to_owned())
        };
        let db = [("app", "db")];
        assert_eq!(said(pod("shop", &db)), (Behavior::Drain(7), "ClusterDrainRule z".to_owned()));
        assert_eq!(said(pod("shop", &[])), (Behavior::WaitCompleted, "DrainRule shop/a".to_owned()));
        assert_eq!(said(pod("other", &[])), (Behavior::Drain(0), "nothing".to_owned()));
        let kept = [("app", "db"), ("keep", "")];
        assert_eq!(said(pod("other", &kept)), (Behavior::Skip, "ClusterDrainRule b".to_owned()), "by name");
        for (key, value, behavior) in [
            (DRAIN, "wait-completed", Behavior::WaitCompleted),
            (DRAIN, "skip", Behavior::Skip),
            (CAPI_DRAIN, "skip", Behavior::Skip),
        ] {
            assert_eq!(said(pod("shop", &[("app", "db"), (key, value)])), (behavior, "its label".to_owned()));
        }
        assert_eq!(said(pod("shop", &[("app", "db"), (DRAIN, "maybe")])).1, "ClusterDrainRule z", "an unknown value");
    }

    #[test]
    fn a_rule_is_for_some_namespaces_and_some_nodes() {
        let skip =
            |field: &str, labels: Value| rule(None, "x", json!({"behavior": "Skip", field: {"matchLabels": labels}}));
        let monitoring = skip("namespaceSelector", json!({"team": "ops"}));
        let rules = DrainRules::of([monitoring], &Labels::new());
        assert!(rules.ask_for_namespaces());
        assert_eq!(rules.applied_to(&pod("metrics", &[])).0, Behavior::Drain(0), "its labels are unknown");
        let known = BTreeMap::from([("metrics".to_owned(), labels(&[("team", "ops")]))]);
        let rules = rules.with_namespaces(known);
        assert_eq!(rules.applied_to(&pod("metrics", &[])).0, Behavior::Skip);
        assert_eq!(rules.applied_to(&pod("shop", &[])).0, Behavior::Drain(0));

        let gpu = || skip("nodeSelector", json!({"gpu": "yes"}));
        let on = |node: &Labels| DrainRules::of([gpu()], node).applied_to(&pod("shop", &[])).0;
        assert_eq!(on(&labels(&[("gpu", "yes")])), Behavior::Skip);
        assert_eq!(on(&Labels::new()), Behavior::Drain(0));
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_an_error_with_its_name() {
        let read = |spec: Value| {
            DrainRule::of(&json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": spec})).unwrap_err()
        };
        for bad in [
            json!({}),
            json!({"behavior": "Surge"}),
            json!({"behavior": "Drain", "order": "last"}),
            json!({"behavior": "Drain", "order": 4_294_967_296_i64}),
            json!({"behavior": "Skip", "podSelector": {"matchFields": []}}),
        ] {
            assert!(read(bad.clone()).starts_with("DrainRule shop/db: "), "{bad}");
        }
        assert!(DrainRule::of(&json!({"spec": {"behavior": "Skip"}})).is_err());
    }
}
