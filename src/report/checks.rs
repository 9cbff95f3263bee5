//! Named checks as lines, and their overall result.

use super::flow::Flow;
use super::style::{Paint, Style};
use super::words::{clean, columns, count, hosts};
use crate::model::check::{Check, Outcome};
use serde::Serialize;

/// The overall result of all checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// All checks passed.
    Healthy,
    /// Everything works, with warnings. Exit code 0.
    Watch,
    /// Something does not work, but the cluster serves. Exit code 4.
    Degraded,
    /// The API or quorum is down. Exit code 7.
    Down,
}

impl Standing {
    /// The worst of all checks.
    pub fn of(checks: &[Check]) -> Self {
        let worst = checks.iter().map(|c| c.outcome).max().unwrap_or(Outcome::Pass);
        match worst {
            Outcome::Pass | Outcome::Skip => Self::Healthy,
            Outcome::Warn => Self::Watch,
            Outcome::Fail => Self::Degraded,
            Outcome::Down => Self::Down,
        }
    }
}

/// The checks as lines: one line for a check that passes on several hosts, and one for each failure with its meaning
/// and what to do.
pub fn check_lines(checks: &[Check], style: &Style) -> String {
    let mut merged: Vec<(&Check, Vec<String>)> = Vec::new();
    for check in checks {
        if check.outcome == Outcome::Skip && style.verbosity == 0 {
            continue;
        }
        let host = check.host.as_ref().map(ToString::to_string);
        let calm = matches!(check.outcome, Outcome::Pass | Outcome::Skip);
        let same = |(first, places): &&mut (&Check, Vec<String>)| {
            calm && first.name == check.name && first.outcome == check.outcome && host.is_some() && !places.is_empty()
        };
        match merged.iter_mut().find(same) {
            Some((_, places)) => places.extend(host),
            None => merged.push((check, host.into_iter().collect())),
        }
    }
    let widest = merged.iter().map(|(c, _)| columns(c.name)).max().unwrap_or(0);
    let indent = style.mark_width() + 1 + widest + 2;
    merged.iter().map(|(check, places)| line(check, places, widest, indent, style)).collect()
}

fn line(check: &Check, places: &[String], widest: usize, indent: usize, style: &Style) -> String {
    let (mark, plain) = match check.outcome {
        Outcome::Pass => (style.good(), if style.unicode { 1 } else { 2 }),
        Outcome::Skip => (style.paint(Paint::Dim, "-"), 1),
        Outcome::Warn => (style.warn(), 1),
        Outcome::Fail | Outcome::Down => (style.bad(), 1),
    };
    let pad = " ".repeat(style.mark_width() - plain);
    let lead = format!("{mark}{pad} {:<widest$}  ", check.name);
    let detail = clean(&check.detail);
    let colon = if places.len() == 1 && !detail.is_empty() { ":" } else { "" };
    let mut flow = Flow::of(&format!("{}{colon}", hosts(places, 6)), Paint::Bold);
    if places.len() <= 1 {
        let look = if check.outcome <= Outcome::Skip { Paint::Dim } else { Paint::Plain };
        flow = flow.and(&detail, look);
    }
    let mut text = flow.lines(&lead, indent, style);
    if let Some(hint) = check.hint.as_ref().filter(|_| check.outcome > Outcome::Skip) {
        let arrow = if style.unicode { "→" } else { "->" };
        let flow = Flow::of(arrow, Paint::Plain).and(&clean(hint), Paint::Plain);
        text.push_str(&flow.lines(&" ".repeat(indent), indent, style));
    }
    text
}

/// The last line of a status.
pub fn summary(checks: &[Check], style: &Style) -> String {
    let of = |outcome| checks.iter().filter(|c| c.outcome == outcome).count();
    let (good, warnings) = (of(Outcome::Pass), count(of(Outcome::Warn), "warning"));
    let (passed, failed) = (count(good, "check"), count(of(Outcome::Fail) + of(Outcome::Down), "check"));
    let (paint, text) = match Standing::of(checks) {
        _ if checks.is_empty() => (Paint::Warn, "Nothing was checked.".to_owned()),
        Standing::Healthy => (Paint::Good, format!("Healthy: {passed} passed.")),
        Standing::Watch => (Paint::Warn, format!("Healthy, with {warnings}: {passed} passed.")),
        Standing::Degraded => (Paint::Warn, format!("Degraded, but it serves: {failed} failed, {good} passed.")),
        Standing::Down => (Paint::Bad, format!("DOWN: {failed} failed, {good} passed.")),
    };
    style.paint(paint, &text)
}
