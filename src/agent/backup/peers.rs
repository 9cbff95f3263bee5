//! The newest snapshot of each other etcd host, in a directory of its own: kept so that any one host that is left has the
//! newest snapshot of all.
//!
//! In: what another host says of its newest snapshot, and then the bytes of it. Out: a copy that is complete and signed
//! by that host, or the reason why there is none. The other host may lie: it can only replace its own copy, by a
//! snapshot that it has signed, and cannot take the space that this host needs for its own snapshots.

use super::bundles::{self, RESERVE, TIMES, names, settings};
use super::unfinished::{self, Unfinished};
use crate::agent::machine::files::{absent, optional, private_folder, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::when;
use crate::agent::op_error::{Explain as _, Outcome, bad, ensure_space, failed};
use crate::model::authentic::Authenticity;
use crate::model::names::HostName;
use crate::model::snapshot::{BundleFact, FOLDER, PEERS, PeerCopy, Settings, by_name, is_name};
use crate::snapshot::{Bundle, Gentle, Trust};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Since when, and why, copies fail: host to milliseconds since 1970 and words, as JSON.
const TROUBLES: &str = "troubles.json";
/// Snapshots of one cluster have similar sizes: a copy is at most so many times as large as the own newest one, and so
/// many bytes more.
const TIMES_OWN: u64 = 4;
const MORE: u64 = 256 << 20;
/// Copies from a host that left the cluster are kept for a week, milliseconds.
const LEFT_FOR: i64 = 7 * 86_400_000;
/// The most words of a reason, characters: another host may have chosen them.
const LONGEST: usize = 500;

/// The copies of this host.
#[derive(Debug)]
pub struct PeerSnapshots {
    folder: PathBuf,
    settings: Settings,
    trust: Trust,
    /// The newest snapshot that this host took.
    own: Bundle,
}

/// A copy that is being received. Its file goes with it, unless it is kept.
pub struct Incoming {
    file: Gentle,
    unfinished: Unfinished,
    fact: BundleFact,
}

impl Incoming {
    /// How many bytes it has, by the other host.
    pub fn bytes(&self) -> u64 {
        self.fact.bytes
    }

    /// The name of its file.
    pub fn name(&self) -> &str {
        &self.fact.name
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl PeerSnapshots {
    /// Opens the directory, and removes what an interrupted run left there. `None`: this host has taken no snapshot yet,
    /// by whose size those of others are judged.
    ///
    /// # Errors
    /// The settings or the directory cannot be used.
    pub fn open(root: &Root, trust: Trust) -> Outcome<Option<Self>> {
        let settings = settings(root)?;
        let Some((_, own)) = bundles::newest_bundle(root)? else { return Ok(None) };
        private_folder(&root.own(FOLDER))?;
        let folder = root.own(PEERS);
        private_folder(&folder)?;
        unfinished::remove(&folder, |_, _| true)?;
        Ok(Some(Self { folder, settings, trust, own }))
    }

    /// Begins a copy of the newest snapshot of another host, as that host describes it. `None`: this host has it, or a
    /// newer one.
    ///
    /// # Errors
    /// Why it is not copied.
    pub fn begin(&self, host: &HostName, mut fact: BundleFact) -> Outcome<Option<Incoming>> {
        let of_host = by_name(&fact.name)
            .is_some_and(|by| by.cluster == self.settings.cluster.as_str() && by.host == host.as_str());
        if !is_name(&fact.name) || !of_host || *host == self.settings.host {
            return Err(bad(format!("{host} offers a snapshot under a name that is not one of its own")));
        }
        let at = self.folder.join(&fact.name);
        if at.exists() {
            return Ok(None);
        }
        self.trust.judge_fact(&mut fact, Some(host));
        match &fact.authenticity {
            Authenticity::Signed(_) if fact.authority == self.settings.authority => {}
            Authenticity::Signed(_) => return Err(bad(format!("{} is from another cluster", fact.name))),
            Authenticity::Forged(why) => return Err(bad(format!("{} is forged: {why}", fact.name))),
            Authenticity::Unsigned | Authenticity::Unchecked => {
                return Err(failed(format!("{} is not signed; `hactl up` lets {host} sign its snapshots", fact.name)));
            }
        }
        let is_newer = |kept: &Bundle| {
            let (kept, offered) = (&kept.claimed.manifest.point, &fact.point);
            kept.cluster == offered.cluster && kept.revision > offered.revision
        };
        if self.kept(host)?.iter().any(|name| Bundle::open(&self.folder.join(name)).is_ok_and(|kept| is_newer(&kept))) {
            return Ok(None);
        }
        let most = self.own.bytes.saturating_mul(TIMES_OWN).saturating_add(MORE);
        if fact.bytes > most {
            let own = self.own.bytes;
            return Err(bad(format!("{host} offers {} bytes, but the own newest has {own}", fact.bytes)));
        }
        let next = self.own.claimed.manifest.snapshot.size;
        ensure_space(&self.folder, fact.bytes.saturating_add(next.saturating_mul(TIMES)).saturating_add(RESERVE))?;
        let (unfinished, file) = Unfinished::create(&self.folder, &fact.name)?;
        Ok(Some(Incoming { file: Gentle::new(file), unfinished, fact }))
    }

    /// Keeps a received copy, if it is what the host described and every byte is as it was written, and removes the older
    /// ones of that host.
    ///
    /// # Errors
    /// It is not kept.
    pub fn keep(&self, host: &HostName, incoming: Incoming) -> Outcome<()> {
        let Incoming { file, unfinished, mut fact } = incoming;
        file.end().explain("write", unfinished.path())?;
        fact.authenticity = Authenticity::Unchecked;
        let bundle = Bundle::open(unfinished.path()).map_err(|error| bad(error.to_string()))?;
        if BundleFact::of(fact.name.clone(), bundle.bytes, &bundle.claimed) != fact {
            return Err(bad(format!("{host} sent another file than it described as {}", fact.name)));
        }
        bundle.check().map_err(|error| bad(error.to_string()))?;
        let older = self.kept(host)?;
        unfinished.put()?;
        for name in older {
            let place = self.folder.join(name);
            absent(fs::remove_file(&place)).explain("remove", &place)?;
        }
        Ok(())
    }

    /// Records for each of these hosts whether its copy failed, and removes copies of hosts that left the cluster a while
    /// ago.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn end(&self, outcomes: BTreeMap<HostName, Outcome<()>>) -> Outcome<()> {
        let (now, before) = (when::now_ms(), troubles(&self.folder));
        let there: BTreeSet<String> = outcomes.keys().map(ToString::to_string).collect();
        let failed = outcomes.into_iter().filter_map(|(host, outcome)| {
            let why = outcome.err()?.what.replace(['\n', '\r'], " ").chars().take(LONGEST).collect();
            let since = before.get(&host).map_or(now, |(since, _)| (*since).min(now));
            Some((host, (since, why)))
        });
        let failed: BTreeMap<HostName, (i64, String)> = failed.collect();
        if failed != before {
            let text = serde_json::to_vec(&failed).unwrap_or_default();
            write_one(self.folder.join(TROUBLES), &text, 0o600, me())?;
        }
        for name in names(&self.folder)? {
            let left =
                by_name(&name).is_none_or(|by| !there.contains(by.host) && now.saturating_sub(by.taken_ms) > LEFT_FOR);
            if left {
                let place = self.folder.join(name);
                absent(fs::remove_file(&place)).explain("remove", &place)?;
            }
        }
        Ok(())
    }

    /// The names of the copies from a host.
    fn kept(&self, host: &HostName) -> Outcome<Vec<String>> {
        let of_host = |name: &String| by_name(name).is_some_and(|by| by.host == host.as_str());
        Ok(names(&self.folder)?.into_iter().filter(of_host).collect())
    }
}

/// Why copies failed when they were made last; an unreadable record says nothing.
fn troubles(folder: &Path) -> BTreeMap<HostName, (i64, String)> {
    let text = optional(fs::read(folder.join(TROUBLES))).ok().flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// What this host keeps of other hosts.
pub(crate) fn facts(root: &Root) -> Outcome<BTreeMap<HostName, PeerCopy>> {
    let folder = root.own(PEERS);
    let mut found: BTreeMap<HostName, PeerCopy> = BTreeMap::new();
    for name in names(&folder)? {
        let Some((by, host)) = by_name(&name).and_then(|by| Some((by, by.host.parse().ok()?))) else { continue };
        let copy = found.entry(host).or_default();
        copy.taken_ms = copy.taken_ms.max(Some(by.taken_ms));
    }
    for (host, trouble) in troubles(&folder) {
        found.entry(host).or_default().trouble = Some(trouble);
    }
    Ok(found)
}
