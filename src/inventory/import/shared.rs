//! Settings that several tools share: versions, flags of components, proxies, mirrors.
//!
//! In: a value of a foreign file. Out: hactl's setting, or a note with the reason why there is none.

use super::draft::{Draft, Said};
use super::node::Node;
use super::notes::{Notes, listed, short};
use crate::inventory::defaults::DEFAULT_KUBERNETES;
use crate::inventory::owned::{owns, take_owned};
use crate::model::desired::MOST_QUOTA_GIB;
use crate::model::version::{MINORS, Version};
use serde_json::{Map, Value};

/// Kubernetes' version as `1.36.3`, if this hactl installs that minor version.
pub fn kubernetes(said: &Said, notes: &mut Notes) -> Option<Said> {
    let text = said.value.trim().trim_start_matches('v');
    let text = text.split(['+', '-']).next().unwrap_or(text);
    let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
    let three = text.split('.').count() == 3 && text.split('.').all(|part| part.parse::<u16>().is_ok());
    if three && Version::parse(text).is_some_and(|version| MINORS.contains(&version.minor)) {
        return Some(Said::new(text, said.key.as_str(), said.place.as_str()));
    }
    let own = minor(DEFAULT_KUBERNETES).unwrap_or_default();
    notes.add(
        &said.place,
        format!(
            "it requires Kubernetes {}, and this hactl installs {}: the new cluster gets {DEFAULT_KUBERNETES}",
            short(text),
            listed(&MINORS.map(|minor| minor.to_string()), MINORS.len())
        ),
        format!("check the changes up to {own} that affect your workloads before you move them"),
    );
    None
}

/// The version of a component for which hactl chooses it.
pub fn own_version(component: &str, said: &Said, notes: &mut Notes) {
    notes.add(
        &said.place,
        format!("it requires {component} {}: hactl uses the version for its Kubernetes", short(&said.value)),
        format!("nothing, or set a version under versions.{component}"),
    );
}

/// A flag for a component.
pub fn arg(draft: &mut Draft, component: &'static str, flag: &str, said: Said, notes: &mut Notes) {
    let name = flag.trim_start_matches('-');
    let fine = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if !fine || said.value.chars().any(char::is_control) {
        notes.add(
            &said.place,
            format!("{} is not a flag of {component} in one line: left out", short(flag)),
            format!("write it under extra.{component}.args"),
        );
    } else if owns(component, name) {
        notes.add(
            &said.place,
            format!("hactl sets {component}'s --{name} itself: left out"),
            "nothing, or check in docs/inventory.md whether another key sets it",
        );
    } else if matches!(name, "feature-gates" | "runtime-config") {
        notes.add(
            &said.place,
            format!(
                "{component}'s --{name} is left out: its names depend on the version, and a component does not \
                 start with an unknown one"
            ),
            format!("write those of Kubernetes {DEFAULT_KUBERNETES} under extra.{component}.args"),
        );
    } else {
        draft.args.entry(component).or_default().insert(name.to_owned(), said);
    }
}

/// The same for a flag whose value may be a list or a mapping; `key` and place are of the flag.
pub fn arg_of(
    draft: &mut Draft,
    component: &'static str,
    flag: &str,
    value: &Node,
    (key, place): (&str, String),
    notes: &mut Notes,
) {
    match value.as_text() {
        Some(text) => arg(draft, component, flag, Said::new(text, key, place), notes),
        None => notes.add(
            place,
            format!("{} is not a single value: left out", short(flag)),
            format!("write it under extra.{component}.args"),
        ),
    }
}

/// etcd's quota in GiB.
pub fn quota_gib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 30)).unwrap_or(MOST_QUOTA_GIB).clamp(1, MOST_QUOTA_GIB)
}

