//! `spec.network` of k0s' configuration: ranges, the plugin, kube-proxy, and k0s' two balancers.
//!
//! In: the mapping. Out: settings of the draft, and notes with the path of everything else.

use super::super::draft::{Draft, Said, Way};
use super::super::node::{Node, truth};
use super::super::notes::{Notes, listed, short};
use super::super::shared;
use super::cluster::replaced;
use super::leave;

/// Reads it.
pub fn networks(network: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let said =
        |key: &str| network.word(key).map(|text| Said::new(text, format!("network.{key}"), format!("{path}.{key}")));
    draft.pods = said("podCIDR");
    draft.services = said("serviceCIDR");
    draft.cni = match said("provider").filter(|provider| provider.value != "kuberouter") {
        Some(provider) => Some(shared::network_plugin(&provider, notes)),
        None => {
            kube_router(path, notes);
            None
        }
    };
    if let Some(domain) = said("clusterDomain").filter(|domain| domain.value != "cluster.local") {
        notes.add(
            &domain.place,
            format!("the DNS domain is {} there, and always cluster.local here", short(&domain.value)),
            "change references to the old domain",
        );
    }
    if network.at(&["dualStack", "enabled"]).and_then(Node::as_bool) == Some(true) {
        shared::no_ipv6(&format!("{path}.dualStack"), notes);
    }
    if let Some(proxy) = network.get("kubeProxy") {
        kube_proxy(proxy, &format!("{path}.kubeProxy"), draft, notes);
    }
    if let Some(balancing) = network.get("nodeLocalLoadBalancing")
        && balancing.is_true("enabled")
    {
        let place = format!("{path}.nodeLocalLoadBalancing");
        leave(balancing, &place, "enabled type", notes);
        draft.endpoint = Some(Way::Local(Said::new((), "network.nodeLocalLoadBalancing", place)));
    }
    if let Some(balancing) = network.get("controlPlaneLoadBalancing").filter(|balancing| !balancing.is_empty())
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
    let known = "podCIDR serviceCIDR provider clusterDomain dualStack kubeProxy \
                 nodeLocalLoadBalancing controlPlaneLoadBalancing calico kuberouter";
    leave(network, path, known, notes);
}

/// k0s' default is not flannel: the new cluster lacks some of its features.
pub fn kube_router(path: &str, notes: &mut Notes) {
    notes.add(
        format!("{path}.provider"),
        "kube-router connects pods there, and flannel here",
        "nothing, unless you use its BGP or network policies, which flannel lacks; then set `cni: none` and install it",
    );
}

fn kube_proxy(proxy: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    leave(proxy, path, "disabled mode iptables ipvs nftables metricsBindAddress nodePortAddresses", notes);
    if proxy.is_true("disabled") {
        draft.kube_proxy = Some(Said::new("none", "network.kubeProxy.disabled", format!("{path}.disabled")));
        shared::no_kube_proxy(&format!("{path}.disabled"), notes);
        return;
    }
    if let Some(mode) = proxy.word("mode") {
        shared::proxy_mode(&Said::new(mode, "mode", format!("{path}.mode")), notes);
    }
    for mode in ["iptables", "ipvs"] {
        if proxy.get(mode).is_some_and(|node| !at_rest(node)) {
            notes.add(
                format!("{path}.{mode}"),
                format!("kube-proxy's settings for {mode} are not carried over: it uses nftables here"),
                "nothing, or write the settings that you need as nftables under extra.kube-proxy.config",
            );
        }
    }
    for key in ["nftables", "metricsBindAddress", "nodePortAddresses"] {
        if proxy.get(key).is_some_and(|node| !at_rest(node)) {
            notes.add(
                format!("{path}.{key}"),
                format!("kube-proxy's {key} is not carried over"),
                format!("write {key} under extra.kube-proxy.config"),
            );
        }
    }
}

