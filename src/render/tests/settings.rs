//! Settings of the inventory in files and objects: registries, mounts, proxy, MTU, and the ownership of flags.

use super::*;
use crate::inventory::owned::{Owner, fields, flags};
use crate::model::bucket::{Storage, StorageSettings};
use crate::model::desired::Extra;
use crate::model::drill::{IDENTITY, Period, RECORD};
use crate::model::healing::{self, Healing, Mode, Policy};
use crate::model::renewal::{SETTINGS, Settings};
use crate::model::target::{CertId, SetTarget};
use std::collections::BTreeSet;

fn content(desired: &Desired, name: &str, path: &str) -> String {
    all(desired, name)[path].content.clone()
}

fn full() -> Desired {
    shapes().remove(1).1
}

#[test]
fn a_registry_has_its_mirrors_ca_and_login_in_one_file_that_only_root_reads() {
    let files = all(&full(), "w1");
    let hosts = |registry: &str| &files[&format!("/etc/containerd/certs.d/{registry}/hosts.toml")];
    let parsed = |registry: &str| -> Value { toml::from_str(&hosts(registry).content).unwrap() };
    let hub = parsed("docker.io");
    let mirror = &hub["host"]["https://mirror.example/v2/hub"];
    assert_eq!(mirror["capabilities"], json!(["pull", "resolve"]));
    assert_eq!(mirror["override_path"], true, "the URL names the API's root itself");
    assert_eq!(mirror["ca"], "/etc/containerd/certs.d/mirror.example/ca.pem");
    assert_eq!(mirror["header"]["Authorization"], "Basic bWU6UEFTU1dPUkQ=");
    assert_eq!(hub.get("ca"), None, "the registry itself has another CA than its mirror");
    let own = parsed("private.example:5000");
    assert_eq!(own["header"]["Authorization"], "Basic bWU6UEFTU1dPUkQ=", "a registry that has no mirror");
    assert_eq!(parsed("mirror.example")["ca"], "/etc/containerd/certs.d/mirror.example/ca.pem");
    for registry in ["docker.io", "private.example:5000", "mirror.example", "registry.k8s.io"] {
        assert_eq!(hosts(registry).mode, 0o600, "{registry}");
    }
    let authority = &files["/etc/containerd/certs.d/mirror.example/ca.pem"];
    assert!(authority.content.starts_with("# Written by hactl") && authority.content.contains("\nAUTHORITY\n"));
}

#[test]
fn a_changed_mirror_changes_no_file_that_a_unit_reads() {
    let mut other = full();
    other.mirrors.clear();
    let sets = |desired: &Desired| {
        let host = &desired.hosts[3];
        rendered(desired, host, &facts(host)).unwrap()
    };
    for (one, two) in sets(&full()).iter().zip(&sets(&other)) {
        let same = one.target() == two.target();
        assert_eq!(same, one.set != FileSet::Registries, "{}", one.set);
    }
    assert_eq!(sets(&other).iter().find(|s| s.set == FileSet::Registries).unwrap().unit, None);
}

#[test]
fn a_host_without_registries_still_has_the_set_so_that_old_files_are_found() {
    let desired = desired();
    let sets = rendered(&desired, &desired.hosts[3], &facts(&desired.hosts[3])).unwrap();
    let set = sets.iter().find(|s| s.set == FileSet::Registries).unwrap().target();
    assert_eq!((set.files.len(), set.folders), (0, vec!["/etc/containerd/certs.d".to_owned()]));
    assert_eq!(folders()[..1], ["/etc/containerd/certs.d"]);
}

