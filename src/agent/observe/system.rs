//! The machine itself: names, memory, disk.
//!
//! In: `/proc`, `/sys`, `/etc`. Out: the first part of [`HostFacts`]. A missing file leaves its fact empty.

use crate::agent::machine::files::read_stamp;
use crate::agent::machine::prepare::swap_in_use;
use crate::agent::machine::root::Root;
use crate::agent::op_error::{Outcome, free_bytes};
use crate::model::dns::{OF_PODS, RESOLV_CONF, RESOLVED};
use crate::model::facts::{HostFacts, ResolvConf};
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
    facts.systemd_resolved = names_a_server(&read(RESOLVED));
    facts.resolv_conf = resolv_conf(root);
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

/// From where the kubelet takes name servers for pods.
fn resolv_conf(root: &Root) -> Option<ResolvConf> {
    let config = fs::read_to_string(root.own("/var/lib/kubelet/config.yaml")).ok()?;
    let set = config.lines().find_map(|line| line.strip_prefix("resolvConf:"));
    let named = set.map_or(RESOLV_CONF, |path| path.trim().trim_matches(['"', '\'']));
    let link = if named == OF_PODS { fs::read_link(root.own(OF_PODS)).ok() } else { None };
    let file = link.map_or_else(|| named.to_owned(), |to| to.to_string_lossy().into_owned());
    // The inventory may set it to nothing.
    let text = fs::read(root.path(&file).ok()?).map(|text| String::from_utf8_lossy(&text).into_owned());
    Some(ResolvConf { file, exists: text.is_ok(), has_servers: text.is_ok_and(|text| names_a_server(&text)) })
}

/// Whether a `resolv.conf` names a server, as the kubelet reads it.
fn names_a_server(text: &str) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("nameserver") && words.next().is_some()
    })
}

fn memory_mib(text: &str) -> u64 {
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    total.unwrap_or(0) >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_names_a_server_counts_and_the_kubelets_is_found_through_its_link() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let write = |path: &'static str, text: &str| {
            fs::create_dir_all(root.own(path).parent().unwrap()).unwrap();
            fs::write(root.own(path), text).unwrap();
        };
        let found = |file: &str, exists, has_servers| Some(ResolvConf { file: file.to_owned(), exists, has_servers });
        let config = "/var/lib/kubelet/config.yaml";
        assert_eq!(facts(&root).unwrap().resolv_conf, None, "it has no kubelet");
        write(config, "kind: KubeletConfiguration\n");
        assert_eq!(facts(&root).unwrap().resolv_conf, found(RESOLV_CONF, false, false), "the kubelet's default");
        write(config, &format!("resolvConf: \"{RESOLVED}\"\n"));
        let comment = "# nameserver 9.9.9.9\nnameserver\n";
        for (text, names) in [("", false), (comment, false), ("search x\n nameserver\t9.9.9.9\n", true)] {
            write(RESOLVED, text);
            let facts = facts(&root).unwrap();
            assert_eq!((facts.systemd_resolved, facts.resolv_conf), (names, found(RESOLVED, true, names)), "{text:?}");
        }
        write(config, &format!("resolvConf: {OF_PODS}\n"));
        std::os::unix::fs::symlink(RESOLVED, root.own(OF_PODS)).unwrap();
        assert_eq!(facts(&root).unwrap().resolv_conf, found(RESOLVED, true, true));
        fs::remove_file(root.own(RESOLVED)).unwrap();
        assert_eq!(facts(&root).unwrap().resolv_conf, found(RESOLVED, false, false));
        write(config, "resolvConf: \"\"\n");
        assert_eq!(facts(&root).unwrap().resolv_conf, None, "pods get none, as the inventory says");
    }

    #[test]
    fn the_system_is_named_by_id_and_version() {
        assert_eq!(os("NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n"), "debian 12");
        assert_eq!(os("ID=arch\n"), "arch");
        assert_eq!(memory_mib("MemTotal:       24652152 kB\n"), 24074);
    }
}
