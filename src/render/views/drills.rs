//! Unattended restore drills of etcd hosts: their schedule, and the files that they leave on a host.

use super::turn;
use crate::model::desired::Host;
use crate::model::drill::{IDENTITY, LAST_TURN, Period, RECORD, SERVICE, TIMER};
use crate::render::Input;
use serde::Serialize;

/// The files that the host created for them.
pub(crate) const MADE: [&str; 3] = [IDENTITY, RECORD, LAST_TURN];

/// Files that may be on a host from an earlier inventory.
pub(crate) fn own() -> Vec<String> {
    let units = [SERVICE, TIMER].map(|name| format!("/etc/systemd/system/{name}"));
    units.into_iter().chain(MADE.map(str::to_owned)).collect()
}

/// For `snapshots/hactl-drill.timer`.
#[derive(Debug, Serialize)]
pub(crate) struct Timer {
    program: String,
    day: &'static str,
    hour: u64,
    minute: u64,
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTES: u64 = 24 * 60;

pub(crate) fn timer(input: &Input<'_>) -> Timer {
    let weekly = input.desired.snapshots.drill == Some(Period::Weekly);
    let minutes = turn(input, Host::may_vote, if weekly { 7 * MINUTES } else { MINUTES });
    let day = if weekly { DAYS[usize::try_from(minutes / MINUTES).unwrap_or(0) % DAYS.len()] } else { "Mon..Sun" };
    Timer { program: input.hactl_path.to_owned(), day, hour: minutes % MINUTES / 60, minute: minutes % 60 }
}
