//! The steps of a recovery that carry data: the snapshot comes here from the host that took it, and goes to all that are restored from it.
//!
//! In: the recovery. Out: a verified snapshot beside the journal, and hosts that are restored from it. No value flows between steps: what
//! the second needs of the first lies on the disk under the recovery's name, so that a run that was cut off goes on.

use super::act::{Hands, failed, unexpected};
use super::walk::StepError;
use crate::host::Feed;
use crate::host::op::{Op, Reply, RestoreAsk, SNAPSHOT_PIECE, SnapshotAsk, SnapshotUse};
use crate::model::blob::SnapshotBlob;
use crate::model::event::Event;
use crate::model::names::{Digest, HostName};
use crate::model::recovery::Recovery;
use crate::model::sum::Sum;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pieces of a snapshot that are under way at once: one is put together on the host while the other is taken in here.
const AT_ONCE: usize = 2;
#[allow(clippy::cast_possible_truncation, reason = "some megabytes")]
const STEP: usize = SNAPSHOT_PIECE as usize;

/// How the names of the two end.
const ENDINGS: [&str; 2] = [".json", ".snapshot.zst"];

/// The two files of a recovery: what the snapshot is, and its compressed content.
fn files(recoveries: &Path, id: &str) -> (PathBuf, PathBuf) {
    let [note, content] = ENDINGS.map(|ending| recoveries.join(format!("{id}{ending}")));
    (note, content)
}

/// The snapshot of a recovery, as it was noted when it was there as a whole.
fn noted(recoveries: &Path, id: &str) -> io::Result<Option<SnapshotBlob>> {
    match fs::read(files(recoveries, id).0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // It is put in place as a whole: one that cannot be read is of no hactl's.
        text => Ok(serde_json::from_slice(&text?).ok()),
    }
}

/// The snapshot of a recovery that an earlier run took and fetched. It is read as a whole: a machine that lost its power may have the note of it
/// and not the content, and then no host's data was replaced yet.
///
/// # Errors
/// What the file system says, but that there is none: it may well be the only copy.
pub fn taken(recoveries: &Path, id: &str) -> io::Result<Option<SnapshotBlob>> {
    let Some(taken) = noted(recoveries, id)? else { return Ok(None) };
    let found = match File::open(content_of(recoveries, id)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => Digest::of_all(file?, taken.sent_size)?,
    };
    Ok((found == (taken.sent_digest, taken.sent_size)).then_some(taken))
}

/// Where the compressed content of a recovery's snapshot belongs; it is nothing until [`note_taken`] says what it is.
pub fn content_of(recoveries: &Path, id: &str) -> PathBuf {
    files(recoveries, id).1
}

/// Notes that the snapshot of a recovery is there as a whole.
///
/// # Errors
/// What the file system says.
pub fn note_taken(recoveries: &Path, id: &str, taken: &SnapshotBlob) -> io::Result<()> {
    let (note, _) = files(recoveries, id);
    let fresh = note.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&serde_json::to_vec(taken).map_err(io::Error::other)?)?;
    file.sync_all()?;
    fs::rename(&fresh, &note)?;
    File::open(recoveries)?.sync_all()
}

/// Removes the snapshots of all recoveries but one: they lie open, and those that are over need none.
///
/// # Errors
/// What the file system says.
pub fn forget_taken(recoveries: &Path, but: Option<&str>) -> io::Result<()> {
    let entries = match fs::read_dir(recoveries) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let id = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
        if id.is_some_and(|id| Some(id) != but) {
            fs::remove_file(recoveries.join(&*name))?;
        }
    }
    Ok(())
}

/// Waits until the disk has the snapshot. Where it cannot have it the note goes: a file system tells that once, and whoever asked again would
/// take what is in memory alone for kept.
async fn synced(recoveries: PathBuf, id: String) -> Result<(), StepError> {
    let syncing = tokio::task::spawn_blocking(move || {
        let (note, content) = files(&recoveries, &id);
        let Err(error) = File::open(&content).and_then(|file| file.sync_all()) else { return Ok(()) };
        fs::remove_file(&note).map_err(explain("remove", &note))?;
        Err(explain("write", &content)(error))
    });
    syncing.await.map_err(|error| failed(format!("hactl itself failed: {error}")))?
}

fn explain<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StepError + 'a {
    move |error| failed(format!("could not {doing} {}: {error}", path.display()))
}

fn create(path: &Path) -> Result<File, StepError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(explain("create", path))
}

