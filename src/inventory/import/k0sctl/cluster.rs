//! The k0s configuration inside k0sctl's file: the endpoint, storage, flags of components; `network` has the rest.
//!
//! In: a ClusterConfig. Out: settings of the draft, and notes with the path of everything else.

use super::super::draft::{Draft, Said, Way};
use super::super::node::Node;
use super::super::notes::{Notes, short, table};
use super::super::shared;
use super::hosts::port;
use super::{leave, network};
use std::net::Ipv4Addr;

/// Settings without a key in hactl.
const LEFT_OUT: &str = "\
extensions: charts and storage that k0s installs
  render charts with `helm template` into a folder, and name that under `manifests`
images: other images for k0s' components
  set mirrors under registries.mirrors; hactl's own images are pinned
featureGates: feature gates, which depend on the version
  write those that you need under extra.COMPONENT.args
konnectivity: k0s' tunnel to its workers
  nothing: hactl's API servers reach every kubelet directly
installConfig: the users that k0s runs its components as
  nothing: hactl has its own
podSecurityPolicy: PodSecurityPolicy, which Kubernetes removed
  label namespaces with pod-security.kubernetes.io/enforce";

/// Reads it.
pub fn cluster(config: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    leave(config, path, "apiVersion kind metadata spec status", notes);
    let Some(spec) = config.get("spec") else { return };
    let path = format!("{path}.spec");
    if let Some(networks) = spec.get("network") {
        network::networks(networks, &format!("{path}.network"), draft, notes);
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
            leave(node, &format!("{path}.{key}"), "extraArgs", notes);
        }
    }
    profiles(spec, &path, draft, notes);
    for (key, what, remedy) in table(LEFT_OUT) {
        if spec.get(key).is_some_and(|node| !is_idle(node)) {
            notes.add(format!("{path}.{key}"), format!("not carried over: {what}"), remedy);
        }
    }
    if spec.at(&["telemetry", "enabled"]).and_then(Node::as_bool) == Some(true) {
        notes.add(format!("{path}.telemetry"), "hactl sends no telemetry", "nothing");
    }
    let known = "api network storage controllerManager scheduler workerProfiles telemetry \
                 extensions images featureGates konnectivity installConfig podSecurityPolicy";
    leave(spec, &path, known, notes);
}

/// Whether a mapping has no settings: empty at all levels, or only numbers for concurrency.
fn is_idle(node: &Node) -> bool {
    let idle =
        |(key, node): &(String, Node)| node.is_empty() || key == "concurrencyLevel" || node.is_map() && is_idle(node);
    node.is_empty() || node.is_map() && node.entries().iter().all(idle)
}

/// Reports a balancer on every Node that another endpoint replaces.
pub fn replaced(draft: &Draft, by: &str, notes: &mut Notes) {
    if let Some(Way::Local(said)) = &draft.endpoint {
        notes.endpoint(
            &said.place,
            format!("there is a balancer on every Node and {by} as well: here the endpoint is {by}"),
            "nothing, or use --local for the balancer on every Node",
        );
    }
}

/// Whether one of the hosts has this address, which is then converted with the host.
fn is_hosts(draft: &Draft, address: &str) -> bool {
    draft.hosts.iter().any(|host| host.address.as_ref().is_some_and(|said| said.value == address))
}

