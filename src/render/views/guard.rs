//! Guards: which files one has, and those that it leaves on a host.

use crate::model::desired::Desired;
use crate::model::healing::{CA, CERT, KEY, Mode, POLICY, UNIT};
use crate::render::Input;
use serde::Serialize;

/// One item if the inventory asks for guards; it is part of no path.
pub(crate) fn wanted(desired: &Desired) -> Vec<String> {
    if desired.healing.mode == Mode::Off { vec![] } else { vec![String::new()] }
}

/// Files that may be on a host from an earlier inventory: its unit, settings, certificate and key.
pub(crate) fn own() -> Vec<String> {
    // A key without its certificate yet has a longer name.
    let made = [format!("/etc/systemd/system/{UNIT}"), format!("{KEY}.new")];
    made.into_iter().chain([POLICY, CA, CERT, KEY].map(str::to_owned)).collect()
}

/// For `guard/hactl-guard.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    program: String,
    host: String,
    /// Whether it repairs its host.
    repairs: bool,
}

pub(crate) fn unit(input: &Input<'_>) -> Unit {
    Unit {
        program: input.hactl_path.to_owned(),
        host: input.host.name.to_string(),
        repairs: input.desired.healing.mode == Mode::On,
    }
}
