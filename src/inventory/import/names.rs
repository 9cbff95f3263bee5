//! Valid names for hosts and clusters, from their names in other tools.
//!
//! In: `node_1.example.com`. Out: `node-1`; the rule is [`HostName`]'s. Names that would be equal keep their domain.

use super::draft::Host;
use super::notes::{Notes, short};
use crate::model::names::{ClusterName, HostName};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Lower case letters, digits and dashes, at most `longest`, without a dash at either end.
fn label(text: &str, longest: usize) -> String {
    let mut out = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => out.push(c),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    let cut: String = out.trim_start_matches('-').chars().take(longest).collect();
    cut.trim_end_matches('-').to_owned()
}

/// A host's name without its domain.
fn nearest(given: &str) -> String {
    if given.parse::<HostName>().is_ok() {
        return given.to_owned();
    }
    if given.parse::<IpAddr>().is_ok() {
        return label(&format!("node-{given}"), 63);
    }
    let host = given.split('.').next().unwrap_or_default();
    // Without its domain, 1.30 would not be a recognisable name.
    label(if host.bytes().all(|b| b.is_ascii_digit()) { given } else { host }, 63)
}

/// A cluster's name, if a valid one remains.
pub fn cluster(given: &str) -> Option<String> {
    let name = label(given, 40);
    name.parse::<ClusterName>().is_ok().then_some(name)
}

/// Assigns a valid and unique name to every host, and reports those that changed.
pub fn assign(hosts: &mut [Host], notes: &mut Notes) {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for host in hosts.iter() {
        *taken.entry(nearest(&host.given)).or_default() += 1;
    }
    let mut changed = Vec::new();
    for host in hosts.iter_mut() {
        let mut name = nearest(&host.given);
        let alone = taken.get(&name) == Some(&1);
        if (!alone && name != host.given) || name.is_empty() {
            name = label(&host.given, 63);
        }
        host.name = name;
        if host.name != host.given {
            changed.push(format!("{} becomes {}", short(&host.given), host.name));
        }
    }
    if let (Some(first), false) = (hosts.first(), changed.is_empty()) {
        let more = changed.len().saturating_sub(20);
        let mut stated = changed.into_iter().take(20).collect::<Vec<_>>().join(", ");
        if more > 0 {
            stated.push_str(&format!(", and {more} more"));
        }
        notes.add(
            &first.place,
            format!("a Node's name is one label of a-z, 0-9 and '-': {stated}"),
            "nothing, or choose other names; the machines' hostnames do not change",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(given: &[&str]) -> Vec<String> {
        let mut hosts: Vec<Host> = given.iter().map(|g| Host { given: (*g).to_owned(), ..Host::default() }).collect();
        assign(&mut hosts, &mut Notes::default());
        hosts.into_iter().map(|h| h.name).collect()
    }

    #[test]
    fn a_name_loses_its_domain_and_characters_not_allowed_in_a_label() {
        assert_eq!(
            named(&["node_1.example.com", "CP1", "10.0.0.11", "w1", "1.30"]),
            ["node-1", "cp1", "node-10-0-0-11", "w1", "1-30"]
        );
        assert_eq!(cluster("Prod_EU.1").as_deref(), Some("prod-eu-1"));
        assert_eq!(cluster("..."), None);
    }

    #[test]
    fn names_that_would_be_the_same_keep_their_domain() {
        assert_eq!(named(&["cp1.a.example.com", "cp1.b.example.com"]), ["cp1-a-example-com", "cp1-b-example-com"]);
    }
}