#[test]
fn the_key_of_object_storage_is_a_file_of_roots_on_etcd_hosts_alone_and_goes_with_it() {
    let mut stored = desired();
    stored.proxy.https = "http://proxy.example:3128".to_owned();
    stored.snapshots.to = vec!["s3://backup/dr".to_owned().try_into().unwrap()];
    stored.snapshots.storage = Some(StorageSettings {
        endpoint: Some("https://minio.example".to_owned()),
        region: "eu-central-1".to_owned(),
        credentials: "/k".into(),
        ca: None,
    });
    let at = "/etc/hactl/object-storage/access.toml";
    let file = &all(&stored, "cp1")[at];
    assert_eq!((file.mode, file.owner.as_str()), (0o600, "root"));
    assert!(file.content.starts_with("# Written by hactl"), "so that it is found when it is no longer wanted");
    let read = Storage::from_file(&file.content).expect("what the host reads");
    assert_eq!((read.key_id.as_str(), read.key.reveal().as_str()), ("AKIA", "S3CR3T"));
    assert_eq!(read.proxy.as_deref(), Some("http://proxy.example:3128"));
    assert!(read.no_proxy.contains(".svc"), "{}", read.no_proxy);
    assert!(all(&stored, "cp1")["/etc/hactl/snapshots.json"].content.contains("s3://backup/dr"));
    let elsewhere = stored.hosts.iter().filter(|h| !h.is(Role::Etcd)).map(|h| h.name.to_string());
    for host in elsewhere {
        assert!(!all(&stored, &host).contains_key(at), "{host}");
    }
    assert!(!all(&desired(), "cp1").contains_key(at));
    assert!(folders().contains(&"/etc/hactl/object-storage".to_owned()));
}

#[test]
fn where_hosts_renew_their_own_each_has_a_timer_and_where_they_do_no_more_all_of_it_is_to_go() {
    let mut unattended = desired();
    unattended.unattended_days = Some(1095);
    let (timer, settings) = ("/etc/systemd/system/hactl-renew.timer", "/etc/hactl/renewal.json");
    let files = all(&unattended, "cp1");
    assert!(files.contains_key(timer));
    let read: Settings = serde_json::from_str(&files[settings].content).unwrap();
    let balancer = read.readers.iter().find(|reader| reader.unit.as_str() == "hactl-etcd-balancer.service").unwrap();
    assert_eq!(balancer.reads, [CertId::ApiserverEtcdClient, CertId::Observer, CertId::Apiserver]);
    assert!(!all(&unattended, "w1").contains_key(timer), "a worker has nothing but its kubelet's own");
    let of = |desired: &Desired, set: FileSet| {
        let host = &desired.hosts[0];
        let sets = rendered(desired, host, &facts(host)).unwrap();
        sets.into_iter().find(|s| s.set == set).map(|s| s.target()).unwrap()
    };
    let (wanted, unwanted) = (of(&unattended, FileSet::Renewal), of(&desired(), FileSet::Renewal));
    assert!(wanted.own.is_empty() && wanted.unit.is_some());
    assert!(unwanted.files.is_empty() && unwanted.unit.is_none());
    for id in CertId::ISSUERS {
        assert!(unwanted.own.contains(&format!("/etc/hactl/issuers/{id}.key")), "{:?}", unwanted.own);
    }
    let looked_for = former(&desired(), &desired().hosts[0]);
    assert!(unwanted.own.iter().all(|own| looked_for.contains(own)), "what is not asked about is not found");
    let kept = former(&unattended, &unattended.hosts[0]);
    assert!(!unwanted.own.iter().any(|own| kept.contains(own)));
    assert!(wipe(&unattended, &unattended.hosts[0], false).units.iter().any(|u| u.as_str() == "hactl-renew.service"));
}

