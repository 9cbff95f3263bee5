//! What hactl has no key for, or only one where others have several: each is named in a warning, with its place.

use hactl::inventory::import::{Imported, Input, Tool, Wishes, import};
use hactl::inventory::{Loaded, parse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A Kubespray inventory of two hosts with these variables for all.
fn kubespray(vars: &str) -> Imported {
    kubespray_of("[kube_control_plane]\na ansible_host=10.0.0.1\n[kube_node]\nb ansible_host=10.0.0.2\n", vars)
}

fn kubespray_of(hosts: &str, vars: &str) -> Imported {
    let input = Input { name: "lab/hosts".to_owned(), text: hosts.to_owned(), folder: Some("/lab".into()) };
    let files: BTreeMap<PathBuf, String> = [("/lab/group_vars/all.yml".into(), vars.to_owned())].into();
    import(Tool::Kubespray, &input, &Wishes::default(), &files).unwrap_or_else(|error| panic!("{vars}: {error}"))
}

/// A k0sctl configuration of one host, with more of that host and this specification of k0s.
fn k0sctl(host: &str, spec: &str) -> Imported {
    let text = format!(
        "apiVersion: k0sctl.k0sproject.io/v1beta1\nkind: Cluster\nspec:\n  hosts:\n  - {{role: single, {host}}}\n  \
         k0s: {{config: {{spec: {spec}}}}}\n"
    );
    let input = Input { name: "k0sctl.yaml".to_owned(), text, folder: None };
    let wishes = Wishes { local: !spec.contains("Balancing") && !spec.contains("external"), ..Wishes::default() };
    import(Tool::K0sctl, &input, &wishes, &hactl::inventory::Nothing).unwrap_or_else(|error| panic!("{spec}: {error}"))
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
fn told(done: &Imported, words: &[&str]) {
    let shown = warned(done);
    assert!(!shown.contains("hunter2") && !done.text.contains("hunter2"), "{shown}");
    for word in words {
        assert!(shown.contains(word), "{word} is not in\n{shown}");
    }
}

#[track_caller]
fn unreachable(done: &Imported, words: &[&str]) {
    let shown = warned(done);
    for word in words {
        assert!(!shown.contains(word), "{word} is in\n{shown}");
    }
}

#[test]
fn of_several_endpoints_of_kubespray_those_that_are_not_taken_are_told() {
    let vip = "kube_vip_enabled: true\nkube_vip_address: 10.0.0.100\nkube_vip_interface: eth1\n";
    let done = kubespray(&format!("{vip}loadbalancer_apiserver: {{address: 10.0.0.200, port: 8443}}\n"));
    told(&done, &["clients use 10.0.0.200 there", "--external 10.0.0.200:8443"]);
    assert_eq!(
        (loaded(&done).desired.endpoint.host().as_str(), loaded(&done).desired.endpoint.port),
        ("10.0.0.100", 6443)
    );
    let done = kubespray(&format!("{vip}loadbalancer_apiserver: {{address: 10.0.0.100, port: 8443}}\n"));
    unreachable(&done, &["clients use"]);
    assert_eq!(loaded(&done).desired.endpoint.port, 8443);
    let done = kubespray(&format!("{vip}kube_vip_controlplane_enabled: false\n"));
    told(
        &done,
        &["all.yml:2: warning: kube_vip_address is not carried over", "all.yml:3: warning: kube_vip_interface is not"],
    );
    let done = kubespray(&format!("{vip}loadbalancer_apiserver_localhost: true\n"));
    told(&done, &["all.yml:4: warning: there is a balancer on every Node and the virtual address as well"]);
    let done = kubespray("loadbalancer_apiserver: {address: api.example.org, port: https}\n");
    told(&done, &["loadbalancer_apiserver.port is not a port: https"]);
    let done = kubespray("loadbalancer_apiserver: {port: 8443}\n");
    told(&done, &["a port and no address"]);
    let done = kubespray("loadbalancer_apiserver: api.example.org\n");
    told(&done, &["loadbalancer_apiserver is not a mapping"]);
}

#[test]
fn what_kubespray_takes_without_a_word_is_told() {
    told(&kubespray(""), &["Calico, Kubespray's default, there, and flannel here"]);
    unreachable(&kubespray("kube_network_plugin: flannel\n"), &["Calico"]);
    let done = kubespray("kubelet_max_pods: many\nkubelet_config_extra_args: 1\nkube_pods_subnet: fd00::/64\n");
    told(&done, &["kubelet_max_pods is not a number", "kubelet_config_extra_args is not a mapping", "no IPv4 range"]);
}

#[test]
fn what_is_said_of_mirrors_besides_their_urls_is_told() {
    let done = kubespray(
        "containerd_registries_mirrors:\n\
         - {mirrors: [{host: 'https://m0.example.org'}]}\n\
         - {prefix: quay.io, server: 'https://robot:hunter2@hub.example.org', mirrors: [{capabilities: [pull]}, {host: 'https://m1.example.org', capabilities: [pull], dial_timeout: 1s}]}\n\
         - {prefix: docker.io, server: 'https://registry-1.docker.io', mirrors: [{host: 'https://m2.example.org/hub', override_path: true, capabilities: [resolve, pull]}]}\n\
         - {prefix: ghcr.io, mirrors: [{host: 'https://m3.example.org/v2/ghcr', override_path: true}]}\n\
         - {prefix: gcr.io, mirrors: [{host: 'https://robot:hunter2@m4.example.org', skip_verify: true}]}\n",
    );
    told(
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
    unreachable(&done, &["images of docker.io", "m2.example.org/hub has other", "images of m3"]);
    assert_eq!(loaded(&done).desired.mirrors["ghcr.io"], ["https://m3.example.org/v2/ghcr"]);
}

#[test]
fn what_a_bastion_has_of_its_own_is_told_unless_the_hosts_have_the_same() {
    let hosts = |key: &str| {
        format!(
            "[kube_control_plane]\na ansible_host=10.0.0.1\n[bastion]\nbastion ansible_host=192.0.2.1 ansible_user=ops ansible_ssh_private_key_file={key}\n"
        )
    };
    let vars = "ansible_ssh_private_key_file: ~/.ssh/fleet\n";
    let done = kubespray_of(&hosts("~/.ssh/gate"), vars);
    told(&done, &["the bastion has its own key", "Host 192.0.2.1, below it IdentityFile ~/.ssh/gate"]);
    unreachable(&kubespray_of(&hosts("~/.ssh/fleet"), vars), &["the bastion"]);
}

#[test]
fn an_address_that_is_none_is_told_with_the_flag_that_says_it() {
    let hosts = "[kube_control_plane]\na ansible_host=10.0.0.1 ip=fd00::1\n";
    let done = kubespray_of(hosts, "");
    told(&done, &["hosts:2: warning: ip of a is not an IPv4 address: fd00::1", "--address a=ADDRESS"]);
}

#[test]
fn what_limits_node_ports_and_answers_for_names_is_no_habit_of_kubesprays() {
    let done = kubespray(
        "kube_proxy_nodeport_addresses_cidr: 10.0.0.0/24\nenable_coredns_k8s_external: true\ncoredns_k8s_external_zone: k8s.example.org\n",
    );
    told(&done, &["nodePortAddresses under extra.kube-proxy.config", "in the zone k8s.example.org"]);
    unreachable(&done, &["only Kubespray itself"]);
    let sample = "kube_proxy_nodeport_addresses: '{%- if kube_proxy_nodeport_addresses_cidr is defined -%}[{{ kube_proxy_nodeport_addresses_cidr }}]{%- else -%}[]{%- endif -%}'\n";
    let off = format!("{sample}enable_coredns_k8s_external: false\ncoredns_k8s_external_zone: k8s_external.local\n");
    unreachable(&kubespray(&off), &["nodeport", "nodePort", "coredns"]);
    told(
        &kubespray("kube_proxy_nodeport_addresses: [10.0.0.0/24]\n"),
        &["kube_proxy_nodeport_addresses is not carried"],
    );
}

#[test]
fn of_k0s_balancers_the_one_that_is_not_taken_is_told_and_what_they_are_told_besides() {
    let local = "nodeLocalLoadBalancing: {enabled: true, type: EnvoyProxy, envoyProxy: {apiServerBindPort: 7443}}";
    let vip = "controlPlaneLoadBalancing: {enabled: true, type: Keepalived, extra: 1, keepalived: {more: 1, vrrpInstances: [{virtualIPs: [10.0.0.100/24], virtualRouterID: 300, authPass: hunter2, advertIntervalSeconds: 3, unicastPeers: [10.0.0.2]}]}}";
    let done = k0sctl(HOST, &format!("{{network: {{{local}, {vip}}}}}"));
    told(
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
    told(&done, &["there is a balancer on every Node and the external address as well"]);
    let done = k0sctl(HOST, &format!("{{network: {{{local}}}}}"));
    unreachable(&done, &["as well"]);
}

#[test]
fn what_k0s_has_for_addresses_and_kube_proxy_is_told() {
    let done = k0sctl(
        HOST,
        "{api: {address: 10.0.0.9, port: many}, storage: {etcd: {peerAddress: 10.0.0.8, extraArgs: {x: [1]}}}, \
         network: {kubeProxy: {metricsBindAddress: 0.0.0.0:10249, iptables: {minSyncPeriod: 5s}, ipvs: {syncPeriod: 0s}, nftables: {}}}}",
    );
    told(
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
    unreachable(&done, &["kubeProxy.ipvs", "kubeProxy.nftables"]);
    let done = k0sctl(HOST, "{api: {address: 10.0.0.1}, storage: {etcd: {peerAddress: 10.0.0.1}}}");
    unreachable(&done, &["api.address", "peerAddress"]);
}

#[test]
fn k0s_own_network_plugin_is_told_of_where_nothing_is_said_of_networks() {
    for spec in ["{}", "{api: {port: 6443}}", "{network: {podCIDR: 10.1.0.0/16}}", "{network: {provider: kuberouter}}"]
    {
        let shown = warned(&k0sctl(HOST, spec));
        assert_eq!(shown.matches("kube-router connects pods there").count(), 1, "{spec}: {shown}");
    }
    unreachable(&k0sctl(HOST, "{network: {provider: custom}}"), &["kube-router"]);
}

#[test]
fn openssh_options_keep_the_file_of_host_keys_and_name_the_rest() {
    let host = |options: &str| format!("openSSH: {{address: 10.0.0.1, options: {{{options}}}}}");
    let done = k0sctl(&host("UserKnownHostsFile: /srv/keys/known_hosts, StrictHostKeyChecking: yes"), "{}");
    assert_eq!(loaded(&done).desired.hosts[0].ssh.user, "root");
    assert!(done.text.contains("known_hosts: /srv/keys/known_hosts"), "{}", done.text);
    unreachable(&done, &["host keys are not verified", "options"]);
    let done = k0sctl(&host("userknownhostsfile: /dev/null, Compression: yes"), "{}");
    told(&done, &["host keys are not verified there", "not carried over: Compression"]);
    assert!(!done.text.contains("known_hosts:"), "{}", done.text);
    let done = k0sctl(&host("UserKnownHostsFile: /a /b"), "{}");
    told(&done, &["not carried over: UserKnownHostsFile"]);
    let gate = "ssh: {address: 10.0.0.1, bastion: {address: 192.0.2.1, hostKey: ssh-ed25519 AAAA}}";
    told(&k0sctl(gate, "{}"), &["bastion.hostKey: warning: "]);
}