/// Whether it contains no settings, as in the output of `k0s config create`.
fn at_rest(node: &Node) -> bool {
    let nothing = |text: &str| truth(text) == Some(false) || text == "0s";
    node.is_empty()
        || node.as_text().is_some_and(nothing)
        || node.is_map() && node.entries().iter().all(|(_, node)| at_rest(node))
}

/// k0s' keepalived becomes hactl's.
fn virtual_address(balancing: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    leave(balancing, path, "enabled type keepalived", notes);
    if let Some(kind) = balancing.word("type").filter(|kind| !kind.eq_ignore_ascii_case("keepalived")) {
        notes.add(
            format!("{path}.type"),
            format!("{} manages the virtual address there, and keepalived here", short(kind)),
            "nothing",
        );
    }
    let top = path;
    let path = format!("{path}.keepalived");
    if let Some(keepalived) = balancing.get("keepalived") {
        leave(keepalived, &path, "vrrpInstances virtualServers", notes);
    }
    let instances = balancing.at(&["keepalived", "vrrpInstances"]).map(Node::items).unwrap_or_default();
    let mut addresses = Vec::new();
    for (index, given) in instances.iter().enumerate() {
        instance(given, &format!("{path}.vrrpInstances[{index}]"), notes);
        for address in given.items_of("virtualIPs").iter().filter_map(Node::as_text) {
            addresses.push((index, address.split('/').next().unwrap_or(address).to_owned()));
        }
    }
    if balancing.at(&["keepalived", "virtualServers"]).is_some_and(|servers| !servers.is_empty()) {
        notes.add(format!("{path}.virtualServers"), "keepalived balances there, and haproxy here", "nothing");
    }
    let Some((first, address)) = addresses.first().cloned() else {
        notes.endpoint(
            top,
            "controlPlaneLoadBalancing has no virtual address: left out",
            "set one with --vip ADDRESS, if you want one",
        );
        return;
    };
    let place = format!("{path}.vrrpInstances[{first}]");
    let given = &instances[first];
    replaced(draft, "the virtual address", notes);
    draft.endpoint = Some(Way::Vip(Said::new(address, "controlPlaneLoadBalancing", format!("{place}.virtualIPs"))));
    draft.interface = given.word("interface").map(|name| Said::new(name, "", format!("{place}.interface")));
    draft.vrid = given.word("virtualRouterID").and_then(|id| {
        let place = format!("{place}.virtualRouterID");
        let id = id.parse::<u8>().ok().filter(|id| *id > 0);
        if id.is_none() {
            notes.add(
                &place,
                "virtualRouterID is not a number from 1 to 255: left out",
                "write one under endpoint.vrid, or use hactl's default",
            );
        }
        Some(Said::new(id?, "", place))
    });
    if addresses.len() > 1 {
        let others: Vec<&str> = addresses[1..].iter().map(|(_, address)| address.as_str()).collect();
        notes.add(
            format!("{path}.vrrpInstances"),
            format!("hactl has one virtual address; left out: {}", listed(&others, 8)),
            "move clients of the others to the first, or manage the others yourself",
        );
    }
}

/// The settings of a keepalived instance besides its addresses.
fn instance(given: &Node, place: &str, notes: &mut Notes) {
    if given.get("authPass").is_some() {
        notes.add(
            format!("{place}.authPass"),
            "authPass is a password, and passwords are not carried over",
            "nothing: hactl's keepalived talks only to the hosts of the inventory, by their addresses",
        );
    }
    let speaking = ["advertIntervalSeconds", "unicastSourceIP", "unicastPeers"];
    let speaking: Vec<&str> =
        speaking.into_iter().filter(|key| given.get(key).is_some_and(|node| !node.is_empty())).collect();
    if !speaking.is_empty() {
        notes.add(
            place,
            format!("keepalived's settings for advertisements are not carried over: {}", listed(&speaking, 3)),
            "nothing: hactl's keepalived sends them to the balancers of the inventory only, five times a second",
        );
    }
    let known = "virtualIPs interface virtualRouterID authPass \
                 advertIntervalSeconds unicastSourceIP unicastPeers";
    leave(given, place, known, notes);
}
