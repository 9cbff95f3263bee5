//! The steps of a recovery that transfer data: fetches the snapshot from the host that took it, and sends it to all
//! hosts that are restored from it.
//!
//! In: the recovery. Out: a verified, encrypted snapshot among the [`Recoveries`](crate::execute::Recoveries), and
//! restored hosts. A host that is restored from its own data needs no snapshot.

use crate::execute::act::{Doing, failed, unexpected};
use crate::execute::walk::StepError;
use crate::model::blob::SnapshotBlob;
use crate::model::digester::Digester;
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::model::recovery::Recovery;
use crate::protocol::{Op, Reply, RestoreAsk, RestoreFrom, SNAPSHOT_PIECE, SnapshotAsk, SnapshotUse};
use crate::snapshot::check_room;
use crate::transport::transfer_within;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use std::io::{self, Write as _};
use std::path::Path;
use tokio::time::{Instant, timeout_at};

/// Pieces of a snapshot in transit at once: one is read on the host while the other is written here.
const AT_ONCE: usize = 2;
#[allow(clippy::cast_possible_truncation, reason = "some megabytes")]
const STEP: usize = SNAPSHOT_PIECE as usize;

fn explain<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StepError + 'a {
    move |error| failed(format!("could not {doing} {}: {error}", path.display()))
}

impl Doing<'_> {
    /// Takes the snapshot on the host and fetches it. Its note is written last; [`Doing::restore`] syncs both to the
    /// disk.
    pub(super) async fn take_snapshot(&self, host: &HostName, ask: SnapshotAsk) -> Result<(), StepError> {
        let folder = self.recoveries.path();
        let recovery = ask.recovery.clone();
        let reply = self.call(host, Op::TakeSnapshot(ask)).await?;
        let Reply::Taken(taken) = reply else { return Err(unexpected(&reply)) };
        check_room(folder, taken.sent_size).map_err(explain("write into", folder))?;
        let mut file = Digester::new(self.recoveries.begin(&recovery).map_err(explain("write into", folder))?);
        let within = transfer_within(taken.sent_size);
        let until = Instant::now() + within;
        let id = recovery.as_str();
        let read = |from| async move {
            let op = Op::ReadSnapshot { recovery: id.to_owned(), from };
            let slow = |_| failed(format!("{host} has not sent the snapshot within {} min", within.as_secs() / 60));
            match timeout_at(until, self.call(host, op)).await.map_err(slow)?? {
                Reply::Bytes(text) => Ok((from, text)),
                other => Err(unexpected(&other)),
            }
        };
        let mut pieces = futures::stream::iter((0..taken.sent_size).step_by(STEP)).map(read).buffered(AT_ONCE);
        while let Some(piece) = pieces.next().await {
            let (from, text) = piece?;
            let piece = STANDARD.decode(text).map_err(|_| failed(format!("{host} sent invalid base64")))?;
            let expected = SNAPSHOT_PIECE.min(taken.sent_size - from);
            if piece.len() as u64 != expected {
                let (has, all) = (piece.len(), taken.sent_size);
                let what =
                    format!("{host} sent {has} bytes of the snapshot's {all} at offset {from}, instead of {expected}");
                return Err(failed(what));
            }
            file.write_all(&piece).map_err(explain("write into", folder))?;
            self.sink.emit(Event::Moved { step: self.index, done: file.count(), total: taken.sent_size });
        }
        // A read at the end confirms that all of it has arrived: the host deletes its file.
        read(taken.sent_size).await?;
        let (file, digest, _) = file.finish();
        file.finish().map_err(explain("write into", folder))?;
        if digest != taken.sent_digest {
            return Err(failed(format!("the snapshot from {host} was damaged in transit: run the same command again")));
        }
        self.recoveries.note(&recovery, &taken).map_err(explain("write a note in", folder))
    }

    /// Delivers the snapshot and replaces the member's data with it; or replaces it by its own, as that of a new cluster.
    pub(super) async fn restore(
        &self,
        host: &HostName,
        recovery: &Recovery,
        data_dir: String,
    ) -> Result<(), StepError> {
        let from = if recovery.is_local() {
            RestoreFrom::Own { reach: recovery.reach }
        } else {
            RestoreFrom::Snapshot(self.deliver_snapshot(host, &recovery.id).await?)
        };
        let ask = RestoreAsk {
            data_dir,
            from,
            token: recovery.id.clone(),
            name: host.to_string(),
            members: recovery.members.iter().map(|(name, peer)| (name.to_string(), peer.clone())).collect(),
            base: recovery.base,
        };
        self.call(host, Op::Restore(Box::new(ask))).await.map(drop)
    }

    /// Sends the snapshot of a recovery to a host.
    async fn deliver_snapshot(&self, host: &HostName, id: &str) -> Result<SnapshotBlob, StepError> {
        let folder = self.recoveries.path();
        let missing = || failed(format!("the snapshot of recovery {id} is not in {}", folder.display()));
        let taken = self.recoveries.noted(id).map_err(explain("read", folder))?.ok_or_else(missing)?;
        let payload =
            self.recoveries.payload(id, &taken).map_err(explain("open a file in", folder))?.ok_or_else(missing)?;
        // The source host has the only other copy, until its own data is replaced.
        let syncing = async {
            let (recoveries, id) = (self.recoveries.clone(), id.to_owned());
            let sync = || async move {
                let synced = tokio::task::spawn_blocking(move || recoveries.sync(&id)).await;
                let synced = synced.map_err(|error| failed(format!("hactl itself failed: {error}")))?;
                synced.map_err(explain("write into", folder))
            };
            self.synced.get_or_try_init(sync).await
        };
        let deliver = Op::DeliverSnapshot { snapshot: taken, to: SnapshotUse::Recovery };
        let delivering = self.call_with(host, deliver, payload);
        tokio::try_join!(delivering, syncing)?;
        Ok(taken)
    }
}
