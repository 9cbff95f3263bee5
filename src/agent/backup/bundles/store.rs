//! The directory of snapshots: its content, its deletions, and the last failure.
//!
//! In: the directory. Out: facts, and deleted files. Only files of this host are ever deleted: a directory for copies
//! may be shared with others.

use super::own;
use crate::agent::backup::peers;
use crate::agent::backup::unfinished::{self, Unfinished};
use crate::agent::host::Host;
use crate::agent::machine::files::{self, absent, optional, private_folder, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::when;
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::model::bucket::Destination;
use crate::model::drill::{LastDrill, OwnDrill, RECORD, Showed};
use crate::model::snapshot::{
    BundleFact, BundlesFact, Drill, ENDING, FOLDER, LEADER_WAITS, Manifest, Proof, Settings, is_name,
};
use crate::model::timestamp::is_ahead;
use crate::snapshot::Bundle;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The settings for taking and retaining snapshots.
pub(super) const SETTINGS: &str = "/etc/hactl/snapshots.json";
/// Free space that must remain: the etcd of a proof preallocates 128 MiB for its log, and usually shares the disk with
/// the live one.
pub(crate) const RESERVE: u64 = 512 << 20;
/// Between two polls.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The last failure: milliseconds since 1970, a space, words.
const TROUBLE: &str = "trouble";
/// The last [`Drill`], as JSON.
const DRILL: &str = "drill.json";
/// An incomplete copy without writes for so long was interrupted.
const CUT_OFF_AFTER: Duration = Duration::from_secs(1800);

/// The directory, made if it does not exist.
pub(super) fn folder(root: &Root) -> Outcome<PathBuf> {
    let at = root.own(FOLDER);
    private_folder(&at)?;
    Ok(at)
}

/// The settings, as `up` wrote them.
pub(crate) fn settings(root: &Root) -> Outcome<Settings> {
    files::settings(&root.own(SETTINGS))
}

/// The lock of the directory, held while the file is open: a host takes or restores one snapshot at a time. `None`:
/// other processes had it for the whole time.
pub(super) async fn turn(host: &Host, folder: &Path, timeout: Duration) -> Outcome<Option<File>> {
    let lock = File::open(folder).explain("open", folder)?;
    let until = Instant::now() + timeout;
    while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(error).explain("lock", folder);
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        host.waits("the snapshot that is already being taken or restored here");
        sleep(LOOK_AGAIN).await;
    }
    Ok(Some(lock))
}

/// The path of a snapshot of this name.
pub(super) fn place(root: &Root, name: &str) -> Outcome<PathBuf> {
    if is_name(name) {
        Ok(root.own(FOLDER).join(name))
    } else {
        Err(bad(format!("{name:?} is not the name of a snapshot")))
    }
}

