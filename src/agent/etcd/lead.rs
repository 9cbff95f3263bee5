//! The lead of etcd, away from a member whose disk is slow, or whose host is about to reboot.
//!
//! In: the member that leads, and the host that is to lead. Out: another member leads, or why not. Of a slow one, etcd
//! gives up a transfer that takes longer than an election, a second, and each step of it waits for the slow disk. Then
//! the member is restarted, so that the others elect a leader: only if they are a quorum without it, by their own words.

use super::member::{access, trouble};
use super::views::others;
use crate::agent::host::Host;
use crate::agent::machine::root::Root;
use crate::agent::machine::units;
use crate::agent::op_error::Outcome;
use crate::etcd::{self, Election};
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

/// Which member had best lead before this host reboots: of those that serve and follow the own one, the one that has
/// applied most. `None`: the own one does not lead, or no other one could.
///
/// # Errors
/// The files of the member cannot be read.
pub async fn heir(root: &Root, policy: &Policy, own: &GuardedHost) -> Outcome<Option<PeerUrl>> {
    let own_access = access(root, &EtcdAsk::own(&policy.etcd_data_dir))?;
    // One that does not answer leads nobody.
    let Ok((view, _)) = Box::pin(etcd::view(&own_access, ANSWER, Election::NotAwaited)).await else { return Ok(None) };
    if !view.leads() {
        return Ok(None);
    }
    let others = others(root, policy, &own.name, ANSWER).await;
    let others = others.into_iter().filter_map(|(_, view, trouble)| trouble.is_none().then_some(view));
    Ok(furthest(&view, others))
}

/// Of the voters that follow a leader, the one that has applied most.
fn furthest(leader: &EtcdView, others: impl Iterator<Item = EtcdView>) -> Option<PeerUrl> {
    let follows = |view: &EtcdView| view.leader == leader.member && view.member != leader.member;
    let entry = |view: &EtcdView| {
        let listed = leader.members.iter().find(|(id, _, _, learner)| *id == view.member && !learner);
        listed.map(|(_, _, peer, _)| (view.applied, peer.clone()))
    };
    others.filter(follows).filter_map(|view| entry(&view)).max().map(|(_, peer)| peer)
}

/// Has another member lead, through the own one, which leads.
///
/// # Errors
/// etcd does not do it in time.
pub async fn yield_lead(root: &Root, policy: &Policy, to: PeerUrl, within: Duration) -> Outcome<()> {
    let own = access(root, &EtcdAsk::own(&policy.etcd_data_dir))?;
    etcd::change(&own, &MemberChange::Lead(to), within).await.map(drop).map_err(|error| trouble(&error))
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
    fn the_member_that_follows_and_has_applied_most_leads_next_and_a_learner_never() {
        let leader = view(1, 1, 3);
        let at = |member: u64, leader: u64, applied| EtcdView { applied, ..view(member, leader, 3) };
        let next = |others: Vec<EtcdView>| furthest(&leader, others.into_iter());
        let peer = |last: u8| Some(PeerUrl::of([10, 0, 0, last].into()));
        assert_eq!(next(vec![at(2, 1, 7), at(3, 1, 9)]), peer(3));
        assert_eq!(next(vec![at(2, 1, 7), at(3, 2, 9)]), peer(2), "it follows another one");
        assert_eq!(next(vec![at(4, 1, 9)]), None, "a stranger");
        assert_eq!(next(vec![]), None);
        let mut learns = leader.clone();
        learns.members[2].3 = true;
        assert_eq!(furthest(&learns, [at(2, 1, 7), at(3, 1, 9)].into_iter()), peer(2));
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
