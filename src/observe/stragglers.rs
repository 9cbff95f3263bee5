//! Stragglers: how long those who take longer than all others are waited for, and who is waited for in any case.
//!
//! In: who is through, and how long it took. Out: the moment from which the others need not wait any more. Who is left behind then
//! is no failure: it is asked again when there is nothing else to do.

use crate::model::desired::{Host, Role};
use std::time::Duration;
use tokio::time::Instant;

/// So much longer than the others somebody may always take.
const GRACE: Duration = Duration::from_secs(2);

/// For whom is waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// For everybody, each with deadlines of its own.
    ForAll,
    /// For everybody but stragglers.
    ForMost,
    /// Only for those who are through already.
    ForNobody,
}

/// The pace of those who are through.
#[derive(Debug, Clone)]
pub struct Stragglers {
    last: Instant,
    slowest: Duration,
}

impl Stragglers {
    /// Nobody is through yet.
    pub fn start() -> Self {
        Self { last: Instant::now(), slowest: Duration::ZERO }
    }

    /// Somebody is through, which took so long.
    pub fn through(&mut self, took: Duration) {
        self.last = Instant::now();
        self.slowest = self.slowest.max(took);
    }

    /// Until when the others are waited for: as long again as the slowest has taken, counted from the last who came through.
    pub fn until(&self) -> Instant {
        self.last + self.slowest.max(GRACE)
    }
}

/// Whether the plan for all others depends on what this host says: then its silence may never be haste of ours.
pub fn decides(host: &Host) -> bool {
    [Role::Etcd, Role::ControlPlane, Role::LoadBalancer].iter().any(|role| host.is(*role))
}

/// Whether this host may stop a run for all others, by its lock, its key or what it says of itself: only where it carries the cluster's data or
/// API. Any other one is left out of the run and named.
pub fn carries(host: &Host) -> bool {
    [Role::Etcd, Role::ControlPlane].iter().any(|role| host.is(*role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stragglers_get_as_long_again_as_the_slowest_and_never_less_than_the_grace() {
        let mut pace = Stragglers::start();
        assert_eq!(pace.until() - pace.last, GRACE);
        pace.through(Duration::from_secs(7));
        pace.through(Duration::from_millis(10));
        assert_eq!(pace.until() - pace.last, Duration::from_secs(7));
    }
}
