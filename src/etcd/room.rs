//! Frees space in a database that has reached its quota: compaction, defragmentation, disarming the alarm.
//!
//! In: [`Access`] and the step, a [`Room`]. Out: done; idempotent. The present value of a key is never changed.

use super::{Access, EtcdError, Link, ask};
use crate::model::recovery::Room;
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions};
use std::time::Duration;

/// How long a call without work may take.
const CALL: Duration = Duration::from_secs(5);
/// etcd's exact error for a revision that was compacted before.
const DONE: &str = "required revision has been compacted";

/// Performs the step; `within` is the timeout for calls whose duration grows with the database.
pub async fn make_room(access: &Access, room: Room, within: Duration) -> Result<(), EtcdError> {
    let mut link = access.connect(CALL).await?;
    match room {
        Room::Compact => {
            let status = ask("report its status", CALL, link.0.status()).await?;
            let revision = status.header().map_or(0, etcd_client::ResponseHeader::revision);
            // Physical: answered only once the compaction is complete.
            let options = CompactionOptions::new().with_physical();
            match ask("compact its revisions", within, link.0.compact(revision, Some(options))).await {
                Err(EtcdError::Refused { message, .. }) if message.contains(DONE) => Ok(()),
                other => other.map(drop),
            }
        }
        Room::Defragment => ask("defragment its database", within, link.0.defragment()).await.map(drop),
        Room::Disarm => disarm(&mut link, AlarmType::Nospace, |_| true).await,
        Room::Agreed => disarm(&mut link, AlarmType::Corrupt, |_| true).await,
    }
}

/// Disarms the alarms of one kind that these members raised.
async fn disarm(link: &mut Link, kind: AlarmType, whose: impl Fn(u64) -> bool) -> Result<(), EtcdError> {
    let list = ask("list its alarms", CALL, link.0.alarm(AlarmAction::Get, kind, None)).await?;
    for alarm in list.alarms().iter().filter(|alarm| whose(alarm.member_id())) {
        let mut options = AlarmOptions::new();
        options.with_member(alarm.member_id());
        let off = link.0.alarm(AlarmAction::Deactivate, kind, Some(options));
        ask("disarm its alarm", CALL, off).await?;
    }
    Ok(())
}

/// Disarms the alarm NOSPACE of one member; none: nothing.
///
/// # Errors
/// etcd does not answer or refuses.
pub async fn disarm_nospace(access: &Access, member: u64) -> Result<(), EtcdError> {
    let mut link = access.connect(CALL).await?;
    disarm(&mut link, AlarmType::Nospace, |id| id == member).await
}

/// Disarms the alarms of a removed member: etcd keeps them, and nothing else would disarm them.
pub(super) async fn disarm_of(link: &mut Link, member: u64) -> Result<(), EtcdError> {
    disarm(link, AlarmType::Nospace, |id| id == member).await?;
    disarm(link, AlarmType::Corrupt, |id| id == member).await
}
