//! A store that has reached its quota: room is made, and the alarm taken off only where there is some.
//!
//! In: who is how full. Out: who is how full afterwards. Nothing that is stored is lost: what goes is what was replaced already.

use super::bundles::{asked, machine};
use super::{Failure, Session};
use crate::model::desired::Role;
use crate::model::event::Event;
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

/// Written anew, a store takes seconds per GB.
const WITHIN: Duration = Duration::from_secs(600);

/// Makes room on all members, one after the other.
///
/// # Errors
/// [`Refusal::StillFull`] where what is stored now fills the quota; then the alarm stays.
pub(super) async fn make_room(
    session: &Session,
    full: &[Fullness],
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Vec<Fullness>, Failure> {
    if !choices.yes {
        let what = "etcd forgets all but the newest value of every key, its members write their stores anew, one after \
                    the other, and the alarm is taken off";
        ask.yes("Go on?", what)?;
    }
    let Some(first) = full.first() else { return Ok(Vec::new()) };
    make(session, &first.host, Room::Compact).await?;
    for one in full {
        make(session, &one.host, Room::Defragment).await?;
    }
    let mut now = fullness(session, full).await?;
    if now.iter().any(is_full) {
        // Only the member that was asked has forgotten by then for certain; the others a moment later.
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

/// All voters that answer, if a member has the alarm that its store has reached its quota.
pub(super) async fn alarmed(session: &Session) -> Vec<Fullness> {
    let answers = asked(session, |host| host.is(Role::Etcd)).await;
    let views: Vec<_> = answers.into_iter().filter_map(|(host, facts)| Some((host, facts.ok()?.etcd?.view?))).collect();
    crate::plan::alarmed(views.iter().map(|(host, view)| (host, view)).collect())
}

/// Takes off the alarm that members' data differs, where it is on and all of them hold the same keys. Says whether it did.
pub(super) async fn disarmed(session: &Session, look: &Round) -> Result<bool, Failure> {
    let views = session
        .desired
        .with(Role::Etcd)
        .filter_map(|host| Some((&host.name, look.facts.host(&host.name)?.etcd.as_ref()?.view.as_ref()?)));
    let mut on = views.filter(|(_, view)| view.linearizable && view.alarms.iter().any(|alarm| alarm == CORRUPT));
    let Some((through, _)) = on.next() else { return Ok(false) };
    match look.hashes(session).await {
        HashCheck::Same { members, .. } => {
            make(session, through, Room::Agreed).await?;
            let text = format!("etcd's alarm CORRUPT is off: {members} members hold the same keys");
            session.sink.emit(Event::Note { text });
            Ok(true)
        }
        HashCheck::Differs(_) | HashCheck::Incomparable(_) | HashCheck::Unknown(_) => Ok(false),
    }
}

fn is_full(one: &Fullness) -> bool {
    one.quota_bytes > 0 && one.db_bytes >= one.quota_bytes
}

async fn make(session: &Session, host: &HostName, room: Room) -> Result<(), Failure> {
    let doing = match room {
        Room::Compact => format!("etcd forgets what was replaced (asked on {host})"),
        Room::Defragment => format!("{host} writes its store anew"),
        Room::Disarm | Room::Agreed => "etcd takes writes again".to_owned(),
    };
    session.sink.emit(Event::Phase { doing });
    let etcd = session.desired.host(host).and_then(|host| crate::render::etcd_ask(&session.desired, host));
    let etcd = etcd.ok_or(Failure::NoMember)?;
    let machine = machine(session, host)?;
    match machine.call(Op::MakeRoom { etcd, room }, Payload::None, WITHIN, &|_| {}).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Host { host: host.clone(), error: Box::new(error) }),
    }
}

/// How full the same members are now.
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
