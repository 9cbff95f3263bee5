//! Where an inventory is, and reading it with a bound.

use super::yaml::LARGEST;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;

/// Source of an inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    Path(PathBuf),
    /// Standard input, `-`; relative paths in it are relative to the current directory.
    Stdin,
    /// The machines of the Vagrantfile in a folder, `vagrant:DIR`.
    Vagrant(PathBuf),
}

impl From<&OsStr> for Source {
    fn from(text: &OsStr) -> Self {
        let vagrant = text.to_str().and_then(|text| text.strip_prefix("vagrant:"));
        match vagrant {
            Some("") => Self::Vagrant(PathBuf::from(".")),
            Some(dir) => Self::Vagrant(PathBuf::from(dir)),
            None if text == "-" => Self::Stdin,
            None => Self::Path(PathBuf::from(text)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Stdin => f.write_str("<stdin>"),
            Self::Vagrant(dir) => write!(f, "vagrant:{}", dir.display()),
        }
    }
}

/// Reads one byte more than allowed, so that the parser recognises a text that is too large.
pub fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    while bytes.len() > LARGEST && bytes.last().is_some_and(|b| *b >= 0x80) {
        // A truncated character would be reported as invalid text instead of too much text.
        bytes.pop();
        bytes.extend_from_slice(b"..");
    }
    Ok(bytes)
}
