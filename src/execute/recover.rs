//! The steps of a recovery that carry data: the snapshot comes here from the host that took it, and goes to all that are restored from it.
//!
//! In: the recovery. Out: a verified snapshot beside the journal, and hosts that are restored from it. No value flows between steps: what
//! the second needs of the first lies on the disk under the recovery's name, so that a run that was cut off goes on.

use super::act::{Hands, failed, unexpected};
use super::walk::StepError;
use crate::host::Feed;
use crate::host::op::{Op, Reply, RestoreAsk, SnapshotAsk, SnapshotTaken};
use crate::model::event::Event;
use crate::model::names::{Digest, HostName};
use crate::model::recovery::Recovery;
use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The two files of a recovery: what the snapshot is, and its compressed content.
fn files(recoveries: &Path, id: &str) -> (PathBuf, PathBuf) {
    (recoveries.join(format!("{id}.json")), recoveries.join(format!("{id}.snapshot.zst")))
}

/// The snapshot of a recovery, once it was taken and fetched whole.
pub fn taken(recoveries: &Path, id: &str) -> Option<SnapshotTaken> {
    let (note, content) = files(recoveries, id);
    let taken: SnapshotTaken = serde_json::from_slice(&fs::read(note).ok()?).ok()?;
    let whole = fs::metadata(content).is_ok_and(|found| found.len() == taken.part.sent_size);
    whole.then_some(taken)
}

fn explain<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> StepError + 'a {
    move |error| failed(format!("could not {doing} {}: {error}", path.display()))
}

fn create(path: &Path) -> Result<File, StepError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(explain("create", path))
}

impl Hands {
    /// Takes the snapshot on the host and fetches it. The note that it is there comes last.
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
        let (note, content) = files(folder, &recovery);
        let mut file = create(&content)?;
        let (mut from, mut sum) = (0_u64, Context::new(&SHA256));
        loop {
            let op = Op::ReadSnapshot { recovery: recovery.clone(), from };
            let reply = self.call(index, host, op, patience).await?;
            let Reply::Bytes(text) = reply else { return Err(unexpected(&reply)) };
            let piece = STANDARD.decode(text).map_err(|_| failed(format!("{host} sent something else than base64")))?;
            if piece.is_empty() {
                break;
            }
            from += piece.len() as u64;
            if from > taken.part.sent_size {
                return Err(failed(format!(
                    "{host} sent more of the snapshot than the {} bytes it announced",
                    taken.part.sent_size
                )));
            }
            sum.update(&piece);
            file.write_all(&piece).map_err(explain("write", &content))?;
            self.sink.emit(Event::Moved { step: index, done: from, total: taken.part.sent_size });
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(sum.finish().as_ref());
        if from != taken.part.sent_size || Digest::new(digest) != taken.part.sent_digest {
            return Err(failed(format!("the snapshot arrived from {host} damaged: run the same command again")));
        }
        file.sync_all().map_err(explain("write", &content))?;
        let fresh = note.with_extension("new");
        let text = serde_json::to_vec(&taken).map_err(|error| failed(error.to_string()))?;
        let mut file = create(&fresh)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(explain("write", &fresh))?;
        fs::rename(&fresh, &note).map_err(explain("put in place", &note))?;
        File::open(folder).and_then(|dir| dir.sync_all()).map_err(explain("write", folder))
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
        let taken = taken(&self.recoveries, &recovery.id).ok_or_else(missing)?;
        let (_, content) = files(&self.recoveries, &recovery.id);
        self.feed(index, host, Op::Deliver(taken.part.clone()), Feed::Blob(content), patience).await?;
        let ask = RestoreAsk {
            data_dir,
            part: taken.part,
            token: recovery.id.clone(),
            name: host.to_string(),
            members: recovery.members.iter().map(|(name, peer)| (name.to_string(), peer.clone())).collect(),
            base: recovery.base,
        };
        self.call(index, host, Op::Restore(Box::new(ask)), patience).await.map(drop)
    }
}
