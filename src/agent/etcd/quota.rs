//! A member that has reached its quota frees space by itself: etcd rejects writes until the alarm is disarmed.
//!
//! In: the member of this host. Out: its database is compacted to the newest value of every key and defragmented, and
//! its own alarm is disarmed; or the stored data itself fills the quota, and the alarm stays. Each host with this fault
//! does that for its own member, one after the other.

use super::member::{access, make_room, trouble};
use crate::agent::host::Host;
use crate::agent::lock;
use crate::agent::machine::root::Root;
use crate::agent::op_error::{Outcome, failed};
use crate::etcd::{self, Election};
use crate::model::facts::EtcdView;
use crate::model::recovery::Room;
use crate::protocol::EtcdAsk;
use std::time::Duration;
use tokio::time::sleep;

/// How long the member may take to report its sizes.
const LOOK: Duration = Duration::from_secs(5);
/// Between two looks at whether a person's run waits.
const WANTED_EVERY: Duration = Duration::from_secs(1);

/// Frees space, and disarms the alarm of this member. A run that a person starts does not wait for it.
pub(crate) async fn free_space(host: &Host, ask: &EtcdAsk) -> Outcome<()> {
    tokio::select! {
        freed = freed(host, ask) => freed,
        () = wanted(&host.root) => Err(failed("a run that a person started gets the lock; etcd ends what it has begun")),
    }
}

/// Compacts, defragments if that helps, and disarms. If it was interrupted, the next attempt continues.
async fn freed(host: &Host, ask: &EtcdAsk) -> Outcome<()> {
    let access = access(&host.root, ask)?;
    let look = async || {
        let seen = Box::pin(etcd::view(&access, LOOK, Election::NotAwaited)).await;
        seen.map(|(view, _)| view).map_err(|e| trouble(&e))
    };
    make_room(host, ask, Room::Compact).await?;
    let mut view = look().await?;
    if is_near(&view) {
        make_room(host, ask, Room::Defragment).await?;
        view = look().await?;
    }
    if let Some(why) = still_full(&view) {
        return Err(failed(why));
    }
    etcd::disarm_nospace(&access, view.member).await.map_err(|e| trouble(&e))
}

/// Returns once a person's run waits for the lock of this host.
async fn wanted(root: &Root) {
    while !lock::is_wanted(root) {
        sleep(WANTED_EVERY).await;
    }
}

/// Whether the file takes more than four fifths of the quota: then the alarm would soon be raised again.
fn is_near(view: &EtcdView) -> bool {
    view.quota_bytes <= 0 || view.db_bytes / 4 >= view.quota_bytes / 5
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
    fn a_file_near_the_quota_is_defragmented_and_one_that_an_earlier_attempt_made_small_is_not() {
        let view = |db_bytes, quota_bytes| EtcdView { db_bytes, quota_bytes, ..EtcdView::default() };
        assert!(is_near(&view(2 << 30, 2 << 30)) && is_near(&view(17 << 27, 20 << 27)));
        assert!(!is_near(&view(15 << 27, 20 << 27)));
        assert!(is_near(&view(1, 0)), "a member that does not report its quota");
    }

    #[test]
    fn the_alarm_stays_while_the_newest_values_alone_fill_the_quota() {
        let view = |db_bytes, quota_bytes| EtcdView { db_bytes, quota_bytes, ..EtcdView::default() };
        assert_eq!(still_full(&view(1 << 30, 2 << 30)), None);
        assert_eq!(still_full(&view(1 << 30, 0)), None, "a member that does not report its quota");
        assert!(still_full(&view(2 << 30, 2 << 30)).is_some_and(|why| why.contains("2048 of the quota of 2048 MiB")));
    }
}