impl Hands {
    /// Takes the snapshot on the host and fetches it. The note that it is there comes last; [`Hands::restore`] sees to it that the disk has both.
    pub(super) async fn take_snapshot(
        &self,
        index: usize,
        host: &HostName,
        ask: SnapshotAsk,
        patience: Duration,
    ) -> Result<(), StepError> {
        let folder = &self.recoveries;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(explain("create", folder))?;
        let recovery = ask.recovery.clone();
        let reply = self.call(index, host, Op::TakeSnapshot(ask), patience).await?;
        let Reply::Taken(taken) = reply else { return Err(unexpected(&reply)) };
        let content = content_of(folder, &recovery);
        let mut file = Sum::new(create(&content)?);
        let id = recovery.as_str();
        let read = |from| async move {
            let op = Op::ReadSnapshot { recovery: id.to_owned(), from };
            match self.call(index, host, op, patience).await? {
                Reply::Bytes(text) => Ok((from, text)),
                other => Err(unexpected(&other)),
            }
        };
        let mut pieces = futures::stream::iter((0..taken.sent_size).step_by(STEP)).map(read).buffered(AT_ONCE);
        while let Some(piece) = pieces.next().await {
            let (from, text) = piece?;
            let piece = STANDARD.decode(text).map_err(|_| failed(format!("{host} sent something else than base64")))?;
            let expected = SNAPSHOT_PIECE.min(taken.sent_size - from);
            if piece.len() as u64 != expected {
                let (has, all) = (piece.len(), taken.sent_size);
                let what =
                    format!("{host} sent {has} bytes of the snapshot's {all} from {from} on, instead of {expected}");
                return Err(failed(what));
            }
            file.write_all(&piece).map_err(explain("write", &content))?;
            self.sink.emit(Event::Moved { step: index, done: file.count(), total: taken.sent_size });
        }
        // Who asks for more than there is has all of it: the host needs its file no more.
        read(taken.sent_size).await?;
        if file.so_far() != taken.sent_digest {
            return Err(failed(format!("the snapshot arrived from {host} damaged: run the same command again")));
        }
        note_taken(folder, &recovery, &taken).map_err(explain("write a note in", folder))
    }

    /// Delivers the snapshot and puts it in the place of the member's data.
    pub(super) async fn restore(
        &self,
        index: usize,
        host: &HostName,
        recovery: &Recovery,
        data_dir: String,
        patience: Duration,
    ) -> Result<(), StepError> {
        let missing =
            || failed(format!("the snapshot of recovery {} is not in {}", recovery.id, self.recoveries.display()));
        let taken = noted(&self.recoveries, &recovery.id).map_err(explain("read", &self.recoveries))?;
        let taken = taken.ok_or_else(missing)?;
        let content = content_of(&self.recoveries, &recovery.id);
        // The source host has the only other copy, until its own data is replaced.
        let syncing = async {
            let (recoveries, id) = (self.recoveries.clone(), recovery.id.clone());
            self.synced.get_or_try_init(|| synced(recoveries, id)).await
        };
        let deliver = Op::DeliverSnapshot { snapshot: taken, to: SnapshotUse::Recovery };
        let delivering = self.feed(index, host, deliver, Feed::Blob(content), patience);
        tokio::try_join!(delivering, syncing)?;
        let ask = RestoreAsk {
            data_dir,
            snapshot: taken,
            token: recovery.id.clone(),
            name: host.to_string(),
            members: recovery.members.iter().map(|(name, peer)| (name.to_string(), peer.clone())).collect(),
            base: recovery.base,
        };
        self.call(index, host, Op::Restore(Box::new(ask)), patience).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_counts_as_taken_only_while_all_of_it_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, content) = (folder.path(), b"all keys and values");
        let digest = Digest::of(content);
        let size = content.len() as u64;
        let blob = SnapshotBlob { digest, size, sent_digest: digest, sent_size: size };
        let taken = |id: &str| taken(folder, id).expect("it can be looked at");
        assert_eq!(taken("one"), None);
        fs::write(content_of(folder, "one"), content).expect("it is written");
        assert_eq!(taken("one"), None, "nobody has noted that it is whole");
        note_taken(folder, "one", &blob).expect("it is noted");
        assert_eq!(taken("one"), Some(blob));
        for lost in [&content[..5], &[0; 19], b""] {
            fs::write(content_of(folder, "one"), lost).expect("it is written");
            assert_eq!(taken("one"), None, "after a loss of power it holds {lost:?}");
        }
    }
}
