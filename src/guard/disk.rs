//! The disk of the etcd member: whether it stalls, and whether the leader's is much slower than another one's.
//!
//! In: two looks at the syncs of the own member. Out: the time that syncs take, for the heartbeat, and the fault
//! `EtcdDiskStalled`.

use super::shared::{Shared, turns};
use crate::agent::probe::{Syncs, syncs};
use crate::model::fault::FaultKind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks. A disk stalls if no sync ended between them, and a thread waited at both.
const EVERY: Duration = Duration::from_secs(10);
/// So many looks are compared: the time of syncs is that of the last minute.
const LOOKS: usize = 7;

/// How fast the disk of a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Speed {
    /// In so many milliseconds nine of ten syncs of the last minute ended.
    pub sync_ms: Option<u32>,
    /// Whether the member leads.
    pub leads: bool,
    /// Whether it says that it is no learner.
    pub votes: bool,
}

/// Looks until the guard ends.
pub(super) async fn watch(shared: Arc<Shared>) {
    let mut turn = turns(EVERY);
    let mut looks: VecDeque<Syncs> = VecDeque::new();
    loop {
        turn.tick().await;
        let (mut speed, mut stalls) = (Speed::default(), false);
        match syncs().await {
            // A member that does not answer is another fault.
            None => looks.clear(),
            Some(look) => {
                stalls = looks.back().is_some_and(|last| last.waits && look.waits && last.all() == look.all());
                let sync_ms = looks.front().and_then(|first| look.nine_of_ten_ms(first));
                speed = Speed { sync_ms, leads: look.leads, votes: look.votes };
                looks.push_back(look);
                looks.drain(..looks.len().saturating_sub(LOOKS));
            }
        }
        let why = || format!("etcd waits for it, and no write of its log has ended for {} s", EVERY.as_secs());
        let found: Vec<_> = stalls.then(|| (FaultKind::EtcdDiskStalled, why())).into_iter().collect();
        shared.with(|state| state.speed(speed));
        shared.found(&[FaultKind::EtcdDiskStalled], &found);
    }
}