fn api_server(api: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let place = |key: &str| format!("{path}.{key}");
    if let Some(port) = port(api, path, notes).filter(|port| port.value != 6443) {
        let port = Said { key: "api.port".to_owned(), ..port };
        draft.api_port = Some(port.clone());
        draft.endpoint_port = Some(port);
    }
    if let Some(address) = api.word("address").filter(|address| !is_hosts(draft, address)) {
        notes.add(
            place("address"),
            format!("the API server's address is {} there, and the address of its host here", short(address)),
            "check that the other hosts reach hosts[].address; names for certificates go under endpoint.sans",
        );
    }
    if let Some(external) = api.word("externalAddress") {
        if matches!(draft.endpoint, Some(Way::Vip(_))) {
            let said = Said::new(external, "api.externalAddress", place("externalAddress"));
            if external.parse::<Ipv4Addr>().is_err() {
                draft.endpoint_name = Some(said);
            } else {
                draft.sans.push(said);
            }
            notes.endpoint(
                place("externalAddress"),
                "there is a virtual address as well, which is the endpoint here",
                "use --external HOST:PORT for your own balancer",
            );
        } else {
            replaced(draft, "the external address", notes);
            draft.endpoint = Some(Way::External(Said::new(external, "api.externalAddress", place("externalAddress"))));
        }
    }
    let own: Vec<&str> = [api.word("externalAddress"), api.word("address")].into_iter().flatten().collect();
    for san in api.items_of("sans").iter().filter_map(Node::as_text) {
        if !own.contains(&san) && !is_hosts(draft, san) {
            draft.sans.push(Said::new(san, "api.sans", place("sans")));
        }
    }
    args(api, "kube-apiserver", path, draft, notes);
    if api.word("k0sApiPort").is_some_and(|port| port != "9443") {
        notes.add(place("k0sApiPort"), "k0s' own API does not exist here", "nothing; close that port at your balancer");
    }
    leave(api, path, "address port externalAddress sans extraArgs k0sApiPort", notes);
}

fn args(node: &Node, component: &'static str, path: &str, draft: &mut Draft, notes: &mut Notes) {
    for (flag, value) in node.entries_of("extraArgs") {
        shared::arg_of(draft, component, flag, value, ("", format!("{path}.extraArgs.{}", short(flag))), notes);
    }
}

fn stored(storage: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    let kind = storage.word("type").unwrap_or("etcd");
    if kind != "etcd" {
        notes.add(
            format!("{path}.type"),
            format!("the state is stored in {} there, and always in etcd here", short(kind)),
            "use 3 or 5 controllers for etcd; existing data is not migrated",
        );
    }
    if storage.at(&["etcd", "externalCluster"]).is_some() {
        notes.add(
            format!("{path}.etcd.externalCluster"),
            "etcd is external there, and managed by hactl here, on the control-plane hosts",
            "add the role etcd to other hosts, if etcd should have its own machines; existing data is not migrated",
        );
    }
    if let Some(etcd) = storage.get("etcd") {
        for (flag, value) in etcd.entries_of("extraArgs") {
            let place = format!("{path}.etcd.extraArgs.{}", short(flag));
            match (flag.as_str(), value.as_text().map(str::parse::<u64>)) {
                ("quota-backend-bytes", Some(Ok(bytes))) => {
                    draft.etcd_quota_gib = Some(Said::new(shared::quota_gib(bytes), "quota-backend-bytes", place));
                }
                _ => shared::arg_of(draft, "etcd", flag, value, ("", place), notes),
            }
        }
        if let Some(peer) = etcd.word("peerAddress").filter(|peer| !is_hosts(draft, peer)) {
            notes.add(
                format!("{path}.etcd.peerAddress"),
                format!("an etcd member's peer address is {} there, and the address of its host here", short(peer)),
                "write the address that etcd members use for each other under hosts[].address",
            );
        }
        leave(etcd, &format!("{path}.etcd"), "peerAddress externalCluster extraArgs", notes);
    }
    leave(storage, path, "type etcd kine", notes);
}

fn profiles(spec: &Node, path: &str, draft: &mut Draft, notes: &mut Notes) {
    for (index, profile) in spec.items_of("workerProfiles").iter().enumerate() {
        let place = format!("{path}.workerProfiles[{index}]");
        let name = profile.word("name").unwrap_or_default();
        match profile.get("values").map(Node::to_json) {
            Some(serde_json::Value::Object(fields)) if name == "default" => {
                shared::kubelet(draft, fields, "workerProfiles", &place, notes);
            }
            _ => notes.add(
                place,
                format!(
                    "the kubelets of the profile {} have their own settings, and here all kubelets have the same",
                    short(name)
                ),
                "write settings that can apply to all of them under extra.kubelet.config",
            ),
        }
    }
}