#[test]
fn where_hosts_hold_drills_each_etcd_host_has_a_turn_of_its_own_and_where_they_do_no_more_all_of_it_is_to_go() {
    let mut drilled = desired();
    drilled.snapshots.drill = Some(Period::Weekly);
    let (timer, service) = ("/etc/systemd/system/hactl-drill.timer", "/etc/systemd/system/hactl-drill.service");
    let turn = |desired: &Desired, host: &str| {
        let content = all(desired, host)[timer].content.clone();
        assert!(content.contains("Persistent=true"), "{content}");
        content.lines().find_map(|line| line.strip_prefix("OnCalendar=").map(str::to_owned)).unwrap()
    };
    let under_way = ["cp1", "cp2", "cp3"].map(|host| turn(&drilled, host));
    assert_eq!(under_way, ["Mon *-*-* 0:0:00", "Wed *-*-* 8:0:00", "Fri *-*-* 16:0:00"]);
    let mut daily = drilled.clone();
    daily.snapshots.drill = Some(Period::Daily);
    assert_eq!(turn(&daily, "cp2"), "Mon..Sun *-*-* 8:0:00");
    let files = all(&drilled, "cp1");
    let settings = |files: &BTreeMap<String, FilePut>| files["/etc/hactl/snapshots.json"].content.clone();
    assert!(
        settings(&files).contains("\"drill\": true") && settings(&all(&desired(), "cp1")).contains("\"drill\": false")
    );
    let gentle = |unit: &str| {
        let of = |key: &str| unit.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        ["CPUQuota=", "CPUWeight=", "IOWeight=", "Nice="].map(of)
    };
    let snapshot = &files["/etc/systemd/system/hactl-snapshot.service"].content;
    assert_eq!(gentle(&files[service].content), gentle(snapshot), "it is as gentle as the service of snapshots");
    assert!(!all(&drilled, "w1").contains_key(timer));

    let of = |desired: &Desired| {
        let host = &desired.hosts[0];
        let sets = rendered(desired, host, &facts(host)).unwrap();
        sets.into_iter().find(|s| s.set == FileSet::Drills).map(|s| s.target()).unwrap()
    };
    let (wanted, unwanted) = (of(&drilled), of(&desired()));
    assert!(wanted.own.is_empty() && wanted.unit.is_some());
    assert!(unwanted.files.is_empty() && unwanted.unit.is_none());
    for path in [timer, service, IDENTITY, RECORD] {
        assert!(unwanted.own.iter().any(|own| own == path), "{path}");
        assert!(former(&desired(), &desired().hosts[0]).iter().any(|own| own == path), "{path} is looked for");
    }
    let ask = wipe(&drilled, &drilled.hosts[0], false);
    assert!(ask.units.iter().any(|unit| unit.as_str() == "hactl-drill.service"));
    assert!(ask.remove.iter().any(|path| path == IDENTITY), "and `down` takes the key along");
}

