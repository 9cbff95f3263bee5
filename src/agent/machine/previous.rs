//! Previous files, kept until the new files have passed their trial: the components that use them have come up.
//!
//! In: the paths of a set that are about to be written. Out: a record per set of the previous files, for root alone;
//! restored, or deleted. The first record stays until then: later files have not passed their trial.

use crate::agent::host::Host;
use crate::agent::machine::files::{Ready, optional, put_all, remove, write_one};
use crate::agent::machine::root::{Root, me};
use crate::agent::op_error::{Explain, Outcome, bad, failed};
use crate::model::target::FileSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// The directory of the records, one for each set.
const KEPT: &str = "/var/lib/hactl/kept";

/// A previous file, by its path; `None`: there was none.
type Record = BTreeMap<String, Option<Was>>;

/// No `Debug`: some files contain keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Was {
    content: String,
    mode: u32,
    owner: (u32, u32),
}

/// The file name of the record of a set. Serialized names are plain words with hyphens.
fn place(root: &Root, set: FileSet) -> Outcome<PathBuf> {
    let name = serde_json::to_value(set).ok().and_then(|name| name.as_str().map(str::to_owned));
    let name = name.ok_or_else(|| failed("a set of files does not have a name"))?;
    Ok(root.own(KEPT).join(format!("{name}.json")))
}

fn read(root: &Root, set: FileSet) -> Outcome<Option<Record>> {
    let path = place(root, set)?;
    let Some(text) = optional(fs::read(&path)).explain("read", &path)? else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|e| failed(format!("{} cannot be read: {e}", path.display())))
}

/// Saves the files at these paths, unless the set has saved them already.
pub(crate) fn keep(root: &Root, set: FileSet, paths: &[String]) -> Outcome<()> {
    let mut record = read(root, set)?.unwrap_or_default();
    for path in paths.iter().filter(|path| !record.contains_key(*path)).collect::<Vec<_>>() {
        record.insert(path.clone(), as_it_is(root, path)?);
    }
    let folder = root.own(KEPT);
    fs::create_dir_all(&folder).explain("create", &folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).explain("set the mode of", &folder)?;
    let text =
        serde_json::to_vec(&record).map_err(|e| failed(format!("the previous files cannot be serialized: {e}")))?;
    write_one(place(root, set)?, &text, 0o600, me())
}

fn as_it_is(root: &Root, path: &str) -> Outcome<Option<Was>> {
    let at = root.present(path)?;
    let Some(found) = optional(fs::symlink_metadata(&at)).explain("stat", &at)? else { return Ok(None) };
    if !found.is_file() {
        return Err(bad(format!("{path} is not a regular file")));
    }
    let content = fs::read_to_string(&at).explain("read", &at)?;
    Ok(Some(Was { content, mode: found.mode() & 0o7777, owner: (found.uid(), found.gid()) }))
}

/// The sets that have previous files.
pub(crate) fn sets(root: &Root) -> Outcome<BTreeSet<FileSet>> {
    let folder = root.own(KEPT);
    let entries = optional(fs::read_dir(&folder)).explain("read the directory", &folder)?;
    let mut found = BTreeSet::new();
    for entry in entries.into_iter().flatten() {
        let name = entry.explain("read the directory", &folder)?.file_name();
        // Incomplete records begin with a dot; an unknown set belongs to another version of hactl.
        let name = name.to_str().and_then(|name| name.strip_suffix(".json")).map(serde_json::Value::from);
        found.extend(name.and_then(|name| serde_json::from_value::<FileSet>(name).ok()));
    }
    Ok(found)
}

/// Restores the previous files of all these sets, and deletes the records.
pub(crate) async fn put_back(host: &Host, sets: Vec<FileSet>) -> Outcome<()> {
    let restoring = host.root.blocking(move |root| {
        let mut records = Vec::new();
        for set in &sets {
            records.extend(read(root, *set)?.map(|record| (*set, record)));
        }
        if records.is_empty() {
            return Err(bad("there are no previous files to restore"));
        }
        let (mut ready, mut gone) = (Vec::new(), Vec::new());
        for (path, was) in records.iter().flat_map(|(_, record)| record) {
            let at = root.present(path)?;
            match was {
                Some(was) => ready.push(Ready::write(at, was.content.as_bytes(), was.mode, was.owner)?),
                None => gone.push(at),
            }
        }
        put_all(ready)?;
        gone.iter().try_for_each(|path| remove(path))?;
        records.iter().try_for_each(|(set, _)| remove(&place(root, *set)?))
    });
    restoring.await
}

/// Deletes the previous files of these sets.
pub(crate) async fn accept(host: &Host, sets: Vec<FileSet>) -> Outcome<()> {
    host.root.blocking(move |root| sets.iter().try_for_each(|set| remove(&place(root, *set)?))).await
}
