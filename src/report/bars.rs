//! The live display of a run on a terminal: one line per host with its current step, and one for all hosts.
//!
//! Pure: in: the progress and a time. Out: lines. `reader` draws them ten times a second.

use super::live::Line;
use super::progress_view::{ProgressView, Slot, State};
use super::style::{Paint, Style};
use super::words::{bytes, clean, columns, count, cut, one_line, time};
use crate::model::names::HostName;
use std::time::Duration;

/// Maximum width of the display in columns: wider lines are not easier to read.
const WIDEST: usize = 100;
/// Columns for bytes, rate and time.
const BYTES: usize = 16;
const RATE: usize = 8;
const TIME: usize = 6;

/// A line under construction: text for the terminal, and its columns.
struct Pen<'a> {
    style: &'a Style,
    text: String,
    columns: usize,
}

impl Pen<'_> {
    fn put(&mut self, paint: Paint, text: &str) {
        self.text.push_str(&self.style.paint(paint, text));
        self.columns += columns(text);
    }
    fn to(&mut self, column: usize) {
        let gap = column.saturating_sub(self.columns);
        self.text.push_str(&" ".repeat(gap));
        self.columns += gap;
    }
    fn line(self) -> Line {
        Line { text: self.text, columns: self.columns }
    }
}

/// The display, at most `columns` - 1 wide and `rows` - 1 high; empty when nothing runs.
pub(super) fn picture(progress: &ProgressView, at: Duration, size: (usize, usize), style: &Style) -> Vec<Line> {
    let width = size.0.saturating_sub(1).min(WIDEST);
    let room = size.1.saturating_sub(1).max(1);
    if let Some((doing, since)) = &progress.phase {
        return vec![phase(doing, at.saturating_sub(*since), at, width, style)];
    }
    let (Some(begun), true) = (progress.begun, progress.is_running()) else { return Vec::new() };
    let mut places: Vec<Option<&HostName>> = progress.hosts.iter().map(Some).collect();
    if progress.of(None).any(|s| s.state == State::Running) {
        places.push(None);
    }
    let mut left_out = Vec::new();
    if places.len() + 1 > room {
        // Too many hosts for the screen: show the busy ones and count the others.
        let busy = |place: Option<&HostName>| progress.of(place).any(|s| s.state == State::Running);
        let (mut shown, quiet): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| busy(*place));
        left_out = shown.split_off(shown.len().min(room.saturating_sub(2)));
        left_out.extend(quiet);
        places = shown;
    }
    let widest = places.iter().map(|p| label(*p).len()).max().unwrap_or(0).min(20);
    let mut lines: Vec<Line> = places.iter().map(|place| host(progress, *place, widest, at, width, style)).collect();
    if !left_out.is_empty() && lines.len() + 1 < room {
        let finished = left_out.iter().filter(|p| progress.of(**p).all(|s| s.state == State::Done)).count();
        let mut pen = pen(style);
        pen.to(3);
        let text = format!("and {}, {finished} of them done", count(left_out.len(), "more host"));
        pen.put(Paint::Dim, &cut(&text, width.saturating_sub(3), style.unicode));
        lines.push(pen.line());
    }
    lines.push(overall(progress, at.saturating_sub(begun), width, style));
    lines
}

fn pen(style: &Style) -> Pen<'_> {
    Pen { style, text: String::new(), columns: 0 }
}

fn label(host: Option<&HostName>) -> &str {
    host.map_or("cluster", HostName::as_str)
}

/// The current frame of the spinner.
fn spinner(at: Duration, style: &Style) -> &'static str {
    const DOTS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
    const ASCII: [&str; 4] = ["|", "/", "-", "\\"];
    let frames: &[&'static str] = if style.unicode { &DOTS } else { &ASCII };
    let tick = usize::try_from(at.as_millis() / 100).unwrap_or(0);
    frames[tick % frames.len()]
}

fn phase(doing: &str, took: Duration, at: Duration, width: usize, style: &Style) -> Line {
    let mut pen = pen(style);
    pen.put(Paint::Good, spinner(at, style));
    pen.put(Paint::Plain, " ");
    pen.put(Paint::Plain, &cut(&one_line(doing), width.saturating_sub(12), style.unicode));
    if took >= Duration::from_secs(1) {
        pen.put(Paint::Dim, &format!("  {}", seconds(took)));
    }
    pen.line()
}

/// Whole seconds do not flicker.
fn seconds(took: Duration) -> String {
    if took < Duration::from_secs(100) { format!("{} s", took.as_secs()) } else { time(took) }
}

