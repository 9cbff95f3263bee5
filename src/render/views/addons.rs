//! The add-ons' views.

use serde::Serialize;
use std::collections::BTreeMap;

/// For `manifests/flannel.yaml`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct Flannel {
    pub image: String,
    pub host: String,
    pub port: String,
    pub cni_conf: String,
    pub net_conf: String,
    pub reads: String,
}

/// For `manifests/kube-proxy.yaml`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct KubeProxy {
    pub image: String,
    pub host: String,
    pub port: String,
    pub config: String,
    pub reads: String,
}

/// For `templates/addons/kube-proxy.yaml`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct KubeProxyConfig {
    pub pods: String,
}

/// For `manifests/coredns.yaml`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct CoreDns {
    pub image: String,
    pub corefile: String,
    pub dns: String,
    pub replicas: usize,
}

/// For `manifests/node.yaml`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}
