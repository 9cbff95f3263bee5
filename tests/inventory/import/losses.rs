//! Settings for which hactl has no key, or one key for several values: a warning names each, with its place.

use hactl::inventory::import::{Imported, Input, Tool, Wishes, import};
use hactl::inventory::{Loaded, parse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A Kubespray inventory of two hosts with these variables for all.
fn kubespray(vars: &str) -> Imported {
    kubespray_of("[kube_control_plane]\na ansible_host=10.0.0.1\n[kube_node]\nb ansible_host=10.0.0.2\n", vars)
}

fn kubespray_of(hosts: &str, vars: &str) -> Imported {
    kubespray_with(hosts, vars, &Wishes::default())
}

fn kubespray_with(hosts: &str, vars: &str, wishes: &Wishes) -> Imported {
    let input = Input { name: "lab/hosts".to_owned(), text: hosts.to_owned(), folder: Some("/lab".into()) };
    let files: BTreeMap<PathBuf, String> = [("/lab/group_vars/all.yml".into(), vars.to_owned())].into();
    import(Tool::Kubespray, &input, wishes, &files).unwrap_or_else(|error| panic!("{vars}: {error}"))
}

/// A k0sctl configuration of one host, with more of that host and this specification of k0s.
fn k0sctl(host: &str, spec: &str) -> Imported {
    let local = !spec.contains("Balancing") && !spec.contains("external");
    k0sctl_with(host, spec, &Wishes { local, ..Wishes::default() })
}

fn k0sctl_with(host: &str, spec: &str, wishes: &Wishes) -> Imported {
    let text = format!(
        "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nspec:\n  hosts:\n  - {{role: single, {host}}}\n  \
         k0s: {{config: {{spec: {spec}}}}}\n"
    );
    let input = Input { name: "k0sctl.yaml".to_owned(), text, folder: None };
    import(Tool::K0sctl, &input, wishes, &hactl::inventory::Nothing).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

const HOST: &str = "ssh: {address: 10.0.0.1}";

fn loaded(done: &Imported) -> Loaded {
    parse(&done.text, Path::new("/base")).unwrap_or_else(|error| panic!("{error}\n{}", done.text))
}

/// The warnings as people read them.
fn warned(done: &Imported) -> String {
    done.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn reported(done: &Imported, words: &[&str]) {
    let shown = warned(done);
    assert!(!shown.contains("hunter2") && !done.text.contains("hunter2"), "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
}

#[track_caller]
fn not_reported(done: &Imported, words: &[&str]) {
    let shown = warned(done);
    for word in words {
        assert!(!shown.contains(word), "{word} is in\n{shown}");
    }
}

#[test]
fn the_endpoints_of_kubespray_that_are_not_taken_are_reported() {
    let vip = "kube_vip_enabled: true\nkube_vip_address: 10.0.0.100\nkube_vip_interface: eth1\n";
    let done = kubespray(&format!("{vip}loadbalancer_apiserver: {{address: 10.0.0.200, port: 8443}}\n"));
    reported(&done, &["clients use 10.0.0.200 there", "--external 10.0.0.200:8443"]);
    assert_eq!(
        (loaded(&done).desired.endpoint.host().as_str(), loaded(&done).desired.endpoint.port),
        ("10.0.0.100", 6443)
    );
    let done = kubespray(&format!("{vip}loadbalancer_apiserver: {{address: 10.0.0.100, port: 8443}}\n"));
    not_reported(&done, &["clients use"]);
    assert_eq!(loaded(&done).desired.endpoint.port, 8443);
    let done = kubespray(&format!("{vip}kube_vip_controlplane_enabled: false\n"));
    reported(
        &done,
        &["all.yml:2: warning: kube_vip_address is not carried over", "all.yml:3: warning: kube_vip_interface is not"],
    );
    let done = kubespray(&format!("{vip}loadbalancer_apiserver_localhost: true\n"));
    reported(&done, &["all.yml:4: warning: there is a balancer on every Node and the virtual address as well"]);
    let done = kubespray("loadbalancer_apiserver: {address: api.example.org, port: https}\n");
    reported(&done, &["loadbalancer_apiserver.port is not a port: https"]);
    let done = kubespray("loadbalancer_apiserver: {port: 8443}\n");
    reported(&done, &["a port and no address"]);
    let done = kubespray("loadbalancer_apiserver: api.example.org\n");
    reported(&done, &["loadbalancer_apiserver is not a mapping"]);
}

#[test]
fn an_endpoint_from_a_flag_leaves_no_warning_about_the_endpoint_in_the_file() {
    let others = ["balancer on every Node", "its own balancer", "no load balancer there", "clients use", "as well"];
    let wishes = Wishes { vip: Some("10.0.0.99".to_owned()), ..Wishes::default() };
    let hosts = "[kube_control_plane]\na ansible_host=10.0.0.1\n";
    let own = "loadbalancer_apiserver: {address: 10.0.0.200}\n";
    reported(&kubespray_of(hosts, ""), &["every Node runs its own balancer"]);
    for vars in [
        String::new(),
        "loadbalancer_apiserver_localhost: false\n".to_owned(),
        format!("{own}loadbalancer_apiserver_localhost: true\n"),
        format!("{own}kube_vip_enabled: true\nkube_vip_address: 10.0.0.100\n"),
    ] {
        let done = kubespray_with(hosts, &vars, &wishes);
        not_reported(&done, &others);
        assert_eq!(loaded(&done).desired.endpoint.host().as_str(), "10.0.0.99", "{vars}");
    }
    let local = "{network: {nodeLocalLoadBalancing: {enabled: true}}, api: {externalAddress: api.example.org}}";
    reported(&k0sctl(HOST, local), &["a balancer on every Node and the external address as well"]);
    not_reported(&k0sctl_with(HOST, local, &wishes), &others);
}

#[test]
fn defaults_of_kubespray_are_reported() {
    reported(&kubespray(""), &["Calico, Kubespray's default, there, and flannel here"]);
    not_reported(&kubespray("kube_network_plugin: flannel\n"), &["Calico"]);
    let done = kubespray("kubelet_max_pods: many\nkubelet_config_extra_args: 1\nkube_pods_subnet: fd00::/64\n");
    reported(
        &done,
        &["kubelet_max_pods is not a number", "kubelet_config_extra_args is not a mapping", "no IPv4 range"],
    );
}

#[test]
fn settings_of_mirrors_besides_their_urls_are_reported() {
    let done = kubespray(
        "containerd_registries_mirrors:\n\
         - {mirrors: [{host: 'https://m0.example.org'}]}\n\
         - {prefix: quay.io, server: 'https://robot:hunter2@hub.example.org', mirrors: [{capabilities: [pull]}, {host: 'https://m1.example.org', capabilities: [pull], dial_timeout: 1s}]}\n\
         - {prefix: docker.io, server: 'https://registry-1.docker.io', mirrors: [{host: 'https://m2.example.org/hub', override_path: true, capabilities: [resolve, pull]}]}\n\
         - {prefix: ghcr.io, mirrors: [{host: 'https://m3.example.org/v2/ghcr', override_path: true}]}\n\
         - {prefix: gcr.io, mirrors: [{host: 'https://robot:hunter2@m4.example.org', skip_verify: true}]}\n",
    );
    reported(
        &done,
        &[
            "mirrors without a prefix",
            "images of quay.io that no mirror has come from another server",
            "a mirror of quay.io has no host",
            "m1.example.org has other capabilities there (pull)",
            "not carried over: dial_timeout",
            "override_path: images of m2.example.org/hub are directly below it there",
            "containerd_registries_mirrors contains a user name or a password",
        ],
    );
    not_reported(&done, &["images of docker.io", "m2.example.org/hub has other", "images of m3"]);
    assert_eq!(loaded(&done).desired.mirrors["ghcr.io"], ["https://m3.example.org/v2/ghcr"]);
}

#[test]
fn settings_of_a_bastion_are_reported_unless_the_hosts_have_the_same() {
    let hosts = |key: &str| {
        format!(
            "[kube_control_plane]\na ansible_host=10.0.0.1\n[bastion]\nbastion ansible_host=192.0.2.1 ansible_user=ops ansible_ssh_private_key_file={key}\n"
        )
    };
    let vars = "ansible_ssh_private_key_file: ~/.ssh/fleet\n";
    let done = kubespray_of(&hosts("~/.ssh/gate"), vars);
    reported(&done, &["the bastion has its own key", "Host 192.0.2.1, below it IdentityFile ~/.ssh/gate"]);
    not_reported(&kubespray_of(&hosts("~/.ssh/fleet"), vars), &["the bastion"]);
}

#[test]
fn an_invalid_address_is_reported_with_the_flag_that_sets_it() {
    let hosts = "[kube_control_plane]\na ansible_host=10.0.0.1 ip=fd00::1\n";
    let done = kubespray_of(hosts, "");
    reported(&done, &["hosts:2: warning: ip of a is not an IPv4 address: fd00::1", "--address a=ADDRESS"]);
}

#[test]
fn limits_of_node_ports_and_external_dns_zones_are_reported_and_not_taken_for_defaults_of_kubespray() {
    let done = kubespray(
        "kube_proxy_nodeport_addresses_cidr: 10.0.0.0/24\nenable_coredns_k8s_external: true\ncoredns_k8s_external_zone: k8s.example.org\n",
    );
    reported(&done, &["nodePortAddresses under extra.kube-proxy.config", "in the zone k8s.example.org"]);
    not_reported(&done, &["only Kubespray itself"]);
    let sample = "kube_proxy_nodeport_addresses: '{%- if kube_proxy_nodeport_addresses_cidr is defined -%}[{{ kube_proxy_nodeport_addresses_cidr }}]{%- else -%}[]{%- endif -%}'\n";
    let off = format!("{sample}enable_coredns_k8s_external: false\ncoredns_k8s_external_zone: k8s_external.local\n");
    not_reported(&kubespray(&off), &["nodeport", "nodePort", "coredns"]);
    reported(
        &kubespray("kube_proxy_nodeport_addresses: [10.0.0.0/24]\n"),
        &["kube_proxy_nodeport_addresses is not carried"],
    );
}

#[test]
fn the_balancer_of_k0s_that_is_not_taken_is_reported_with_its_other_settings() {
    let local = "nodeLocalLoadBalancing: {enabled: true, type: EnvoyProxy, envoyProxy: {apiServerBindPort: 7443}}";
    let vip = "controlPlaneLoadBalancing: {enabled: true, type: Keepalived, extra: 1, keepalived: {more: 1, vrrpInstances: [{virtualIPs: [10.0.0.100/24], virtualRouterID: 300, authPass: hunter2, advertIntervalSeconds: 3, unicastPeers: [10.0.0.2]}]}}";
    let done = k0sctl(HOST, &format!("{{network: {{{local}, {vip}}}}}"));
    reported(
        &done,
        &[
            "network.nodeLocalLoadBalancing: warning: there is a balancer on every Node and the virtual address as well",
            "nodeLocalLoadBalancing.envoyProxy: warning: ",
            "controlPlaneLoadBalancing.extra: warning: ",
            "keepalived.more: warning: ",
            "virtualRouterID is not a number from 1 to 255",
            "advertIntervalSeconds and unicastPeers",
        ],
    );
    assert_eq!(loaded(&done).desired.endpoint.host().as_str(), "10.0.0.100");
    let done = k0sctl(HOST, &format!("{{network: {{{local}}}, api: {{externalAddress: api.example.org}}}}"));
    reported(&done, &["there is a balancer on every Node and the external address as well"]);
    let done = k0sctl(HOST, &format!("{{network: {{{local}}}}}"));
    not_reported(&done, &["as well"]);
}

#[test]
fn addresses_and_kube_proxy_settings_of_k0s_are_reported() {
    let done = k0sctl(
        HOST,
        "{api: {address: 10.0.0.9, port: many}, storage: {etcd: {peerAddress: 10.0.0.8, extraArgs: {x: [1]}}}, \
         network: {kubeProxy: {metricsBindAddress: 0.0.0.0:10249, iptables: {minSyncPeriod: 5s}, ipvs: {syncPeriod: 0s}, nftables: {}}}}",
    );
    reported(
        &done,
        &[
            "spec.api.address: warning: the API server's address is 10.0.0.9",
            "spec.api.port: warning: many is not a port",
            "peerAddress: warning: an etcd member's peer address is 10.0.0.8",
            "etcd.extraArgs.x: warning: ",
            "metricsBindAddress under extra.kube-proxy.config",
            "kubeProxy.iptables: warning: ",
        ],
    );
    not_reported(&done, &["kubeProxy.ipvs", "kubeProxy.nftables"]);
    let done = k0sctl(HOST, "{api: {address: 10.0.0.1}, storage: {etcd: {peerAddress: 10.0.0.1}}}");
    not_reported(&done, &["api.address", "peerAddress"]);
}

#[test]
fn the_network_plugin_of_k0s_is_reported_when_no_network_is_set() {
    for spec in ["{}", "{api: {port: 6443}}", "{network: {podCIDR: 10.1.0.0/16}}", "{network: {provider: kuberouter}}"]
    {
        let shown = warned(&k0sctl(HOST, spec));
        assert_eq!(shown.matches("kube-router connects pods there").count(), 1, "{spec}: {shown}");
    }
    not_reported(&k0sctl(HOST, "{network: {provider: custom}}"), &["kube-router"]);
}

#[test]
fn openssh_options_keep_the_file_of_host_keys_and_name_the_rest() {
    let host = |options: &str| format!("openSSH: {{address: 10.0.0.1, options: {{{options}}}}}");
    let done = k0sctl(&host("UserKnownHostsFile: /srv/keys/known_hosts, StrictHostKeyChecking: yes"), "{}");
    assert_eq!(loaded(&done).desired.hosts[0].ssh.user, "root");
    assert!(done.text.contains("known_hosts: /srv/keys/known_hosts"), "{}", done.text);
    not_reported(&done, &["host keys are not verified", "options"]);
    let done = k0sctl(&host("userknownhostsfile: /dev/null, Compression: yes"), "{}");
    reported(&done, &["host keys are not verified there", "not carried over: Compression"]);
    assert!(!done.text.contains("known_hosts:"), "{}", done.text);
    let done = k0sctl(&host("UserKnownHostsFile: /a /b"), "{}");
    reported(&done, &["not carried over: UserKnownHostsFile"]);
    let gate = "ssh: {address: 10.0.0.1, bastion: {address: 192.0.2.1, hostKey: ssh-ed25519 AAAA}}";
    reported(&k0sctl(gate, "{}"), &["bastion.hostKey: warning: "]);
}
