//! A member that has reached its quota frees space by itself: etcd rejects writes until the alarm is disarmed.
//!
//! In: the member of this host. Out: its database is compacted to the newest value of every key and defragmented, and
//! its own alarm is disarmed; or the stored data itself fills the quota, and the alarm stays. Each host with this fault
//! does that for its own member, one after the other.

use super::member::{access, trouble};
use crate::agent::host::Host;
use crate::agent::op_error::{Outcome, failed};
use crate::etcd::{self, Election};
use crate::model::facts::EtcdView;
use crate::model::recovery::Room;
use crate::protocol::EtcdAsk;
use std::time::Duration;

/// For compaction and defragmentation: seconds per GB.
const WITHIN: Duration = Duration::from_secs(590);
/// How long the member may take to report its sizes.
const LOOK: Duration = Duration::from_secs(5);

/// Frees space, and disarms the alarm of this member.
pub(crate) async fn free_space(host: &Host, ask: &EtcdAsk) -> Outcome<()> {
    let access = access(&host.root, ask)?;
    for room in [Room::Compact, Room::Defragment] {
        Box::pin(etcd::make_room(&access, room, WITHIN)).await.map_err(|e| trouble(&e))?;
    }
    let (view, _) = Box::pin(etcd::view(&access, LOOK, Election::NotAwaited)).await.map_err(|e| trouble(&e))?;
    if let Some(why) = still_full(&view) {
        return Err(failed(why));
    }
    etcd::disarm_nospace(&access, view.member).await.map_err(|e| trouble(&e))
}

/// Why the alarm would be raised again at once.
fn still_full(view: &EtcdView) -> Option<String> {
    let mib = |bytes: i64| bytes >> 20;
    (view.quota_bytes > 0 && view.db_bytes >= view.quota_bytes).then(|| {
        format!(
            "the newest values alone take {} of the quota of {} MiB; delete keys, or raise etcd.quotaGiB in the inventory",
            mib(view.db_bytes),
            mib(view.quota_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_stays_while_the_newest_values_alone_fill_the_quota() {
        let view = |db_bytes, quota_bytes| EtcdView { db_bytes, quota_bytes, ..EtcdView::default() };
        assert_eq!(still_full(&view(1 << 30, 2 << 30)), None);
        assert_eq!(still_full(&view(1 << 30, 0)), None, "a member that does not report its quota");
        assert!(still_full(&view(2 << 30, 2 << 30)).is_some_and(|why| why.contains("2048 of the quota of 2048 MiB")));
    }
}
