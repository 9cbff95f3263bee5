//! Whether the healthy voters of etcd have peer connections with one another: two that have none are no quorum
//! together, although each of them answers.
//!
//! In: the member list. Out: a warning for each pair. A member that has just started has no connection yet: further
//! looks confirm each pair before it gets here (`reconcile/round`).

use crate::model::check::{Check, Outcome, check};
use crate::model::desired::Desired;
use crate::model::facts::Members;
use crate::model::names::PeerUrl;
use crate::model::ports::reconnect;

/// A warning for each pair of healthy voters without a connection.
pub(super) fn checks(desired: &Desired, members: &Members) -> Vec<Check> {
    let host = |peer: &PeerUrl| desired.entered().find(|host| host.peer_url() == *peer).map(|host| &host.name);
    let warning = |(one, other): (&PeerUrl, &PeerUrl)| {
        let [first, second] = [one, other].map(|peer| host(peer).map_or_else(|| peer.to_string(), ToString::to_string));
        let detail = format!(
            "the members of {first} and {second} have no peer connection: together they are no quorum, so fewer \
             members may fail"
        );
        let hint = reconnect(&first, &second);
        check("etcd members have peer connections", host(one), Outcome::Warn, detail, Some(&hint))
    };
    members.apart().into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::Member;

    #[test]
    fn each_pair_of_voters_that_do_not_hear_each_other_is_named_once() {
        let desired = crate::model::desired::sample(3);
        let said = |apart: [&[u64]; 3]| {
            let member = |(at, apart): (usize, &[u64])| {
                let apart = apart.iter().copied().collect();
                (desired.hosts[at].peer_url(), Member { id: at as u64, healthy: true, apart, ..Member::default() })
            };
            let members = Members(apart.into_iter().enumerate().map(member).collect());
            let of = |check: Check| (check.host.map(|host| host.to_string()), check.outcome, check.detail);
            checks(&desired, &members).into_iter().map(of).collect::<Vec<_>>()
        };
        assert!(said([&[], &[], &[]]).is_empty());
        assert!(said([&[], &[2], &[]]).is_empty(), "cp3 says that it hears cp2");
        let detail = "the members of cp2 and cp3 have no peer connection: together they are no quorum, so fewer \
                      members may fail";
        assert_eq!(said([&[], &[2], &[1]]), [(Some("cp2".to_owned()), Outcome::Warn, detail.to_owned())]);
    }
}
