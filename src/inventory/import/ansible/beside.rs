//! `group_vars` and `host_vars`: variables in files beside the inventory, each called like the group or host that it is for.
//!
//! In: the folder of the inventory. Out: the variables, added to [`Groups`]; what cannot be read there is told and left out.

use super::super::node;
use super::super::notes::{Notes, listed};
use super::super::{Files, Input};
use super::groups::{Groups, Vars};
use super::yaml::variables;
use std::collections::BTreeSet;
use std::path::Path;

/// Folders within folders, and files in all.
const DEEPEST: usize = 5;
const MOST: usize = 500;

/// Reads them.
pub fn read(groups: &mut Groups, input: &Input, folder: &Path, disk: &dyn Files, notes: &mut Notes) {
    let mut left = MOST;
    let mut known: Vec<String> = groups.order.clone();
    known.extend(["all".to_owned(), "ungrouped".to_owned()]);
    groups.group_files = kind((folder, input), "group_vars", &known, disk, notes, &mut left);
    let hosts = groups.hosts.clone();
    groups.host_files = kind((folder, input), "host_vars", &hosts, disk, notes, &mut left);
}

fn kind(
    (folder, input): (&Path, &Input),
    kind: &str,
    known: &[String],
    disk: &dyn Files,
    notes: &mut Notes,
    left: &mut usize,
) -> std::collections::BTreeMap<String, Vars> {
    let mut out = std::collections::BTreeMap::new();
    let mut names = disk.list(&folder.join(kind)).unwrap_or_default();
    names.sort();
    let mut unknown_nodes: BTreeSet<String> = BTreeSet::new();
    for name in names.iter().filter(|name| is_meant(name)) {
        let stem =
            name.strip_suffix(".yml").or_else(|| name.strip_suffix(".yaml")).or_else(|| name.strip_suffix(".json"));
        let owner = if known.contains(name) { name.as_str() } else { stem.unwrap_or(name) };
        if !known.iter().any(|k| k == owner) {
            unknown_nodes.insert(name.clone());
            continue;
        }
        let vars: &mut Vars = out.entry(owner.to_owned()).or_default();
        walk(&folder.join(kind).join(name), &input.beside(&format!("{kind}/{name}")), 0, disk, notes, left, vars);
    }
    if !unknown_nodes.is_empty() {
        let names: Vec<&String> = unknown_nodes.iter().collect();
        notes.add(
            input.beside(kind),
            format!("not read, since no group or host of the inventory is called so: {}", listed(&names, 10)),
            "nothing; Ansible does not read them for this inventory either",
        );
    }
    out
}

/// What editors leave behind is not read.
fn is_meant(name: &str) -> bool {
    !name.starts_with('.')
        && !name.ends_with('~')
        && ![".bak", ".orig", ".swp", ".md", ".j2", ".retry"].iter().any(|end| name.ends_with(end))
}

fn walk(path: &Path, name: &str, depth: usize, disk: &dyn Files, notes: &mut Notes, left: &mut usize, vars: &mut Vars) {
    if depth > DEEPEST || *left == 0 {
        notes.add(
            name,
            "there are more files, or deeper folders, than any inventory has: left out",
            "name the values that matter in the new inventory",
        );
        return;
    }
    if let Ok(mut inside) = disk.list(path)
        && !inside.is_empty()
    {
        inside.sort();
        for entry in inside.iter().filter(|entry| is_meant(entry)) {
            walk(&path.join(entry), &format!("{name}/{entry}"), depth + 1, disk, notes, left, vars);
        }
        return;
    }
    *left -= 1;
    let text = match disk.read(path) {
        Ok(text) => text,
        Err(error) => {
            notes.add(
                name,
                format!("it cannot be read: {error}"),
                "correct it and import again, or set its values in the new inventory",
            );
            return;
        }
    };
    if text.trim_start().starts_with("$ANSIBLE_VAULT") {
        notes.add(
            name,
            "ansible-vault keeps this file: none of its values is read",
            "name what hactl needs in files of your own; secrets never stand in an inventory",
        );
        return;
    }
    match node::read(&text) {
        Ok(documents) => vars.extend(documents.iter().flat_map(|document| variables(name, document))),
        Err(bad) => notes.add(
            format!("{name}:{}", bad.line),
            format!("this is not YAML, so none of the file is read: {}", bad.why),
            "correct it and import again",
        ),
    }
}
