//! Changes of files as text: a line with the path and its hosts, then the removed and added lines.
//!
//! In: [`Difference`]s. Out: text, or JSON with the same.

use super::style::{Paint, Style};
use super::words::{clean, count, hosts};
use crate::model::difference::{Difference, Shown};
use crate::model::names::HostName;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

/// Lines of context around a change.
const AROUND: usize = 2;
/// How many lines of a file are shown without -v.
const MOST: usize = 24;
/// How many hosts are named.
const NAMED: usize = 4;

/// The changes as text; empty if there are none.
pub fn differences_text(differences: &[Difference], style: &Style) -> String {
    if differences.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", style.paint(Paint::Bold, "changes in files"));
    for one in differences {
        let places: Vec<&HostName> = one.hosts.iter().collect();
        let head = format!("{}  {}", one.path, hosts(&places, NAMED));
        text.push_str(&format!("  {}\n", style.paint(Paint::Bold, &head)));
        match &one.shown {
            Shown::Secret => said(&mut text, "secret content, not shown", style),
            Shown::Removed => said(&mut text, "is removed", style),
            Shown::Texts { before, after } => text.push_str(&lines(before, after, style)),
        }
    }
    text
}

fn said(text: &mut String, what: &str, style: &Style) {
    text.push_str(&format!("    {}\n", style.paint(Paint::Dim, what)));
}

fn lines(before: &str, after: &str, style: &Style) -> String {
    let diff = TextDiff::from_lines(before, after);
    let mut all = Vec::new();
    for (at, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        if at > 0 {
            all.push(style.paint(Paint::Dim, "    ..."));
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (sign, paint) = match change.tag() {
                ChangeTag::Delete => ('-', Paint::Bad),
                ChangeTag::Insert => ('+', Paint::Good),
                ChangeTag::Equal => (' ', Paint::Dim),
            };
            all.push(style.paint(paint, &format!("    {sign} {}", clean(change.value().trim_end_matches('\n')))));
        }
    }
    let most = if style.verbosity > 0 { usize::MAX } else { MOST };
    let more = all.len().saturating_sub(most);
    let mut text: String = all.iter().take(most).map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    if more > 0 {
        said(&mut text, &format!("{} more; all of them with -v", count(more, "line")), style);
    }
    text
}

/// The changes as JSON: `path`, `hosts`, and `change`: `secret`, `removed` or `text`, the last with `before` and
/// `after`.
pub fn differences_json(differences: &[Difference]) -> Value {
    let one = |one: &Difference| match &one.shown {
        Shown::Secret => json!({"path": one.path, "hosts": one.hosts, "change": "secret"}),
        Shown::Removed => json!({"path": one.path, "hosts": one.hosts, "change": "removed"}),
        Shown::Texts { before, after } => {
            json!({"path": one.path, "hosts": one.hosts, "change": "text", "before": before, "after": after})
        }
    };
    differences.iter().map(one).collect()
}
