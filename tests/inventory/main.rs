//! The inventory seen from outside: accepted input, refused input, and the wording of refusals.
//!
//! Golden files are in `tests/inventory/`. After an intended change, run `UPDATE=1 cargo test --release --test
//! inventory`, then read the difference.

#![allow(clippy::unwrap_used)]

mod attached;
mod cli;
mod examples;
mod import;
mod properties;
mod published;
mod refusals;
mod rules;
mod ways;

use hactl::inventory::{InventoryError, Loaded};
use std::path::Path;

/// The directory of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Three hosts, everything else by default.
const MINIMAL: &str = include_str!("../../inventories/minimal.yaml");

/// The smallest text that the table of refusals edits.
const BASE: &str = "\
schema: 1
cluster: lab
endpoint:
  vip: 10.0.0.100
hosts:
  - name: cp1
    address: 10.0.0.11
    roles: [control-plane, etcd, load-balancer]
  - name: cp2
    address: 10.0.0.12
    roles: [control-plane, etcd, load-balancer]
  - name: cp3
    address: 10.0.0.13
    roles: [control-plane, etcd, load-balancer]
";

fn parse(text: &str) -> Result<Loaded, InventoryError> {
    hactl::inventory::parse(text, Path::new("/base"))
}

/// `BASE` with one edit. Panics if the edit changes nothing.
fn edited(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from:?} is not in the base text");
    BASE.replacen(from, to, 1)
}

/// `BASE` with this text appended.
fn with(more: &str) -> String {
    format!("{BASE}{more}\n")
}

/// The content of the golden files: the errors and warnings as people see them.
fn shown(text: &str) -> String {
    match parse(text) {
        Err(error) => format!("{error}\n"),
        Ok(loaded) => {
            let warnings: String = loaded.warnings.iter().fold(String::new(), |text, w| text + &w.to_string() + "\n");
            format!("{warnings}accepted\n")
        }
    }
}

/// Compares with a golden file, or writes it under UPDATE=1.
fn golden(name: &str, actual: &str) {
    golden_in("tests/inventory/golden", name, actual);
}

/// The same in another folder.
fn golden_in(folder: &str, name: &str, actual: &str) {
    let path = root().join(folder).join(format!("{name}.txt"));
    let update = std::env::var_os("UPDATE").is_some();
    let action = if update { snapbox::assert::Action::Overwrite } else { snapbox::assert::Action::Verify };
    let expected = snapbox::Data::read_from(&path, Some(snapbox::data::DataFormat::Text));
    snapbox::Assert::new().action(action).normalize_paths(false).eq(actual.to_owned(), expected.raw());
}
