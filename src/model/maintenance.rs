//! The maintenance of a Node: what its author asks for, and how far it is.
//!
//! In: an object NodeMaintenance of the API. Out: a [`Maintenance`]; the `spec` of a new object; its `status`. Texts
//! from the API are shown to people only.

use super::cordon::Holder;
use super::labels::COMPLETION;
use super::names::HostName;
use super::timestamp::{parse_rfc3339, rfc3339};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The group and version of the kind.
pub const API: &str = "lifecycle.hactl.dev/v1alpha1";
/// The kind.
pub const KIND: &str = "NodeMaintenance";
/// Its plural, as in URLs.
pub const PLURAL: &str = "nodemaintenances";
/// The Lease of the process that acts on the maintenances of all Nodes.
pub const CONTROLLERS_LEASE: &str = "hactl-controllers";
/// The most blocked and kept pods that a status names.
pub const MOST_NAMED: usize = 20;
/// Longer than any bound of the kind, and short enough for every clock.
const YEAR_S: u64 = 31_536_000;
/// The longest text of a status, in characters: an object stays small.
const LONGEST: usize = 300;

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
    /// The Node is as it was before.
    Completed,
    /// The drain was given up, and the Node is as it was before.
    Failed,
}

impl State {
    const ALL: [Self; 8] = [
        Self::Idle,
        Self::Waiting,
        Self::Cordoned,
        Self::Draining,
        Self::Blocked,
        Self::Drained,
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

/// What a maintenance asks of the drain of its Node. The default is that of `up`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainRequest {
    /// Whether pods are evicted that no controller creates again.
    pub evict_unmanaged: bool,
    /// A pod whose eviction was refused for this long is deleted, with its own grace period.
    pub force_after: Option<Duration>,
    /// For how long the drain waits for pods that have to complete, before it evicts them as well.
    pub wait_completed_for: Option<Duration>,
    /// How long after its begin the drain is given up.
    pub give_up_after: Option<Duration>,
}

impl DrainRequest {
    const DURATIONS: [&'static str; 3] = ["forceAfter", "waitCompletedFor", "giveUpAfter"];

    /// This request with another one for the same Node: nothing is done to pods that one of them does not ask for. When
    /// it is given up is its own.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        let longer = |one: Option<Duration>, other: Option<Duration>| Some(one?.max(other?));
        Self {
            evict_unmanaged: self.evict_unmanaged && other.evict_unmanaged,
            force_after: longer(self.force_after, other.force_after),
            wait_completed_for: longer(self.wait_completed_for, other.wait_completed_for),
            give_up_after: self.give_up_after,
        }
    }

    fn of(drain: &Value) -> Result<Self, String> {
        let [force_after, wait_completed_for, give_up_after] = Self::DURATIONS.map(|field| match &drain[field] {
            Value::Null => Ok(None),
            text => {
                let read = text.as_str().and_then(go_duration).map(Some);
                read.ok_or_else(|| format!("its drain.{field} cannot be read"))
            }
        });
        Ok(Self {
            evict_unmanaged: drain["unmanagedPods"] == "Evict",
            force_after: force_after?,
            wait_completed_for: wait_completed_for?,
            give_up_after: give_up_after?,
        })
    }

    fn spec(&self) -> Value {
        let mut drain = json!({"unmanagedPods": if self.evict_unmanaged { "Evict" } else { "Block" }});
        let durations = [self.force_after, self.wait_completed_for, self.give_up_after];
        for (field, duration) in Self::DURATIONS.into_iter().zip(durations) {
            drain[field] = duration.map_or(Value::Null, |duration| json!(in_go(duration)));
        }
        drain
    }
}

/// Reads a duration as Kubernetes writes it: `1h30m`, `90s`.
fn go_duration(text: &str) -> Option<Duration> {
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let (number, unit) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let each = match unit.chars().next()? {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(each)?)?;
        rest = &unit[1..];
    }
    (1..=YEAR_S).contains(&seconds).then(|| Duration::from_secs(seconds))
}

fn in_go(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
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
    /// Whether the Node stays cordoned at the end.
    pub stays_cordoned: bool,
    /// Whether a host may be taken from a control plane that cannot spare any.
    pub allow_outage: bool,
    /// How pods leave.
    pub drain: DrainRequest,
}

