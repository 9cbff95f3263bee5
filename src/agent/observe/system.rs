//! The machine itself: names, memory, disk.
//!
//! In: `/proc`, `/sys`, `/etc`. Out: the first part of [`HostFacts`]. A missing file leaves its fact empty.

use crate::agent::machine::files::read_stamp;
use crate::agent::machine::prepare::swap_in_use;
use crate::agent::machine::root::Root;
use crate::agent::op_error::{Outcome, free_bytes};
use crate::model::facts::HostFacts;
use std::fs;

/// Fills in the facts that only require reading files.
pub(super) fn facts(root: &Root) -> Outcome<HostFacts> {
    let mut facts = HostFacts::default();
    let read = |path: &'static str| fs::read_to_string(root.own(path)).unwrap_or_default();
    let uname = rustix::system::uname();
    facts.hostname = uname.nodename().to_string_lossy().into_owned();
    facts.kernel = uname.release().to_string_lossy().into_owned();
    facts.architecture = uname.machine().to_string_lossy().into_owned();
    read("/etc/machine-id").trim().clone_into(&mut facts.machine_id);
    facts.os = os(&read("/etc/os-release"));
    let cpus = read("/proc/cpuinfo").lines().filter(|l| l.starts_with("processor")).count();
    facts.cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    facts.memory_mib = memory_mib(&read("/proc/meminfo"));
    facts.disk_free_mib = free_bytes(&root.own("/var/lib")).unwrap_or(0) >> 20;
    facts.cgroup_v2 = root.own("/sys/fs/cgroup/cgroup.controllers").exists();
    facts.swap = swap_in_use(root);
    facts.systemd_resolved = root.own("/run/systemd/resolve/resolv.conf").exists();
    facts.cluster_id = read_stamp(root)?;
    Ok(facts)
}

/// `ID` and `VERSION_ID`.
fn os(text: &str) -> String {
    let field = |name: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix('='))
            .map(|v| v.trim_matches(['"', '\'']).to_owned())
            .unwrap_or_default()
    };
    format!("{} {}", field("ID"), field("VERSION_ID")).trim().to_owned()
}

fn memory_mib(text: &str) -> u64 {
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    total.unwrap_or(0) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_named_by_id_and_version() {
        assert_eq!(os("NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n"), "debian 12");
        assert_eq!(os("ID=arch\n"), "arch");
        assert_eq!(memory_mib("MemTotal:       24652152 kB\n"), 24074);
    }
}
