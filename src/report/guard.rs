//! The pages of `hactl guard`, and the same for programs.
//!
//! Schema `hactl.guard.status/1`: `cluster`, and the fields of `healing` in `hactl.status/1`. Within one schema, fields
//! are added, never renamed or removed. Unknown values are null. Times (`...Ms`) are milliseconds since 1970, durations
//! milliseconds, both by the clock of the guard.
//!
//! - `mode`: `watch` or `on`
//! - `guards[]`: `host`; `state` (`works`, `silent`: its last report is old, `ahead`: it is from the future, `missing`,
//!   `unusable`, `unknown`: its host does not answer); `why` of the last two; `reportedMs`, the time of its last report;
//!   if it works: `startedMs`, `release` (the digest of its hactl), `upToDate` (its policy is that of the inventory),
//!   `hears[]` (hosts), `clockAheadMs` (of the median of the clocks that it hears; null: fewer than three), `hold` (null:
//!   none; `by`, `reason`, `sinceMs`, `untilMs`, `annotated`: by an annotation), `repairs[]` (its last ones, as in `hactl.guard.history/1`)
//! - `faults[]`, each once: `host` (null: the cluster), `kind`, `class` (`confirmed` by the host, `presumed` by
//!   others), `sinceMs`, `lastsMs`, `evidence`, `by[]` (the guards that report it), `dueInMs` (null), `next` (what its guard does about it: `decision`, `step`, ...)
//! - `pending[]`: the same of faults that are reported in `dueInMs`, unless they end
//!
//! Schema `hactl.guard.explain/1`: `cluster`, `mode`; `hosts[]`: `host`, `guard` (as in `guards[]`), `seenBy[]` (`by`,
//! `sight`: `heard`, `answers`, `silent`; `sinceMs`, `lastsMs`, `aheadMs`, `trouble`), `faults[]`, `pending[]`,
//! `observers[]` (the guards that have a say about the host), `otherGuards` (how many there are); `faults[]` and
//! `pending[]` of the cluster.

use super::flow::Flow;
use super::healing::{fault_json, flow, guard_json, issues, json as healing, mode, sight, state};
use super::repairs;
use super::style::{Paint, Style};
use super::table::{Cell, plain, table};
use crate::model::duration::human_duration;
use crate::model::guards::{FaultView, GuardState, GuardView, Guards};
use crate::model::names::{ClusterName, HostName};
use crate::model::remedy::remedy;
use serde_json::{Value, json};

/// The guards, one line each, and what is wrong.
pub fn guards_text(guards: &Guards, style: &Style) -> String {
    let row = |guard: &GuardView| -> Vec<Cell> {
        let state = match &guard.state {
            GuardState::Works => (Paint::Good, "works"),
            GuardState::Silent(_) => (Paint::Bad, "SILENT"),
            GuardState::Ahead(_) => (Paint::Bad, "FROM THE FUTURE"),
            GuardState::Missing => (Paint::Bad, "NO REPORT"),
            GuardState::Unusable(_) => (Paint::Bad, "NOT USABLE"),
            GuardState::Unknown(_) => (Paint::Warn, "unknown"),
        };
        let hears: Vec<&str> = guard.hears(&guards.policy).map(HostName::as_str).collect();
        let hears = match hears.len() {
            _ if guard.state != GuardState::Works => plain("-"),
            heard if heard + 1 == guards.guards.len() => (Paint::Good, "all".to_owned()),
            0 => (Paint::Bad, "NOBODY".to_owned()),
            _ => (Paint::Warn, hears.join(" ")),
        };
        let faults: Vec<&str> = of_host(&guards.faults, Some(&guard.host)).map(|fault| fault.kind.name()).collect();
        let faults = match faults.as_slice() {
            [] if guard.state == GuardState::Works => (Paint::Good, "none".to_owned()),
            [] => plain("-"),
            _ => (Paint::Bad, faults.join(" ")),
        };
        let clock = plain(guard.ahead_ms().map_or_else(|| "-".to_owned(), clock));
        vec![(Paint::Bold, guard.host.to_string()), (state.0, state.1.to_owned()), hears, clock, faults]
    };
    let rows: Vec<Vec<Cell>> = guards.guards.iter().map(row).collect();
    let table = table(&["HOST", "GUARD", "HEARS", "CLOCK", "FAULTS"], &rows, style);
    let issues = issues(guards, style);
    let between = if issues.is_empty() { "" } else { "\n" };
    format!("{table}{between}{issues}\nmode {}\n", mode(guards.policy.healing.mode))
}

/// A difference of clocks: `+4 ms`, `-1.2 s`.
fn clock(ms: i64) -> String {
    match ms.abs() {
        0..1_000 => format!("{ms:+} ms"),
        1_000..60_000 => format!("{:+}.{} s", ms / 1000, ms.abs() % 1000 / 100),
        long => format!("{}{}", if ms < 0 { "-" } else { "+" }, human_duration(long)),
    }
}

/// The guards as JSON.
pub fn guards_json(cluster: &ClusterName, guards: &Guards) -> Value {
    let mut object = healing(guards);
    object["schema"] = "hactl.guard.status/1".into();
    object["cluster"] = cluster.as_str().into();
    object
}

/// How the guards see each host, or one, and what they conclude.
pub fn explained_text(guards: &Guards, only: Option<&HostName>, style: &Style) -> String {
    let mut text = String::new();
    for guard in chosen(guards, only) {
        text.push_str(&format!("{}\n", style.paint(Paint::Bold, guard.host.as_str())));
        text.push_str(&host(guards, guard, style));
        text.push('\n');
    }
    let rows = of_host(&guards.faults, None).chain(of_host(&guards.pending, None));
    let cluster: String = rows.map(|fault| fault_lines(fault, style)).collect();
    if !cluster.is_empty() {
        text.push_str(&format!("{}\n{cluster}\n", style.paint(Paint::Bold, "the cluster")));
    }
    format!("{text}mode {}\n", mode(guards.policy.healing.mode))
}

