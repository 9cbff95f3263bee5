//! Room in a store that has reached its quota: what was replaced is forgotten, the file is written anew, the alarm taken off.
//!
//! In: [`Access`] and which [`Room`]. Out: done, also where it was done already. No value that a key has now is ever touched.

use super::{Access, EtcdError, Link, ask};
use crate::model::recovery::Room;
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions};
use std::time::Duration;

/// How long a call may take that does no work.
const CALL: Duration = Duration::from_secs(5);
/// What etcd says, word for word, of a revision that was compacted before.
const DONE: &str = "required revision has been compacted";

/// Makes it; `within` is for what grows with the store.
pub async fn make_room(access: &Access, room: Room, within: Duration) -> Result<(), EtcdError> {
    let mut link = access.connect(CALL).await?;
    match room {
        Room::Compact => {
            let status = ask("tell its status", CALL, link.0.status()).await?;
            let revision = status.header().map_or(0, etcd_client::ResponseHeader::revision);
            // Physical: answered only once the store has forgotten.
            let options = CompactionOptions::new().with_physical();
            match ask("compact its history", within, link.0.compact(revision, Some(options))).await {
                Err(EtcdError::Refused { message, .. }) if message.contains(DONE) => Ok(()),
                other => other.map(drop),
            }
        }
        Room::Defragment => ask("write its store anew", within, link.0.defragment()).await.map(drop),
        Room::Disarm => disarm(&mut link, AlarmType::Nospace, |_| true).await,
        Room::Agreed => disarm(&mut link, AlarmType::Corrupt, |_| true).await,
    }
}

/// Takes off the alarms of one kind that these members raised.
async fn disarm(link: &mut Link, kind: AlarmType, whose: impl Fn(u64) -> bool) -> Result<(), EtcdError> {
    let list = ask("list its alarms", CALL, link.0.alarm(AlarmAction::Get, kind, None)).await?;
    for alarm in list.alarms().iter().filter(|alarm| whose(alarm.member_id())) {
        let mut options = AlarmOptions::new();
        options.with_member(alarm.member_id());
        let off = link.0.alarm(AlarmAction::Deactivate, kind, Some(options));
        ask("take off its alarm", CALL, off).await?;
    }
    Ok(())
}

/// Takes off the alarms of a member that is none any more: etcd keeps them, and nobody else would ever take them off.
pub(super) async fn disarm_of(link: &mut Link, member: u64) -> Result<(), EtcdError> {
    disarm(link, AlarmType::Nospace, |id| id == member).await?;
    disarm(link, AlarmType::Corrupt, |id| id == member).await
}
