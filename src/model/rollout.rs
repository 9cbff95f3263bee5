//! A rollout: one maintenance after the other for many Nodes, a few at a time.
//!
//! In: an object NodeMaintenanceRollout of the API. Out: a [`Rollout`], the `spec` of a new one, its `status`, and the
//! objects of its Nodes. Texts from the API are shown to people only.

use super::duration::go_duration;
use super::gate::{Approval, Closed, Gate};
use super::labels::ROLLOUT;
use super::maintenance::{
    API as MAINTENANCE_API, DrainRequest, KIND as MAINTENANCE_KIND, Stage, Wanted, Work, short, without_nulls,
};
use super::names::{Digest, HostName};
use super::selector::Selector;
use super::timestamp::parse_rfc3339;
use serde_json::{Value, json};
use std::time::Duration;

pub use super::maintenance::API;

/// The kind.
pub const KIND: &str = "NodeMaintenanceRollout";
/// Its plural, as in URLs.
pub const PLURAL: &str = "nodemaintenancerollouts";
/// The label that names the domain of failure of a Node, unless the author of a rollout names another one.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The longest name: its maintenances have names of their own, and they begin with it.
pub const LONGEST_NAME: usize = 52;
/// The longest name of a maintenance.
const LONGEST_CHILD: usize = 63;
/// What `approval` is if somebody has to approve a rollout.
const ONCE: &str = "Once";
/// What it is if somebody has to approve each of its Nodes.
const EACH_NODE: &str = "EachNode";
/// How long a Node has been ready again before the next one begins, unless its author says otherwise.
const SOAK: Duration = Duration::from_secs(30);

/// Which Nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selected {
    /// All.
    All,
    /// Those with these labels: the selector as it was written, and as it is read.
    Labels(Value, Selector),
}

/// When hosts of the control plane have their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// After all others.
    Last,
    /// Before all others.
    First,
    /// Never.
    Exclude,
}

impl Turn {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Last, Self::First, Self::Exclude];

    /// As the API writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Last => "Last",
            Self::First => "First",
            Self::Exclude => "Exclude",
        }
    }
}

/// How many Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Most {
    /// So many.
    Count(usize),
    /// So many of a hundred, at least one.
    Percent(usize),
}

impl Most {
    /// Reads a number, or a percentage such as `10%`.
    ///
    /// # Errors
    /// It is neither.
    pub fn of(text: &str) -> Result<Self, String> {
        let number = |text: &str, most: usize| text.parse().ok().filter(|number| (1..=most).contains(number));
        let read = match text.strip_suffix('%') {
            Some(percent) => number(percent, 100).map(Self::Percent),
            None => number(text, 1000).map(Self::Count),
        };
        read.ok_or_else(|| "write 1 to 1000, or 1% to 100%".to_owned())
    }

    /// How many of so many.
    pub fn of_all(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (all * percent / 100).max(1),
        }
    }

    fn spec(self) -> Value {
        match self {
            Self::Count(count) => json!(count),
            Self::Percent(percent) => json!(format!("{percent}%")),
        }
    }
}

/// What its author asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutWanted {
    /// Which Nodes.
    pub nodes: Selected,
    /// Whether Nodes are left out whose hosts need no reboot.
    pub only_if_required: bool,
    /// When hosts of the control plane have their turn.
    pub control_plane: Turn,
    /// How many of the Nodes may be away at once.
    pub max_unavailable: Most,
    /// The label of domains of which one at a time has Nodes that are away; `None`: domains do not matter.
    pub one_domain_of: Option<String>,
    /// How long a Node has been ready again before the next one begins.
    pub soak: Duration,
    /// How many Nodes may fail before no other one begins.
    pub max_failures: usize,
    /// Whether no other Node begins.
    pub paused: bool,
    /// What has to be given before Nodes begin.
    pub gate: Gate,
    /// Whether somebody has to approve each Node.
    pub approves_each: bool,
    /// What is done on each Node, why, and how pods leave.
    pub template: Template,
}

/// The maintenance of each Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Why, for people.
    pub reason: String,
    /// What is done once it is drained.
    pub work: Work,
    /// How pods leave.
    pub drain: DrainRequest,
}

