//! Collects what the checks find: refusals, warnings, and the files that the inventory names.

use crate::inventory::at::{At, Place};
use crate::inventory::files::Files;
use crate::inventory::problem::{Problem, Report, Severity, Words};
use std::path::{Path, PathBuf};

/// The kind of a file that the inventory names, with its registry or mirror, or `s3://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Not read here.
    Elsewhere,
    /// CAs that a registry's certificate, or that of object storage, must be signed by.
    Authority(String),
    /// `user:password` for a registry, or the key of object storage.
    Login(String),
    /// Kubernetes objects, in a file or a folder of files.
    Manifests,
}

/// A file that the inventory names; `load` checks that it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Which key names it.
    pub key: &'static str,
    /// Absolute path.
    pub path: PathBuf,
    /// Place in the inventory.
    pub place: Place,
    /// What it contains.
    pub reading: Reading,
}

/// Collects problems.
pub struct Validator<'a> {
    /// The file as the user named it.
    pub file: &'a str,
    /// The text.
    pub source: &'a str,
    /// Directory that relative paths are relative to.
    pub base: &'a Path,
    /// The directory `~`.
    pub home: Option<PathBuf>,
    /// Source of OpenSSH's configuration.
    pub disk: &'a dyn Files,
    /// Our user name on this machine.
    pub local_user: &'a str,
    /// Refusals.
    pub problems: Vec<Problem>,
    /// Warnings.
    pub warnings: Vec<Problem>,
    /// Files that must exist.
    pub files: Vec<NamedFile>,
}

impl Validator<'_> {
    /// Records a refusal.
    pub fn refuse(
        &mut self,
        place: Place,
        what: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let words = Words::new(what, expected, remedy);
        self.problems.push(Problem::new(Severity::Error, self.file, self.source, place, words));
    }
    /// Records a refusal of a value, of which nothing remains.
    pub fn none<T>(
        &mut self,
        place: Place,
        what: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Option<T> {
        self.refuse(place, what, expected, remedy);
        None
    }
    /// Records a warning.
    pub fn warn(
        &mut self,
        place: Place,
        what: impl Into<String>,
        expected: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let words = Words::new(what, expected, remedy);
        self.warnings.push(Problem::new(Severity::Warning, self.file, self.source, place, words));
    }
    /// A file that must exist, by its absolute path.
    pub fn path(&mut self, key: &'static str, text: &At<String>) -> Option<PathBuf> {
        self.file(key, text, Reading::Elsewhere)
    }
    /// The same for a file whose contents are validated as well.
    pub fn file(&mut self, key: &'static str, text: &At<String>, reading: Reading) -> Option<PathBuf> {
        let path = self.absolute(key, text)?;
        self.files.push(NamedFile { key, path: path.clone(), place: text.place, reading });
        Some(path)
    }
    /// A path of the inventory as an absolute one.
    pub fn absolute(&mut self, key: &'static str, text: &At<String>) -> Option<PathBuf> {
        let given = text.value.as_str();
        if given.is_empty() || given.chars().any(char::is_control) {
            let what = format!("{key} is not a path");
            return self.none(text.place, what, "the path of a file", "write one, or remove the key");
        }
        let path = match given.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => match &self.home {
                Some(home) => home.join(rest.trim_start_matches('/')),
                None => {
                    let what = "~ means the home directory, but HOME is not set";
                    return self.none(text.place, what, "HOME in the environment", "write the path without ~");
                }
            },
            Some(_) => {
                let what = format!("{given} means another user's home");
                return self.none(text.place, what, "~/...", "write the full path");
            }
            None => self.base.join(given.strip_prefix("./").unwrap_or(given)),
        };
        Some(path)
    }
    /// All findings in the order of the file, those of other files last.
    pub fn report(mut self) -> Report {
        for found in [&mut self.problems, &mut self.warnings] {
            found.sort_by(|a, b| {
                let elsewhere = |p: &Problem| p.file != self.file;
                elsewhere(a).cmp(&elsewhere(b)).then_with(|| a.file.cmp(&b.file)).then(a.place.cmp(&b.place))
            });
        }
        Report { problems: self.problems, warnings: self.warnings }
    }
}