#[test]
fn where_hosts_have_guards_each_has_its_unit_and_the_same_policy_and_where_they_do_no_more_all_of_it_is_to_go() {
    let mut guarded = desired();
    guarded.healing.mode = Mode::Watch;
    guarded.unattended_days = Some(1095);
    guarded.hosts[2].roles = vec![Role::LoadBalancer];
    let unit = "/etc/systemd/system/hactl-guard.service";
    let files = all(&guarded, "cp1");
    assert!(files[unit].content.contains(" host-guard --host cp1\n"), "{}", files[unit].content);
    assert_eq!((files[healing::POLICY].mode, files[healing::CA].mode), (0o600, 0o644));
    assert_eq!(files[healing::CA].content, files["/etc/kubernetes/pki/ca.crt"].content);
    assert_eq!(serde_json::from_str::<Policy>(&files[healing::POLICY].content).unwrap(), Policy::of(&guarded));
    assert_eq!(files[healing::POLICY].content, all(&guarded, "cp3")[healing::POLICY].content);
    assert!(!all(&guarded, "w1").contains_key(unit) && !all(&desired(), "cp1").contains_key(unit));
    let renewal = |host: &str| all(&guarded, host).get(SETTINGS).map(|file| file.content.clone()).unwrap_or_default();
    assert!(renewal("cp1").contains("hactl-guard.service"), "it reads its certificate only when it starts");
    let without = Desired { healing: Healing::default(), ..guarded.clone() };
    assert!(
        !all(&without, "cp1")[SETTINGS].content.contains("guard"),
        "nothing of what the inventory does not ask for"
    );

    let of = |desired: &Desired| {
        let host = &desired.hosts[0];
        let sets = rendered(desired, host, &facts(host)).unwrap();
        sets.into_iter().find(|s| s.set == FileSet::Guard).map(|s| s.target()).unwrap()
    };
    let (wanted, unwanted) = (of(&guarded), of(&desired()));
    assert!(wanted.unit.is_some() && wanted.reads == [CertId::Guard]);
    let repairs = |mode| of(&Desired { healing: Healing { mode, ..guarded.healing }, ..guarded.clone() });
    let paths =
        |target: &SetTarget| -> BTreeSet<String> { target.files.iter().map(|file| file.path.clone()).collect() };
    let (on, watch) = (repairs(Mode::On), repairs(Mode::Watch));
    let more: BTreeSet<String> = &paths(&on) - &paths(&watch);
    assert_eq!(more, watch.own.iter().cloned().collect(), "what only repairs need goes when guards only watch");
    assert!(more.contains(healing::SPEC) && more.len() == 6, "{more:?}");
    assert!(unwanted.files.is_empty() && unwanted.unit.is_none());
    let left = [unit, healing::POLICY, healing::CA, healing::CERT, healing::KEY, "/etc/hactl/guard/guard.key.new"];
    for path in left {
        assert!(unwanted.own.iter().any(|own| own == path), "{path}");
        assert!(former(&desired(), &desired().hosts[0]).iter().any(|own| own == path), "{path} is looked for");
        let worker = former_sets(&desired(), &desired().hosts[3]);
        for of in [FileSet::FormerBalancer, FileSet::FormerControlPlane, FileSet::FormerEtcd] {
            assert!(worker[&of].own.iter().any(|own| own == path), "{path}");
            assert!(!worker[&of].told_by.iter().any(|own| own == path), "{path} does not tell which role it was");
        }
    }
    let made = |desired: &Desired, host: usize| {
        let made = preparation(desired, &desired.hosts[host]).directories.into_iter();
        made.filter(|(path, ..)| path == healing::FOLDER).map(|(_, owner, mode)| (owner, mode)).collect::<Vec<_>>()
    };
    assert_eq!(made(&guarded, 2), [("root".to_owned(), 0o700)]);
    assert_eq!((made(&guarded, 3), made(&desired(), 0)), (vec![], vec![]));
    let taken =
        |desired: &Desired, host: usize| ports(desired, &desired.hosts[host]).contains(&healing::HEARTBEAT_PORT);
    assert!(taken(&guarded, 2) && !taken(&guarded, 3) && !taken(&desired(), 0));
    for inventory in [&guarded, &desired()] {
        let ask = wipe(inventory, &inventory.hosts[0], false);
        assert!(ask.units.iter().any(|unit| unit.as_str() == healing::UNIT));
        assert!(ask.remove.iter().any(|path| path == unit) && ask.remove.iter().any(|path| path == "/etc/hactl"));
    }
}

#[test]
fn settings_that_a_kubelet_of_another_minor_version_refuses_are_left_out() {
    let config = |version: &str| {
        let mut desired = desired();
        version.clone_into(&mut desired.versions.kubernetes);
        content(&desired, "cp1", "/var/lib/kubelet/config.yaml")
    };
    for key in ["crashLoopBackOff:", "imagePullCredentialsVerificationPolicy:"] {
        assert!(!config("1.34.4").contains(key), "{key} is behind a gate there");
        assert!(config("1.35.4").contains(key) && config("1.36.3").contains(key), "{key}");
    }
}

