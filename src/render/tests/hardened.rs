//! What keeps pods and other hosts from what is not theirs, as files.

use super::super::views::runtime::PROXY_VARIABLES;
use super::*;

/// The rules of a host's packet filter, without comments.
fn filter(desired: &Desired, name: &str) -> String {
    let text = all(desired, name)["/etc/hactl/vrrp.nft"].content.clone();
    let rules = text.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.is_empty());
    rules.collect::<Vec<_>>().join("\n")
}

#[test]
fn vrrp_comes_in_from_the_other_balancers_of_the_segment_alone_and_keepalived_checks_them_again() {
    let rules = filter(&desired(), "cp2");
    let accepts: Vec<&str> = rules.lines().filter(|line| line.ends_with("accept")).collect();
    assert_eq!(
        accepts,
        ["meta l4proto != 112 accept", r#"iifname { "eth0", } ip saddr { 10.88.0.11, 10.88.0.13, } ip ttl 255 accept"#]
    );
    assert!(rules.contains("\ncounter drop\n}\nchain forward"), "{rules}");
    let peers = "{ 10.88.0.11, 10.88.0.13, }";
    // Else a pod's packet to a balancer has its adverts taken for answers to that pod.
    for (chain, rule) in [
        ("forward", format!("meta l4proto 112 ip daddr {peers} counter drop")),
        ("prerouting", format!(r#"meta l4proto 112 iifname {{ "eth0", }} ip saddr {peers} notrack"#)),
        ("output", format!("meta l4proto 112 ip daddr {peers} notrack")),
    ] {
        let text = format!("chain {chain} {{\ntype filter hook {chain} priority -300; policy accept;\n{rule}\n}}");
        assert!(rules.contains(&text), "{chain}: {rules}");
    }
    assert!(rules.starts_with("table inet hactl_vrrp\ndelete table inet hactl_vrrp\n"), "it replaces what is there");
    let files = all(&desired(), "cp2");
    assert!(files["/etc/keepalived/keepalived.conf"].content.contains("\n    check_unicast_src\n"));
    let starts = &files["/etc/systemd/system/keepalived.service.d/50-hactl.conf"].content;
    assert!(starts.contains("\nExecStartPre=/usr/sbin/nft -f /etc/hactl/vrrp.nft\n"), "never without it");
}

#[test]
fn a_lone_balancer_blocks_vrrp_and_hosts_without_the_address_have_no_filter() {
    let mut lone = desired();
    for host in &mut lone.hosts[1..] {
        host.roles.retain(|role| *role != Role::LoadBalancer);
    }
    assert!(
        !filter(&lone, "cp1").contains("saddr"),
        "it sends to a host that is no load balancer, and accepts no source"
    );
    for host in ["cp2", "w1"] {
        assert!(!all(&lone, host).contains_key("/etc/hactl/vrrp.nft"), "{host}");
    }
    let before = |units: Vec<UnitName>, one: &str, other: &str| {
        let at = |name: &str| units.iter().position(|unit| unit.as_str() == name).unwrap();
        at(one) < at(other)
    };
    assert!(before(units(&lone, &lone.hosts[0]), "hactl-vrrp-filter.service", "keepalived.service"));
    assert!(before(wipe(&lone, &lone.hosts[0], false).units, "keepalived.service", "hactl-vrrp-filter.service"));
}

#[test]
fn every_service_account_that_may_write_nodes_is_bound_by_a_policy_that_is_there_before_its_pods() {
    const WRITES: [&str; 6] = ["create", "update", "patch", "delete", "deletecollection", "*"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut bound = 0;
    for addon in addons(&desired(), &parts()).unwrap() {
        let of = |kind: &str| addon.objects.iter().enumerate().filter(|(_, o)| o["kind"] == kind).collect::<Vec<_>>();
        let writers = of("ClusterRole").into_iter().filter(|(_, role)| {
            list(&role["rules"]).iter().any(|rule| {
                let nodes = |r: &Value| r.as_str().is_some_and(|r| r == "*" || r.split('/').next() == Some("nodes"));
                let writes = |v: &Value| v.as_str().is_some_and(|v| WRITES.contains(&v));
                list(&rule["resources"]).iter().any(nodes) && list(&rule["verbs"]).iter().any(writes)
            })
        });
        for (_, role) in writers {
            let bindings = of("ClusterRoleBinding").into_iter();
            let bindings = bindings.filter(|(_, b)| b["roleRef"]["name"] == role["metadata"]["name"]);
            for subject in bindings.flat_map(|(_, binding)| list(&binding["subjects"])) {
                assert_eq!(subject["kind"], "ServiceAccount", "others are people and hosts");
                let word = |at: &str| subject[at].as_str().unwrap_or_default().to_owned();
                let user = format!("\"system:serviceaccount:{}:{}\"", word("namespace"), word("name"));
                let (at, policy) = of("ValidatingAdmissionPolicy")
                    .into_iter()
                    .find(|(_, p)| p["spec"]["matchConditions"].to_string().replace("\\\"", "\"").contains(&user))
                    .unwrap_or_else(|| panic!("{user} may write any Node"));
                let by = |b: &Value| b["spec"]["policyName"] == policy["metadata"]["name"];
                let denies = of("ValidatingAdmissionPolicyBinding").into_iter().find(|(_, b)| by(b)).unwrap();
                assert!(list(&denies.1["spec"]["validationActions"]).contains(&json!("Deny")));
                assert_eq!(policy["spec"]["failurePolicy"], "Fail");
                let pods = of("DaemonSet").into_iter().chain(of("Deployment")).map(|(at, _)| at).min().unwrap();
                assert!(at < pods && denies.0 < pods, "before its first pod");
                bound += 1;
            }
        }
    }
    assert_eq!(bound, 1, "flannel's");
}

#[test]
fn the_policy_and_each_node_name_the_hosts_own_address_for_its_pods() {
    let objects: Vec<Value> = addons(&desired(), &parts()).unwrap().into_iter().flat_map(|a| a.objects).collect();
    let policy = objects.iter().find(|o| o["kind"] == "ValidatingAdmissionPolicy").unwrap();
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let addresses = variables.iter().find(|v| v["name"] == "addresses").unwrap()["expression"].as_str().unwrap();
    let addresses: Value = serde_json::from_str(addresses).unwrap();
    assert_eq!(addresses, json!({"cp1": "10.88.0.11", "cp2": "10.88.0.12", "cp3": "10.88.0.13", "w1": "10.88.0.21"}));
    for node in objects.iter().filter(|o| o["kind"] == "Node") {
        let name = node["metadata"]["name"].as_str().unwrap();
        assert_eq!(node["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"], addresses[name]);
    }
    let mut other = desired();
    other.network.cni = Cni::None;
    assert!(!addons(&other, &parts()).unwrap().iter().any(|a| json!(a.objects).to_string().contains("flannel")));
}

/// What a unit of hactl's need not have, and why it cannot.
const WITHOUT: [(&str, &[&str]); 4] = [
    ("containerd.service", &["NoNewPrivileges", "ProtectSystem", "LimitCORE", "RestrictSUIDSGID"]),
    // It mounts volumes for pods, and runs what mounts them.
    ("kubelet.service", &["NoNewPrivileges", "ProtectSystem", "RestrictSUIDSGID"]),
    // It changes addresses, and packages bring its unit.
    ("keepalived.service.d/50-hactl.conf", &["NoNewPrivileges", "ProtectSystem", "RestrictSUIDSGID"]),
    // It adds one condition to a unit of hactl's.
    ("etcd.service.d/10-fence.conf", &["NoNewPrivileges", "ProtectSystem", "LimitCORE", "RestrictSUIDSGID"]),
];

#[test]
fn every_unit_may_do_no_more_than_it_needs_and_leaves_no_core() {
    let mut full = desired();
    full.unattended_days = Some(90);
    full.snapshots.drill = Some(crate::model::drill::Period::Daily);
    full.healing.mode = Mode::On;
    full.metrics = true;
    let mut seen = 0;
    for (path, file) in all(&full, "cp1") {
        let Some(unit) = path
            .strip_prefix("/etc/systemd/system/")
            .filter(|unit| !unit.ends_with(".timer") && !unit.ends_with(".socket"))
        else {
            continue;
        };
        let without = WITHOUT.iter().find(|(name, _)| *name == unit).map_or(&[][..], |(_, without)| without);
        for setting in ["NoNewPrivileges=yes", "ProtectSystem=", "LimitCORE=0", "RestrictSUIDSGID=yes"] {
            let name = setting.split('=').next().unwrap();
            let has = file.content.lines().any(|line| line.starts_with(setting));
            assert!(has != without.contains(&name), "{unit}: {setting}");
        }
        seen += 1;
    }
    assert_eq!(seen, 19);
}

/// Units whose programs read no proxy variables.
const READ_NONE: [&str; 5] = [
    "haproxy.service.d/50-hactl.conf",
    "keepalived.service.d/50-hactl.conf",
    "hactl-etcd-balancer.service",
    "hactl-vrrp-filter.service",
    // It adds one condition to a unit of hactl's.
    "etcd.service.d/10-fence.conf",
];

#[test]
fn every_unit_unsets_the_proxy_variables_of_systemds_manager_but_those_that_the_inventory_sets_for_containerd() {
    let mut seen = BTreeSet::new();
    for (shape, desired) in shapes() {
        let proxied = !desired.proxy.http.is_empty() || !desired.proxy.https.is_empty();
        for host in &desired.hosts {
            for (path, file) in all(&desired, host.name.as_str()) {
                let unit = path.strip_prefix("/etc/systemd/system/").filter(|_| file.content.contains("\n[Service]\n"));
                let Some(unit) = unit.filter(|unit| !READ_NONE.contains(unit)) else { continue };
                let values = |setting: &str| -> Vec<String> {
                    let lines = file.content.lines().filter_map(|line| line.strip_prefix(setting));
                    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
                };
                let (unset, set) = (values("UnsetEnvironment="), values("Environment="));
                for name in PROXY_VARIABLES {
                    let is_unset = unset.iter().any(|one| one == name);
                    // systemd removes what it is to unset even if the unit sets it.
                    let is_set = set.iter().any(|one| one.split('=').next() == Some(name));
                    assert!(is_unset != is_set, "{shape} {}: {unit}: {name}", host.name);
                }
                assert!(set.is_empty() != (proxied && unit == "containerd.service"), "{shape}: {unit}");
                seen.insert(unit.to_owned());
            }
        }
    }
    assert_eq!(seen.len(), 15, "{seen:?}");
}

#[test]
fn the_approver_has_its_own_user_and_gets_its_key_from_systemd() {
    let desired = desired();
    let host = &desired.hosts[0];
    let sets = rendered(&desired, host, &facts(host)).unwrap();
    let approver = sets.into_iter().find(|set| set.set == FileSet::Approver).unwrap();
    let reads = [crate::model::target::CertId::Approver];
    assert_eq!(approver.target().reads, reads, "a new key is handed over by a restart");
    let text = approver.files.into_iter().find(|file| file.path.ends_with(".service")).unwrap().content;
    assert!(text.contains("\nDynamicUser=yes\n") && text.contains("--key ${CREDENTIALS_DIRECTORY}/approver.key"));
    assert!(!text.contains("--key /"), "it reads no key of root's");
}

#[test]
fn etcds_data_directory_is_a_flag_and_the_only_place_that_it_may_write_to() {
    let mut elsewhere = desired();
    elsewhere.etcd.data_dir = "/home/etcd/data".into();
    let unit = all(&elsewhere, "cp1")["/etc/systemd/system/etcd.service"].content.clone();
    assert!(
        unit.contains(" --data-dir=/home/etcd/data\n") && unit.contains("\nReadWritePaths=/home/etcd/data\n"),
        "{unit}"
    );
    assert!(!unit.contains("ProtectHome"), "what it hides may hold the data");
    assert!(unit.contains("\nUnsetEnvironment=ETCD_DATA_DIR\n"), "etcd exits if the setting is given twice");
    assert!(all(&desired(), "cp1")["/etc/systemd/system/etcd.service"].content.contains("\nProtectHome=yes\n"));
}

#[test]
fn cis_restricts_pods_of_all_but_hactls_own_namespaces_and_closes_units_with_their_settings_and_certificates() {
    let mut cis = desired();
    cis.control_plane.security = Security::Cis;
    let pods = |desired: &Desired| -> Value {
        let text = &all(desired, "cp1")["/etc/kubernetes/config/pod-security.yaml"].content;
        serde_saphyr::from_str(text).unwrap()
    };
    assert_eq!(pods(&cis)["defaults"]["enforce"], "restricted");
    assert_eq!(pods(&cis)["exemptions"]["namespaces"], json!(["kube-system", "kube-flannel"]));
    assert_eq!(pods(&desired())["defaults"]["enforce"], "privileged");
    let files = all(&cis, "cp1");
    let mut settings = BTreeSet::new();
    for (path, file) in &files {
        let unit = path.starts_with("/etc/systemd/system/");
        let closed = unit || path.starts_with("/etc/kubernetes/");
        assert!(!closed || file.mode == 0o600, "{path} {:o}", file.mode);
        // A file with a hyphen need not exist: hactl writes it for the first start of a member.
        let reads = file.content.lines().filter_map(|line| line.strip_prefix("EnvironmentFile=/"));
        settings.extend(reads.filter(|_| unit).map(|path| format!("/{path}")));
    }
    assert_eq!(settings.len(), 2, "{settings:?}");
    for path in settings {
        assert_eq!(files[&path].mode, 0o600, "{path}");
    }
    assert_eq!(all(&desired(), "cp1")["/etc/systemd/system/kubelet.service"].mode, 0o644);
    let flannel = &addons(&desired(), &parts()).unwrap().into_iter().find(|addon| addon.name == "flannel").unwrap();
    assert!(json!(flannel.objects).to_string().contains("(umask 077; cp /etc/kube-flannel/cni-conf.json"));
}

#[test]
fn images_are_looked_for_at_mirrors_the_proxy_and_the_registry_itself() {
    let mut with = desired();
    with.mirrors.insert(
        "registry.k8s.io".to_owned(),
        vec!["http://mirror.example:5000/v2".to_owned(), "https://m.example".to_owned()],
    );
    with.proxy.https = "http://proxy.example:3128".to_owned();
    let references =
        ["registry.k8s.io/pause:3.10.1", "flannel/flannel:v1", "docker.io/x/y:1", "private.example:8443/z:2"];
    let found = registry_places(&with, &references.map(str::to_owned));
    assert_eq!(
        found,
        BTreeMap::from([
            (
                "registry.k8s.io".to_owned(),
                ["mirror.example:5000", "m.example:443", "proxy.example:3128", "registry.k8s.io:443"]
                    .map(str::to_owned)
                    .into()
            ),
            ("docker.io".to_owned(), ["proxy.example:3128", "registry-1.docker.io:443"].map(str::to_owned).into()),
            (
                "private.example:8443".to_owned(),
                ["proxy.example:3128", "private.example:8443"].map(str::to_owned).into()
            ),
        ])
    );
}
