//! Properties that hold for every foreign text: it causes no panic, every result is an inventory, and values are
//! preserved.

use hactl::inventory::import::draft::{Draft, Host, Said, Way};
use hactl::inventory::import::write::{scalar, write};
use hactl::inventory::import::{Input, Tool, Wishes, import};
use hactl::inventory::{Nothing, parse};
use hactl::model::desired::Role;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::path::Path;

const SAMPLES: [&str; 5] = [
    include_str!("ansible-ini/hosts.ini"),
    include_str!("ansible-yaml/inventory.yml"),
    include_str!("kubespray-yaml/hosts.yaml"),
    include_str!("kubespray-ini/group_vars/k8s-cluster/k8s-cluster.yml"),
    include_str!("k0sctl/k0sctl.yaml"),
];

fn tools() -> impl Strategy<Value = Tool> {
    proptest::sample::select(vec![Tool::Ansible, Tool::Kubespray, Tool::K0sctl])
}

/// Lines of the samples in their order, some missing, some twice, with pieces that trouble readers.
fn soup() -> impl Strategy<Value = String> {
    let odd = prop_oneof![
        Just("[kube_control_plane]".to_owned()),
        Just("[a:children]\na\nb\n[b:children]\na".to_owned()),
        Just("n[1:3] ansible_host={{ x }} x={{ y }} y={{ x }}".to_owned()),
        Just("---".to_owned()),
        Just("  ssh: {address: [1], port: 99999}".to_owned()),
        Just("\t- &a [*a]".to_owned()),
        Just("x: !vault |\n  y".to_owned()),
        Just("ansible_ssh_common_args=-o -J -W '".to_owned()),
        any::<String>(),
    ];
    (proptest::sample::select(SAMPLES.to_vec()), vec((0..8_u8, odd), 60)).prop_map(|(sample, cuts)| {
        let mut out = String::new();
        for (line, (cut, odd)) in sample.lines().zip(cuts) {
            match cut {
                0 => {}
                1 => out.push_str(&format!("{line}\n{line}\n")),
                2 => out.push_str(&format!("{odd}\n")),
                _ => out.push_str(&format!("{line}\n")),
            }
        }
        out
    })
}

/// A draft of one host with texts in every place that takes any.
fn draft(
    args: &std::collections::BTreeMap<String, String>,
    fields: &std::collections::BTreeMap<String, String>,
) -> Draft {
    let said = |text: &str| Said::new(text, text, "x:1");
    let host = Host {
        name: "cp1".to_owned(),
        given: "cp1: # [".to_owned(),
        address: Some(said("10.0.0.1")),
        roles: [Role::ControlPlane, Role::Etcd].into(),
        ..Host::default()
    };
    let mut draft = Draft {
        made_from: "a\nb: c".to_owned(),
        cluster: said("lab"),
        endpoint: Some(Way::External(said("api.example.org:6443"))),
        hosts: vec![host],
        ..Draft::default()
    };
    let args = args.iter().map(|(flag, value)| (flag.clone(), said(value))).collect();
    draft.args.insert("kube-scheduler", args);
    draft.kubelet_config =
        fields.iter().map(|(key, value)| (key.clone(), Said::new(value.as_str(), value.as_str(), "x:2"))).collect();
    draft
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_ever_panics_and_every_result_is_an_inventory(
        tool in tools(),
        text in prop_oneof![soup(), any::<String>()],
    ) {
        let input = Input { name: "hosts".to_owned(), text, folder: None };
        let wishes = Wishes { vip: Some("10.99.0.1".to_owned()), ..Wishes::default() };
        match import(tool, &input, &wishes, &Nothing) {
            Ok(done) => prop_assert!(parse(&done.text, Path::new("/base")).is_ok(), "{}", done.text),
            Err(error) => prop_assert!(error.to_string().contains("do: ")),
        }
    }

    #[test]
    fn every_text_is_preserved(
        // Flags that hactl sets itself are refused, whole families of them (tls-*); none begins with x.
        args in btree_map("x[a-z]{0,7}-x", "[^\\p{Cc}]{0,20}", 0..5),
        fields in btree_map("x[a-zA-Z.:# {\\[]{0,10}", any::<String>(), 0..5),
    ) {
        let written = write(&draft(&args, &fields));
        let loaded = parse(&written.text, Path::new("/base"))
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}", written.text)))?;
        let back = loaded.desired.extra.args.get("kube-scheduler").cloned().unwrap_or_default();
        prop_assert_eq!(back, args);
        let back: std::collections::BTreeMap<String, String> = loaded.desired.extra.kubelet_config.iter()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or("no text").to_owned())).collect();
        prop_assert_eq!(back, fields);
        prop_assert_eq!(written.origins.len(), written.text.lines().count());
    }
}

#[test]
fn words_with_another_meaning_in_yaml_are_quoted_and_plain_ones_are_not() {
    for word in [
        "on",
        "No",
        "null",
        "~",
        "1.30",
        "0x10",
        "1e3",
        "a: b",
        "a #b",
        "- a",
        "",
        " a",
        "a,b",
        "{a}",
        "*a",
        "!a",
        "@a",
        "10.0.0.1:6443",
    ] {
        assert!(scalar(word).starts_with('"'), "{word} became {}", scalar(word));
    }
    for word in ["lab", "10.0.0.1", "10.244.0.0/16", "~/.ssh/id", "/srv/etcd", "ops@gate", "api.example.org"] {
        assert_eq!(scalar(word), word);
    }
}
