//! Converts existing inventories of other tools to one of hactl.
//!
//! In: a foreign file, with the files beside it that its tool reads, and [`Wishes`] for settings that such a file
//! cannot contain. Out: [`Imported`]: a commented inventory that passes hactl's rules, and a [`Note`] for each setting
//! that could not be converted; or an [`ImportError`]. Each tool has a module that fills in a [`Draft`]; this module
//! converts the drafts of all of them.

mod ansible;
pub mod draft;
mod k0sctl;
mod kubespray;
mod names;
pub mod node;
pub mod notes;
mod recognise;
mod shared;
mod source;
mod vagrant;
pub mod write;

pub use notes::Note;
pub use source::{Input, read};
pub use vagrant::vagrant;

use super::problem::{Problem, Severity};
use super::{Files, InventoryError, Loaded, Report};
use crate::model::desired::Role;
use draft::{Draft, Said, Way};
use notes::{Notes, clean};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The tool of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// An Ansible inventory.
    Ansible,
    /// A Kubespray inventory: an Ansible inventory with Kubespray's variables.
    Kubespray,
    /// A k0sctl configuration.
    K0sctl,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ansible => "an Ansible inventory",
            Self::Kubespray => "a Kubespray inventory",
            Self::K0sctl => "a k0sctl configuration",
        })
    }
}

/// Settings that the foreign file cannot contain.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// A virtual address for the endpoint.
    pub vip: Option<String>,
    /// An external balancer.
    pub external: Option<String>,
    /// A balancer on every Node.
    pub local: bool,
    /// Roles of groups, as GROUP=ROLE[,ROLE].
    pub roles: Vec<String>,
    /// Addresses of hosts, as HOST=ADDRESS.
    pub addresses: Vec<String>,
    /// The future folder of the inventory, if the files that it names are to be checked.
    pub base: Option<PathBuf>,
}

/// The result.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The inventory.
    pub text: String,
    /// Warnings to read before using it.
    pub warnings: Vec<Note>,
}

/// A rule of hactl that the result would violate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Where in the foreign file.
    #[serde(rename = "where")]
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// The line as it would have been written.
    pub line_text: String,
    /// What was expected.
    pub expected: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: error: {}", clean(&self.place), self.what)?;
        if !self.line_text.trim().is_empty() {
            write!(f, "\n  it would be: {}", self.line_text.trim())?;
        }
        if !self.expected.is_empty() {
            write!(f, "\n  expected: {}", self.expected)?;
        }
        write!(f, "\n  do: {}", self.remedy)
    }
}

