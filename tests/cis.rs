//! How the lab judges the checks of the CIS benchmark, without a lab: the commands run here, and a sample satisfies
//! every check until it is weakened.

#[path = "lab/cis/documented.rs"]
mod documented;
#[path = "lab/cis/evidence.rs"]
mod evidence;
#[path = "lab/cis/judge.rs"]
mod judge;
#[path = "lab/cis/objects.rs"]
mod objects;
#[path = "lab/cis/table.rs"]
mod table;

use documented::Level;
use evidence::{Host, Paths};
use judge::{Ask, Verdict};
use objects::{Cluster, LISTS};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use table::CHECKS;

/// The sections of the benchmark, and how many checks each has.
const SECTIONS: [(&str, u32); 16] = [
    ("1.1", 21),
    ("1.2", 30),
    ("1.3", 7),
    ("1.4", 2),
    ("2", 7),
    ("3.1", 3),
    ("3.2", 2),
    ("4.1", 10),
    ("4.2", 14),
    ("4.3", 1),
    ("5.1", 13),
    ("5.2", 12),
    ("5.3", 2),
    ("5.4", 2),
    ("5.5", 1),
    ("5.6", 4),
];

fn host() -> Host {
    let mut host = Host::named("cp1");
    host.read(include_str!("lab/cis/sample.txt"));
    host.kubelet = json!({
        "staticPodPath": "/etc/kubernetes/manifests",
        "authentication": {
            "anonymous": {"enabled": false},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/client-ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "streamingConnectionIdleTimeout": "5m0s",
        "makeIPTablesUtilChains": true,
        "eventRecordQPS": 50,
        "rotateCertificates": true,
        "serverTLSBootstrap": true,
        "tlsCipherSuites": ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
        "podPidsLimit": 4096,
        "seccompDefault": true,
    });
    host
}

/// A cluster that nobody but administrators and Kubernetes may change, and that refuses what the benchmark names.
fn cluster() -> Cluster {
    let built_in = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let lists = [
        json!([{
            "metadata": {"name": "one", "namespace": "kube-system"},
            "spec": {
                "serviceAccountName": "one",
                "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
                "containers": [{"env": [{"name": "ONE", "value": "one"}]}],
            },
        }]),
        json!([{"metadata": {"name": "kubernetes", "namespace": "default"}}]),
        json!([{"metadata": {"name": "kube-system"}}]),
        json!([{"metadata": {"name": "default", "namespace": "kube-system"}, "automountServiceAccountToken": false}]),
        json!([{"metadata": {"name": "all", "namespace": "kube-system"}}]),
        json!([
            {
                "metadata": {"name": "cluster-admin", "labels": built_in},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            },
            {"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
        ]),
        json!([{
            "metadata": {"name": "canary", "namespace": "kube-system"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["canary"], "verbs": ["get"]}],
        }]),
        json!([
            {
                "metadata": {"name": "cluster-admin", "labels": built_in},
                "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "Group", "name": "system:masters"}],
            },
            {
                "metadata": {"name": "reader"},
                "roleRef": {"kind": "ClusterRole", "name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "one", "namespace": "kube-system"}],
            },
        ]),
        json!([{
            "metadata": {"name": "canary", "namespace": "kube-system"},
            "roleRef": {"kind": "Role", "name": "canary"},
            "subjects": [{"kind": "Group", "name": "readers"}],
        }]),
    ];
    let lists = LISTS.iter().zip(lists).map(|((plural, _), list)| (*plural, objects::items(&list).to_vec()));
    let refused = CHECKS.iter().filter(|check| matches!(check.ask, Ask::Refused)).map(|check| check.id);
    Cluster { lists: lists.collect(), refused: refused.collect() }
}

#[test]
fn every_check_of_the_benchmark_is_in_the_table_once() {
    let sections = SECTIONS.into_iter();
    let all = sections.flat_map(|(section, count)| (1..=count).map(move |number| format!("{section}.{number}")));
    let all: BTreeSet<String> = all.collect();
    assert_eq!(all.len(), 131);
    let listed: BTreeSet<String> = CHECKS.iter().map(|check| check.id.to_owned()).collect();
    assert_eq!(listed, all);
    assert_eq!(CHECKS.len(), all.len());
}

#[test]
fn a_sample_satisfies_every_check_that_no_person_judges_and_each_fails_once_its_subject_is_weakened() {
    let (hosts, cluster) = ([host()], cluster());
    let mut people = Vec::new();
    for (id, (verdict, wrong)) in judge::verdicts(&hosts, &cluster) {
        match verdict {
            Verdict::Pass => {}
            Verdict::Warn if wrong == ["a person judges it"] => people.push(id),
            Verdict::Warn | Verdict::Fail => panic!("{id} is {verdict}: {wrong:?}"),
        }
    }
    assert_eq!(people, ["3.1.1", "3.1.2", "5.1.7", "5.3.1", "5.4.2", "5.6.1"]);
    assert_eq!(judge::blind(&hosts, &cluster), [""; 0]);
}

#[test]
fn an_audit_policy_that_records_secrets_of_some_users_with_their_content_does_not_pass() {
    let passes = |first: &str| {
        let mut host = Host::named("cp1");
        let policy = format!("rules:\n- {first}\n- {{level: Metadata}}\n");
        host.read(&format!("\n@program kube-apiserver\n\n@text audit-policy-file\n{policy}"));
        judge::audits(&host)
    };
    let of_pods = "resources: [{group: '', resources: [pods]}]";
    let of_secrets = "resources: [{group: '', resources: [secrets]}]";
    assert!(passes(&format!("{{level: None, users: [one], {of_secrets}}}")));
    assert!(passes(&format!("{{level: Request, users: [one], {of_pods}}}")));
    assert!(!passes(&format!("{{level: Request, users: [one], {of_secrets}}}")));
    assert!(!passes(&format!("{{level: None, {of_secrets}}}")));
}

#[test]
fn a_right_counts_if_others_than_administrators_have_it() {
    let granted = |subject: &str| {
        let mut cluster = cluster();
        let binding = json!({
            "metadata": {"name": "more"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "Group", "name": "hactl:administrators"}, {"kind": "Group", "name": subject}],
        });
        cluster.lists.get_mut("clusterrolebindings").unwrap().push(binding);
        let (verdict, _) = judge::verdicts(&[host()], &cluster).remove("5.1.9").unwrap();
        verdict
    };
    assert_eq!(granted("hactl:administrators"), Verdict::Pass);
    assert_eq!(granted("developers"), Verdict::Warn);
}

#[test]
fn the_documented_checks_are_of_the_benchmark_and_explained_and_none_passes_at_both_levels_or_fails_with_cis() {
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/security.md")).unwrap();
    let rows = documented::read(&document);
    assert!(!rows.is_empty());
    for (id, row) in rows {
        let check = CHECKS.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("{id} is no check"));
        let levels = [row.at(Level::Default), row.at(Level::Cis)];
        assert!(levels.iter().all(|one| *one == Verdict::Pass || *one == check.otherwise), "{id}: {levels:?}");
        assert!(levels != [Verdict::Pass; 2] && levels[1] != Verdict::Fail, "{id}: {levels:?}");
        assert!(row.why.split(' ').count() > 3, "{id}: {}", row.why);
    }
}

