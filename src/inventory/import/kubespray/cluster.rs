//! Kubespray's variables that hactl has keys for: versions, networks, the endpoint, proxies, mirrors, flags.
//!
//! In: the variables of a control-plane host. Out: settings of the draft.

use super::super::ansible::scope::Scope;
use super::super::draft::{Draft, Said, Way};
use super::super::node::Node;
use super::super::notes::{Notes, short};
use super::super::shared;

/// The port that goes without saying.
const PORT: u16 = 6443;

/// Reads what concerns the cluster as a whole.
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
                format!("{key} is the DNS domain {} there; here that is always cluster.local", short(&domain.value)),
                "change what refers to the old one; the cluster's own name is --cluster NAME",
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
        let v4 = said.value.split(',').map(str::trim).find(|range| !range.contains(':'))?.to_owned();
        Some(Said { value: v4, ..said })
    };
    draft.pods = range(&["kube_pods_subnet", "kube_pods_subnets"], notes);
    draft.services = range(&["kube_service_addresses", "kube_service_subnets"], notes);
    if let Some(plugin) = scope.text("kube_network_plugin", notes) {
        draft.cni = Some(shared::network_plugin(&plugin, notes));
    }
    if let Some(mode) = scope.text("kube_proxy_mode", notes) {
        shared::proxy_mode(&mode, notes);
    }
    if let Some(said) =
        scope.text("kube_proxy_remove", notes).filter(|said| super::super::node::truth(&said.value) == Some(true))
    {
        notes.add(
            &said.place,
            "nobody implements Services until your network plugin does",
            "install one that does, or take kubeProxy: none out",
        );
        draft.kube_proxy = Some(Said::new("none", "kube_proxy_remove", said.place));
    }
    if let Some(prefix) = scope.text("kube_network_node_prefix", notes).filter(|said| said.value != "24") {
        notes.add(
            &prefix.place,
            format!("each node takes a /{} of the pod range there, and a /24 here", short(&prefix.value)),
            "see that network.pods has a /24 for every node",
        );
    }
    for key in ["enable_dual_stack_networks", "ipv6_stack"] {
        if let Some(said) = scope.text(key, notes).filter(|said| super::super::node::truth(&said.value) == Some(true)) {
            notes.add(
                &said.place,
                "IPv6 and dual-stack are not supported in this version of hactl",
                "the new cluster is IPv4 alone",
            );
        }
    }
    for key in ["kube_pods_subnet_ipv6", "kube_service_addresses_ipv6", "kube_network_node_prefix_ipv6"] {
        scope.raw(key);
    }
}

fn endpoint(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    let api = scope.port(&["kube_apiserver_port"], notes);
    draft.api_port = api.clone().filter(|port| port.value != PORT);
    let domain = scope.text("apiserver_loadbalancer_domain_name", notes);
    let vip = scope.is_true("kube_vip_enabled", notes) == Some(true)
        && scope.is_true("kube_vip_controlplane_enabled", notes) != Some(false);
    let address = scope.text("kube_vip_address", notes).filter(|_| vip);
    let interface = scope.text("kube_vip_interface", notes);
    let outside = scope.node("loadbalancer_apiserver", notes);
    let inside = |key: &str| {
        outside.as_ref().and_then(|var| Some((var.node.get(key)?.as_text()?.trim().to_owned(), var.place.clone())))
    };
    let port = inside("port")
        .and_then(|(port, place)| Some(Said::new(port.parse::<u16>().ok()?, "loadbalancer_apiserver.port", place)));
    let local = scope.is_true("loadbalancer_apiserver_localhost", notes);
    let local_port = scope.port(&["loadbalancer_apiserver_port"], notes);
    if scope.is_true("kube_vip_services_enabled", notes) == Some(true) {
        notes.add(
            place_of(scope, "kube_vip_services_enabled"),
            "kube-vip gives addresses to Services there; hactl has nothing for that",
            "install MetalLB, kube-vip or Cilium's own, as a manifest",
        );
    }
    draft.endpoint_name = domain.filter(|said| said.value != "lb-apiserver.kubernetes.local");
    if let Some(vip) = address {
        draft.endpoint = Some(Way::Vip(vip));
        draft.interface = interface;
        draft.endpoint_port = port.or(api).filter(|port| port.value != PORT);
    } else if let Some((host, place)) = inside("address") {
        let port = port.map(|said| said.value).or(api.map(|said| said.value)).unwrap_or(PORT);
        draft.endpoint = Some(Way::External(Said::new(format!("{host}:{port}"), "loadbalancer_apiserver", place)));
    } else {
        let place = scope.raw("loadbalancer_apiserver_localhost").map(|var| var.place.clone());
        if local == Some(false) {
            notes.add(place.unwrap_or_default(), "there is no load balancer there: all clients have the first control-plane host's API server, and lose it with that host", "choose an endpoint: --vip, --external or --local");
        } else {
            if place.is_none() {
                notes.add(
                    &draft.file,
                    "nothing says where clients find the API, so every node has a balancer of its own, as with Kubespray",
                    "for an address that people can use as well give --vip ADDRESS or --external HOST:PORT",
                );
            }
            draft.endpoint = Some(Way::Local(Said::new(
                (),
                "loadbalancer_apiserver_localhost",
                place.unwrap_or_else(|| draft.file.clone()),
            )));
            draft.endpoint_port = local_port.or(api).filter(|port| port.value != PORT);
        }
    }
    draft.sans = scope.list("supplementary_addresses_in_ssl_keys", notes);
}

