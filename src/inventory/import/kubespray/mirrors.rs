//! Mirrors of registries, in the two shapes that Kubespray has had.
//!
//! In: the variables of a control-plane host. Out: registries with the URLs of their mirrors, and notes for their other
//! settings. A URL that contains a password is never shown.

use super::super::ansible::groups::Var;
use super::super::ansible::scope::Scope;
use super::super::draft::{Draft, Said};
use super::super::node::Node;
use super::super::notes::{Notes, listed, short};
use super::super::shared;
use std::collections::BTreeSet;

/// Reads them.
pub fn mirrors(scope: &Scope<'_>, draft: &mut Draft, notes: &mut Notes) {
    for key in ["containerd_registries_mirrors", "containerd_registries"] {
        let Some(var) = scope.node(key, notes) else { continue };
        if var.node.as_text().is_some_and(|text| !text.trim().is_empty()) {
            notes.add(
                &var.place,
                format!("{key} is neither a list nor a mapping: left out"),
                "write the mirrors under registries.mirrors",
            );
        }
        for item in var.node.items() {
            registry(item, &var, draft, notes);
        }
        // As older releases had it: registry to one or more addresses.
        for (registry, urls) in var.node.entries() {
            let found: Vec<&str> =
                urls.as_text().into_iter().chain(urls.items().iter().filter_map(Node::as_text)).collect();
            if !urls.is_empty() && found.len() != urls.items().len().max(1) {
                notes.add(
                    &var.place,
                    format!("some mirrors of {} are not addresses: left out", short(registry)),
                    "write them under registries.mirrors",
                );
            }
            for url in found {
                add(registry, url, &var, draft, notes);
            }
        }
    }
    if let Some(var) = scope.raw("containerd_registry_auth").filter(|var| !var.node.is_empty()) {
        notes.add(
            &var.place,
            "containerd_registry_auth contains passwords, which are not carried over",
            "write user:password into a file for each registry, and name it under registries.credentials",
        );
    }
    if let Some(var) = scope.raw("containerd_insecure_registries").filter(|var| !var.node.is_empty()) {
        notes.add(
            &var.place,
            "certificates of registries are not verified there",
            "write a mirror with http://, or add the CA under registries.ca",
        );
    }
}

/// Adds a mirror, unless its URL contains a password.
fn add(registry: &str, url: &str, var: &Var, draft: &mut Draft, notes: &mut Notes) -> bool {
    let said = Said::new(url.trim(), "containerd_registries_mirrors", var.place.as_str());
    let Some(said) = shared::url(said, notes) else { return false };
    match draft.mirrors.iter_mut().find(|(name, _)| name == registry) {
        Some((_, urls)) => urls.push(said),
        None => draft.mirrors.push((registry.to_owned(), vec![said])),
    }
    true
}

/// One registry with its mirrors.
fn registry(item: &Node, var: &Var, draft: &mut Draft, notes: &mut Notes) {
    let Some(registry) = item.get("prefix").and_then(Node::as_text).map(str::trim) else {
        notes.add(
            &var.place,
            "mirrors without a prefix, which names their registry: left out",
            "write them under registries.mirrors, below the registry's name",
        );
        return;
    };
    if item.get("server").and_then(Node::as_text).is_some_and(|server| !is_its_own(registry, server)) {
        notes.add(
            &var.place,
            format!(
                "images of {} that no mirror has come from another server there, and from the registry itself here",
                short(registry)
            ),
            "add that server as the last of its mirrors under registries.mirrors",
        );
    }
    left(item, &["prefix", "server", "mirrors"], var, notes);
    let given = item.items_of("mirrors");
    if given.is_empty() {
        notes.add(
            &var.place,
            format!("{} has no list of mirrors: left out", short(registry)),
            "write its mirrors under registries.mirrors, if there are any",
        );
    }
    for given in given {
        match given.get("host").and_then(Node::as_text) {
            Some(url) => {
                if add(registry, url, var, draft, notes) {
                    mirror(given, url.trim(), var, notes);
                }
            }
            None => notes.add(
                &var.place,
                format!("a mirror of {} has no host: left out", short(registry)),
                "write its URL under registries.mirrors",
            ),
        }
    }
}

/// Settings of a mirror besides its URL.
fn mirror(given: &Node, url: &str, var: &Var, notes: &mut Notes) {
    let host = short(url.trim_start_matches("https://").trim_start_matches("http://"));
    if given.is_true("skip_verify") && url.starts_with("https://") {
        notes.add(
            &var.place,
            format!("the certificate of {host} is not verified there, and always verified here"),
            "add the PEM file of its CA under registries.ca",
        );
    }
    if let Some(able) = given.get("capabilities") {
        let able: BTreeSet<&str> = able.items().iter().filter_map(Node::as_text).collect();
        if able != BTreeSet::from(["pull", "resolve"]) {
            let able: Vec<&str> = able.into_iter().collect();
            notes.add(
                &var.place,
                format!("{host} has other capabilities there ({}), and pull and resolve here", listed(&able, 5)),
                "remove it from registries.mirrors if it must not resolve tags",
            );
        }
    }
    // hactl uses a URL as the API's root if its path begins with /v2/ and a name.
    let path = host.split_once('/').map_or("", |(_, path)| path);
    let whole = path.strip_prefix("v2/").is_some_and(|more| !more.is_empty());
    if given.get("override_path").and_then(Node::as_bool).is_some_and(|wanted| wanted != whole) {
        let (there, here) =
            if whole { ("below /v2 of it", "directly below it") } else { ("directly below it", "below /v2 of it") };
        notes.add(
            &var.place,
            format!("override_path: images of {host} are {there} there, and {here} here"),
            "correct the URL under registries.mirrors: hactl appends /v2, unless its path begins with /v2/ and a name",
        );
    }
    for more in ["ca", "client", "header"] {
        if given.get(more).is_some_and(|node| !node.is_empty()) {
            notes.add(
                &var.place,
                format!("{more} of a mirror is not carried over"),
                "CAs go under registries.ca, logins under registries.credentials, as files",
            );
        }
    }
    left(given, &["host", "skip_verify", "capabilities", "override_path", "ca", "client", "header"], var, notes);
}

fn left(node: &Node, known: &[&str], var: &Var, notes: &mut Notes) {
    let unknown = |(key, node): &&(String, Node)| !known.contains(&key.as_str()) && !node.is_empty();
    let keys: Vec<&String> = node.entries().iter().filter(unknown).map(|(key, _)| key).collect();
    if !keys.is_empty() {
        notes.add(
            &var.place,
            format!("settings of mirrors not carried over: {}", listed(&keys, 10)),
            "nothing, unless your mirror needs it: hactl has no key for it",
        );
    }
}

/// Whether a registry's server is the registry itself.
fn is_its_own(registry: &str, server: &str) -> bool {
    let server = server.trim().trim_end_matches('/');
    let server = server.strip_prefix("https://").unwrap_or(server);
    server == registry || registry == "docker.io" && server == "registry-1.docker.io"
}
