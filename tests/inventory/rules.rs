//! Single rules, where a golden file would hide the essential point.

use super::{BASE, MINIMAL, edited, parse, root, with};
use hactl::inventory::{InventoryError, Source, load};
use hactl::model::desired::EndpointKind;
use hactl::model::healing::{Delays, Healing, Metrics, Mode, Reboot};
use hactl::model::names::PluginName;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

fn refused(text: &str) -> Vec<String> {
    match parse(text) {
        Err(InventoryError::Invalid(report)) => report.problems.into_iter().map(|p| p.what).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

fn vrid(text: &str) -> u8 {
    match parse(text).unwrap().desired.endpoint.kind {
        EndpointKind::Vip { vrid, .. } => vrid,
        EndpointKind::External(_) | EndpointKind::Local { .. } => panic!("the base text has a virtual address"),
    }
}

#[test]
fn all_broken_rules_come_in_one_report_in_the_order_of_the_file() {
    let text = edited("10.0.0.12", "10.0.0.11").replace("vip: 10.0.0.100", "vip: 10.0.0.13") + "apiPort: 2380\n";
    let Err(InventoryError::Invalid(report)) = parse(&text) else { panic!("three rules are broken") };
    let lines: Vec<usize> = report.problems.iter().map(|p| p.place.line).collect();
    assert_eq!(lines, [4, 10, 15]);
}

#[test]
fn the_api_may_use_the_port_of_the_endpoint_because_they_bind_different_addresses() {
    assert_eq!(refused(&with("apiPort: 6443")), Vec::<String>::new());
}

#[test]
fn every_port_of_a_component_is_refused_as_api_port() {
    for port in [22, 2379, 2380, 2381, 2384, 6481, 10248, 10249, 10250, 10256, 10257, 10259, 10270, 10271, 10272] {
        assert!(refused(&with(&format!("apiPort: {port}")))[0].contains(&port.to_string()), "{port}");
    }
}

#[test]
fn healing_is_off_by_default_and_a_word_is_its_mode() {
    let healing = |line: &str| parse(&with(line)).unwrap().desired.healing;
    let delays = |host_unreachable_s, frozen_s, not_voting_s| Delays {
        host_unreachable_s,
        frozen_s,
        not_voting_s,
        ..Delays::default()
    };
    let watch = |after| Healing { mode: Mode::Watch, after, ..Healing::default() };
    assert_eq!(parse(BASE).unwrap().desired.healing, Healing::default());
    assert_eq!(healing("healing: off"), Healing::default());
    assert_eq!(healing("healing: watch"), watch(Delays::default()));
    assert_eq!(healing("healing: \"watch\""), watch(delays(180, 15, 600)));
    assert_eq!(healing("healing: {mode: watch, after: {frozen: 10m}}"), watch(delays(180, 600, 600)));
    assert_eq!(
        healing("healing: {mode: watch, after: {hostUnreachable: 30s, frozen: 5s, notVoting: 1h}}"),
        watch(delays(30, 5, 3600))
    );
    let dead = healing("healing: {mode: on, after: {hostUnreachable: 30s, hostDead: 1m}}").after;
    assert_eq!((dead.host_unreachable_s, dead.host_dead_s), (30, 60));
    let served = |metrics| Healing { metrics, ..watch(Delays::default()) };
    assert_eq!(healing("healing: {mode: watch, metrics: loopback}"), served(Metrics::Loopback));
    assert_eq!(healing("healing: {mode: watch, metrics: host}"), served(Metrics::Host));
    let read = |line: &str| parse(&with(line)).unwrap().desired.metrics;
    assert!(read("metrics: on") && !read("metrics: off") && !parse(BASE).unwrap().desired.metrics);
    let early = refused(&with("healing: {mode: on, after: {hostDead: 2m}}"));
    assert!(early[0].contains("hostDead is shorter than healing.after.hostUnreachable"), "{early:?}");
}

#[test]
fn a_host_stands_by_for_etcd_only_and_only_without_that_role() {
    let fourth = |keys: &str, more: &str| {
        let host = format!("  - {{name: s1, address: 10.0.0.44, {keys}}}\n");
        edited("hosts:\n", &format!("{more}\nhosts:\n{host}"))
    };
    let standby = |keys: &str| parse(&fourth(keys, "healing: on")).unwrap().desired.hosts[0].standby;
    assert!(standby("roles: [control-plane], standby: [etcd]"));
    assert!(standby("roles: [spare], standby: [etcd]"));
    assert!(!standby("roles: [control-plane], standby: []"));
    let refusal = |keys: &str| refused(&fourth(keys, "healing: on")).join("; ");
    let both = refusal("roles: [control-plane, etcd], standby: [etcd]");
    assert!(both.contains("s1 has the role etcd and stands by for it"), "{both}");
    let other = refusal("roles: [control-plane], standby: [load-balancer]");
    assert!(other.contains("s1 cannot stand by for \"load-balancer\""), "{other}");
    let loaded = parse(&fourth("roles: [control-plane], standby: [etcd]", "healing: watch")).unwrap();
    let warned: Vec<String> = loaded.warnings.iter().map(|warning| warning.what.clone()).collect();
    assert!(warned.iter().any(|text| text.contains("no guard repairs anything")), "{warned:?}");
}

#[test]
fn power_is_switched_by_named_plug_ins_of_hosts_with_guards_and_by_three_hosts_that_may_vote() {
    let on = "healing: {mode: on, reboot: power}";
    let with = |keys: &str, more: &str| {
        let host = format!("  - {{name: s1, address: 10.0.0.44, {keys}}}\n");
        edited("hosts:\n", &format!("{more}\nhosts:\n{host}"))
    };
    let of = |exec: &str| with(&format!("roles: [control-plane], power: {{exec: {exec}}}"), on);
    let loaded = parse(&of("bmc-2")).unwrap();
    assert_eq!(loaded.desired.hosts[0].power.as_ref().map(PluginName::as_str), Some("bmc-2"));
    assert_eq!(loaded.desired.healing.reboot, Reboot::Power);
    for exec in ["Bmc", "../bmc", "bmc.sh", "''", &"b".repeat(33)] {
        let why = refused(&of(exec)).join("; ");
        assert!(why.contains("cannot name a plug-in"), "{exec}: {why}");
    }
    let refusal = |keys: &str, more: &str| refused(&with(keys, more)).join("; ");
    let none = refusal("roles: [control-plane]", on);
    assert!(none.contains("healing.reboot is power, and no host has `power`"), "{none}");
    let worker = refusal("roles: [worker], power: {exec: bmc}", on);
    assert!(worker.contains("s1 has `power`, and no guard looks after it"), "{worker}");
    let empty = refusal("roles: [control-plane], power: {}", on);
    assert!(empty.contains("the power of s1 has no exec"), "{empty}");
    for more in ["healing: {mode: on, reboot: systemd}", "healing: on", ""] {
        let loaded = parse(&with("roles: [control-plane], power: {exec: bmc}", more)).unwrap();
        let warned: Vec<String> = loaded.warnings.iter().map(|warning| warning.what.clone()).collect();
        assert!(warned.iter().any(|text| text.contains("no guard switches it")), "{more}: {warned:?}");
    }
    let watch = parse(&with("roles: [control-plane], power: {exec: bmc}", "healing: {mode: watch, reboot: power}"));
    let warned: Vec<String> = watch.unwrap().warnings.iter().map(|warning| warning.what.clone()).collect();
    assert!(warned.iter().any(|text| text.contains("healing.reboot has no effect")), "{warned:?}");
    let alone = of("bmc").replace("roles: [control-plane, etcd, load-balancer]", "roles: [control-plane]");
    let alone = alone.replacen("roles: [control-plane]", "roles: [control-plane, etcd, load-balancer]", 1);
    assert!(refused(&alone).join("; ").contains("of the hosts may vote in etcd"), "{alone}");
}

#[test]
fn the_vrid_follows_from_the_name_of_the_cluster_and_is_never_zero() {
    assert_eq!(vrid(BASE), vrid(&format!("# another file\n{BASE}")));
    let ids: std::collections::BTreeSet<u8> =
        (0..200).map(|n| vrid(&edited("cluster: lab", &format!("cluster: lab-{n}")))).collect();
    assert!(!ids.contains(&0) && ids.len() > 80, "{} ids for 200 names", ids.len());
}

#[test]
fn relative_paths_start_at_the_inventory_and_a_tilde_at_home() {
    let loaded = parse(&with("ssh: {identity: keys/id, known_hosts: ~/known}\nmanifests: [./a, /b]")).unwrap();
    let ssh = &loaded.desired.hosts[0].ssh;
    assert_eq!(ssh.identity, Some(PathBuf::from("/base/keys/id")));
    assert_eq!(ssh.known_hosts, [std::env::home_dir().unwrap().join("known")]);
    assert_eq!(loaded.desired.manifests, [Path::new("/base/./a"), Path::new("/b")]);
}

#[test]
fn hosts_may_share_an_ssh_address_with_different_ports() {
    let text = BASE
        .replace("address: 10.0.0.11", "address: 10.0.0.11\n    ssh: {host: gate.example.org, port: 2201}")
        .replace("address: 10.0.0.12", "address: 10.0.0.12\n    ssh: {host: gate.example.org, port: 2202}");
    assert_eq!(refused(&text), Vec::<String>::new());
}

#[test]
fn anchors_and_aliases_work() {
    let text = BASE.replacen(
        "roles: [control-plane, etcd, load-balancer]",
        "roles: &all [control-plane, etcd, load-balancer]",
        1,
    );
    let (first, rest) = text.split_once("cp2").unwrap();
    let text = format!("{first}cp2{}", rest.replace("[control-plane, etcd, load-balancer]", "*all"));
    assert_eq!(parse(&text).unwrap().desired, parse(BASE).unwrap().desired);
}

#[test]
fn a_flag_keeps_the_text_that_was_written() {
    let loaded = parse(&with("extra: {kube-scheduler: {args: {a: 1.30, b: true, c: \"007\", d: 0x10}}}")).unwrap();
    let args = &loaded.desired.extra.args["kube-scheduler"];
    let values: Vec<&str> = args.values().map(String::as_str).collect();
    assert_eq!(values, ["1.30", "true", "007", "0x10"]);
}

#[test]
fn json_is_yaml_and_windows_line_ends_are_line_ends() {
    let json = r#"{"schema": 1, "cluster": "lab", "endpoint": {"vip": "10.0.0.100"}, "hosts": [
        {"name": "one", "address": "10.0.0.11", "roles": ["control-plane", "etcd", "load-balancer"]}]}"#;
    assert_eq!(parse(json).unwrap().desired.hosts.len(), 1);
    assert_eq!(parse(&BASE.replace('\n', "\r\n")).unwrap().desired, parse(BASE).unwrap().desired);
    assert_eq!(parse(&format!("\u{feff}{BASE}")).unwrap().desired, parse(BASE).unwrap().desired);
}