#[test]
fn a_static_pod_has_its_own_uid_that_changes_with_its_manifest() {
    let uid = |desired: &Desired, name: &str| {
        let manifest = content(desired, "cp1", &format!("/etc/kubernetes/manifests/{name}.yaml"));
        let line = manifest.lines().find_map(|line| line.trim().strip_prefix("uid: ").map(str::to_owned));
        line.expect("no kubelet makes one")
    };
    let (plain, mut other) = (desired(), desired());
    let flag = [("event-ttl".to_owned(), "2h".to_owned())];
    other.extra.args.insert("kube-apiserver".to_owned(), flag.into());
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        assert_eq!(uid(&plain, name), uid(&plain, name));
        assert_eq!(uid(&plain, name) == uid(&other, name), name != "kube-apiserver", "{name}");
    }
    assert_ne!(uid(&plain, "kube-apiserver"), uid(&plain, "kube-scheduler"));
}

#[test]
fn a_changed_label_or_taint_restarts_no_kubelet() {
    let mut other = desired();
    other.hosts[3].labels.insert("disk".to_owned(), "nvme".to_owned());
    other.hosts[3].taints.push("gpu:NoSchedule".to_owned());
    let unit = "/etc/systemd/system/kubelet.service";
    assert_eq!(content(&desired(), "w1", unit), content(&other, "w1", unit));
    let flags = content(&other, "w1", "/etc/hactl/kubelet-registration.env");
    assert!(
        flags.ends_with("KUBELET_REGISTRATION=--node-labels=disk=nvme --register-with-taints=gpu:NoSchedule\n"),
        "{flags}"
    );
}

#[test]
fn a_node_remembers_which_labels_and_taints_are_the_inventorys() {
    let mut desired = desired();
    desired.hosts[3].labels.insert("disk".to_owned(), "nvme".to_owned());
    desired.hosts[3].taints.push("gpu=yes:NoSchedule".to_owned());
    let addons = addons(&desired, &parts()).unwrap();
    let node = &addons.last().unwrap().objects[3];
    assert_eq!(node.pointer("/spec/taints"), Some(&json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])));
    let owns = node.pointer("/metadata/annotations/hactl.dev~1owns").and_then(Value::as_str).unwrap();
    let owns: Value = serde_json::from_str(owns).unwrap();
    assert_eq!(owns, json!({"labels": ["disk", "node-role.kubernetes.io/worker"], "taints": ["gpu:NoSchedule"]}));
}

#[test]
fn the_mtu_of_the_inventory_is_that_of_the_pods() {
    let mut desired = desired();
    desired.network.mtu = Some(1400);
    let addons = addons(&desired, &parts()).unwrap();
    let flannel = addons.iter().find(|a| a.name == "flannel").unwrap();
    let config = flannel.objects.iter().find(|o| o["kind"] == "ConfigMap").unwrap();
    let net: Value = serde_json::from_str(config["data"]["net-conf.json"].as_str().unwrap()).unwrap();
    assert_eq!(net["Backend"]["MTU"], 1450, "flannel takes 50 bytes for its tunnel");
    let text = serde_json::to_string(flannel.objects.last().unwrap()).unwrap();
    assert!(text.contains("echo 1400 > /host/net/$d/mtu"), "{text}");
}

#[test]
fn mounts_are_read_only_at_their_own_path_and_in_their_pod_alone() {
    let desired = full();
    let pod = |name: &str| -> Value {
        serde_saphyr::from_str(&content(&desired, "cp1", &format!("/etc/kubernetes/manifests/{name}.yaml"))).unwrap()
    };
    let server = pod("kube-apiserver");
    let mounts = server.pointer("/spec/containers/0/volumeMounts").and_then(Value::as_array).unwrap();
    let mount = mounts.iter().find(|m| m["mountPath"] == "/etc/kubernetes/extra").unwrap();
    assert_eq!(mount["readOnly"], true);
    let volumes = server.pointer("/spec/volumes").and_then(Value::as_array).unwrap();
    let volume = volumes.iter().find(|v| v["name"] == mount["name"]).unwrap();
    assert_eq!(volume["hostPath"]["path"], "/etc/kubernetes/extra");
    assert!(!pod("kube-scheduler").to_string().contains("/etc/kubernetes/extra"));
}

