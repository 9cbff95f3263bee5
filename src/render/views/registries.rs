//! containerd's settings for each registry: mirrors, CAs and credentials.
//!
//! containerd reads these files at every pull, so that a change restarts nothing. Credentials are a header: containerd
//! sends it to the registry, and to the token server of that registry.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::desired::Desired;
use crate::render::{Input, RenderError};

/// The directory that containerd reads for each registry.
pub(crate) const FOLDER: &str = "/etc/containerd/certs.d";

/// For `runtime/hosts.toml`, one per registry. No `Debug`: it holds passwords.
#[derive(Serialize)]
pub(crate) struct Hosts<'a> {
    registry: String,
    authority: String,
    login: &'a str,
    mirrors: Vec<Mirror<'a>>,
}

/// One mirror of a registry. No `Debug`: it holds a password.
#[derive(Serialize)]
struct Mirror<'a> {
    url: String,
    whole_path: bool,
    authority: String,
    login: &'a str,
}

/// For `runtime/authority.pem`.
#[derive(Debug, Serialize)]
pub(crate) struct Authority<'a> {
    of: String,
    lines: Vec<&'a str>,
}

/// Every registry with settings.
pub(crate) fn all(desired: &Desired) -> Vec<String> {
    let named = &desired.named;
    let keys = desired.mirrors.keys().chain(named.registry_authorities.keys()).chain(named.registry_logins.keys());
    keys.cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// Where images of these references are requested, by registry: mirrors and the registry itself, or the proxy in front
/// of them, as `host:port`.
pub fn places(desired: &Desired, references: &[String]) -> BTreeMap<String, Vec<String>> {
    let with_port = |at: &str, port: u16| {
        let has = at.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has { at.to_owned() } else { format!("{at}:{port}") }
    };
    let of_url = |url: &String| with_port(place(url), if url.starts_with("http://") { 80 } else { 443 });
    let proxied = [&desired.proxy.https].into_iter().filter(|url| !url.is_empty());
    let registries: BTreeSet<&str> = references.iter().map(|reference| registry(reference)).collect();
    let one = |registry: &str| {
        // The name docker.io serves no registry API.
        let own = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
        let mirrors = desired.mirrors.get(registry).into_iter().flatten().map(of_url);
        let places = mirrors.chain(proxied.clone().map(of_url)).chain([with_port(own, 443)]);
        (registry.to_owned(), places.collect())
    };
    registries.into_iter().map(one).collect()
}

/// The registry of a reference, as containerd parses it.
fn registry(reference: &str) -> &str {
    match reference.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

/// The files of CAs, below the directory of all registries.
pub(crate) fn authority_files(desired: &Desired) -> Vec<String> {
    desired.named.registry_authorities.keys().map(|at| format!("{at}/ca.pem")).collect()
}

/// The path of the file with the CA of a registry or mirror; empty if it has none of its own.
fn authority_path(desired: &Desired, at: &str) -> String {
    let known = desired.named.registry_authorities.contains_key(at);
    if known { format!("{FOLDER}/{at}/ca.pem") } else { String::new() }
}

/// `host` or `host:port` of a URL.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// Whether a URL includes the root of the registry API and more: `/v2/` and a path, as in caches of several registries.
/// containerd would append another `/v2`.
fn whole_path(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('/').is_some_and(|(_, path)| path.strip_prefix("v2/").is_some_and(|more| !more.is_empty()))
}

fn login<'a>(input: &Input<'a>, at: &str) -> Result<&'a str, RenderError> {
    if !input.desired.named.registry_logins.contains_key(at) {
        return Ok("");
    }
    let found = input.attached.logins.get(at).map(|login| login.reveal().as_str());
    found.ok_or_else(|| RenderError::MissingFile { what: format!("registries.credentials of {at}") })
}

pub(crate) fn hosts<'a>(input: &Input<'a>, registry: &str) -> Result<Hosts<'a>, RenderError> {
    let desired = input.desired;
    let urls = desired.mirrors.get(registry).map(Vec::as_slice).unwrap_or_default();
    let mirror = |url: &String| {
        let at = place(url);
        Ok(Mirror {
            url: url.clone(),
            whole_path: whole_path(url),
            // With http, a CA would make containerd try https first.
            authority: if url.starts_with("https://") { authority_path(desired, at) } else { String::new() },
            login: login(input, at)?,
        })
    };
    Ok(Hosts {
        registry: registry.to_owned(),
        authority: authority_path(desired, registry),
        login: login(input, registry)?,
        mirrors: urls.iter().map(mirror).collect::<Result<_, RenderError>>()?,
    })
}

pub(crate) fn authority<'a>(input: &Input<'a>, item: &str) -> Result<Authority<'a>, RenderError> {
    let at = item.strip_suffix("/ca.pem").unwrap_or(item);
    let pem = input.attached.authorities.get(at);
    let pem = pem.ok_or_else(|| RenderError::MissingFile { what: format!("registries.ca of {at}") })?;
    Ok(Authority { of: at.to_owned(), lines: pem.trim_end().lines().map(str::trim_end).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_which_host_it_is_of_and_whether_it_is_the_whole_path() {
        assert_eq!(place("https://mirror.example:5000/cache"), "mirror.example:5000");
        assert_eq!(place("http://10.0.0.9"), "10.0.0.9");
        assert!(whole_path("https://harbor.example/v2/cache"));
        for url in
            ["https://m.example", "https://m.example/", "https://m.example/v2", "https://m.example/v2/", "https://m/x"]
        {
            assert!(!whole_path(url), "{url}");
        }
    }
}
