//! Reads an inventory, validates it, and checks that the files it names exist.
//!
//! In: a file or standard input. Out: [`Loaded`], with every default filled in and with warnings, or an
//! [`InventoryError`] with every violation: its line, what was expected and what to do.

use super::at::Place;
use super::check::validator::{NamedFile, Reading, Validator};
use super::files::{Disk, Files, Nothing};
use super::problem::{Problem, Report, Severity, Words};
use super::source::{Source, bounded};
use super::{attached, check, vagrant, yaml};
use crate::model::attached::Attached;
use crate::model::desired::Desired;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A valid inventory.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The desired state.
    pub desired: Desired,
    /// Warnings in the order of the file.
    pub warnings: Vec<Problem>,
    /// Its text.
    pub text: String,
    /// The contents of the files that it names; empty if these were not opened.
    pub attached: Arc<Attached>,
    /// The inventory's directory, absolute where possible; the state directory is below it.
    pub base: PathBuf,
}

/// Why there is no desired state.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// There is no such file.
    #[error(
        "there is no inventory at {}\n  \
         do: create one with `hactl inventory init {}`, or name another with -i FILE",
        .0.display(), .0.display()
    )]
    Missing(PathBuf),
    /// It is a directory.
    #[error(
        "{} is a directory; an inventory is a file\n  \
         do: name the file in it, such as {}",
        .0.display(), .0.join("hactl.yaml").display()
    )]
    Directory(PathBuf),
    /// It cannot be read.
    #[error("cannot read the inventory {from}: {source}\n  do: check its permissions; `-` reads standard input")]
    Unreadable {
        /// The source.
        from: String,
        /// The system's error.
        source: io::Error,
    },
    /// It is not text.
    #[error(
        "{from}:{line}: byte {offset} is not UTF-8 text\n  do: check the path: an inventory is a YAML file in UTF-8"
    )]
    NotText {
        /// The source.
        from: String,
        /// Line of the first bad byte.
        line: usize,
        /// Its offset.
        offset: usize,
    },
    /// hactl cannot make one from Vagrant's machines.
    #[error(transparent)]
    Vagrant(#[from] vagrant::VagrantError),
    /// It violates rules.
    #[error("{0}")]
    Invalid(Report),
}

impl InventoryError {
    /// The violations, if the text could be validated.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Invalid(report) => Some(report),
            _ => None,
        }
    }
}

/// Reads an inventory and checks that the files it names exist.
pub fn load(source: &Source) -> Result<Loaded, InventoryError> {
    let name = source.to_string();
    let unreadable = |source| InventoryError::Unreadable { from: name.clone(), source };
    let (bytes, base) = match source {
        Source::Stdin => (bounded(io::stdin().lock()).map_err(unreadable)?, PathBuf::from(".")),
        Source::Vagrant(dir) => (vagrant::inventory(dir, &vagrant::Wishes::default())?.into_bytes(), dir.clone()),
        Source::Path(path) => {
            let found = std::fs::metadata(path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => InventoryError::Missing(path.clone()),
                _ => unreadable(error),
            })?;
            if found.is_dir() {
                return Err(InventoryError::Directory(path.clone()));
            }
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (std::fs::File::open(path).and_then(bounded).map_err(unreadable)?, folder.to_owned())
        }
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..offset].iter().filter(|b| **b == b'\n').count() + 1;
        InventoryError::NotText { from: name.clone(), line, offset }
    })?;
    let base = std::path::absolute(&base).unwrap_or(base);
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let around = Around { home: std::env::home_dir(), user: &user, disk: &Disk };
    let (loaded, files) = judge(&name, &text, &base, around)?;
    look_for(&name, &text, loaded, &files)
}

/// Validates a text, as if it were a file in `base`. Opens no file, not even OpenSSH's configuration, so that it can be
/// fuzzed.
pub fn parse(text: &str, base: &Path) -> Result<Loaded, InventoryError> {
    let around = Around { home: std::env::home_dir(), user: "", disk: &Nothing };
    judge("hactl.yaml", text, base, around).map(|(loaded, _)| loaded)
}

/// Validates a text, as if it were a file in `base`, for a user with this home directory and these files.
pub fn parse_at_home(text: &str, base: &Path, home: &Path, disk: &dyn Files) -> Result<Loaded, InventoryError> {
    let around = Around { home: Some(home.to_owned()), user: "me", disk };
    judge("hactl.yaml", text, base, around).map(|(loaded, _)| loaded)
}

/// The environment of an inventory.
pub(super) struct Around<'a> {
    pub home: Option<PathBuf>,
    pub user: &'a str,
    pub disk: &'a dyn Files,
}

pub(super) fn judge(
    file: &str,
    text: &str,
    base: &Path,
    around: Around<'_>,
) -> Result<(Loaded, Vec<NamedFile>), InventoryError> {
    let raw = yaml::read(file, text)
        .map_err(|problem| InventoryError::Invalid(Report { problems: vec![*problem], warnings: Vec::new() }))?;
    let mut judge = Validator {
        file,
        source: text,
        base,
        home: around.home,
        disk: around.disk,
        local_user: around.user,
        problems: Vec::new(),
        warnings: Vec::new(),
        files: Vec::new(),
    };
    let desired = check::desired(&mut judge, &raw);
    let files = std::mem::take(&mut judge.files);
    let report = judge.report();
    if report.problems.is_empty() {
        let (warnings, attached) = (report.warnings, Arc::default());
        Ok((Loaded { desired, warnings, text: text.to_owned(), attached, base: base.to_owned() }, files))
    } else {
        Err(InventoryError::Invalid(report))
    }
}

/// Checks that the named files exist, before any host is changed.
pub(super) fn look_for(
    name: &str,
    text: &str,
    mut loaded: Loaded,
    files: &[NamedFile],
) -> Result<Loaded, InventoryError> {
    let mut problems = Vec::new();
    for file in files {
        let why = match std::fs::metadata(&file.path) {
            Ok(found) if found.is_dir() && file.reading != Reading::Manifests => "it is a directory".to_owned(),
            Ok(found) if found.is_dir() => match std::fs::read_dir(&file.path) {
                Ok(_) => continue,
                Err(error) => error.to_string(),
            },
            Ok(_) => match std::fs::File::open(&file.path) {
                Ok(_) => continue,
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => "it does not exist".to_owned(),
            Err(error) => error.to_string(),
        };
        let words = Words::new(
            format!("{} names {}, which cannot be read: {why}", file.key, file.path.display()),
            "a file that you can read; relative paths start at the inventory's directory",
            "correct the path, or remove the key",
        );
        problems.push(Problem::new(Severity::Error, name, text, file.place, words));
    }
    if problems.is_empty() {
        let found = attached::read(attached::Naming { name, text, base: &loaded.base }, files);
        problems = found.problems;
        loaded.attached = Arc::new(found.attached);
        loaded.warnings.extend(found.warnings);
        loaded.warnings.sort_by_key(|p| p.place);
    }
    if problems.is_empty() {
        return Ok(loaded);
    }
    // Problems of the inventory in the order of the file, then those of other files in the order of their discovery.
    problems.sort_by_key(|p| (p.file != name, if p.file == name { p.place } else { Place::default() }));
    Err(InventoryError::Invalid(Report { problems, warnings: loaded.warnings }))
}
