//! The maintenance of a Node: what its author asks for, and how far it is.
//!
//! In: an object NodeMaintenance of the API. Out: a [`Maintenance`]; the `spec` of a new object; its `status`. Texts
//! from the API are shown to people only.

use super::cordon::{Holder, Taint};
pub use super::drain_progress::{BlockedPod, DrainPreview, DrainProgress, MOST_NAMED, short};
pub use super::drain_request::{DrainRequest, Through};
use super::duration::YEAR_S;
use super::gate::{Closed, Gate};
use super::labels::{COMPLETION, ROLLOUT};
use super::names::HostName;
use super::timestamp::parse_rfc3339;
pub use super::work::{Reboot, RebootRequest, Work};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The group and version of the kind.
pub const API: &str = "lifecycle.hactl.dev/v1alpha1";
/// The kind.
pub const KIND: &str = "NodeMaintenance";
/// Its plural, as in URLs.
pub const PLURAL: &str = "nodemaintenances";
/// What `approval` is if somebody has to approve a maintenance.
const REQUIRED: &str = "Required";
/// The Lease of the process that acts on the maintenances of all Nodes.
pub const CONTROLLERS_LEASE: &str = "hactl-controllers";
/// The ConfigMap that names the cluster of etcd in which they act.
pub const CONTROLLERS_CONFIG_MAP: &str = "hactl-controllers";

/// The Lease of a command that acts on the maintenances of one Node.
pub fn node_lease(node: &HostName) -> String {
    format!("hactl-maintenance-{node}")
}

/// How far a maintenance is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is only announced.
    Idle,
    /// The Node is cordoned.
    Cordon,
    /// Its pods leave.
    Drain,
    /// The Node is restored.
    Complete,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Idle, Self::Cordon, Self::Drain, Self::Complete];

    /// As the API writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Cordon => "Cordon",
            Self::Drain => "Drain",
            Self::Complete => "Complete",
        }
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == text)
    }
}

/// How far a maintenance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing has been done.
    Idle,
    /// Nothing has been done yet, because something is in the way.
    Waiting,
    /// The Node is cordoned.
    Cordoned,
    /// Pods leave.
    Draining,
    /// Pods leave, and something refuses the eviction of some.
    Blocked,
    /// No pod is left that has to leave.
    Drained,
    /// Its host was asked to reboot.
    Rebooting,
    /// Its host was asked to reboot, and is not back in time.
    Overdue,
    /// It ends, and its static pods are not back yet.
    Completing,
    /// The Node is as it was before.
    Completed,
    /// The drain was given up, and the Node is as it was before.
    Failed,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::Waiting,
        Self::Cordoned,
        Self::Draining,
        Self::Blocked,
        Self::Drained,
        Self::Rebooting,
        Self::Overdue,
        Self::Completing,
        Self::Completed,
        Self::Failed,
    ];

    /// As the API writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Waiting => "Waiting",
            Self::Cordoned => "Cordoned",
            Self::Draining => "Draining",
            Self::Blocked => "Blocked",
            Self::Drained => "Drained",
            Self::Rebooting => "Rebooting",
            Self::Overdue => "Overdue",
            Self::Completing => "Completing",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing of the maintenance is left on the Node.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == text)
    }
}

/// What its author asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The Node.
    pub node: HostName,
    /// How far.
    pub stage: Stage,
    /// Why, for people.
    pub reason: String,
    /// What is done once the Node is drained.
    pub work: Work,
    /// Whether the Node stays cordoned at the end.
    pub stays_cordoned: bool,
    /// Whether a host may be taken from a control plane that cannot spare any.
    pub allow_outage: bool,
    /// Whether the host is off, so that its pods are deleted and its volumes detached.
    pub powered_off: bool,
    /// How pods leave.
    pub drain: DrainRequest,
    /// What has to be given before it begins.
    pub gate: Gate,
}

impl Wanted {
    /// The whole `spec` of the object, as a merge patch: what is not asked for is null.
    pub fn spec(&self) -> Value {
        let mut spec = json!({
            "nodeName": self.node,
            "stage": self.stage.name(),
            "reason": self.reason,
            "after": if self.stays_cordoned { "StayCordoned" } else { "Restore" },
            "allowOutage": self.allow_outage,
            "poweredOff": self.powered_off,
            "drain": self.drain.spec(),
        });
        for (field, value) in self.work.spec().into_iter().chain(self.gate.spec(REQUIRED)) {
            spec[field] = value;
        }
        spec
    }

    /// The taints that its Node has meanwhile.
    pub fn taints(&self) -> Vec<Taint> {
        let off = self.powered_off.then_some(Taint::OutOfService);
        self.drain.through.taint().into_iter().chain(off).filter(|_| self.stage == Stage::Drain).collect()
    }

