//! The lead of etcd, away from a member whose disk is slow.
//!
//! In: the member that leads, and the host that is to lead. Out: another member leads, or why not. etcd gives up a
//! transfer that takes longer than an election, a second, and each step of it waits for the slow disk. Then the member is
//! restarted, so that the others elect a leader: only if they are a quorum without it, by their own words.

use super::member::{access, trouble};
use super::views::others;
use crate::agent::host::Host;
use crate::agent::machine::units;
use crate::agent::op_error::Outcome;
use crate::etcd;
use crate::model::facts::EtcdView;
use crate::model::healing::{GuardedHost, Policy};
use crate::model::names::PeerUrl;
use crate::model::units::etcd_unit;
use crate::protocol::{EtcdAsk, MemberChange, OpError};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time for one view of a member.
const ANSWER: Duration = Duration::from_secs(5);

/// Transfers the lead to the member of a host.
///
/// # Errors
/// etcd does not hand it over, and a restart could cost quorum or fails.
pub(crate) async fn hand_over(
    host: &Host,
    policy: &Policy,
    (own, to): (&GuardedHost, &GuardedHost),
    within: Duration,
) -> Outcome<()> {
    let ask = EtcdAsk::own(&policy.etcd_data_dir);
    let lead = MemberChange::Lead(PeerUrl::of(to.address));
    let Err(error) = etcd::change(&access(&host.root, &ask)?, &lead, within).await else {
        return Ok(());
    };
    let views = others(&host.root, policy, &own.name, ANSWER).await;
    let views: Vec<EtcdView> = views.into_iter().map(|(_, view, _)| view).collect();
    if elect_without(&PeerUrl::of(own.address), &views) {
        return units::kill_and_start(host, &etcd_unit(), true, within).await;
    }
    let OpError { kind, what, tail } = trouble(&error);
    let what = format!("{what}; its member is not restarted, since the others may be no quorum without it");
    Err(OpError { kind, what, tail })
}

/// Whether members with these views follow the one with this URL, and are a majority of all voters without it.
fn elect_without(leader: &PeerUrl, views: &[EtcdView]) -> bool {
    let follows = |view: &&EtcdView| {
        let leads = view.members.iter().any(|(id, _, peer, _)| *id == view.leader && peer == leader);
        leads && !view.learner
    };
    let voters = |view: &EtcdView| view.members.iter().filter(|(.., learner)| !learner).count();
    let following: BTreeSet<u64> = views.iter().filter(follows).map(|view| view.member).collect();
    !views.is_empty() && views.iter().all(|view| following.len() > voters(view) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The view of a member of so many voters, of which the first one is at the address 10.0.0.1.
    fn view(member: u64, leader: u64, voters: u64) -> EtcdView {
        let peer = |id: u64| PeerUrl::of([10, 0, 0, u8::try_from(id).unwrap()].into());
        let members = (1..=voters).map(|id| (id, format!("m{id}"), peer(id), false)).collect();
        EtcdView { member, leader, members, ..EtcdView::default() }
    }

    #[test]
    fn a_leader_is_restarted_only_if_a_majority_of_all_voters_follows_it_without_its_own_vote() {
        let of = |views: &[EtcdView]| elect_without(&PeerUrl::of([10, 0, 0, 1].into()), views);
        assert!(of(&[view(2, 1, 3), view(3, 1, 3)]));
        assert!(!of(&[]), "no other member answers");
        assert!(!of(&[view(2, 1, 3)]), "one of three");
        assert!(!of(&[view(2, 1, 3), view(2, 1, 3)]), "it answered twice");
        assert!(!of(&[view(2, 1, 3), view(3, 2, 3)]), "another one leads by the word of one");
        assert!(!of(&[view(2, 1, 3), view(3, 0, 3)]), "one has no leader");
        assert!(!of(&[view(2, 1, 3), EtcdView { learner: true, ..view(3, 1, 3) }]), "a learner does not vote");
        assert!(of(&[view(2, 1, 5), view(3, 1, 5), view(4, 1, 5)]));
        assert!(!of(&[view(2, 1, 5), view(3, 1, 5)]), "two of five");
        assert!(!of(&[view(2, 1, 3), view(3, 1, 5)]), "by the list of one there are five");
    }
}
