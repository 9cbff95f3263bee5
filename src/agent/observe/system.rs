//! The machine itself: names, memory, disk, addresses.
//!
//! In: `/proc`, `/sys`, `/etc`. Out: the first part of [`HostFacts`]. A missing file leaves its fact empty.

use crate::agent::fault::{Outcome, failed, free_bytes};
use crate::agent::machine::prepare::swap_in_use;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::must;
use crate::model::facts::{HostFacts, InterfaceAddress};
use serde::Deserialize;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

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
    facts.stamp = super::stamp(root)?;
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

#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Option<IpAddr>,
    #[serde(default)]
    prefixlen: u8,
}

/// Every address on every interface.
pub(in crate::agent) async fn addresses() -> Outcome<Vec<InterfaceAddress>> {
    parse(&must(&["ip", "-j", "addr", "show"], Duration::from_secs(5)).await?)
}

fn parse(text: &str) -> Outcome<Vec<InterfaceAddress>> {
    let interfaces: Vec<Interface> = serde_json::from_str(text)
        .map_err(|e| failed(format!("the output of `ip addr` is not a list of addresses: {e}")))?;
    let each = |i: Interface| {
        let name = i.ifname;
        i.addr_info.into_iter().filter_map(move |a| {
            Some(InterfaceAddress { interface: name.clone(), address: a.local?, prefix: a.prefixlen })
        })
    };
    Ok(interfaces.into_iter().flat_map(each).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_with_interface_and_prefix() {
        let text = r#"[{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
            {"ifname":"eth0","addr_info":[{"family":"inet6","local":"fe80::1","prefixlen":64}]},{}]"#;
        let found = parse(text).unwrap();
        assert_eq!(
            (found[1].interface.as_str(), found[1].address.to_string(), found[1].prefix),
            ("eth0", "fe80::1".to_owned(), 64)
        );
        assert!(parse("nonsense").is_err());
    }

    #[test]
    fn the_system_is_named_by_id_and_version() {
        assert_eq!(os("NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n"), "debian 12");
        assert_eq!(os("ID=arch\n"), "arch");
        assert_eq!(memory_mib("MemTotal:       24652152 kB\n"), 24074);
    }
}