#[test]
fn containerd_settings_of_the_inventory_are_merged_into_valid_toml() {
    let text = content(&full(), "w1", "/etc/containerd/config.toml");
    let config: Value = toml::from_str(&text).unwrap();
    assert_eq!(config["debug"]["level"], "warn");
    assert_eq!(config["plugins"]["io.containerd.cri.v1.images"]["registry"]["config_path"], "/etc/containerd/certs.d");
    assert!(text.starts_with("# Written by hactl"));
}

#[test]
fn the_flags_of_kube_proxy_reach_it() {
    let addons = addons(&full(), &parts()).unwrap();
    let proxy = addons.iter().find(|a| a.name == "kube-proxy").unwrap();
    let set = proxy.objects.iter().find(|o| o["kind"] == "DaemonSet").unwrap();
    let args = set.pointer("/spec/template/spec/containers/0/args").unwrap();
    assert_eq!(args, &json!(["--config=/var/lib/kube-proxy/config.yaml", "--hostname-override=$(NODE_NAME)", "--v=4"]));
}

#[test]
fn the_proxy_is_set_for_downloads_and_exempts_internal_addresses() {
    let desired = full();
    let unit = content(&desired, "w1", "/etc/systemd/system/containerd.service");
    let line = unit.lines().find(|l| l.starts_with("Environment=NO_PROXY=")).unwrap();
    for inside in ["10.88.0.11", "10.88.0.21", "10.88.0.100", "10.244.0.0/16", "10.96.0.0/12", ".svc"] {
        assert!(line.contains(inside), "{inside} is not exempt: {line}");
    }
    let pod = content(&desired, "cp1", "/etc/kubernetes/manifests/kube-apiserver.yaml");
    assert!(pod.contains("HTTPS_PROXY") && pod.contains("http://proxy.example:3128"));
    let variables = proxy_variables(&desired);
    for name in ["https_proxy", "HTTPS_PROXY", "no_proxy"] {
        assert!(variables.iter().any(|(n, _)| n == name), "{name}");
    }
    assert!(proxy_variables(&super::desired()).is_empty());
}

#[test]
fn etcd_waits_for_the_volume_of_its_data() {
    let mut desired = desired();
    desired.etcd.data_dir = "/srv/etcd".into();
    let unit = content(&desired, "cp1", "/etc/systemd/system/etcd.service");
    assert!(unit.contains("\nRequiresMountsFor=/srv/etcd\n"), "{unit}");
    assert!(unit.contains("AssertPathExists=|/srv/etcd/member"), "{unit}");
    assert!(content(&desired, "cp1", "/etc/etcd/etcd.env").contains("ETCD_DATA_DIR=/srv/etcd\n"));
}

#[test]
fn only_one_exit_code_of_the_fence_keeps_etcd_from_starting_and_no_shell_reads_its_arguments() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut desired = desired();
    desired.etcd.data_dir = "/srv/etcd".into();
    let text = content(&desired, "cp1", "/etc/systemd/system/etcd.service.d/10-fence.conf");
    let command = text.replace(" \\\n   ", "");
    let command = command.lines().find_map(|l| l.strip_prefix("ExecCondition=+/bin/sh -c '")).expect("a condition");
    // systemd makes one dollar sign of two.
    let (script, arguments) = command.split_once("' ").expect("a script and its arguments");
    let (script, arguments) = (script.replace("$$", "$"), arguments.replace('"', ""));
    assert!(arguments.starts_with("/var/lib/hactl/bin/abc/hactl host-fence --data-dir /srv/etcd --ca "), "{arguments}");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hactl");
    let starts = |body: &str| {
        std::fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &script]).arg(&program).args(["host-fence", "--data-dir", "$(exit 86) `exit 86`"]);
        shell.stderr(std::process::Stdio::null()).status().unwrap().success()
    };
    assert!(!starts("exit 86"));
    for body in ["exit 0", "exit 1", "exit 2", "exit 85", "exit 101", "exit 255", "kill -SEGV $$", "kill -KILL $$"] {
        assert!(starts(body), "{body}");
    }
    assert!(starts("[ \"$3\" = '$(exit 86) `exit 86`' ] || exit 86"), "its arguments come as they are");
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", &script, "/nowhere/hactl", "host-fence"]).stderr(std::process::Stdio::null());
    assert!(shell.status().unwrap().success(), "a program that is not there");
}