#[test]
fn a_dash_means_standard_input() {
    assert_eq!(Source::from(OsStr::new("-")), Source::Stdin);
    assert_eq!(Source::from(OsStr::new("./-")), Source::Path("./-".into()));
}

#[test]
fn a_missing_file_names_the_verb_that_writes_one() {
    let folder = tempfile::tempdir().unwrap();
    let error = load(&Source::Path(folder.path().join("hactl.yaml"))).unwrap_err();
    assert!(matches!(error, InventoryError::Missing(_)));
    assert!(error.to_string().contains("hactl inventory init"), "{error}");
}

#[test]
fn a_directory_is_not_an_inventory() {
    let folder = tempfile::tempdir().unwrap();
    let error = load(&Source::Path(folder.path().to_owned())).unwrap_err();
    assert!(matches!(error, InventoryError::Directory(_)), "{error}");
}

#[test]
fn bytes_that_are_not_text_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    fs::write(&path, b"schema: 1\ncluster: \xff\xfe\n").unwrap();
    let error = load(&Source::Path(path)).unwrap_err();
    assert!(matches!(error, InventoryError::NotText { line: 2, offset: 19, .. }), "{error}");
}

#[test]
fn a_file_without_end_is_read_no_further_than_the_limit() {
    let error = load(&Source::Path("/dev/zero".into())).unwrap_err();
    assert!(error.to_string().contains("1024 KiB"), "{error}");
}