fn place_of(scope: &Scope<'_>, key: &str) -> String {
    scope.raw(key).map(|var| var.place.clone()).unwrap_or_default()
}

fn proxy(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    draft.http_proxy = scope.text("http_proxy", notes).and_then(|said| shared::url(said, notes));
    draft.https_proxy = scope.text("https_proxy", notes).and_then(|said| shared::url(said, notes));
    for key in ["no_proxy", "additional_no_proxy"] {
        let list = scope.list(key, notes);
        shared::no_proxy(draft, list, notes);
    }
}

fn mirrors(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    let mut add = |registry: &str, url: &str, place: &str, notes: &mut Notes| {
        let Some(said) = shared::url(Said::new(url.trim(), "containerd_registries_mirrors", place), notes) else {
            return;
        };
        match draft.mirrors.iter_mut().find(|(name, _)| name == registry) {
            Some((_, urls)) => urls.push(said),
            None => draft.mirrors.push((registry.to_owned(), vec![said])),
        }
    };
    for key in ["containerd_registries_mirrors", "containerd_registries"] {
        let Some(var) = scope.node(key, notes) else { continue };
        for item in var.node.items() {
            let Some(registry) = item.get("prefix").and_then(Node::as_text) else { continue };
            for mirror in item.get("mirrors").map(Node::items).unwrap_or_default() {
                let Some(url) = mirror.get("host").and_then(Node::as_text) else { continue };
                add(registry, url, &var.place, notes);
                if mirror.get("skip_verify").and_then(Node::as_bool) == Some(true) && url.starts_with("https://") {
                    notes.add(
                        &var.place,
                        format!(
                            "the certificate of {} is not looked at there, and always is here",
                            short(url.trim_start_matches("https://"))
                        ),
                        "name the PEM file of its authority under registries.ca",
                    );
                }
                for more in ["ca", "client", "header"] {
                    if mirror.get(more).is_some_and(|node| !node.is_empty()) {
                        notes.add(
                            &var.place,
                            format!("{more} of a mirror is not carried over"),
                            "authorities go under registries.ca, logins under registries.credentials, as files",
                        );
                    }
                }
            }
        }
        // As older releases had it: registry to one or more addresses.
        for (registry, urls) in var.node.entries() {
            for url in urls.as_text().into_iter().chain(urls.items().iter().filter_map(Node::as_text)) {
                add(registry, url, &var.place, notes);
            }
        }
    }
    if let Some(var) = scope.raw("containerd_registry_auth").filter(|var| !var.node.is_empty()) {
        notes.add(
            &var.place,
            "containerd_registry_auth holds passwords, and none is carried over",
            "write user:password into a file for each registry, and name it under registries.credentials",
        );
    }
    if let Some(var) = scope.raw("containerd_insecure_registries").filter(|var| !var.node.is_empty()) {
        notes.add(
            &var.place,
            "registries are used without looking at their certificates there",
            "write a mirror with http://, or name the authority under registries.ca",
        );
    }
}

fn components(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    for (key, component) in [
        ("kube_kubeadm_apiserver_extra_args", "kube-apiserver"),
        ("kube_kubeadm_controller_extra_args", "kube-controller-manager"),
        ("kube_kubeadm_scheduler_extra_args", "kube-scheduler"),
    ] {
        let Some(var) = scope.node(key, notes) else { continue };
        for (flag, value) in var.node.entries() {
            match value.as_text() {
                Some(text) => shared::arg(draft, component, flag, Said::new(text, key, &*var.place), notes),
                None => notes.add(
                    &var.place,
                    format!("{} is no single value: left out", short(flag)),
                    format!("write it under extra.{component}.args"),
                ),
            }
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
    if let Some(var) = scope.node("kubelet_config_extra_args", notes)
        && let serde_json::Value::Object(fields) = var.node.to_json()
    {
        shared::kubelet(draft, fields, "kubelet_config_extra_args", &var.place, notes);
    }
    if let Some(pods) = scope.text("kubelet_max_pods", notes).filter(|said| said.value != "110")
        && let Ok(number) = pods.value.parse::<u16>()
    {
        let fields = [("maxPods".to_owned(), number.into())].into_iter().collect();
        shared::kubelet(draft, fields, "kubelet_max_pods", &pods.place, notes);
    }
}

/// Reads what concerns etcd.
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
                let gib = u32::try_from(bytes.div_ceil(1 << 30)).unwrap_or(64).clamp(1, 64);
                draft.etcd_quota_gib = Some(Said::new(gib, said.key, said.place));
            }
            Err(_) => notes.add(
                &said.place,
                format!("etcd_quota_backend_bytes is no number: {}", short(&said.value)),
                "write it under etcd.quotaGiB",
            ),
        }
    }
    if let Some(kind) = scope.text("etcd_deployment_type", notes).filter(|said| said.value != "host") {
        notes.add(
            &kind.place,
            format!("etcd runs by {} there, and as a unit of systemd here", short(&kind.value)),
            "nothing",
        );
    }
    if scope.is_true("etcd_kubeadm_enabled", notes) == Some(true) {
        notes.add(
            place_of(scope, "etcd_kubeadm_enabled"),
            "etcd runs by kubeadm there, and as a unit of systemd here",
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
