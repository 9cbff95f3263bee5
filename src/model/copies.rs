//! Copies of snapshots in directories of hosts, such as a mounted share: their addresses and facts.
//!
//! In: what hosts found in the directories of `snapshots.to`. Out: each copy once, even if several hosts see the same
//! share. Anyone may have written these files: the claims of a copy count only if its name and its numbers are
//! consistent.

use super::names::{BadName, ClusterName, Digest, HostName};
use super::snapshot::{BundleFact, ByName, Claimed, by_name, is_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The most directories that are searched on a host.
pub const MOST_DIRECTORIES: usize = 32;

/// The result of a search in one directory of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopiesFact {
    /// The directory.
    pub directory: String,
    /// Copies that were read, the newest first: some of each host that took any, and the named one.
    pub copies: Vec<CopyFact>,
    /// Further ones, by name only, the newest first.
    pub others: Vec<CopyName>,
    /// Files that should be snapshots and are not, with the reason.
    pub damaged: Vec<String>,
    /// Why the directory was not searched, or not completely.
    pub trouble: Option<String>,
}

/// A copy of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyFact {
    /// The host that took it.
    pub by: HostName,
    /// Its facts.
    pub bundle: BundleFact,
}

/// A file with the name of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyName {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

impl CopyFact {
    /// The facts of a copy.
    pub fn of(name: String, bytes: u64, claimed: &Claimed) -> Self {
        Self { by: claimed.manifest.host.clone(), bundle: BundleFact::of(name, bytes, claimed) }
    }

    /// Whether it matches its name, and a cluster can have reached its position. Anyone can rename a file.
    pub fn is_as_named(&self, cluster: &ClusterName) -> bool {
        let says = |by: ByName<'_>| {
            (by.cluster, by.host, by.taken_ms) == (cluster.as_str(), self.by.as_str(), self.bundle.taken_ms)
        };
        by_name(&self.bundle.name).is_some_and(says) && self.bundle.point.is_plausible()
    }
}

/// The address of a copy: `HOST:/DIRECTORY/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyAddress {
    /// The host.
    pub host: HostName,
    /// The directory, absolute.
    pub directory: String,
    /// The file's name.
    pub name: String,
}

/// Not the address of a copy.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not HOST:/DIRECTORY/NAME.hactl")]
pub struct BadAddress(String);

impl FromStr for CopyAddress {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.chars().take(200).collect());
        let (host, path) = text.split_once(':').ok_or_else(bad)?;
        let (directory, name) = path.rsplit_once('/').ok_or_else(bad)?;
        let host: Result<HostName, BadName> = host.parse();
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let part = |part: &str| !part.is_empty() && part.bytes().all(plain) && !matches!(part, "." | "..");
        let placed = directory.strip_prefix('/').is_some_and(|parts| parts.split('/').all(part));
        match host {
            Ok(host) if placed && directory.len() <= 500 && is_name(name) => {
                Ok(Self { host, directory: directory.to_owned(), name: name.to_owned() })
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for CopyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.host, self.directory, self.name)
    }
}

/// The results of all hosts, or why there is none.
pub type CopiesListed = BTreeMap<HostName, Result<Vec<CopiesFact>, String>>;

/// One copy, and the hosts that see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared<'a> {
    /// The directory.
    pub directory: &'a str,
    /// A host that sees it.
    pub host: &'a HostName,
    /// Other hosts that see it, such as those that mount the same share.
    pub also: Vec<&'a HostName>,
    /// Its facts.
    pub copy: &'a CopyFact,
}

impl Shared<'_> {
    /// Its place: `HOST:/DIRECTORY`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.host, self.directory)
    }
    /// Where it can be fetched.
    pub fn address(&self) -> CopyAddress {
        let (directory, name) = (self.directory.to_owned(), self.copy.bundle.name.clone());
        CopyAddress { host: self.host.clone(), directory, name }
    }
}

/// Each copy once, the newest first.
pub fn shared(listed: &CopiesListed) -> Vec<Shared<'_>> {
    let mut all: Vec<Shared<'_>> = Vec::new();
    let found = listed.iter().filter_map(|(host, found)| Some((host, found.as_ref().ok()?)));
    for (host, fact) in found.flat_map(|(host, found)| found.iter().map(move |fact| (host, fact))) {
        for copy in &fact.copies {
            match all.iter_mut().find(|one| one.directory == fact.directory && one.copy == copy) {
                Some(known) => known.also.push(host),
                None => all.push(Shared { directory: &fact.directory, host, also: Vec::new(), copy }),
            }
        }
    }
    let order = |one: &Shared<'_>| (std::cmp::Reverse(one.copy.bundle.taken_ms), one.copy.bundle.name.clone());
    all.sort_by_key(order);
    all
}

