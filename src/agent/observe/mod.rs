//! Observes all requested facts concurrently, without changing anything.
//!
//! In: an [`ObserveAsk`]. Out: [`HostFacts`]. A read failure other than a missing file is a fault of the whole
//! observation: half of the facts would be taken for all of them.

mod api;
mod certificates;
mod dns;
mod dns_query;
mod etcd;
pub(super) mod foreign;
pub(super) mod gather;
mod guard;
pub(super) mod neighbour;
mod peers;
pub(super) mod reach;
mod stuck;
mod system;
mod versions;
pub(super) mod wait;

pub use dns_query::{DnsError, dns_probe};
pub use guard::fact as guard_fact;

use crate::agent::backup::bundles;
use crate::agent::host::Host;
use crate::agent::hosting::look_all;
use crate::agent::machine::files::read_stamp;
use crate::agent::machine::foreign::is_written;
use crate::agent::machine::root::Root;
use crate::agent::machine::{addresses, firewall, ports, prepare, previous, processes, units, when};
use crate::agent::op_error::{Outcome, failed};
use crate::agent::parts::{self, images};
use crate::agent::pki::keys as pki;
use crate::agent::probe;
use crate::model::control_plane::MANIFESTS;
use crate::model::facts::{FileFact, HostFacts};
use crate::model::hosting::Component;
use crate::model::names::Digest;
use crate::model::static_pods::FOLDER as HELD;
use crate::model::units::containerd_unit;
use crate::protocol::ObserveAsk;
use futures::future::OptionFuture;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// All requested facts, gathered concurrently.
pub(super) async fn observe(host: &Host, ask: ObserveAsk) -> Outcome<HostFacts> {
    host.waits("the observation of the host");
    let root = &host.root;
    let (
        system,
        addresses,
        files,
        (on_trial, versions),
        blobs,
        (units, old_systemd),
        mut hung,
        leaves,
        certificates,
        (images, runtime_trouble),
        (programs, sysctls),
        ports,
        firewall,
        etcd,
        bundles,
        api,
        dns,
        hosting,
    ) = tokio::try_join!(
        root.blocking(system::facts),
        addresses::addresses(),
        root.blocking(move |root| file_facts(root, [ask.files, own_files(root, ask.folders)?].concat())),
        root.blocking(|root| Ok((previous::sets(root)?, versions::named(root)?))),
        root.blocking(move |root| chosen(ask.parts, |part| Ok(parts::present(root, part)?.then_some(part.digest)))),
        async {
            let is_bare = root.is_host() && root.blocking(|root| Ok(read_stamp(root)?.is_none())).await?;
            units::facts(root, &ask.units, is_bare).await
        },
        async {
            // A look that asks about no units is one before a step, and only about whether the API server is ready.
            let api = ask.api.as_ref().map(|api| api.own).filter(|_| !ask.units.is_empty());
            Ok(probe::hung(root, &ask.units, api).await)
        },
        root.blocking(move |root| chosen(ask.leaves, |leaf| Ok(pki::look(root, leaf)?.map(|fact| (leaf.id, fact))))),
        certificates::look(root, ask.certificates),
        async { if ask.images { images::list(root).await } else { Ok((BTreeMap::new(), None)) } },
        root.blocking(move |root| {
            let programs = chosen(ask.programs, |program| Ok(runs(&root.path(program)?).then(|| program.clone())));
            let value = |key: &String| Ok(prepare::sysctl(root, key)?.map(|value| (key.clone(), value)));
            Ok((programs?, chosen(ask.sysctls, value)?))
        }),
        root.blocking(move |root| Ok(ports::taken(root, &ask.ports))),
        async { if ask.firewall { firewall::look().await } else { Ok(None) } },
        async { OptionFuture::from(ask.etcd.as_ref().map(|etcd| etcd::look(root, etcd, ask.disk))).await.transpose() },
        async { OptionFuture::from(ask.etcd.as_ref().map(|_| root.blocking(bundles::fact))).await.transpose() },
        async { Ok(OptionFuture::from(ask.api.as_ref().map(|api| api::look(root, api))).await) },
        async { Ok(dns::ask(ask.dns).await) },
        async {
            let components = ask.hosting.map(|(address, port)| Component::all(address, port));
            OptionFuture::from(components.map(|all| look_all(root, all))).await.transpose().map(Option::flatten)
        },
    )?;
    let containerd = containerd_unit().to_string();
    hung.extend(runtime_trouble.map(|why| (containerd.clone(), format!("{containerd} does not answer: {why}"))));
    let facts = HostFacts {
        addresses,
        files,
        on_trial,
        blobs,
        units,
        old_systemd,
        leaves,
        certificates,
        images,
        hung,
        processes: processes::started(),
        versions,
        programs,
        sysctls,
        ports,
        firewall,
        etcd,
        bundles,
        api,
        dns,
        hosting,
        ..system
    };
    // Last, so that it is the time of the answer, by which the report of the guard is recent or not.
    let guard = if ask.guard { Some(root.blocking(|root| Ok(guard::fact(root))).await?) } else { None };
    Ok(HostFacts { guard, now_ms: when::now_ms(), ..facts })
}

/// What was found of each item, without those of which there is nothing.
fn chosen<A, T, C: FromIterator<T>>(asked: Vec<A>, look: impl Fn(&A) -> Outcome<Option<T>>) -> Outcome<C> {
    asked.iter().filter_map(|item| look(item).transpose()).collect()
}

fn file_facts(root: &Root, paths: Vec<String>) -> Outcome<BTreeMap<String, FileFact>> {
    let name = root.names();
    let mut found = BTreeMap::new();
    for path in paths {
        let mut at = root.present(&path)?;
        // A manifest that is held for a maintenance comes back by itself.
        if let Some(name) = path.strip_prefix(MANIFESTS).filter(|_| !at.exists()) {
            at = root.present(&format!("{HELD}{name}"))?;
        }
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
            changed_ms: when::changed_ms(&meta),
        };
        found.insert(path, fact);
    }
    Ok(found)
}

/// How many files of such a directory are read; more than any number of registries.
const MOST_FILES: usize = 2000;

/// The files below some directories that hactl wrote. Files of the administrator are ignored.
fn own_files(root: &Root, mut left: Vec<String>) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    let mut looked = 0;
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
            } else if kind.is_file() && is_written(&entry.path()) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether something at a path can be run; a directory counts.
fn runs(at: &Path) -> bool {
    fs::metadata(at).is_ok_and(|found| found.is_dir() || found.permissions().mode() & 0o111 != 0)
}
