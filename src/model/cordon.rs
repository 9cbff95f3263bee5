//! The record of a cordon: what keeps a Node cordoned, and whether it was cordoned before.
//!
//! In: a Node as the API shows it, and a holder. Out: the merge patch with which the holder begins or ends. The record
//! is an annotation of the Node, written together with the cordon in one patch of one version of the Node: after a crash
//! at any moment, there are both or neither. The last holder that ends leaves the Node as the first one found it.

use super::labels::{CORDONED, DRAINED, HOLD, OUT_OF_SERVICE, RECORD, TAINTS, annotation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The version of the record. Another one cannot be read.
const SCHEMA: u8 = 1;
/// Before the name and uid of a maintenance.
const MAINTENANCE: &str = "nmt/";

/// What needs a Node cordoned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Holder {
    /// `hactl up`. A run continues what an earlier one began, and its lock admits one run at a time.
    Up,
    /// A NodeMaintenance. A later one of the same name has another uid.
    Maintenance {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

impl Holder {
    /// Whether it is the maintenance of this name and this uid.
    pub fn is_maintenance(&self, name: &str, uid: &str) -> bool {
        matches!(self, Self::Maintenance { name: own, uid: own_uid } if own == name && own_uid == uid)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => f.write_str("up"),
            Self::Maintenance { name, uid } => write!(f, "{MAINTENANCE}{name}/{uid}"),
        }
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> Self {
        holder.to_string()
    }
}

impl TryFrom<String> for Holder {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let maintenance = || text.strip_prefix(MAINTENANCE)?.split_once('/');
        match (text.as_str(), maintenance()) {
            ("up", _) => Ok(Self::Up),
            (_, Some((name, uid))) => Ok(Self::Maintenance { name: name.to_owned(), uid: uid.to_owned() }),
            _ => Err(format!("{text:?} holds no cordon")),
        }
    }
}

/// A taint of a Node that a maintenance needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Taint {
    /// DaemonSets create no pods there.
    Drained,
    /// The host is off: Kubernetes deletes its pods and detaches its volumes.
    OutOfService,
}

impl Taint {
    const ALL: [Self; 2] = [Self::Drained, Self::OutOfService];

    const fn key(self) -> &'static str {
        match self {
            Self::Drained => DRAINED,
            Self::OutOfService => OUT_OF_SERVICE,
        }
    }

    fn value(self) -> Value {
        match self {
            Self::Drained => json!({"key": DRAINED, "effect": "NoSchedule"}),
            Self::OutOfService => json!({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}),
        }
    }

    fn is_on(self, node: &Value) -> bool {
        taints_of(node).any(|taint| taint["key"] == self.key())
    }
}

/// What keeps a Node cordoned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CordonRecord {
    schema: u8,
    /// Whether the Node stays cordoned when the last holder ends.
    before: bool,
    by: BTreeSet<Holder>,
    /// Those of them that need each taint that was not there before. An annotation of its own: earlier versions of
    /// hactl read a record only if they know all of it.
    #[serde(skip)]
    taints: BTreeMap<Taint, BTreeSet<Holder>>,
}

/// Whether a Node is cordoned.
pub fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
}

fn taints_of(node: &Value) -> impl Iterator<Item = &Value> {
    node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten()
}

impl CordonRecord {
    /// The record of a Node. One that cannot be read is none: then the Node ends as it is now.
    pub fn of(node: &Value) -> Option<Self> {
        match annotation(node, RECORD) {
            Some(text) => {
                let read: Option<Self> = serde_json::from_str(text.as_str()?).ok();
                let taints = annotation(node, TAINTS).and_then(Value::as_str);
                let taints = taints.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
                read.filter(|record| record.schema == SCHEMA).map(|record| Self { taints, ..record })
            }
            // An earlier hactl set it, and only on Nodes that were not cordoned.
            None => annotation(node, CORDONED).map(|_| Self {
                schema: SCHEMA,
                before: false,
                by: BTreeSet::from([Holder::Up]),
                taints: BTreeMap::new(),
            }),
        }
    }

    /// Whether this holder keeps it cordoned.
    pub fn is_held_by(&self, by: &Holder) -> bool {
        self.by.contains(by)
    }

    /// The names of the maintenances that keep it cordoned.
    pub fn maintenances(&self) -> impl Iterator<Item = &str> {
        self.by.iter().filter_map(|holder| match holder {
            Holder::Maintenance { name, .. } => Some(name.as_str()),
            Holder::Up => None,
        })
    }

