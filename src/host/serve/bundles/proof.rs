//! Whether a snapshot can be restored and served, found out by doing it.
//!
//! In: a snapshot's file and a folder of root's alone. Out: a [`Proof`], or a fault that says which step did not work. Nothing live is
//! touched: the etcd that serves it listens on sockets inside the folder.

use super::super::Host;
use super::super::alone::Alone;
use super::super::fault::{Outcome, failed, fault};
use super::super::run::{must, run};
use crate::host::op::FaultKind;
use crate::model::snapshot::Proof;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const ETCDUTL: &str = "/usr/local/bin/etcdutl";
const NAME: &str = "proof";
const RESTORE: Duration = Duration::from_secs(600);
/// Its index is built anew while it starts.
const SERVE: Duration = Duration::from_secs(300);
const COUNT: Duration = Duration::from_secs(300);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

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

/// Restores it, serves it, counts it; `revision` is what its store says.
pub(super) async fn prove(host: &Host, snapshot: &Path, revision: i64, work: &Path) -> Outcome<Proven> {
    let restored = work.join("restored");
    let (from, to) = (snapshot.display().to_string(), restored.display().to_string());
    host.waits("the snapshot to be restored for proof");
    let begun = Instant::now();
    let argv = [
        ETCDUTL,
        "snapshot",
        "restore",
        &from,
        &format!("--name={NAME}"),
        &format!("--initial-cluster={NAME}=http://localhost:2380"),
        &format!("--initial-cluster-token={NAME}"),
        "--initial-advertise-peer-urls=http://localhost:2380",
        &format!("--data-dir={to}"),
    ];
    let ran = run(&argv, RESTORE).await?;
    if !ran.ok() {
        return Err(ran.fault("etcdutl snapshot restore"));
    }
    host.waits("the restored etcd to answer");
    let mut etcd = Alone::start(&restored, NAME, &[])?;
    while !etcd.answers().await {
        etcd.runs()?;
        if begun.elapsed() > SERVE {
            return Err(etcd.fault(format!("the restored etcd did not answer within {SERVE:?}")));
        }
        sleep(LOOK_AGAIN).await;
    }
    let restored_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    host.waits("the restored keys to be counted");
    // Asked of the process: `etcdutl hashkv` falls over keys with leases, for it has nobody to attach them to.
    let (hash, compacted) = etcd.hash(revision).await?;
    etcd.stop().await?;
    let store = restored.join("member/snap/db").display().to_string();
    let status = must(&[ETCDUTL, "snapshot", "status", &store, "-w", "json"], COUNT).await?;
    let status: Status = serde_json::from_str(status.trim())
        .map_err(|_| failed(format!("etcdutl snapshot status said something else than it should: {status:.200}")))?;
    if status.revision != revision {
        let what = format!("the snapshot is of revision {revision}, and restored it is of {}", status.revision);
        return Err(fault(FaultKind::Corrupt, what));
    }
    Ok(Proven { proof: Proof { keys: status.keys, hash, restored_ms }, compacted })
}
