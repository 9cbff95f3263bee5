//! The processes of a unit, from its control group: cheaper than to ask systemd every two seconds.
//!
//! In: a unit. Out: whether it has processes, and whether they are suspended.

use crate::agent::machine::processes::is_stopped;
use crate::model::names::UnitName;
use std::fs;
use std::path::Path;

/// Where systemd has the control groups of units: version 2, and version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"];

/// A unit by its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    /// It has no process.
    No,
    /// With this one, the oldest.
    As(u32),
    /// This one is suspended by a signal.
    Suspended(u32),
}

/// How a unit runs.
pub(super) fn of(unit: &str) -> Runs {
    let listed =
        GROUPS.iter().find_map(|group| fs::read_to_string(Path::new(group).join(unit).join("cgroup.procs")).ok());
    let listed = listed.unwrap_or_default();
    let mut processes: Vec<u32> = listed.lines().filter_map(|line| line.trim().parse().ok()).collect();
    processes.sort_unstable();
    let stopped = processes.iter().find(|process| is_stopped(**process));
    match (stopped, processes.first()) {
        (Some(process), _) => Runs::Suspended(*process),
        (None, Some(process)) => Runs::As(*process),
        (None, None) => Runs::No,
    }
}

/// Whether a signal has suspended a process of the unit.
pub fn is_suspended(unit: &UnitName) -> bool {
    matches!(of(unit.as_str()), Runs::Suspended(_))
}

impl Runs {
    /// In words, as the beginning of a sentence about a unit.
    pub(super) fn words(self, unit: &str) -> String {
        match self {
            Self::No => format!("{unit} has no process"),
            Self::As(process) => format!("{unit} runs as process {process}"),
            Self::Suspended(process) => format!("process {process} of {unit} is suspended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_does_not_exist_has_no_process() {
        assert_eq!(of("no-such-unit.service"), Runs::No);
    }
}
