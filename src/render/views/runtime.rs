//! containerd's unit and configuration.

use serde::Serialize;

use super::Setting;
use crate::model::desired::Desired;
use crate::model::metrics::CONTAINERD;
use crate::render::{Input, RenderError};

/// For `runtime/containerd.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    program: String,
    proxy: Vec<Setting>,
    unset: String,
}

/// The proxy variables that programs read.
pub(crate) const PROXY_VARIABLES: [&str; 8] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"];

pub(crate) fn unit(input: &Input<'_>) -> Result<Unit, RenderError> {
    let proxy = proxy_in_both_spellings(input.desired);
    let is_set = |name: &str| proxy.iter().any(|setting| setting.name == name);
    let unset: Vec<&str> = PROXY_VARIABLES.into_iter().filter(|name| !is_set(name)).collect();
    Ok(Unit { program: input.program("containerd")?, unset: unset.join(" "), proxy })
}

/// The proxy's variables in both spellings, because programs read either; none without a proxy.
pub(crate) fn proxy_in_both_spellings(desired: &Desired) -> Vec<Setting> {
    let both = |s: Setting| [Setting { name: s.name.to_lowercase(), value: s.value.clone() }, s];
    proxy(desired).into_iter().flat_map(both).collect()
}

/// The proxy's variables; none without a proxy.
pub(crate) fn proxy(desired: &Desired) -> Vec<Setting> {
    let proxy = &desired.proxy;
    let mut settings = Vec::new();
    let mut add = |name: &str, value: &str| settings.push(Setting { name: name.to_owned(), value: value.to_owned() });
    if !proxy.http.is_empty() {
        add("HTTP_PROXY", &proxy.http);
    }
    if !proxy.https.is_empty() {
        add("HTTPS_PROXY", &proxy.https);
    }
    if settings.is_empty() {
        return settings;
    }
    // Connections inside the cluster never use the proxy.
    let mut direct: Vec<String> = ["localhost", "127.0.0.0/8", ".svc", ".cluster.local"].map(str::to_owned).to_vec();
    direct.push(desired.network.pods.to_string());
    direct.push(desired.network.services.to_string());
    direct.push(desired.endpoint.host());
    direct.extend(desired.hosts.iter().map(|host| host.address.to_string()));
    direct.extend(proxy.no_proxy.iter().cloned());
    settings.push(Setting { name: "NO_PROXY".to_owned(), value: direct.join(",") });
    settings
}

/// For `runtime/config.toml`.
#[derive(Debug, Serialize)]
pub(crate) struct Config {
    pause: String,
    selinux: bool,
    restrict_oom_score_adj: bool,
    shim: String,
    runc: String,
    systemd_cgroup: bool,
    /// The port of its metrics on loopback, if they are served.
    metrics: Option<u16>,
}

pub(crate) fn config(input: &Input<'_>) -> Result<Config, RenderError> {
    let extra = &input.desired.extra;
    // The kubelet and containerd must use the same cgroup driver; that of the kubelet decides.
    let driver = extra.kubelet_config.get("cgroupDriver").and_then(serde_json::Value::as_str).unwrap_or("systemd");
    Ok(Config {
        pause: input.image("pause")?,
        // containerd ignores it if the kernel has no SELinux.
        selinux: input.red_hat(),
        restrict_oom_score_adj: extra.restrict_oom_score_adj,
        shim: input.program("containerd-shim-runc-v2")?,
        runc: input.program("runc")?,
        systemd_cgroup: driver == "systemd",
        metrics: input.desired.metrics.then_some(CONTAINERD),
    })
}
