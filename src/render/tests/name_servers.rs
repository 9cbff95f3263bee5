//! The file from which the kubelet takes the name servers of pods, after each start of its unit.

use super::*;
use crate::model::dns::{OF_PODS, RESOLV_CONF, RESOLVED};
use std::path::PathBuf;
use std::process::Command;

/// The files of a kubelet on a host on which systemd-resolved does or does not name servers.
fn kubelet(systemd_resolved: bool) -> BTreeMap<String, String> {
    let desired = desired();
    let host = &desired.hosts[0];
    let facts = HostFacts { systemd_resolved, ..facts(host) };
    let files = rendered(&desired, host, &facts).unwrap().into_iter().flat_map(|set| set.files);
    files.map(|file| (file.path, file.content)).collect()
}

#[test]
fn a_kubelet_that_starts_reads_name_servers_from_a_file_that_exists_by_preference_from_that_with_the_hosts_servers() {
    let cases: [(bool, &[&str], &str); 6] = [
        (true, &[RESOLVED, RESOLV_CONF], RESOLVED),
        (true, &[RESOLV_CONF], RESOLV_CONF),
        (false, &[RESOLVED, RESOLV_CONF], RESOLV_CONF),
        (false, &[RESOLVED], RESOLVED),
        (true, &[], "/dev/null"),
        (false, &[], "/dev/null"),
    ];
    for (systemd_resolved, there, expected) in cases {
        let files = kubelet(systemd_resolved);
        let config: Value = serde_saphyr::from_str(&files["/var/lib/kubelet/config.yaml"]).unwrap();
        assert_eq!(config["resolvConf"], OF_PODS);
        let unit = &files["/etc/systemd/system/kubelet.service"];
        let script = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=-/bin/sh -c '")).unwrap();
        let mut script = script.strip_suffix('\'').unwrap().replace("$$", "$");
        let root = tempfile::tempdir().unwrap();
        let inside = |path: &str| root.path().join(path.trim_start_matches('/'));
        for path in there.iter().chain([&OF_PODS]) {
            std::fs::create_dir_all(inside(path).parent().unwrap()).unwrap();
        }
        for path in there {
            std::fs::write(inside(path), "nameserver 10.88.0.1\n").unwrap();
        }
        // Of an earlier boot.
        std::os::unix::fs::symlink("/nowhere", inside(OF_PODS)).unwrap();
        for path in [RESOLVED, RESOLV_CONF, OF_PODS] {
            script = script.replace(path, inside(path).to_str().unwrap());
        }
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success(), "{script}");
        let expected = if expected == "/dev/null" { PathBuf::from(expected) } else { inside(expected) };
        assert_eq!(std::fs::read_link(inside(OF_PODS)).unwrap(), expected, "{systemd_resolved} {there:?}");
    }
}
