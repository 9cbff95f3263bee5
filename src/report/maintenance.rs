//! Texts and JSON about maintenances: what a drain would do, the table of all, and one in detail.
//!
//! Schema `hactl.maintain.list/1`: `maintenances[]`: `name`, `node`, `stage` (what is asked for: `Idle`, `Cordon`,
//! `Drain`, `Complete`), `state` (what was reached, null: nothing was done yet), `reason`, `why` (what it waits for, or why
//! its drain was given up), `createdMs`, `reboots` (whether its host reboots once it is drained), `needsApproval` (nobody
//! has approved it yet), `nextWindow` (when it opens, null: it waits for none), `drain`
//! (`toLeave`, `left`, `later`, `blockedCount`, `blocked[]`: `pod`, `message`, `never`; `kept[]`: `pod`, `reason`);
//! `unread[]`: objects that cannot be read. `rollouts[]` are described in `rollouts.rs`. `hactl.maintain.preview/1`: `node`, `leaves`, `later`, `own`, `waits[]` and
//! `kept[]` (`pod`, `reason`), `lost[]`, `refused[]` (as `blocked[]`), `notes[]`. Within one schema, fields are added,
//! never renamed or removed.

use super::flow::Flow;
use super::rollouts::{rollouts_json, rollouts_text};
use super::style::{Paint, Style};
use super::table::{Cell, plain, table};
use super::words::{clean, count};
use crate::model::duration::human_duration;
use crate::model::gate::Approval;
use crate::model::maintenance::{BlockedPod, DrainPreview, Maintenance, State, Work};
use crate::model::names::HostName;
use crate::model::rollout::Rollout;
use serde_json::{Value, json};

/// The most names of a list that are shown.
const MOST: usize = 5;

/// Names, or the first and how many more there are.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(MOST).map(|name| clean(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What a drain would do.
pub fn preview_text(node: &HostName, preview: &DrainPreview, style: &Style) -> String {
    let DrainPreview { leaves, later, own, waits, kept, lost, refused, notes } = preview;
    let mut facts = vec![format!("{} to leave", count(*leaves, "pod"))];
    if *own > 0 {
        facts.push(format!("{own} of the Node itself stay"));
    }
    if !kept.is_empty() {
        facts.push(format!(
            "{} by rules",
            if kept.len() == 1 { "1 stays".into() } else { format!("{} stay", kept.len()) }
        ));
    }
    let mut text = Flow::of(&format!("{node}: {}", facts.join(", ")), Paint::Bold).lines("", 2, style);
    let mut line = |label: &str, paint, said: &str| {
        let lead = format!("  {}  ", style.paint(Paint::Dim, &format!("{label:<8}")));
        text.push_str(&Flow::of(said, paint).lines(&lead, 12, style));
    };
    if *later > 0 {
        line("later", Paint::Plain, &format!("{} of them after the others", count(*later, "pod")));
    }
    for (pod, why) in kept.iter().take(MOST) {
        line("stays", Paint::Plain, &format!("{}, by {}", clean(pod), clean(why)));
    }
    for (pod, why) in waits.iter().take(MOST) {
        line("waits", Paint::Plain, &format!("for {} to complete, by {}", clean(pod), clean(why)));
    }
    for BlockedPod { pod, message, .. } in refused.iter().take(MOST) {
        line("refused", Paint::Warn, &format!("now: {}: {}", clean(pod), clean(message)));
    }
    if refused.len() > MOST {
        line("refused", Paint::Warn, &format!("and {} more", refused.len() - MOST));
    }
    if !lost.is_empty() {
        line("lost", Paint::Bad, &format!("{}: no controller creates them again", some(lost)));
    }
    for note in notes {
        line("note", Paint::Warn, &clean(note));
    }
    text
}

fn blocked_json(blocked: &[BlockedPod]) -> Vec<Value> {
    blocked.iter().map(|one| json!({"pod": one.pod, "message": one.message, "never": one.never})).collect()
}

fn reasons_json(pods: &[(String, String)]) -> Vec<Value> {
    pods.iter().map(|(pod, reason)| json!({"pod": pod, "reason": reason})).collect()
}

