//! Files: written beside their destination, checked there, and only then renamed over the previous files.
//!
//! In: contents with mode, owner and a check. Out: all of them in place, or none. A file that is correct already is
//! not touched, so that its change time shows when it last changed.

use crate::agent::host::Host;
use crate::agent::machine::root::{Root, me};
use crate::agent::machine::run::run;
use crate::agent::machine::{foreign, previous, units};
use crate::agent::op_error::{Explain, Outcome, bad, failed, tail};
use crate::model::facts::ClusterId;
use crate::model::names::UnitName;
use crate::model::target::FileSet;
use crate::protocol::{FilePut, OpError, OpErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cluster that this host belongs to.
pub(crate) const STAMP: &str = "/var/lib/hactl/cluster.json";
/// How long a check of new content may take.
const CHECK: Duration = Duration::from_secs(30);

/// The name of new content beside its destination; a loss of power may leave it there.
pub(crate) fn fresh_beside(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    // A leading dot: kubelet, systemd and others do not read such a file from the directories they watch.
    place.with_file_name(format!(".{name}.hactl-new"))
}

/// New content that is ready beside its destination; removed again unless it is put in place.
pub(crate) struct Ready {
    fresh: PathBuf,
    place: PathBuf,
}

impl Ready {
    /// Writes content with mode and owner to a file beside `place`, and syncs it.
    pub(crate) fn write(place: PathBuf, content: &[u8], mode: u32, owner: (u32, u32)) -> Outcome<Self> {
        let directory = place.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).explain("create", directory)?;
        let fresh = fresh_beside(&place);
        absent(fs::remove_file(&fresh)).explain("remove", &fresh)?;
        let ready = Self { fresh, place };
        let path = &ready.fresh;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).explain("create", path)?;
        file.write_all(content).explain("write", path)?;
        if owner != me() {
            fchown(&file, Some(owner.0), Some(owner.1)).explain("change the owner of", path)?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode)).explain("set the mode of", path)?;
        file.sync_all().explain("write", path)?;
        Ok(ready)
    }
    /// Renames it over the previous file.
    pub(crate) fn put(self) -> Outcome<()> {
        fs::rename(&self.fresh, &self.place).explain("replace", &self.place)
    }
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Renamed already, or obsolete.
        let _ = fs::remove_file(&self.fresh);
    }
}

/// Puts several files in place and syncs their directories.
pub(crate) fn put_all(ready: Vec<Ready>) -> Outcome<()> {
    let mut folders = BTreeSet::new();
    for file in ready {
        folders.extend(file.place.parent().map(Path::to_owned));
        file.put()?;
    }
    folders.iter().try_for_each(|folder| sync(folder))
}

/// Writes one file atomically.
pub(crate) fn write_one(place: PathBuf, content: &[u8], mode: u32, owner: (u32, u32)) -> Outcome<()> {
    put_all(vec![Ready::write(place, content, mode, owner)?])
}

/// Removes a file if it exists; syncs the directory.
pub(crate) fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Ok(()) => sync_parent(path),
        error => absent(error).explain("remove", path),
    }
}

/// Moves a file within its file system, so that it is in one of the two folders also after a loss of power.
pub(crate) fn moved(from: &Path, to: &Path) -> Outcome<()> {
    fs::rename(from, to).explain("move", from)?;
    sync_parent(to)?;
    sync_parent(from)
}

pub(crate) fn sync_parent(path: &Path) -> Outcome<()> {
    path.parent().map_or(Ok(()), sync)
}

fn sync(folder: &Path) -> Outcome<()> {
    File::open(folder).and_then(|f| f.sync_all()).explain("write", folder)
}

/// A missing file counts as removed.
pub(crate) fn absent(outcome: io::Result<()>) -> io::Result<()> {
    optional(outcome).map(Option::unwrap_or_default)
}

/// The outcome of reading what may be missing: `None`.
pub(crate) fn optional<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Removes a directory with everything below, if it exists.
pub(crate) fn remove_all(folder: &Path) -> Outcome<()> {
    absent(fs::remove_dir_all(folder)).explain("remove", folder)
}

