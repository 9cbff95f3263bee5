//! Unattended renewal: the certificates that a host may renew, and its schedule.

use crate::model::desired::Desired;
use crate::model::renewal::{Reader, SERVICE, SETTINGS, Settings, TIMER, issuer_paths};
use crate::model::target::CertId;
use crate::render::Input;
use serde::Serialize;

/// One item if hosts are to renew their own certificates; it is part of no path.
pub(in crate::render) fn wanted(desired: &Desired) -> Vec<String> {
    desired.unattended_days.iter().map(|_| String::new()).collect()
}

/// Files that may be on a host from an earlier inventory: its units, and issuing CAs with their keys.
pub(in crate::render) fn own() -> Vec<String> {
    let units = [SERVICE, TIMER].map(|name| format!("/etc/systemd/system/{name}"));
    // A key without its certificate yet has a longer name.
    let kept = |id: CertId| {
        let (cert, key) = issuer_paths(id);
        [format!("{key}.new"), cert, key]
    };
    [SETTINGS.to_owned()].into_iter().chain(units).chain(CertId::ISSUERS.into_iter().flat_map(kept)).collect()
}

/// `/etc/hactl/renewal.json`.
pub(in crate::render) fn settings(input: &Input<'_>) -> String {
    let readers = crate::render::table::readers(input.desired, input.host).into_iter();
    let settings = Settings {
        leaves: input.leaves.to_vec(),
        readers: readers.map(|(unit, reads)| Reader { unit, reads }).collect(),
    };
    serde_json::to_string_pretty(&settings).expect("texts and numbers are always JSON") + "\n"
}

/// For `renewal/hactl-renew.timer`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct Timer {
    program: String,
    hour: usize,
    minute: usize,
}

pub(in crate::render) fn timer(input: &Input<'_>) -> Timer {
    let hosts = &input.desired.hosts;
    let turn = hosts.iter().position(|host| host.name == input.host.name).unwrap_or(0);
    let minutes = 24 * 60 * turn / hosts.len().max(1);
    Timer { program: input.hactl_path.to_owned(), hour: minutes / 60, minute: minutes % 60 }
}