// Ownership: everything that a template or a manifest sets must be named in `inventory::owned`: refused, or a default.

/// `--name=value` among the words of a command.
fn names(words: &Value) -> BTreeSet<String> {
    let words = words.as_array().into_iter().flatten().filter_map(Value::as_str);
    words.filter_map(|w| Some(w.strip_prefix("--")?.split('=').next()?.to_owned())).collect()
}

/// The flags that hactl sets, by component, in every shape of inventory, found in what is rendered.
fn set_flags() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (_, mut desired) in shapes() {
        desired.extra = Extra::default();
        for host in desired.hosts.clone() {
            let files = all(&desired, host.name.as_str());
            for pod in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
                let Some(file) = files.get(&format!("/etc/kubernetes/manifests/{pod}.yaml")) else { continue };
                let pod_spec: Value = serde_saphyr::from_str(&file.content).unwrap();
                let words = pod_spec.pointer("/spec/containers/0/command").unwrap();
                found.entry(pod).or_default().extend(names(words));
            }
            if let Some(env) = files.get("/etc/etcd/etcd.env") {
                let lines = env.content.lines().filter_map(|l| l.strip_prefix("ETCD_")?.split('=').next());
                found.entry("etcd").or_default().extend(lines.map(|n| n.to_lowercase().replace('_', "-")));
            }
            let kubelet = ["/etc/systemd/system/kubelet.service", "/etc/hactl/kubelet-registration.env"];
            for file in kubelet.iter().filter_map(|path| files.get(*path)) {
                let words = file.content.split([' ', '"', '=', '\n']).filter_map(|w| w.strip_prefix("--"));
                found.entry("kubelet").or_default().extend(words.map(str::to_owned));
            }
        }
        let addons = addons(&desired, &parts()).unwrap();
        for set in addons.iter().filter(|a| a.name == "kube-proxy").flat_map(|a| &a.objects) {
            if let Some(args) = set.pointer("/spec/template/spec/containers/0/args") {
                found.entry("kube-proxy").or_default().extend(names(args));
            }
        }
    }
    found
}

fn fits(pattern: &str, flag: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == flag, |start| flag.starts_with(start))
}

#[test]
fn every_flag_that_a_template_sets_is_refused_or_a_default_that_may_be_replaced() {
    let found = set_flags();
    assert_eq!(found.len(), 6, "{:?}", found.keys());
    for (component, set) in &found {
        assert!(set.len() >= 2, "{component}: {set:?}");
        for flag in set {
            let owners: Vec<Owner> =
                flags(component).filter(|(pattern, _)| fits(pattern, flag)).map(|(_, owner)| owner).collect();
            assert_eq!(owners.len(), 1, "{component} --{flag} is in neither list of inventory/owned.rs, or in both");
        }
        let stale = flags(component).filter(|(_, owner)| *owner == Owner::Default);
        for (pattern, _) in stale {
            assert!(set.iter().any(|flag| fits(pattern, flag)), "{component} --{pattern} is no default of hactl's");
        }
    }
}

