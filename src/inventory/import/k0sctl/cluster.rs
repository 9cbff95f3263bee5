//! k0s' own configuration, which k0sctl carries within its file: the endpoint, networks, storage, flags of components.
//!
//! In: a ClusterConfig. Out: settings of the draft, and notes with the path of everything else.

use super::super::draft::{Draft, Said, Way};
use super::super::node::Node;
use super::super::notes::{Notes, short};
use super::super::shared;
use super::leave;
use std::net::Ipv4Addr;

/// Reads it.
pub fn cluster(config: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let Some(spec) = config.get("spec") else { return };
    let path = format!("{path}.spec");
    leave(config, path.trim_end_matches(".spec"), &["apiVersion", "kind", "metadata", "spec", "status"], notes);
    if let Some(network) = spec.get("network") {
        networks(network, &format!("{path}.network"), draft, notes);
    }
    if let Some(api) = spec.get("api") {
        api_server(api, &format!("{path}.api"), draft, notes);
    }
    if let Some(storage) = spec.get("storage") {
        stored(storage, &format!("{path}.storage"), draft, notes);
    }
    for (key, component) in [("controllerManager", "kube-controller-manager"), ("scheduler", "kube-scheduler")] {
        if let Some(node) = spec.get(key) {
            args(node, component, &format!("{path}.{key}"), draft, notes);
            leave(node, &format!("{path}.{key}"), &["extraArgs"], notes);
        }
    }
    profiles(spec, &path, draft, notes);
    let told: [(&str, &str, &str); 6] = [
        (
            "extensions",
            "charts and storage that k0s installs",
            "render charts with `helm template` into a folder, and name that under `manifests`",
        ),
        (
            "images",
            "other images for k0s' components",
            "name mirrors under registries.mirrors; hactl's own images are pinned",
        ),
        (
            "featureGates",
            "feature gates: they come and go with the versions",
            "write those that matter under extra.COMPONENT.args",
        ),
        ("konnectivity", "k0s' tunnel to its workers", "nothing: hactl's API servers reach every kubelet themselves"),
        ("installConfig", "the users that k0s runs its components as", "nothing: hactl has its own"),
        (
            "podSecurityPolicy",
            "PodSecurityPolicy, which Kubernetes removed",
            "label namespaces with pod-security.kubernetes.io/enforce",
        ),
    ];
    for (key, what, remedy) in told {
        if spec.get(key).is_some_and(|node| !is_idle(node)) {
            notes.add(format!("{path}.{key}"), format!("not carried over: {what}"), remedy);
        }
    }
    if spec.at(&["telemetry", "enabled"]).and_then(Node::as_bool) == Some(true) {
        notes.add(format!("{path}.telemetry"), "hactl sends no telemetry", "nothing");
    }
    let known = [
        "api",
        "network",
        "storage",
        "controllerManager",
        "scheduler",
        "workerProfiles",
        "telemetry",
        "extensions",
        "images",
        "featureGates",
        "konnectivity",
        "installConfig",
        "podSecurityPolicy",
    ];
    leave(spec, &path, &known, notes);
}

/// Whether a mapping asks for nothing: empty all the way down, or only numbers that it works with.
fn is_idle(node: &Node) -> bool {
    let idle =
        |(key, node): &(String, Node)| node.is_empty() || key == "concurrencyLevel" || node.is_map() && is_idle(node);
    node.is_empty() || node.is_map() && node.entries().iter().all(idle)
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Node::as_text).map(str::trim).filter(|text| !text.is_empty())
}

