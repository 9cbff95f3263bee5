//! `group_vars` and `host_vars`: variables in files beside the inventory, each named after its group or host.
//!
//! In: the folder of the inventory. Out: the variables, added to [`Groups`]; unreadable files are reported.

use super::super::node;
use super::super::notes::{Notes, listed};
use super::super::source::Input;
use super::groups::{Groups, Vars};
use super::yaml::variables;
use crate::inventory::files::Files;
use std::collections::BTreeSet;
use std::path::Path;

/// Limits for nested folders and for files.
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
            format!("not read, because the inventory has no such group or host: {}", listed(&names, 10)),
            "nothing; Ansible does not read them for this inventory either",
        );
    }
    out
}

/// Whether a file is read: not those that editors leave behind.
fn is_meant(name: &str) -> bool {
    !name.starts_with('.')
        && !name.ends_with('~')
        && ![".bak", ".orig", ".swp", ".md", ".j2", ".retry"].iter().any(|end| name.ends_with(end))
}

fn walk(path: &Path, name: &str, depth: usize, disk: &dyn Files, notes: &mut Notes, left: &mut usize, vars: &mut Vars) {
    if depth > DEEPEST || *left == 0 {
        notes.add(
            name,
            "there are too many files, or too deeply nested folders: left out",
            "set the values that you need in the new inventory",
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
            "this file is encrypted with ansible-vault: its values are not read",
            "write secrets that hactl needs into files of your own; an inventory never contains secrets",
        );
        return;
    }
    match node::read(&text) {
        Ok(documents) => vars.extend(documents.iter().flat_map(|document| variables(name, document))),
        Err(bad) => notes.add(
            format!("{name}:{}", bad.line),
            format!("this is not YAML, so the file is not read: {}", bad.why),
            "correct it and import again",
        ),
    }
}
