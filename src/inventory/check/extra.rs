//! Settings handed to components as they are, except those that hactl sets itself: two owners of one flag is how a
//! cluster breaks at the next upgrade.

use super::{Judge, shorten};
use crate::inventory::at::At;
use crate::inventory::schema::{self, FreeMap, TextMap, Texts};
use crate::model::desired::Extra;
use std::collections::BTreeMap;

/// Flags that hactl sets itself; a trailing `*` stands for anything.
const OWNED: [(&str, &[&str]); 6] = [
    (
        "kube-apiserver",
        &[
            "advertise-address",
            "allow-privileged",
            "audit-log-*",
            "audit-policy-file",
            "admission-control-config-file",
            "authentication-config",
            "authorization-config",
            "authorization-mode",
            "anonymous-auth",
            "bind-address",
            "client-ca-file",
            "enable-admission-plugins",
            "enable-aggregator-routing",
            "enable-bootstrap-token-auth",
            "encryption-provider-config*",
            "etcd-*",
            "insecure-*",
            "kubelet-*",
            "oidc-*",
            "proxy-client-*",
            "requestheader-*",
            "secure-port",
            "service-account-*",
            "service-cluster-ip-range",
            "storage-*",
            "tls-*",
            "token-auth-file",
        ],
    ),
    (
        "kube-controller-manager",
        &[
            "allocate-node-cidrs",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
            "bind-address",
            "client-ca-file",
            "cluster-cidr",
            "cluster-name",
            "cluster-signing-*",
            "kubeconfig",
            "leader-elect",
            "node-cidr-mask-size*",
            "requestheader-*",
            "root-ca-file",
            "secure-port",
            "service-account-private-key-file",
            "service-cluster-ip-range",
            "tls-*",
            "use-service-account-credentials",
        ],
    ),
    (
        "kube-scheduler",
        &[
            "authentication-kubeconfig",
            "authorization-kubeconfig",
            "bind-address",
            "client-ca-file",
            "config",
            "kubeconfig",
            "leader-elect",
            "requestheader-*",
            "secure-port",
            "tls-*",
        ],
    ),
    (
        "etcd",
        &[
            "advertise-client-urls",
            "auto-tls",
            "ca-file",
            "cert-file",
            "client-*",
            "config-file",
            "data-dir",
            "discovery*",
            "force-new-cluster*",
            "initial-*",
            "key-file",
            "listen-*",
            "name",
            "peer-*",
            "quota-backend-bytes",
            "strict-reconfig-check",
            "tls-*",
            "trusted-ca-file",
            "wal-dir",
        ],
    ),
    (
        "kubelet",
        &[
            "bootstrap-kubeconfig",
            "cert-dir",
            "config",
            "config-dir",
            "container-runtime-endpoint",
            "hostname-override",
            "kubeconfig",
            "node-ip",
            "node-labels",
            "register-*",
            "root-dir",
            "tls-*",
        ],
    ),
    ("kube-proxy", &["cluster-cidr", "config", "hostname-override", "kubeconfig", "master", "proxy-mode"]),
];

/// Top-level fields of configuration files that hactl sets itself, and what sets them.
const OWNED_FIELDS: [(&str, &[(&str, &str)]); 2] = [
    (
        "kubelet",
        &[
            ("apiVersion", "hactl"),
            ("kind", "hactl"),
            ("address", "the host's address"),
            ("authentication", "hactl"),
            ("authorization", "hactl"),
            ("clusterDNS", "network.services"),
            ("clusterDomain", "hactl"),
            ("containerRuntimeEndpoint", "hactl"),
            ("port", "hactl"),
            ("readOnlyPort", "hactl"),
            ("registerWithTaints", "hosts[].taints"),
            ("rotateCertificates", "hactl"),
            ("serverTLSBootstrap", "hactl"),
            ("staticPodPath", "hactl"),
            ("staticPodURL", "hactl"),
            ("tlsCertFile", "hactl"),
            ("tlsPrivateKeyFile", "hactl"),
        ],
    ),
    (
        "kube-proxy",
        &[
            ("apiVersion", "hactl"),
            ("kind", "hactl"),
            ("clientConnection", "hactl"),
            ("clusterCIDR", "network.pods"),
            ("hostnameOverride", "hosts[].name"),
            ("mode", "network.kubeProxy"),
        ],
    ),
];

