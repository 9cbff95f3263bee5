//! The permanent output of a run: a line per finished group of steps, instead of hundreds of lines.
//!
//! In: events with their times. Out: text to write. The reader for logs writes all of it; the reader for terminals
//! omits the groups, because its live lines show them.

use super::checks::check_lines;
use super::failure::failure;
use super::flow::{Flow, pictured};
use super::group::brief;
use super::plan_text::plan_text;
use super::progress_view::{ProgressView, Slot, State};
use super::style::{Paint, Style};
use super::times::times_text;
use super::words::{bytes, clean, count, time};
use crate::model::check::Check;
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::model::plan::{Action, Stage};
use std::collections::BTreeSet;
use std::time::Duration;

/// With more hosts than this, a group is a stage on all hosts.
const MANY: usize = 10;

/// Turns events into permanent output.
#[derive(Debug)]
pub struct Reporter {
    style: Style,
    /// Whether finished groups get a line.
    groups: bool,
    /// The progress of the run.
    pub progress: ProgressView,
    checks: Vec<Check>,
    stated: BTreeSet<Group>,
    /// Whether the last text ended with an empty line, or there was no text yet.
    gap: bool,
}

/// A stage on one host, or on all hosts if there are many.
type Group = (Option<HostName>, Stage);

impl Reporter {
    /// A new reporter. With `groups`, every finished group gets a line.
    pub fn new(style: Style, groups: bool) -> Self {
        Self {
            style,
            groups,
            progress: ProgressView::default(),
            checks: Vec::new(),
            stated: BTreeSet::new(),
            gap: true,
        }
    }

    /// The style of the output.
    pub fn style(&self) -> &Style {
        &self.style
    }

    /// Adapts to the current width of the terminal.
    pub fn resize(&mut self, columns: usize) {
        self.style.width = columns.clamp(40, 120);
    }

    /// Takes an event and returns the text to write, often none.
    pub fn on(&mut self, at: Duration, event: &Event) -> String {
        let text = self.told_of(at, event);
        self.spaced(&text)
    }

    /// The text with at most one empty line before it; a line feed at its start requests one.
    pub fn spaced(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let body = text.trim_start_matches('\n');
        let wants = body.len() < text.len() && !self.gap;
        self.gap = text.ends_with("\n\n");
        format!("{}{body}", if wants { "\n" } else { "" })
    }

    fn told_of(&mut self, at: Duration, event: &Event) -> String {
        let mut text = match event {
            Event::Checked { .. } => String::new(),
            _ => self.flush_checks(),
        };
        if let Event::Phase { .. }
        | Event::Proposed { .. }
        | Event::Planned { .. }
        | Event::Started { .. }
        | Event::Checked { .. } = event
        {
            text.push_str(&self.finish_phase(at));
        }
        if matches!(event, Event::Planned { .. }) {
            text.push_str(&self.unfinished());
            self.stated.clear();
        }
        self.progress.apply(at, event);
        match event {
            Event::Note { text: note } => {
                text.push_str(&Flow::of(&clean(note), Paint::Plain).lines("", 0, &self.style));
            }
            Event::Warning { text: warning } => {
                let lead = format!("{} ", self.style.warn());
                text.push_str(&pictured(&clean(warning), &lead, &self.style));
            }
            Event::Proposed { proposal } => text.push_str(&super::recovery::proposal_text(proposal, &self.style)),
            Event::Planned { plan } => text.push_str(&format!("\n{}\n", plan_text(plan, &self.style))),
            Event::Done { step, .. } => text.push_str(&self.done(*step)),
            Event::Failed { step, host, what, why, tail } => {
                let took = self.progress.slots.get(step).map_or(Duration::ZERO, |s| s.took);
                text.push_str(&failure(host.as_ref(), what, why, tail, took, &self.style));
            }
            Event::Waiting { step, on } if self.style.verbosity > 0 => {
                if let Some(Slot { host, what, .. }) = self.progress.slots.get(step) {
                    text.push_str(&self.line(host.as_ref(), &format!("{what}: waits for {}", clean(on)), &[]));
                }
            }
            Event::Checked { check } => self.checks.push(check.clone()),
            Event::Times { stages, total_ms, bytes_sent, execs } => {
                text.push('\n');
                text.push_str(&times_text(stages, *total_ms, *bytes_sent, *execs, &self.style));
            }
            Event::Phase { .. } | Event::Started { .. } | Event::Waiting { .. } | Event::Moved { .. } => {}
        }
        text
    }

