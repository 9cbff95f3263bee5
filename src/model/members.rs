//! The members of etcd as a quorum lists them, and how many more of them may fail.
//!
//! In: put together by `observe/claims`. Out: read by `plan/`, `execute/` and `report/`. A quorum consists of voters
//! that are connected with one another: of two healthy voters without a peer connection, one does not count.

use super::names::PeerUrl;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The member list of the quorum, by peer URL.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Members(pub BTreeMap<PeerUrl, Member>);

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// Its id, queried for each operation and never stored.
    pub id: u64,
    /// Its name; empty until it first starts.
    pub name: String,
    /// Whether it is a learner, which has no vote.
    pub learner: bool,
    /// Whether it answered a linearizable read itself.
    pub healthy: bool,
    /// The ids of the other healthy voters with which it has no connection by its own metrics.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub apart: BTreeSet<u64>,
}

impl Member {
    /// Whether two members have no peer connection, by the word of both: one host alone may be wrong, and raft also
    /// works over connections that only one of the two could open.
    fn is_apart(&self, other: &Self) -> bool {
        self.apart.contains(&other.id) && other.apart.contains(&self.id)
    }
}

impl Members {
    /// The number of voters.
    pub fn voters(&self) -> usize {
        self.0.values().filter(|m| !m.learner).count()
    }
    /// The votes of a majority; counted over all voters, never over the healthy ones.
    pub fn quorum(&self) -> usize {
        self.voters() / 2 + 1
    }
    /// How many voters are healthy.
    pub fn healthy(&self) -> usize {
        self.healthy_voters().count()
    }
    fn healthy_voters(&self) -> impl Iterator<Item = (&PeerUrl, &Member)> + Clone {
        self.0.iter().filter(|(_, m)| !m.learner && m.healthy)
    }
    /// How many healthy voters are connected with one another, without the one that stops, if one does.
    pub fn connected(&self, stops: Option<&PeerUrl>) -> usize {
        let stay = self.healthy_voters().filter(|(peer, _)| Some(*peer) != stops);
        let mut left: Vec<&Member> = stay.map(|(_, member)| member).collect();
        loop {
            // The one that lacks the most connections does not count, until none is lacking.
            let lacks = |at: usize| left.iter().filter(|other| left[at].is_apart(other)).count();
            match (0..left.len()).map(|at| (lacks(at), at)).max() {
                Some((1.., at)) => left.remove(at),
                _ => return left.len(),
            };
        }
    }
    /// The pairs of healthy voters without a peer connection, by peer URL.
    pub fn apart(&self) -> Vec<(&PeerUrl, &PeerUrl)> {
        let mut pairs = Vec::new();
        let mut voters = self.healthy_voters();
        while let Some((peer, one)) = voters.next() {
            pairs.extend(voters.clone().filter(|(_, other)| one.is_apart(other)).map(|(other, _)| (peer, other)));
        }
        pairs
    }
    /// How many further voters may fail before writes stop; `None` when they have stopped already.
    pub fn spare(&self) -> Option<usize> {
        let spare = self.healthy().checked_sub(self.quorum())?;
        Some(spare.min(self.connected(None).saturating_sub(self.quorum())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::plan::Action;

    /// Voters 1 to `count`, of which these pairs have no peer connection.
    fn members(count: u8, apart: &[(u8, u8)]) -> Members {
        let member = |n: u8| {
            let other = |(a, b): &(u8, u8)| [(*a, *b), (*b, *a)].into_iter().find(|(own, _)| *own == n);
            let apart = apart.iter().filter_map(other).map(|(_, other)| other.into()).collect();
            Member { id: n.into(), healthy: true, apart, ..Member::default() }
        };
        Members((1..=count).map(|n| (peer(n), member(n))).collect())
    }

    fn peer(n: u8) -> PeerUrl {
        PeerUrl::of([10, 0, 0, n].into())
    }

    #[test]
    fn a_pair_of_voters_that_do_not_hear_each_other_is_not_counted_on() {
        let pairs = [(2, 3), (2, 4), (2, 5), (3, 4), (3, 5), (4, 5)];
        for (count, apart, spare) in [
            (3, &[][..], 1),
            (3, &[(2, 3)][..], 0),
            (5, &[(2, 3)][..], 1),
            (5, &[(1, 2), (3, 4)][..], 0),
            // One that nobody hears counts once, however many connections it lacks.
            (5, &[(1, 5), (2, 5), (3, 5), (4, 5)][..], 1),
            // Only the first hears all others: etcd works as long as that leads.
            (5, &pairs[..], 0),
        ] {
            let members = members(count, apart);
            assert_eq!((members.spare(), members.apart().len()), (Some(spare), apart.len()), "{apart:?} of {count}");
        }
    }

    #[test]
    fn without_the_voter_that_both_others_hear_there_is_no_quorum_and_without_one_of_those_there_is() {
        let members = members(3, &[(2, 3)]);
        let left = |n: u8| members.connected(Some(&peer(n)));
        assert_eq!((left(1), left(2), left(3), members.quorum()), (1, 2, 2, 2));
        let pair = [(peer(2).to_string(), peer(3).to_string())];
        assert_eq!(members.apart_by_name(Some(&peer(1))), pair);
        assert!(members.apart_by_name(Some(&peer(2))).is_empty(), "without one of them, nobody lacks the other");
        let refusal = members.without(&peer(1)).quorate(&Action::RemoveMember { peer: peer(1) }).unwrap_err();
        let said = "remove member https://10.0.0.1:2380 would leave 1 connected of 2 voters, fewer than the quorum of \
                    2: https://10.0.0.2:2380 and https://10.0.0.3:2380 have no peer connection";
        assert_eq!(refusal.to_string(), said);
    }

    #[test]
    fn the_word_of_one_member_alone_and_a_connection_with_one_that_does_not_answer_take_nothing_away() {
        let mut alone = members(3, &[(2, 3)]);
        alone.0.get_mut(&peer(3)).unwrap().apart.clear();
        assert_eq!((alone.spare(), alone.apart()), (Some(1), vec![]));
        let mut stopped = members(5, &[(2, 3)]);
        stopped.0.get_mut(&peer(3)).unwrap().healthy = false;
        assert_eq!((stopped.spare(), stopped.apart()), (Some(1), vec![]), "as for any that is stopped");
        stopped.0.values_mut().for_each(|member| member.healthy = member.id < 3);
        assert_eq!(stopped.spare(), None, "two of five");
    }
}