/// Judges what is handed on.
pub fn extra(judge: &mut Judge<'_>, raw: Option<&At<schema::Extra>>) -> Extra {
    let mut out = Extra::default();
    let Some(raw) = raw.map(|e| &e.value) else { return out };
    for (name, pod) in [
        ("kube-apiserver", &raw.kube_apiserver),
        ("kube-controller-manager", &raw.kube_controller_manager),
        ("kube-scheduler", &raw.kube_scheduler),
    ] {
        if let Some(pod) = pod {
            keep(&mut out, name, args(judge, name, pod.value.args.as_ref()));
            mounts(judge, name, pod.value.mounts.as_ref());
        }
    }
    if let Some(etcd) = &raw.etcd {
        keep(&mut out, "etcd", args(judge, "etcd", etcd.value.args.as_ref()));
    }
    for (name, component) in [("kubelet", &raw.kubelet), ("kube-proxy", &raw.kube_proxy)] {
        let Some(component) = component else { continue };
        keep(&mut out, name, args(judge, name, component.value.args.as_ref()));
        let config = component.value.config.as_ref().map(|map| config(judge, name, map)).unwrap_or_default();
        if name == "kubelet" {
            out.kubelet_config = config;
        } else {
            out.kube_proxy_config = config;
        }
    }
    out.restrict_oom_score_adj =
        raw.containerd.as_ref().and_then(|c| c.value.restrict_oom_score_adj.as_ref()).is_some_and(|b| b.value);
    out
}

fn keep(out: &mut Extra, name: &str, args: BTreeMap<String, String>) {
    if !args.is_empty() {
        out.args.insert(name.to_owned(), args);
    }
}

fn owns(component: &str, flag: &str) -> bool {
    let patterns = OWNED.iter().find(|(name, _)| *name == component).map_or(&[] as &[&str], |(_, flags)| flags);
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => flag.starts_with(start),
        None => flag == *pattern,
    })
}

fn args(judge: &mut Judge<'_>, component: &str, raw: Option<&At<TextMap>>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (flag, value) in raw.iter().flat_map(|map| &map.value) {
        let plain = flag.trim_start_matches('-');
        let fine =
            !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        if plain.len() != flag.len() || !fine {
            judge.refuse(
                value.place,
                format!("{:?} is not the name of a flag", shorten(flag)),
                "the flag's name without dashes",
                if fine { format!("write `{plain}: ...`") } else { "write the name and the value apart".to_owned() },
            );
        } else if owns(component, flag) {
            judge.refuse(
                value.place,
                format!("hactl sets {component}'s --{flag} itself"),
                "a flag that hactl leaves alone",
                instead(flag),
            );
        } else if value.value.chars().any(char::is_control) {
            judge.refuse(
                value.place,
                format!("the value of {flag} is more than one line"),
                "one line",
                "write it in one line",
            );
        } else {
            out.insert(flag.clone(), value.value.clone());
        }
    }
    out
}

/// The key to use instead of a flag.
fn instead(flag: &str) -> String {
    let key = match flag {
        "data-dir" => "etcd.dataDir",
        "quota-backend-bytes" => "etcd.quotaGiB",
        "secure-port" => "apiPort",
        "service-cluster-ip-range" => "network.services",
        "cluster-cidr" => "network.pods",
        "proxy-mode" => "network.kubeProxy",
        "authentication-config" => "authentication.jwt",
        "node-labels" => "labels of the host",
        "register-with-taints" => "taints of the host",
        f if f.starts_with("oidc-") => "authentication.jwt",
        _ => return "remove it".to_owned(),
    };
    format!("remove it and use {key}")
}

fn config(judge: &mut Judge<'_>, component: &str, raw: &At<FreeMap>) -> FreeMap {
    let owned = OWNED_FIELDS.iter().find(|(name, _)| *name == component).map_or(&[] as &[_], |(_, fields)| *fields);
    let mut out = raw.value.clone();
    for (field, by) in owned.iter().filter(|(field, _)| raw.value.contains_key(*field)) {
        judge.refuse(
            raw.place,
            format!("hactl sets {field} in {component}'s configuration itself"),
            "a field that hactl leaves alone",
            if *by == "hactl" { "remove it".to_owned() } else { format!("remove it; it follows from {by}") },
        );
        out.remove(*field);
    }
    out
}

fn mounts(judge: &mut Judge<'_>, component: &str, raw: Option<&Texts>) {
    let Some(list) = raw.filter(|list| !list.value.is_empty()) else { return };
    for text in &list.value {
        if !text.value.starts_with('/') || text.value.contains("..") || text.value.chars().any(char::is_control) {
            let what = format!("{:?} cannot be mounted", shorten(&text.value));
            judge.refuse(text.place, what, "an absolute path on the host", "start with / and leave out ..");
        }
    }
    judge.no_effect(
        list.place,
        &format!("extra.{component}.mounts"),
        "put the files below a directory the pod has already",
    );
}
