//! The folder of bundles: what is in it, what leaves it, and what went wrong last.
//!
//! In: the folder. Out: facts, and files that are gone. Only files that this host made are ever removed: a directory that gets copies may
//! be everybody's.

use super::own;
use crate::agent::etcd::member::me;
use crate::agent::fault::{Explain, Outcome, bad, failed};
use crate::agent::machine::files::{absent, sync_parent, write_one};
use crate::agent::machine::root::Root;
use crate::agent::machine::when;
use crate::model::bucket::Destination;
use crate::model::drill::{OwnDrill, RECORD};
use crate::model::snapshot::{
    BundleFact, BundlesFact, Drill, ENDING, FOLDER, LEADER_WAITS, Manifest, Proof, Settings, is_name,
};
use crate::model::timestamp::is_ahead;
use crate::snapshot::Bundle;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What went wrong last: milliseconds since 1970, a space, words.
const TROUBLE: &str = "trouble";
/// The last [`Drill`], as JSON.
const DRILL: &str = "drill.json";
/// What is added to the name of a copy until it is whole.
const BEGUN: &str = ".new";
/// One that was not written to for so long was cut off.
const CUT_OFF_AFTER: Duration = Duration::from_secs(1800);

/// The folder, made when it is not there.
pub(super) fn folder(root: &Root) -> Outcome<PathBuf> {
    let at = root.own(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&at).explain("create", &at)?;
    Ok(at)
}

/// Where a bundle of this name lies.
pub(super) fn place(root: &Root, name: &str) -> Outcome<PathBuf> {
    if is_name(name) { Ok(root.own(FOLDER).join(name)) } else { Err(bad(format!("{name:?} is no bundle's name"))) }
}

