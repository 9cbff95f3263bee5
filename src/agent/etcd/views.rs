//! What the other members of etcd say of it: of their leader, and of who votes.
//!
//! In: the policy and the own host. Out: the views of those that answer, and what several of them agree on.

use super::member::access_at;
use crate::agent::machine::root::Root;
use crate::etcd::{self, Election, EtcdError};
use crate::model::facts::EtcdView;
use crate::model::healing::{GuardedHost, Policy};
use crate::model::names::{HostName, PeerUrl};
use crate::model::standby::Voters;
use crate::protocol::EtcdAsk;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::time::Duration;

/// The view of a member, with its host, and why it has no quorum if it has none.
pub(crate) type View<'a> = (&'a GuardedHost, EtcdView, Option<EtcdError>);

/// The views of the other members that answer within a time.
pub(crate) async fn others<'a>(root: &Root, policy: &'a Policy, own: &'a HostName, within: Duration) -> Vec<View<'a>> {
    let ask = EtcdAsk::own(&policy.etcd_data_dir);
    let others = policy.others(own).filter(|guard| guard.may_vote());
    let views = others.map(async |guard| {
        let access = access_at(root, &ask, guard.address).ok()?;
        let (view, trouble) = Box::pin(etcd::view(&access, within, Election::NotAwaited)).await.ok()?;
        Some((guard, view, trouble))
    });
    join_all(views).await.into_iter().flatten().collect()
}

/// The views of the other members that serve linearizable reads within a time.
pub async fn serving<'a>(
    root: &Root,
    policy: &'a Policy,
    own: &'a HostName,
    within: Duration,
) -> Vec<(&'a GuardedHost, EtcdView)> {
    let all = others(root, policy, own, within).await;
    all.into_iter().filter_map(|(guard, view, trouble)| trouble.is_none().then_some((guard, view))).collect()
}

/// The voters, by the lists of at least two other members that serve linearizable reads; `None`: they differ, or there
/// are fewer.
pub fn voters(serving: &[(&GuardedHost, EtcdView)], policy: &Policy) -> Option<Voters> {
    let voters = |(_, view): &(&GuardedHost, EtcdView)| {
        let voters = view.members.iter().filter(|(.., learner)| !learner);
        voters.map(|(.., peer, _)| peer.clone()).collect::<BTreeSet<PeerUrl>>()
    };
    let lists: Vec<_> = serving.iter().map(voters).collect();
    let list = lists.first().filter(|first| lists.len() > 1 && lists.iter().all(|list| list == *first))?;
    Some(Voters::of(list, policy))
}
