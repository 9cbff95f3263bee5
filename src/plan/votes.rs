//! Whether a vote of etcd is free for a host that has none. Pure.
//!
//! In: the policy, who votes by the member list, which hosts are gone. Out: whether other hosts have all votes, and
//! whether one of them is gone, so that a host that stands by takes over its vote. Any host of the policy that may vote
//! and does not, stands by: also one whose vote another one took over while it was gone.

use crate::model::desired::{Desired, Role};
use crate::model::healing::Policy;
use crate::model::names::HostName;
use crate::model::standby::Voters;
use std::collections::BTreeSet;

/// The hosts around a guard.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// Those that have given no sign of life for as long as the policy says, by the word of all.
    pub gone: BTreeSet<HostName>,
    /// Those that are heard, and the own one.
    pub heard: BTreeSet<HostName>,
}

/// What the member list tells a host about votes; nothing if it was not read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Votes {
    /// How many votes etcd has, if other hosts have all of them, gone or not.
    pub taken: Option<usize>,
    /// A vote that is free.
    pub free: Option<Free>,
    /// How many voters are listed, also if the host is one of them.
    pub listed: Option<usize>,
}

/// A vote that is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free {
    /// The host that is gone.
    pub of: HostName,
    /// The host that takes it over; `None`: the own one.
    pub by: Option<HostName>,
}

/// Judges the vote of the own host.
pub fn votes(policy: &Policy, own: &HostName, voters: &Voters, around: &Around) -> Votes {
    let listed = voters.hosts.len() + voters.strangers;
    if voters.hosts.contains(own) {
        return Votes { listed: Some(listed), ..Votes::default() };
    }
    let all = policy.guards.iter().filter(|guard| guard.has_etcd()).count();
    let taken = (listed >= all).then_some(all);
    let left = listed - voters.hosts.intersection(&around.gone).count();
    let gone = || policy.guards.iter().filter(|guard| around.gone.contains(&guard.name));
    // A member that was removed before its vote was taken over has none in the list.
    let removed = gone().filter(|guard| listed < all && guard.has_etcd());
    let free = gone()
        .filter(|guard| voters.hosts.contains(&guard.name))
        .chain(removed)
        .next()
        .filter(|_| left < all)
        .and_then(|of| {
            let stands_by = |name: &HostName| around.heard.contains(name) && !voters.hosts.contains(name);
            let mut by: Vec<_> =
                policy.guards.iter().filter(|guard| guard.may_vote() && stands_by(&guard.name)).collect();
            // Of the same zone first, so that the loss of another zone costs no more votes than before.
            by.sort_by_key(|guard| guard.zone != of.zone);
            let first = by.first()?;
            by.iter()
                .any(|guard| &guard.name == own)
                .then(|| Free { of: of.name.clone(), by: (&first.name != own).then(|| first.name.clone()) })
        });
    Votes { taken, free, listed: Some(listed) }
}

/// The hosts that are gone and whose members are to be removed, because nobody stands by for them: with fewer voters,
/// etcd tolerates more failures. The number of voters that are left is odd: the removal of one of three or of five
/// would be no gain. Empty for all hosts but one that votes.
pub fn superfluous(policy: &Policy, own: &HostName, voters: &Voters, around: &Around) -> Vec<HostName> {
    let votes = |name: &HostName| voters.hosts.contains(name);
    let mut here = policy.guards.iter().filter(|guard| guard.may_vote() && around.heard.contains(&guard.name));
    let stands_by = here.clone().any(|guard| !votes(&guard.name));
    let first = here.find(|guard| votes(&guard.name));
    if stands_by || first.is_none_or(|guard| &guard.name != own) {
        return vec![];
    }
    let gone = policy.guards.iter().map(|guard| &guard.name).filter(|name| votes(name) && around.gone.contains(*name));
    let gone: Vec<HostName> = gone.cloned().collect();
    let removed = removable(voters.hosts.len() + voters.strangers, gone.len());
    gone.into_iter().take(removed).collect()
}

/// How many of the voters that are gone can be removed so that an odd number of voters is left.
pub fn removable(voters: usize, gone: usize) -> usize {
    (0..=gone.min(voters)).rev().find(|removed| (voters - removed) % 2 == 1).unwrap_or(0)
}

/// What a host does about etcd hosts that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acts {
    /// It takes over the vote of this one.
    TakesOver(HostName),
    /// It has the members of these removed; none of them if its own member is what has the fault.
    Removes(Vec<HostName>),
}

