//! Whether a snapshot can be restored and served, found out by doing it.
//!
//! In: a snapshot's file and a folder of root's alone. Out: a [`Proof`], or a fault that says which step did not work. Nothing live is
//! touched: the etcd that serves it runs as etcd and listens on sockets inside a folder of its own, which nobody else gets at.

use crate::agent::Host;
use crate::agent::etcd::member::OWNER;
use crate::agent::etcd::scratch::{self, ETCDUTL, ScratchEtcd};
use crate::agent::fault::{Outcome, failed, fault};
use crate::agent::machine::run::{blocking, run_as};
use crate::agent::machine::tree::Tree;
use crate::model::snapshot::Proof;
use crate::protocol::FaultKind;
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Where the store is in a data directory.
const STORE: &[&str] = &["member", "snap"];
const NAME: &str = "proof";
/// How long each may take: the timer has a twentieth of a processor, and gigabytes are read whole and their index is built anew.
const RESTORE: Duration = Duration::from_secs(2400);
const SERVE: Duration = Duration::from_secs(2400);
const COUNT: Duration = Duration::from_secs(2400);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often the store is synced while it is written, so that little is left to its end: the member beside it syncs its log, too, and waits
/// for whatever the disk has been given before.
const SYNC_EVERY: Duration = Duration::from_millis(50);

/// Of `etcdutl snapshot status -w json`.
#[derive(Deserialize)]
struct Status {
    revision: i64,
    #[serde(rename = "totalKey")]
    keys: u64,
}

/// What was found out, and up to which revision the keys were compacted when the hash was made.
pub(super) struct Proven {
    pub proof: Proof,
    pub compacted: i64,
}

/// Does `work`, and syncs the store that it writes meanwhile. Whether that can be synced is its writer's concern, who does it at the end.
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
        () = syncing => unreachable!("it never ends by itself"),
    }
}

/// Restores it, serves it, counts it; `revision` is what its store says.
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
    // Asked of the process: `etcdutl hashkv` falls over keys with leases, for it has nobody to attach them to.
    let (hash, compacted) = etcd.hash(revision).await?;
    etcd.stop().await?;
    let argv = [ETCDUTL, "snapshot", "status", "member/snap/db", "-w", "json"];
    let ran = run_as(owner, &restored, &argv, Stdio::null(), COUNT).await?;
    let status = if ran.ok() { ran.out } else { return Err(ran.fault("etcdutl snapshot status")) };
    let status: Status = serde_json::from_str(status.trim())
        .map_err(|_| failed(format!("etcdutl snapshot status said something else than it should: {status:.200}")))?;
    if status.revision != revision {
        let what = format!("the snapshot is of revision {revision}, and restored it is of {}", status.revision);
        return Err(fault(FaultKind::Corrupt, what));
    }
    Ok(Proven { proof: Proof { keys: status.keys, hash, restored_ms }, compacted })
}
