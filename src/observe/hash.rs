//! Checks that all members hold the same data: each hashes its store at one revision, and the hashes are compared.
//!
//! etcd's own corruption check at startup costs seconds per peer and found nothing in our experiments, so it is off.

use super::Queries;
use crate::model::facts::Facts;
use crate::model::names::HostName;
use crate::protocol::{Op, Reply};
use crate::transport::{Agents, Payload};
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout of hashing, which takes about a second per GiB of database; the default quota is 8 GiB.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The result of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashCheck {
    /// Every running member has the same hash at this revision.
    Same {
        /// The revision.
        revision: i64,
        /// How many members were compared.
        members: usize,
    },
    /// They differ.
    Differs(BTreeMap<HostName, u32>),
    /// All members answer, but the hashes cannot be compared, for this reason: as bad as a difference.
    Incomparable(String),
    /// The hashes could not be determined, for this reason.
    Unknown(String),
}

impl HashCheck {
    /// The members whose data differs from that of a majority of this many voters; `None`: no majority agrees.
    pub fn odd(&self, voters: usize) -> Option<Vec<HostName>> {
        let Self::Differs(all) = self else { return Some(Vec::new()) };
        let count = |hash: u32| all.values().filter(|other| **other == hash).count();
        let right = all.values().copied().find(|hash| count(*hash) > voters / 2)?;
        Some(all.iter().filter(|(_, hash)| **hash != right).map(|(host, _)| host.clone()).collect())
    }
}

/// Members apply a compaction at slightly different times, and the hashes before and after it differ.
const ATTEMPTS: usize = 4;
const AGAIN: Duration = Duration::from_millis(500);

/// A member's hash, and the compacted revision from which it was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hashed {
    hash: u32,
    compacted: i64,
}

/// Asks every running member for its hash at the lowest revision among them; repeats this if a compaction interferes.
pub async fn hashes(facts: &Facts, machines: &Agents, queries: &Queries) -> HashCheck {
    let mut last = HashCheck::Unknown("no member answers".to_owned());
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(AGAIN).await;
        }
        last = once(facts, machines, queries).await;
        if !matches!(last, HashCheck::Incomparable(_)) {
            break;
        }
    }
    last
}

async fn once(facts: &Facts, machines: &Agents, queries: &Queries) -> HashCheck {
    let views = facts.hosts.iter().filter_map(|(h, f)| Some((h, f.as_ref().ok()?.etcd.as_ref()?.view.as_ref()?)));
    let running: Vec<(&HostName, i64)> = views.map(|(h, v)| (h, v.revision)).collect();
    let Some(revision) = running.iter().map(|(_, r)| *r).min() else {
        return HashCheck::Unknown("no member answers".to_owned());
    };
    let one = async |host: &HostName| {
        let machine = machines.get(host).ok_or_else(|| format!("{host} is not connected"))?;
        let etcd = queries.etcd(host).ok_or_else(|| format!("{host} is no etcd host"))?;
        match machine.call(Op::EtcdHash { etcd, revision }, Payload::None, TIMEOUT, &|_| {}).await {
            Ok(Reply::Hash { hash, compacted, .. }) => Ok((host.clone(), Hashed { hash, compacted })),
            Ok(_) => Err(format!("{host} sent an unexpected reply")),
            Err(error) => Err(format!("{host}: {error}")),
        }
    };
    let answers = futures::future::join_all(running.iter().map(|(h, _)| one(h))).await;
    judge(revision, answers.into_iter().collect())
}

fn judge(revision: i64, answers: Result<BTreeMap<HostName, Hashed>, String>) -> HashCheck {
    let all = match answers {
        // etcd's message (ErrCompacted): the revision of one member is compacted on another.
        Err(why) if why.contains("has been compacted") => return HashCheck::Incomparable(why),
        Err(why) => return HashCheck::Unknown(why),
        Ok(all) => all,
    };
    let mut values = all.values();
    let first = values.next().copied();
    if values.clone().any(|v| first.is_some_and(|f| f.compacted != v.compacted)) {
        let said: Vec<String> = all.iter().map(|(h, v)| format!("{h} {}", v.compacted)).collect();
        return HashCheck::Incomparable(format!("members are compacted at different revisions: {}", said.join(", ")));
    }
    if values.all(|v| first.is_some_and(|f| f.hash == v.hash)) {
        HashCheck::Same { revision, members: all.len() }
    } else {
        HashCheck::Differs(all.into_iter().map(|(host, v)| (host, v.hash)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(hashed: &[(u32, i64)]) -> BTreeMap<HostName, Hashed> {
        let name = |i: usize| format!("cp{i}").parse().unwrap();
        hashed
            .iter()
            .enumerate()
            .map(|(i, (hash, compacted))| (name(i), Hashed { hash: *hash, compacted: *compacted }))
            .collect()
    }

    #[test]
    fn differing_members_are_reported_only_if_a_majority_of_all_voters_agrees() {
        let odd = |hashes: &[u32], voters| {
            let all: Vec<(u32, i64)> = hashes.iter().map(|hash| (*hash, 5)).collect();
            judge(9, Ok(super::tests::all(&all))).odd(voters).map(|odd| odd.iter().map(ToString::to_string).collect())
        };
        assert_eq!(odd(&[7, 7, 7], 3), Some(vec![]));
        assert_eq!(odd(&[7, 8, 7], 3), Some(vec!["cp1".to_owned()]));
        assert_eq!(odd(&[8, 7, 7, 9, 7], 5), Some(vec!["cp0".to_owned(), "cp3".to_owned()]));
        assert_eq!(odd(&[7, 8], 2), None::<Vec<String>>, "it is unknown which of two is right");
        assert_eq!(odd(&[7, 7, 8], 5), None, "two of five are no majority");
        assert_eq!(odd(&[7, 8, 9], 3), None);
    }

    #[test]
    fn only_hashes_over_the_same_range_are_compared() {
        assert_eq!(judge(9, Ok(all(&[(1, 5), (1, 5)]))), HashCheck::Same { revision: 9, members: 2 });
        assert!(matches!(judge(9, Ok(all(&[(1, 5), (2, 5)]))), HashCheck::Differs(_)));
        assert!(
            matches!(judge(9, Ok(all(&[(1, 5), (2, 7)]))), HashCheck::Incomparable(_)),
            "one has compacted already"
        );
    }

    #[test]
    fn a_member_that_lags_behind_a_compaction_is_not_passed_over() {
        let why = "cp2: etcdserver: mvcc: required revision has been compacted".to_owned();
        assert!(matches!(judge(9, Err(why)), HashCheck::Incomparable(_)));
        assert!(matches!(judge(9, Err("cp2: connection refused".to_owned())), HashCheck::Unknown(_)));
    }
}
