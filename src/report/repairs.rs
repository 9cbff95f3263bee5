//! Repairs in words: what a guard does next, what it did, and what holds it back.
//!
//! In: decisions, records and holds from reports of guards. Out: clauses for the pages about guards, and JSON.

use super::flow::Flow;
use super::style::{Paint, Style};
use super::words::{columns, count};
use crate::model::duration::human_duration;
use crate::model::fault::FaultKind;
use crate::model::guards::{FaultView, GuardView, Guards};
use crate::model::hold::Hold;
use crate::model::names::HostName;
use crate::model::repair::{Decision, Delay, Gate, LocalStep, Outcome, RepairRecord, deed, done};
use crate::model::timestamp::rfc3339;
use serde_json::{Value, json};

/// Repairs younger than this are in the section HEALING, milliseconds.
const RECENT_MS: i64 = 3_600_000;

/// What its guard does next about a fault, a clause without a subject; `None`: it does not say, or only watches.
pub(super) fn next(fault: &FaultView) -> Option<(Paint, String)> {
    let (decision, now_ms) = fault.next.as_ref()?;
    let deed = |step: &LocalStep| deed(*step, fault.kind, fault.host.as_ref());
    Some(match decision {
        Decision::Act { step } => (Paint::Good, format!("{} now", deed(step))),
        Decision::Wait { step, until_ms, why } => {
            let left = human_duration(until_ms.saturating_sub(*now_ms).max(0));
            (Paint::Good, format!("{} in {left}: {}", deed(step), later(*why)))
        }
        Decision::HeldBack { gate, step } => (Paint::Warn, format!("it does not {}: {}", deed(step), because(gate))),
        Decision::GaveUp { tries, step } => {
            let times = count(*tries, "attempt");
            // The attempts at the power of a host are those of another one.
            let of = if fault.kind == FaultKind::PowerDue { fault.by.first() } else { fault.host.as_ref() };
            let host = of.map_or("HOST", HostName::as_str);
            let again = format!("mend it, then: hactl guard retry {host}");
            (Paint::Bad, format!("it gave up: {times} to {} did not help; {again}", deed(step)))
        }
        Decision::Person => return None,
    })
}

/// Why a step comes later.
fn later(why: Delay) -> &'static str {
    match why {
        Delay::Stopped => "a person stopped it",
        Delay::Started => "it has just started",
        Delay::Attempts => "attempts are at least a minute apart",
        Delay::Turn => "other hosts with this fault come first",
        Delay::NoQuorum => "etcd has no quorum without it either",
        Delay::Boot => "its power is on, and it may be booting",
        Delay::Switched => "the power of a host is switched at most once an hour",
    }
}

/// Why a step is held back.
fn because(gate: &Gate) -> String {
    match gate {
        Gate::Hold => "the host is held".to_owned(),
        Gate::Lock { by } => format!("{by} has the lock of the host"),
        Gate::Disabled => "a person disabled the unit".to_owned(),
        Gate::Absent => "it has no process; what should start it does not".to_owned(),
        Gate::Starting => "it is starting or stopping already".to_owned(),
        Gate::Underway => "a repair is under way".to_owned(),
        Gate::Fenced => "its data is older than a recovery".to_owned(),
        Gate::Quorum { others, needed } => {
            let serve =
                if *others == 1 { "1 other member serves".to_owned() } else { format!("{others} others serve") };
            format!("quorum may need it: {serve} reads, and without it {needed} must")
        }
        Gate::Votes { of } => {
            format!("other hosts have all {of} votes; `hactl up` settles which of them stands by")
        }
        Gate::NoQuorum => "etcd has no quorum, so that would not help".to_owned(),
        Gate::NotUsable => "no API server is usable, and without one no host takes the VIP".to_owned(),
        Gate::Unwell { host } => format!("{host} is not well either, and one host is rebooted at a time"),
        Gate::Flapping => "the fault comes and goes, so its cause is elsewhere".to_owned(),
        Gate::Foreign { by } => format!("another healer may act: {by}"),
        Gate::Last => "no other host could take over its API server or its etcd member meanwhile".to_owned(),
        Gate::Turn { host } => format!("{host} repairs the same fault first"),
    }
}

/// A hold: `until 18:00, by ops@laptop: "disk swap"`.
pub(super) fn held(hold: &Hold, now_ms: i64) -> String {
    let until = match hold.until_ms {
        Some(until_ms) => format!("for another {}", human_duration(until_ms.saturating_sub(now_ms).max(0))),
        None if hold.annotated => return format!("is held by {hold}, until it is removed"),
        None => "until hactl guard resume".to_owned(),
    };
    format!("is held {until} by {hold}")
}