impl Template {
    fn of(template: &Value) -> Result<Self, String> {
        let action = if template["action"] == "Manual" { "None" } else { template["action"].as_str().unwrap_or("") };
        let work = json!({"action": action, "reboot": template["reboot"]});
        Ok(Self {
            reason: short(template["reason"].as_str().unwrap_or_default()),
            work: Work::of(&work)?,
            drain: DrainRequest::of(&template["drain"])?,
        })
    }

    fn spec(&self) -> Value {
        let mut spec = json!({
            "reason": self.reason,
            "drain": self.drain.spec(),
        });
        for (field, value) in self.work.spec() {
            spec[field] = value;
        }
        if self.work == Work::ByPerson {
            spec["action"] = json!("Manual");
        }
        without_nulls(spec)
    }
}

impl RolloutWanted {
    fn of(spec: &Value) -> Result<Self, String> {
        let nodes = match (&spec["nodeSelector"], spec["allNodes"] == true) {
            (Value::Null, true) => Selected::All,
            (Value::Null, false) => return Err("it selects no Nodes".to_owned()),
            (selector, _) => {
                let read = Selector::of(selector).map_err(|why| format!("its nodeSelector cannot be read: {why}"))?;
                Selected::Labels(selector.clone(), read)
            }
        };
        let turn = |name: &str| Turn::ALL.into_iter().find(|turn| turn.name() == name);
        let most = match &spec["maxUnavailable"] {
            Value::Null => Most::Count(1),
            Value::String(text) => Most::of(text).map_err(|_| "its maxUnavailable cannot be read")?,
            number => Most::of(&number.to_string()).map_err(|_| "its maxUnavailable cannot be read")?,
        };
        let approves_each = spec["approval"] == EACH_NODE;
        // Then the rollout itself needs none.
        let gate =
            if approves_each { Gate::of(&json!({"windows": spec["windows"]}), ONCE) } else { Gate::of(spec, ONCE) };
        let domain = &spec["failureDomain"];
        let key = domain["topologyKey"].as_str().unwrap_or(ZONE);
        let failures = spec["maxFailures"].as_u64().unwrap_or(0);
        Ok(Self {
            nodes,
            only_if_required: spec["onlyIf"] == "RebootRequired",
            control_plane: match spec["controlPlane"].as_str() {
                None => Turn::Last,
                Some(name) => turn(name).ok_or("its controlPlane cannot be read")?,
            },
            max_unavailable: most,
            one_domain_of: (domain["policy"] != "Any").then(|| key.to_owned()),
            soak: match &spec["soak"] {
                Value::Null => SOAK,
                text => text.as_str().and_then(go_duration_or_zero).ok_or("its soak cannot be read")?,
            },
            max_failures: usize::try_from(failures).unwrap_or(usize::MAX),
            paused: spec["paused"] == true,
            gate: gate?,
            approves_each,
            template: Template::of(&spec["template"])?,
        })
    }

    /// The maintenance of a Node.
    fn of_node(&self, node: &HostName) -> Wanted {
        let approval = if self.approves_each { Approval::Required } else { Approval::NotRequired };
        Wanted {
            node: node.clone(),
            stage: Stage::Drain,
            reason: self.template.reason.clone(),
            work: self.template.work.clone(),
            stays_cordoned: false,
            allow_outage: false,
            powered_off: false,
            drain: self.template.drain.clone(),
            gate: Gate { windows: self.gate.windows.clone(), approval },
        }
    }

    /// Why no Node of the rollout of this name can begin now; `None`: one can.
    pub fn closed(&self, name: &str, now_ms: i64) -> Option<Closed> {
        self.gate.closed(now_ms, &format!("hactl maintain approve {name}"))
    }

    /// The whole `spec` of a new object.
    pub fn spec(&self) -> Value {
        let mut spec = json!({
            "onlyIf": if self.only_if_required { "RebootRequired" } else { "Always" },
            "controlPlane": self.control_plane.name(),
            "maxUnavailable": self.max_unavailable.spec(),
            "failureDomain": match &self.one_domain_of {
                Some(key) => json!({"topologyKey": key, "policy": "OneAtATime"}),
                None => json!({"policy": "Any"}),
            },
            "soak": format!("{}s", self.soak.as_secs()),
            "maxFailures": self.max_failures,
            "paused": self.paused,
            "template": self.template.spec(),
        });
        for (field, value) in self.gate.spec(ONCE) {
            spec[field] = value;
        }
        if self.approves_each {
            spec["approval"] = json!(EACH_NODE);
        }
        match &self.nodes {
            Selected::All => spec["allNodes"] = json!(true),
            Selected::Labels(selector, _) => spec["nodeSelector"] = selector.clone(),
        }
        without_nulls(spec)
    }
}