/// Names of the snapshots in a directory; none if it does not exist.
pub(crate) fn names(folder: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    let entries = optional(fs::read_dir(folder)).explain("list", folder)?;
    for entry in entries.into_iter().flatten() {
        let name = entry.explain("list", folder)?.file_name().to_string_lossy().into_owned();
        if is_name(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The content of the directory.
pub(crate) fn fact(root: &Root) -> Outcome<BundlesFact> {
    let at = root.own(FOLDER);
    let mut found = BundlesFact::default();
    for name in names(&at)? {
        match Bundle::open(&at.join(&name)) {
            Ok(bundle) => found.bundles.push(BundleFact::of(name, bundle.bytes, &bundle.claimed)),
            Err(error) => found.damaged.push(error.to_string()),
        }
    }
    found.bundles.sort_by(|a, b| b.taken_ms.cmp(&a.taken_ms).then_with(|| a.name.cmp(&b.name)));
    let text = fs::read_to_string(at.join(TROUBLE)).unwrap_or_default();
    found.trouble = text.split_once(' ').and_then(|(ms, what)| Some((ms.parse().ok()?, what.trim_end().to_owned())));
    (found.drill, found.own_drill) = recorded_drills(root);
    found.own_identity_ms = own::since_ms(root).unwrap_or_default();
    found.peers = peers::facts(root)?;
    Ok(found)
}

/// The last drill with the owners' identity, and the last one with that of this host.
fn recorded_drills(root: &Root) -> (Option<Drill>, Option<OwnDrill>) {
    // An unreadable record only causes another drill.
    let by_owners = fs::read(root.own(FOLDER).join(DRILL)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let by_host = fs::read(root.own(RECORD)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    (by_owners, by_host)
}

/// The same, for metrics.
pub(crate) fn last_drills(root: &Root) -> Vec<LastDrill> {
    let (by_owners, by_host) = recorded_drills(root);
    // It is recorded only if the snapshot was restored.
    let by_owners = by_owners.map(|drill| LastDrill { identity: "owners", outcome: "restored", at_ms: drill.at_ms });
    // An unreadable identity is replaced with the next snapshot.
    let since_ms = own::since_ms(root).unwrap_or_default();
    let by_host = match by_host {
        // No drill, as in `status`: its age must not restart with each attempt.
        Some(OwnDrill { showed: Showed::SealedBefore, at_ms, .. }) => {
            Some((Showed::SealedBefore.outcome(), since_ms.unwrap_or(at_ms)))
        }
        Some(drill) => Some((drill.showed.outcome(), drill.at_ms)),
        None => since_ms.map(|since_ms| ("none", since_ms)),
    };
    let by_host = by_host.map(|(outcome, at_ms)| LastDrill { identity: "host", outcome, at_ms });
    by_owners.into_iter().chain(by_host).collect()
}

/// Records that a snapshot was brought here from outside and could be restored.
pub(super) fn drilled(root: &Root, proof: Proof) -> Outcome<()> {
    let drill = serde_json::to_vec(&Drill { at_ms: when::now_ms(), proof });
    let text = drill.map_err(|error| failed(error.to_string()))?;
    write_one(folder(root)?.join(DRILL), &text, 0o600, me())
}

/// Records the result of an automatic drill of this host.
pub(super) fn held(root: &Root, drill: &OwnDrill) -> Outcome<()> {
    let text = serde_json::to_vec(drill).map_err(|error| failed(error.to_string()))?;
    write_one(root.own(RECORD), &text, 0o600, me())
}

/// The newest that this host made of this cluster, by its name: an unreadable one counts as well.
pub(super) fn newest(folder: &Path, settings: &Settings) -> Outcome<Option<(i64, String)>> {
    let mine = |name: String| Some((settings.own(&name)?.taken_ms, name));
    let mut found: Vec<(i64, String)> = names(folder)?.into_iter().filter_map(mine).collect();
    // A name that a wrong clock dated in the future comes last: it would be the newest for ever.
    let now = when::now_ms();
    found.sort_unstable_by_key(|(at, name)| (!is_ahead(*at, now), *at, name.clone()));
    // Another cluster of this name may have used this host earlier.
    let of_another = |name: &str| {
        Bundle::open(&folder.join(name)).is_ok_and(|bundle| bundle.claimed.manifest.authority != settings.authority)
    };
    Ok(found.into_iter().rev().find(|(_, name)| !of_another(name)))
}

/// The interval of this host, seconds, and when its newest snapshot was taken. `None`: it has no settings for any.
pub(crate) fn newest_here(root: &Root) -> Outcome<Option<(u64, Option<i64>)>> {
    if !root.own(SETTINGS).exists() {
        return Ok(None);
    }
    let settings = settings(root)?;
    let newest = newest(&root.own(FOLDER), &settings)?;
    Ok(Some((settings.every_s, newest.map(|(taken_ms, _)| taken_ms))))
}

/// The newest snapshot that this host took of this cluster, by its name.
pub(crate) fn newest_bundle(root: &Root) -> Outcome<Option<(String, Bundle)>> {
    let (settings, folder) = (settings(root)?, root.own(FOLDER));
    let Some((_, name)) = newest(&folder, &settings)? else { return Ok(None) };
    let bundle = Bundle::open(&folder.join(&name)).map_err(|error| failed(error.to_string()))?;
    Ok(Some((name, bundle)))
}

/// The same, as other hosts see it.
pub(crate) fn newest_fact(root: &Root) -> Outcome<Option<BundleFact>> {
    Ok(newest_bundle(root)?.map(|(name, bundle)| BundleFact::of(name, bundle.bytes, &bundle.claimed)))
}

/// Records the outcome.
pub(super) fn note(root: &Root, outcome: Result<(), String>) -> Outcome<()> {
    let at = folder(root)?.join(TROUBLE);
    match outcome {
        Ok(()) => absent(fs::remove_file(&at)).explain("remove", &at),
        Err(what) => {
            let text = format!("{} {}\n", when::now_ms(), what.replace(['\n', '\r'], " "));
            write_one(at, text.as_bytes(), 0o600, me())
        }
    }
}

/// Whether a leader has waited long enough for the followers.
pub(super) fn due(folder: &Path, settings: &Settings) -> bool {
    let now = when::now_ms();
    // A snapshot that a wrong clock dated in the future is ignored.
    let newest = own(folder, settings).into_iter().map(|(_, manifest)| manifest.taken_ms).filter(|at| *at <= now).max();
    let wait = i64::try_from(settings.every_s).unwrap_or(i64::MAX).saturating_mul(1000 * LEADER_WAITS);
    newest.is_none_or(|at| now.saturating_sub(at) >= wait)
}

/// The snapshots that this host made of this cluster, each with its manifest; unreadable ones are ignored.
fn own(folder: &Path, settings: &Settings) -> Vec<(String, Manifest)> {
    let ending = format!("-{}.{ENDING}", settings.host);
    let mine = |name: &String| name.ends_with(&ending);
    let read = |name: String| {
        let manifest = Bundle::open(&folder.join(&name)).ok()?.claimed.manifest;
        let ours = manifest.authority == settings.authority && manifest.host == settings.host;
        ours.then_some((name, manifest))
    };
    names(folder).unwrap_or_default().into_iter().filter(mine).filter_map(read).collect()
}

/// Sorts the newest first, by etcd and not by a clock that may have been wrong: those of the live etcd, if it is
/// known (a cluster that was bootstrapped again under the same CA starts from revision one), then by revision,
/// because each recovery begins above all earlier revisions.
fn newest_first(found: &mut [(String, Manifest)], living: Option<&str>) {
    let rank = |manifest: &Manifest| {
        let point = &manifest.point;
        (living == Some(point.cluster.as_str()), point.revision, point.term, point.index, manifest.taken_ms)
    };
    found.sort_by(|(a, one), (b, other)| rank(other).cmp(&rank(one)).then_with(|| b.cmp(a)));
}

/// The id of the live etcd, from the newest snapshot by its time; none: there is no snapshot.
pub(super) fn living(folder: &Path, settings: &Settings) -> Outcome<Option<String>> {
    let newest = newest(folder, settings)?;
    Ok(newest.and_then(|(_, name)| Some(Bundle::open(&folder.join(name)).ok()?.claimed.manifest.point.cluster)))
}

/// The snapshots of this host and cluster in a directory: those retained, and those expired.
fn sorted(folder: &Path, settings: &Settings, living: Option<&str>) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut found = own(folder, settings);
    newest_first(&mut found, living);
    let times: Vec<i64> = found.iter().map(|(_, manifest)| manifest.taken_ms).collect();
    let places = settings.keep.kept(&times);
    let (kept, rest): (Vec<_>, Vec<_>) = found.into_iter().enumerate().partition(|(place, _)| places.contains(place));
    let names = |of: Vec<(usize, (String, Manifest))>| of.into_iter().map(|(_, (name, _))| name).collect();
    (names(kept), names(rest))
}

/// Deletes expired snapshots in a directory, except those in `spared`. `living` is the id of the running etcd.
/// Returns the deleted names.
pub(super) fn prune(
    folder: &Path,
    settings: &Settings,
    living: Option<&str>,
    spared: &BTreeSet<String>,
) -> Outcome<Vec<String>> {
    let (_, rest) = sorted(folder, settings, living);
    let mut removed = Vec::new();
    for name in rest.into_iter().filter(|name| !spared.contains(name)) {
        let place = folder.join(&name);
        absent(fs::remove_file(&place)).explain("remove", &place)?;
        removed.push(name);
    }
    Ok(removed)
}

/// Copies that are never deleted: of snapshots that this host retains, and of the newest. Other clients may write
/// there, and no name that they choose displaces one of these.
pub(super) fn spared(root: &Root, settings: &Settings, fresh: Option<&str>) -> Outcome<BTreeSet<String>> {
    let folder = root.own(FOLDER);
    let (mut kept, _) = sorted(&folder, settings, lives(&folder, settings, fresh)?.as_deref());
    kept.extend(fresh.map(str::to_owned));
    Ok(kept)
}

/// As [`living`], from the newest snapshot if there is one.
fn lives(folder: &Path, settings: &Settings, fresh: Option<&str>) -> Outcome<Option<String>> {
    match fresh.and_then(|name| Bundle::open(&folder.join(name)).ok()) {
        Some(bundle) => Ok(Some(bundle.claimed.manifest.point.cluster)),
        None => living(folder, settings),
    }
}

/// The directories for copies on this host.
pub(super) fn directories(settings: &Settings) -> impl Iterator<Item = &Path> {
    settings.to.iter().filter_map(|to| match to {
        Destination::Directory(path) => Some(path.as_path()),
        Destination::Bucket(_) => None,
    })
}

/// Puts a copy of `fresh` into a directory, if one is named, and deletes the expired copies of this host there. Only
/// a process of its own may call this: a process that touches a dead share hangs. A missing directory is not made: an
/// unmounted share would fill the disk below it.
pub(crate) fn tended(root: &Root, directory: &Path, fresh: Option<&str>) -> Outcome<()> {
    let settings = settings(root)?;
    if !directory.is_dir() {
        return Err(failed(format!("{} does not exist; check that it is mounted", directory.display())));
    }
    if let Some(name) = fresh {
        copy(&place(root, name)?, directory, name)?;
    }
    let spared = spared(root, &settings, fresh)?;
    let living = lives(&root.own(FOLDER), &settings, fresh)?;
    let tidied = half_copies(directory, &settings);
    let tidied = tidied.and_then(|()| prune(directory, &settings, living.as_deref(), &spared).map(drop));
    tidied.map_err(|fault| {
        failed(format!(
            "{} has every copy that it should have, but expired copies were not \
                                           deleted: {}",
            directory.display(),
            fault.what
        ))
    })
}

/// Deletes copies of this host that were interrupted long ago.
fn half_copies(directory: &Path, settings: &Settings) -> Outcome<()> {
    let is_old = |of: fs::Metadata| {
        of.is_file() && of.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > CUT_OFF_AFTER))
    };
    unfinished::remove(directory, |name, entry| settings.own(name).is_some() && entry.metadata().is_ok_and(is_old))
}

fn copy(from: &Path, to: &Path, name: &str) -> Outcome<()> {
    let (unfinished, mut copy) = Unfinished::create(to, name)?;
    let copied = File::open(from).and_then(|mut from| std::io::copy(&mut from, &mut copy));
    copied.and_then(|_| copy.sync_all()).explain("write", unfinished.path())?;
    unfinished.put()
}
