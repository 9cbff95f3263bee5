//! The control plane: configuration, kubeconfigs, static pods and the approver.

use serde::Serialize;
use std::collections::BTreeMap;

use super::{CIPHERS, Setting, in_url, runtime};
use crate::model::desired::{Desired, Role, Security};
use crate::model::digester::Digester;
use crate::model::names::Digest;
use crate::render::input::minor;
use crate::render::{Input, RenderError};

/// For `control-plane/encryption.yaml`. No `Debug`: it holds keys.
#[derive(Serialize)]
pub(crate) struct Encryption<'a> {
    keys: Vec<EncryptionKey<'a>>,
}

#[derive(Serialize)]
struct EncryptionKey<'a> {
    name: &'a str,
    secret: &'a str,
}

pub(crate) fn encryption<'a>(input: &Input<'a>, path: &str) -> Result<Encryption<'a>, RenderError> {
    let keys = input.keys(path)?.encryption.iter();
    Ok(Encryption { keys: keys.map(|of| EncryptionKey { name: &of.name, secret: of.key.reveal() }).collect() })
}

/// For `control-plane/authentication.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Authentication<'a> {
    has_jwt: bool,
    jwt: &'a [serde_json::Value],
}

pub(crate) fn authentication<'a>(input: &Input<'a>) -> Authentication<'a> {
    Authentication { has_jwt: !input.desired.jwt.is_empty(), jwt: &input.desired.jwt }
}

/// For `control-plane/kubeconfig.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Kubeconfig {
    server: String,
    certificate: String,
    key: String,
}

pub(crate) fn kubeconfig(input: &Input<'_>, who: &str) -> Kubeconfig {
    Kubeconfig {
        server: own_api_server(input),
        certificate: format!("/etc/kubernetes/pki/{who}.crt"),
        key: format!("/etc/kubernetes/pki/{who}.key"),
    }
}

/// The URL of the API server of this host. Components with a leader use no other: if it fails, another host leads.
fn own_api_server(input: &Input<'_>) -> String {
    format!("https://{}:{}", in_url(input.host.address), input.desired.api_port)
}

/// For the static pods.
#[derive(Debug, Serialize)]
pub(crate) struct StaticPod {
    uid: String,
    reads: String,
    image: String,
    address: String,
    port: u16,
    low_port: bool,
    ciphers: String,
    admission: String,
    cluster: String,
    pods: String,
    services: String,
    allocate: bool,
    gate_serving_rotation: bool,
    public_cas: Vec<&'static str>,
    mounts: Vec<String>,
    env: Vec<Setting>,
}

/// Files that a static pod reads only at its start. Certificates are not among them: leaf certificates and CA bundles
/// are reloaded when they change.
pub(crate) fn reads(name: &str) -> &'static [&'static str] {
    match name {
        "kube-apiserver" => &[
            "/etc/kubernetes/config/encryption.yaml",
            "/etc/kubernetes/config/audit-policy.yaml",
            "/etc/kubernetes/config/admission.yaml",
            "/etc/kubernetes/config/event-rate-limit.yaml",
            "/etc/kubernetes/config/pod-security.yaml",
            "/etc/kubernetes/config/authentication.yaml",
            "/etc/kubernetes/pki/sa.pub",
            "/etc/kubernetes/pki/sa.key",
            "/etc/kubernetes/pki/etcd-ca.crt",
            "/etc/kubernetes/pki/kubelet-serving-ca.crt",
        ],
        "kube-controller-manager" => &[
            "/etc/kubernetes/controller-manager.conf",
            "/etc/kubernetes/pki/sa.key",
            "/etc/kubernetes/pki/signing.crt",
            "/etc/kubernetes/pki/signing.key",
            "/etc/kubernetes/pki/kubelet-serving.crt",
            "/etc/kubernetes/pki/kubelet-serving.key",
            "/etc/kubernetes/pki/ca.crt",
        ],
        _ => &["/etc/kubernetes/scheduler.conf", "/etc/kubernetes/pki/ca.crt"],
    }
}

pub(crate) fn static_pod<'a>(
    input: &Input<'_>,
    name: &str,
    written: impl Iterator<Item = (&'a str, &'a str)>,
    uid: &str,
) -> Result<StaticPod, RenderError> {
    let desired = input.desired;
    let mut all = Digester::new(());
    for (path, content) in written.filter(|(path, _)| reads(name).contains(path)) {
        all.add(path.as_bytes());
        all.add(&[0]);
        all.add(Digest::of(content.as_bytes()).hex().as_bytes());
    }
    // CAs of client certificates are reloaded only after minutes; the CAs of kubelet serving certificates are read only
    // at the start.
    all.add(input.trust.cluster().as_bytes());
    let mut public_cas = vec!["/etc/ssl/certs"];
    if input.red_hat() {
        // There, /etc/ssl/certs consists of links into this directory.
        public_cas.push("/etc/pki");
    }
    Ok(StaticPod {
        uid: uid.to_owned(),
        reads: all.so_far().short(),
        image: input.image(name)?,
        address: input.host.address.to_string(),
        port: desired.api_port,
        low_port: desired.api_port < 1024,
        ciphers: CIPHERS.join(","),
        admission: admission(desired).join(","),
        cluster: desired.cluster.to_string(),
        pods: desired.network.pods.to_string(),
        services: desired.network.services.to_string(),
        allocate: true,
        // The CIS benchmark checks this flag; with a removed feature gate the controller manager would not start.
        gate_serving_rotation: minor(&desired.versions.kubernetes) <= 36,
        public_cas,
        mounts: desired.extra.mounts.get(name).cloned().unwrap_or_default(),
        env: runtime::proxy(desired),
    })
}

/// Admission plugins besides those that are on by default.
fn admission(desired: &Desired) -> Vec<&'static str> {
    let mut plugins = vec!["NodeRestriction", "EventRateLimit", "DenyServiceExternalIPs"];
    if desired.control_plane.security == Security::Cis {
        // It needs every image in a reachable registry; images of a bundle are only on the hosts.
        plugins.push("AlwaysPullImages");
    }
    plugins
}

/// For `control-plane/pod-security.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct PodSecurity {
    restricted: bool,
}

pub(crate) fn pod_security(input: &Input<'_>) -> PodSecurity {
    PodSecurity { restricted: input.desired.control_plane.security == Security::Cis }
}

/// For `approver/hactl-approver.service`.
#[derive(Debug, Serialize)]
pub(crate) struct ApproverUnit {
    program: String,
    server: String,
    trusts: String,
}

pub(crate) fn approver_unit(input: &Input<'_>) -> ApproverUnit {
    let server = own_api_server(input);
    ApproverUnit { program: input.hactl_path.to_owned(), server, trusts: input.trust.cluster() }
}

/// For `approver/approver.json`.
#[derive(Debug, Serialize)]
pub(crate) struct ApproverNodes {
    nodes: BTreeMap<String, Vec<String>>,
}

pub(crate) fn approver_nodes(input: &Input<'_>) -> ApproverNodes {
    let nodes = input.desired.hosts.iter().filter(|host| host.is_node() || host.is(Role::Spare)).map(|host| {
        let name = host.name.to_string();
        let may_have = vec![format!("DNS:{name}"), format!("IP:{}", host.address)];
        (name, may_have)
    });
    ApproverNodes { nodes: nodes.collect() }
}