    /// Why a maintenance of this name that has not begun cannot begin at a time; `None`: it can.
    pub fn closed(&self, name: &str, now_ms: i64) -> Option<Closed> {
        self.gate.closed(now_ms, &format!("hactl maintain approve {name}"))
    }

    /// The `spec` of a new object, which has no field for what is not asked for.
    pub fn new_spec(&self) -> Value {
        without_nulls(self.spec())
    }
}

/// Without what is not asked for.
pub(super) fn without_nulls(mut spec: Value) -> Value {
    for at in ["", "/drain"] {
        if let Some(fields) = spec.pointer_mut(at).and_then(Value::as_object_mut) {
            fields.retain(|_, value| !value.is_null());
        }
    }
    spec
}

/// Conditions of a maintenance: whether each holds, and since when.
pub type Conditions = BTreeMap<String, (bool, String)>;

/// A maintenance, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was created, by the API server's clock, milliseconds since 1970.
    pub created_ms: i64,
    /// The rollout that has made it, by its name.
    pub rollout: Option<String>,
    /// What its author asks for.
    pub wanted: Wanted,
    /// Whether it is being deleted, which has the effect of [`Stage::Complete`].
    pub is_deleted: bool,
    /// Whether it may have changed its Node: it has our finalizer.
    pub holds: bool,
    /// How far it is; `None`: nobody has acted on it.
    pub state: Option<State>,
    /// What it waits for, or why its drain was given up, in words.
    pub why: String,
    /// Changes with what its author asks for.
    pub generation: Option<u64>,
    /// Whether its state is that of what its author asks for now.
    pub is_observed: bool,
    /// Its conditions: whether each holds, and since when.
    pub conditions: Conditions,
    /// When its drain began, by the clock of hactl, milliseconds since 1970.
    pub drain_began_ms: Option<i64>,
    /// For how long processes drained its Node so far.
    pub drain_lasted: Duration,
    /// What was last reported of its drain.
    pub progress: DrainProgress,
    /// The reboot of its host, once it was asked for.
    pub reboot: Option<Reboot>,
    /// When its next window opens, if it waits for that.
    pub next_window: Option<String>,
    /// The request that the node agent hold the static pods of its Node, once it was made.
    pub static_pods: Option<String>,
}