#[test]
fn the_mode_of_every_file_that_a_check_judges_is_asked_for() {
    let mut host = host();
    // With the files that hactl does not have.
    host.weaken_rest();
    let (files, folders) = host.places();
    let mut judged = BTreeSet::new();
    for check in CHECKS {
        let (Ask::Mode(of, _) | Ask::Owner(of, _)) = check.ask else { continue };
        let (Paths::These(paths) | Paths::IfThere(paths)) = of(&host);
        assert!(!paths.is_empty(), "{}", check.id);
        for path in paths {
            let asked = files.contains(&path) || folders.iter().any(|folder| path.starts_with(folder));
            assert!(asked, "{}: {path}", check.id);
            judged.insert(path);
        }
    }
    assert!(judged.contains("/etc/kubernetes/admin.conf") && judged.contains("/open.conf"), "{judged:?}");
}

#[test]
fn the_commands_show_flags_variables_texts_and_modes_and_no_key_of_the_encryption() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (config, keys) = (at("config.yaml"), at("keys.yaml"));
    fs::write(&config, "mode: nftables\n").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    let providers = "resources:\n  - resources: [secrets]\n    providers:\n      - secretbox:\n          keys:\n";
    let key = "            - name: one\n              secret: c2VjcmV0\n      - identity: {}\n";
    fs::write(&keys, format!("{providers}{key}")).unwrap();
    // It waits for the end of its input, and has the name and the flags of a component.
    let mut sample = Command::new("sh");
    sample.arg0("/opt/hactl-sample").args(["-c", "read line"]).stdin(Stdio::piped());
    sample.arg(format!("--config={config}")).arg(format!("--encryption-provider-config={keys}"));
    let mut sample = sample.env("ETCD_TRUSTED_CA_FILE", &config).spawn().unwrap();

    let mut host = Host::named("here");
    let run = |script: String| {
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = run(evidence::programs(&["hactl-sample"], &[]));
    drop(sample.stdin.take());
    sample.wait().unwrap();
    assert!(!shown.contains("c2VjcmV0"), "{shown}");
    host.read(&shown);
    assert_eq!(host.programs.len(), 1, "{shown}");
    assert_eq!(host.value("hactl-sample", "config"), Some(config.as_str()));
    assert_eq!(host.value("hactl-sample", "trusted-ca-file"), Some(config.as_str()));
    assert_eq!(host.value("hactl-sample", "profiling"), None);
    for text in ["config", "trusted-ca-file"] {
        assert_eq!(host.text("hactl-sample", text), "mode: nftables\n");
    }
    assert_eq!(host.text("hactl-sample", "providers"), "resources\nsecretbox\nname\nidentity\n");

    let below = folder.path().display().to_string();
    host.read(&run(evidence::modes(std::slice::from_ref(&config), std::slice::from_ref(&below))));
    let found = |path: &str| (host.files[path].is_file, host.files[path].mode);
    assert_eq!((found(&config), found(&below).0), ((true, 0o640), false));
    assert!(host.files.contains_key(&keys) && host.files.values().all(|found| found.owner.contains(':')));
}