#[test]
fn every_default_can_be_replaced_and_then_stands_once() {
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let defaults = flags(component).filter(|(_, owner)| *owner == Owner::Default);
        for (flag, _) in defaults {
            let mut desired = desired();
            let own = BTreeMap::from([(flag.to_owned(), "mine".to_owned())]);
            desired.extra.args.insert(component.to_owned(), own);
            let text = content(&desired, "cp1", &format!("/etc/kubernetes/manifests/{component}.yaml"));
            let pod: Value = serde_saphyr::from_str(&text).unwrap();
            let command = pod.pointer("/spec/containers/0/command").and_then(Value::as_array).unwrap();
            let set: Vec<&str> = command
                .iter()
                .filter_map(Value::as_str)
                .filter(|w| w.strip_prefix("--").and_then(|w| w.split('=').next()) == Some(flag))
                .collect();
            assert_eq!(set, [format!("--{flag}=mine")], "{component}");
        }
    }
}

#[test]
fn a_host_shutdown_stops_workloads_first_and_the_api_server_last_unless_the_inventory_sets_other_times() {
    let config = |desired: &Desired| -> Value {
        serde_saphyr::from_str(&content(desired, "cp1", "/var/lib/kubelet/config.yaml")).unwrap()
    };
    let mut desired = desired();
    let groups = config(&desired)["shutdownGracePeriodByPodPriority"].clone();
    let from: Vec<i64> = groups.as_array().unwrap().iter().filter_map(|group| group["priority"].as_i64()).collect();
    let priority = |component: &str| {
        let text = content(&desired, "cp1", &format!("/etc/kubernetes/manifests/{component}.yaml"));
        let pod: Value = serde_saphyr::from_str(&text).unwrap();
        let class = pod["spec"]["priorityClassName"].as_str().unwrap().to_owned();
        let number = pod["spec"]["priority"].as_i64().unwrap();
        // The API server refuses the mirror of a pod whose number is not the one of its class.
        assert_eq!(number, if class == "system-node-critical" { 2_000_001_000 } else { 2_000_000_000 }, "{class}");
        number
    };
    let at = |component: &str| from.iter().position(|from| *from == priority(component)).unwrap();
    assert_eq!(at("kube-apiserver"), from.len() - 1);
    assert!(at("kube-controller-manager") < from.len() - 1 && at("kube-scheduler") < from.len() - 1);
    assert_eq!(from[0], 0, "an ordinary pod has a group of its own");

    desired.extra.kubelet_config.insert("shutdownGracePeriod".to_owned(), json!("60s"));
    let own = config(&desired);
    assert_eq!(own["shutdownGracePeriod"], "60s");
    assert_eq!(own.get("shutdownGracePeriodByPodPriority"), None, "the kubelet refuses both");
}

/// Paths of all values in a configuration, lists as one.
fn leaves(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                path.push(key.clone());
                leaves(value, path, found);
                path.pop();
            }
        }
        _ => found.push(path.clone()),
    }
}

#[test]
fn every_field_of_a_configuration_that_a_template_sets_is_refused_or_a_default() {
    for (_, mut desired) in shapes() {
        desired.extra = Extra::default();
        let host = desired.hosts.iter().find(|h| h.is_node()).unwrap().name.to_string();
        let files = all(&desired, &host);
        let yaml = |path: &str| -> Value { serde_saphyr::from_str(&files[path].content).unwrap() };
        let mut configs = vec![
            ("kubelet", yaml("/var/lib/kubelet/config.yaml")),
            ("containerd", toml::from_str(&files["/etc/containerd/config.toml"].content).unwrap()),
        ];
        for addon in addons(&desired, &parts()).unwrap().iter().filter(|a| a.name == "kube-proxy") {
            let config = addon.objects.iter().find(|o| o["kind"] == "ConfigMap").unwrap();
            configs
                .push(("kube-proxy", serde_saphyr::from_str(config["data"]["config.yaml"].as_str().unwrap()).unwrap()));
        }
        for (component, config) in configs {
            let mut found = Vec::new();
            leaves(&config, &mut Vec::new(), &mut found);
            for path in found {
                let known = fields(component).any(|(owned, _)| {
                    owned.len() <= path.len() && owned.iter().zip(&path).all(|(one, other)| one == other)
                });
                assert!(known, "{component}: {} is in neither list of inventory/owned.rs", path.join("."));
            }
        }
    }
}