fn chosen<'a>(guards: &'a Guards, only: Option<&'a HostName>) -> impl Iterator<Item = &'a GuardView> {
    guards.guards.iter().filter(move |guard| only.is_none_or(|only| only == &guard.host))
}

fn of_host<'a>(faults: &'a [FaultView], host: Option<&'a HostName>) -> impl Iterator<Item = &'a FaultView> {
    faults.iter().filter(move |fault| fault.host.as_ref() == host)
}

/// A line with its label.
fn labelled(label: &str, flow: &Flow, style: &Style) -> String {
    flow.lines(&format!("  {}  ", style.paint(Paint::Dim, &format!("{label:<9}"))), 13, style)
}

fn host(guards: &Guards, guard: &GuardView, style: &Style) -> String {
    let (paint, word) = state(&guard.state);
    let mut own = Flow::of(&word, paint);
    if let Some(report) = guard.current() {
        let runs = human_duration(guard.now_ms.saturating_sub(report.started_ms));
        own = own.and(&format!("for {runs}"), Paint::Plain);
        if let Some(ms) = guard.ahead_ms() {
            own = own.and(&format!("(clock {} against the median)", clock(ms)), Paint::Plain);
        }
        if guards.outdated().any(|host| host == &guard.host) {
            own = own.and("with another policy than the inventory asks for: hactl up", Paint::Warn);
        }
    }
    let mut text = labelled("guard", &own, style);
    for (by, other) in guards.working().filter_map(|by| Some((by, by.sees(&guard.host)?))) {
        let (paint, word) = sight(other.sight);
        let lasts = human_duration(by.now_ms.saturating_sub(other.since_ms));
        let mut flow =
            Flow::of(by.host.as_str(), Paint::Bold).and(word, paint).and(&format!("for {lasts}"), Paint::Plain);
        if !other.trouble.is_empty() {
            flow = flow.and(&format!("({})", other.trouble), Paint::Plain);
        }
        text.push_str(&labelled("seen by", &flow, style));
    }
    let faults = of_host(&guards.faults, Some(&guard.host)).chain(of_host(&guards.pending, Some(&guard.host)));
    text.extend(faults.map(|fault| fault_lines(fault, style)));
    let (say, others) = (guards.observers(&guard.host).count(), guards.guards.len().saturating_sub(1));
    let need = if say < 2 { "; two are needed to conclude that it is unreachable" } else { "" };
    let observers = format!("{say} of {others} other guards work and hear half of the others{need}");
    text + &labelled("observers", &Flow::of(&observers, Paint::Plain), style)
}

/// A fault, and what to do about it.
fn fault_lines(fault: &FaultView, style: &Style) -> String {
    let label = if fault.due_in_ms.is_some() { "pending" } else { "fault" };
    let text = labelled(label, &flow(fault), style);
    if fault.due_in_ms.is_some() {
        return text;
    }
    if let Some((paint, next)) = repairs::next(fault) {
        let lines = text + &labelled("next", &Flow::of(&next, paint), style);
        if paint == Paint::Good {
            return lines;
        }
        return lines + &to_do(fault, style);
    }
    text + &to_do(fault, style)
}

/// What a person does about a fault.
fn to_do(fault: &FaultView, style: &Style) -> String {
    let arrow = if style.unicode { "→" } else { "->" };
    let to_do = Flow::of(arrow, Paint::Plain).and(&remedy(fault.kind, fault.host.as_ref()), Paint::Plain);
    labelled("", &to_do, style)
}

/// The same as JSON.
pub fn explained_json(cluster: &ClusterName, guards: &Guards, only: Option<&HostName>) -> Value {
    let faults =
        |faults: &[FaultView], host: Option<&HostName>| of_host(faults, host).map(fault_json).collect::<Vec<_>>();
    let one = |guard: &GuardView| {
        let seen = guards.working().filter_map(|by| Some((by, by.sees(&guard.host)?)));
        let seen = seen.map(|(by, other)| {
            json!({
                "by": by.host,
                "sight": other.sight,
                "sinceMs": other.since_ms,
                "lastsMs": by.now_ms.saturating_sub(other.since_ms),
                "aheadMs": other.ahead_ms,
                "trouble": other.trouble,
            })
        });
        json!({
            "host": guard.host,
            "guard": guard_json(guards, guard),
            "seenBy": seen.collect::<Vec<_>>(),
            "faults": faults(&guards.faults, Some(&guard.host)),
            "pending": faults(&guards.pending, Some(&guard.host)),
            "observers": guards.observers(&guard.host).collect::<Vec<_>>(),
            "otherGuards": guards.guards.len().saturating_sub(1),
        })
    };
    json!({
        "schema": "hactl.guard.explain/1",
        "cluster": cluster,
        "mode": guards.policy.healing.mode.word(),
        "hosts": chosen(guards, only).map(one).collect::<Vec<_>>(),
        "faults": faults(&guards.faults, None),
        "pending": faults(&guards.pending, None),
    })
}

#[cfg(test)]
mod tests {
    use super::clock;

    #[test]
    fn a_difference_of_clocks_has_a_sign_and_a_unit() {
        let words = [(0, "+0 ms"), (-4, "-4 ms"), (1_250, "+1.2 s"), (-59_999, "-59.9 s"), (-3_600_000, "-1 h 0 min")];
        for (ms, text) in words {
            assert_eq!(clock(ms), text);
        }
    }
}
