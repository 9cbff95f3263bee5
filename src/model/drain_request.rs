//! What a maintenance asks of the drain of its Node.
//!
//! In: `spec.drain` of an object of the API. Out: a [`DrainRequest`], and `spec.drain` of a new object.

use super::cordon::Taint;
use super::duration::{go_duration, in_go};
use serde_json::{Value, json};
use std::time::Duration;

/// Which pods a drain asks to leave. Each includes those before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Through {
    /// Those that their controllers create elsewhere.
    #[default]
    Default,
    /// Those of DaemonSets, which create none on the Node while it has the taint of a drain.
    DaemonSet,
    /// Those that the kubelet runs from files: its node agent holds the files.
    Static,
}

impl Through {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Default, Self::DaemonSet, Self::Static];

    /// As the API writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::DaemonSet => "DaemonSet",
            Self::Static => "Static",
        }
    }

    /// The taint that the Node has meanwhile.
    pub fn taint(self) -> Option<Taint> {
        (self >= Self::DaemonSet).then_some(Taint::Drained)
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|through| through.name() == text)
    }
}

/// What a maintenance asks of the drain of its Node. The default is that of `up`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainRequest {
    /// Which pods leave.
    pub through: Through,
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
            through: self.through.min(other.through),
            evict_unmanaged: self.evict_unmanaged && other.evict_unmanaged,
            force_after: longer(self.force_after, other.force_after),
            wait_completed_for: longer(self.wait_completed_for, other.wait_completed_for),
            give_up_after: self.give_up_after,
        }
    }

    pub(super) fn of(drain: &Value) -> Result<Self, String> {
        let [force_after, wait_completed_for, give_up_after] = Self::DURATIONS.map(|field| match &drain[field] {
            Value::Null => Ok(None),
            text => {
                let read = text.as_str().and_then(go_duration).map(Some);
                read.ok_or_else(|| format!("its drain.{field} cannot be read"))
            }
        });
        let through = match &drain["through"] {
            Value::Null => Some(Through::Default),
            text => text.as_str().and_then(Through::of),
        };
        Ok(Self {
            through: through.ok_or("its drain.through cannot be read")?,
            evict_unmanaged: drain["unmanagedPods"] == "Evict",
            force_after: force_after?,
            wait_completed_for: wait_completed_for?,
            give_up_after: give_up_after?,
        })
    }

    pub(super) fn spec(&self) -> Value {
        let unmanaged = if self.evict_unmanaged { "Evict" } else { "Block" };
        let mut drain = json!({"through": self.through.name(), "unmanagedPods": unmanaged});
        let durations = [self.force_after, self.wait_completed_for, self.give_up_after];
        for (field, duration) in Self::DURATIONS.into_iter().zip(durations) {
            drain[field] = duration.map_or(Value::Null, |duration| json!(in_go(duration)));
        }
        drain
    }
}
