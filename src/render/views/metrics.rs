//! The metrics of components: what serves them on a host, and what it leaves there.

use crate::model::metrics::{CA, CERT, KEY, SETTINGS, UNIT};

/// Files that may be on a host from an earlier inventory: its unit, settings, certificate and key.
pub(crate) fn own() -> Vec<String> {
    // A key without its certificate yet has a longer name.
    let made = [format!("/etc/systemd/system/{UNIT}"), format!("{KEY}.new")];
    made.into_iter().chain([SETTINGS, CA, CERT, KEY].map(str::to_owned)).collect()
}
