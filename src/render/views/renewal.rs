//! Unattended renewal: the certificates that a host may renew, and its schedule.

use super::turn;
use crate::model::renewal::{Reader, SERVICE, SETTINGS, Settings, TIMER, issuer_paths};
use crate::model::target::CertId;
use crate::pki::has_issuer;
use crate::render::Input;
use serde::Serialize;

/// Files that may be on a host from an earlier inventory: its units, and issuing CAs with their keys.
pub(crate) fn own() -> Vec<String> {
    let units = [SERVICE, TIMER].map(|name| format!("/etc/systemd/system/{name}"));
    // A key without its certificate yet has a longer name.
    let kept = |id: CertId| {
        let (cert, key) = issuer_paths(id);
        [format!("{key}.new"), cert, key]
    };
    [SETTINGS.to_owned()].into_iter().chain(units).chain(CertId::ISSUERS.into_iter().flat_map(kept)).collect()
}

/// `/etc/hactl/renewal.json`.
pub(crate) fn settings(input: &Input<'_>, readers: Vec<Reader>) -> String {
    let leaves = input.leaves.iter().filter(|leaf| has_issuer(leaf.id, input.host)).cloned().collect();
    let settings = Settings { leaves, readers };
    serde_json::to_string_pretty(&settings).expect("texts and numbers are always JSON") + "\n"
}

/// For `renewal/hactl-renew.timer`.
#[derive(Debug, Serialize)]
pub(crate) struct Timer {
    program: String,
    hour: u64,
    minute: u64,
}

pub(crate) fn timer(input: &Input<'_>) -> Timer {
    let minutes = turn(input, |_| true, 24 * 60);
    Timer { program: input.hactl_path.to_owned(), hour: minutes / 60, minute: minutes % 60 }
}
