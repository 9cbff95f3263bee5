//! Whole real-world inventories of other tools: the result of each, word for word and in its meaning.

use crate::{golden_in, root};
use hactl::inventory::import::{Input, Tool, Wishes, import};
use hactl::inventory::{Disk, Loaded, parse};
use hactl::model::desired::{Cni, EndpointKind, Host, KubeProxy, Role, SshTarget};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The place of the golden files.
pub const GOLDEN: &str = "tests/inventory/import/golden";

/// A sample of `tests/inventory/import/`, named as if that were the current directory.
pub fn sample(name: &str) -> Input {
    let path = root().join("tests/inventory/import").join(name);
    Input { name: name.to_owned(), text: fs::read_to_string(&path).unwrap(), folder: path.parent().map(Path::to_owned) }
}

pub fn vip(address: &str) -> Wishes {
    Wishes { vip: Some(address.to_owned()), ..Wishes::default() }
}

/// The import of a sample: compared with its golden file, free of every secret, and judged as an inventory of hactl's.
fn imported(tool: Tool, name: &str, wishes: &Wishes) -> (Loaded, String) {
    let done = import(tool, &sample(name), wishes, &Disk).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut shown = done.text.clone();
    shown.push_str("\n=== warnings ===\n");
    for warning in &done.warnings {
        let _ = writeln!(shown, "{warning}");
    }
    assert!(!shown.contains("hunter2") && !shown.contains("623133653963"), "{name} shows a secret:\n{shown}");
    golden_in(GOLDEN, name.split('/').next().unwrap(), &shown);
    let loaded = parse(&done.text, Path::new("/base")).unwrap_or_else(|error| panic!("{name}: {error}"));
    (loaded, shown)
}

fn host<'a>(loaded: &'a Loaded, name: &str) -> &'a Host {
    loaded.desired.hosts.iter().find(|host| host.name.as_str() == name).unwrap_or_else(|| panic!("there is no {name}"))
}

fn with(loaded: &Loaded, role: Role) -> Vec<&str> {
    loaded.desired.with(role).map(|host| host.name.as_str()).collect()
}