/// Names of the bundles in a folder; none when there is no folder.
fn names(folder: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(names),
        entries => entries.explain("list", folder)?,
    };
    for entry in entries {
        let name = entry.explain("list", folder)?.file_name().to_string_lossy().into_owned();
        if is_name(&name) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// What is there.
pub(in crate::agent) fn fact(root: &Root) -> Outcome<BundlesFact> {
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
    // Whoever damaged it has a drill to hold, and no more.
    found.drill = fs::read(at.join(DRILL)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    found.own_drill = fs::read(root.own(RECORD)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    found.own_identity_ms = own::since_ms(root).unwrap_or_default();
    Ok(found)
}

/// Notes that a bundle was brought here from outside and could be restored.
pub(super) fn drilled(root: &Root, proof: Proof) -> Outcome<()> {
    let drill = serde_json::to_vec(&Drill { at_ms: when::now_ms(), proof });
    let text = drill.map_err(|error| failed(error.to_string()))?;
    write_one(folder(root)?.join(DRILL), &text, 0o600, me())
}

/// Notes what a drill that this host held by itself showed.
pub(super) fn held(root: &Root, drill: &OwnDrill) -> Outcome<()> {
    let text = serde_json::to_vec(drill).map_err(|error| failed(error.to_string()))?;
    write_one(root.own(RECORD), &text, 0o600, me())
}

/// The newest that this host made of this cluster, by its name: one that cannot be read any more counts as well.
pub(super) fn newest(folder: &Path, settings: &Settings) -> Outcome<Option<(i64, String)>> {
    let mine = |name: String| Some((settings.own(&name)?.taken_ms, name));
    let mut found: Vec<(i64, String)> = names(folder)?.into_iter().filter_map(mine).collect();
    // What a wrong clock dated into the future comes last: it would be the newest for ever.
    let now = when::now_ms();
    found.sort_unstable_by_key(|(at, name)| (!is_ahead(*at, now), *at, name.clone()));
    // Another cluster of this name may have been here before.
    let of_another = |name: &str| {
        Bundle::open(&folder.join(name)).is_ok_and(|bundle| bundle.claimed.manifest.authority != settings.authority)
    };
    Ok(found.into_iter().rev().find(|(_, name)| !of_another(name)))
}

/// Notes how it went.
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

/// Whether a member that leads has waited long enough for those that follow.
pub(super) fn due(folder: &Path, settings: &Settings) -> bool {
    let now = when::now_ms();
    // What a wrong clock dated into the future says nothing.
    let newest = own(folder, settings).into_iter().map(|(_, manifest)| manifest.taken_ms).filter(|at| *at <= now).max();
    let wait = i64::try_from(settings.every_s).unwrap_or(i64::MAX).saturating_mul(1000 * LEADER_WAITS);
    newest.is_none_or(|at| now.saturating_sub(at) >= wait)
}

/// The bundles that this host made of this cluster, each with what it says; what cannot be read is left alone.
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

/// Puts the newest first, by what etcd says and not by a clock that may have been wrong: of the etcd that lives, if it is known (a cluster that
/// was founded anew under the same authority counts from one again), then by revision, for each recovery leaps above all that was before it.
fn newest_first(found: &mut [(String, Manifest)], living: Option<&str>) {
    let rank = |manifest: &Manifest| {
        let point = &manifest.point;
        (living == Some(point.cluster.as_str()), point.revision, point.term, point.index, manifest.taken_ms)
    };
    found.sort_by(|(a, one), (b, other)| rank(other).cmp(&rank(one)).then_with(|| b.cmp(a)));
}

/// The id of the etcd that lives, as the newest bundle by its time has it; none: there is no bundle.
pub(super) fn living(folder: &Path, settings: &Settings) -> Outcome<Option<String>> {
    let newest = newest(folder, settings)?;
    Ok(newest.and_then(|(_, name)| Some(Bundle::open(&folder.join(name)).ok()?.claimed.manifest.point.cluster)))
}

/// What this host made of this cluster in a folder: what is kept of it, and what is not.
fn sorted(folder: &Path, settings: &Settings, living: Option<&str>) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut found = own(folder, settings);
    newest_first(&mut found, living);
    let times: Vec<i64> = found.iter().map(|(_, manifest)| manifest.taken_ms).collect();
    let places = settings.keep.kept(&times);
    let (kept, rest): (Vec<_>, Vec<_>) = found.into_iter().enumerate().partition(|(place, _)| places.contains(place));
    let names = |of: Vec<(usize, (String, Manifest))>| of.into_iter().map(|(_, (name, _))| name).collect();
    (names(kept), names(rest))
}

/// Removes what is not kept any more in a folder, but nothing that is `spared`. `living` is the id of the etcd that runs. Says what it was.
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

/// What is never removed where copies are: what this host keeps itself, and what it has just taken. Others may write there, and whatever they
/// call this host's pushes none of these out.
pub(super) fn spared(root: &Root, settings: &Settings, fresh: Option<&str>) -> Outcome<BTreeSet<String>> {
    let folder = root.own(FOLDER);
    let (mut kept, _) = sorted(&folder, settings, lives(&folder, settings, fresh)?.as_deref());
    kept.extend(fresh.map(str::to_owned));
    Ok(kept)
}

/// As [`living`], of the one that was just taken, where there is one.
fn lives(folder: &Path, settings: &Settings, fresh: Option<&str>) -> Outcome<Option<String>> {
    match fresh.and_then(|name| Bundle::open(&folder.join(name)).ok()) {
        Some(bundle) => Ok(Some(bundle.claimed.manifest.point.cluster)),
        None => living(folder, settings),
    }
}

/// Where copies go on this host.
pub(super) fn directories(settings: &Settings) -> impl Iterator<Item = &Path> {
    settings.to.iter().filter_map(|to| match to {
        Destination::Directory(path) => Some(path.as_path()),
        Destination::Bucket(_) => None,
    })
}

/// Puts a copy of `fresh` into a directory, if one is named, and drops there what this host put there and does not keep any more. Only a process of
/// its own may come here: whoever touches a dead share is held. A directory that is not there is not made: a share that is not mounted would
/// fill the disk below it.
pub(in crate::agent) fn tended(root: &Root, directory: &Path, fresh: Option<&str>) -> Outcome<()> {
    let settings = super::settings(root)?;
    if !directory.is_dir() {
        return Err(failed(format!("{} is not there; is it mounted?", directory.display())));
    }
    if let Some(name) = fresh {
        copy(&place(root, name)?, directory, name)?;
    }
    let spared = spared(root, &settings, fresh)?;
    let living = lives(&root.own(FOLDER), &settings, fresh)?;
    let tidied = half_copies(directory, &settings);
    let tidied = tidied.and_then(|()| prune(directory, &settings, living.as_deref(), &spared).map(drop));
    tidied.map_err(|fault| failed(format!("{} has what it is to have, and {} in it", directory.display(), fault.what)))
}

/// Removes what is left of copies of this host's that were cut off long ago.
fn half_copies(directory: &Path, settings: &Settings) -> Outcome<()> {
    let mine = |name: &str| settings.own(name.strip_suffix(BEGUN)?).map(drop);
    for entry in fs::read_dir(directory).explain("list", directory)? {
        let entry = entry.explain("list", directory)?;
        let old = |of: fs::Metadata| of.is_file().then_some(of.modified().ok()?.elapsed().ok()? > CUT_OFF_AFTER);
        let name = entry.file_name();
        if name.to_str().and_then(mine).is_some() && entry.metadata().ok().and_then(old) == Some(true) {
            absent(fs::remove_file(entry.path())).explain("remove", &entry.path())?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, name: &str) -> Outcome<()> {
    let (fresh, place) = (to.join(format!("{name}{BEGUN}")), to.join(name));
    let mut options = OpenOptions::new();
    // Others may write there: whatever lies under the name already is not followed.
    let copied = options.write(true).create_new(true).mode(0o600).open(&fresh).and_then(|mut copy| {
        std::io::copy(&mut File::open(from)?, &mut copy)?;
        copy.sync_all()
    });
    let copied = copied.explain("write", &fresh);
    if copied.is_err() {
        // Half a copy is of no use, and the disk may be full of it.
        let _ = fs::remove_file(&fresh);
        return copied;
    }
    fs::rename(&fresh, &place).explain("put in place", &place)?;
    sync_parent(&place)
}
