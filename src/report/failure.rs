//! A failed step, told in full wherever it is told: what, where, why, and the host's last lines.

use super::flow::Flow;
use super::style::{Paint, Style};
use super::words::{clean, cut, time};
use crate::model::names::HostName;
use std::time::Duration;

/// Lines of a host's log that are shown.
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
        1 => format!("the last line of {place}:"),
        n => format!("the last {n} lines of {place}:"),
    };
    text.push_str(&format!("    {}\n", style.paint(Paint::Dim, &heading)));
    let rule = style.paint(Paint::Dim, if style.unicode { "│" } else { "|" });
    for line in shown {
        // A log line is cut only where a terminal would break it; in a file it stays whole.
        let line = clean(line).replace('\n', " ");
        let line = if style.colour { cut(&line, style.width.saturating_sub(6), style.unicode) } else { line };
        text.push_str(&format!("    {rule} {}\n", line.trim_end()));
    }
    text
}
