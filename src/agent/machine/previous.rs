//! What new files replaced, kept until they have proven themselves: whoever runs by them came up.
//!
//! In: the paths of a set that are about to be written. Out: a record per set of what stood there, for root alone; put back as it was,
//! or let go of. What is kept first stays until then: files that came after it have proven nothing.

use crate::agent::Host;
use crate::agent::fault::{Explain, Outcome, bad, failed};
use crate::agent::machine::files::{Ready, put_all, remove, write_one};
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::model::target::FileSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// Where the records lie, one for each set.
const KEPT: &str = "/var/lib/hactl/kept";

/// A file as it was, by its path; `None`: there was none.
type Record = BTreeMap<String, Option<Was>>;

/// No `Debug`: some files hold keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Was {
    content: String,
    mode: u32,
    owner: (u32, u32),
}

/// The name of a set's record. Serialized names are plain words with hyphens.
fn place(root: &Root, set: FileSet) -> Outcome<PathBuf> {
    let name = serde_json::to_value(set).ok().and_then(|name| name.as_str().map(str::to_owned));
    let name = name.ok_or_else(|| failed("a set of files has no name"))?;
    Ok(root.own(KEPT).join(format!("{name}.json")))
}

fn read(root: &Root, set: FileSet) -> Outcome<Option<Record>> {
    let path = place(root, set)?;
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => {
            let record = serde_json::from_slice(&read.explain("read", &path)?);
            record.map(Some).map_err(|e| failed(format!("{} cannot be read: {e}", path.display())))
        }
    }
}

/// Lays by what stands at these paths, unless something was laid by for them already.
pub(in crate::agent) fn keep(root: &Root, set: FileSet, paths: &[String]) -> Outcome<()> {
    let mut record = read(root, set)?.unwrap_or_default();
    for path in paths.iter().filter(|path| !record.contains_key(*path)).collect::<Vec<_>>() {
        record.insert(path.clone(), as_it_is(root, path)?);
    }
    let folder = root.own(KEPT);
    fs::create_dir_all(&folder).explain("create", &folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).explain("set the mode of", &folder)?;
    let text = serde_json::to_vec(&record).map_err(|e| failed(format!("what is to be kept cannot be written: {e}")))?;
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    write_one(place(root, set)?, &text, 0o600, me)
}

fn as_it_is(root: &Root, path: &str) -> Outcome<Option<Was>> {
    let at = root.path(path)?;
    let found = match fs::symlink_metadata(&at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.explain("look at", &at)?,
    };
    if !found.is_file() {
        return Err(bad(format!("{path} is no plain file")));
    }
    let content = fs::read_to_string(&at).explain("read", &at)?;
    Ok(Some(Was { content, mode: found.mode() & 0o7777, owner: (found.uid(), found.gid()) }))
}

/// The sets of which something is kept.
pub(in crate::agent) fn sets(root: &Root) -> Outcome<BTreeSet<FileSet>> {
    let folder = root.own(KEPT);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries.explain("look into", &folder)?,
    };
    let mut found = BTreeSet::new();
    for entry in entries {
        let name = entry.explain("look into", &folder)?.file_name();
        // Half-written ones begin with a dot; a set that this version does not know is another one's.
        let name = name.to_str().and_then(|name| name.strip_suffix(".json")).map(serde_json::Value::from);
        found.extend(name.and_then(|name| serde_json::from_value::<FileSet>(name).ok()));
    }
    Ok(found)
}

/// Puts back what was kept of all these sets, and lets go of the records.
pub(in crate::agent) async fn put_back(host: &Host, sets: Vec<FileSet>) -> Outcome<()> {
    let root = host.root.clone();
    blocking(move || {
        let mut records = Vec::new();
        for set in &sets {
            records.extend(read(&root, *set)?.map(|record| (*set, record)));
        }
        if records.is_empty() {
            return Err(bad("nothing was kept that could be put back"));
        }
        let (mut ready, mut gone) = (Vec::new(), Vec::new());
        for (path, was) in records.iter().flat_map(|(_, record)| record) {
            let at = root.path(path)?;
            match was {
                Some(was) => ready.push(Ready::write(at, was.content.as_bytes(), was.mode, was.owner)?),
                None => gone.push(at),
            }
        }
        put_all(ready)?;
        gone.iter().try_for_each(|path| remove(path))?;
        records.iter().try_for_each(|(set, _)| remove(&place(&root, *set)?))
    })
    .await
}

/// Lets go of what was kept of these sets.
pub(in crate::agent) async fn accept(host: &Host, sets: Vec<FileSet>) -> Outcome<()> {
    let root = host.root.clone();
    blocking(move || sets.iter().try_for_each(|set| remove(&place(&root, *set)?))).await
}
