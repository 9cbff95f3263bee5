//! Kernel settings.

use serde::Serialize;
use std::collections::BTreeMap;

use super::Setting;
use crate::model::desired::{Desired, Host};
use crate::render::Input;

/// For `os/sysctl.conf`.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    settings: Vec<Setting>,
}

/// Files that may be on a host from an earlier version: other files sort after them and undo their settings at boot.
pub(crate) fn own() -> Vec<String> {
    vec!["/etc/sysctl.d/90-hactl.conf".to_owned()]
}

pub(crate) fn settings(input: &Input<'_>) -> Settings {
    let settings = sysctls(input.desired, input.host).into_iter();
    Settings { settings: settings.map(|(name, value)| Setting { name, value }).collect() }
}

/// Kernel settings, by sysctl name.
pub(crate) fn sysctls(desired: &Desired, host: &Host) -> BTreeMap<String, String> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    if host.is_node() {
        all.push(("net.ipv4.ip_forward", "1"));
        if host.address.is_ipv6() || desired.network.pods.base.is_ipv6() {
            all.push(("net.ipv6.conf.all.forwarding", "1"));
        }
        // The kubelet requires these settings if it may not change them: memory is overcommitted and never causes a
        // panic, and a host that panicked reboots automatically.
        all.extend([
            ("vm.overcommit_memory", "1"),
            ("vm.panic_on_oom", "0"),
            ("kernel.panic", "10"),
            ("kernel.panic_on_oops", "1"),
            ("kernel.keys.root_maxkeys", "1000000"),
            ("kernel.keys.root_maxbytes", "25000000"),
        ]);
        // Each watched file and directory of the kubelet, containerd and pods uses one.
        all.extend([("fs.inotify.max_user_instances", "8192"), ("fs.inotify.max_user_watches", "524288")]);
    }
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
