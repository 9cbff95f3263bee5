//! The start times of the main processes of the static pods, from /proc: they show whether the processes run with the
//! present manifests.
//!
//! In: /proc. Out: program name to start time, the newest of each.

use crate::agent::machine::when::now_ms;
use crate::model::control_plane::PROGRAMS;
use std::collections::BTreeMap;
use std::fs;

/// Clock ticks per second in /proc/PID/stat: fixed for user space on every architecture Linux runs Kubernetes on.
const TICKS: i64 = 100;

/// Start times in milliseconds since 1970.
pub(crate) fn started() -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    let (Some(booted), Ok(entries)) = (booted_ms(), fs::read_dir("/proc")) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(command) = fs::read(path.join("cmdline")) else { continue };
        let program = command.split(|b| *b == 0).next().unwrap_or_default();
        let name = program.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let Some(name) = PROGRAMS.into_iter().find(|p| p.as_bytes() == name) else { continue };
        let Some(ticks) = fs::read_to_string(path.join("stat")).ok().and_then(|s| start_ticks(&s)) else { continue };
        let started = booted + ticks * 1000 / TICKS;
        let newest = found.entry(name.to_owned()).or_insert(started);
        *newest = started.max(*newest);
    }
    found
}

/// The start of a process, hundredths of a second since the boot: shows exactly which of two is older.
pub(crate) fn start(process: u32) -> Option<i64> {
    start_ticks(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The same in milliseconds since 1970, with a precision of some hundredths of a second.
pub(crate) fn started_at(process: u32) -> Option<i64> {
    Some(booted_ms()? + start(process)? * 1000 / TICKS)
}

/// The boot time of the host, milliseconds since 1970.
fn booted_ms() -> Option<i64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let (whole, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let uptime = whole.parse::<i64>().ok()? * 1000 + hundredths.parse::<i64>().ok()? * 10;
    Some(now_ms() - uptime)
}

/// Field 22 of /proc/PID/stat.
fn start_ticks(stat: &str) -> Option<i64> {
    fields(stat)?.nth(19)?.parse().ok()
}

/// Whether a signal has suspended the process.
pub(crate) fn is_stopped(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| state(&stat) == Some('T'))
}

/// Whether a thread of the process waits for a disk: no signal reaches it meanwhile.
pub(crate) fn waits_for_disk(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let waits = |stat: String| state(&stat) == Some('D');
    threads.flatten().any(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(waits))
}

/// The state of a process.
fn state(stat: &str) -> Option<char> {
    fields(stat)?.next()?.chars().next()
}

/// The fields of /proc/PID/stat from the third on, the state; the second may contain blanks and brackets.
fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_a_name_with_blanks_and_brackets() {
        let stat = "42 (a ) (b) S 1 42 42 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 1 0 8147 1 1 1";
        assert_eq!(start_ticks(stat), Some(8147));
        assert_eq!(start_ticks("42 (a"), None);
    }

    #[test]
    fn the_state_is_found_behind_a_name_with_blanks_and_brackets() {
        assert_eq!(state("42 (a ) (b) T 1 42"), Some('T'));
        assert_eq!(state("42 (a"), None);
    }
}
