//! Parses the argument of `--from`: a snapshot in a file or on a host, or data on a host.
//!
//! In: the argument. Out: one of six kinds, distinguished by syntax alone; the caller checks that it exists.

use super::Unusable;
use crate::model::bucket::SCHEME;
use crate::model::copies::CopyAddress;
use crate::model::names::HostName;
use crate::model::recovery::{Origin, is_aside};
use crate::model::snapshot::is_name;
use crate::snapshot::BundleError;
use std::path::{Path, PathBuf};

/// The kind of source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// A snapshot in a file on this machine.
    File(PathBuf),
    /// A snapshot in object storage, by its address.
    Url(String),
    /// A snapshot in a directory of a host: `cp1:/mnt/backup/NAME`.
    Copy(CopyAddress),
    /// A snapshot by its name, on any host.
    Bundle(String),
    /// A host: its member's data, or its newest snapshot.
    Host(HostName),
    /// Archived data on a host: `cp1:member.moved-TIME`.
    Aside(HostName, String),
}

/// The file on this machine, if a file was named.
pub fn file_named(words: &str) -> Option<PathBuf> {
    match Named::parse(words) {
        Ok(Named::File(path)) => Some(path),
        _ => None,
    }
}

impl Named {
    /// Parses it. A name of an existing file, or one with a slash that is no address on a host, is a file.
    pub fn parse(words: &str) -> Result<Self, Unusable> {
        if words.starts_with(SCHEME) {
            return Ok(Self::Url(words.to_owned()));
        }
        let path = Path::new(words);
        if words.contains('/') || path.is_file() {
            return Ok(match words.parse() {
                Ok(at) if !path.is_file() => Self::Copy(at),
                _ => Self::File(path.to_owned()),
            });
        }
        if is_name(words) {
            return Ok(Self::Bundle(words.to_owned()));
        }
        let (host, aside) = words.split_once(':').map_or((words, None), |(host, aside)| (host, Some(aside)));
        match (host.parse(), aside) {
            (Ok(host), None) => Ok(Self::Host(host)),
            (Ok(host), Some(aside)) if is_aside(aside) => Ok(Self::Aside(host, aside.to_owned())),
            _ => Err(Unusable::Bundle(BundleError::Other(path.to_owned()))),
        }
    }

    /// The name of a snapshot, if only a name was given.
    pub fn name(&self) -> Option<&str> {
        if let Self::Bundle(name) = self { Some(name) } else { None }
    }

    /// The origin of a recovery; `None`: a file or an address, which has to be opened first.
    pub fn origin(&self) -> Option<Origin> {
        match self {
            Self::File(_) | Self::Url(_) | Self::Copy(_) => None,
            Self::Bundle(name) => Some(Origin::Bundle(name.clone())),
            Self::Host(host) => Some(Origin::Data(host.clone())),
            Self::Aside(host, name) => Some(Origin::Aside(host.clone(), name.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_a_snapshot_a_host_and_archived_data_are_distinguished() {
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let bundle = "lab-20261122T134733822Z-cp3.hactl";
        let aside = "member.moved-20261122T134733.822Z";
        for (words, wanted) in [
            ("./cp1", Named::File("./cp1".into())),
            ("/mnt/x.hactl", Named::File("/mnt/x.hactl".into())),
            (&format!("cp1:/mnt/backup/{bundle}"), Named::Copy(format!("cp1:/mnt/backup/{bundle}").parse().unwrap())),
            ("cp1:/mnt/backup", Named::File("cp1:/mnt/backup".into())),
            ("Cargo.toml", Named::File("Cargo.toml".into())),
            ("s3://backup/x.hactl", Named::Url("s3://backup/x.hactl".to_owned())),
            (bundle, Named::Bundle(bundle.to_owned())),
            ("cp1", Named::Host(host("cp1"))),
            (&format!("cp1:{aside}"), Named::Aside(host("cp1"), aside.to_owned())),
        ] {
            assert_eq!(Named::parse(words).unwrap(), wanted, "{words}");
        }
        for words in ["cp1:member", "cp1:", ":member.moved-1", "no such host", "cp1:member.moved-a:b", "cp1:bundle"] {
            assert!(matches!(Named::parse(words), Err(Unusable::Bundle(BundleError::Other(_)))), "{words}");
        }
    }
}
