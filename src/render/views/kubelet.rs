//! The kubelet's unit, configuration and kubeconfig.

use serde::Serialize;
use std::collections::BTreeMap;

use super::{CIPHERS, flags};
use crate::model::desired::{Desired, Host, Role};
use crate::model::dns::OF_PODS;
use crate::model::ports::KUBELETS_API;
use crate::render::input::minor;
use crate::render::{Input, RenderError};

/// The taint that keeps ordinary pods off control-plane hosts.
const CONTROL_PLANE_TAINT: &str = "node-role.kubernetes.io/control-plane:NoSchedule";

/// For `kubelet/kubelet.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    program: String,
    trusts: String,
    flags: Vec<String>,
    resolv_conf: &'static str,
}

pub(crate) fn unit(input: &Input<'_>) -> Result<Unit, RenderError> {
    let host = input.host;
    let own = [
        ("config", "/var/lib/kubelet/config.yaml".to_owned()),
        ("kubeconfig", "/etc/kubernetes/kubelet.conf".to_owned()),
        // Both are from the inventory: the host name of the machine and its first address often differ.
        ("hostname-override", host.name.to_string()),
        ("node-ip", host.address.to_string()),
    ];
    Ok(Unit {
        program: input.program("kubelet")?,
        trusts: input.trust.cluster(),
        flags: flags(input.desired, "kubelet", own),
        resolv_conf: input.facts.name_servers(),
    })
}

/// For `kubelet/registration.env`.
#[derive(Debug, Serialize)]
pub(crate) struct Registration {
    flags: String,
}

/// Labels and taints with which a kubelet registers its Node. They have a file of their own, because later changes are
/// made through the API and must not restart a kubelet.
pub(crate) fn registration(input: &Input<'_>) -> Registration {
    let mut flags = Vec::new();
    let labels: Vec<String> = labels(input.host)
        .into_iter()
        .filter(|(name, _)| own_label(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !labels.is_empty() {
        flags.push(format!("--node-labels={}", labels.join(",")));
    }
    let taints = taints(input.desired, input.host);
    if !taints.is_empty() {
        flags.push(format!("--register-with-taints={}", taints.join(",")));
    }
    Registration { flags: flags.join(" ") }
}

/// The labels of a Node, including those that a kubelet may not set on itself.
pub(crate) fn labels(host: &Host) -> BTreeMap<String, String> {
    let mut labels = host.labels.clone();
    if let Some(zone) = &host.zone {
        labels.entry("topology.kubernetes.io/zone".to_owned()).or_insert_with(|| zone.clone());
    }
    for (role, name) in [(Role::ControlPlane, "control-plane"), (Role::Worker, "worker")] {
        if host.is(role) {
            labels.entry(format!("node-role.kubernetes.io/{name}")).or_default();
        }
    }
    labels
}

/// Whether a kubelet may set this label on itself: it refuses to start with any other name below kubernetes.io.
fn own_label(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else { return true };
    let below = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    let reserved = below("kubernetes.io") || below("k8s.io");
    !reserved
        || below("node.kubernetes.io")
        || below("kubelet.kubernetes.io")
        || matches!(name, "topology.kubernetes.io/zone" | "topology.kubernetes.io/region" | "kubernetes.io/hostname")
}

/// The taints of a Node, `key=value:Effect` or `key:Effect`.
pub(crate) fn taints(desired: &Desired, host: &Host) -> Vec<String> {
    let mut taints = host.taints.clone();
    let workloads = desired.control_plane.schedulable || host.is(Role::Worker);
    if host.is(Role::ControlPlane) && !workloads && !taints.iter().any(|taint| taint == CONTROL_PLANE_TAINT) {
        taints.insert(0, CONTROL_PLANE_TAINT.to_owned());
    }
    taints
}

/// Settings of `extra.kubelet.config` that define the time of pods during a host shutdown differently.
const SHUTDOWN_OTHERWISE: [&str; 2] = ["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"];

/// For `kubelet/config.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Config {
    address: String,
    ciphers: &'static [&'static str],
    dns: String,
    resolv_conf: &'static str,
    control_plane: bool,
    is_135: bool,
    stops_by_priority: bool,
}

pub(crate) fn config(input: &Input<'_>) -> Config {
    let extra = &input.desired.extra.kubelet_config;
    Config {
        address: input.host.address.to_string(),
        ciphers: CIPHERS,
        dns: input.desired.dns_address().to_string(),
        resolv_conf: OF_PODS,
        control_plane: input.host.is(Role::ControlPlane),
        // Older kubelets refuse these settings, because their feature gates are off.
        is_135: minor(&input.desired.versions.kubernetes) >= 35,
        // The kubelet refuses both settings of the time of pods together.
        stops_by_priority: !SHUTDOWN_OTHERWISE.iter().any(|key| extra.contains_key(*key)),
    }
}

/// For `kubelet/kubeconfig.yaml`.
#[derive(Debug, Serialize)]
pub(crate) struct Kubeconfig {
    server: String,
}

pub(crate) fn kubeconfig(input: &Input<'_>) -> Kubeconfig {
    Kubeconfig { server: server(input) }
}

/// The URL by which the kubelet of a host reaches the API.
pub(super) fn server(input: &Input<'_>) -> String {
    // On a control-plane host the balancer passes it to the API server of the host, and to others in reserve: so it
    // depends on no other host, and its Node stays if only that API server fails.
    let balancer = || format!("https://127.0.0.1:{KUBELETS_API}");
    if input.host.is(Role::ControlPlane) { balancer() } else { input.desired.endpoint.url() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_gives_itself_only_labels_that_it_may() {
        for fine in ["disk", "example.org/disk", "node.kubernetes.io/pool", "topology.kubernetes.io/zone"] {
            assert!(own_label(fine), "{fine}");
        }
        for bad in ["node-role.kubernetes.io/control-plane", "kubernetes.io/x", "a.k8s.io/y"] {
            assert!(!own_label(bad), "{bad}");
        }
    }
}