/// What `own` does if these hosts with a vote are gone; `is_here`: whether a host answers. `None`: it stands by, and none
/// is gone.
pub fn acts(desired: &Desired, own: &HostName, gone: &[HostName], is_here: impl Fn(&HostName) -> bool) -> Option<Acts> {
    if desired.host(own).is_some_and(|host| host.standby) {
        return gone.first().cloned().map(Acts::TakesOver);
    }
    let stands_by = desired.hosts.iter().any(|host| host.standby && is_here(&host.name));
    let removed = if stands_by { 0 } else { removable(desired.with(Role::Etcd).count(), gone.len()) };
    Some(Acts::Removes(gone.iter().take(removed).cloned().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::healing::Mode;
    use proptest::prelude::*;

    /// So many etcd hosts, then so many that stand by, in three zones.
    fn policy(etcd: u8, standby: u8) -> Policy {
        let mut desired = sample(etcd + standby);
        desired.healing.mode = Mode::On;
        for (at, host) in desired.hosts.iter_mut().enumerate() {
            host.zone = Some(format!("z{}", at % 3));
            if at >= usize::from(etcd) {
                host.roles = vec![Role::ControlPlane];
                host.standby = true;
            }
        }
        Policy::of(&desired)
    }

    fn names(hosts: &[usize]) -> BTreeSet<HostName> {
        hosts.iter().map(|host| format!("cp{host}").parse().unwrap()).collect()
    }

    fn of(policy: &Policy, own: usize, voters: &[usize], gone: &[usize]) -> (Option<usize>, Option<Free>) {
        let all: Vec<usize> = (1..=policy.guards.len()).filter(|host| !gone.contains(host)).collect();
        let around = Around { gone: names(gone), heard: names(&all) };
        let voters = Voters { hosts: names(voters), strangers: 0 };
        let found = votes(policy, names(&[own]).first().unwrap(), &voters, &around);
        assert_eq!(found.listed, Some(voters.hosts.len()));
        (found.taken, found.free)
    }

    fn of_host(host: usize, by: Option<usize>) -> Free {
        let name = |host: usize| names(&[host]).pop_first().unwrap();
        Free { of: name(host), by: by.map(name) }
    }

    #[test]
    fn a_vote_is_free_once_its_host_is_gone_and_goes_to_a_standby_of_the_same_zone_first() {
        let policy = policy(3, 2);
        let taken = Some(3);
        assert_eq!(of(&policy, 4, &[1, 2, 3], &[]), (taken, None));
        assert_eq!(of(&policy, 4, &[1, 2, 3], &[1]), (taken, Some(of_host(1, None))));
        assert_eq!(of(&policy, 5, &[1, 2, 3], &[1]), (taken, Some(of_host(1, Some(4)))));
        assert_eq!(of(&policy, 4, &[1, 2, 3], &[2]), (taken, Some(of_host(2, Some(5)))), "cp5 is in its zone");
        assert_eq!(of(&policy, 5, &[1, 2, 3], &[1, 4]), (taken, Some(of_host(1, None))), "the first is gone, too");
        assert_eq!(of(&policy, 4, &[2, 3], &[1]), (None, Some(of_host(1, None))), "removed already");
        assert_eq!(of(&policy, 5, &[2, 3, 4], &[1]), (taken, None), "replaced long ago");
        assert_eq!(of(&policy, 5, &[2, 3, 4], &[1, 2]), (taken, Some(of_host(2, None))), "the next one");
        assert_eq!(of(&policy, 4, &[2, 3], &[]), (None, None), "its own host joins again");
        assert_eq!(of(&policy, 3, &[1, 2, 3], &[1]), (None, None), "it votes itself");
    }

    #[test]
    fn a_standby_takes_over_the_first_vote_and_a_voter_removes_two_of_five_if_nobody_stands_by() {
        let (mut desired, own) = (sample(6), |n: usize| names(&[n]).pop_first().unwrap());
        desired.hosts[5].roles = vec![Role::ControlPlane];
        let acts = |desired: &Desired, n: usize, gone: &[usize]| {
            let gone: Vec<HostName> = names(gone).into_iter().collect();
            super::acts(desired, &own(n), &gone, |host| !gone.contains(host))
        };
        let removes = |gone: &[usize]| Some(Acts::Removes(names(gone).into_iter().collect()));
        assert_eq!(acts(&desired, 1, &[4, 5]), removes(&[4, 5]));
        assert_eq!(acts(&desired, 1, &[5]), removes(&[]), "four tolerate no more than five without one");
        desired.hosts[5].standby = true;
        assert_eq!(acts(&desired, 1, &[4, 5]), removes(&[]), "cp6 stands by");
        assert_eq!(acts(&desired, 6, &[4, 5]), Some(Acts::TakesOver(own(4))));
        assert_eq!(acts(&desired, 6, &[]), None);
        assert_eq!(acts(&desired, 1, &[4, 5, 6]), removes(&[4, 5]), "the standby is gone, too");
    }

    #[test]
    fn a_host_whose_vote_another_one_has_stands_by_for_the_others() {
        let policy = policy(3, 1);
        assert_eq!(of(&policy, 1, &[2, 3, 4], &[]), (Some(3), None));
        assert_eq!(of(&policy, 1, &[2, 3, 4], &[4]), (Some(3), Some(of_host(4, None))));
    }

    #[test]
    fn members_of_hosts_that_are_gone_are_removed_in_pairs_by_one_host_and_only_if_none_stands_by() {
        let with = |standby: u8, own: usize, voters: &[usize], gone: &[usize]| {
            let policy = policy(5, standby);
            let all: Vec<usize> = (1..=policy.guards.len()).filter(|host| !gone.contains(host)).collect();
            let around = Around { gone: names(gone), heard: names(&all) };
            let voters = Voters { hosts: names(voters), strangers: 0 };
            let found = superfluous(&policy, names(&[own]).first().unwrap(), &voters, &around);
            found.into_iter().collect::<BTreeSet<_>>()
        };
        let all = [1, 2, 3, 4, 5];
        assert_eq!(with(0, 1, &all, &[4, 5]), names(&[4, 5]));
        assert_eq!(with(0, 2, &all, &[4, 5]), names(&[]), "cp1 does it");
        assert_eq!(with(0, 2, &all, &[1, 5]), names(&[1, 5]));
        assert_eq!(with(0, 1, &all, &[5]), names(&[]), "four voters tolerate no more than five with one that is gone");
        assert_eq!(with(0, 1, &[1, 2, 3, 5], &[4, 5]), names(&[5]), "the first one is removed already");
        assert_eq!(with(1, 1, &all, &[4, 5]), names(&[]), "cp6 stands by");
        assert_eq!(with(1, 1, &all, &[4, 5, 6]), names(&[4, 5]), "it is gone, too");
        assert_eq!(
            [removable(7, 3), removable(7, 1), removable(3, 1), removable(4, 1), removable(6, 2)],
            [2, 0, 0, 1, 1]
        );
    }

    proptest! {
        /// With the voters that are removed, etcd tolerates more failures than before, and loses no quorum on the way.
        #[test]
        fn fewer_voters_tolerate_more_failures(voters in 1_usize..10, gone in 0_usize..10) {
            let gone = gone.min(voters);
            let alive = voters - gone;
            let spare = |voters: usize| alive.checked_sub(voters / 2 + 1);
            let removed = removable(voters, gone);
            if let Some(before) = spare(voters) {
                prop_assert!(removed == 0 || spare(voters - removed) > Some(before));
                prop_assert!((0..removed).all(|n| spare(voters - n).is_some()));
            }
        }

        /// Whatever hosts vote and are gone: all hosts that hear the same name the same host for a free vote, it is
        /// one that is heard and has no vote, and no vote is free while as many as the policy asks for are there.
        #[test]
        fn one_host_takes_over_a_vote_and_only_while_one_is_missing(
            etcd in prop::sample::select(vec![1_u8, 3, 5]),
            standby in 0_u8..3,
            bits in any::<u16>(),
            gone in any::<u16>(),
        ) {
            let policy = policy(etcd, standby);
            let some = |bits: u16| (1..=policy.guards.len()).filter(|host| bits >> host & 1 == 1).collect::<Vec<_>>();
            let (voters, gone) = (some(bits), some(gone));
            let here: Vec<usize> = (1..=policy.guards.len()).filter(|host| !gone.contains(host)).collect();
            let found: Vec<(usize, Free)> =
                here.iter().filter_map(|own| Some((*own, of(&policy, *own, &voters, &gone).1?))).collect();
            let takers: Vec<usize> = found.iter().filter(|(_, free)| free.by.is_none()).map(|(own, _)| *own).collect();
            prop_assert!(takers.len() <= 1, "{takers:?}");
            for (own, free) in &found {
                prop_assert!(!voters.contains(own) && names(&gone).contains(&free.of));
                prop_assert!(free.by.is_none() || free.by == names(&takers).pop_first());
            }
            let there = voters.iter().filter(|voter| !gone.contains(voter)).count();
            prop_assert!(found.is_empty() || there < usize::from(etcd));
        }
    }
}
