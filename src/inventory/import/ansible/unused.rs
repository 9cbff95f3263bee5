//! Settings of an inventory that are not in the draft: unused variables, and variables with another value for hosts
//! other than the one that they were read from.
//!
//! In: the groups, the hosts of the draft, and the used variables. Out: notes with names only, because values may be
//! secrets.

use super::super::draft::Host;
use super::super::notes::{Notes, listed};
use super::groups::Groups;
use super::scope::Asked;
use crate::model::desired::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Reports all variables that are not carried over, by file.
pub fn unused(groups: &Groups, hosts: &[Host], asked: &Asked, notes: &mut Notes) {
    let names: Vec<&str> = hosts.iter().map(|host| host.given.as_str()).collect();
    let mut by_file: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut own: BTreeSet<&str> = BTreeSet::new();
    let mut own_place = "";
    for (key, var) in groups.everything(&names) {
        if asked.contains(key) || var.node.is_empty() {
            continue;
        }
        if key.starts_with("ansible_") {
            own.insert(key);
            own_place = &var.place;
            continue;
        }
        by_file.entry(file(&var.place)).or_default().insert(key);
    }
    if !own.is_empty() {
        let keys: Vec<&str> = own.into_iter().collect();
        notes.add(
            own_place,
            format!("these concern only Ansible: {}", listed(&keys, 20)),
            "nothing: hactl needs neither Python nor these",
        );
    }
    of_some_hosts(groups, hosts, asked, notes);
    for (file, keys) in by_file {
        let keys: Vec<&str> = keys.into_iter().collect();
        notes.add(
            file,
            format!("{} not carried over: {}", how_many(keys.len()), listed(&keys, 200)),
            "check them: settings of Kubernetes have a key in docs/inventory.md, or go under `extra`",
        );
    }
}

/// Variables that were read from one host for all of them, and have another value for other hosts.
fn of_some_hosts(groups: &Groups, hosts: &[Host], asked: &Asked, notes: &mut Notes) {
    let mut found: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for host in hosts {
        for (key, var) in groups.vars(&host.given) {
            let nothing = var.node.is_empty() && !asked.has(&key);
            // etcd's variables are read from the etcd hosts; those of other hosts have no effect.
            let strange = key.starts_with("etcd_") && asked.has(&key) && !host.roles.contains(&Role::Etcd);
            if asked.contains(&key) && !nothing && !strange && !asked.used(&key, &var) {
                found.entry((var.place, key)).or_default().push(&host.given);
            }
        }
    }
    let mut together: BTreeMap<(String, Vec<&str>), BTreeSet<String>> = BTreeMap::new();
    for ((place, key), hosts) in found {
        together.entry((file(&place).to_owned(), hosts)).or_default().insert(key);
    }
    for ((file, hosts), keys) in together {
        let keys: Vec<&String> = keys.iter().collect();
        notes.add(
            file,
            format!(
                "set only for {}, and not carried over, because one value applies to all hosts here: {}",
                listed(&hosts, 10),
                listed(&keys, 200)
            ),
            "in the new inventory, set those that can apply to every host; its keys are in docs/inventory.md",
        );
    }
}

fn file(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(file, _)| file)
}

fn how_many(n: usize) -> String {
    if n == 1 { "1 variable".to_owned() } else { format!("{n} variables") }
}
