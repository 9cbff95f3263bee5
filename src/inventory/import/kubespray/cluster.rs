//! Kubespray's variables with a key in hactl: versions, networks, proxies, flags; `endpoint` and `mirrors` have the
//! rest.
//!
//! In: the variables of a control-plane host. Out: settings of the draft.

use super::super::ansible::scope::Scope;
use super::super::draft::{Draft, Said};
use super::super::node::truth;
use super::super::notes::{Notes, short};
use super::super::shared;
use super::endpoint::{endpoint, place_of};
use super::mirrors::mirrors;

/// Reads the settings of the whole cluster.
pub fn cluster(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    if let Some(version) = scope.text("kube_version", notes) {
        draft.kubernetes = shared::kubernetes(&version, notes);
    }
    if let Some(version) = scope.text("containerd_version", notes) {
        shared::own_version("containerd", &version, notes);
    }
    for key in ["cluster_name", "dns_domain"] {
        if let Some(domain) = scope.text(key, notes).filter(|said| said.value != "cluster.local") {
            notes.add(
                &domain.place,
                format!("{key} is the DNS domain {} there; here it is always cluster.local", short(&domain.value)),
                "change references to the old domain; --cluster NAME sets the cluster's name",
            );
        }
    }
    networks(scope, draft, notes);
    endpoint(scope, draft, notes);
    proxy(scope, draft, notes);
    mirrors(scope, draft, notes);
    components(scope, draft, notes);
}

fn networks(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    // Newer releases write both families into one value.
    let range = |keys: &[&str], notes: &mut Notes| {
        let said = scope.first(keys, notes)?;
        let v4 = said.value.split(',').map(str::trim).find(|range| !range.contains(':')).map(ToOwned::to_owned);
        if v4.is_none() {
            notes.add(
                &said.place,
                format!("{} has no IPv4 range: left out", said.key),
                "write one under network.pods or network.services, if hactl's default does not suit",
            );
        }
        Some(Said { value: v4?, ..said })
    };
    draft.pods = range(&["kube_pods_subnet", "kube_pods_subnets"], notes);
    draft.services = range(&["kube_service_addresses", "kube_service_subnets"], notes);
    if let Some(plugin) = scope.text("kube_network_plugin", notes) {
        draft.cni = Some(shared::network_plugin(&plugin, notes));
    } else if scope.raw("kube_network_plugin").is_none() {
        notes.add(
            &draft.file,
            "no network plugin is set: that means Calico, Kubespray's default, there, and flannel here",
            "nothing, unless you use features that flannel lacks, such as network policies; then set `cni: none` and \
             install your plugin",
        );
    }
    if let Some(mode) = scope.text("kube_proxy_mode", notes) {
        shared::proxy_mode(&mode, notes);
    }
    if let Some(said) = scope.text("kube_proxy_remove", notes).filter(|said| truth(&said.value) == Some(true)) {
        shared::no_kube_proxy(&said.place, notes);
        draft.kube_proxy = Some(Said::new("none", "kube_proxy_remove", said.place));
    }
    if let Some(prefix) = scope.text("kube_network_node_prefix", notes).filter(|said| said.value != "24") {
        notes.add(
            &prefix.place,
            format!("each Node gets a /{} of the pod range there, and a /24 here", short(&prefix.value)),
            "check that network.pods has a /24 for every Node",
        );
    }
    for key in ["enable_dual_stack_networks", "ipv6_stack"] {
        if let Some(said) = scope.text(key, notes).filter(|said| truth(&said.value) == Some(true)) {
            shared::no_ipv6(&said.place, notes);
        }
    }
    for key in ["kube_pods_subnet_ipv6", "kube_service_addresses_ipv6", "kube_network_node_prefix_ipv6"] {
        scope.raw(key);
    }
}

fn proxy(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    draft.http_proxy = scope.text("http_proxy", notes).and_then(|said| shared::url(said, notes));
    draft.https_proxy = scope.text("https_proxy", notes).and_then(|said| shared::url(said, notes));
    for key in ["no_proxy", "additional_no_proxy"] {
        let list = scope.list(key, notes);
        shared::no_proxy(draft, list, notes);
    }
}