/// The acceptable part of a host's reply: only requested directories, each once, with valid names. `named` is a copy
/// that a person asked for by name; its name may be anything.
pub fn believed(
    mut found: Vec<CopiesFact>,
    directories: &[String],
    cluster: &ClusterName,
    authority: Option<Digest>,
    named: Option<&str>,
) -> Vec<CopiesFact> {
    let mut left: Vec<&String> = directories.iter().collect();
    found.retain(|fact| {
        let asked = left.iter().position(|asked| **asked == fact.directory);
        asked.map(|at| left.swap_remove(at)).is_some()
    });
    for fact in &mut found {
        fact.copies.retain(|copy| {
            let name = copy.bundle.name.as_str();
            let asked = named == Some(name) && is_name(name) && copy.bundle.point.is_plausible();
            (asked || copy.is_as_named(cluster)) && authority.is_none_or(|authority| copy.bundle.authority == authority)
        });
        fact.others.retain(|other| by_name(&other.name).is_some_and(|by| by.cluster == cluster.as_str()));
        fact.others.retain(|other| is_name(&other.name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Point, Proof};

    const NAME: &str = "lab-20261122T134733822Z-cp1.hactl";

    fn copy(name: &str, revision: i64) -> CopyFact {
        let by = by_name(name).expect("a snapshot's name");
        CopyFact {
            by: by.host.parse().expect("a host's name"),
            bundle: BundleFact {
                name: name.to_owned(),
                bytes: 1,
                taken_ms: by.taken_ms,
                authority: Digest::of(b"ours"),
                point: Point { cluster: "c".to_owned(), term: 2, index: 3, revision, high_water: revision },
                etcd: "3.6.16".to_owned(),
                proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
                signed: None,
                authenticity: crate::model::authentic::Authenticity::Unchecked,
            },
        }
    }

    fn host(name: &str) -> HostName {
        name.parse().expect("a name")
    }

    fn on(directory: &str, copies: Vec<CopyFact>) -> CopiesFact {
        CopiesFact { directory: directory.to_owned(), copies, ..CopiesFact::default() }
    }

    #[test]
    fn a_copy_has_an_address_that_leads_nowhere_else() {
        let text = format!("cp1:/mnt/backup/{NAME}");
        let at: CopyAddress = text.parse().unwrap();
        assert_eq!((at.host.as_str(), at.directory.as_str(), at.name.as_str()), ("cp1", "/mnt/backup", NAME));
        assert_eq!(at.to_string(), text);
        for bad in [
            NAME.to_owned(),
            format!("cp1:{NAME}"),
            format!("cp1:/{NAME}"),
            format!("cp1:mnt/{NAME}"),
            format!("cp1:/mnt/../{NAME}"),
            format!("cp1://mnt/{NAME}"),
            format!("/mnt:/backup/{NAME}"),
            format!("cp1:/mnt/a b/{NAME}"),
            format!("s3://backup/{NAME}"),
            "cp1:/mnt/backup/other.txt".to_owned(),
        ] {
            assert!(bad.parse::<CopyAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_copy_seen_by_two_hosts_counts_once_and_another_file_of_the_same_name_separately() {
        let (newer, older) = (copy("lab-20261122T140000000Z-cp2.hactl", 9), copy(NAME, 5));
        let changed = CopyFact { bundle: BundleFact { bytes: 2, ..older.bundle.clone() }, ..older.clone() };
        let listed: CopiesListed = [
            (host("cp1"), Ok(vec![on("/mnt/backup", vec![older.clone(), newer.clone()])])),
            (host("cp2"), Ok(vec![on("/mnt/backup", vec![older.clone()]), on("/srv", vec![older.clone()])])),
            (host("cp3"), Ok(vec![on("/mnt/backup", vec![changed.clone()])])),
            (host("cp4"), Err("it does not answer".to_owned())),
        ]
        .into();
        let all = shared(&listed);
        let seen: Vec<(String, usize, &CopyFact)> =
            all.iter().map(|one| (one.place(), one.also.len(), one.copy)).collect();
        let wanted = [
            ("cp1:/mnt/backup".to_owned(), 0, &newer),
            ("cp1:/mnt/backup".to_owned(), 1, &older),
            ("cp2:/srv".to_owned(), 0, &older),
            ("cp3:/mnt/backup".to_owned(), 0, &changed),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn unrequested_or_implausible_copies_reported_by_a_lying_host_are_ignored() {
        let cluster: ClusterName = "lab".parse().expect("a name");
        let ours = Some(Digest::of(b"ours"));
        let good = copy(NAME, 5);
        let climbing =
            CopyFact { bundle: BundleFact { name: "../x".to_owned(), ..good.bundle.clone() }, ..good.clone() };
        let by_another = CopyFact { by: host("cp9"), ..good.clone() };
        let foreign =
            CopyFact { bundle: BundleFact { authority: Digest::of(b"theirs"), ..good.bundle.clone() }, ..good.clone() };
        let lies = vec![
            good.clone(),
            climbing.clone(),
            by_another,
            copy(NAME, i64::MAX),
            foreign,
            copy("x-20261122T134733822Z-cp1.hactl", 5),
        ];
        let asked = ["/mnt/backup".to_owned()];
        let found =
            vec![on("/mnt/backup", lies), on("/etc", vec![good.clone()]), on("/mnt/backup", vec![good.clone()])];
        let found = believed(found, &asked, &cluster, ours, None);
        assert_eq!(found, [on("/mnt/backup", vec![good.clone()])]);
        let renamed = CopyFact { bundle: BundleFact { name: "mine.hactl".to_owned(), ..good.bundle.clone() }, ..good };
        let found = vec![on("/mnt/backup", vec![renamed.clone(), climbing])];
        let found = believed(found, &asked, &cluster, ours, Some("mine.hactl"));
        assert_eq!(found, [on("/mnt/backup", vec![renamed])], "a person may have given it another name");
    }
}
