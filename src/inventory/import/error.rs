//! Why an import makes no inventory.

use super::node::NotYaml;
use super::notes::{Note, clean};
use crate::inventory::vagrant::VagrantError;
use serde::Serialize;
use std::fmt;

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
    Vagrant(#[from] VagrantError),
    /// The result violates hactl's rules.
    #[error("{}", stated(.broken, .warnings))]
    Broken {
        /// The violations.
        broken: Vec<Broken>,
        /// The warnings.
        warnings: Vec<Note>,
    },
}

impl ImportError {
    /// An invalid line.
    pub fn syntax(from: &str, line: usize, why: impl Into<String>, remedy: &str) -> Self {
        Self::Syntax { from: from.to_owned(), line, why: why.into(), remedy: remedy.to_owned() }
    }
    /// A file that the reader of YAML cannot read.
    pub fn not_yaml(from: &str, bad: &NotYaml) -> Self {
        let remedy = "check this line and the one above: a missing `:`, quote or bracket, or wrong indentation";
        Self::syntax(from, bad.line, format!("this is not YAML: {}", bad.why), remedy)
    }
    /// Another kind of file.
    pub fn other(from: &str, seen: impl Into<String>, wanted: impl ToString, remedy: impl Into<String>) -> Self {
        Self::Other { from: from.to_owned(), seen: seen.into(), wanted: wanted.to_string(), remedy: remedy.into() }
    }
    /// An invalid flag.
    pub fn flag(flag: &'static str, text: &str, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Flag { flag, text: text.to_owned(), why: why.into(), remedy: remedy.into() }
    }
}

fn stated(broken: &[Broken], warnings: &[Note]) -> String {
    let mut text = String::new();
    for note in warnings {
        text.push_str(&format!("{note}\n\n"));
    }
    for rule in broken {
        text.push_str(&format!("{rule}\n\n"));
    }
    text + "error: nothing was written: the result would not be a valid inventory"
}