/// The same as JSON.
pub fn preview_json(node: &HostName, preview: &DrainPreview) -> Value {
    json!({
        "schema": "hactl.maintain.preview/1",
        "node": node,
        "leaves": preview.leaves,
        "later": preview.later,
        "own": preview.own,
        "waits": reasons_json(&preview.waits),
        "kept": reasons_json(&preview.kept),
        "lost": preview.lost,
        "refused": blocked_json(&preview.refused),
        "notes": preview.notes,
    })
}

fn painted(state: Option<State>) -> Cell {
    match state {
        None => (Paint::Warn, "none".to_owned()),
        Some(state @ (State::Blocked | State::Failed | State::Overdue)) => (Paint::Bad, state.name().to_uppercase()),
        Some(State::Waiting) => (Paint::Warn, State::Waiting.name().to_owned()),
        Some(state @ (State::Drained | State::Completed)) => (Paint::Good, state.name().to_owned()),
        Some(state) => plain(state.name()),
    }
}

/// All maintenances, one line each, and what is in the way of each.
pub fn maintenances_text(
    (rollouts, all): (&[Rollout], &[Maintenance]),
    unread: &[String],
    now_ms: i64,
    style: &Style,
) -> String {
    let row = |one: &Maintenance| -> Vec<Cell> {
        let progress = if one.progress.to_leave == 0 { "-".to_owned() } else { one.progress.to_string() };
        let blocked = match one.progress.blocked_count {
            0 => plain("-"),
            some => (Paint::Bad, some.to_string()),
        };
        let age = human_duration(now_ms.saturating_sub(one.created_ms));
        let stage = if one.is_deleted { "deleted" } else { one.wanted.stage.name() };
        vec![
            (Paint::Bold, clean(&one.name)),
            plain(one.wanted.node.as_str()),
            plain(stage),
            painted(one.state),
            plain(progress),
            blocked,
            plain(age),
            plain(clean(&one.wanted.reason)),
        ]
    };
    let mut text = rollouts_text(rollouts, now_ms, style);
    if !all.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        let heads = ["NAME", "NODE", "ASKED", "STATE", "LEFT", "BLOCKED", "AGE", "REASON"];
        text.push_str(&table(&heads, &all.iter().map(row).collect::<Vec<_>>(), style));
    }
    for one in all.iter().filter(|one| !one.why.is_empty()) {
        let lead = format!("{} ", style.warn());
        let said = format!("{}: {}", one.wanted.node, clean(&one.why));
        text.push_str(&Flow::of(&said, Paint::Plain).lines(&lead, 2, style));
    }
    for one in all.iter().filter(|one| !one.progress.blocked.is_empty()) {
        for BlockedPod { pod, message, .. } in one.progress.blocked.iter().take(MOST) {
            let lead = format!("{} ", style.bad());
            let said = format!("{}: {}: {}", one.wanted.node, clean(pod), clean(message));
            text.push_str(&Flow::of(&said, Paint::Plain).lines(&lead, 2, style));
        }
    }
    for why in unread {
        text.push_str(&Flow::of(&clean(why), Paint::Plain).lines(&format!("{} ", style.warn()), 2, style));
    }
    text
}

/// The same as JSON.
pub fn maintenances_json(rollouts: &[Rollout], all: &[Maintenance], unread: &[String]) -> Value {
    let one = |one: &Maintenance| {
        json!({
            "name": one.name,
            "node": one.wanted.node,
            "stage": one.wanted.stage.name(),
            "state": one.state.map(State::name),
            "reason": one.wanted.reason,
            "reboots": matches!(one.wanted.work, Work::Reboot(_)),
            "why": one.why,
            "createdMs": one.created_ms,
            "needsApproval": one.wanted.gate.approval == Approval::Required,
            "nextWindow": one.next_window,
            "drain": {
                "toLeave": one.progress.to_leave,
                "left": one.progress.left,
                "later": one.progress.later,
                "blockedCount": one.progress.blocked_count,
                "blocked": blocked_json(&one.progress.blocked),
                "kept": reasons_json(&one.progress.kept),
            },
        })
    };
    json!({
        "schema": "hactl.maintain.list/1",
        "rollouts": rollouts_json(rollouts),
        "maintenances": all.iter().map(one).collect::<Vec<_>>(),
        "unread": unread,
    })
}
