//! Checks where copies of snapshots are: on the other etcd hosts, and outside the cluster.
//!
//! In: the desired state, and what hosts report of the snapshots of others. Out: one check. A host's snapshots are dated
//! by its own clock, and so are their copies elsewhere: the two are compared, whatever the clock says.

use crate::model::check::{Check, Outcome, check as named};
use crate::model::desired::{Desired, Role};
use crate::model::duration::human_duration;
use crate::model::facts::{Etcd, Facts, HostFacts};
use crate::model::healing::{UNIT, keeps_peer_snapshots};
use crate::model::names::HostName;
use crate::model::snapshot::STALE_AFTER;

/// The check's name.
pub const COPIES: &str = "copies of snapshots";
const HINT: &str = "on the host: journalctl -u hactl-peer-snapshots; to copy now: systemctl start hactl-peer-snapshots";

/// The check; none without quorum.
pub fn check(desired: &Desired, facts: &Facts) -> Option<Check> {
    if !matches!(facts.etcd, Etcd::HasQuorum(_)) {
        return None;
    }
    let hosts: Vec<(&HostName, &HostFacts)> =
        desired.with(Role::Etcd).filter_map(|host| Some((&host.name, facts.host(&host.name)?))).collect();
    let keepers = hosts.iter().filter(|(name, _)| desired.host(name).is_some_and(|h| keeps_peer_snapshots(desired, h)));
    let mut keepers = keepers.peekable();
    let among = match (keepers.peek(), desired.may_vote().count()) {
        (Some(_), _) => "the etcd hosts keep the newest of one another",
        (None, 1) => "there is one etcd host",
        (None, _) => "etcd hosts keep the newest of one another with `healing: on`",
    };
    for (host, fact) in keepers {
        if let Some(detail) = behind(desired, &hosts, host, fact) {
            return Some(named(COPIES, Some(host), Outcome::Warn, detail, Some(HINT)));
        }
    }
    let places: Vec<String> = desired.snapshots.to.iter().map(ToString::to_string).collect();
    let away = if places.is_empty() {
        "no copy leaves the cluster, because `snapshots.to` names no place".to_owned()
    } else {
        format!("copies go to {}", places.join(", "))
    };
    Some(named(COPIES, None, Outcome::Pass, format!("{among}; {away}"), None))
}

/// Of which other host this one should have a newer copy, and why it has none.
fn behind(desired: &Desired, hosts: &[(&HostName, &HostFacts)], host: &HostName, fact: &HostFacts) -> Option<String> {
    let every_ms = i64::try_from(desired.snapshots.every_s).unwrap_or(i64::MAX).saturating_mul(1000);
    let stale_ms = every_ms.saturating_mul(STALE_AFTER);
    let guard = fact.units.iter().find(|(unit, _)| unit.as_str() == UNIT).map(|(_, guard)| guard.started_ms);
    // A guard that started lately may have had no turn yet.
    guard.filter(|since| *since > 0 && fact.now_ms.saturating_sub(*since) > stale_ms)?;
    let kept = &fact.bundles.as_ref()?.peers;
    hosts.iter().filter(|(other, _)| *other != host).find_map(|(other, of)| {
        let own = &of.bundles.as_ref()?.bundles;
        let authority = own.first()?.authority;
        let old = |taken_ms: &i64| of.now_ms.saturating_sub(*taken_ms) > stale_ms;
        let own = own.iter().filter(|bundle| bundle.authority == authority).map(|bundle| bundle.taken_ms);
        let due = own.filter(old).max()?;
        let copy = kept.get(*other);
        let newest = copy.and_then(|copy| copy.taken_ms);
        if newest >= Some(due) {
            return None;
        }
        let has = match newest {
            Some(at) => format!("its newest copy from {other} is {} old", human_duration(of.now_ms.saturating_sub(at))),
            None => format!("it has no copy of a snapshot of {other}"),
        };
        Some(match copy.and_then(|copy| copy.trouble.as_ref()) {
            Some((_, why)) => format!("{has}: {why}"),
            None => has,
        })
    })
}
