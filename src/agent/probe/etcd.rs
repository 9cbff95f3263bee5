//! Probes of the etcd member: its process and its data, and the alarms that it knows.

use super::process::{self, Runs};
use super::{ANSWER, Found, Seen};
use crate::agent::etcd::member::access;
use crate::agent::etcd::positions::remembered;
use crate::agent::machine::root::Root;
use crate::agent::machine::run::blocking;
use crate::agent::machine::units;
use crate::agent::plain_http::{ETCD_METRICS, answers};
use crate::etcd::disk::{self, CLOSED_WITHIN};
use crate::etcd::{self, Election};
use crate::model::facts::{CORRUPT, ETCD_UNIT, NOSPACE};
use crate::model::fault::FaultKind;
use crate::model::healing::{GuardedHost, Policy};
use crate::model::names::PeerUrl;
use crate::model::ports::ETCD_CLIENTS;
use crate::model::repair::Runs as How;
use crate::model::units::etcd_unit;
use crate::protocol::{EtcdAsk, OpErrorKind};
use futures::future::join_all;
use std::net::SocketAddr;

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

/// Whether the other members list the own one as a voter. A member that was removed ends after each start.
pub(super) async fn vote(root: &Root, policy: &Policy, own: &GuardedHost) -> Seen {
    let ask = EtcdAsk::own(&policy.etcd_data_dir);
    let others = policy.guards.iter().filter(|guard| guard.has_etcd() && guard.name != own.name);
    let entries = others.map(async |guard| {
        let url = format!("https://{}", SocketAddr::new(guard.address, ETCD_CLIENTS));
        let access = access(root, &EtcdAsk { url, ..ask.clone() }).ok()?;
        let (view, trouble) = Box::pin(etcd::view(&access, ANSWER, Election::NotAwaited)).await.ok()?;
        let peer = PeerUrl::of(own.address);
        let entry = view.members.iter().find(|(.., url, _)| *url == peer).map(|(.., learner)| *learner);
        trouble.is_none().then(|| (guard.name.to_string(), entry))
    });
    judged(join_all(entries).await.into_iter().flatten().collect())
}

/// What is wrong with the entry of a member, by the lists of others: whether it is a learner; `None`: it has none. What
/// one member says alone, or some of them deny, tells nothing.
fn judged(entries: Vec<(String, Option<bool>)>) -> Seen {
    let (by, entries): (Vec<String>, Vec<Option<bool>>) = entries.into_iter().unzip();
    let first = entries.first().filter(|first| entries.len() > 1 && entries.iter().all(|other| other == *first))?;
    let what = match first {
        Some(false) => return Some(vec![]),
        Some(true) => "is still a learner",
        None => "is not",
    };
    let why = format!("it {what} in the member list of {}", by.join(" and "));
    Some(vec![Found::new(FaultKind::EtcdNotVoting, why)])
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
        assert_eq!(of(&[Some(false), Some(false)]).unwrap(), "", "a voter");
        for unknown in [&[][..], &[None], &[Some(false)], &[None, Some(false)], &[None, Some(true)]] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
    }
}
