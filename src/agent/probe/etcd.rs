//! Probes of the etcd member: its process and its data, and the alarms that it knows.

use super::process::{self, Runs};
use super::{ANSWER, Found, Seen};
use crate::agent::etcd::member::access;
use crate::agent::etcd::positions::remembered;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::units;
use crate::agent::plain_http::{ETCD_METRICS, answers};
use crate::etcd;
use crate::etcd::disk::{self, CLOSED_WITHIN};
use crate::model::facts::{CORRUPT, ETCD_UNIT, NOSPACE};
use crate::model::fault::FaultKind;
use crate::model::healing::Policy;
use crate::model::repair::Runs as How;
use crate::model::units::etcd_unit;
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

/// Whether the data of a member that systemd starts in vain can be read. A person who stopped etcd may be working on it.
pub(super) async fn data(root: &Root, policy: &Policy) -> Seen {
    if process::of(ETCD_UNIT) != Runs::No {
        // One that ends after each start runs for moments.
        return answers(ETCD_METRICS, "/livez", ANSWER).await.is_ok().then(Vec::new);
    }
    let folder = root.path(&policy.etcd_data_dir).ok()?;
    let runs = units::show_one(&etcd_unit()).await.ok()?.runs();
    if !folder.join("member").is_dir() || !matches!(runs, How::Changing | How::Failed) {
        return Some(vec![]);
    }
    let (closed, read) = blocking(move || Ok(disk::read_closed(&folder, CLOSED_WITHIN))).await.ok()?;
    let flaws = match read {
        _ if !closed => return None,
        Ok(fact) if fact.is_usable() => return Some(vec![]),
        Ok(fact) => fact.flaws.join("; "),
        Err(error) => error.to_string(),
    };
    Some(vec![Found::new(FaultKind::EtcdDamaged, flaws)])
}

/// Whether the member serves linearizable reads, which takes a quorum that includes it.
pub async fn serves_reads() -> bool {
    answers(ETCD_METRICS, "/readyz/linearizable_read", ANSWER).await == Ok(200)
}

/// The alarms of the own member. While one of them is set, no member accepts writes.
pub(super) async fn alarms(root: &Root, policy: &Policy) -> Seen {
    let access = access(root, &EtcdAsk::own(&policy.etcd_data_dir)).ok()?;
    let alarms = etcd::alarms(&access, ANSWER).await.ok()?;
    let found = [(FaultKind::EtcdFull, NOSPACE), (FaultKind::EtcdDiverged, CORRUPT)];
    let raised = found.into_iter().filter(|(_, name)| alarms.iter().any(|alarm| alarm.own && alarm.name == *name));
    Some(raised.map(|(kind, name)| Found::new(kind, format!("its member has raised the alarm {name}"))).collect())
}
