//! An Ansible inventory as a value: hosts, nested groups, and the variables of a host.
//!
//! In: the content that the readers of both notations find. Out: [`Groups`], and a host's variables by Ansible's
//! precedence: groups before their children, groups of the same depth by name, files beside the inventory after the
//! inventory itself, the host last.

use super::super::node::Node;
use std::collections::{BTreeMap, BTreeSet};

/// A variable and its place.
#[derive(Debug, Clone)]
pub struct Var {
    /// Its value.
    pub node: Node,
    /// File and line.
    pub place: String,
}

/// Variables by name.
pub type Vars = BTreeMap<String, Var>;

/// One group.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Its direct hosts.
    pub hosts: Vec<String>,
    /// Groups within it.
    pub children: Vec<String>,
    /// Its variables.
    pub vars: Vars,
    /// Its first place.
    pub place: String,
}

/// A whole inventory.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    /// The groups by name; `all` and `ungrouped` only if the file contains them.
    pub groups: BTreeMap<String, Group>,
    /// The groups' names in the order of the file.
    pub order: Vec<String>,
    /// The hosts in the order of the file.
    pub hosts: Vec<String>,
    /// The first place of each host.
    pub places: BTreeMap<String, String>,
    /// Variables of hosts.
    pub host_vars: BTreeMap<String, Vars>,
    /// Variables from `group_vars`.
    pub group_files: BTreeMap<String, Vars>,
    /// Variables from `host_vars`.
    pub host_files: BTreeMap<String, Vars>,
}

impl Groups {
    /// A group, created if it is new.
    pub fn group(&mut self, name: &str, place: &str) -> &mut Group {
        if !self.groups.contains_key(name) {
            self.order.push(name.to_owned());
        }
        self.groups.entry(name.to_owned()).or_insert_with(|| Group { place: place.to_owned(), ..Group::default() })
    }
    /// Adds groups that playbooks derive from the existing ones.
    pub fn imply(&mut self, implied: &[(&str, &[&str])]) {
        for (parent, children) in implied {
            for child in children.iter().filter(|child| **child != *parent) {
                let Some(place) = self.groups.get(*child).map(|group| group.place.clone()) else { continue };
                let group = self.group(parent, &place);
                if !group.children.iter().any(|known| known == child) {
                    group.children.push((*child).to_owned());
                }
            }
        }
    }
    /// A host of a group.
    pub fn host(&mut self, name: &str, group: Option<&str>, place: &str) {
        if !self.places.contains_key(name) {
            self.places.insert(name.to_owned(), place.to_owned());
            self.hosts.push(name.to_owned());
        }
        if let Some(group) = group {
            let group = self.group(group, place);
            if !group.hosts.iter().any(|host| host == name) {
                group.hosts.push(name.to_owned());
            }
        }
    }
    /// The place of a host.
    pub fn place(&self, host: &str) -> String {
        self.places.get(host).cloned().unwrap_or_default()
    }
    /// The groups with this host as a direct member.
    pub fn direct(&self, host: &str) -> Vec<&str> {
        let names = |group: &Group| group.hosts.iter().any(|h| h == host);
        self.order.iter().map(String::as_str).filter(|name| self.groups.get(*name).is_some_and(names)).collect()
    }
    /// The groups that have this one as a child.
    pub fn parents(&self, child: &str) -> Vec<&str> {
        let has = |group: &Group| group.children.iter().any(|c| c == child);
        self.order.iter().map(String::as_str).filter(|name| self.groups.get(*name).is_some_and(has)).collect()
    }
    /// All groups of a host, with their depth below `all`.
    fn around(&self, host: &str) -> Vec<(usize, &str)> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open = self.direct(host);
        while let Some(name) = open.pop() {
            if name != "all" && seen.insert(name) {
                open.extend(self.parents(name));
            }
        }
        let mut depths = BTreeMap::new();
        let mut list: Vec<(usize, &str)> = seen.into_iter().map(|name| (self.depth(name, &mut depths), name)).collect();
        list.sort_unstable();
        list
    }
    /// The longest path from `all`; a group that contains itself is not deeper.
    fn depth<'a>(&'a self, name: &'a str, known: &mut BTreeMap<&'a str, usize>) -> usize {
        if let Some(depth) = known.get(name) {
            return *depth;
        }
        known.insert(name, 0);
        let parents = self.parents(name).into_iter().filter(|parent| *parent != "all");
        let depth = 1 + parents.map(|parent| self.depth(parent, known)).max().unwrap_or(0);
        known.insert(name, depth);
        depth
    }
    /// The variables of a host.
    pub fn vars(&self, host: &str) -> Vars {
        let none = Vars::new();
        let around = self.around(host);
        let inside = |name: &str| self.groups.get(name).map_or(&none, |group| &group.vars);
        let beside = |name: &str| self.group_files.get(name).unwrap_or(&none);
        let mut out = Vars::new();
        let mut add = |vars: &Vars| out.extend(vars.iter().map(|(key, var)| (key.clone(), var.clone())));
        add(inside("all"));
        for (_, name) in &around {
            add(inside(name));
        }
        add(beside("all"));
        for (_, name) in &around {
            add(beside(name));
        }
        add(self.host_vars.get(host).unwrap_or(&none));
        add(self.host_files.get(host).unwrap_or(&none));
        out
    }
    /// All variables that are set for these hosts, in the order of files.
    pub fn everything<'a>(&'a self, hosts: &[&'a str]) -> Vec<(&'a str, &'a Var)> {
        let mut names: BTreeSet<&str> = ["all"].into();
        for host in hosts {
            names.extend(self.around(host).into_iter().map(|(_, name)| name));
        }
        let of_groups = names.iter().flat_map(|name| {
            [self.groups.get(*name).map(|group| &group.vars), self.group_files.get(*name)].into_iter().flatten()
        });
        let of_hosts =
            hosts.iter().flat_map(|host| [self.host_vars.get(*host), self.host_files.get(*host)].into_iter().flatten());
        of_groups.chain(of_hosts).flatten().map(|(key, var)| (key.as_str(), var)).collect()
    }
}
