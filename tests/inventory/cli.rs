//! `hactl inventory init|check|schema` through its writers, and what other verbs say of an inventory without a version.

use super::{BASE, root};
use clap::Parser;
use hactl::cli::inventory::{Given, InventoryArgs, run};
use hactl::inventory::{Source, load};
use std::fs;
use std::path::Path;
use std::process::Command;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: InventoryArgs,
}

fn hactl(args: &[&str]) -> (u8, String, String) {
    asked(args, "hactl.yaml", false)
}

fn asked(args: &[&str], inventory: &str, json: bool) -> (u8, String, String) {
    let words = std::iter::once("inventory").chain(args.iter().copied());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&cli.args, Given { inventory: inventory.as_ref(), json }, &mut out, &mut err);
    (code.code(), String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn init_writes_a_file_that_passes_check_for_all_flags() {
    for (n, flags) in [
        &[][..],
        &["--hosts", "10.1.0.1"],
        &["--hosts", "10.1.0.1,10.1.0.2"],
        &["--hosts", "a,b,c", "--vip", "10.1.0.100", "--cluster", "prod"],
        &["--hosts", "a=10.1.0.1,b=10.1.0.2,c=10.1.0.3,d=10.1.0.4,e=10.1.0.5,f=10.1.0.6,g=10.1.0.7"],
    ]
    .into_iter()
    .enumerate()
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{n}.yaml"));
        let (code, out, err) = hactl(&[&["init"], flags, &[text(&path)]].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{flags:?}");
        assert!(
            out.contains("edit next") && out.contains("ssh.user") && out.contains("hactl inventory check"),
            "{out}"
        );
        let (code, out, err) = hactl(&["check", text(&path)]);
        assert_eq!(code, 0, "{flags:?}\n{err}");
        assert!(out.contains("is valid"), "{out}");
        let loaded = load(&Source::Path(path)).unwrap();
        let voters = loaded.desired.with(hactl::model::desired::Role::Etcd).count();
        assert_eq!(voters % 2, 1, "{flags:?} gave {voters} etcd members");
    }
}

#[test]
fn init_takes_names_and_addresses_from_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.yaml");
    let (code, ..) = hactl(&[
        "init",
        "--cluster",
        "prod",
        "--vip",
        "10.1.0.100",
        "--hosts",
        "red=10.1.0.1,10.1.0.2,10.1.0.3",
        text(&path),
    ]);
    assert_eq!(code, 0);
    let desired = load(&Source::Path(path)).unwrap().desired;
    let hosts: Vec<String> = desired.hosts.iter().map(|h| format!("{}={}", h.name, h.address)).collect();
    assert_eq!(hosts, ["red=10.1.0.1", "cp2=10.1.0.2", "cp3=10.1.0.3"]);
    assert_eq!((desired.cluster.as_str(), desired.endpoint.host().as_str()), ("prod", "10.1.0.100"));
}

#[test]
fn init_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    fs::write(&path, "mine").unwrap();
    let (code, out, err) = hactl(&["init", text(&path)]);
    assert_eq!((code, out.as_str(), fs::read_to_string(&path).unwrap().as_str()), (3, "", "mine"));
    assert!(err.contains("already exists and was not changed"), "{err}");
}

#[test]
fn init_refuses_invalid_flags_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    for (flags, word) in [
        (["--cluster", "Not A Name"], "cluster name"),
        (["--vip", "api.example.org"], "not an IPv4 address"),
        (["--hosts", "10.0.0.1,10.0.0.1"], "same address"),
        (["--hosts", "cp1=nowhere"], "not an IPv4 address"),
    ] {
        let (code, _, err) = hactl(&[&["init"], &flags[..], &[text(&path)]].concat());
        assert_eq!(code, 2, "{flags:?}");
        assert!(err.contains(word), "{flags:?}: {err}");
        assert!(!path.exists());
    }
}

#[test]
fn check_reports_the_failures_that_the_cluster_tolerates() {
    let (code, out, err) = hactl(&["check", text(&root().join("inventories/minimal.yaml"))]);
    assert_eq!((code, err.as_str()), (0, ""));
    for line in [
        "3 etcd members: quorum 2, tolerates 1 failure",
        "https://10.0.0.100:6443",
        "cp2",
        "control-plane, etcd, load-balancer",
    ] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
}

#[test]
fn check_exits_with_2_on_a_bad_inventory_and_prints_only_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    fs::write(&path, BASE.replace("10.0.0.12", "10.0.0.11")).unwrap();
    let (code, out, err) = hactl(&["check", text(&path)]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("hactl.yaml:10:14: error: ") && err.contains("same address") && err.ends_with("1 error\n"),
        "{err}"
    );
    let (code, _, err) = hactl(&["check", text(&folder.path().join("gone.yaml"))]);
    assert_eq!(code, 2);
    assert!(err.contains("hactl inventory init"), "{err}");
}

#[test]
fn check_as_json_is_one_object_for_valid_and_invalid_inventories() {
    let json = |path: &Path| {
        let (code, out, err) = asked(&["check"], text(path), true);
        assert_eq!((err.as_str(), out.lines().count()), ("", 1));
        (code, serde_json::from_str::<serde_json::Value>(&out).unwrap())
    };
    let (code, good) = json(&root().join("inventories/single.yaml"));
    assert_eq!((code, &good["valid"], &good["summary"]["cluster"]), (0, &true.into(), &"single".into()));
    assert_eq!((&good["warnings"][0]["severity"], good["errors"].as_array().unwrap().len()), (&"warning".into(), 0));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    fs::write(&path, BASE.replace("10.0.0.12", "10.0.0.11")).unwrap();
    let (code, bad) = json(&path);
    assert_eq!(
        (code, &bad["valid"], &bad["errors"][0]["line"], &bad["errors"][0]["column"]),
        (2, &false.into(), &10.into(), &14.into())
    );
    let (code, gone) = json(&folder.path().join("gone.yaml"));
    assert_eq!((code, &gone["valid"]), (2, &false.into()));
    assert!(gone["errors"][0]["what"].as_str().unwrap().contains("there is no inventory"));
}

#[test]
fn a_verb_that_lacks_the_components_of_the_default_version_says_that_the_inventory_names_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    for (versions, is_default) in [("", true), ("versions: {kubernetes: \"1.36.3\"}\n", false)] {
        fs::write(&path, format!("{BASE}{versions}")).unwrap();
        let words = ["-i", text(&path), "--bundles", text(folder.path()), "status"];
        let output = Command::new(env!("CARGO_BIN_EXE_hactl")).args(words).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("no bundle for Kubernetes"), "{said}");
        assert_eq!(said.contains("the inventory names no version"), is_default, "{said}");
    }
}

#[test]
fn schema_prints_the_committed_schema() {
    let (code, out, _) = hactl(&["schema"]);
    assert_eq!(code, 0);
    let committed = fs::read_to_string(root().join("inventories/schema.json")).unwrap();
    assert!(out == committed || std::env::var_os("UPDATE").is_some(), "inventories/schema.json differs");
}