    /// The output that is still pending when a run ends or pauses.
    pub fn flush(&mut self, at: Duration) -> String {
        let mut text = self.finish_phase(at);
        text.push_str(&self.flush_checks());
        text.push_str(&self.unfinished());
        self.spaced(&text)
    }

    fn flush_checks(&mut self) -> String {
        let checks = std::mem::take(&mut self.checks);
        if checks.is_empty() { String::new() } else { format!("\n{}", check_lines(&checks, &self.style)) }
    }

    fn finish_phase(&mut self, at: Duration) -> String {
        let Some((doing, since)) = self.progress.phase.take() else { return String::new() };
        let took = at.saturating_sub(since);
        if !self.groups && self.style.verbosity == 0 && took < Duration::from_secs(2) {
            return String::new();
        }
        let text = format!("{} ({})", clean(&doing), time(took));
        format!("{}\n", self.style.paint(Paint::Dim, &text))
    }

    /// A step is done: its own line, or the line of its group if the group is finished.
    fn done(&mut self, step: usize) -> String {
        let Some(slot) = self.progress.slots.get(&step) else { return String::new() };
        if self.style.verbosity > 0 || slot.stands_out {
            let what =
                slot.action.as_ref().filter(|_| slot.stands_out).map_or_else(|| slot.what.clone(), Action::to_string);
            return self.line(slot.host.as_ref(), &clean(&what), &[slot]);
        }
        let Some(group) = self.group_of(slot) else { return String::new() };
        let slots: Vec<&Slot> = self.slots_of(&group);
        if !self.groups || !slots.iter().all(|s| s.state == State::Done) {
            return String::new();
        }
        let text = self.group_line(&group, &slots);
        self.stated.insert(group);
        text
    }

    /// Groups that were begun but not finished.
    fn unfinished(&mut self) -> String {
        if !self.groups || self.style.verbosity > 0 {
            return String::new();
        }
        let begun = self.progress.slots.values().filter(|s| s.state != State::Ahead && !s.stands_out);
        let begun: BTreeSet<Group> = begun.filter_map(|s| self.group_of(s)).collect();
        let mut text = String::new();
        for group in begun {
            if self.stated.contains(&group) {
                continue;
            }
            let slots = self.slots_of(&group);
            let done = slots.iter().filter(|s| s.state == State::Done).count();
            let what = format!("{}: {done} of {} done", group.1, count(slots.len(), "step"));
            text.push_str(&self.line(group.0.as_ref(), &what, &[]));
            self.stated.insert(group);
        }
        text
    }

    fn group_of(&self, slot: &Slot) -> Option<Group> {
        let host = slot.host.clone().filter(|_| self.progress.hosts.len() <= MANY);
        slot.stage.map(|stage| (host, stage))
    }

    fn slots_of(&self, group: &Group) -> Vec<&Slot> {
        self.progress.slots.values().filter(|s| !s.stands_out && self.group_of(s).as_ref() == Some(group)).collect()
    }

    fn group_line(&self, group: &Group, slots: &[&Slot]) -> String {
        let mut hosts: Vec<&HostName> = slots.iter().filter_map(|s| s.host.as_ref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let what = if group.0.is_none() && hosts.len() > 1 {
            format!("{} on {}: {}", group.1, count(hosts.len(), "host"), count(slots.len(), "step"))
        } else {
            brief(&slots.iter().filter_map(|s| s.action.as_ref()).collect::<Vec<_>>(), true)
        };
        self.line(group.0.as_ref(), &what, slots)
    }

    /// `✓ cp1  deliver 21 parts (212 MB, 6.2 s)`.
    fn line(&self, host: Option<&HostName>, what: &str, slots: &[&Slot]) -> String {
        let names = self.progress.hosts.iter().map(|h| h.as_str().len());
        let widest = names.max().unwrap_or(0).max("cluster".len());
        let mut facts = Vec::new();
        let moved: u64 = slots.iter().map(|s| s.moved.0).sum();
        if moved > 0 {
            facts.push(bytes(moved));
        }
        let begun = slots.iter().map(|s| s.begun).min();
        let ended = slots.iter().map(|s| s.begun + s.took).max();
        if let (Some(begun), Some(ended)) = (begun, ended) {
            facts.push(time(ended.saturating_sub(begun)));
        }
        let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        let place = host.map_or("cluster", HostName::as_str);
        let mark = if slots.is_empty() { " ".repeat(self.style.mark_width()) } else { self.style.good() };
        let place = self.style.paint(Paint::Bold, &format!("{place:<widest$}"));
        format!("{mark} {place}  {what}{}\n", self.style.paint(Paint::Dim, &facts))
    }
}
