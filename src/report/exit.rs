//! Exit codes: the one place where each is given its number.
//!
//! In: how a command ended, as a word. Out: the process's exit code. README and `docs/verbs.md` have the same table for
//! people.

use crate::model::check::Outcome;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done, or nothing to do.
    Done,
    /// Failed.
    Failed,
    /// Wrong usage, or an invalid inventory.
    Usage,
    /// Refused for safety.
    Refused,
    /// `status`: degraded, but it serves.
    Degraded,
    /// `plan --exit-code`: changes are pending.
    Pending,
    /// Another run holds the lock.
    Locked,
    /// `status`: the API or quorum is down.
    Down,
    /// The code of a program that ran in our place: kubectl, or ssh to a host of the lab.
    Program(u8),
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Degraded => 4,
            Self::Pending => 5,
            Self::Locked => 6,
            Self::Down => 7,
            Self::Program(code) => code,
        }
    }
    /// Of `status`, by the worst of its checks.
    pub const fn of_checks(worst: Outcome) -> Self {
        match worst {
            Outcome::Pass | Outcome::Skip | Outcome::Warn => Self::Done,
            Outcome::Fail => Self::Degraded,
            Outcome::Down => Self::Down,
        }
    }
    /// Of `plan --exit-code`, by whether there are steps.
    pub const fn of_plan(pending: bool) -> Self {
        if pending { Self::Pending } else { Self::Done }
    }
    /// Of a command that does several things, by whether all went well.
    pub const fn of_success(well: bool) -> Self {
        if well { Self::Done } else { Self::Failed }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