    /// The maintenances that keep it cordoned.
    pub fn held_by_maintenances(&self) -> Vec<Holder> {
        self.by.iter().filter(|holder| **holder != Holder::Up).cloned().collect()
    }

    /// Whether the Node stays cordoned when the last holder ends.
    pub fn stays_cordoned(&self) -> bool {
        self.before
    }

    /// The patch with which a holder cordons a Node, with these taints; `None` if it holds all that already.
    pub fn begin(node: &Value, by: &Holder, taints: &[Taint]) -> Option<Value> {
        let known = Self::of(node);
        let begun = known.as_ref().is_some_and(|record| record.is_held_by(by));
        let holds = |record: &Self, taint: &Taint| record.taints.get(taint).is_some_and(|by_whom| by_whom.contains(by));
        let is_held = |taint: &Taint| {
            let is_ours = |record: &Self| record.taints.contains_key(taint);
            taint.is_on(node) && known.as_ref().is_some_and(|record| holds(record, taint) || !is_ours(record))
        };
        if begun && is_cordoned(node) && taints.iter().all(is_held) {
            return None;
        }
        let mut record = known.unwrap_or_else(|| Self {
            schema: SCHEMA,
            before: is_cordoned(node),
            by: BTreeSet::new(),
            taints: BTreeMap::new(),
        });
        record.by.insert(by.clone());
        let before = record.taints.clone();
        for taint in taints {
            // One that somebody else has set is theirs.
            if !taint.is_on(node) || record.taints.contains_key(taint) {
                record.taints.entry(*taint).or_default().insert(by.clone());
            }
        }
        let mut patch = record.annotated(node);
        patch["spec"] = json!({"unschedulable": true});
        record.taint(node, &before, &mut patch);
        Some(patch)
    }

    /// Adds the taints that the record needs to a patch, and takes away those that it needs no more.
    fn taint(&self, node: &Value, before: &BTreeMap<Taint, BTreeSet<Holder>>, patch: &mut Value) {
        let adds = |taint: &&Taint| self.taints.contains_key(*taint) && !taint.is_on(node);
        let removes =
            |taint: &&Taint| before.contains_key(*taint) && !self.taints.contains_key(*taint) && taint.is_on(node);
        let added: Vec<Value> = Taint::ALL.iter().filter(adds).map(|taint| taint.value()).collect();
        let removed: Vec<&Taint> = Taint::ALL.iter().filter(removes).collect();
        if !added.is_empty() || !removed.is_empty() {
            let stay = taints_of(node).filter(|one| !removed.iter().any(|taint| one["key"] == taint.key()));
            patch["spec"]["taints"] = stay.cloned().chain(added).collect();
        }
    }

    /// The patch with which a holder ends; `None` if it holds nothing. With `stays`, the Node stays cordoned after the
    /// last holder.
    pub fn end(node: &Value, by: &Holder, stays: bool) -> Option<Value> {
        let mut record = Self::of(node)?;
        if !record.by.remove(by) {
            return None;
        }
        record.before |= stays;
        let before = record.taints.clone();
        record.taints.retain(|_, by_whom| {
            by_whom.remove(by);
            !by_whom.is_empty()
        });
        let mut patch = record.annotated(node);
        if record.by.is_empty() {
            patch["metadata"]["annotations"][RECORD] = Value::Null;
            patch["metadata"]["annotations"][TAINTS] = Value::Null;
            if !record.before {
                patch["spec"] = json!({"unschedulable": null});
            }
        }
        record.taint(node, &before, &mut patch);
        Some(patch)
    }

