//! When a guard switches the power of a host that gives no sign of life. Pure.
//!
//! In: the hosts that are silent, and the [`Situation`] of the own one. Out: whose power the own host switches, and
//! when. One that is off is switched on; one that is on may be booting, and is left alone until it counts as dead. What
//! is done is decided by the program that the guard starts, when it has the locks and the word of the others.

use super::local_repair::{BETWEEN_MS, DAY_MS, HOUR_MS, Situation, voters};
use crate::model::fault::Fault;
use crate::model::healing::Policy;
use crate::model::names::HostName;
use crate::model::repair::{Decision, Delay, Gate, LocalStep, RepairRecord, Runs, Switched};
use std::collections::BTreeSet;

/// The other guards come to the same conclusion within this time, milliseconds.
const AGREED_MS: i64 = 10_000;
/// For so long a host that stands by has the lock first, milliseconds.
const STANDBY_FIRST_MS: i64 = 120_000;

/// A host that gives no sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silent {
    /// The host.
    pub host: HostName,
    /// Since when, by the own clock, milliseconds since 1970.
    pub since_ms: i64,
    /// When it was first heard after a boot, milliseconds since 1970; 0: it has not booted since the guard watches.
    pub booted_ms: i64,
    /// Until when a person holds it, as its guard said last, milliseconds since 1970; 0: nobody does.
    pub held_until_ms: i64,
    /// What else may repair it.
    pub healer: Option<String>,
}

/// Whether the own host is the one that switches the power of another: the first that may vote and is heard. The own
/// one is among those that are heard.
pub fn is_due_here(policy: &Policy, own: &HostName, heard: &BTreeSet<HostName>, host: &HostName) -> bool {
    let may = |name: &HostName| heard.contains(name) && name != host;
    let first = policy.guards.iter().find(|guard| guard.may_vote() && may(&guard.name));
    policy.switchable(host).is_some() && first.is_some_and(|guard| &guard.name == own)
}

/// Whether an attempt may have changed the power of a host.
fn changed(record: &RepairRecord) -> bool {
    record.switched().is_some_and(Switched::may_have_changed)
}

/// Whether the power of a host is on by these attempts, so that it may be booting: none switches it within an hour.
pub fn was_switched<'a>(mut records: impl Iterator<Item = &'a RepairRecord>, host: &HostName, now_ms: i64) -> bool {
    records.any(|record| {
        let age_ms = now_ms.saturating_sub(record.begun_ms);
        let of_host = record.other() == Some(host);
        of_host && changed(record) && (0..HOUR_MS).contains(&age_ms)
    })
}

/// What the guard does about the power of a host.
pub(super) fn decide(fault: &Fault, situation: &Situation<'_>) -> Decision {
    let step = LocalStep::Power;
    let silent = situation.silent.iter().find(|silent| silent.host == fault.host);
    let Some(silent) = silent else { return Decision::Person };
    let held_back = |gate| Decision::HeldBack { step, gate };
    let now_ms = situation.now_ms;
    if situation.held || silent.held_until_ms > now_ms {
        return held_back(Gate::Hold);
    }
    if let Some(by) = silent.healer.clone() {
        return held_back(Gate::Foreign { by });
    }
    // The program runs, or a person does not want it to run.
    match situation.runs {
        Some(Runs::Since(_) | Runs::Changing) => return held_back(Gate::Underway),
        Some(Runs::Disabled) => return held_back(Gate::Disabled),
        Some(Runs::Absent) => return held_back(Gate::Absent),
        _ => {}
    }
    let later = |until_ms: i64, why| (until_ms > now_ms).then_some(Decision::Wait { step, until_ms, why });
    let of_host = |record: &&RepairRecord| {
        record.other() == Some(&fault.host) && record.begun_ms > situation.retry_ms && record.begun_ms <= now_ms
    };
    let attempts: Vec<&RepairRecord> = situation.records.iter().filter(of_host).collect();
    let since_ms = silent.since_ms.min(now_ms.saturating_sub(DAY_MS));
    let switched: Vec<_> = attempts.iter().filter(|record| record.begun_ms >= since_ms && changed(record)).collect();
    if switched.len() >= step.tries(fault.kind) {
        return Decision::GaveUp { step, tries: switched.len() };
    }
    // One that was switched off and not on again needs no rest.
    if let Some(last) = switched.last().filter(|record| record.switched().is_some_and(Switched::is_on))
        && let Some(wait) = later(last.begun_ms.saturating_add(HOUR_MS), Delay::Switched)
    {
        return wait;
    }
    let outage: Vec<_> = attempts.iter().filter(|record| record.begun_ms >= silent.since_ms).collect();
    if let Some(last) = outage.last() {
        // The first attempt that finds it on ends the haste.
        if last.switched() == Some(Switched::LeftOn)
            && let Some(wait) = later(dead_ms(silent, situation), Delay::Boot)
        {
            return wait;
        }
        let vain = outage.iter().rev().take_while(|record| !changed(record)).count().clamp(1, 7);
        let pause_ms = (BETWEEN_MS << (vain - 1)).min(HOUR_MS);
        if let Some(wait) = later(last.begun_ms.saturating_add(pause_ms), Delay::Attempts) {
            return wait;
        }
    }
    let others = situation.etcd.iter().filter(|(host, serves)| **serves && **host != fault.host).count();
    let needed = voters(situation) / 2 + 1;
    if others < needed { held_back(Gate::Quorum { others, needed }) } else { Decision::Act { step } }
}

/// When a host whose power is on may be switched off, milliseconds since 1970.
fn dead_ms(silent: &Silent, situation: &Situation<'_>) -> i64 {
    let policy = situation.policy;
    let first_ms = if policy.has_standby() { STANDBY_FIRST_MS } else { 0 };
    let dead_ms = i64::from(policy.healing.after.host_dead_s) * 1000 + AGREED_MS + first_ms;
    let rested_ms = if silent.booted_ms == 0 { 0 } else { silent.booted_ms.saturating_add(HOUR_MS) };
    silent.since_ms.saturating_add(dead_ms).max(rested_ms)
}

#[cfg(test)]
mod tests;
