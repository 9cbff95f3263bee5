//! Whether a guard may change the member list: only what it takes that its own member joins again, or that the member of
//! a host that is gone leaves. Pure.
//!
//! In: who asks for what, the list as the asked host reads it, which members serve, which hosts are gone by the word of
//! its own guard. Out: yes, or the reason why not.

use crate::agent::op_error::{Outcome, bad};
use crate::model::names::{HostName, PeerUrl};
use crate::protocol::MemberChange;

/// Members: peer URL, learner.
type Members = [(PeerUrl, bool)];

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Asked<'a> {
    /// The host of the guard.
    pub host: &'a HostName,
    /// The peer URL of its member.
    pub by: PeerUrl,
    /// Whether it asks its own host.
    pub of_itself: bool,
    /// How many members etcd should have.
    pub votes: usize,
}

impl Asked<'_> {
    /// Whether it may ask for such a change at all. Returns whether the list decides.
    pub(super) fn may_ask(&self, change: &MemberChange, gone: impl Fn(&PeerUrl) -> Outcome<()>) -> Outcome<bool> {
        let peer = match change {
            MemberChange::Remove(peer) | MemberChange::AddLearner(peer) | MemberChange::Promote(peer) => peer,
            // A member that is to be removed hands over the lead.
            MemberChange::Lead(_) if self.of_itself => return Ok(false),
            MemberChange::Move(..) | MemberChange::Lead(_) => return Err(bad("no repair by guards takes this change")),
        };
        let of_another = self.by != *peer;
        if of_another && (self.of_itself || !matches!(change, MemberChange::Remove(_))) {
            return Err(bad(format!("the guard of {} changes no other member than its own", self.host)));
        }
        if of_another {
            gone(peer)?;
        }
        Ok(true)
    }

    /// Whether the change fits the list. Returns whether it takes a member away, so that the quorum decides.
    pub(super) fn fits(
        &self,
        change: &MemberChange,
        members: &Members,
        gone: impl Fn(&PeerUrl) -> Outcome<()>,
    ) -> Outcome<bool> {
        let voters = || members.iter().filter(|(_, learner)| !learner).map(|(url, _)| url);
        let removes = matches!(change, MemberChange::Remove(_));
        if matches!(change, MemberChange::Remove(peer) if *peer != self.by) && voters().any(|url| *url == self.by) {
            let gone = voters().filter(|url| gone(url).is_ok()).count();
            // One without a vote takes it over; others remove only what makes etcd tolerate more failures.
            if voters().count() % 2 == 1 && gone < 2 {
                return Err(bad(format!(
                    "{} has a vote, and {gone} host that is gone is too few to remove",
                    self.host
                )));
            }
        }
        if !removes && voters().filter(|url| **url != self.by).count() >= self.votes {
            return Err(bad(format!("other hosts than {} have all {} votes", self.host, self.votes)));
        }
        if let Some((url, _)) = members.iter().find(|(url, learner)| *learner && *url != self.by) {
            return Err(bad(format!("{url} is a learner, and etcd has one at a time")));
        }
        if removes && self.of_itself {
            return Err(bad(format!("{} removes its member through another one", self.host)));
        }
        Ok(removes)
    }

    /// Whether the voters that are left have a quorum of members that serve.
    pub(super) fn leaves_quorum(&self, change: &MemberChange, members: &Members, serving: &[PeerUrl]) -> Outcome<()> {
        let MemberChange::Remove(peer) = change else { return Ok(()) };
        if self.by != *peer && serving.contains(peer) {
            return Err(bad(format!("the member at {peer} serves")));
        }
        let stay: Vec<&PeerUrl> =
            members.iter().filter(|(url, learner)| !learner && url != peer).map(|(url, _)| url).collect();
        let healthy = stay.iter().filter(|url| serving.contains(url)).count();
        let quorum = stay.len() / 2 + 1;
        if healthy < quorum {
            return Err(bad(format!("{healthy} healthy of {} voters would be left, quorum {quorum}", stay.len())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    const HOSTS: usize = 6;
    const CASES: u32 = 10_000;

    /// A request, and the world around it, by the numbers of hosts.
    #[derive(Debug, Clone)]
    struct Case {
        by: usize,
        asked: usize,
        of: usize,
        change: u8,
        /// Each host: not listed, a voter, a learner.
        listed: Vec<u8>,
        serves: Vec<bool>,
        gone: Vec<bool>,
        votes: usize,
    }

    /// What a host checks, switched off.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Mutant {
        None,
        /// Every host is gone.
        Gone,
        /// Every voter that is not removed serves.
        Quorum,
        /// No other learner is seen.
        Learner,
        /// There are votes for all.
        Votes,
        /// Nothing is known of the asker's own vote.
        Vote,
        /// The member to be removed never serves.
        Serves,
        /// Who asks is not compared with whose member it is.
        Asker,
        /// A host removes its own member through itself.
        Itself,
    }

    /// Each, and the law that fails by it.
    const MUTANTS: [(Mutant, &str); 8] = [
        (Mutant::Gone, "only the member of a host that is gone"),
        (Mutant::Quorum, "a quorum is left"),
        (Mutant::Learner, "one learner"),
        (Mutant::Votes, "no more votes"),
        (Mutant::Vote, "a voter removes no single one"),
        (Mutant::Serves, "no other member that serves"),
        (Mutant::Asker, "no other member joins"),
        (Mutant::Itself, "through another"),
    ];

    fn peer(host: usize) -> PeerUrl {
        PeerUrl::of([10, 0, 0, u8::try_from(host).unwrap()].into())
    }

    impl Case {
        fn change(&self) -> MemberChange {
            match self.change {
                0 => MemberChange::Remove(peer(self.of)),
                1 => MemberChange::AddLearner(peer(self.of)),
                2 => MemberChange::Promote(peer(self.of)),
                3 => MemberChange::Lead(peer(self.of)),
                _ => MemberChange::Move(peer(self.of), peer(self.by)),
            }
        }

        fn members(&self) -> Vec<(PeerUrl, bool)> {
            let listed = self.listed.iter().enumerate().filter(|(_, kind)| **kind > 0);
            listed.map(|(host, kind)| (peer(host), *kind == 2)).collect()
        }

        fn permitted(&self, mutant: Mutant) -> bool {
            let host = "cp1".parse().unwrap();
            let is = |other: Mutant| mutant == other;
            let by = if is(Mutant::Asker) { self.of } else { self.by };
            let asked = Asked {
                host: &host,
                by: peer(by),
                of_itself: self.by == self.asked && !is(Mutant::Itself),
                votes: if is(Mutant::Votes) { HOSTS } else { self.votes },
            };
            let gone = |peer: &PeerUrl| {
                let gone = (0..HOSTS).any(|host| self.gone[host] && super::tests::peer(host) == *peer);
                if gone || is(Mutant::Gone) { Ok(()) } else { Err(bad("not gone")) }
            };
            let mut members = self.members();
            if is(Mutant::Learner) {
                members.retain(|(_, learner)| !learner);
            }
            let mut seen = members.clone();
            if is(Mutant::Vote) {
                seen.retain(|(url, _)| *url != peer(self.by));
            }
            let change = self.change();
            let serving: Vec<PeerUrl> = (0..HOSTS)
                .filter(|host| self.serves[*host] || is(Mutant::Quorum) && *host != self.of)
                .filter(|host| !is(Mutant::Serves) || *host != self.of)
                .map(peer)
                .collect();
            asked.may_ask(&change, gone).is_ok_and(|list_decides| {
                !list_decides
                    || asked
                        .fits(&change, &seen, gone)
                        .is_ok_and(|removes| !removes || asked.leaves_quorum(&change, &members, &serving).is_ok())
            })
        }

        /// The law that a permitted request breaks.
        fn broken(&self) -> Option<&'static str> {
            let votes = |host: &usize| self.listed[*host] == 1;
            let voters = (0..HOSTS).filter(votes).count();
            let of_another = self.of != self.by;
            let learns = |host: usize| self.listed[host] == 2 && host != self.by;
            let joins = matches!(self.change, 1 | 2);
            let laws = [
                ("only the member of a host that is gone", self.change == 0 && of_another && !self.gone[self.of]),
                ("no other member that serves", self.change == 0 && of_another && self.serves[self.of]),
                ("no other member joins", joins && of_another),
                ("through another", self.change == 0 && self.by == self.asked),
                ("the lead is its own", self.change == 3 && self.by != self.asked),
                ("no address changes", self.change > 3),
                ("one learner", self.change < 3 && (0..HOSTS).any(learns)),
                ("no more votes", joins && (0..HOSTS).filter(votes).filter(|h| *h != self.by).count() >= self.votes),
                ("a quorum is left", {
                    let stay = || (0..HOSTS).filter(votes).filter(|host| *host != self.of);
                    let healthy = stay().filter(|host| self.serves[*host]).count();
                    self.change == 0 && healthy < stay().count() / 2 + 1
                }),
                ("a voter removes no single one", {
                    let gone = (0..HOSTS).filter(votes).filter(|host| self.gone[*host]).count();
                    self.change == 0 && of_another && votes(&self.by) && voters % 2 == 1 && gone < 2
                }),
            ];
            laws.iter().find(|(_, broken)| *broken).map(|(law, _)| *law)
        }
    }

    fn case() -> impl Strategy<Value = Case> {
        let hosts = || 0..HOSTS;
        let some = |share: f64| prop::collection::vec(prop::bool::weighted(share), HOSTS);
        let listed = prop::collection::vec(prop_oneof![2 => Just(0_u8), 6 => Just(1), 1 => Just(2)], HOSTS);
        let who = (hosts(), hosts(), prop_oneof![hosts().prop_map(Some), Just(None)], prop_oneof![Just(0_u8), 0..5_u8]);
        (who, listed, some(0.7), some(0.3), 3..6_usize).prop_map(
            |((by, asked, of, change), listed, serves, gone, votes)| Case {
                by,
                asked,
                of: of.unwrap_or(by),
                change,
                listed,
                serves,
                gone,
                votes,
            },
        )
    }

    fn cases() -> impl Iterator<Item = Case> {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = case();
        (0..CASES).map(move |_| strategy.new_tree(&mut runner).unwrap().current())
    }

    #[test]
    fn whatever_is_permitted_breaks_no_law_and_something_of_each_kind_is_permitted() {
        let mut permitted = [0; 4];
        for case in cases().filter(|case| case.permitted(Mutant::None)) {
            assert_eq!(case.broken(), None, "{case:?}");
            permitted[usize::from(case.change)] += 1;
        }
        assert!(permitted.iter().all(|count| *count > 5), "{permitted:?}");
    }

    #[test]
    fn without_any_one_of_its_checks_a_host_permits_what_breaks_the_law_of_that_check() {
        for (mutant, law) in MUTANTS {
            let found = cases().any(|case| case.permitted(mutant) && case.broken() == Some(law));
            assert!(found, "{mutant:?} breaks no law");
        }
    }
}
