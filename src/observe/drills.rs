//! Drills: the last ones that restored a snapshot, with the owners' identity or by a host, and those that failed.
//!
//! In: the hosts' reports on their snapshots. Out: text for the check of snapshots. A drill with the owners' identity
//! proves more than a host's own: that this identity decrypts a snapshot, including the state with its keys, and that
//! the snapshot can be sent back to a host. So the two are reported separately.

use crate::model::desired::Desired;
use crate::model::drill::{OVERDUE_AFTER, OwnDrill, Period, Showed, TIMER};
use crate::model::duration::{human_duration, seconds};
use crate::model::facts::HostFacts;
use crate::model::names::HostName;
use crate::model::snapshot::{BundlesFact, Drill};
use crate::model::timestamp::is_ahead;

/// A problem: its host, the message, the hint.
pub(super) type Trouble<'a> = (&'a HostName, String, &'static str);

fn bundles(fact: &HostFacts) -> Option<&BundlesFact> {
    fact.bundles.as_ref()
}

/// The first host whose own drill failed.
pub(super) fn failed<'a>(desired: &Desired, hosts: &[(&'a HostName, &HostFacts)]) -> Option<Trouble<'a>> {
    desired.snapshots.drill?;
    hosts.iter().find_map(|(host, fact)| {
        let OwnDrill { at_ms, bundle, showed: Showed::Failed { what, damaged }, .. } =
            bundles(fact)?.own_drill.as_ref()?
        else {
            return None;
        };
        let ago = human_duration(fact.now_ms.saturating_sub(*at_ms));
        let named = if what.contains(bundle.as_str()) { String::new() } else { format!("{bundle}: ") };
        Some(if *damaged {
            let means = "a recovery from this snapshot would fail";
            let detail = format!("its own drill failed {ago} ago: {named}{what}; {means}");
            let hint = "hactl snapshot take --host HOST; then, on the host: systemctl start hactl-drill. If it fails \
                        again, check the host's disk";
            (*host, detail, hint)
        } else {
            let means = "it is unknown whether its newest snapshot restores";
            let detail = format!("its own drill was aborted {ago} ago: {named}{what}; {means}");
            (*host, detail, "on the host: journalctl -u hactl-drill; to repeat it: systemctl start hactl-drill")
        })
    })
}

/// The first host whose drill is overdue.
pub(super) fn overdue<'a>(desired: &Desired, hosts: &[(&'a HostName, &HostFacts)]) -> Option<Trouble<'a>> {
    let period = desired.snapshots.drill?;
    hosts.iter().find_map(|(host, fact)| {
        let waits = fact.now_ms.saturating_sub(last_turn(fact)?);
        if waits <= period.ms() * OVERDUE_AFTER {
            return None;
        }
        let before = matches!(bundles(fact)?.own_drill, Some(OwnDrill { showed: Showed::SealedBefore, .. }));
        let why = if before { "; its newest snapshot is older than its identity for drills" } else { "" };
        let each = if period == Period::Daily { "day" } else { "week" };
        let detail = format!("it has run no drill for {}, but should run one every {each}{why}", human_duration(waits));
        let hint = "on the host: systemctl list-timers hactl-drill.timer; to run one now: systemctl start hactl-drill";
        Some((*host, detail, hint))
    })
}

/// The start of the current period of a host, by its own clock: its last drill, the creation of its identity for
/// drills, or the start of its timer.
fn last_turn(fact: &HostFacts) -> Option<i64> {
    let found = bundles(fact)?;
    let held = found.own_drill.as_ref().filter(|drill| drill.showed != Showed::SealedBefore).map(|drill| drill.at_ms);
    let timer = fact.units.iter().find(|(unit, _)| unit.as_str() == TIMER).map(|(_, timer)| timer.started_ms);
    // A timestamp in the future comes from a wrong clock and is ignored.
    let stated = |ms: &i64| *ms > 0 && !is_ahead(*ms, fact.now_ms);
    [held, found.own_identity_ms, timer].into_iter().flatten().find(stated)
}

/// The drills in words: when they were, and their results.
pub(super) fn stated(desired: &Desired, hosts: &[(&HostName, &HostFacts)]) -> String {
    let by_owners = hosts.iter().filter_map(|(_, fact)| Some((fact.now_ms, bundles(fact)?.drill?)));
    let by_owners = match by_owners.max_by_key(|(_, drill)| drill.at_ms) {
        Some((now_ms, Drill { at_ms, proof })) => {
            let (ago, took) = (human_duration(now_ms.saturating_sub(at_ms)), seconds(proof.restored_ms));
            format!("the last drill with the owners' identity was {ago} ago: {took}, {} keys", grouped(proof.keys))
        }
        None => "no drill with the owners' identity yet: hactl recover --drill".to_owned(),
    };
    match desired.snapshots.drill {
        Some(period) => format!("{by_owners}; {}", by_themselves(period, hosts)),
        None => by_owners,
    }
}

/// The last complete drill of a host, and the times of those of the other hosts.
fn by_themselves(period: Period, hosts: &[(&HostName, &HostFacts)]) -> String {
    let (mut held, mut none) = (Vec::new(), Vec::new());
    for (host, fact) in hosts {
        match bundles(fact).and_then(|found| found.own_drill.as_ref()) {
            Some(OwnDrill { at_ms, taken_ms, showed: Showed::Restored(proof), .. }) => {
                let ago_ms = fact.now_ms.saturating_sub(*at_ms);
                let (ago, old) = (human_duration(ago_ms), human_duration(at_ms.saturating_sub(*taken_ms)));
                held.push((ago_ms, *host, proof, ago, old));
            }
            _ => none.push(host.as_str()),
        }
    }
    held.sort_by_key(|(ago_ms, ..)| *ago_ms);
    let mut held = held.into_iter();
    let Some((_, host, proof, ago, old)) = held.next() else {
        return format!("hosts restore theirs {} automatically, but none has yet", period.word());
    };
    let (took, keys) = (seconds(proof.restored_ms), grouped(proof.keys));
    let mut text = format!(
        "{host} automatically restored its newest snapshot {ago} ago: {took}, {keys} keys, {old} old at that time"
    );
    for (_, host, _, ago, _) in held {
        text.push_str(&format!("; {host} {ago} ago"));
    }
    if !none.is_empty() {
        text.push_str(&format!("; {} not yet", none.join(" and ")));
    }
    text
}

/// A count with spaces between groups of three digits.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
