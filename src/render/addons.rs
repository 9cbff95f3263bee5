//! The Kubernetes objects that hactl keeps applied: RBAC, the canary, Node labels, network, Services, DNS, the budget of
//! the control plane.
//!
//! In: the desired state and the bundle's images. Out: [`Addon`]s in the order they are applied. The objects have the
//! form in which the API server returns them, so that the comparison needs few exceptions (`kube::drift`).

use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::views::drain_rules::DrainRules;
use super::views::maintenance::{Controllers, Maintenances};
use super::views::quorum::Quorum;
use super::views::{Nothing, addons as view, flags, kubelet};
use super::{RenderError, hosting, input, table, text, yaml};
use crate::model::desired::{Desired, Role};
use crate::model::names::Digest;
use crate::model::target::{Addon, NODES, Part, Place, identity, object_key};

/// The add-on of cluster DNS.
pub(super) const COREDNS: &str = "coredns";

/// Overhead of VXLAN over IPv4 per packet.
const VXLAN_OVERHEAD: u16 = 50;

/// One embedded manifest.
pub(super) struct Manifest {
    /// Its path in the repository.
    pub template: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! manifest {
    ($template:literal) => {
        Manifest { template: $template, text: include_str!(concat!("../../", $template)) }
    };
}

static RBAC: Manifest = manifest!("manifests/rbac.yaml");
static CANARY: Manifest = manifest!("manifests/canary.yaml");
static METRICS: Manifest = manifest!("manifests/metrics.yaml");
static NODE: Manifest = manifest!("manifests/node.yaml");
static FLANNEL: Manifest = manifest!("manifests/flannel.yaml");
static KUBE_PROXY: Manifest = manifest!("manifests/kube-proxy.yaml");
static KUBE_PROXY_CONFIG: Manifest = manifest!("templates/addons/kube-proxy.yaml");
static CORE_DNS: Manifest = manifest!("manifests/coredns.yaml");
/// Beside the `DaemonSets` of a self-hosted control plane.
pub(super) static HOSTING: Manifest = manifest!("manifests/hosting.yaml");
static QUORUM: Manifest = manifest!("manifests/quorum.yaml");
static DRAIN_RULES: Manifest = manifest!("manifests/lifecycle/drain-rules.yaml");
static MAINTENANCES: Manifest = manifest!("manifests/lifecycle/node-maintenances.yaml");
static ROLLOUTS: Manifest = manifest!("manifests/lifecycle/node-maintenance-rollouts.yaml");
static EVICTION_REQUESTS: Manifest = manifest!("manifests/lifecycle/eviction-requests.yaml");
static CONTROLLERS: Manifest = manifest!("manifests/lifecycle/controllers.yaml");
static COREFILE: Manifest = manifest!("templates/addons/Corefile");

/// All of them, for the test that compares them with the directories.
#[cfg(test)]
pub(super) static MANIFESTS: &[&Manifest] = &[
    &RBAC,
    &CANARY,
    &METRICS,
    &NODE,
    &FLANNEL,
    &KUBE_PROXY,
    &KUBE_PROXY_CONFIG,
    &CORE_DNS,
    &HOSTING,
    &QUORUM,
    &DRAIN_RULES,
    &MAINTENANCES,
    &ROLLOUTS,
    &EVICTION_REQUESTS,
    &CONTROLLERS,
    &COREFILE,
];

impl Manifest {
    /// Its objects, if nothing in it is to be filled in.
    pub(super) fn objects(&self) -> Result<Vec<Value>, RenderError> {
        yaml::parse_all(self.template, &self.text(&Nothing {})?)
    }
    fn text<V: serde::Serialize>(&self, view: &V) -> Result<String, RenderError> {
        text::fill(self.template, self.text, view)
    }
    fn addon<V: serde::Serialize>(&self, name: &str, needed_for_ready: bool, view: &V) -> Result<Addon, RenderError> {
        let objects = yaml::parse_all(self.template, &self.text(view)?)?;
        Ok(Addon { name: name.to_owned(), objects, needed_for_ready })
    }
}

/// The add-ons, in the order they are applied; `parts` are the parts of any node.
pub fn addons(desired: &Desired, parts: &[Part]) -> Result<Vec<Addon>, RenderError> {
    let image = |name: &str| {
        input::image(parts, name).ok_or_else(|| RenderError::MissingPart {
            kind: "image",
            name: name.to_owned(),
            host: "the cluster".to_owned(),
        })
    };
    let (host, port) = (desired.endpoint.host(), desired.endpoint.port.to_string());
    let mut addons = vec![RBAC.addon("rbac", false, &Nothing {})?, CANARY.addon("canary", false, &Nothing {})?];
    if desired.metrics {
        addons.push(METRICS.addon("metrics", false, &Nothing {})?);
    }
    if table::flannel(desired) {
        let (cni_conf, net_conf) = (cni_conf(), net_conf(desired));
        let reads = Digest::of(format!("{cni_conf}{net_conf}").as_bytes()).short();
        let probe = flannel_probe(desired.network.mtu);
        let view = view::Flannel {
            image: image("flannel")?,
            host: host.clone(),
            port: port.clone(),
            cni_conf,
            net_conf,
            command: format!(
                "while sleep 10; do [ -e {CNI_CONF} ] || {{ {probe}; }}; done & exec /opt/bin/flanneld \"$@\""
            ),
            probe,
            reads,
            addresses: addresses(desired),
        };
        addons.push(FLANNEL.addon("flannel", true, &view)?);
    }
    if table::kube_proxy(desired) {
        let config = kube_proxy_config(desired)?;
        let reads = Digest::of(config.as_bytes()).short();
        let own = [("config", "/var/lib/kube-proxy/config.yaml"), ("hostname-override", "$(NODE_NAME)")];
        let flags = flags(desired, "kube-proxy", own.map(|(name, value)| (name, value.to_owned())));
        let view = view::KubeProxy { image: image("kube-proxy")?, host, port, config, reads, flags };
        addons.push(KUBE_PROXY.addon("kube-proxy", false, &view)?);
    }
    let nodes = desired.hosts.iter().filter(|host| host.is_node()).count();
    let view = view::CoreDns {
        image: image("coredns")?,
        corefile: COREFILE.text(&Nothing {})?,
        dns: desired.dns_address().to_string(),
        replicas: nodes.clamp(1, 2),
    };
    addons.push(CORE_DNS.addon(COREDNS, false, &view)?);
    addons.push(DRAIN_RULES.addon("drain-rules", false, &DrainRules::new())?);
    addons.push(MAINTENANCES.addon("maintenances", false, &Maintenances::new())?);
    addons.push(ROLLOUTS.addon("rollouts", false, &Maintenances::new())?);
    addons.push(EVICTION_REQUESTS.addon("eviction-requests", false, &Nothing {})?);
    if let Some(view) = Controllers::of(desired) {
        addons.push(CONTROLLERS.addon("controllers", false, &view)?);
    }
    addons.push(QUORUM.addon("quorum", false, &Quorum::of(desired, image("pause")?))?);
    addons.extend(hosting::named(desired)?);
    addons.push(node_labels(desired)?);
    Ok(addons)
}

/// The objects of hactl: identity and add-on.
pub fn owned(desired: &Desired) -> Result<Vec<(String, String)>, RenderError> {
    // The names of images do not affect the names of objects.
    let part = |name: &str| Part {
        name: name.to_owned(),
        version: String::new(),
        digest: Digest::of(b""),
        size: 0,
        sent_digest: Digest::of(b""),
        sent_size: 0,
        place: Place::Image { reference: name.to_owned() },
    };
    let parts: Vec<Part> = ["flannel", "kube-proxy", "coredns", "pause"].map(part).into();
    let addons = addons(desired, &parts)?;
    let all = addons.iter().flat_map(|addon| addon.objects.iter().map(|object| (object, addon.name.clone())));
    Ok(all.map(|(object, addon)| (identity(&object_key(object)), addon)).collect())
}

/// Labels and taints of all Nodes: those that a kubelet may not set on itself, and those that were changed after it
/// joined.
fn node_labels(desired: &Desired) -> Result<Addon, RenderError> {
    let mut objects = Vec::new();
    for host in desired.hosts.iter().filter(|host| host.is(Role::ControlPlane) || host.is(Role::Worker)) {
        let (labels, taints) = (kubelet::labels(host), kubelet::taints(desired, host));
        let view = view::Node::new(host, labels, &taints, table::flannel(desired));
        objects.append(&mut NODE.addon("", false, &view)?.objects);
    }
    Ok(Addon { name: NODES.to_owned(), objects, needed_for_ready: false })
}

/// The address at which other hosts reach the pods of each host. A Node that is removed keeps its address, because
/// flannel does not change it; if it were listed, the policy would differ again after its removal.
fn addresses(desired: &Desired) -> String {
    let nodes = desired.hosts.iter().filter(|host| host.is_node());
    let map: BTreeMap<String, String> = nodes.map(|h| (h.name.to_string(), h.address.to_string())).collect();
    json!(map).to_string()
}

fn cni_conf() -> String {
    let conf = json!({
        "name": "cbr0",
        // flannel's plugin supports no version newer than 0.4.0.
        "cniVersion": "0.3.1",
        "plugins": [
            {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    });
    format!("{conf:#}\n")
}

fn net_conf(desired: &Desired) -> String {
    let mut backend = json!({"Type": "vxlan"});
    if let Some(mtu) = desired.network.mtu {
        // flannel takes the MTU outside the tunnel, the inventory has that of the pods.
        backend["MTU"] = json!(mtu + VXLAN_OVERHEAD);
    }
    let conf = json!({
        "Network": desired.network.pods.to_string(),
        "EnableNFTables": true,
        "Backend": backend,
    });
    format!("{conf:#}\n")
}

/// The file by which containerd loads the network.
const CNI_CONF: &str = "/etc/cni/net.d/10-flannel.conflist";

/// The startup probe of flannel: it waits until flannel knows its subnet, sets the wanted MTU on existing interfaces
/// (flannel leaves them unchanged), and makes containerd load the network.
fn flannel_probe(mtu: Option<u16>) -> String {
    let known = "until [ -s /run/flannel/subnet.env ]; do sleep 0.1; done";
    let resize = mtu.map_or_else(String::new, |mtu| {
        format!("; for d in flannel.1 cni0; do if [ -e /host/net/$d ]; then echo {mtu} > /host/net/$d/mtu; fi; done")
    });
    let seen = "(umask 077; cp /etc/kube-flannel/cni-conf.json /etc/cni/net.d/.10-flannel)";
    format!("{known}{resize}; {seen} && mv /etc/cni/net.d/.10-flannel {CNI_CONF}")
}

fn kube_proxy_config(desired: &Desired) -> Result<String, RenderError> {
    let text = KUBE_PROXY_CONFIG.text(&view::KubeProxyConfig { pods: desired.network.pods.to_string() })?;
    yaml::with(KUBE_PROXY_CONFIG.template, text, &desired.extra.kube_proxy_config)
}