    /// The patch that writes the record.
    fn annotated(&self, node: &Value) -> Value {
        let text = serde_json::to_string(self).unwrap_or_default();
        // Guards repair no host that a person works on.
        let names = self.maintenances().collect::<Vec<_>>().join(", ");
        let hold = if names.is_empty() { Value::Null } else { json!(format!("NodeMaintenance {names}")) };
        let mut annotations = json!({RECORD: text, CORDONED: null, HOLD: hold});
        if !self.taints.is_empty() || annotation(node, TAINTS).is_some() {
            let taints = (!self.taints.is_empty()).then(|| serde_json::to_string(&self.taints).unwrap_or_default());
            annotations[TAINTS] = json!(taints);
        }
        json!({"metadata": {"annotations": annotations}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::merge_patch::merged;
    use proptest::prelude::*;

    fn node(cordoned: bool) -> Value {
        let spec = if cordoned { json!({"unschedulable": true}) } else { json!({}) };
        json!({"metadata": {"name": "w1"}, "spec": spec})
    }

    fn holder(number: u8) -> Holder {
        match number {
            0 => Holder::Up,
            n => Holder::Maintenance { name: format!("n{n}"), uid: format!("u{n}") },
        }
    }

    /// The taints that a holder needs.
    fn needs(number: u8) -> &'static [Taint] {
        match number {
            2 => &[Taint::Drained],
            3 => &Taint::ALL,
            _ => &[],
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin(u8),
        End(u8, bool),
        /// A person uncordons the Node.
        Uncordon,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u8..4).prop_map(Step::Begin),
            4 => (0_u8..4, any::<bool>()).prop_map(|(by, stays)| Step::End(by, stays)),
            1 => Just(Step::Uncordon),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_order_a_node_is_cordoned_while_held_and_ends_as_it_began_unless_it_is_to_stay_cordoned(
            (before, theirs) in any::<(bool, bool)>(), steps in proptest::collection::vec(step(), 0..20),
        ) {
            let mut node = node(before);
            node["spec"]["taints"] = json!([{"key": "example.org/theirs", "effect": "NoSchedule"}]);
            if theirs {
                node["spec"]["taints"].as_array_mut().unwrap().push(Taint::OutOfService.value());
            }
            let (mut held, mut stays, mut uncordoned) = (BTreeSet::new(), before, false);
            let ends = (0..4).map(|by| Step::End(by, false));
            for step in steps.into_iter().chain(ends) {
                let patch = match step {
                    Step::Begin(by) => {
                        if held.is_empty() {
                            stays = is_cordoned(&node);
                        }
                        held.insert(by);
                        uncordoned = false;
                        CordonRecord::begin(&node, &holder(by), needs(by))
                    }
                    Step::End(by, stay) => {
                        stays |= held.remove(&by) && stay;
                        CordonRecord::end(&node, &holder(by), stay)
                    }
                    Step::Uncordon => {
                        uncordoned = true;
                        Some(json!({"spec": {"unschedulable": null}}))
                    }
                };
                if let Some(patch) = &patch {
                    node = merged(&node, patch);
                    // A patch that arrives twice changes nothing.
                    let once = node.clone();
                    node = merged(&node, patch);
                    prop_assert_eq!(&once, &node);
                }
                prop_assert_eq!(annotation(&node, RECORD).is_some(), !held.is_empty());
                prop_assert_eq!(annotation(&node, HOLD).is_some(), held.iter().any(|by| *by != 0));
                for taint in Taint::ALL {
                    let was_there = theirs && taint == Taint::OutOfService;
                    prop_assert_eq!(taint.is_on(&node), was_there || held.iter().any(|by| needs(*by).contains(&taint)));
                }
                prop_assert_eq!(taints_of(&node).filter(|taint| taint["key"] == "example.org/theirs").count(), 1);
                let expected = !uncordoned && (!held.is_empty() || stays);
                prop_assert_eq!(is_cordoned(&node), expected);
                if held.is_empty() {
                    stays = is_cordoned(&node);
                }
            }
        }
    }

    #[test]
    fn the_cordon_of_an_earlier_hactl_is_that_of_up() {
        let mut node = node(true);
        node["metadata"]["annotations"] = json!({CORDONED: "to drain it"});
        assert!(CordonRecord::of(&node).is_some_and(|record| record.is_held_by(&Holder::Up) && !record.before));
        let patch = CordonRecord::end(&node, &Holder::Up, false).expect("it is held");
        node = merged(&node, &patch);
        assert!(!is_cordoned(&node));
        assert_eq!(node["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn a_record_that_cannot_be_read_leaves_the_node_as_it_is() {
        for text in ["", "{}", "{\"schema\":2,\"before\":false,\"by\":[\"up\"]}", "{\"schema\":1,\"by\":[\"x\"]}"] {
            let mut node = node(true);
            node["metadata"]["annotations"] = json!({RECORD: text});
            assert_eq!(CordonRecord::end(&node, &Holder::Up, false), None, "{text}");
            let patch = CordonRecord::begin(&node, &Holder::Up, &[]).expect("it is not held");
            node = merged(&node, &patch);
            assert!(CordonRecord::of(&node).is_some_and(|record| record.stays_cordoned()), "{text}");
        }
    }
}
