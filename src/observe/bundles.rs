//! Checks that a recovery is possible: this cluster has a recent snapshot, and every host takes its own.

use super::drills::{self, Trouble};
use crate::model::authentic::Authenticity;
use crate::model::check::{Check, Outcome, check as named};
use crate::model::desired::{Desired, Role};
use crate::model::duration::{human_duration, seconds};
use crate::model::facts::{ETCD_UNIT, Etcd, Facts, HostFacts};
use crate::model::names::HostName;
use crate::model::snapshot::{BundleFact, LEADER_WAITS, STALE_AFTER};
use crate::model::timestamp::is_ahead;

/// The check's name.
pub const BUNDLES: &str = "snapshots";
const HINT: &str = "on the host: journalctl -u hactl-snapshot; one now: hactl snapshot take";
const OF_ONE: &str = "on the host: journalctl -u hactl-snapshot; one now: hactl snapshot take --host HOST";
const TIMER: &str = "hactl-snapshot.timer";

/// The check; none without quorum.
pub fn check(desired: &Desired, facts: &Facts) -> Option<Check> {
    if !matches!(facts.etcd, Etcd::HasQuorum(_)) {
        return None;
    }
    let say = |outcome, host: Option<&HostName>, detail: String| {
        Some(named(BUNDLES, host, outcome, detail, (outcome >= Outcome::Warn).then_some(HINT)))
    };
    let hosts: Vec<(&HostName, &HostFacts)> =
        desired.with(Role::Etcd).filter_map(|h| Some((&h.name, facts.host(&h.name)?))).collect();
    for (host, fact) in &hosts {
        if let Some((at, what)) = fact.bundles.as_ref().and_then(|b| b.trouble.as_ref()) {
            let since = human_duration(fact.now_ms.saturating_sub(*at));
            return say(Outcome::Fail, Some(host), format!("the last attempt failed {since} ago: {what}"));
        }
        if let Some(damaged) = fact.bundles.as_ref().and_then(|b| b.damaged.first()) {
            return say(Outcome::Fail, Some(host), damaged.clone());
        }
        let forged = |bundle: &BundleFact| match &bundle.authenticity {
            Authenticity::Forged(why) => Some(format!("{} is forged: {why}", bundle.name)),
            _ => None,
        };
        if let Some(forged) = fact.bundles.as_ref().and_then(|b| b.bundles.iter().find_map(forged)) {
            let hint = Some("remove it, and find out which users can write there: hactl snapshot list");
            return Some(named(BUNDLES, Some(host), Outcome::Fail, forged, hint));
        }
    }
    let fails = |(host, detail, hint): Trouble<'_>| {
        named(BUNDLES, Some(host), Outcome::Fail, detail, Some(&hint.replace("HOST", host.as_str())))
    };
    if let Some(failed) = drills::failed(desired, &hosts) {
        return Some(fails(failed));
    }
    for (host, fact) in &hosts {
        let newest = fact.bundles.as_ref().and_then(|b| b.bundles.first());
        if newest.is_some_and(|bundle| is_ahead(bundle.taken_ms, fact.now_ms)) {
            let detail = "its newest is dated in the future: its clock was wrong then, or is now".to_owned();
            return say(Outcome::Fail, Some(host), detail);
        }
    }
    let every_ms = i64::try_from(desired.snapshots.every_s).unwrap_or(i64::MAX).saturating_mul(1000);
    let stale_ms = every_ms.saturating_mul(STALE_AFTER);
    let started = |fact: &HostFacts| {
        let (_, timer) = fact.units.iter().find(|(unit, _)| unit.as_str() == TIMER)?;
        (timer.started_ms > 0).then(|| fact.now_ms.saturating_sub(timer.started_ms))
    };
    let member_runs_for = |fact: &HostFacts| {
        let etcd = fact.units.iter().find(|(unit, _)| unit.as_str() == ETCD_UNIT);
        etcd.map_or(i64::MAX, |(_, etcd)| fact.now_ms.saturating_sub(etcd.started_ms))
    };
    // Each host is checked, because the snapshots of one must not hide that another takes none. A leader waits for this
    // many intervals before it takes a snapshot.
    let own_ms = every_ms.saturating_mul(STALE_AFTER + LEADER_WAITS);
    for (host, fact) in &hosts {
        let Some(found) = fact.bundles.as_ref().filter(|_| started(fact).is_some_and(|waited| waited > own_ms)) else {
            continue;
        };
        let detail = match found.bundles.first().map(|newest| fact.now_ms.saturating_sub(newest.taken_ms)) {
            Some(age) if age <= own_ms => continue,
            Some(age) => format!("its timer runs, but its newest is {} old", human_duration(age)),
            // On a host that stood by until lately, the timer ran in vain before the member started.
            None if member_runs_for(fact) <= own_ms => continue,
            None => "its timer runs, but it has taken none".to_owned(),
        };
        return Some(fails((host, detail, OF_ONE)));
    }
    // The age of a host's snapshots is computed with that host's clock.
    let ages =
        hosts.iter().filter_map(|(_, f)| Some(f.now_ms.saturating_sub(f.bundles.as_ref()?.bundles.first()?.taken_ms)));
    let waited = hosts.iter().filter_map(|(_, f)| started(f));
    match (ages.min(), waited.max()) {
        (Some(age), _) if age <= stale_ms => {
            if let Some(overdue) = drills::overdue(desired, &hosts) {
                return Some(fails(overdue));
            }
            let restores = hosts.iter().filter_map(|(_, f)| f.bundles.as_ref()?.bundles.first());
            let restores = restores.max_by_key(|b| b.taken_ms).map_or(0, |b| b.proof.restored_ms);
            let (age, restores, drills) = (human_duration(age), seconds(restores), drills::stated(desired, &hosts));
            let detail = format!("the newest is {age} old; a restore of it was verified in {restores}; {drills}");
            say(Outcome::Pass, None, detail)
        }
        (Some(age), _) => say(Outcome::Fail, None, format!("the newest is {} old", human_duration(age))),
        (None, Some(waited)) if waited <= stale_ms => {
            say(Outcome::Skip, None, "none yet; the hosts take the first one soon".to_owned())
        }
        (None, Some(_)) => say(Outcome::Fail, None, "there is none".to_owned()),
        (None, None) => say(Outcome::Fail, None, "there is none, and no host takes any".to_owned()),
    }
}
