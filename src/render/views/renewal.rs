//! Renewal by the host itself: what it may renew, and when it looks.

use crate::model::desired::Desired;
use crate::model::renewal::{Reader, SERVICE, SETTINGS, Settings, TIMER, issuer_paths};
use crate::model::target::CertId;
use crate::render::Input;
use serde::Serialize;

/// One item where hosts are to renew their own certificates, which is written into no path.
pub(in crate::render) fn wanted(desired: &Desired) -> Vec<String> {
    desired.unattended_days.iter().map(|_| String::new()).collect()
}

/// What may be on a host from when it was wanted: its files, and issuers with their keys.
pub(in crate::render) fn own() -> Vec<String> {
    let units = [SERVICE, TIMER].map(|name| format!("/etc/systemd/system/{name}"));
    // A key that waits for its certificate has a longer name.
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