/// Why there is no inventory.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is no such file.
    #[error("{0} does not exist\n  do: name the file; `-` reads standard input")]
    Missing(String),
    /// It cannot be read.
    #[error("cannot read {from}: {source}\n  do: check its permissions; `-` reads standard input")]
    Unreadable {
        /// Which file.
        from: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is another kind of file.
    #[error("{from} is {seen}, not {wanted}\n  do: {remedy}")]
    Other {
        /// Which file.
        from: String,
        /// The recognised kind.
        seen: String,
        /// The requested kind.
        wanted: String,
        /// What to do.
        remedy: String,
    },
    /// It is broken.
    #[error("{from}:{line}: {why}\n  do: {remedy}")]
    Syntax {
        /// Which file.
        from: String,
        /// Which line.
        line: usize,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// A flag is invalid.
    #[error("{flag} {text:?}: {why}\n  do: {remedy}")]
    Flag {
        /// Which flag.
        flag: &'static str,
        /// Its value.
        text: String,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// No host has the role control-plane.
    #[error("{from} has no host for the control plane: {why}\n  do: {remedy}")]
    NoControlPlane {
        /// Which file.
        from: String,
        /// What is known.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// There is no endpoint.
    #[error(
        "{0} does not contain the endpoint of the API, and hactl does not guess one\n  \
         do: add --vip ADDRESS (a free address of the hosts' network), --external HOST:PORT (your own load \
         balancer), or --local (a balancer on every Node)"
    )]
    NoEndpoint(String),
    /// hactl cannot make one from Vagrant's machines.
    #[error(transparent)]
    Vagrant(#[from] super::vagrant::VagrantError),
    /// The result violates hactl's rules.
    #[error("{}", told(.broken, .warnings))]
    Broken {
        /// The violations.
        broken: Vec<Broken>,
        /// The warnings.
        warnings: Vec<Note>,
    },
}

fn told(broken: &[Broken], warnings: &[Note]) -> String {
    let mut text = String::new();
    for note in warnings {
        text.push_str(&format!("{note}\n\n"));
    }
    for rule in broken {
        text.push_str(&format!("{rule}\n\n"));
    }
    text + "error: nothing was written: the result would not be a valid inventory"
}

/// Converts a foreign file to an inventory; other files are read from `disk`.
pub fn import(tool: Tool, input: &Input, wishes: &Wishes, disk: &dyn Files) -> Result<Imported, ImportError> {
    recognise::expect(tool, input)?;
    let mut notes = Notes::default();
    let draft = match tool {
        Tool::Ansible => ansible::draft(input, wishes, disk, &mut notes)?,
        Tool::Kubespray => kubespray::draft(input, wishes, disk, &mut notes)?,
        Tool::K0sctl => k0sctl::draft(input, &mut notes)?,
    };
    finish(draft, notes, wishes)
}

/// Completes a draft with the flags, writes it and validates it: a result that violates a rule is never returned.
pub fn finish(mut draft: Draft, mut notes: Notes, wishes: &Wishes) -> Result<Imported, ImportError> {
    names::assign(&mut draft.hosts, &mut notes);
    wished(&mut draft, wishes)?;
    if !draft.hosts.iter().any(|host| host.roles.contains(&Role::ControlPlane)) {
        return Err(ImportError::NoControlPlane {
            from: draft.file,
            why: "none has that role".to_owned(),
            remedy: "add it to hosts in the file: 3, or 1 for a test cluster".to_owned(),
        });
    }
    if draft.endpoint.is_none() {
        return Err(ImportError::NoEndpoint(draft.file));
    }
    draft.complete_roles(&mut notes);
    draft.lift();
    let written = write::write(&draft);
    let place = |problem: &Problem| {
        let origin = problem.place.line.checked_sub(1).and_then(|line| written.origins.get(line));
        origin.filter(|origin| !origin.is_empty()).unwrap_or(&draft.file).clone()
    };
    accepted(written.text.clone(), &draft.file, wishes, notes, place)
}

/// The text, if it passes hactl's rules; otherwise the violations with their places in the foreign file.
fn accepted(
    text: String,
    file: &str,
    wishes: &Wishes,
    mut notes: Notes,
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
                InventoryError::Invalid(report) => report.problems.iter().map(|p| broken(p, place(p))).collect(),
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
    let Some(base) = &wishes.base else { return super::parse(text, &PathBuf::from("/")) };
    let loaded = super::parse(text, base)?;
    let around = super::Around { home: std::env::home_dir(), user: "", disk: &super::openssh::Nothing };
    let (again, files) = super::judge("hactl.yaml", text, base, around)?;
    if let Err(InventoryError::Invalid(Report { problems, .. })) = super::look_for("hactl.yaml", text, again, &files) {
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

fn broken(problem: &Problem, place: String) -> Broken {
    let mut broken = Broken {
        place,
        what: problem.what.clone(),
        line_text: problem.line_text.clone(),
        expected: problem.expected.clone(),
        remedy: problem.remedy.clone(),
    };
    if broken.what.ends_with(" has no address") {
        // The rule's remedy is a line in an inventory, and there is none yet.
        "add --address HOST=ADDRESS, or the address in the file; hactl resolves no name".clone_into(&mut broken.remedy);
    }
    broken
}

/// The command line has precedence over the file.
fn wished(draft: &mut Draft, wishes: &Wishes) -> Result<(), ImportError> {
    if let Some(name) = &wishes.cluster {
        draft.cluster = Said::new(name.as_str(), "", "--cluster");
    }
    let by_flag = if let Some(vip) = &wishes.vip {
        Some(Way::Vip(Said::new(vip.as_str(), "", "--vip")))
    } else if let Some(external) = &wishes.external {
        Some(Way::External(Said::new(external.as_str(), "", "--external")))
    } else {
        wishes.local.then(|| Way::Local(Said::new((), "", "--local")))
    };
    if let Some(way) = by_flag {
        let port_given = matches!(&way, Way::External(to) if to.value.contains(':'));
        if port_given {
            draft.endpoint_port = None;
        }
        draft.endpoint = Some(way);
    }
    let mut addresses = pairs("--address", "HOST=ADDRESS", &wishes.addresses)?;
    for host in &mut draft.hosts {
        let by_given = addresses.remove(&host.given);
        if let Some(address) = by_given.or_else(|| addresses.remove(&host.name)) {
            host.address = Some(Said::new(address, "", "--address"));
        }
    }
    match addresses.into_iter().next() {
        None => Ok(()),
        Some((name, _)) => Err(ImportError::Flag {
            flag: "--address",
            text: name,
            why: "no host of the cluster has this name".to_owned(),
            remedy: "write the name as in the file".to_owned(),
        }),
    }
}

/// `NAME=VALUE` flags.
fn pairs(flag: &'static str, form: &str, given: &[String]) -> Result<BTreeMap<String, String>, ImportError> {
    let mut out = BTreeMap::new();
    for text in given {
        match text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
            Some((name, value)) => out.insert(name.to_owned(), value.to_owned()),
            None => {
                return Err(ImportError::Flag {
                    flag,
                    text: text.clone(),
                    why: format!("it is not {form}"),
                    remedy: format!("write {flag} {form}"),
                });
            }
        };
    }
    Ok(out)
}