fn api_server(api: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let place = |key: &str| format!("{path}.{key}");
    let port = text(api, "port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0 && *port != 6443);
    if let Some(port) = port {
        draft.api_port = Some(Said::new(port, "api.port", place("port")));
        draft.endpoint_port = Some(Said::new(port, "api.port", place("port")));
    }
    if let Some(external) = text(api, "externalAddress") {
        if matches!(draft.endpoint, Some(Way::Vip(_))) {
            let said = Said::new(external, "api.externalAddress", place("externalAddress"));
            if external.parse::<Ipv4Addr>().is_err() {
                draft.endpoint_name = Some(said);
            } else {
                draft.sans.push(said);
            }
            notes.add(
                place("externalAddress"),
                "there is a virtual address as well, and it is the endpoint here",
                "use --external HOST:PORT if your own balancer is to be it",
            );
        } else {
            draft.endpoint = Some(Way::External(Said::new(external, "api.externalAddress", place("externalAddress"))));
        }
    }
    let own: Vec<&str> = [text(api, "externalAddress"), text(api, "address")].into_iter().flatten().collect();
    for san in api.get("sans").map(Node::items).unwrap_or_default().iter().filter_map(Node::as_text) {
        let of_host = draft.hosts.iter().any(|host| host.address.as_ref().is_some_and(|address| address.value == san));
        if !own.contains(&san) && !of_host {
            draft.sans.push(Said::new(san, "api.sans", place("sans")));
        }
    }
    args(api, "kube-apiserver", path, draft, notes);
    if text(api, "k0sApiPort").is_some_and(|port| port != "9443") {
        notes.add(place("k0sApiPort"), "k0s' own API does not exist here", "nothing; close that port at your balancer");
    }
    leave(api, path, &["address", "port", "externalAddress", "sans", "extraArgs", "k0sApiPort"], notes);
}

fn args(node: &Node, component: &'static str, path: &str, draft: &mut Draft, notes: &mut Notes) {
    for (flag, value) in node.get("extraArgs").map(Node::entries).unwrap_or_default() {
        let place = format!("{path}.extraArgs.{}", short(flag));
        match value.as_text() {
            Some(text) => shared::arg(draft, component, flag, Said::new(text, "", place), notes),
            None => notes.add(
                place,
                format!("{} is no single value: left out", short(flag)),
                format!("write it under extra.{component}.args"),
            ),
        }
    }
}

fn networks(network: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let said =
        |key: &str| text(network, key).map(|text| Said::new(text, format!("network.{key}"), format!("{path}.{key}")));
    draft.pods = said("podCIDR");
    draft.services = said("serviceCIDR");
    let provider =
        said("provider").unwrap_or_else(|| Said::new("kuberouter", "network.provider", format!("{path}.provider")));
    // k0s' own default is not flannel either: what the cluster had, this one has not.
    draft.cni = if provider.value == "kuberouter" {
        notes.add(&provider.place, "kube-router connects pods there, and flannel here", "nothing, unless you use its BGP or its network policies, which flannel does not have; then write `cni: none` and bring it");
        None
    } else {
        Some(shared::network_plugin(&provider, notes))
    };
    if let Some(domain) = said("clusterDomain").filter(|domain| domain.value != "cluster.local") {
        notes.add(
            &domain.place,
            format!("the DNS domain is {} there, and always cluster.local here", short(&domain.value)),
            "change what refers to the old one",
        );
    }
    if network.at(&["dualStack", "enabled"]).and_then(Node::as_bool) == Some(true) {
        notes.add(
            format!("{path}.dualStack"),
            "IPv6 and dual-stack are not supported in this version of hactl",
            "the new cluster is IPv4 alone",
        );
    }
    if let Some(proxy) = network.get("kubeProxy") {
        if proxy.get("disabled").and_then(Node::as_bool) == Some(true) {
            draft.kube_proxy =
                Some(Said::new("none", "network.kubeProxy.disabled", format!("{path}.kubeProxy.disabled")));
            notes.add(
                format!("{path}.kubeProxy.disabled"),
                "nobody implements Services until your network plugin does",
                "install one that does, or take kubeProxy: none out",
            );
        } else if let Some(mode) = text(proxy, "mode") {
            shared::proxy_mode(&Said::new(mode, "mode", format!("{path}.kubeProxy.mode")), notes);
        }
        leave(
            proxy,
            &format!("{path}.kubeProxy"),
            &["disabled", "mode", "iptables", "ipvs", "metricsBindAddress"],
            notes,
        );
    }
    if network.at(&["nodeLocalLoadBalancing", "enabled"]).and_then(Node::as_bool) == Some(true) {
        let place = format!("{path}.nodeLocalLoadBalancing");
        draft.endpoint = Some(Way::Local(Said::new((), "network.nodeLocalLoadBalancing", place)));
    }
    if let Some(balancing) = network.get("controlPlaneLoadBalancing")
        && balancing.get("enabled").and_then(Node::as_bool) != Some(false)
    {
        virtual_address(balancing, &format!("{path}.controlPlaneLoadBalancing"), draft, notes);
    }
    for plugin in ["calico", "kuberouter"] {
        if network.get(plugin).is_some_and(|node| !node.is_empty()) {
            notes.add(
                format!("{path}.{plugin}"),
                format!("settings of {plugin} are not carried over"),
                "they belong to its own manifests",
            );
        }
    }
    let known = [
        "podCIDR",
        "serviceCIDR",
        "provider",
        "clusterDomain",
        "dualStack",
        "kubeProxy",
        "nodeLocalLoadBalancing",
        "controlPlaneLoadBalancing",
        "calico",
        "kuberouter",
    ];
    leave(network, path, &known, notes);
}

/// k0s' keepalived becomes hactl's.
fn virtual_address(balancing: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let path = format!("{path}.keepalived");
    let instances = balancing.at(&["keepalived", "vrrpInstances"]).map(Node::items).unwrap_or_default();
    let mut addresses = Vec::new();
    for (index, instance) in instances.iter().enumerate() {
        let place = format!("{path}.vrrpInstances[{index}]");
        for address in instance.get("virtualIPs").map(Node::items).unwrap_or_default().iter().filter_map(Node::as_text)
        {
            addresses.push((index, address.split('/').next().unwrap_or(address).to_owned()));
        }
        if instance.get("authPass").is_some() {
            notes.add(
                format!("{place}.authPass"),
                "authPass is a password, and none is carried over",
                "nothing: hactl's keepalived speaks to the hosts of the inventory alone, by their addresses",
            );
        }
        leave(
            instance,
            &place,
            &[
                "virtualIPs",
                "interface",
                "virtualRouterID",
                "authPass",
                "advertIntervalSeconds",
                "unicastSourceIP",
                "unicastPeers",
            ],
            notes,
        );
    }
    let Some((first, address)) = addresses.first().cloned() else { return };
    let place = format!("{path}.vrrpInstances[{first}]");
    let instance = &instances[first];
    draft.endpoint = Some(Way::Vip(Said::new(address, "controlPlaneLoadBalancing", format!("{place}.virtualIPs"))));
    draft.interface = text(instance, "interface").map(|name| Said::new(name, "", format!("{place}.interface")));
    draft.vrid = text(instance, "virtualRouterID")
        .and_then(|id| id.parse::<u8>().ok())
        .map(|id| Said::new(id, "", format!("{place}.virtualRouterID")));
    if addresses.len() > 1 {
        let others: Vec<&str> = addresses[1..].iter().map(|(_, address)| address.as_str()).collect();
        notes.add(
            format!("{path}.vrrpInstances"),
            format!("hactl has one virtual address; left out: {}", super::super::notes::listed(&others, 8)),
            "move clients of the others to the first, or look after them yourself",
        );
    }
    if balancing.at(&["keepalived", "virtualServers"]).is_some_and(|servers| !servers.is_empty()) {
        notes.add(format!("{path}.virtualServers"), "keepalived balances there, and haproxy here", "nothing");
    }
}

fn stored(storage: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let kind = text(storage, "type").unwrap_or("etcd");
    if kind != "etcd" {
        notes.add(
            format!("{path}.type"),
            format!("the state lies in {} there, and always in etcd here", short(kind)),
            "3 or 5 controllers make a good etcd; what is stored now does not come along",
        );
    }
    if storage.at(&["etcd", "externalCluster"]).is_some() {
        notes.add(
            format!("{path}.etcd.externalCluster"),
            "etcd is somebody else's there, and hactl's own here: the control plane carries it",
            "give other hosts the role etcd, if it is to have machines of its own; what is stored now does not come along",
        );
    }
    if let Some(etcd) = storage.get("etcd") {
        for (flag, value) in etcd.get("extraArgs").map(Node::entries).unwrap_or_default() {
            let place = format!("{path}.etcd.extraArgs.{}", short(flag));
            let Some(value) = value.as_text() else { continue };
            match (flag.as_str(), value.parse::<u64>()) {
                ("quota-backend-bytes", Ok(bytes)) => {
                    let gib = u32::try_from(bytes.div_ceil(1 << 30)).unwrap_or(64).clamp(1, 64);
                    draft.etcd_quota_gib = Some(Said::new(gib, "quota-backend-bytes", place));
                }
                _ => shared::arg(draft, "etcd", flag, Said::new(value, "", place), notes),
            }
        }
        leave(etcd, &format!("{path}.etcd"), &["peerAddress", "externalCluster", "extraArgs"], notes);
    }
    leave(storage, path, &["type", "etcd", "kine"], notes);
}

fn profiles(spec: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    for (index, profile) in spec.get("workerProfiles").map(Node::items).unwrap_or_default().iter().enumerate() {
        let place = format!("{path}.workerProfiles[{index}]");
        let name = text(profile, "name").unwrap_or_default();
        match profile.get("values").map(Node::to_json) {
            Some(serde_json::Value::Object(fields)) if name == "default" => {
                shared::kubelet(draft, fields, "workerProfiles", &place, notes);
            }
            _ => notes.add(
                place,
                format!(
                    "the kubelets of one profile ({}) have settings of their own, and here all have the same",
                    short(name)
                ),
                "write what may hold for all of them under extra.kubelet.config",
            ),
        }
    }
}
