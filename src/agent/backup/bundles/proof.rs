//! Proves that a snapshot can be restored and served, by doing it.
//!
//! In: the file of a snapshot and a directory of root. Out: a [`Proof`], or a fault that names the failed step.
//! Nothing live is touched: the etcd that serves it runs as etcd's user and listens on sockets inside a directory of
//! its own, which no other user can enter.

use crate::agent::etcd::member::OWNER;
use crate::agent::etcd::scratch::{self, ETCDUTL, ScratchEtcd};
use crate::agent::host::Host;
use crate::agent::machine::run::{blocking, run_as};
use crate::agent::machine::tree::Tree;
use crate::agent::op_error::{Outcome, failed, fault};
use crate::model::snapshot::Proof;
use crate::protocol::OpErrorKind;
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The path of the database in a data directory.
const STORE: &[&str] = &["member", "snap"];
const NAME: &str = "proof";
/// How long each may take: the timer has a twentieth of a processor, and gigabytes are read completely and indexed
/// again.
const RESTORE: Duration = Duration::from_secs(2400);
const SERVE: Duration = Duration::from_secs(2400);
const COUNT: Duration = Duration::from_secs(2400);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often the database is synced while it is written, so that little is left for the end: the live member syncs
/// its log, too, and waits for all earlier writes of the disk.
const SYNC_EVERY: Duration = Duration::from_millis(50);

/// Of `etcdutl snapshot status -w json`.
#[derive(Deserialize)]
struct Status {
    revision: i64,
    #[serde(rename = "totalKey")]
    keys: u64,
}

/// The result, and the compact revision when the hash was made.
pub(super) struct Proven {
    pub proof: Proof,
    pub compacted: i64,
}

/// Does `work`, and syncs the database that it writes meanwhile. Its writer syncs it at the end and reports failures.
async fn while_written<T>(at: &Arc<Tree>, work: impl Future<Output = T>) -> T {
    let syncing = async {
        loop {
            sleep(SYNC_EVERY).await;
            let at = at.clone();
            let _ = blocking(move || Ok(at.below(STORE)?.file("db")?.map(|store| store.sync_data()))).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = syncing => unreachable!("it never ends"),
    }
}

/// Restores it, serves it, counts its keys; `revision` is that of its database.
pub(super) async fn prove(host: &Host, snapshot: &Path, revision: i64, work: &Path) -> Outcome<Proven> {
    let owner = host.root.owner(OWNER)?;
    let restored = Arc::new(Tree::there(work)?.fresh("restored")?);
    host.waits("the snapshot to be restored for proof");
    let begun = Instant::now();
    let more = [
        "--name=proof",
        "--initial-cluster=proof=http://localhost:2380",
        "--initial-cluster-token=proof",
        "--initial-advertise-peer-urls=http://localhost:2380",
    ];
    while_written(&restored, scratch::restored(owner, snapshot, &restored, &more, RESTORE)).await?;
    host.waits("the restored etcd to answer");
    let mut etcd = ScratchEtcd::start(&restored, owner, NAME, &[])?;
    let until = Instant::now() + SERVE;
    while !etcd.answers().await {
        etcd.runs()?;
        if Instant::now() > until {
            return Err(etcd.fault(format!("the restored etcd did not answer within {SERVE:?}")));
        }
        sleep(LOOK_AGAIN).await;
    }
    let restored_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    host.waits("the restored keys to be counted");
    // From the process: `etcdutl hashkv` crashes on keys with leases, because it has nothing to attach them to.
    let (hash, compacted) = etcd.hash(revision).await?;
    etcd.stop().await?;
    let argv = [ETCDUTL, "snapshot", "status", "member/snap/db", "-w", "json"];
    let ran = run_as(owner, &restored, &argv, Stdio::null(), COUNT).await?;
    let status = if ran.ok() { ran.out } else { return Err(ran.fault("etcdutl snapshot status")) };
    let status: Status = serde_json::from_str(status.trim())
        .map_err(|_| failed(format!("the output of etcdutl snapshot status is not as expected: {status:.200}")))?;
    if status.revision != revision {
        let what = format!("the snapshot has revision {revision}, but the restored one has {}", status.revision);
        return Err(fault(OpErrorKind::Corrupt, what));
    }
    Ok(Proven { proof: Proof { keys: status.keys, hash, restored_ms }, compacted })
}
