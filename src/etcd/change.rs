//! Changing the member list: one change, done already is done, and what etcd refuses for now is tried again.
//!
//! In: a [`MemberChange`] by peer URL. Out: the change stands in the list, or why not. Whether it is wise is decided by
//! the plan and its guard; etcd's own strict checks stay on and are not worked around.

use super::view::Listed;
use super::{Access, EtcdError, Link, ask};
use crate::model::names::PeerUrl;
use crate::protocol::MemberChange;
use etcd_client::MemberAddOptions;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What etcd refuses only for now, by the exact text of its errors.
const FOR_NOW: [&str; 5] = [
    // A learner that is still catching up.
    "can only promote a learner member which is in sync with leader",
    // A member that was connected only a moment ago.
    "etcdserver: unhealthy cluster",
    "etcdserver: leader changed",
    "etcdserver: no leader",
    "etcdserver: request timed out",
];
/// What etcd says to who asks a follower to hand over the lead.
const NOT_LEADER: &str = "etcdserver: not leader";
/// How often a refused change is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(5);

/// Makes one change, trying again until `timeout` is over; the lead is handed over in one try, for each costs an election's time.
pub async fn change(access: &Access, change: &MemberChange, timeout: Duration) -> Result<(), EtcdError> {
    let until = Instant::now() + if matches!(change, MemberChange::Lead(_)) { Duration::ZERO } else { timeout };
    loop {
        match Box::pin(once(access, change)).await {
            Err(error) if for_now(&error) && Instant::now() < until => sleep(AGAIN).await,
            outcome => return outcome,
        }
    }
}

/// Whether trying again may help. What was sent without an answer is looked up in the list before it is sent again.
fn for_now(error: &EtcdError) -> bool {
    match error {
        EtcdError::Refused { message, .. } => FOR_NOW.iter().any(|text| message.contains(text)),
        EtcdError::Silent { .. }
        | EtcdError::Leaderless
        | EtcdError::Transport { .. }
        | EtcdError::NotListening { .. } => true,
        EtcdError::Url(_) | EtcdError::NoSuchMember { .. } | EtcdError::Unfit { .. } => false,
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
            Some(_) => Err(EtcdError::Unfit { peer: peer.to_string(), what: "is a voting member already" }),
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
            (Some(_), Some(_)) => Err(EtcdError::Unfit { peer: to.to_string(), what: "is another member already" }),
            (Some(member), None) => {
                ask("move a member", CALL, link.0.member_update(member.id, vec![to.as_str().to_owned()]))
                    .await
                    .map(|_| ())
            }
        },
        MemberChange::Lead(peer) => match find(&members, peer) {
            None => Err(EtcdError::NoSuchMember { peer: peer.to_string() }),
            Some(member) => {
                let status = ask("tell its status", CALL, link.0.status()).await?;
                if status.leader() == 0 {
                    return Err(EtcdError::Leaderless);
                }
                // Only the leader can hand over; where another leads already, that is what was wanted.
                if status.header().is_none_or(|h| h.member_id() != status.leader()) {
                    return Ok(());
                }
                match ask("hand over the lead", CALL, link.0.move_leader(member.id)).await {
                    // It lost it meanwhile.
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
