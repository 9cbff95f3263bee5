//! Unattended restore drills of etcd hosts: their schedule, and the files that they leave on a host.

use crate::model::desired::{Desired, Role};
use crate::model::drill::{IDENTITY, LAST_TURN, Period, RECORD, SERVICE, TIMER};
use crate::render::Input;
use serde::Serialize;

/// One item if hosts are to run drills; it is part of no path.
pub(in crate::render) fn wanted(desired: &Desired) -> Vec<String> {
    desired.snapshots.drill.iter().map(|_| String::new()).collect()
}

/// The files that the host created for them.
pub(in crate::render) const MADE: [&str; 3] = [IDENTITY, RECORD, LAST_TURN];

/// Files that may be on a host from an earlier inventory.
pub(in crate::render) fn own() -> Vec<String> {
    let units = [SERVICE, TIMER].map(|name| format!("/etc/systemd/system/{name}"));
    units.into_iter().chain(MADE.map(str::to_owned)).collect()
}

/// For `snapshots/hactl-drill.timer`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct Timer {
    program: String,
    day: &'static str,
    hour: usize,
    minute: usize,
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTES: usize = 24 * 60;

pub(in crate::render) fn timer(input: &Input<'_>) -> Timer {
    let hosts: Vec<_> = input.desired.with(Role::Etcd).map(|host| &host.name).collect();
    let turn = hosts.iter().position(|name| **name == input.host.name).unwrap_or(0);
    let weekly = input.desired.snapshots.drill == Some(Period::Weekly);
    let days = if weekly { DAYS.len() } else { 1 };
    let minutes = days * MINUTES * turn / hosts.len().max(1);
    let day = if weekly { DAYS[minutes / MINUTES % DAYS.len()] } else { "Mon..Sun" };
    Timer { program: input.hactl_path.to_owned(), day, hour: minutes % MINUTES / 60, minute: minutes % 60 }
}
