//! Membership changes: one idempotent change, retried if etcd refuses it only temporarily.
//!
//! In: a [`MemberChange`] by peer URL. Out: the list reflects the change, or why not. The plan and its precondition
//! decide whether it is safe; etcd's own strict checks stay enabled and are not worked around.

use super::view::Listed;
use super::{Access, EtcdError, Link, ask};
use crate::model::names::PeerUrl;
use crate::protocol::MemberChange;
use etcd_client::MemberAddOptions;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Temporary refusals of etcd, by the exact text of its errors.
const FOR_NOW: [&str; 7] = [
    // A learner that is still catching up. As the next two: an earlier request without an answer may have been applied
    // after the list was read, and the list shows it at the next attempt.
    "etcdserver: can only promote a learner member",
    "etcdserver: Peer URLs already exists",
    "etcdserver: member not found",
    // A member that has only just connected.
    "etcdserver: unhealthy cluster",
    "etcdserver: leader changed",
    "etcdserver: no leader",
    "etcdserver: request timed out",
];
/// etcd's answer to a follower that is asked to transfer the leadership.
const NOT_LEADER: &str = "etcdserver: not leader";
/// The interval between retries.
const AGAIN: Duration = Duration::from_millis(100);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(5);

/// Makes one change, retrying until `timeout`; the leadership is transferred in one attempt, because each costs an
/// election timeout.
pub async fn change(access: &Access, change: &MemberChange, timeout: Duration) -> Result<(), EtcdError> {
    let until = Instant::now() + if matches!(change, MemberChange::Lead(_)) { Duration::ZERO } else { timeout };
    loop {
        match Box::pin(once(access, change)).await {
            Err(error) if error.is_temporary() && Instant::now() < until => sleep(AGAIN).await,
            outcome => return outcome,
        }
    }
}

impl EtcdError {
    /// Whether a retry of a change may help. A request without an answer is looked up in the list before it is sent
    /// again.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { message, .. } => FOR_NOW.iter().any(|text| message.contains(text)),
            Self::Silent { .. } | Self::Leaderless | Self::Transport { .. } | Self::NotListening { .. } => true,
            Self::Url(_) | Self::NoSuchMember { .. } | Self::Unfit { .. } => false,
        }
    }
}

async fn once(access: &Access, change: &MemberChange) -> Result<(), EtcdError> {
    let mut link = access.connect(CALL).await?;
    let members = link.members(CALL).await?;
    match change {
        MemberChange::Remove(peer) => match find(&members, peer) {
            None => Ok(()),
            Some(member) => {
                ask("remove a member", CALL, link.0.member_remove(member.id)).await?;
                super::room::disarm_of(&mut link, member.id).await
            }
        },
        MemberChange::AddLearner(peer) => match find(&members, peer) {
            Some(member) if member.learner => Ok(()),
            Some(_) => Err(EtcdError::Unfit { peer: peer.to_string(), what: "is already a voter" }),
            None => add(&mut link, peer).await,
        },
        MemberChange::Promote(peer) => match find(&members, peer) {
            None => Err(EtcdError::NoSuchMember { peer: peer.to_string() }),
            Some(member) if !member.learner => Ok(()),
            Some(member) => ask("promote a member", CALL, link.0.member_promote(member.id)).await.map(|_| ()),
        },
        MemberChange::Move(from, to) => match (find(&members, from), find(&members, to)) {
            (None, Some(_)) => Ok(()),
            (None, None) => Err(EtcdError::NoSuchMember { peer: from.to_string() }),
            (Some(_), Some(_)) => Err(EtcdError::Unfit { peer: to.to_string(), what: "is already another member" }),
            (Some(member), None) => {
                ask("move a member", CALL, link.0.member_update(member.id, vec![to.as_str().to_owned()]))
                    .await
                    .map(|_| ())
            }
        },
        MemberChange::Lead(peer) => match find(&members, peer) {
            None => Err(EtcdError::NoSuchMember { peer: peer.to_string() }),
            Some(member) => {
                let status = ask("report its status", CALL, link.0.status()).await?;
                if status.leader() == 0 {
                    return Err(EtcdError::Leaderless);
                }
                // Only the leader can transfer; if another member leads already, that is the goal.
                if status.header().is_none_or(|h| h.member_id() != status.leader()) {
                    return Ok(());
                }
                match ask("transfer the leadership", CALL, link.0.move_leader(member.id)).await {
                    // It lost the leadership meanwhile.
                    Err(EtcdError::Refused { message, .. }) if message.contains(NOT_LEADER) => Ok(()),
                    other => other.map(|_| ()),
                }
            }
        },
    }
}

async fn add(link: &mut Link, peer: &PeerUrl) -> Result<(), EtcdError> {
    let options = MemberAddOptions::new().with_is_learner();
    ask("add a learner", CALL, link.0.member_add([peer.as_str()], Some(options))).await.map(|_| ())
}

fn find<'a>(members: &'a [Listed], peer: &PeerUrl) -> Option<&'a Listed> {
    members.iter().find(|m| m.peers.iter().any(|url| url == peer.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_by_an_election_or_after_a_lost_answer_are_temporary_and_those_of_the_change_itself_are_not() {
        let refused =
            |message: &str| EtcdError::Refused { doing: "change", message: message.to_owned() }.is_temporary();
        // The texts of etcd's rpctypes.
        for message in [
            "etcdserver: no leader",
            "etcdserver: leader changed",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: unhealthy cluster",
            "etcdserver: can only promote a learner member which is in sync with leader",
            "etcdserver: can only promote a learner member",
            "etcdserver: Peer URLs already exists",
            "etcdserver: member not found",
        ] {
            assert!(refused(message), "{message}");
        }
        for message in [
            "etcdserver: re-configuration failed due to not enough started members",
            "etcdserver: too many learner members in cluster",
        ] {
            assert!(!refused(message), "{message}");
        }
        assert!(!EtcdError::NoSuchMember { peer: "https://10.0.0.12:2380".to_owned() }.is_temporary());
    }
}
