//! Observes all requested facts concurrently, without changing anything.
//!
//! In: an [`ObserveAsk`]. Out: [`HostFacts`]. A read failure other than a missing file is a fault of the whole
//! observation: half of the facts would be taken for all of them.

mod api;
mod certificates;
mod dns;
mod dns_query;
mod etcd;
pub(super) mod gather;
pub(super) mod neighbour;
pub(super) mod reach;
mod stuck;
mod system;
mod versions;
pub(super) mod wait;

pub use dns_query::{DnsError, dns_probe};

use crate::agent::backup::bundles;
use crate::agent::fault::{Outcome, failed};
use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::{addresses, firewall, ports, prepare, previous, processes, units, when};
use crate::agent::parts::{self, images};
use crate::agent::pki::keys as pki;
use crate::model::facts::{FileFact, HostFacts};
use crate::model::names::Digest;
use crate::model::target::{CertSpec, Part};
use crate::protocol::ObserveAsk;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// All requested facts, gathered concurrently.
pub(super) async fn observe(host: &Host, ask: ObserveAsk) -> Outcome<HostFacts> {
    let ObserveAsk {
        files: paths,
        folders,
        parts,
        units,
        leaves,
        certificates,
        images,
        programs,
        sysctls,
        ports,
        firewall,
        etcd,
        disk,
        api,
        dns,
    } = ask;
    host.waits("the observation of the host");
    let root = &host.root;
    let (
        system,
        addresses,
        files,
        (on_trial, versions),
        blobs,
        shown,
        leaves,
        certificates,
        listed,
        (programs, sysctls),
        taken,
        opened,
        etcd,
        bundles,
        api,
        dns,
    ) = tokio::try_join!(
        root.blocking(system::facts),
        addresses::addresses(),
        root.blocking(move |root| {
            let mut paths = paths;
            paths.extend(own_files(root, &folders)?);
            file_facts(root, &paths)
        }),
        root.blocking(|root| Ok((previous::sets(root)?, versions::named(root)?))),
        root.blocking(move |root| blobs(root, &parts)),
        units::facts(root, &units),
        root.blocking(move |root| leaf_facts(root, &leaves)),
        certificates::look(root, certificates),
        async { if images { images::list(root).await } else { Ok(BTreeMap::new()) } },
        root.blocking(move |root| {
            let values = sysctls.into_iter().map(|key| Ok((prepare::sysctl(root, &key)?, key)));
            let values: Outcome<Vec<_>> = values.collect();
            let values = values?.into_iter().filter_map(|(value, key)| Some((key, value?))).collect();
            Ok((runnable(root, programs)?, values))
        }),
        root.blocking(move |root| Ok(ports::taken(root, &ports))),
        async { if firewall { firewall::look().await } else { Ok(None) } },
        async {
            match &etcd {
                Some(ask) => etcd::look(root, ask, disk).await.map(Some),
                None => Ok(None),
            }
        },
        async {
            match &etcd {
                Some(_) => root.blocking(bundles::fact).await.map(Some),
                None => Ok(None),
            }
        },
        async {
            match &api {
                Some(ask) => Ok(Some(api::look(root, ask).await)),
                None => Ok(None),
            }
        },
        async { Ok(dns::ask(dns).await) },
    )?;
    let facts = HostFacts {
        addresses,
        files,
        on_trial,
        blobs,
        units: shown,
        leaves,
        certificates,
        images: listed,
        processes: processes::started(),
        versions,
        programs,
        sysctls,
        ports: taken,
        firewall: opened,
        etcd,
        bundles,
        api,
        dns,
        ..system
    };
    // Last, so that it is the time of the answer.
    Ok(HostFacts { now_ms: when::now_ms(), ..facts })
}

fn file_facts(root: &Root, paths: &[String]) -> Outcome<BTreeMap<String, FileFact>> {
    let name = root.names();
    let mut found = BTreeMap::new();
    for path in paths {
        let at = root.path(path)?;
        let Ok(meta) = fs::metadata(&at) else { continue };
        if !meta.is_file() {
            continue;
        }
        // Deleted between the two calls: missing.
        let Ok(content) = fs::read(&at) else { continue };
        let fact = FileFact {
            digest: Digest::of(&content),
            mode: meta.mode() & 0o7777,
            owner: name(meta.uid()),
            changed_ms: meta.ctime() * 1000 + meta.ctime_nsec() / 1_000_000,
        };
        found.insert(path.clone(), fact);
    }
    Ok(found)
}

/// The beginning of every file that hactl writes into a directory of its own.
const WRITTEN: &[u8] = b"# Written by hactl";
/// How many files of such a directory are read; more than any number of registries.
const MOST_FILES: usize = 2000;

/// The files below some directories that hactl wrote. Files of the administrator are ignored.
fn own_files(root: &Root, folders: &[String]) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    let mut looked = 0;
    let mut left: Vec<String> = folders.to_vec();
    while let Some(folder) = left.pop() {
        // A missing directory has no files.
        let Ok(entries) = fs::read_dir(root.path(&folder)?) else { continue };
        for entry in entries.flatten() {
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            looked += 1;
            if looked > MOST_FILES {
                return Err(failed(format!("{folder} contains more than {MOST_FILES} files")));
            }
            let path = format!("{folder}/{name}");
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() && begins(&entry.path()) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn begins(path: &std::path::Path) -> bool {
    use std::io::Read as _;
    let mut start = Vec::with_capacity(WRITTEN.len());
    let read = fs::File::open(path).and_then(|file| file.take(WRITTEN.len() as u64).read_to_end(&mut start));
    read.is_ok() && start == WRITTEN
}

fn blobs(root: &Root, wanted: &[Part]) -> Outcome<BTreeSet<Digest>> {
    let mut found = BTreeSet::new();
    for part in wanted {
        if parts::present(root, part)? {
            found.insert(part.digest);
        }
    }
    Ok(found)
}

fn leaf_facts(
    root: &Root,
    leaves: &[CertSpec],
) -> Outcome<BTreeMap<crate::model::target::CertId, crate::model::facts::LeafFact>> {
    let mut found = BTreeMap::new();
    for leaf in leaves {
        if let Some(fact) = pki::look(root, leaf)? {
            found.insert(leaf.id, fact);
        }
    }
    Ok(found)
}

fn runnable(root: &Root, programs: Vec<String>) -> Outcome<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for program in programs {
        let at = root.path(&program)?;
        if fs::metadata(&at).is_ok_and(|m| m.is_dir() || m.permissions().mode() & 0o111 != 0) {
            found.insert(program);
        }
    }
    Ok(found)
}
