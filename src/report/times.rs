//! The duration of each stage, at the end of a run, and the next steps.

use super::style::{Paint, Style};
use super::words::{bytes, columns, count, millis, shell};
use crate::model::plan::Stage;
use std::path::Path;

/// Columns of the longest bar.
const BAR: u64 = 32;

/// The duration of each stage as bars, and the total. Stages overlap, so they do not add up to the total.
pub fn times_text(stages: &[(Stage, u64)], total_ms: u64, bytes_sent: u64, execs: u64, style: &Style) -> String {
    let longest = stages.iter().map(|(_, ms)| *ms).max().unwrap_or(0).max(1);
    let mut text = String::new();
    for (stage, ms) in stages {
        text.push_str(&format!("  {stage:<13}  {:>10}  {}\n", millis(*ms), bar(*ms, longest, style)));
    }
    let mut facts = Vec::new();
    if bytes_sent > 0 {
        facts.push(format!("{} sent", bytes(bytes_sent)));
    }
    if execs > 0 {
        facts.push(format!("{} over SSH", count(usize::try_from(execs).unwrap_or(usize::MAX), "command")));
    }
    let facts = if facts.is_empty() { String::new() } else { format!("  {}", facts.join(", ")) };
    let total = format!("  {:<13}  {:>10}", "in all", millis(total_ms));
    text.push_str(&format!("{}{}\n", style.paint(Paint::Bold, &total), style.paint(Paint::Dim, &facts)));
    text
}

/// A bar in steps of an eighth, so that short stages differ, too.
fn bar(ms: u64, longest: u64, style: &Style) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let room = u64::try_from(style.width.saturating_sub(29)).unwrap_or(BAR).min(BAR);
    let eighths = (ms.saturating_mul(room * 8) / longest).max(u64::from(ms > 0));
    let (full, part) = (usize::try_from(eighths / 8).unwrap_or(0), usize::try_from(eighths % 8).unwrap_or(0));
    let text = if style.unicode {
        format!("{}{}", "█".repeat(full), EIGHTHS[part])
    } else {
        "#".repeat(full.max(usize::from(ms > 0)))
    };
    style.paint(Paint::Good, &text)
}

/// The next steps with a running cluster; `inventory` is the path that further commands must name, if any.
pub fn next_steps(kubeconfig: &Path, inventory: Option<&Path>, style: &Style) -> String {
    let quoted = |path: &Path| shell(&path.display().to_string(), "/.-_+@:,");
    let export = format!("export KUBECONFIG={}", quoted(kubeconfig));
    let named = inventory.map(|path| format!(" -i {}", quoted(path))).unwrap_or_default();
    let status = format!("hactl status{named}");
    let lines = [
        (export.as_str(), ""),
        ("kubectl get nodes", ""),
        (status.as_str(), "the state of the cluster, as reported by every host"),
    ];
    let widest = lines.iter().filter(|(_, why)| !why.is_empty()).map(|(l, _)| columns(l)).max().unwrap_or(0);
    let mut text = format!("{}\n", style.paint(Paint::Bold, "Next"));
    for (line, why) in lines {
        let why = if why.is_empty() { String::new() } else { style.paint(Paint::Dim, &format!("   # {why}")) };
        let shown = if why.is_empty() { line.to_owned() } else { format!("{line:<widest$}") };
        text.push_str(&format!("  {shown}{why}\n"));
    }
    text
}
