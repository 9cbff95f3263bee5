//! Validates the text of an import by hactl's rules: no import returns an inventory that `check` would refuse.

use super::draft::Host;
use super::error::{Broken, ImportError};
use super::notes::{Note, Notes, short};
use super::wishes::Wishes;
use crate::inventory::files::Nothing;
use crate::inventory::load::{Around, InventoryError, Loaded, judge, look_for, parse};
use crate::inventory::problem::{Problem, Report, Severity};
use std::path::Path;

/// The result.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The inventory.
    pub text: String,
    /// Warnings to read before using it.
    pub warnings: Vec<Note>,
}

/// The text, if it passes hactl's rules; otherwise the violations with their places in the foreign file. `hosts` are
/// those of the draft, if there is one.
pub fn accepted(
    text: String,
    file: &str,
    wishes: &Wishes,
    mut notes: Notes,
    hosts: &[Host],
    place: impl Fn(&Problem) -> String,
) -> Result<Imported, ImportError> {
    match judged(&text, wishes, &mut notes) {
        Ok(loaded) => {
            for problem in &loaded.warnings {
                let remedy = problem.remedy.clone();
                notes.add(place(problem), problem.what.clone(), remedy);
            }
            Ok(Imported { text, warnings: notes.into_list() })
        }
        Err(error) => {
            let broken = match error {
                InventoryError::Invalid(report) => report.problems.iter().map(|p| broken(p, place(p), hosts)).collect(),
                other => vec![Broken {
                    place: file.to_owned(),
                    what: other.to_string(),
                    line_text: String::new(),
                    expected: String::new(),
                    remedy: "report this bug: hactl wrote the text itself".to_owned(),
                }],
            };
            Err(ImportError::Broken { broken, warnings: notes.into_list() })
        }
    }
}

/// hactl's rules. A named file that does not exist yet is only a warning.
fn judged(text: &str, wishes: &Wishes, notes: &mut Notes) -> Result<Loaded, InventoryError> {
    let Some(base) = &wishes.base else { return parse(text, Path::new("/")) };
    let loaded = parse(text, base)?;
    let around = Around { home: std::env::home_dir(), user: "", disk: &Nothing };
    let (again, files) = judge("hactl.yaml", text, base, around)?;
    if let Err(InventoryError::Invalid(Report { problems, .. })) = look_for("hactl.yaml", text, again, &files) {
        for problem in problems.into_iter().filter(|p| p.severity == Severity::Error) {
            notes.add(
                "the new inventory",
                format!("{}: `check` will refuse it", problem.what),
                "copy the file there, or correct the path",
            );
        }
    }
    Ok(loaded)
}

fn broken(problem: &Problem, place: String, hosts: &[Host]) -> Broken {
    let mut broken = Broken {
        place,
        what: problem.what.clone(),
        line_text: problem.line_text.clone(),
        expected: problem.expected.clone(),
        remedy: problem.remedy.clone(),
    };
    let Some(name) = problem.what.strip_suffix(" has no address") else { return broken };
    // The rule's remedy is a line in an inventory, and there is none yet.
    "add --address HOST=ADDRESS, or the address in the file; hactl resolves no name".clone_into(&mut broken.remedy);
    let host = hosts.iter().find(|host| host.name == name);
    if let Some(said) = host.and_then(|host| host.private_interface.as_ref()) {
        let interface = short(&said.value);
        broken.place.clone_from(&said.place);
        broken.what = format!(
            "{name} has no address: k0sctl reads it from the interface {interface} on the host (privateInterface), \
             and an import contacts no host"
        );
        broken.remedy = format!(
            "add --address {name}=ADDRESS with the IPv4 address of {interface}, or write it under privateAddress in \
             the file"
        );
    }
    broken
}