impl Maintenance {
    /// Reads an object of the kind.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn of(object: &Value) -> Result<Self, String> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text("/metadata/name").ok_or_else(|| format!("a {KIND} has no name"))?;
        let garbled = |why: &str| format!("{KIND} {name}: {why}");
        let node = text("/spec/nodeName").and_then(|node| node.parse().ok());
        let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        Ok(Self {
            name: name.to_owned(),
            uid: text("/metadata/uid").ok_or_else(|| garbled("it has no uid"))?.to_owned(),
            created_ms: text("/metadata/creationTimestamp").and_then(parse_rfc3339).unwrap_or(0),
            rollout: object["metadata"]["labels"][ROLLOUT].as_str().map(short),
            wanted: Wanted {
                node: node.ok_or_else(|| garbled("its nodeName is not the name of a host"))?,
                stage: match text("/spec/stage") {
                    None => Stage::Idle,
                    Some(stage) => Stage::of(stage).ok_or_else(|| garbled("its stage cannot be read"))?,
                },
                reason: short(text("/spec/reason").unwrap_or_default()),
                work: Work::of(&object["spec"]).map_err(|why| garbled(&why))?,
                stays_cordoned: text("/spec/after") == Some("StayCordoned"),
                allow_outage: object["spec"]["allowOutage"] == true,
                powered_off: object["spec"]["poweredOff"] == true,
                drain: DrainRequest::of(&object["spec"]["drain"]).map_err(|why| garbled(&why))?,
                gate: Gate::of(&object["spec"], REQUIRED).map_err(|why| garbled(&why))?,
            },
            is_deleted: text("/metadata/deletionTimestamp").is_some(),
            holds: finalizers.is_some_and(|all| all.iter().any(|one| one == COMPLETION)),
            state: text("/status/state").and_then(State::of),
            why: short(text("/status/waitingFor/0/message").unwrap_or_default()),
            generation: object.pointer("/metadata/generation").and_then(Value::as_u64),
            is_observed: object.pointer("/metadata/generation") == object.pointer("/status/observedGeneration"),
            conditions: conditions(object),
            drain_began_ms: text("/status/drain/startTime").and_then(parse_rfc3339),
            drain_lasted: seconds(object.pointer("/status/drain/lastedSeconds")),
            progress: DrainProgress::of(&object["status"]["drain"]),
            reboot: Reboot::of(&object["status"]["reboot"]),
            next_window: text("/status/nextWindow").map(short),
            static_pods: text("/status/staticPods/request").map(short),
        })
    }

    /// What it is to the record of its Node's cordon.
    pub fn holder(&self) -> Holder {
        Holder::Maintenance { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// Whether it takes its Node away, or is about to.
    pub fn takes(&self) -> bool {
        matches!(self.wanted.stage, Stage::Cordon | Stage::Drain) && !self.ends() && !self.is_over()
    }

    /// Why it cannot begin now, or not go on; `None`: it can. What has begun goes on outside its windows, except a drain
    /// that is not complete.
    pub fn closed(&self, now_ms: i64) -> Option<Closed> {
        let has_begun = match self.state {
            Some(State::Drained | State::Rebooting | State::Overdue) => true,
            Some(State::Cordoned) => self.wanted.stage == Stage::Cordon,
            _ => false,
        };
        if self.holds && has_begun {
            return None;
        }
        self.wanted.closed(&self.name, now_ms)
    }

    /// Whether it has not begun, because a person or a time has to come first.
    pub fn is_later(&self, now_ms: i64) -> bool {
        !self.holds && self.closed(now_ms).is_some()
    }

    /// Whether nothing of it is left on its Node.
    pub fn is_over(&self) -> bool {
        self.state.is_some_and(State::is_over)
    }

    /// Whether the host reboots once its Node is drained.
    pub fn reboots(&self) -> bool {
        self.wanted.stage == Stage::Drain && matches!(self.wanted.work, Work::Reboot(_))
    }

    /// Whether nothing is in the way of its reboot any more, or it is under way.
    pub fn is_about_to_reboot(&self) -> bool {
        self.reboots()
            && !self.ends()
            && self.why.is_empty()
            && matches!(self.state, Some(State::Drained | State::Rebooting))
    }

    /// Whether its Node is to be restored.
    pub fn ends(&self) -> bool {
        self.is_deleted || self.wanted.stage == Stage::Complete
    }

    /// The request that static pods are held, while they are to be.
    pub fn holds_static_pods(&self) -> Option<&str> {
        let is_drain = matches!(self.state, Some(State::Draining | State::Blocked | State::Drained));
        let asks = self.wanted.stage == Stage::Drain && self.wanted.drain.through == Through::Static;
        self.static_pods.as_deref().filter(|_| asks && is_drain && self.holds && !self.ends())
    }

    /// Whether it is as far as its author asks for, or was given up.
    pub fn is_settled(&self) -> bool {
        match (self.state, self.wanted.stage) {
            _ if self.ends() => !self.holds && (self.is_over() || self.is_deleted),
            (None | Some(State::Waiting), _) => false,
            // Its reboot is done. It is not repeated, whatever changes in its `spec`.
            (Some(State::Completed), _) => !self.holds,
            (Some(State::Failed), _) => self.is_observed,
            (Some(state), Stage::Cordon) => state == State::Cordoned,
            // What it asks for may have become more.
            (Some(state), Stage::Drain) => {
                state == State::Drained && self.is_observed && self.why.is_empty() && !self.reboots()
            }
            (Some(_), Stage::Idle | Stage::Complete) => true,
        }
    }
}

/// A number of seconds, of a year at most.
fn seconds(value: Option<&Value>) -> Duration {
    Duration::from_secs(value.and_then(Value::as_u64).unwrap_or(0).min(YEAR_S))
}

fn conditions(object: &Value) -> Conditions {
    let all = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let read = |one: &Value| {
        let since = short(one["lastTransitionTime"].as_str()?);
        Some((short(one["type"].as_str()?), (one["status"] == "True", since)))
    };
    all.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gate::Approval;
    use proptest::prelude::*;

    fn object(spec: Value, status: Value) -> Value {
        json!({
            "metadata": {"name": "w3", "uid": "u1", "creationTimestamp": "2026-11-29T04:00:00Z"},
            "spec": spec,
            "status": status,
        })
    }

    fn duration(bound: std::ops::Range<u64>) -> impl Strategy<Value = Option<Duration>> {
        proptest::option::of(bound.prop_map(Duration::from_secs))
    }

    prop_compose! {
        fn request()(
            through in 0..3_usize,
            evict_unmanaged: bool,
            force_after in duration(60..700_000),
            wait_completed_for in duration(60..700_000),
            give_up_after in duration(60..700_000),
        ) -> DrainRequest {
            let through = Through::ALL[through];
            DrainRequest { through, evict_unmanaged, force_after, wait_completed_for, give_up_after }
        }
    }

    fn work() -> impl Strategy<Value = Work> {
        let reboot = (60..14_400_u64, any::<bool>()).prop_map(|(seconds, then_heal)| {
            Work::Reboot(RebootRequest { timeout: Duration::from_secs(seconds), then_heal })
        });
        prop_oneof![Just(Work::ByPerson), reboot]
    }

    proptest! {
        #[test]
        fn what_is_written_into_an_object_is_read_from_it(
            (drain, work) in (request(), work()), (stays_cordoned, allow_outage, powered_off) in any::<(bool, bool, bool)>(), stage in 0..4_usize,
            reason in "[ -~]{1,40}", approval in 0..3_usize, windows in 0..3_usize,
        ) {
            let approval = [Approval::NotRequired, Approval::Required, Approval::Given][approval];
            let gate = Gate { windows: vec!["0 1 * * 6 4h Europe/Berlin".parse().unwrap(); windows], approval };
            let node = "w3".parse().unwrap();
            let stage = Stage::ALL[stage];
            let wanted = Wanted { node, stage, reason, work, stays_cordoned, allow_outage, powered_off, drain, gate };
            prop_assert_eq!(Maintenance::of(&object(wanted.spec(), Value::Null)).unwrap().wanted, wanted);
        }
    }

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let blocked = BlockedPod { pod: "shop/db-1".to_owned(), message: "budget".to_owned(), never: true };
        let progress = DrainProgress {
            to_leave: 41,
            left: 37,
            later: 2,
            blocked_count: 1,
            blocked: vec![blocked],
            kept: vec![("a/b".to_owned(), "DrainRule a/c".to_owned())],
            forced: vec!["shop/db-2".to_owned()],
            waits_for: String::new(),
        };
        let status =
            json!({"state": "Blocked", "drain": progress.status(1_700_000_000_000, Duration::from_millis(7_900))});
        let read = Maintenance::of(&object(json!({"nodeName": "w3"}), status)).unwrap();
        assert_eq!((read.progress.clone(), read.state), (progress, Some(State::Blocked)));
        assert_eq!((read.drain_began_ms, read.drain_lasted), (Some(1_700_000_000_000), Duration::from_secs(7)));
        assert_eq!(read.progress.to_string(), "37/41");
        assert_eq!((read.wanted.stage, read.holds, read.ends()), (Stage::Idle, false, false));
    }

    #[test]
    fn an_object_that_is_deleted_or_complete_ends() {
        let mut deleted = object(json!({"nodeName": "w3", "stage": "Drain"}), Value::Null);
        deleted["metadata"]["deletionTimestamp"] = json!("2026-11-29T04:00:00Z");
        deleted["metadata"]["finalizers"] = json!(["a/b", COMPLETION]);
        let read = Maintenance::of(&deleted).unwrap();
        assert!(read.ends() && read.holds);
        assert!(Maintenance::of(&object(json!({"nodeName": "w3", "stage": "Complete"}), Value::Null)).unwrap().ends());
    }

    #[test]
    fn a_field_that_decides_and_cannot_be_read_is_an_error_with_the_name_of_the_object() {
        for spec in [
            json!({}),
            json!({"nodeName": "../w3"}),
            json!({"nodeName": "w3", "stage": "Later"}),
            json!({"nodeName": "w3", "action": "Explode"}),
            json!({"nodeName": "w3", "action": "Reboot", "reboot": {"timeout": 3}}),
            json!({"nodeName": "w3", "drain": {"through": "All"}}),
            json!({"nodeName": "w3", "drain": {"forceAfter": "soon"}}),
            json!({"nodeName": "w3", "drain": {"giveUpAfter": 3}}),
            json!({"nodeName": "w3", "drain": {"forceAfter": "18446744073709551615h"}}),
            json!({"nodeName": "w3", "drain": {"forceAfter": "10"}}),
            json!({"nodeName": "w3", "drain": {"forceAfter": ""}}),
        ] {
            let why = Maintenance::of(&object(spec.clone(), Value::Null)).unwrap_err();
            assert!(why.starts_with("NodeMaintenance w3: "), "{spec}: {why}");
        }
    }

    #[test]
    fn texts_of_others_are_short_and_on_one_line() {
        let long = "x".repeat(1000);
        let status = json!({"drain": {"blocked": [{"pod": "a\n\u{1b}b", "message": long}]}});
        let read = Maintenance::of(&object(json!({"nodeName": "w3", "reason": "a\nb"}), status)).unwrap();
        let blocked = &read.progress.blocked[0];
        assert_eq!((blocked.pod.as_str(), blocked.message.len()), ("a  b", crate::model::drain_progress::LONGEST));
        assert_eq!(read.wanted.reason, "a b");
    }
}
