//! Probes of the etcd member: its process and its data, and the alarms that it knows.

use super::process::{self, Runs};
use super::{ANSWER, Found, Seen};
use crate::agent::etcd::member::{access, access_at};
use crate::agent::etcd::positions::remembered;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::units;
use crate::agent::plain_http::{ETCD_METRICS, answers};
use crate::etcd::disk::{self, CLOSED_WITHIN};
use crate::etcd::{self, Access, Election};
use crate::model::facts::{CORRUPT, ETCD_UNIT, EtcdView, NOSPACE};
use crate::model::fault::FaultKind;
use crate::model::healing::{GuardedHost, Policy};
use crate::model::names::PeerUrl;
use crate::model::positions::Position;
use crate::model::repair::Runs as How;
use crate::model::units::etcd_unit;
use crate::protocol::{EtcdAsk, OpErrorKind};
use futures::future::join_all;
use std::time::Duration;

/// Exists while systemd starts etcd at boot: it was enabled when its member got a vote.
const AT_BOOT: &str = "/etc/systemd/system/multi-user.target.wants/etcd.service";
/// Answers 200 if no alarm is raised on any member and there is a leader: without TLS, which each time would be much of
/// what a guard costs.
const HEALTH: &str = "/health?serializable=true";
/// Hashing takes about a second for each GiB.
const HASHED_WITHIN: Duration = Duration::from_secs(20);

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