/// A repair with its result, a clause whose subject is the host.
pub(super) fn repaired(record: &RepairRecord) -> (Paint, String) {
    let (deed, done, kind) = (deed(record.step, record.kind, record.other()), done(record), record.kind);
    match &record.outcome {
        Outcome::Open => (Paint::Warn, format!("began to {deed}, because of {kind}")),
        Outcome::Done => (Paint::Warn, format!("{done}; {kind} is not over yet")),
        Outcome::Failed(why) => (Paint::Bad, format!("could not {deed}, because of {kind}: {why}")),
        Outcome::Helped(ms) => {
            let lasted = human_duration(record.after_ms.saturating_add(*ms));
            (Paint::Good, format!("{done}; {kind} was over after {lasted}"))
        }
    }
}

/// Lines about holds and recent repairs, each with its host.
pub(super) fn rows(guards: &Guards) -> Vec<(&str, Flow)> {
    let mut rows = Vec::new();
    for (guard, report) in guards.guards.iter().filter_map(|guard| Some((guard, guard.current()?))) {
        let host = guard.host.as_str();
        rows.extend(report.hold.as_ref().map(|hold| (host, Flow::of(&held(hold, guard.now_ms), Paint::Warn))));
        let recent = |record: &&RepairRecord| age(guard, record) < RECENT_MS;
        rows.extend(report.repairs.iter().filter(recent).map(|record| (host, line(guard, record))));
    }
    rows
}

fn age(guard: &GuardView, record: &RepairRecord) -> i64 {
    guard.now_ms.saturating_sub(record.begun_ms).max(0)
}

fn line(guard: &GuardView, record: &RepairRecord) -> Flow {
    let (paint, text) = repaired(record);
    Flow::of(&format!("{} ago:", human_duration(age(guard, record))), Paint::Dim).and(&text, paint)
}

/// The repairs of all hosts, the newest last: time, host, repair.
pub fn history_text(all: &[(HostName, RepairRecord)], style: &Style) -> String {
    let widest = all.iter().map(|(host, _)| columns(host.as_str())).max().unwrap_or(0);
    let line = |(host, record): &(HostName, RepairRecord)| {
        let (paint, text) = repaired(record);
        let at = rfc3339(record.begun_ms.div_euclid(1000) * 1000);
        let name = style.paint(Paint::Bold, &format!("{:<widest$}", host.as_str()));
        Flow::of(&text, paint).lines(&format!("{}  {name}  ", style.paint(Paint::Dim, &at)), 24 + widest, style)
    };
    all.iter().map(line).collect()
}

/// The same as JSON: schema `hactl.guard.history/1`, `repairs[]`: `host` and the fields of [`record_json`].
pub fn history_json(all: &[(HostName, RepairRecord)]) -> Value {
    let one = |(host, record): &(HostName, RepairRecord)| {
        let mut object = record_json(record);
        object["host"] = json!(host);
        object
    };
    json!({"schema": "hactl.guard.history/1", "repairs": all.iter().map(one).collect::<Vec<_>>()})
}

/// A repair: `kind`, `step`, `begunMs`, `faultLastedMs` (before the step), `outcome` (`open`, `done`, `failed`,
/// `helped`), `why` (of `failed`), `overInMs` (of `helped`: after the beginning of the step), `power` (null, or of the
/// step `power`: `host`, the other one, and `switched`: `unknown`, `nothing`, `left-on`, `on`, `off`, `cycled`).
pub(super) fn record_json(record: &RepairRecord) -> Value {
    let (outcome, why, over) = match &record.outcome {
        Outcome::Open => ("open", None, None),
        Outcome::Done => ("done", None, None),
        Outcome::Failed(why) => ("failed", Some(why), None),
        Outcome::Helped(ms) => ("helped", None, Some(ms)),
    };
    json!({
        "kind": record.kind,
        "step": record.step,
        "begunMs": record.begun_ms,
        "faultLastedMs": record.after_ms,
        "outcome": outcome,
        "why": why,
        "overInMs": over,
        "power": record.power,
    })
}

/// What is next for a fault: `decision` (`act`, `wait`, `held-back`, `gave-up`, `person`), `step`, `untilMs` and `why`
/// (of `wait`), `gate` and its numbers (of `held-back`), `tries` (of `gave-up`).
pub(super) fn next_json(fault: &FaultView) -> Value {
    let Some((decision, _)) = &fault.next else { return Value::Null };
    let mut object = serde_json::to_value(decision).unwrap_or_default();
    if let Some(until_ms) = object.as_object_mut().and_then(|fields| fields.remove("until_ms")) {
        object["untilMs"] = until_ms;
    }
    object
}
