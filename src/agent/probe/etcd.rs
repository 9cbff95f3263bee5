//! Probes of the etcd member: its process and its data, and the alarms that it knows.

use super::process::{self, Runs};
use super::{ANSWER, Found, Seen};
use crate::agent::etcd::member::access;
use crate::agent::etcd::positions::remembered;
use crate::agent::machine::root::Root;
use crate::agent::plain_http::{ETCD_METRICS, answers};
use crate::etcd;
use crate::model::facts::ETCD_UNIT;
use crate::model::fault::FaultKind;
use crate::model::healing::Policy;
use crate::protocol::EtcdAsk;

/// Whether its process runs and answers, and its data is there.
pub(super) async fn process(root: &Root, policy: &Policy) -> Seen {
    let runs = process::of(ETCD_UNIT);
    let folder = root.path(&policy.etcd_data_dir).ok()?.join("member");
    let mut found = Vec::new();
    if !folder.is_dir() && (runs != Runs::No || !remembered(root).is_empty()) {
        // A host whose member never started remembers no position.
        found.push(Found::new(FaultKind::EtcdDataLost, format!("{} does not exist", folder.display())));
    } else if runs == Runs::No && folder.is_dir() {
        found.push(Found::new(FaultKind::EtcdStopped, runs.words(ETCD_UNIT)));
    }
    if runs != Runs::No
        && let Err(why) = answers(ETCD_METRICS, "/livez", ANSWER).await
    {
        found.push(Found::new(FaultKind::EtcdFrozen, format!("{}, and {why}", runs.words(ETCD_UNIT))));
    }
    Some(found)
}

/// Whether the member serves linearizable reads, which takes a quorum that includes it.
pub async fn serves_reads() -> bool {
    answers(ETCD_METRICS, "/readyz/linearizable_read", ANSWER).await == Ok(200)
}

/// The alarms of the cluster that concern this host.
pub(super) async fn alarms(root: &Root, policy: &Policy) -> Seen {
    let access = access(root, &EtcdAsk::own(&policy.etcd_data_dir)).ok()?;
    let alarms = etcd::alarms(&access, ANSWER).await.ok()?;
    let mut found = Vec::new();
    if let Some(full) = alarms.iter().find(|alarm| alarm.name == "NOSPACE") {
        let why = format!("member {:x} has raised the alarm NOSPACE", full.member);
        found.push(Found::new(FaultKind::EtcdFull, why));
    }
    if alarms.iter().any(|alarm| alarm.name == "CORRUPT" && alarm.own) {
        found.push(Found::new(FaultKind::EtcdDiverged, "its member has raised the alarm CORRUPT"));
    }
    Some(found)
}