#[test]
fn an_ansible_inventory_keeps_its_hosts_connections_labels_and_taints() {
    let (loaded, shown) = imported(Tool::Ansible, "ansible-ini/hosts.ini", &vip("10.20.0.100"));
    assert_eq!(with(&loaded, Role::ControlPlane), ["cp01", "cp02", "cp03"]);
    assert_eq!(with(&loaded, Role::Etcd), ["cp01", "cp02", "cp03"]);
    assert_eq!(with(&loaded, Role::LoadBalancer), ["lb1", "lb2"]);
    assert_eq!(with(&loaded, Role::Worker), ["wa", "wb", "gpu-1"]);
    let control = host(&loaded, "cp02");
    assert_eq!(
        (control.address.to_string().as_str(), control.ssh.host.as_str()),
        ("10.20.0.12", "cp02.graz.example.org")
    );
    assert_eq!((control.ssh.user.as_str(), control.ssh.port), ("ops", 22));
    assert_eq!(control.ssh.jump.iter().map(SshTarget::place).collect::<Vec<_>>(), ["jump@gate.example.org:2200"]);
    assert_eq!((host(&loaded, "wb").ssh.port, host(&loaded, "lb1").ssh.port), (2222, 2222));
    let gpu = host(&loaded, "gpu-1");
    assert_eq!((gpu.ssh.user.as_str(), gpu.labels["on"].as_str()), ("gpuadmin", "yes"));
    assert_eq!(gpu.taints, ["nvidia.com/gpu=present:NoSchedule"]);
    for word in
        ["ansible_become_password is a secret", "prometheus.graz.example.org", "ntp_servers", "http_port and rack"]
    {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
}

#[test]
fn an_ansible_inventory_in_yaml_keeps_names_that_look_like_numbers_and_booleans() {
    let wishes = Wishes { external: Some("api.example.org:6443".to_owned()), ..Wishes::default() };
    let (loaded, shown) = imported(Tool::Ansible, "ansible-yaml/inventory.yml", &wishes);
    assert_eq!(with(&loaded, Role::Etcd), ["node1", "node2", "node3"]);
    assert!(with(&loaded, Role::LoadBalancer).is_empty());
    // They are in `nodes` as well, but through `control_plane`.
    assert_eq!(with(&loaded, Role::Worker), ["1-30", "node31"]);
    assert_eq!(host(&loaded, "1-30").labels["disk"], "yes");
    assert_eq!(host(&loaded, "1-30").zone.as_deref(), Some("on"));
    assert_eq!(host(&loaded, "node31").address.to_string(), "192.168.10.31");
    assert_eq!((host(&loaded, "node3").ssh.port, host(&loaded, "node3").ssh.user.as_str()), (2022, "root"));
    assert!(shown.contains("osd1 and osd2") && shown.contains("keepalived_password"), "{shown}");
}

#[test]
fn an_older_kubespray_inventory_keeps_its_balancer_bastion_networks_and_flags() {
    let (loaded, shown) = imported(Tool::Kubespray, "kubespray-ini/inventory.ini", &Wishes::default());
    let desired = &loaded.desired;
    assert_eq!((desired.endpoint.host().as_str(), desired.endpoint.port), ("95.54.0.100", 8443));
    assert!(matches!(&desired.endpoint.kind, EndpointKind::External(_)));
    assert!(desired.endpoint.sans.iter().any(|san| san == "elb.example.org"));
    assert_eq!(with(&loaded, Role::ControlPlane), ["node1", "node2", "node3"]);
    assert_eq!(with(&loaded, Role::Worker), ["node3", "node4", "node5"]);
    let first = host(&loaded, "node1");
    assert_eq!((first.address.to_string().as_str(), first.ssh.host.as_str()), ("10.3.0.1", "95.54.0.12"));
    assert_eq!(first.ssh.jump.iter().map(SshTarget::place).collect::<Vec<_>>(), ["ubuntu@95.54.0.2:22"]);
    assert_eq!(
        (desired.network.pods.to_string().as_str(), desired.network.services.to_string().as_str()),
        ("10.233.64.0/18", "10.233.0.0/18")
    );
    assert_eq!((desired.network.cni, desired.network.kube_proxy), (Cni::None, KubeProxy::Nftables));
    assert_eq!((desired.etcd.data_dir.as_path(), desired.etcd.quota_gib), (Path::new("/srv/etcd"), 2));
    assert_eq!(desired.extra.args["kube-apiserver"]["max-requests-inflight"], "800");
    assert!(!desired.extra.args["kube-apiserver"].contains_key("etcd-servers"));
    assert_eq!(desired.extra.kubelet_config["maxPods"], 200);
    assert_eq!(desired.extra.kubelet_config["evictionHard"]["memory.available"], "100Mi");
    assert_eq!((desired.proxy.http.as_str(), desired.proxy.https.as_str()), ("http://proxy.example.org:3128", ""));
    assert_eq!(desired.mirrors["docker.io"], ["https://mirror.example.org:5000"]);
    assert_eq!(desired.versions.kubernetes, hactl::inventory::DEFAULT_KUBERNETES);
    for word in [
        "1.28.3",
        "dashboard_enabled",
        "metallb_config",
        "my_own_flag",
        "kubeadm_certificate_key",
        "kube_feature_gates",
    ] {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
}

#[test]
fn a_newer_kubespray_inventory_keeps_its_virtual_address_version_and_mirrors() {
    let (loaded, shown) = imported(Tool::Kubespray, "kubespray-yaml/hosts.yaml", &Wishes::default());
    let desired = &loaded.desired;
    assert!(matches!(&desired.endpoint.kind, EndpointKind::Vip { interface: Some(name), .. } if name == "ens18"));
    assert_eq!((desired.endpoint.host().as_str(), desired.versions.kubernetes.as_str()), ("10.10.1.100", "1.36.2"));
    assert_eq!(with(&loaded, Role::LoadBalancer), ["node-a", "node-b"]);
    assert_eq!(with(&loaded, Role::Etcd), ["node-a", "node-b", "node-c"]);
    assert_eq!(host(&loaded, "node-c").zone.as_deref(), Some("rack-c"));
    assert_eq!(desired.mirrors["docker.io"], ["https://mirror.example.org", "http://10.10.1.9:5000"]);
    assert!(shown.contains("access_ip") && shown.contains("registries.ca"), "{shown}");
}

#[test]
fn kubespray_settings_for_workers_alone_are_named_with_these_workers_and_without_their_values() {
    let (loaded, shown) = imported(Tool::Kubespray, "kubespray-workers/hosts.ini", &Wishes::default());
    let desired = &loaded.desired;
    assert_eq!(
        (desired.proxy.http.as_str(), desired.etcd.data_dir.as_path()),
        ("http://proxy.example.org:3128", Path::new("/srv/etcd"))
    );
    assert!(desired.extra.kubelet_config.is_empty() && desired.mirrors.is_empty(), "{shown}");
    for line in [
        "group_vars/kube_node.yml: warning: set only for w1, w2 and gpu1, and not carried over, because one value applies to all hosts here: \
         containerd_registries_mirrors, http_proxy, kubelet_config_extra_args and kubelet_max_pods",
        "host_vars/cp2.yml: warning: set only for cp2",
        "host_vars/gpu1.yml:1: warning: nvidia_accelerator_enabled: drivers for GPUs are installed there",
        "group_vars/kube_control_plane.yml:1: warning: additional_no_proxy is not set for w1, w2 and gpu1 there",
    ] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
    // etcd's own group goes before `all`, and what others know of etcd changes nothing.
    assert!(!shown.contains("here: etcd_data_dir"), "{shown}");
}

#[test]
fn a_k0sctl_configuration_keeps_its_hosts_bastion_and_virtual_address() {
    let (loaded, shown) = imported(Tool::K0sctl, "k0sctl/k0sctl.yaml", &Wishes::default());
    let desired = &loaded.desired;
    assert_eq!(desired.cluster.as_str(), "edge-west");
    assert!(
        matches!(&desired.endpoint.kind, EndpointKind::Vip { interface: Some(name), vrid: 51, .. } if name == "bond0")
    );
    assert_eq!(desired.endpoint.sans, ["api.edge.example.org"]);
    assert_eq!(with(&loaded, Role::ControlPlane), ["ctl1", "ctl2", "ctl3"]);
    assert_eq!(with(&loaded, Role::Etcd), ["ctl1", "ctl2", "ctl3"]);
    assert_eq!(with(&loaded, Role::Worker), ["ctl3", "worker-1"]);
    let worker = host(&loaded, "worker-1");
    assert_eq!((worker.zone.as_deref(), worker.labels["disk"].as_str()), (Some("west-1"), "nvme"));
    assert_eq!(worker.taints, ["dedicated=db:NoSchedule"]);
    assert_eq!((worker.ssh.user.as_str(), worker.ssh.port, worker.ssh.host.as_str()), ("admin", 2222, "10.50.0.21"));
    assert_eq!(worker.ssh.jump.iter().map(SshTarget::place).collect::<Vec<_>>(), ["jump@gate.edge.example.org:22"]);
    assert_eq!(desired.extra.args["kube-controller-manager"]["terminated-pod-gc-threshold"], "500");
    for word in [
        "spec.hosts[0].hooks",
        "spec.hosts[3].files",
        "authPass",
        "Windows",
        "spec.k0s.config.spec.extensions",
        "--profile",
        "1.34.1",
    ] {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
}

#[test]
fn the_command_line_takes_precedence_over_the_file() {
    let wishes = Wishes {
        cluster: Some("prod".to_owned()),
        addresses: vec!["worker-1=10.50.0.77".to_owned()],
        ..vip("10.50.0.200")
    };
    let done = import(Tool::K0sctl, &sample("k0sctl/k0sctl.yaml"), &wishes, &Disk).unwrap();
    let loaded = parse(&done.text, Path::new("/base")).unwrap();
    assert_eq!((loaded.desired.cluster.as_str(), loaded.desired.endpoint.host().as_str()), ("prod", "10.50.0.200"));
    assert_eq!(host(&loaded, "worker-1").address.to_string(), "10.50.0.77");
}

/// A text as if it were a file without anything beside it.
fn text(tool: Tool, text: &str, wishes: &Wishes) -> Result<Loaded, String> {
    let input = Input { name: "hosts".to_owned(), text: text.to_owned(), folder: None };
    let done = import(tool, &input, wishes, &hactl::inventory::Nothing).map_err(|error| error.to_string())?;
    parse(&done.text, Path::new("/base")).map_err(|error| error.to_string())
}

#[test]
fn groups_of_other_names_get_their_roles_from_the_command_line() {
    let hosts = "[brains]\na ansible_host=10.0.0.1\nb ansible_host=10.0.0.2\nc ansible_host=10.0.0.3\n[muscles]\nd ansible_host=10.0.0.4\n[shelf]\ne ansible_host=10.0.0.5\n";
    let roles = ["brains=control-plane,etcd", "muscles=worker", "shelf=spare"].map(ToOwned::to_owned).to_vec();
    let wishes = Wishes { roles, ..vip("10.0.0.100") };
    let loaded = text(Tool::Ansible, hosts, &wishes).unwrap();
    assert_eq!(with(&loaded, Role::ControlPlane), ["a", "b", "c"]);
    assert_eq!((with(&loaded, Role::Worker), with(&loaded, Role::Spare)), (vec!["d"], vec!["e"]));
}

#[test]
fn a_host_has_the_roles_of_all_groups_around_it() {
    let hosts = "[kube_control_plane]\nm1 ip=10.0.0.1\nm2 ip=10.0.0.2\nm3 ip=10.0.0.3\n\
                 [etcd:children]\nkube_control_plane\n[etcd]\nd1 ip=10.0.0.11\nd2 ip=10.0.0.12\n\
                 [kube_node:children]\nracks\n[racks:children]\nkube_control_plane\n[kube_node]\nw1 ip=10.0.0.21\n";
    for tool in [Tool::Kubespray, Tool::Ansible] {
        let loaded = text(tool, hosts, &vip("10.0.0.100")).unwrap();
        assert_eq!(with(&loaded, Role::ControlPlane), ["m1", "m2", "m3"], "{tool}");
        assert_eq!(with(&loaded, Role::Etcd), ["m1", "m2", "m3", "d1", "d2"], "{tool}");
        assert_eq!(with(&loaded, Role::Worker), ["m1", "m2", "m3", "w1"], "{tool}");
    }
}

#[test]
fn a_group_for_all_machines_adds_its_role_to_hosts_with_another_only_if_a_flag_names_it() {
    let hosts = "[masters]\na ansible_host=10.0.0.1\n[nodes]\nb ansible_host=10.0.0.2\n[nodes:children]\nmasters\n";
    assert_eq!(with(&text(Tool::Ansible, hosts, &vip("10.0.0.100")).unwrap(), Role::Worker), ["b"]);
    let wishes = Wishes { roles: vec!["nodes=worker".to_owned()], ..vip("10.0.0.100") };
    assert_eq!(with(&text(Tool::Ansible, hosts, &wishes).unwrap(), Role::Worker), ["a", "b"]);
}

#[test]
fn spares_get_no_role_from_the_groups_around_them() {
    let hosts = "[masters]\na ansible_host=10.0.0.1\n[workers]\nb ansible_host=10.0.0.2\n\
                 [workers:children]\nshelf\n[shelf]\nc ansible_host=10.0.0.3\n";
    let wishes = Wishes { roles: vec!["shelf=spare".to_owned()], ..vip("10.0.0.100") };
    let loaded = text(Tool::Ansible, hosts, &wishes).unwrap();
    assert_eq!((with(&loaded, Role::Worker), with(&loaded, Role::Spare)), (vec!["b"], vec!["c"]));
}

#[test]
fn of_two_names_for_a_setting_of_ssh_the_one_counts_that_ansible_uses() {
    let hosts = "[masters]\n\
                 a ansible_host=10.0.0.1 ansible_ssh_host=10.0.9.1 ansible_ssh_user=alice ansible_ssh_port=2201\n\
                 [workers]\nb ansible_host=10.0.0.2 ansible_user=carol\n[workers:vars]\nansible_ssh_user=dave\n\
                 [all:vars]\nansible_user=bob\nansible_port=2200\n";
    let loaded = text(Tool::Ansible, hosts, &vip("10.0.0.100")).unwrap();
    let (a, b) = (host(&loaded, "a"), host(&loaded, "b"));
    assert_eq!((a.ssh.host.as_str(), a.ssh.user.as_str(), a.ssh.port), ("10.0.9.1", "alice", 2201));
    assert_eq!((b.ssh.host.as_str(), b.ssh.user.as_str(), b.ssh.port), ("10.0.0.2", "dave", 2200));
}

#[test]
fn k3s_groups_get_the_roles_that_they_have_in_k3s() {
    let hosts = "[server]\n10.0.0.1\n10.0.0.2\n10.0.0.3\n[agent]\n10.0.0.4\n[k3s_cluster:children]\nserver\nagent\n";
    let loaded = text(Tool::Ansible, hosts, &vip("10.0.0.100")).unwrap();
    assert_eq!(with(&loaded, Role::Etcd), ["node-10-0-0-1", "node-10-0-0-2", "node-10-0-0-3"]);
    assert_eq!(with(&loaded, Role::Worker), ["node-10-0-0-4"]);
}

#[test]
fn a_kubespray_inventory_without_an_endpoint_has_a_balancer_on_every_node_as_there() {
    let hosts = "[kube_control_plane]\na ansible_host=10.0.0.1\n[etcd]\na\n[kube_node]\nb ansible_host=10.0.0.2\n";
    let loaded = text(Tool::Kubespray, hosts, &Wishes::default()).unwrap();
    assert!(matches!(loaded.desired.endpoint.kind, EndpointKind::Local { .. }));
}

#[test]
fn a_configuration_of_k0s_in_a_document_of_its_own_is_read_as_well() {
    let file = "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nspec:\n  hosts:\n  - {role: single, ssh: {address: 10.0.0.1}}\n---\napiVersion: k0s.k0sproject.io/v1beta1\nkind: ClusterConfig\nspec: {api: {externalAddress: api.example.org, port: 7443}}\n";
    let loaded = text(Tool::K0sctl, file, &Wishes::default()).unwrap();
    let desired = &loaded.desired;
    assert_eq!(
        (desired.endpoint.host().as_str(), desired.endpoint.port, desired.api_port),
        ("api.example.org", 7443, 7443)
    );
    assert_eq!(desired.hosts[0].ssh.user, "root");
    assert!(desired.hosts[0].is(Role::Worker) && desired.hosts[0].is(Role::Etcd));
}

#[test]
fn a_kubespray_inventory_imported_as_ansible_names_the_better_import() {
    let done = import(Tool::Ansible, &sample("kubespray-yaml/hosts.yaml"), &vip("10.10.1.100"), &Disk).unwrap();
    assert!(done.warnings.iter().any(|note| note.remedy.contains("import kubespray")), "{:?}", done.warnings);
    let done = import(Tool::Ansible, &sample("ansible-ini/hosts.ini"), &vip("10.20.0.100"), &Disk).unwrap();
    assert!(!done.warnings.iter().any(|note| note.remedy.contains("import kubespray")), "{:?}", done.warnings);
}

#[test]
fn a_jump_host_is_no_part_of_the_cluster_and_is_reported() {
    let hosts = "[masters]\na ansible_host=10.0.0.1\n[bastion]\ngate ansible_host=192.0.2.1\n";
    let input = Input { name: "hosts".to_owned(), text: hosts.to_owned(), folder: None };
    let done = import(Tool::Ansible, &input, &vip("10.0.0.100"), &hactl::inventory::Nothing).unwrap();
    assert!(done.warnings.iter().any(|note| note.what.starts_with("gate ") && note.remedy.contains("ssh.jump")));
    assert!(!done.text.contains("gate"), "{}", done.text);
}

#[test]
fn files_for_the_group_that_kubespray_makes_itself_are_read() {
    let hosts = "[kube_control_plane]\na ansible_host=10.0.0.1\n[etcd:children]\nkube_control_plane\n[kube_node]\nb ansible_host=10.0.0.2\n";
    let input = Input { name: "prod/inventory.ini".to_owned(), text: hosts.to_owned(), folder: Some("/prod".into()) };
    let files: BTreeMap<PathBuf, String> = [
        ("/prod/group_vars/k8s_cluster/k8s-cluster.yml", "kube_version: v1.36.1\nkube_pods_subnet: 10.233.64.0/18\n"),
        ("/prod/group_vars/all/all.yml", "apiserver_loadbalancer_domain_name: api.example.org\n"),
        ("/prod/group_vars/strangers.yml", "kube_version: v1.36.2\n"),
    ]
    .map(|(path, text)| (PathBuf::from(path), text.to_owned()))
    .into();
    let done = import(Tool::Kubespray, &input, &Wishes::default(), &files).unwrap();
    let desired = parse(&done.text, Path::new("/base")).unwrap().desired;
    assert_eq!((desired.cluster.as_str(), desired.versions.kubernetes.as_str()), ("prod", "1.36.1"));
    assert_eq!(desired.network.pods.to_string(), "10.233.64.0/18");
    assert!(
        done.warnings.iter().any(|note| note.what.ends_with("no such group or host: strangers.yml")),
        "{:?}",
        done.warnings
    );
}
