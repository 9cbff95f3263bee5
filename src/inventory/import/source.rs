//! The source of a foreign file: a file, standard input, or a folder with exactly one possible file.
//!
//! In: the user's argument. Out: [`Input`], the text and its folder, which may contain related files. The size is
//! bounded, and the text is valid UTF-8.

use super::error::ImportError;
use super::notes::listed;
use super::wishes::Tool;
use crate::inventory::files::Files;
use crate::inventory::source::{Source, bounded};
use crate::inventory::yaml;
use std::path::{Path, PathBuf};

/// A foreign file.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// As the user named it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its folder; `None` for standard input.
    pub folder: Option<PathBuf>,
}

impl Input {
    /// The file's own name.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }
    /// A file in the same folder, as the user would name it.
    pub fn beside(&self, name: &str) -> String {
        match self.name.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        }
    }
}

/// Reads it.
pub fn read(tool: Tool, source: &Source, disk: &dyn Files) -> Result<Input, ImportError> {
    let name = source.to_string();
    let unreadable = |source| ImportError::Unreadable { from: name.clone(), source };
    match source {
        Source::Stdin => {
            let bytes = bounded(std::io::stdin().lock()).map_err(unreadable)?;
            Ok(Input { text: text(tool, &name, bytes)?, name, folder: None })
        }
        Source::Vagrant(_) => {
            Err(ImportError::other(&name, "Vagrant's", tool, "use `hactl inventory import vagrant DIR`"))
        }
        Source::Path(path) => {
            let found = std::fs::metadata(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => ImportError::Missing(name.clone()),
                _ => unreadable(error),
            })?;
            let path = if found.is_dir() { inside(tool, path, disk)? } else { path.clone() };
            let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
            let name = path.display().to_string();
            let bytes = std::fs::File::open(&path).and_then(bounded).map_err(unreadable)?;
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
            // Absolute, because the folder's name is the default name of the cluster.
            let folder = std::path::absolute(&folder).unwrap_or(folder);
            Ok(Input { text: text(tool, &name, bytes)?, name, folder: Some(folder) })
        }
    }
}

/// The one inventory in a folder.
fn inside(tool: Tool, folder: &Path, disk: &dyn Files) -> Result<PathBuf, ImportError> {
    let mut names = disk.list(folder).unwrap_or_default();
    names.sort();
    let meant = |name: &String| {
        let stem = name.split('.').next().unwrap_or_default();
        let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
        let plain = matches!(kind, "" | "ini" | "yml" | "yaml") && folder.join(name).is_file();
        match tool {
            Tool::K0sctl => stem == "k0sctl" && matches!(kind, "yml" | "yaml"),
            _ => plain && (stem.starts_with("hosts") || stem.starts_with("inventory")),
        }
    };
    let (found, others): (Vec<String>, Vec<String>) = names.into_iter().partition(meant);
    if let [only] = found.as_slice() {
        return Ok(folder.join(only));
    }
    let (candidates, seen) = if found.is_empty() {
        (
            others.into_iter().filter(|name| folder.join(name).is_file()).take(6).collect(),
            "a folder without a file of a usual name",
        )
    } else {
        (found, "a folder with several possible files")
    };
    let remedy = if candidates.is_empty() {
        "name the file itself".to_owned()
    } else {
        format!("name the file itself: {}", listed(&candidates, 6))
    };
    Err(ImportError::other(&folder.display().to_string(), seen, tool, remedy))
}

/// The bytes as text, within the limit for inventories.
fn text(tool: Tool, from: &str, bytes: Vec<u8>) -> Result<String, ImportError> {
    let other = |seen: &str| ImportError::other(from, seen, tool, "check the path: this may be another file");
    if bytes.len() > yaml::LARGEST {
        return Err(other("more than 1024 KiB"));
    }
    String::from_utf8(bytes).map_err(|_| other("not text"))
}
