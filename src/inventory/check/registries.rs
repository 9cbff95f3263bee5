//! Image registries: mirrors, CAs and the files with their passwords.

use super::text::{is_dns_name, url};
use super::validator::{Reading, Validator};
use crate::inventory::at::{At, Place};
use crate::inventory::problem::shorten;
use crate::inventory::schema::{self, TextMap};
use std::collections::BTreeMap;
use std::path::PathBuf;

type Raw<'a> = Option<&'a At<schema::Registries>>;

/// Registry mirrors.
pub fn mirrors(judge: &mut Validator<'_>, raw: Raw<'_>) -> BTreeMap<String, Vec<String>> {
    let map = raw.and_then(|r| r.value.mirrors.as_ref());
    let mut out = BTreeMap::new();
    for (registry, list) in map.iter().flat_map(|map| &map.value) {
        if !is_registry(judge, registry, list.place) {
            continue;
        }
        let urls = list.value.iter().filter_map(|text| url(judge, "the mirror", &text.value, text.place)).collect();
        out.insert(registry.clone(), urls);
    }
    out
}

/// Files with the CAs of registries.
pub fn authorities(judge: &mut Validator<'_>, raw: Raw<'_>) -> BTreeMap<String, PathBuf> {
    files(judge, "registries.ca", raw.and_then(|r| r.value.ca.as_ref()), Reading::Authority)
}

/// Files with passwords.
pub fn logins(judge: &mut Validator<'_>, raw: Raw<'_>) -> BTreeMap<String, PathBuf> {
    let map = raw.and_then(|r| r.value.credentials.as_ref());
    let plain = |at: &str| format!("http://{at}");
    for (at, text) in map.iter().flat_map(|map| &map.value) {
        let lists = raw.and_then(|r| r.value.mirrors.as_ref());
        let urls = lists.iter().flat_map(|lists| lists.value.values()).flat_map(|list| &list.value);
        let open = urls
            .map(|url| url.value.as_str())
            .any(|url| url.strip_prefix(&plain(at)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        if open {
            let remedy = "set up TLS on the mirror and add its CA under registries.ca";
            judge.warn(text.place, format!("the password for {at} is sent over plain http"), "https", remedy);
        }
    }
    files(judge, "registries.credentials", map, Reading::Login)
}

fn files(
    judge: &mut Validator<'_>,
    key: &'static str,
    map: Option<&At<TextMap>>,
    reading: fn(String) -> Reading,
) -> BTreeMap<String, PathBuf> {
    let mut out = BTreeMap::new();
    for (at, text) in map.iter().flat_map(|map| &map.value) {
        if is_registry(judge, at, text.place)
            && let Some(path) = judge.file(key, text, reading(at.clone()))
        {
            out.insert(at.clone(), path);
        }
    }
    out
}

fn is_registry(judge: &mut Validator<'_>, registry: &str, place: Place) -> bool {
    let (host, port) = registry.rsplit_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
    let host_fine = !host.starts_with('*') && (is_dns_name(host) || host.parse::<std::net::Ipv4Addr>().is_ok());
    if host_fine && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return true;
    }
    judge.refuse(
        place,
        format!("{:?} is not a registry", shorten(registry)),
        "a registry's name, such as registry.k8s.io or registry.example:5000",
        "write only the name, without https:// and without a path",
    );
    false
}