/// Makes a directory for root alone, and its parents, unless it exists.
pub(crate) fn private_folder(at: &Path) -> Outcome<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(at).explain("create", at)
}

/// Makes an empty directory for root alone; removes what a killed process left there.
pub(crate) fn fresh_folder(at: &Path) -> Outcome<()> {
    remove_all(at)?;
    DirBuilder::new().mode(0o700).create(at).explain("create", at)
}

/// At most `most` bytes of a file from an offset on, in base64; at its end nothing.
pub(crate) fn piece(mut file: File, path: &Path, from: u64, most: u64) -> Outcome<String> {
    file.seek(SeekFrom::Start(from)).explain("read", path)?;
    let mut piece = Vec::new();
    file.take(most).read_to_end(&mut piece).explain("read", path)?;
    Ok(STANDARD.encode(piece))
}

/// Settings that `up` wrote.
pub(crate) fn settings<T: DeserializeOwned>(at: &Path) -> Outcome<T> {
    let text = fs::read(at).explain("read", at)?;
    serde_json::from_slice(&text).map_err(|e| failed(format!("{} cannot be used: {e}; run `hactl up`", at.display())))
}

/// Whether a regular file with exactly this content, mode and owner exists.
pub(crate) fn same(path: &Path, content: &[u8], mode: u32, owner: (u32, u32)) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    found.is_file()
        && found.len() == content.len() as u64
        && found.mode() & 0o7777 == mode
        && (found.uid(), found.gid()) == owner
        && fs::read(path).is_ok_and(|c| c == content)
}

/// Writes files atomically, all checks first, and removes others. With `keep`, the previous files are saved first. A
/// file that hactl did not write is kept under another name.
pub(crate) async fn write(
    host: &Host,
    files: Vec<FilePut>,
    remove_these: Vec<String>,
    keep: Option<FileSet>,
) -> Outcome<()> {
    let gone = remove_these.iter().map(|path| host.root.present(path)).collect::<Outcome<Vec<_>>>()?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = files.iter().find(|f| !seen.insert(f.path.clone())) {
        return Err(bad(format!("the request writes {} twice", twice.path)));
    }
    let removed = remove_these.clone();
    let paths: Vec<String> = files.iter().map(|f| f.path.clone()).collect();
    let changes: Vec<_> = paths.iter().map(|path| units::changed_by(path)).collect();
    let checks: Vec<_> = files.iter().map(|f| f.check.clone()).collect();
    let prepared = move |root: &Root| files.iter().map(|file| prepare(root, file)).collect::<Outcome<Vec<_>>>();
    let ready = host.root.blocking(prepared).await?;
    for (file, check) in ready.iter().zip(checks) {
        if let (Some(file), Some(check)) = (file, check) {
            host.waits(format!("{} to check {}", check.first().map_or("", String::as_str), file.place().display()));
            accept(file, &check).await?;
        }
    }
    // Unlike the unit file itself, these belong to no step that runs the unit afterwards.
    let changed: Vec<UnitName> =
        ready.iter().zip(changes).filter(|(r, _)| r.is_some()).filter_map(|(_, u)| u).collect();
    let putting = host.root.blocking(move |root| {
        if let Some(set) = keep {
            let replaced: Vec<String> =
                ready.iter().zip(&paths).filter_map(|(r, p)| r.as_ref().map(|_| p.clone())).collect();
            previous::keep(root, set, &[replaced, remove_these].concat())?;
        }
        let replaced = ready.iter().flatten().map(Ready::place);
        replaced.chain(gone.iter().map(PathBuf::as_path)).try_for_each(|path| foreign::keep_shared(root, path))?;
        put_all(ready.into_iter().flatten().collect())?;
        gone.iter().try_for_each(|path| {
            remove(path)?;
            units::folder_with_the_last(root, path);
            Ok(())
        })
    });
    putting.await?;
    units::read_again(host, &changed).await?;
    units::forget(host, &removed).await
}