fn go_duration_or_zero(text: &str) -> Option<Duration> {
    if text == "0s" { Some(Duration::ZERO) } else { go_duration(text) }
}

/// How far a rollout is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutState {
    /// Nothing has begun yet, because something is in the way.
    Waiting,
    /// Nodes are in maintenance, or will be.
    Progressing,
    /// No other Node begins, because a person asks for that.
    Paused,
    /// No other Node begins, because too many have failed.
    Stopped,
    /// All are done.
    Completed,
}

impl RolloutState {
    const ALL: [Self; 5] = [Self::Waiting, Self::Progressing, Self::Paused, Self::Stopped, Self::Completed];

    /// As the API writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Stopped => "Stopped",
            Self::Completed => "Completed",
        }
    }
}

/// A rollout, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was created, by the API server's clock, milliseconds since 1970.
    pub created_ms: i64,
    /// What its author asks for.
    pub wanted: RolloutWanted,
    /// Changes with what its author asks for.
    pub generation: Option<u64>,
    /// Whether it is being deleted: then its maintenances are, as well.
    pub is_deleted: bool,
    /// How far it is; `None`: nobody has acted on it.
    pub state: Option<RolloutState>,
    /// How many Nodes are done, of how many: `3/6`.
    pub progress: String,
    /// Nodes that have failed.
    pub failed: usize,
    /// What it waits for, in words.
    pub waits_for: Vec<String>,
    /// When its next window opens, if it waits for that.
    pub next_window: Option<String>,
}

impl Rollout {
    /// Reads an object of the kind.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn of(object: &Value) -> Result<Self, String> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("/metadata/name").ok_or_else(|| format!("a {KIND} has no name"))?;
        let garbled = |why: String| format!("{KIND} {name}: {why}");
        let waits = object.pointer("/status/waitingFor").and_then(Value::as_array).into_iter().flatten();
        let state = |text: &str| RolloutState::ALL.into_iter().find(|state| state.name() == text);
        let failed = object.pointer("/status/nodes/failed").and_then(Value::as_u64).unwrap_or(0);
        Ok(Self {
            name: name.to_owned(),
            uid: text("/metadata/uid").ok_or_else(|| garbled("it has no uid".to_owned()))?.to_owned(),
            created_ms: text("/metadata/creationTimestamp").and_then(parse_rfc3339).unwrap_or(0),
            wanted: RolloutWanted::of(&object["spec"]).map_err(garbled)?,
            generation: object.pointer("/metadata/generation").and_then(Value::as_u64),
            is_deleted: text("/metadata/deletionTimestamp").is_some(),
            state: text("/status/state").and_then(state),
            progress: short(text("/status/progress").unwrap_or_default()),
            failed: usize::try_from(failed).unwrap_or(usize::MAX),
            waits_for: waits.filter_map(|one| Some(short(one["message"].as_str()?))).take(MOST_WAITS).collect(),
            next_window: text("/status/nextWindow").map(short),
        })
    }

    /// Whether nothing is to be done any more.
    pub fn is_over(&self) -> bool {
        self.is_deleted || self.state == Some(RolloutState::Completed)
    }

    /// The name of the maintenance of a Node.
    pub fn child(&self, node: &HostName) -> String {
        let whole = format!("{}-{node}", self.name);
        if whole.len() <= LONGEST_CHILD {
            return whole;
        }
        format!("{}-{}", self.name, &Digest::of(node.as_str().as_bytes()).hex()[..10])
    }

    /// The maintenance of a Node, a new object that this one owns.
    pub fn maintenance(&self, node: &HostName) -> Value {
        let owner = json!({"apiVersion": API, "kind": KIND, "name": self.name, "uid": self.uid, "controller": true});
        let spec = self.wanted.of_node(node).new_spec();
        json!({
            "apiVersion": MAINTENANCE_API,
            "kind": MAINTENANCE_KIND,
            "metadata": {"name": self.child(node), "labels": {ROLLOUT: self.name}, "ownerReferences": [owner]},
            "spec": spec,
        })
    }
}