/// Fields of the kubelet's configuration.
pub fn kubelet(draft: &mut Draft, mut fields: Map<String, Value>, key: &str, place: &str, notes: &mut Notes) {
    let mut own = take_owned("kubelet", &mut fields);
    if fields.remove("featureGates").is_some() {
        own.push("featureGates".to_owned());
    }
    if !own.is_empty() {
        notes.add(
            place,
            format!("fields of {key} that hactl sets, or that depend on the version: {}; left out", listed(&own, 20)),
            "nothing, or check in docs/inventory.md whether another key sets them",
        );
    }
    draft.kubelet_config.extend(fields.into_iter().map(|(field, value)| (field, Said::new(value, key, place))));
}

/// A URL, unless it contains a password.
pub fn url(said: Said, notes: &mut Notes) -> Option<Said> {
    let rest = said.value.split_once("://").map_or(said.value.as_str(), |(_, rest)| rest);
    if rest.split(['/', '?', '#']).next().unwrap_or_default().contains('@') {
        notes.add(
            &said.place,
            format!("{} contains a user name or a password: left out", said.key),
            "use an address without one, or for registries name a file under registries.credentials",
        );
        return None;
    }
    Some(said)
}

/// Proxy exceptions; invalid ones are reported.
pub fn no_proxy(draft: &mut Draft, list: Vec<Said>, notes: &mut Notes) {
    for said in list {
        let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'*' | b'/' | b':' | b'_');
        if !said.value.is_empty() && said.value.bytes().all(fine) {
            draft.no_proxy.push(said);
        } else {
            notes.add(
                &said.place,
                format!("{} cannot be a proxy exception: left out", short(&said.value)),
                "write names, addresses and ranges under proxy.noProxy",
            );
        }
    }
}

/// Other network plugins than flannel.
pub fn network_plugin(said: &Said, notes: &mut Notes) -> Said {
    let place = said.place.as_str();
    match said.value.to_ascii_lowercase().as_str() {
        "flannel" => Said::new("flannel", said.key.as_str(), place),
        "cni" | "none" | "custom" => {
            notes.add(
                place,
                "the network plugin is yours: Nodes stay NotReady until you install it",
                "put its manifests into a folder and name that under `manifests`",
            );
            Said::new("none", format!("{}: {}", said.key, short(&said.value)), place)
        }
        other => {
            notes.add(
                place,
                format!("hactl installs flannel, not {}: Nodes stay NotReady until you install it", short(other)),
                "put its manifests into a folder and name that under `manifests`; or write `cni: flannel`",
            );
            Said::new("none", format!("{}: {}", said.key, short(other)), place)
        }
    }
}

/// The mode of kube-proxy.
pub fn proxy_mode(said: &Said, notes: &mut Notes) {
    if said.value != "nftables" {
        notes.add(
            &said.place,
            format!(
                "kube-proxy runs in mode {} there, and always with nftables here: Services work the same",
                short(&said.value)
            ),
            "nothing, unless you have rules of your own in iptables or ipvsadm",
        );
    }
}

/// Reports a path whose meaning depends on the inventory's directory.
pub fn relative(what: &str, said: &Said, notes: &mut Notes) {
    if !said.value.starts_with(['/', '~']) {
        notes.add(
            &said.place,
            format!("{what} is a relative path: in an inventory of hactl it starts at the inventory's directory"),
            "put the inventory into the folder for which the path is valid, or write the full path",
        );
    }
}

/// Reports that host keys are verified here.
pub fn unverified(place: &str, notes: &mut Notes) {
    notes.add(
        place,
        "host keys are not verified there; hactl verifies them",
        "add them to known_hosts (`ssh-keyscan`, compared with the hosts), or use --trust-first-use once",
    );
}

/// Reports that there is no IPv6.
pub fn no_ipv6(place: &str, notes: &mut Notes) {
    let what = "IPv6 and dual-stack are not supported in this version of hactl";
    notes.add(place, what, "the new cluster is IPv4 only");
}

/// Reports that nothing implements Services.
pub fn no_kube_proxy(place: &str, notes: &mut Notes) {
    let what = "Services do not work until your network plugin implements them";
    notes.add(place, what, "install such a plugin, or remove kubeProxy: none");
}
