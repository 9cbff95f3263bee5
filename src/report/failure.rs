//! The text of a failed step: the step, its host, the reason, and the host's last log lines.

use super::flow::Flow;
use super::style::{Paint, Style};
use super::words::{clean, columns, time};
use crate::model::names::HostName;
use std::time::Duration;

/// How many lines of a host's log are shown.
const TAIL: usize = 20;

/// The failure as text, ending with a line feed.
pub(super) fn failure(
    host: Option<&HostName>,
    what: &str,
    why: &str,
    tail: &[String],
    took: Duration,
    style: &Style,
) -> String {
    let place = host.map_or_else(|| "cluster".to_owned(), ToString::to_string);
    let lead = format!("{} {}  ", style.bad(), style.paint(Paint::Bold, &place));
    let indent = 2 + place.len() + 2;
    let mut flow = Flow::of(&clean(what), Paint::Plain).and("failed", Paint::Bad);
    if !took.is_zero() {
        flow = flow.and(&format!("after {}", time(took)), Paint::Dim);
    }
    let mut text = flow.lines(&lead, indent, style);
    for line in clean(why).lines() {
        text.push_str(&Flow::of(line, Paint::Plain).lines(&" ".repeat(4), 4, style));
    }
    if tail.is_empty() {
        return text;
    }
    let shown = &tail[tail.len().saturating_sub(TAIL)..];
    let heading = match shown.len() {
        1 => format!("the last log line of {place}:"),
        n => format!("the last {n} log lines of {place}:"),
    };
    text.push_str(&format!("    {}\n", style.paint(Paint::Dim, &heading)));
    let rule = style.paint(Paint::Dim, if style.unicode { "│" } else { "|" });
    for line in shown {
        let line = clean(line).replace('\n', " ");
        let line = line.trim_end();
        if columns(line) + 6 <= style.width {
            text.push_str(&format!("    {rule} {line}\n"));
        } else {
            // Do not cut the line, because the reason is often at its end.
            let wrapped = Flow::of(line, Paint::Plain).lines("", 6, style);
            for (index, part) in wrapped.lines().enumerate() {
                let indent = if index == 0 { "" } else { "  " };
                text.push_str(&format!("    {rule} {indent}{}\n", part.trim_start()));
            }
        }
    }
    text
}