fn host(
    progress: &ProgressView,
    place: Option<&HostName>,
    widest: usize,
    at: Duration,
    width: usize,
    style: &Style,
) -> Line {
    let slots: Vec<&Slot> = progress.of(place).collect();
    let running: Vec<&Slot> = slots.iter().copied().filter(|s| s.state == State::Running).collect();
    let failed = slots.iter().find(|s| s.state == State::Failed);
    let mut pen = pen(style);
    // Prefer a transfer, because people wait for it; otherwise show the step that has run longest.
    let shown = running
        .iter()
        .copied()
        .find(|s| s.moved.1 > s.moved.0)
        .or_else(|| running.iter().copied().min_by_key(|s| s.begun));
    let (mark, look) = match (shown, failed) {
        (_, Some(_)) => (if style.unicode { "✗" } else { "x" }, Paint::Bad),
        (Some(_), None) => (spinner(at, style), Paint::Good),
        (None, None) if slots.iter().all(|s| s.state == State::Done) => {
            (if style.unicode { "✓" } else { "+" }, Paint::Good)
        }
        (None, None) => (if style.unicode { "·" } else { "." }, Paint::Dim),
    };
    pen.put(Paint::Plain, " ");
    pen.put(look, mark);
    pen.put(Paint::Plain, " ");
    pen.put(Paint::Bold, &cut(label(place), widest, style.unicode));
    pen.to(3 + widest + 2);
    let Some(shown) = shown else {
        let text = match failed {
            Some(slot) => format!("failed: {}", clean(&slot.what)),
            None if look == Paint::Good => "done".to_owned(),
            None => "waits for the others".to_owned(),
        };
        pen.put(Paint::Dim, &cut(&text, width.saturating_sub(pen.columns), style.unicode));
        return pen.line();
    };
    let right = measures(progress, place, shown, &running, at, width);
    let room = width.saturating_sub(pen.columns + 1 + right.iter().map(|(_, w)| w + 2).sum::<usize>());
    let more = if running.len() > 1 { format!(" +{}", running.len() - 1) } else { String::new() };
    let mut what = one_line(&shown.what);
    if let Some(on) = &shown.waiting {
        what = format!("{what}: {}", one_line(on));
    }
    pen.put(Paint::Plain, &cut(&what, room.saturating_sub(more.len()), style.unicode));
    pen.put(Paint::Dim, &more);
    let mut column = width - right.iter().map(|(_, w)| w + 2).sum::<usize>().min(width);
    for (text, columns) in right {
        column += 2;
        let at = column + columns.saturating_sub(self::columns(&text));
        if !text.is_empty() {
            pen.to(at);
            pen.put(Paint::Dim, &text);
        }
        column += columns;
    }
    pen.line()
}

/// The right side: bytes, rate and time, as far as there is space.
fn measures(
    progress: &ProgressView,
    place: Option<&HostName>,
    shown: &Slot,
    running: &[&Slot],
    at: Duration,
    width: usize,
) -> Vec<(String, usize)> {
    let mut right = Vec::new();
    let moving = running.iter().filter(|s| s.moved.1 > 0);
    let (done, total) = moving.fold((0, 0), |(done, total), s| (done + s.moved.0, total + s.moved.1));
    if width >= 56 {
        let text = if total > 0 { format!("{} / {}", bytes(done), bytes(total)) } else { String::new() };
        right.push((text, if total > 0 { BYTES } else { 0 }));
    }
    if width >= 66 && total > 0 {
        let rate = place.and_then(|h| progress.rate(h)).map(|rate| format!("{}/s", bytes(rate))).unwrap_or_default();
        right.push((rate, RATE));
    }
    right.push((seconds(at.saturating_sub(shown.begun)), TIME));
    right.retain(|(_, columns)| *columns > 0);
    right
}

fn overall(progress: &ProgressView, took: Duration, width: usize, style: &Style) -> Line {
    let (done, total) = (progress.done(), progress.slots.len().max(1));
    let text = format!("   {done} of {}, {}", count(total, "step"), seconds(took));
    let mut pen = pen(style);
    pen.put(Paint::Plain, &cut(&text, width, style.unicode));
    let room = width.saturating_sub(pen.columns + 2).min(40);
    if room >= 10 {
        pen.put(Paint::Plain, "  ");
        let full = room * done / total;
        let (on, off) = if style.unicode { ("━", "─") } else { ("#", ".") };
        pen.put(Paint::Good, &on.repeat(full));
        pen.put(Paint::Dim, &off.repeat(room - full));
    }
    pen.line()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::event::Event;

    const STYLE: Style = Style { colour: false, unicode: true, width: 80, verbosity: 0 };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// This many hosts, each receiving a part; the first one is done.
    fn sending(hosts: usize) -> ProgressView {
        let mut progress = ProgressView::default();
        for step in 0..hosts {
            let host = Some(format!("cp{}", step + 1).parse().unwrap());
            progress.apply(at(0), &Event::Started { step, what: "deliver kube-apiserver".into(), host });
            progress.apply(at(100), &Event::Moved { step, done: 0, total: 98_400_000 });
            progress.apply(at(600), &Event::Moved { step, done: 62_100_000, total: 98_400_000 });
        }
        let host = Some("cp1".parse().unwrap());
        progress.apply(at(700), &Event::Done { step: 0, ms: 700, host, what: "deliver kube-apiserver".into() });
        progress
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|l| l.text.clone()).collect()
    }

    #[test]
    fn each_host_has_a_line_and_all_have_one() {
        let lines = text(&picture(&sending(3), at(12_300), (80, 24), &STYLE));
        assert_eq!(
            lines,
            [
                " ✓ cp1  done",
                " ⠸ cp2  deliver kube-apiserver                  62 MB / 98 MB  124 MB/s    12 s",
                " ⠸ cp3  deliver kube-apiserver                  62 MB / 98 MB  124 MB/s    12 s",
                "   1 of 3 steps, 12 s  ━━━━━━━━━━━━━───────────────────────────",
            ]
        );
    }

    #[test]
    fn no_line_reaches_the_edge_of_any_terminal_and_its_columns_are_counted_rightly() {
        for columns in [20, 40, 60, 80, 200] {
            for line in picture(&sending(3), at(12_300), (columns, 24), &STYLE) {
                assert!(line.columns < columns, "{columns}: {}", line.text);
                assert_eq!(line.columns, line.text.chars().count(), "{}", line.text);
            }
        }
    }

    #[test]
    fn more_hosts_than_rows_are_counted() {
        let lines = text(&picture(&sending(100), at(900), (80, 10), &STYLE));
        assert_eq!(lines.len(), 9);
        assert_eq!(lines[7], "   and 93 more hosts, 1 of them done");
    }

    #[test]
    fn nothing_going_on_is_nothing_drawn() {
        assert_eq!(picture(&ProgressView::default(), at(0), (80, 24), &STYLE), []);
    }
}
