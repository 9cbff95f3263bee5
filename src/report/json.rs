//! Events as JSON, one object per line, for `-o json` and the run log.
//!
//! Each object has `event` and `at_ms` (since the start of the run). `planned` carries the plan in the shape of
//! [`plan_json`](super::plan_json); the last object is the verdict.

use super::harmless;
use super::plan_text::plan_json;
use super::verdict::Verdict;
use crate::model::event::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum interval between two progress lines of one step.
const OFTEN: Duration = Duration::from_millis(250);

/// Turns events into lines.
#[derive(Debug, Default)]
pub struct Lines {
    last_moved: BTreeMap<usize, Duration>,
}

impl Lines {
    /// The event as a line without its line feed; `None` for progress too soon after the last.
    pub fn on(&mut self, at: Duration, event: &Event) -> Option<String> {
        if let Event::Moved { step, done, total } = event {
            let soon = self.last_moved.get(step).is_some_and(|last| at.saturating_sub(*last) < OFTEN);
            if soon && done < total {
                return None;
            }
            self.last_moved.insert(*step, at);
        }
        Some(stamped(at, shape(event)))
    }

    /// The verdict as the last line.
    pub fn end(at: Duration, verdict: &Verdict) -> String {
        stamped(at, verdict.json())
    }
}

/// An object as a line, with its time.
fn stamped(at: Duration, mut object: Value) -> String {
    object["at_ms"] = json!(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
    harmless::json(&object)
}

fn shape(event: &Event) -> Value {
    match event {
        Event::Planned { plan } => json!({"event": "planned", "plan": plan_json(plan)}),
        Event::Times { stages, total_ms, bytes_sent, execs } => json!({
            "event": "times",
            "stages": stages.iter().map(|(stage, ms)| json!({"stage": stage.to_string(), "ms": ms})).collect::<Vec<_>>(),
            "total_ms": total_ms,
            "bytes_sent": bytes_sent,
            "execs": execs,
        }),
        // All other events consist of text and numbers, which serde_json always serializes. If one ever fails, the
        // stream reports it instead of losing it.
        plain => serde_json::to_value(plain).unwrap_or_else(|e| json!({"event": "unprintable", "why": e.to_string()})),
    }
}
