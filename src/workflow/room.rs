//! Frees space when etcd has exceeded its quota, and disarms the alarm once there is some.
//!
//! In: the database sizes of the members. Out: their sizes afterwards. No current data is lost: only superseded
//! revisions are compacted.

use super::bundles::{asked, machine};
use super::{Failure, Session};
use crate::model::desired::Role;
use crate::model::facts::CORRUPT;
use crate::model::names::HostName;
use crate::model::recovery::{Fullness, Room};
use crate::model::refusal::Refusal;
use crate::observe::HashCheck;
use crate::protocol::Op;
use crate::reconcile::Round;
use crate::reconcile::{Ask, Choices};
use crate::transport::Payload;
use std::time::Duration;

/// Timeout of a step; defragmentation takes seconds per GB.
const WITHIN: Duration = Duration::from_secs(600);

/// Frees space on all members, one after the other.
///
/// # Errors
/// [`Refusal::StillFull`] if the current data fills the quota; then the alarm stays.
pub(super) async fn make_room(
    session: &Session,
    full: &[Fullness],
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Vec<Fullness>, Failure> {
    if !choices.yes {
        let what = "etcd is compacted to the newest value of every key, its members are defragmented one after the \
                    other, and the alarm is disarmed";
        ask.yes("Continue?", what)?;
    }
    let Some(first) = full.first() else { return Ok(Vec::new()) };
    make(session, &first.host, Room::Compact).await?;
    for one in full {
        make(session, &one.host, Room::Defragment).await?;
    }
    let mut now = fullness(session, full).await?;
    if now.iter().any(is_full) {
        // Only the queried member is certain to have applied the compaction by then; the others may lag.
        for one in now.iter().filter(|one| is_full(one)) {
            make(session, &one.host, Room::Defragment).await?;
        }
        now = fullness(session, full).await?;
    }
    if now.iter().any(is_full) {
        return Err(Refusal::StillFull { members: now }.into());
    }
    make(session, &first.host, Room::Disarm).await?;
    Ok(now)
}

/// All voters that answer, if a member has the alarm NOSPACE.
pub(super) async fn alarmed(session: &Session) -> Vec<Fullness> {
    let answers = asked(session, |host| host.is(Role::Etcd)).await;
    let views: Vec<_> = answers.into_iter().filter_map(|(host, facts)| Some((host, facts.ok()?.etcd?.view?))).collect();
    crate::plan::alarmed(views.iter().map(|(host, view)| (host, view)).collect())
}

/// Disarms the alarm CORRUPT if all members hold the same data. Returns whether it did.
pub(super) async fn disarmed(session: &Session, look: &Round) -> Result<bool, Failure> {
    let view = |host: &HostName| look.facts.host(host)?.etcd.as_ref()?.view.as_ref();
    let views = session.desired.with(Role::Etcd).filter_map(|host| Some((&host.name, view(&host.name)?)));
    let mut on = views.filter(|(_, view)| view.linearizable && view.alarms.iter().any(|alarm| alarm == CORRUPT));
    let Some((through, _)) = on.next() else { return Ok(false) };
    match look.hashes(session).await {
        HashCheck::Same { members, .. } => {
            make(session, through, Room::Agreed).await?;
            session.sink.note(format!("disarmed etcd's alarm CORRUPT: {members} members hold the same data"));
            Ok(true)
        }
        HashCheck::Differs(_) | HashCheck::Incomparable(_) | HashCheck::Unknown(_) => Ok(false),
    }
}

fn is_full(one: &Fullness) -> bool {
    one.quota_bytes > 0 && one.db_bytes >= one.quota_bytes
}

async fn make(session: &Session, host: &HostName, room: Room) -> Result<(), Failure> {
    session.sink.phase(match room {
        Room::Compact => format!("compacting etcd (through {host})"),
        Room::Defragment => format!("defragmenting etcd on {host}"),
        Room::Disarm | Room::Agreed => "disarming etcd's alarm".to_owned(),
    });
    let etcd = session.desired.host(host).and_then(|host| crate::render::etcd_ask(&session.desired, host));
    let etcd = etcd.ok_or(Failure::NoMember)?;
    let made = machine(session, host)?.call(Op::MakeRoom { etcd, room }, Payload::None, WITHIN, &|_| {}).await;
    made.map(drop).map_err(|error| Failure::of_host(host, error))
}

/// The current database sizes of these members.
async fn fullness(session: &Session, full: &[Fullness]) -> Result<Vec<Fullness>, Failure> {
    let mut answers = asked(session, |host| full.iter().any(|one| one.host == host.name)).await;
    let mut now = Vec::new();
    for one in full {
        let answer = answers.remove(&one.host).ok_or(Failure::NoMember)?;
        let view = answer?.etcd.and_then(|etcd| etcd.view).ok_or_else(|| Failure::Odd(one.host.clone()))?;
        let (db_bytes, quota_bytes) = (view.db_bytes.unsigned_abs(), view.quota_bytes.unsigned_abs());
        now.push(Fullness { host: one.host.clone(), db_bytes, quota_bytes });
    }
    Ok(now)
}
