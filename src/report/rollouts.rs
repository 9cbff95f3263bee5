//! Texts and JSON about rollouts: what one would do, and the table of all.
//!
//! In the schema `hactl.maintain.list/1`: `rollouts[]`: `name`, `state` (null: nothing was done yet), `progress` (`3/6`
//! Nodes are done), `failed`, `paused`, `reason`, `waitsFor[]`, `createdMs`, `needsApproval`, `nextWindow`.
//! `hactl.maintain.rollout-preview/1`: `selected`
//! and `leftOut` (Nodes), `first[]` (those that would begin now), `waitsFor[]`.

use super::flow::Flow;
use super::style::{Paint, Style};
use super::table::{Cell, plain, table};
use super::words::{clean, count};
use crate::model::duration::human_duration;
use crate::model::gate::Approval;
use crate::model::maintenance::Work;
use crate::model::names::HostName;
use crate::model::rollout::{Most, Rollout, RolloutState, RolloutWanted, Turn};
use crate::plan::maintain::Next;
use serde_json::{Value, json};

/// What a rollout would do.
pub fn rollout_preview_text(wanted: &RolloutWanted, next: &Next, style: &Style) -> String {
    let counts = next.counts;
    let most = match wanted.max_unavailable {
        Most::Count(1) => "one at a time".to_owned(),
        most => format!("at most {} away at once", most.of_all(counts.selected)),
    };
    let what = if wanted.template.work == Work::ByPerson { "are drained" } else { "are drained and reboot" };
    let mut said = vec![format!("{} {what}, {most}", count(counts.selected, "Node"))];
    if wanted.one_domain_of.is_some() {
        said.push("one zone after the other".to_owned());
    }
    match wanted.control_plane {
        Turn::Last => said.push("hosts of the control plane last".to_owned()),
        Turn::First => said.push("hosts of the control plane first".to_owned()),
        Turn::Exclude => {}
    }
    let mut text = Flow::of(&said.join(", "), Paint::Bold).lines("", 2, style);
    let mut line = |label: &str, paint, said: &str| {
        let lead = format!("  {}  ", style.paint(Paint::Dim, &format!("{label:<8}")));
        text.push_str(&Flow::of(said, paint).lines(&lead, 12, style));
    };
    if !next.start.is_empty() {
        let names: Vec<&str> = next.start.iter().map(HostName::as_str).collect();
        line("first", Paint::Plain, &names.join(", "));
    }
    if counts.left_out > 0 {
        let why = if wanted.only_if_required { "they need no reboot, or" } else { "they" };
        line(
            "left out",
            Paint::Plain,
            &format!("{}: {why} belong to the control plane", count(counts.left_out, "Node")),
        );
    }
    for why in &next.waits_for {
        line("waits", Paint::Warn, &clean(why));
    }
    text
}

/// The same as JSON.
pub fn rollout_preview_json(next: &Next) -> Value {
    json!({
        "schema": "hactl.maintain.rollout-preview/1",
        "selected": next.counts.selected,
        "leftOut": next.counts.left_out,
        "first": next.start,
        "waitsFor": next.waits_for,
    })
}

fn painted(state: Option<RolloutState>) -> Cell {
    match state {
        None => (Paint::Warn, "none".to_owned()),
        Some(RolloutState::Stopped) => (Paint::Bad, RolloutState::Stopped.name().to_uppercase()),
        Some(state @ (RolloutState::Waiting | RolloutState::Paused)) => (Paint::Warn, state.name().to_owned()),
        Some(RolloutState::Completed) => (Paint::Good, RolloutState::Completed.name().to_owned()),
        Some(RolloutState::Progressing) => plain(RolloutState::Progressing.name()),
    }
}

/// All rollouts, one line each, and what each waits for.
pub(super) fn rollouts_text(all: &[Rollout], now_ms: i64, style: &Style) -> String {
    let row = |one: &Rollout| -> Vec<Cell> {
        let failed = if one.failed == 0 { plain("-") } else { (Paint::Bad, one.failed.to_string()) };
        vec![
            (Paint::Bold, clean(&one.name)),
            painted(one.state),
            plain(if one.progress.is_empty() { "-".to_owned() } else { clean(&one.progress) }),
            failed,
            plain(human_duration(now_ms.saturating_sub(one.created_ms))),
            plain(clean(&one.wanted.template.reason)),
        ]
    };
    if all.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = all.iter().map(row).collect();
    let mut text = table(&["ROLLOUT", "STATE", "DONE", "FAILED", "AGE", "REASON"], &rows, style);
    for one in all.iter().filter(|one| one.state != Some(RolloutState::Completed)) {
        for why in &one.waits_for {
            let said = format!("{}: {}", one.name, clean(why));
            text.push_str(&Flow::of(&said, Paint::Plain).lines(&format!("{} ", style.warn()), 2, style));
        }
    }
    text
}

/// The same as JSON.
pub(super) fn rollouts_json(all: &[Rollout]) -> Vec<Value> {
    let one = |one: &Rollout| {
        json!({
            "name": one.name,
            "state": one.state.map(RolloutState::name),
            "progress": one.progress,
            "failed": one.failed,
            "paused": one.wanted.paused,
            "reason": one.wanted.template.reason,
            "waitsFor": one.waits_for,
            "createdMs": one.created_ms,
            "needsApproval": one.wanted.gate.approval == Approval::Required,
            "nextWindow": one.next_window,
        })
    };
    all.iter().map(one).collect()
}
