//! etcd from the point of view of this host: the data on the disk, and the status of a running member.
//!
//! In: an [`EtcdAsk`]. Out: an [`EtcdFact`]. The data on the disk is reported whether or not a member answers.

use super::{peers, stuck};
use crate::agent::etcd::member::{BORN, GENESIS, access, read_mark};
use crate::agent::etcd::positions::remembered;
use crate::agent::etcd::recover::high_water;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::units;
use crate::agent::op_error::Outcome;
use crate::agent::plain_http::{ETCD_METRICS, answers};
use crate::etcd::disk::{self, CLOSED_WITHIN};
use crate::etcd::{Election, EtcdError, raw, view};
use crate::model::facts::EtcdFact;
use crate::model::recovery::is_aside;
use crate::model::units::etcd_unit;
use crate::protocol::EtcdAsk;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long the member may take; a member without quorum takes all of it.
const WITHIN: Duration = Duration::from_millis(1400);
/// How long a member may take that did not answer in that time.
const LONGER: Duration = Duration::from_secs(4);
/// The Secret that shows whether Secrets are encrypted, and the prefix of encrypted values.
const CANARY: &str = "/registry/secrets/kube-system/hactl-canary";
const CIPHERTEXT: &[u8] = b"k8s:enc:";
/// How many archived data directories are read, those written last.
const MOST_ASIDE: usize = 16;

/// Observes disk and member.
pub(super) async fn look(root: &Root, ask: &EtcdAsk, disk: bool) -> Outcome<EtcdFact> {
    let data = root.path(&ask.data_dir)?;
    let mut fact = EtcdFact {
        data: data.join("member").exists(),
        elsewhere: elsewhere(root, &ask.data_dir),
        token: read_mark(&data, GENESIS)?,
        bootstrapped: read_mark(&data, BORN)?,
        high_water: high_water(root)?,
        positions: remembered(root),
        ..EtcdFact::default()
    };
    let access = match access(root, ask) {
        Ok(access) => access,
        // Before the first certificate there are no credentials, and no member that would answer.
        Err(fault) => {
            let fact = EtcdFact { trouble: Some(fault.what), ..fact };
            return on_disk(data, fact, disk, Duration::ZERO).await;
        }
    };
    // With `disk`, the data must be read even if no member answers.
    let election = if disk { Election::NotAwaited } else { Election::Awaited };
    let seen = tokio::time::timeout(2 * WITHIN, Box::pin(view(&access, WITHIN, election)));
    let (seen, canary) = tokio::join!(seen, raw(&access, CANARY, WITHIN));
    // Read directly from etcd, because the API server would decrypt it.
    fact.secret_is_ciphertext = canary.ok().flatten().map(|value| value.starts_with(CIPHERTEXT));
    let silent = || EtcdError::Silent { doing: "report its status", within_ms: WITHIN.as_millis() };
    let mut seen = seen.unwrap_or_else(|_| Err(silent()));
    if matches!(seen, Err(EtcdError::Silent { .. })) {
        // Slow is not dead: it gets more time, and its process is probed.
        let again = tokio::time::timeout(LONGER, Box::pin(view(&access, LONGER, Election::NotAwaited)));
        let (again, lives) = tokio::join!(again, answers(ETCD_METRICS, "/livez", LONGER));
        fact.slow = lives.is_ok() && !matches!(again, Ok(Ok(_)));
        seen = again.unwrap_or_else(|_| Err(silent()));
    }
    // Only one that ends after each start closes its database by itself.
    let within = if seen.is_err() && ends(root).await { CLOSED_WITHIN } else { Duration::ZERO };
    match seen {
        Ok((view, quorum)) => {
            fact.view = Some(view);
            fact.trouble = quorum.map(|e| e.to_string());
        }
        Err(error) => fact.trouble = Some(error.to_string()),
    }
    // The data on the disk counts only if the member cannot speak for the cluster; reading it takes a while.
    let speaks = fact.view.as_ref().is_some_and(|view| view.linearizable);
    if speaks && root.is_host() {
        fact.peers = peers::connected().await;
    }
    if speaks && !disk {
        return Ok(fact);
    }
    fact = on_disk(data.clone(), fact, disk, within).await?;
    if let Some(found) = fact.disk.as_ref().filter(|_| !speaks && root.is_host()) {
        fact.stuck = stuck::stuck(&data, found).await;
    }
    Ok(fact)
}

/// Whether systemd has restarted the member since a run started it.
async fn ends(root: &Root) -> bool {
    root.is_host() && units::show_one(&etcd_unit()).await.is_ok_and(|shown| shown.restarts() > 0)
}

/// Adds the archived data; unreadable data is useless for a recovery.
async fn moved_aside(data: PathBuf, mut fact: EtcdFact) -> Outcome<EtcdFact> {
    fact.aside = blocking(move || {
        let Ok(entries) = std::fs::read_dir(&data) else { return Ok(BTreeMap::new()) };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_aside(name)).collect();
        let written =
            |name: &String| Reverse(data.join(name).join("snap/db").metadata().and_then(|f| f.modified()).ok());
        names.sort_by_key(written);
        names.truncate(MOST_ASIDE);
        let read = |name: String| Some((disk::member(&data.join(&name)).ok()?, name));
        Ok(names.into_iter().filter_map(read).map(|(found, name)| (name, found)).collect())
    })
    .await?;
    Ok(fact)
}

/// Adds the position of the data, if there is any. If no member answers, its process has this long to close the database.
async fn on_disk(data: PathBuf, mut fact: EtcdFact, disk: bool, within: Duration) -> Outcome<EtcdFact> {
    if disk {
        fact = moved_aside(data.clone(), fact).await?;
    }
    if !fact.data {
        return Ok(fact);
    }
    let answers = fact.view.is_some() || fact.slow;
    let look = move || if answers { (false, disk::read(&data)) } else { disk::read_closed(&data, within) };
    let (closed, read) = blocking(move || Ok(look())).await?;
    fact.closed = closed;
    match read {
        Ok(found) => fact.disk = Some(found),
        Err(error) => {
            let trouble = fact.trouble.take().map_or_else(String::new, |trouble| format!("{trouble}; "));
            fact.trouble = Some(format!("{trouble}{error}"));
        }
    }
    Ok(fact)
}

/// The settings of the member.
const SETTINGS: &str = "/etc/etcd/etcd.env";

/// The data directory of the member set up here, if it differs from the requested one.
fn elsewhere(root: &Root, wanted: &str) -> Option<String> {
    let settings = std::fs::read_to_string(root.own(SETTINGS)).ok()?;
    let named = settings.lines().rev().find_map(|line| line.strip_prefix("ETCD_DATA_DIR="))?.trim();
    let other = named.trim_end_matches('/') != wanted.trim_end_matches('/');
    let holds = || root.path(named).is_ok_and(|at| at.join("member").exists());
    (other && holds()).then(|| named.to_owned())
}
