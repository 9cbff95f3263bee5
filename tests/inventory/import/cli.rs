//! `hactl inventory import` through its writers: the destination of each output, and the exit codes.

use crate::root;
use clap::Parser;
use hactl::cli::inventory::{Given, InventoryArgs, run};
use serde_json::Value;
use std::fs;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: InventoryArgs,
}

fn hactl(args: &[&str], json: bool) -> (u8, String, String) {
    let words = ["inventory", "import"].into_iter().chain(args.iter().copied());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&cli.args, Given { inventory: "hactl.yaml".as_ref(), json }, &mut out, &mut err);
    (code.code(), String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn sample(name: &str) -> String {
    root().join("tests/inventory/import").join(name).display().to_string()
}

#[test]
fn the_inventory_goes_to_standard_output_and_the_warnings_elsewhere() {
    let (code, out, err) = hactl(&["kubespray", &sample("kubespray-yaml/hosts.yaml")], false);
    assert_eq!(code, 0, "{err}");
    assert!(hactl::inventory::parse(&out, root()).is_ok(), "{out}");
    assert!(err.contains(": warning: ") && err.contains("  do: ") && err.trim_end().ends_with("warnings"), "{err}");
}

#[test]
fn a_file_is_written_once_and_never_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    let args = ["kubespray", "--file", path.to_str().unwrap(), &sample("kubespray-yaml/hosts.yaml")];
    let (code, out, _) = hactl(&args, false);
    assert_eq!(code, 0);
    assert!(out.contains("wrote ") && out.contains("hactl inventory check"), "{out}");
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains("schema: 1"));
    fs::write(&path, "mine").unwrap();
    let (code, out, err) = hactl(&args, false);
    assert_eq!((code, out.as_str(), fs::read_to_string(&path).unwrap().as_str()), (3, "", "mine"));
    assert!(err.contains("already exists and was not changed"), "{err}");
    let nowhere = folder.path().join("gone/hactl.yaml");
    let args = ["kubespray", "--file", nowhere.to_str().unwrap(), &sample("kubespray-yaml/hosts.yaml")];
    assert_eq!(hactl(&args, false).0, 1);
}

#[test]
fn an_input_without_a_valid_result_exits_with_2_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hactl.yaml");
    let to = path.to_str().unwrap();
    for args in [
        vec!["ansible", "--file", to, "--vip", "10.20.0.11", "ansible-ini/hosts.ini"],
        vec!["ansible", "--file", to, "ansible-ini/hosts.ini"],
        vec!["ansible", "--file", to, "--local", "k0sctl/k0sctl.yaml"],
        vec!["k0sctl", "--file", to, "bad/docker-compose.yml"],
        vec!["k0sctl", "--file", to, "gone.yaml"],
        vec!["kubespray", "--file", to, "bad"],
    ] {
        let from = sample(args[args.len() - 1]);
        let args: Vec<&str> = args[..args.len() - 1].iter().copied().chain([from.as_str()]).collect();
        let (code, out, err) = hactl(&args, false);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains("error: ") && err.contains("do: "), "{args:?}: {err}");
        assert!(!path.exists(), "{args:?}");
    }
}

#[test]
fn the_json_output_is_one_object_of_one_shape_for_every_outcome() {
    for (args, wanted) in [
        (vec!["k0sctl", "k0sctl/k0sctl.yaml"], 0),
        (vec!["ansible", "ansible-ini/hosts.ini"], 2),
        (vec!["ansible", "--vip", "10.20.0.11", "ansible-ini/hosts.ini"], 2),
    ] {
        let from = sample(args[args.len() - 1]);
        let args: Vec<&str> = args[..args.len() - 1].iter().copied().chain([from.as_str()]).collect();
        let (code, out, err) = hactl(&args, true);
        assert_eq!((code, err.as_str(), out.lines().count()), (wanted, "", 1), "{args:?}");
        let value: Value = serde_json::from_str(&out).unwrap();
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["errors", "inventory", "warnings"]);
        let (warnings, errors) = (value["warnings"].as_array().unwrap(), value["errors"].as_array().unwrap());
        assert_eq!((value["inventory"].is_string(), errors.is_empty()), (code == 0, code == 0), "{args:?}");
        for warning in warnings {
            assert!(["where", "what", "remedy"].iter().all(|key| warning[key].is_string()), "{warning}");
        }
    }
}

#[test]
fn a_missing_key_file_is_reported_by_the_import() {
    let (code, _, err) =
        hactl(&["ansible", "--external", "api.example.org:6443", &sample("ansible-yaml/inventory.yml")], false);
    assert_eq!(code, 0);
    assert!(err.contains("/srv/keys/cluster, which cannot be read"), "{err}");
}

#[test]
fn two_endpoints_at_once_are_a_usage_error() {
    let words = ["inventory", "import", "k0sctl", "--vip", "10.0.0.1", "--external", "a:1", "f"];
    assert!(Cli::try_parse_from(words).is_err());
}
