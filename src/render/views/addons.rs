//! The add-ons' views.

use serde::Serialize;
use std::collections::BTreeMap;

use crate::model::desired::Host;

/// For `manifests/flannel.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Flannel {
    pub image: String,
    pub host: String,
    pub port: String,
    pub cni_conf: String,
    pub net_conf: String,
    pub probe: String,
    pub command: String,
    pub reads: String,
    /// Each Node's address, as a map in CEL, in the form of JSON.
    pub addresses: String,
}

/// For `manifests/kube-proxy.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct KubeProxy {
    pub image: String,
    pub host: String,
    pub port: String,
    pub config: String,
    pub reads: String,
    pub flags: Vec<String>,
}

/// For `templates/addons/kube-proxy.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct KubeProxyConfig {
    pub pods: String,
}

/// For `manifests/coredns.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct CoreDns {
    pub image: String,
    pub corefile: String,
    pub dns: String,
    pub replicas: usize,
}

/// For `manifests/node.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    owns: String,
    has_flannel: bool,
    address: String,
}

/// A taint as the API writes it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Taint {
    key: String,
    value: String,
    effect: String,
}

impl Taint {
    /// From `key=value:Effect` or `key:Effect`.
    pub fn of(text: &str) -> Self {
        let (pair, effect) = text.rsplit_once(':').unwrap_or((text, ""));
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Self { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() }
    }
    /// The same for every value.
    pub fn of_any_value(self) -> Self {
        Self { value: String::new(), ..self }
    }
}

impl Node {
    /// `taints` as `key=value:Effect` or `key:Effect`.
    pub fn new(host: &Host, labels: BTreeMap<String, String>, taints: &[String], has_flannel: bool) -> Self {
        let taints: Vec<Taint> = taints.iter().map(|text| Taint::of(text)).collect();
        let mut keys: Vec<String> = taints.iter().map(|t| format!("{}:{}", t.key, t.effect)).collect();
        keys.sort();
        let owns = serde_json::json!({"labels": labels.keys().collect::<Vec<_>>(), "taints": keys}).to_string();
        let (name, address) = (host.name.to_string(), host.address.to_string());
        Self { name, labels, taints, owns, has_flannel, address }
    }
}