#[test]
fn files_that_the_inventory_names_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    fs::write(folder.path().join("here"), "").unwrap();
    fs::write(&path, with("ssh: {identity: gone, known_hosts: here}\nmanifests: [also-gone.yaml]")).unwrap();
    let error = load(&Source::Path(path.clone())).unwrap_err();
    let problems = &error.report().unwrap().problems;
    assert_eq!(problems.len(), 2, "{error}");
    assert!(
        problems[0].what.starts_with("ssh.identity names") && problems[0].what.contains("does not exist"),
        "{error}"
    );
    assert!(problems[0].file.ends_with("hactl.yaml") && problems[0].place.line == 15, "{error}");

    fs::write(&path, with("ssh: {identity: .}")).unwrap();
    let error = load(&Source::Path(path)).unwrap_err();
    assert!(error.to_string().contains("it is a directory"), "{error}");
}

#[test]
fn a_thousand_hosts_are_valid_and_require_a_large_enough_pod_network() {
    use std::fmt::Write as _;
    let mut text = String::from(MINIMAL);
    for n in 0..1000 {
        let _ = writeln!(text, "  - {{name: w{n}, address: 10.1.{}.{}, roles: [worker]}}", n / 250, n % 250 + 1);
    }
    assert!(refused(&text)[0].contains("space for 256 Nodes"));
    text.push_str("network: {pods: 10.128.0.0/14}\n");
    assert_eq!(parse(&text).unwrap().desired.hosts.len(), 1003);
}

#[test]
fn the_lab_files_of_the_repository_hold_no_secret() {
    for file in ["id_ed25519", "mirror-login"] {
        let text = fs::read_to_string(root().join("inventories/files").join(file)).unwrap();
        assert!(!text.contains("PRIVATE KEY") && text.contains("holds none"), "{file}");
    }
}