fn components(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    for (key, component) in [
        ("kube_kubeadm_apiserver_extra_args", "kube-apiserver"),
        ("kube_kubeadm_controller_extra_args", "kube-controller-manager"),
        ("kube_kubeadm_scheduler_extra_args", "kube-scheduler"),
    ] {
        let Some(var) = scope.node(key, notes) else { continue };
        if !var.node.is_map() && !var.node.is_empty() {
            notes.add(
                &var.place,
                format!("{key} is not a mapping: left out"),
                format!("write its flags under extra.{component}.args"),
            );
        }
        for (flag, value) in var.node.entries() {
            shared::arg_of(draft, component, flag, value, (key, var.place.clone()), notes);
        }
    }
    for (key, component, flag, usual) in [
        ("event_ttl_duration", "kube-apiserver", "event-ttl", "1h0m0s"),
        ("kube_apiserver_request_timeout", "kube-apiserver", "request-timeout", "1m0s"),
        ("kube_apiserver_node_port_range", "kube-apiserver", "service-node-port-range", "30000-32767"),
        ("kube_controller_node_monitor_grace_period", "kube-controller-manager", "node-monitor-grace-period", "40s"),
        (
            "kube_controller_terminated_pod_gc_threshold",
            "kube-controller-manager",
            "terminated-pod-gc-threshold",
            "12500",
        ),
    ] {
        if let Some(said) = scope.text(key, notes).filter(|said| said.value != usual) {
            shared::arg(draft, component, flag, said, notes);
        }
    }
    if let Some(var) = scope.node("kubelet_config_extra_args", notes).filter(|var| !var.node.is_empty()) {
        match var.node.to_json() {
            serde_json::Value::Object(fields) => {
                shared::kubelet(draft, fields, "kubelet_config_extra_args", &var.place, notes);
            }
            _ => notes.add(
                &var.place,
                "kubelet_config_extra_args is not a mapping: left out",
                "write its fields under extra.kubelet.config",
            ),
        }
    }
    if let Some(pods) = scope.text("kubelet_max_pods", notes).filter(|said| said.value != "110") {
        match pods.value.parse::<u16>() {
            Ok(number) => {
                let fields = [("maxPods".to_owned(), number.into())].into_iter().collect();
                shared::kubelet(draft, fields, "kubelet_max_pods", &pods.place, notes);
            }
            Err(_) => notes.add(
                &pods.place,
                format!("kubelet_max_pods is not a number: {}; left out", short(&pods.value)),
                "write maxPods under extra.kubelet.config",
            ),
        }
    }
}

/// Reads etcd's settings.
pub fn etcd(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    draft.etcd_data_dir =
        scope.text("etcd_data_dir", notes).filter(|said| said.value.trim_end_matches('/') != "/var/lib/etcd");
    if let Some(version) = scope.text("etcd_version", notes) {
        shared::own_version("etcd", &version, notes);
    }
    if let Some(said) = scope.text("etcd_quota_backend_bytes", notes) {
        match said.value.trim_end_matches(['G', 'i']).parse::<u64>() {
            Ok(number) => {
                let bytes = if said.value.ends_with(['G', 'i']) { number.saturating_mul(1 << 30) } else { number };
                draft.etcd_quota_gib = Some(Said::new(shared::quota_gib(bytes), said.key, said.place));
            }
            Err(_) => notes.add(
                &said.place,
                format!("etcd_quota_backend_bytes is not a number: {}", short(&said.value)),
                "write it under etcd.quotaGiB",
            ),
        }
    }
    if let Some(kind) = scope.text("etcd_deployment_type", notes).filter(|said| said.value != "host") {
        notes.add(
            &kind.place,
            format!("etcd is deployed by {} there, and as a systemd unit here", short(&kind.value)),
            "nothing",
        );
    }
    if scope.is_true("etcd_kubeadm_enabled", notes) == Some(true) {
        notes.add(
            place_of(scope, "etcd_kubeadm_enabled"),
            "etcd is deployed by kubeadm there, and as a systemd unit here",
            "nothing",
        );
    }
    for (key, flag, usual) in [
        ("etcd_heartbeat_interval", "heartbeat-interval", "250"),
        ("etcd_election_timeout", "election-timeout", "5000"),
        ("etcd_snapshot_count", "snapshot-count", ""),
    ] {
        if let Some(said) = scope.text(key, notes).filter(|said| said.value != usual) {
            shared::arg(draft, "etcd", flag, said, notes);
        }
    }
}
