//! The committed JSON Schema and the reference page are what the types say.

use super::root;
use hactl::inventory::reference;
use std::fs;

const BEGIN: &str = "<!-- generated: begin -->\n";
const END: &str = "<!-- generated: end -->\n";
const HOW: &str = "is not what src/inventory/schema.rs says; run: UPDATE=1 cargo test --release --test inventory";

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
fn the_reference_page_holds_the_table_of_the_schema() {
    let path = "docs/inventory.md";
    let page = fs::read_to_string(root().join(path)).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page marks where the table begins");
    let (_, after) = rest.split_once(END).expect("the page marks where the table ends");
    compare(path, &page, &format!("{before}{BEGIN}{}{END}{after}", reference::table()));
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
    // Half an authority is none.
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