/// Whether the data of a member that does not run may be used and, if systemd starts it in vain, can be read. A person
/// who stopped etcd may be working on it.
pub(super) async fn data(root: &Root, policy: &Policy) -> Seen {
    if process::of(ETCD_UNIT) != Runs::No {
        // One that ends after each start runs for moments.
        return answers(ETCD_METRICS, "/livez", ANSWER).await.is_ok().then(Vec::new);
    }
    let folder = root.path(&policy.etcd_data_dir).ok()?;
    let shown = units::show_one(&etcd_unit()).await.ok()?;
    if shown.is_fenced() {
        // The fence says why on the last line.
        let said = units::blame(&etcd_unit(), OpErrorKind::Failed, "was not started").await;
        let why = said.tail.last().cloned().unwrap_or(said.what);
        return Some(vec![Found::new(FaultKind::EtcdFenced, why)]);
    }
    if !folder.join("member").is_dir() || !matches!(shown.runs(), How::Changing | How::Failed) {
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

/// Whether the other members that serve linearizable reads list the own one as a voter. A member that was removed ends
/// after each start.
pub async fn vote(own: &GuardedHost, serving: &[(&GuardedHost, EtcdView)]) -> Seen {
    let peer = PeerUrl::of(own.address);
    let entry = |(guard, view): &(&GuardedHost, EtcdView)| {
        let entry = view.members.iter().find(|(.., url, _)| *url == peer).map(|(.., learner)| *learner);
        (guard.name.to_string(), entry)
    };
    let seen = judged(serving.iter().map(entry).collect())?;
    // A person who disabled etcd keeps the host out.
    let out = seen.is_empty() || units::show_one(&etcd_unit()).await.ok()?.runs() == How::Disabled;
    Some(if out { vec![] } else { seen })
}

/// How far the data of this host goes: by its member, if that runs, otherwise by the log on its disk.
pub async fn position(root: &Root, policy: &Policy) -> Option<Position> {
    let access = access(root, &EtcdAsk::own(&policy.etcd_data_dir)).ok()?;
    if let Ok((view, _)) = Box::pin(etcd::view(&access, ANSWER, Election::NotAwaited)).await {
        let EtcdView { cluster, member, term, applied: index, .. } = view;
        return Some(Position { cluster, member, term, index });
    }
    // The log of a member that runs grows while it is read.
    if process::of(ETCD_UNIT) != Runs::No {
        return None;
    }
    let folder = root.path(&policy.etcd_data_dir).ok()?;
    let disk = blocking(move || Ok(disk::read(&folder))).await.ok()?.ok()?;
    let (term, index) = disk.reach();
    Some(Position { cluster: disk.cluster, member: disk.member, term, index })
}

/// Whether etcd should run here: on each host with the role; if votes move, on those that have one.
pub fn is_wanted(root: &Root, policy: &Policy, own: &GuardedHost) -> bool {
    own.has_etcd() && !policy.has_standby() || root.own(AT_BOOT).symlink_metadata().is_ok()
}

/// What is wrong with the entry of a member, by the lists of others: whether it is a learner; `None`: it has none. What
/// one member says alone tells nothing, unless it is that this one votes.
fn judged(entries: Vec<(String, Option<bool>)>) -> Seen {
    let (by, entries): (Vec<String>, Vec<Option<bool>>) = entries.into_iter().unzip();
    if entries.contains(&Some(false)) {
        return Some(vec![]);
    }
    let first = entries.first().filter(|first| entries.len() > 1 && entries.iter().all(|other| other == *first))?;
    let what = match first {
        Some(_) => "is still a learner",
        None => "is not",
    };
    let why = format!("it {what} in the member list of {}", by.join(" and "));
    Some(vec![Found::new(FaultKind::EtcdNotVoting, why)])
}

/// Whether the member serves linearizable reads, which takes a quorum that includes it.
pub async fn serves_reads() -> bool {
    answers(ETCD_METRICS, "/readyz/linearizable_read", ANSWER).await == Ok(200)
}

/// Whether the own member has reached its quota: then no member accepts writes. Whether it has the keys of the others:
/// etcd compares them at each compaction; if it raises the alarm CORRUPT, it rejects all writes, and may not tell which
/// member is wrong.
pub(super) async fn alarms(root: &Root, policy: &Policy, own: &GuardedHost) -> Seen {
    if answers(ETCD_METRICS, HEALTH, ANSWER).await == Ok(200) {
        return Some(vec![]);
    }
    let ask = EtcdAsk::own(&policy.etcd_data_dir);
    let reach = access(root, &ask).ok()?;
    let alarms = etcd::alarms(&reach, ANSWER).await.ok()?;
    let full = alarms.iter().any(|alarm| alarm.own && alarm.name == NOSPACE);
    let full = full.then(|| Found::new(FaultKind::EtcdFull, format!("its member has raised the alarm {NOSPACE}")));
    if !alarms.iter().any(|alarm| alarm.name == CORRUPT) {
        return Some(full.into_iter().collect());
    }
    let (view, _) = Box::pin(etcd::view(&reach, ANSWER, Election::NotAwaited)).await.ok()?;
    let hash = async |access: &Access| etcd::hash(access, view.revision, HASHED_WITHIN).await.ok();
    let others = policy.others(&own.name).filter(|guard| guard.may_vote());
    let others = others.map(async |guard| hash(&access_at(root, &ask, guard.address).ok()?).await);
    let (mine, others) = tokio::join!(hash(&reach), join_all(others));
    let voters = view.members.iter().filter(|(.., learner)| !learner).count();
    let keys = mine.and_then(|mine| compared(mine, &others.into_iter().flatten().collect::<Vec<_>>(), voters));
    let found = |kind, what: &str| Found::new(kind, format!("the alarm {CORRUPT} is set: {what}"));
    let what = match keys {
        Some(Keys::Differ) => "its own keys are the wrong ones",
        Some(Keys::Agree) => "another member has other keys than a majority",
        Some(Keys::AllAgree) => "all members have the same keys again",
        None => "no majority has the same keys, or they cannot be compared",
    };
    let own = (keys == Some(Keys::Differ)).then(|| found(FaultKind::EtcdDiverged, "a majority has other keys"));
    // One host reports what is of the whole cluster.
    let of_all = view.leads().then(|| found(FaultKind::EtcdCorrupt, what));
    Some(full.into_iter().chain(own).chain(of_all).collect())
}

/// How the keys of a member compare with those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// A majority of all voters has others.
    Differ,
    /// A majority has the same.
    Agree,
    /// All voters have the same.
    AllAgree,
}

/// Hashes over the same keys: revision, compacted revision, hash. `None`: they cannot be compared, or none of them is
/// that of a majority.
fn compared(own: (i64, i64, u32), others: &[(i64, i64, u32)], voters: usize) -> Option<Keys> {
    if others.iter().any(|other| (other.0, other.1) != (own.0, own.1)) {
        return None;
    }
    let with = |hash: u32| others.iter().filter(|other| other.2 == hash).count();
    let agree = with(own.2) + 1;
    if agree == voters {
        return Some(Keys::AllAgree);
    }
    if agree > voters / 2 {
        return Some(Keys::Agree);
    }
    others.iter().any(|other| other.2 != own.2 && with(other.2) > voters / 2).then_some(Keys::Differ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_no_vote_by_the_word_of_two_others_that_agree() {
        let of = |entries: &[Option<bool>]| {
            let by = ["cp2", "cp3"].map(str::to_owned).into_iter();
            let seen = judged(by.zip(entries.iter().copied()).collect())?;
            Some(seen.into_iter().map(|found| found.evidence).collect::<String>())
        };
        assert_eq!(of(&[None, None]).unwrap(), "it is not in the member list of cp2 and cp3");
        assert_eq!(of(&[Some(true), Some(true)]).unwrap(), "it is still a learner in the member list of cp2 and cp3");
        for votes in [&[Some(false), Some(false)][..], &[Some(false)], &[None, Some(false)]] {
            assert_eq!(of(votes).unwrap(), "", "one lists it as a voter: {votes:?}");
        }
        for unknown in [&[][..], &[None], &[Some(true)], &[None, Some(true)]] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn keys_are_wrong_by_a_majority_of_all_voters_that_hashed_the_same_range() {
        let of = |own: u32, others: &[u32], voters| {
            let hashed = |hash: &u32| (9, 5, *hash);
            compared(hashed(&own), &others.iter().map(hashed).collect::<Vec<_>>(), voters)
        };
        assert_eq!(of(7, &[7, 7], 3), Some(Keys::AllAgree));
        assert_eq!(of(8, &[7, 7], 3), Some(Keys::Differ));
        assert_eq!(of(7, &[7, 8], 3), Some(Keys::Agree));
        assert_eq!(of(7, &[7], 3), Some(Keys::Agree), "one does not answer");
        assert_eq!(of(8, &[7], 3), None, "one of three is no majority");
        assert_eq!(of(8, &[7, 9], 3), None);
        assert_eq!(of(8, &[7, 7, 8, 9], 5), None, "two of five are none either");
        assert_eq!(of(7, &[8], 2), None, "it is unknown which of two is right");
        assert_eq!(compared((9, 5, 8), &[(9, 5, 7), (9, 6, 7)], 3), None, "one has compacted already");
    }
}
