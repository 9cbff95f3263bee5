//! Holds: a person's wish that nothing is repaired, on one host or on all.
//!
//! In: a file on a host, or annotations of objects in the API. Out: read by guards, and shown by `report/`. A hold can
//! only prevent repairs, so its texts need no proof of who wrote them.

use super::fault::evidence;
use super::labels;
use super::names::HostName;
use super::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// While this file exists, the guard of the host repairs nothing: a [`Hold`], or anything else, also an empty file.
pub const HOLD: &str = "/var/lib/hactl/guard/hold.json";
/// The holds by annotations, as last read from the API: [`Annotated`].
pub const ANNOTATED: &str = "/var/lib/hactl/guard/annotated.json";
/// The prefix of annotations that hold: `hold.hactl.dev/NAME: REASON`.
pub const ANNOTATION: &str = "hold.hactl.dev/";
/// The longest text of a person, characters.
const LONGEST: usize = 120;

/// A person's wish that nothing is repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The person.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Since when, by the host's clock, milliseconds since 1970.
    #[serde(deserialize_with = "timestamp::bounded")]
    pub since_ms: i64,
    /// When it ends; `None`: when somebody ends it.
    pub until_ms: Option<i64>,
    /// Whether it is an annotation, which only its removal ends.
    #[serde(default)]
    pub annotated: bool,
}

impl Hold {
    /// A hold whose file says nothing that can be read.
    pub fn unnamed() -> Self {
        let by = "a file on the host".to_owned();
        Self { by, reason: String::new(), since_ms: 0, until_ms: None, annotated: false }
    }

    /// That of a person or another tool on a Node, by an annotation; those of its maintenances are none of them.
    pub fn of_node(node: &Value) -> Option<Self> {
        let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        annotation(node, &format!("the Node {name}"), 0, |key| key != labels::HOLD)
    }

    /// That of a person or another tool on a pod: it is not evicted.
    pub fn of_pod(pod: &Value) -> Option<Self> {
        annotation(pod, "the pod", 0, |_| true)
    }

    /// Whether it still holds.
    pub fn holds(&self, now_ms: i64) -> bool {
        self.until_ms.is_none_or(|until_ms| now_ms < until_ms)
    }

    /// With texts of one line, of limited length.
    #[must_use]
    pub fn in_one_line(self) -> Self {
        let short = |text: &str| evidence(text).chars().take(LONGEST).collect();
        Self { by: short(&self.by), reason: short(&self.reason), ..self }
    }
}

/// Who holds, and why: `ops@laptop: "disk swap"`.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {:?}", self.reason) }
    }
}

/// The holds by annotations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Annotated {
    /// That of the namespace `kube-system`: no guard repairs anything.
    pub all: Option<Hold>,
    /// Those of Nodes.
    pub hosts: BTreeMap<HostName, Hold>,
}

impl Annotated {
    /// By the namespace and the Nodes of guarded hosts. A hold that was there before keeps its time.
    pub fn of(namespace: &Value, nodes: &BTreeMap<HostName, Value>, before: &Self, now_ms: i64) -> Self {
        let since = |hold: Hold, before: Option<&Hold>| {
            let since_ms = before.filter(|before| before.by == hold.by).map_or(hold.since_ms, |before| before.since_ms);
            Hold { since_ms, ..hold }
        };
        let all = annotation(namespace, "the Namespace kube-system", now_ms, |_| true);
        let host = |(name, node): (&HostName, &Value)| {
            let hold = annotation(node, &format!("the Node {name}"), now_ms, |_| true)?;
            Some((name.clone(), since(hold, before.hosts.get(name))))
        };
        Self { all: all.map(|hold| since(hold, before.all.as_ref())), hosts: nodes.iter().filter_map(host).collect() }
    }

    /// The hold of a host, or of all.
    pub fn hold(&self, host: &HostName) -> Option<&Hold> {
        self.all.as_ref().or_else(|| self.hosts.get(host))
    }

    /// Of hosts that are known only, with texts of one line.
    #[must_use]
    pub fn plausible(self, is_known: impl Fn(&HostName) -> bool) -> Self {
        let known = self.hosts.into_iter().filter(|(host, _)| is_known(host));
        Self {
            all: self.all.map(Hold::in_one_line),
            hosts: known.map(|(host, hold)| (host, hold.in_one_line())).collect(),
        }
    }
}

/// The first hold among the annotations of an object, if it counts.
fn annotation(object: &Value, of: &str, now_ms: i64, counts: impl Fn(&str) -> bool) -> Option<Hold> {
    let annotations = object.pointer("/metadata/annotations")?.as_object()?;
    let (key, reason) = annotations.iter().find(|(key, _)| key.starts_with(ANNOTATION) && counts(key))?;
    let hold = Hold {
        by: format!("the annotation {key} of {of}"),
        reason: reason.as_str().unwrap_or_default().to_owned(),
        since_ms: now_ms,
        until_ms: None,
        annotated: true,
    };
    Some(hold.in_one_line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_hold_is_shown_in_one_line() {
        let hold = Hold { by: "ops\u{1b}[31m".to_owned(), reason: "disk\nswap ".repeat(40), ..Hold::unnamed() };
        let shown = hold.in_one_line().to_string();
        assert!(shown.starts_with("ops [31m: \"disk swap disk") && shown.len() < 150, "{shown}");
        assert_eq!(Hold::unnamed().to_string(), "a file on the host");
    }

    #[test]
    fn an_annotation_of_the_prefix_holds_with_its_value_as_the_reason_and_keeps_its_time() {
        let node = |name: &str, key: &str| {
            let name: HostName = name.parse().unwrap();
            (name, json!({"metadata": {"annotations": {"other/x": "y", key: "disk\nswap"}}}))
        };
        let plain = json!({"metadata": {}});
        let nodes = BTreeMap::from([node("cp1", "hold.hactl.dev/ops"), node("cp2", "hold.hactl.development/ops")]);
        let first = Annotated::of(&plain, &nodes, &Annotated::default(), 5);
        let (cp1, cp2) = ("cp1".parse().unwrap(), "cp2".parse().unwrap());
        let shown = "the annotation hold.hactl.dev/ops of the Node cp1: \"disk swap\"";
        assert_eq!(first.hold(&cp1).unwrap().to_string(), shown);
        assert_eq!(first.hold(&cp2), None);
        let later = Annotated::of(&node("x", "hold.hactl.dev/all").1, &nodes, &first, 9);
        assert_eq!((later.hosts[&cp1].since_ms, later.all.as_ref().unwrap().since_ms), (5, 9));
        assert!(later.hold(&cp2).is_some(), "all are held");
        assert_eq!(Annotated::of(&plain, &BTreeMap::new(), &later, 10), Annotated::default(), "both are removed");
    }

    #[test]
    fn a_maintenance_is_held_by_others_and_not_by_itself() {
        let node = |keys: &[&str]| {
            let all: BTreeMap<&str, &str> = keys.iter().map(|key| (*key, "disk")).collect();
            json!({"metadata": {"name": "w3", "annotations": all}})
        };
        assert_eq!(Hold::of_node(&node(&[labels::HOLD])), None);
        let hold = Hold::of_node(&node(&[labels::HOLD, "hold.hactl.dev/ops"])).unwrap();
        assert_eq!(hold.to_string(), "the annotation hold.hactl.dev/ops of the Node w3: \"disk\"");
    }
}
