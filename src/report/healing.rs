//! What guards report, as the section HEALING of the status page and as JSON.
//!
//! In: [`Guards`]. Out: text and values; `guard` has the pages of `hactl guard`. Texts of hosts become one line.

use super::flow::Flow;
use super::repairs;
use super::style::{Paint, Style};
use super::words::{columns, count};
use crate::model::duration::human_duration;
use crate::model::fault::Class;
use crate::model::guards::{FaultView, GuardState, GuardView, Guards};
use crate::model::healing::Mode;
use crate::model::heartbeat::Sight;
use serde_json::{Value, json};

/// What guards do in this mode.
pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Watch => "watch: faults are detected and reported, nothing is repaired",
        Mode::On => "on: each guard repairs its own host",
    }
}

/// The section: what guards do, which of them work, and what is wrong.
pub(super) fn section(guards: &Guards, style: &Style) -> String {
    let lead = format!("\n{}  ", style.paint(Paint::Bold, "HEALING"));
    let flow = Flow::of(&format!("{}; {}", mode(guards.policy.healing.mode), summary(guards)), Paint::Plain);
    flow.lines(&lead, 9, style) + &issues(guards, style)
}

/// How many guards work, of how many releases, and whether they hear one another.
fn summary(guards: &Guards) -> String {
    let (working, all) = (guards.working().count(), guards.guards.len());
    let releases = match guards.releases().len() {
        1 => "of one release".to_owned(),
        releases => format!("of {releases} releases"),
    };
    let heard = if guards.all_hear_one_another() { "all hear one another" } else { "NOT all hear one another" };
    match working {
        0 => format!("none of {} reports", count(all, "guard")),
        1 => format!("1 of {} reports", count(all, "guard")),
        _ if working == all => format!("{} {releases}, {heard}", count(all, "guard")),
        _ => format!("{working} of {} report, {releases}, and {heard}", count(all, "guard")),
    }
}

/// What is wrong, one line for each fault and for each guard that does not work or is outdated.
pub(super) fn issues(guards: &Guards, style: &Style) -> String {
    let mut rows: Vec<(&str, Flow)> = Vec::new();
    for guard in &guards.guards {
        let of_host = guards.faults.iter().filter(|fault| fault.host.as_ref() == Some(&guard.host));
        rows.extend(of_host.map(|fault| (guard.host.as_str(), flow(fault))));
        let (paint, state) = state(&guard.state);
        if guard.state != GuardState::Works {
            rows.push((guard.host.as_str(), Flow::of("its guard", Paint::Plain).and(&state, paint)));
        }
        if guards.outdated().any(|host| host == &guard.host) {
            let text = "its guard has another policy than the inventory asks for";
            rows.push((guard.host.as_str(), Flow::of(text, Paint::Warn)));
        }
    }
    rows.extend(repairs::rows(guards));
    let of_cluster = guards.faults.iter().filter(|fault| fault.host.is_none());
    rows.extend(of_cluster.map(|fault| ("VIP", flow(fault))));
    let widest = rows.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    let line = |(name, flow): &(&str, Flow)| {
        let lead = format!("  {}  ", style.paint(Paint::Bold, &format!("{name:<widest$}")));
        flow.lines(&lead, widest + 4, style)
    };
    rows.iter().map(line).collect()
}

/// A fault with its kind in colour.
pub(super) fn flow(fault: &FaultView) -> Flow {
    let text = fault.to_string();
    let (kind, rest) = text.split_once(' ').unwrap_or((text.as_str(), ""));
    let paint = if fault.due_in_ms.is_some() { Paint::Warn } else { Paint::Bad };
    Flow::of(kind, paint).and(rest, Paint::Plain)
}

/// The state of a guard, a clause whose subject is the guard.
pub(super) fn state(state: &GuardState) -> (Paint, String) {
    match state {
        GuardState::Works => (Paint::Good, "works".to_owned()),
        GuardState::Silent(ms) => (Paint::Bad, format!("has not reported for {}", human_duration(*ms))),
        GuardState::Ahead(ms) => (Paint::Bad, format!("last reported {} in the future", human_duration(*ms))),
        GuardState::Missing => (Paint::Bad, "has no report: it does not run, or has just started".to_owned()),
        GuardState::Unusable(why) => (Paint::Bad, format!("has a report that is not used: {why}")),
        GuardState::Unknown(why) => (Paint::Warn, format!("is unknown: {why}")),
    }
}

/// The fields `mode`, `guards`, `faults` and `pending`, as in the module documentation of `guard`.
pub(super) fn json(guards: &Guards) -> Value {
    json!({
        "mode": guards.policy.healing.mode.word(),
        "guards": guards.guards.iter().map(|guard| guard_json(guards, guard)).collect::<Vec<_>>(),
        "faults": guards.faults.iter().map(fault_json).collect::<Vec<_>>(),
        "pending": guards.pending.iter().map(fault_json).collect::<Vec<_>>(),
    })
}

/// A guard.
pub(super) fn guard_json(guards: &Guards, guard: &GuardView) -> Value {
    let (word, why) = match &guard.state {
        GuardState::Works => ("works", None),
        GuardState::Silent(_) => ("silent", None),
        GuardState::Ahead(_) => ("ahead", None),
        GuardState::Missing => ("missing", None),
        GuardState::Unusable(why) => ("unusable", Some(why)),
        GuardState::Unknown(why) => ("unknown", Some(why)),
    };
    let current = guard.current();
    json!({
        "host": guard.host,
        "state": word,
        "why": why,
        "reportedMs": guard.report.as_ref().map(|report| report.at_ms),
        "startedMs": current.map(|report| report.started_ms),
        "release": current.map(|report| report.release),
        "upToDate": current.map(|_| !guards.outdated().any(|host| host == &guard.host)),
        "hears": current.map(|_| guard.hears(&guards.policy).collect::<Vec<_>>()),
        "clockAheadMs": guard.ahead_ms(),
        "hold": current.and_then(|report| report.hold.as_ref()).map(|hold| json!({
            "by": hold.by,
            "reason": hold.reason,
            "sinceMs": hold.since_ms,
            "untilMs": hold.until_ms,
            "annotated": hold.annotated,
        })),
        "repairs": current.map(|report| report.repairs.iter().map(repairs::record_json).collect::<Vec<_>>()),
    })
}

/// A fault.
pub(super) fn fault_json(fault: &FaultView) -> Value {
    json!({
        "host": fault.host,
        "kind": fault.kind,
        "class": match fault.kind.class() {
            Class::Confirmed => "confirmed",
            Class::Presumed => "presumed",
        },
        "sinceMs": fault.since_ms,
        "lastsMs": fault.lasts_ms,
        "dueInMs": fault.due_in_ms,
        "evidence": fault.evidence,
        "by": fault.by,
        "next": repairs::next_json(fault),
    })
}

/// How a guard sees a host, a clause whose subject is the guard.
pub(super) fn sight(sight: Sight) -> (Paint, &'static str) {
    match sight {
        Sight::Heard => (Paint::Good, "hears it"),
        Sight::Answers => (Paint::Warn, "hears no heartbeat, but a port answers,"),
        Sight::Silent => (Paint::Bad, "hears no heartbeat and gets no answer"),
    }
}