/// The most reasons that a status names.
pub const MOST_WAITS: usize = 8;

/// The uid of the rollout that owns a maintenance.
pub fn owner(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["kind"] == KIND)?["uid"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(spec: &Value) -> Value {
        json!({"metadata": {"name": "kernel", "uid": "u1"}, "spec": spec})
    }

    fn wanted() -> impl Strategy<Value = RolloutWanted> {
        let selector = json!({"matchLabels": {"pool": "a"}});
        let labels = Selected::Labels(selector.clone(), Selector::of(&selector).unwrap());
        let nodes = prop_oneof![Just(Selected::All), Just(labels)];
        let most = prop_oneof![(1..=1000_usize).prop_map(Most::Count), (1..=100_usize).prop_map(Most::Percent)];
        let domain = prop_oneof![Just(None), Just(Some(ZONE.to_owned())), Just(Some("rack".to_owned()))];
        let times = (0..80_000_u64, 0..1000_usize, any::<bool>(), any::<bool>());
        let work =
            prop_oneof![Just(Work::ByPerson), Just(Work::Reboot(super::super::maintenance::RebootRequest::default()))];
        let gate = prop_oneof![
            Just((Approval::NotRequired, false)),
            Just((Approval::Required, false)),
            Just((Approval::Given, false)),
            Just((Approval::NotRequired, true)),
        ];
        let windows = proptest::collection::vec(Just("0 1 * * 6 4h Europe/Berlin".parse().unwrap()), 0..3);
        (nodes, most, domain, 0..3_usize, times, work, (windows, gate)).prop_map(
            |(nodes, max_unavailable, one_domain_of, turn, times, work, (windows, (approval, approves_each)))| {
                let (soak, max_failures, paused, only) = times;
                let template = Template { reason: "new kernel".to_owned(), work, drain: DrainRequest::default() };
                RolloutWanted {
                    nodes,
                    only_if_required: only,
                    control_plane: Turn::ALL[turn],
                    max_unavailable,
                    one_domain_of,
                    soak: Duration::from_secs(soak),
                    max_failures,
                    paused,
                    gate: Gate { windows, approval },
                    approves_each,
                    template,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_into_an_object_is_read_from_it(wanted in wanted()) {
            prop_assert_eq!(Rollout::of(&object(&wanted.spec())).unwrap().wanted, wanted);
        }

        #[test]
        fn every_node_has_a_maintenance_of_its_own_name(
            name in "[a-z]{1,52}", a in "[a-z0-9]{1,63}", b in "[a-z0-9]{1,63}",
        ) {
            let rollout = Rollout { name, ..Rollout::of(&object(&json!({"allNodes": true, "template": {"action": "Manual"}}))).unwrap() };
            let (a, b): (HostName, HostName) = (a.parse().unwrap(), b.parse().unwrap());
            prop_assert!(rollout.child(&a).len() <= LONGEST_CHILD);
            prop_assert_eq!(rollout.child(&a) == rollout.child(&b), a == b);
        }
    }

    #[test]
    fn a_field_that_decides_and_cannot_be_read_is_an_error_with_the_name_of_the_object() {
        let template = json!({"action": "Reboot"});
        for spec in [
            json!({"template": template}),
            json!({"allNodes": true, "template": {}}),
            json!({"allNodes": true, "template": template, "maxUnavailable": "all"}),
            json!({"allNodes": true, "template": template, "maxUnavailable": 0}),
            json!({"allNodes": true, "template": template, "soak": "soon"}),
            json!({"allNodes": true, "template": template, "controlPlane": "Maybe"}),
            json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}, "template": template}),
        ] {
            let why = Rollout::of(&object(&spec)).unwrap_err();
            assert!(why.starts_with("NodeMaintenanceRollout kernel: "), "{spec}: {why}");
        }
    }

    #[test]
    fn a_percentage_is_rounded_down_and_at_least_one() {
        assert_eq!((Most::Percent(10).of_all(39), Most::Percent(10).of_all(5), Most::Count(3).of_all(2)), (3, 1, 3));
        for bad in ["", "0", "-1", "1001", "0%", "101%", "x", "1.5"] {
            assert!(Most::of(bad).is_err(), "{bad}");
        }
    }
}
