//! How far the drain of a Node is, and what one would do.
//!
//! In: what an object of the API says, or what a drain does. Out: `status.drain` of a maintenance. Texts from the API are
//! shown to people only.

use super::timestamp::rfc3339;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// The most blocked and kept pods that a status names.
pub const MOST_NAMED: usize = 20;
/// The longest text of a status, in characters: an object stays small.
pub(super) const LONGEST: usize = 300;

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
    pub(super) fn of(drain: &Value) -> Self {
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