/// Prepares a file beside its destination; `None` if it is there already.
fn prepare(root: &Root, file: &FilePut) -> Outcome<Option<Ready>> {
    let (path, owner) = (root.present(&file.path)?, root.owner(&file.owner)?);
    if file.mode > 0o7777 {
        return Err(bad(format!("{:o} is not a valid mode for {}", file.mode, file.path)));
    }
    if path.is_dir() {
        return Err(bad(format!("{} is a directory", file.path)));
    }
    if same(&path, file.content.as_bytes(), file.mode, owner) {
        return Ok(None);
    }
    Ready::write(path, file.content.as_bytes(), file.mode, owner).map(Some)
}

/// Checks the new content before it is put in place.
async fn accept(file: &Ready, check: &[String]) -> Outcome<()> {
    let fresh = file.fresh.to_str().ok_or_else(|| bad("a path is not UTF-8 text"))?;
    let argv: Vec<String> = check.iter().map(|argument| argument.replace("{}", fresh)).collect();
    let ran = run(&argv.iter().map(String::as_str).collect::<Vec<_>>(), CHECK).await?;
    if ran.ok() {
        return Ok(());
    }
    let place = file.place.display();
    Err(OpError {
        kind: OpErrorKind::Rejected,
        what: format!("{} rejects the new {place}; the old one stays", argv[0]),
        // The user knows the destination, not the temporary name.
        tail: tail(&format!("{}\n{}", ran.out, ran.err).replace(fresh, &place.to_string())),
    })
}

/// Writes the cluster that this host belongs to. The id of another cluster is never overwritten, nor one of this
/// cluster that knows later keys.
pub(crate) async fn write_cluster_id(host: &Host, cluster_id: ClusterId) -> Outcome<()> {
    let writing = host.root.blocking(move |root| {
        let path = root.own(STAMP);
        let machine = fs::read_to_string(root.own("/etc/machine-id")).unwrap_or_default();
        // Only the host knows its machine id.
        let machine = Some(machine.trim().to_owned()).filter(|id| !id.is_empty());
        let cluster_id = ClusterId { machine, ..cluster_id };
        let there = read_stamp(root)?;
        if there.is_none() {
            foreign::record(root)?;
        }
        if let Some(there) = there
            && there != cluster_id
        {
            if !there.same_cluster(&cluster_id) {
                return Err(bad(format!(
                    "this host already belongs to cluster {} ({})",
                    there.cluster,
                    path.display()
                )));
            }
            if there.stages > cluster_id.stages {
                return Err(bad("this host knows later keys than those to be written".to_owned()));
            }
        }
        let text = serde_json::to_vec_pretty(&cluster_id)
            .map_err(|e| failed(format!("could not serialize the cluster id: {e}")))?;
        if same(&path, &text, 0o644, me()) { Ok(()) } else { write_one(path, &text, 0o644, me()) }
    });
    writing.await
}

/// Reads the cluster id; an unreadable one is a fault, never "no cluster".
pub(crate) fn read_stamp(root: &Root) -> Outcome<Option<ClusterId>> {
    let at = root.own(STAMP);
    let Some(text) = optional(fs::read(&at)).explain("read", &at)? else { return Ok(None) };
    let cluster_id = serde_json::from_slice(&text);
    cluster_id.map(Some).map_err(|e| failed(format!("{} does not contain a cluster id: {e}", at.display())))
}

/// Larger than any file that hactl writes.
const LARGEST_TEXT: u64 = 256 << 10;
/// The limit for all of them, well below the largest frame.
const ALL_TEXTS: usize = 4 << 20;

/// The contents of those files that exist; a file that is not text, or larger than any of ours, is omitted.
pub(crate) async fn texts(host: &Host, paths: Vec<String>) -> Outcome<BTreeMap<String, String>> {
    let reading = host.root.blocking(move |root| {
        let (mut texts, mut all) = (BTreeMap::new(), 0);
        for path in paths {
            let at = root.path(&path)?;
            let small = fs::symlink_metadata(&at).is_ok_and(|found| found.is_file() && found.len() <= LARGEST_TEXT);
            let Ok(text) = small.then(|| fs::read_to_string(&at)).transpose() else { continue };
            let Some(text) = text else { continue };
            all += text.len();
            if all > ALL_TEXTS {
                break;
            }
            texts.insert(path, text);
        }
        Ok(texts)
    });
    reading.await
}
