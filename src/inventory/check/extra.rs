//! Settings passed to components as they are, except those that hactl sets itself: a flag with two owners breaks a
//! cluster at the next upgrade.

use super::validator::Validator;
use crate::inventory::at::At;
use crate::inventory::owned::{fields, owns, take};
use crate::inventory::problem::shorten;
use crate::inventory::schema::{self, FreeMap, TextMap, Texts};
use crate::model::desired::Extra;
use serde_json::Value;
use std::collections::BTreeMap;

/// Validates the settings to pass on.
pub fn extra(judge: &mut Validator<'_>, raw: Option<&At<schema::Extra>>) -> Extra {
    let mut out = Extra::default();
    let Some(raw) = raw.map(|e| &e.value) else { return out };
    for (name, pod) in [
        ("kube-apiserver", raw.kube_apiserver.as_ref()),
        ("kube-controller-manager", raw.kube_controller_manager.as_ref()),
        ("kube-scheduler", raw.kube_scheduler.as_ref()),
    ] {
        if let Some(pod) = pod {
            keep(&mut out, name, args(judge, name, pod.value.args.as_ref()));
            let mounts = mounts(judge, pod.value.mounts.as_ref());
            if !mounts.is_empty() {
                out.mounts.insert(name.to_owned(), mounts);
            }
        }
    }
    if let Some(etcd) = raw.etcd.as_ref() {
        keep(&mut out, "etcd", args(judge, "etcd", etcd.value.args.as_ref()));
    }
    for (name, component) in [("kubelet", raw.kubelet.as_ref()), ("kube-proxy", raw.kube_proxy.as_ref())] {
        let Some(component) = component else { continue };
        keep(&mut out, name, args(judge, name, component.value.args.as_ref()));
        let config = component.value.config.as_ref().map(|map| config(judge, name, map)).unwrap_or_default();
        if name == "kubelet" {
            out.kubelet_config = config;
        } else {
            out.kube_proxy_config = config;
        }
    }
    if let Some(map) = raw.containerd.as_ref().and_then(|c| c.value.config.as_ref()) {
        out.containerd_config = config(judge, "containerd", map);
        if has_null(&Value::Object(out.containerd_config.clone())) {
            judge.refuse(map.place, "null in containerd's configuration", "a value", "TOML has no null: remove it");
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

fn args(judge: &mut Validator<'_>, component: &str, raw: Option<&At<TextMap>>) -> BTreeMap<String, String> {
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
                if fine { format!("write `{plain}: ...`") } else { "write it as `name: value`".to_owned() },
            );
        } else if owns(component, flag) {
            let what = format!("hactl sets {component}'s --{flag} itself");
            judge.refuse(value.place, what, "a flag that hactl does not set", instead(component, flag));
        } else if value.value.chars().any(char::is_control) {
            let what = format!("the value of {flag} has more than one line");
            judge.refuse(value.place, what, "one line", "write it in one line");
        } else {
            out.insert(flag.clone(), value.value.clone());
        }
    }
    out
}

/// The key to use instead of a flag.
fn instead(component: &str, flag: &str) -> String {
    let key = match flag {
        "cluster-cidr" if component == "kube-proxy" => "network.pods",
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

fn config(judge: &mut Validator<'_>, component: &str, raw: &At<FreeMap>) -> FreeMap {
    let mut out = raw.value.clone();
    for (path, by) in fields(component).filter_map(|(path, owner)| Some((path, owner.key()?))) {
        if !take(&mut out, &path) {
            continue;
        }
        judge.refuse(
            raw.place,
            format!("hactl sets {} in {component}'s configuration itself", path.join(".")),
            "a field that hactl does not set",
            if by.is_empty() { "remove it".to_owned() } else { format!("remove it; hactl derives it from {by}") },
        );
    }
    out
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

/// Paths that hactl mounts into static pods itself, and paths that no pod should see of its host.
const TAKEN: &str = "/etc/kubernetes/pki /etc/kubernetes/config /var/log/kubernetes /etc/ssl/certs \
                     /proc /sys /dev /run/containerd";

fn mounts(judge: &mut Validator<'_>, raw: Option<&Texts>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for text in raw.iter().flat_map(|list| &list.value) {
        let given = text.value.as_str();
        let trimmed = given.trim_end_matches('/');
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.@+".contains(&b);
        let parts = || trimmed.split('/').skip(1);
        let odd = parts().any(|part| part.is_empty() || part == "." || part == "..");
        if !trimmed.starts_with('/') || odd || !trimmed.bytes().all(plain) {
            let what = format!("{:?} cannot be mounted", shorten(given));
            judge.refuse(text.place, what, "an absolute path on the host", "start with / and leave out ..");
            continue;
        }
        let within = |inner: &str, outer: &str| {
            inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
        };
        if let Some(taken) = TAKEN.split(' ').find(|taken| within(trimmed, taken) || within(taken, trimmed)) {
            let what = format!("{} cannot be mounted: {taken} belongs to hactl or to the system", shorten(given));
            let remedy = "put the files into a folder of their own, such as /etc/kubernetes-extra";
            judge.refuse(text.place, what, "another file or folder", remedy);
        } else if let Some(other) = out.iter().find(|other| within(trimmed, other) || within(other, trimmed)) {
            let what = format!("{} and {other} overlap: one contains the other", shorten(given));
            judge.refuse(text.place, what, "each file or folder once", "remove one of them");
        } else {
            out.push(trimmed.to_owned());
        }
    }
    out
}