impl Wanted {
    /// The whole `spec` of the object, as a merge patch: what is not asked for is null.
    pub fn spec(&self) -> Value {
        json!({
            "nodeName": self.node,
            "stage": self.stage.name(),
            "reason": self.reason,
            "after": if self.stays_cordoned { "StayCordoned" } else { "Restore" },
            "allowOutage": self.allow_outage,
            "drain": self.drain.spec(),
        })
    }
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
            wanted: Wanted {
                node: node.ok_or_else(|| garbled("its nodeName is not the name of a host"))?,
                stage: match text("/spec/stage") {
                    None => Stage::Idle,
                    Some(stage) => Stage::of(stage).ok_or_else(|| garbled("its stage cannot be read"))?,
                },
                reason: short(text("/spec/reason").unwrap_or_default()),
                stays_cordoned: text("/spec/after") == Some("StayCordoned"),
                allow_outage: object["spec"]["allowOutage"] == true,
                drain: DrainRequest::of(&object["spec"]["drain"]).map_err(|why| garbled(&why))?,
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
        })
    }

    /// What it is to the record of its Node's cordon.
    pub fn holder(&self) -> Holder {
        Holder::Maintenance { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// Whether nothing of it is left on its Node.
    pub fn is_over(&self) -> bool {
        self.state.is_some_and(State::is_over)
    }

    /// Whether its Node is to be restored.
    pub fn ends(&self) -> bool {
        self.is_deleted || self.wanted.stage == Stage::Complete
    }

    /// Whether it is as far as its author asks for, or was given up.
    pub fn is_settled(&self) -> bool {
        match (self.state, self.wanted.stage) {
            _ if self.ends() => !self.holds && (self.is_over() || self.is_deleted),
            (None | Some(State::Waiting), _) => false,
            (Some(State::Completed | State::Failed), _) => self.is_observed,
            (Some(state), Stage::Cordon) => state == State::Cordoned,
            (Some(state), Stage::Drain) => state == State::Drained,
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

/// How far a drain is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainProgress {
    /// Pods that had to leave so far.
    pub to_leave: usize,
    /// Those of them that have left.
    pub left: usize,
    /// Pods that are not asked yet, because others leave before them.
    pub later: usize,
    /// How many cannot leave now.
    pub blocked_count: usize,
    /// The first of them.
    pub blocked: Vec<BlockedPod>,
    /// Pods that stay, and why.
    pub kept: Vec<(String, String)>,
    /// Pods that were deleted, because their eviction was refused for too long.
    pub forced: Vec<String>,
    /// What the drain waits for, in words.
    pub waits_for: String,
}

/// A pod whose eviction is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedPod {
    /// Namespace and name.
    pub pod: String,
    /// What refuses, in words.
    pub message: String,
    /// Whether that lasts until a person changes something.
    pub never: bool,
}

impl fmt::Display for DrainProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.left, self.to_leave)
    }
}

impl DrainProgress {
    fn of(drain: &Value) -> Self {
        let count = |field: &str| drain[field].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let text = |value: &Value| short(value.as_str().unwrap_or_default());
        let list = |field: &str| drain[field].as_array().into_iter().flatten().take(MOST_NAMED);
        let blocked = |one: &Value| BlockedPod {
            pod: text(&one["pod"]),
            message: text(&one["message"]),
            never: one["never"] == true,
        };
        Self {
            to_leave: count("toLeave"),
            left: count("left"),
            later: count("later"),
            blocked_count: count("blockedCount"),
            blocked: list("blocked").map(blocked).collect(),
            kept: list("kept").map(|one| (text(&one["pod"]), text(&one["reason"]))).collect(),
            forced: list("forced").map(text).collect(),
            waits_for: String::new(),
        }
    }

    /// As `status.drain`. Lists that are empty are written as such: a merge patch replaces them.
    pub fn status(&self, began_ms: i64, lasted: Duration) -> Value {
        let blocked = self.blocked.iter().take(MOST_NAMED);
        let kept = self.kept.iter().take(MOST_NAMED);
        json!({
            "startTime": rfc3339(began_ms),
            "lastedSeconds": lasted.as_secs(),
            "forced": self.forced.iter().take(MOST_NAMED).collect::<Vec<_>>(),
            "progress": self.to_string(),
            "toLeave": self.to_leave,
            "left": self.left,
            "later": self.later,
            "blockedCount": self.blocked_count,
            "blocked": blocked.map(|one| json!({"pod": one.pod, "message": short(&one.message), "never": one.never}))
                .collect::<Vec<_>>(),
            "kept": kept.map(|(pod, why)| json!({"pod": pod, "reason": short(why)})).collect::<Vec<_>>(),
        })
    }
}

/// What a drain would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainPreview {
    /// How many pods leave.
    pub leaves: usize,
    /// How many of them after the others.
    pub later: usize,
    /// How many belong to the Node, and stay.
    pub own: usize,
    /// Pods for which the drain waits until they have completed, and why.
    pub waits: Vec<(String, String)>,
    /// Pods that stay, and why.
    pub kept: Vec<(String, String)>,
    /// Pods that no controller creates again.
    pub lost: Vec<String>,
    /// Pods whose eviction would be refused now.
    pub refused: Vec<BlockedPod>,
    /// What is to be said of rules.
    pub notes: Vec<String>,
}

/// Text of limited length, on one line.
pub fn short(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
            evict_unmanaged: bool,
            force_after in duration(60..700_000),
            wait_completed_for in duration(60..700_000),
            give_up_after in duration(60..700_000),
        ) -> DrainRequest {
            DrainRequest { evict_unmanaged, force_after, wait_completed_for, give_up_after }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_into_an_object_is_read_from_it(
            drain in request(), stays_cordoned: bool, allow_outage: bool, stage in 0..4_usize, reason in "[ -~]{1,40}",
        ) {
            let wanted = Wanted {
                node: "w3".parse().unwrap(), stage: Stage::ALL[stage], reason, stays_cordoned, allow_outage, drain,
            };
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
        assert_eq!((blocked.pod.as_str(), blocked.message.len()), ("a  b", LONGEST));
        assert_eq!(read.wanted.reason, "a b");
    }
}
