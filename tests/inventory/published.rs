//! The committed JSON Schema and the list of keys in docs/inventory.md match the types.

use super::root;
use hactl::inventory::reference;
use std::fs;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->\n";
const HOW: &str = "does not match src/inventory/schema.rs; run: UPDATE=1 cargo test --release --test inventory";

fn compare(path: &str, actual: &str, expected: &str) {
    if actual == expected {
        return;
    }
    assert!(std::env::var_os("UPDATE").is_some(), "{path} {HOW}");
    fs::write(root().join(path), expected).unwrap();
}

#[test]
fn the_committed_json_schema_is_the_one_of_the_types() {
    let path = "inventories/schema.json";
    compare(path, &fs::read_to_string(root().join(path)).unwrap_or_default(), &reference::schema_text());
}

#[test]
fn the_reference_page_holds_the_list_of_the_keys() {
    let path = "docs/inventory.md";
    let page = fs::read_to_string(root().join(path)).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page marks where the list begins");
    let (_, after) = rest.split_once(END).expect("the page marks where the list ends");
    let list = reference::list();
    assert!(list.lines().all(|line| line.chars().count() <= 120), "a line of the list exceeds 120 columns");
    compare(path, &page, &format!("{before}{BEGIN}{list}{END}{after}"));
}

#[test]
fn every_key_is_explained() {
    for key in reference::keys() {
        assert!(!key.meaning.is_empty() && !key.kind.is_empty(), "{key:?}");
    }
}

#[test]
fn the_full_example_uses_every_key_of_the_schema() {
    let full = fs::read_to_string(root().join("inventories/full.yaml")).unwrap();
    let missing: Vec<String> = reference::keys()
        .into_iter()
        .map(|key| key.path)
        .filter(|path| path != "endpoint.external")
        .filter(|path| !full.contains(&format!("{}:", path.rsplit('.').next().unwrap())))
        .collect();
    assert!(missing.is_empty(), "not in inventories/full.yaml: {missing:?}");
}

#[test]
fn only_what_every_inventory_needs_is_required() {
    // A CA without its key is not usable.
    let (pairs, required): (Vec<String>, Vec<String>) = reference::keys()
        .into_iter()
        .filter(|k| k.default == "required")
        .map(|k| k.path)
        .partition(|path| path.starts_with("pki."));
    assert_eq!(
        required,
        ["cluster", "endpoint", "hosts", "hosts[].address", "hosts[].name", "hosts[].roles", "schema"]
    );
    assert_eq!(
        pairs,
        ["ca", "etcdCa", "frontProxyCa"].map(|ca| [format!("pki.{ca}.cert"), format!("pki.{ca}.key")]).concat()
    );
}
