//! How many pods all drains of one process ask to leave: a limit at once, and one in time; and what they were answered.
//!
//! In: the limits, and answers. Out: turns, and counts. A drain alone has its own limit and needs none.

use crate::model::eviction::{Eviction, RESULTS};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// The limits, and when the next turn begins.
#[derive(Debug)]
pub struct Pace {
    at_once: Semaphore,
    every: Duration,
    next: Mutex<Instant>,
    /// How many had which result.
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Pace {
    /// So many at once, and one in this time.
    pub fn new(at_once: usize, every: Duration) -> Self {
        Self { at_once: Semaphore::new(at_once), every, next: Mutex::new(Instant::now()), counts: Mutex::default() }
    }

    /// Counts an eviction by its result.
    pub fn count(&self, answer: &Eviction) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(answer.result()).or_default() += 1;
    }

    /// How many evictions had which result. Every result is there.
    pub fn counted(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        RESULTS.into_iter().map(|result| (result, counts.get(result).copied().unwrap_or(0))).collect()
    }

    /// Waits for a turn, which lasts until it is dropped. Without limits it is there at once.
    pub async fn turn(pace: Option<&Self>) -> Option<SemaphorePermit<'_>> {
        let pace = pace?;
        // Nobody closes it.
        let permit = pace.at_once.acquire().await.ok();
        let at = {
            let mut next = pace.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = Instant::now().max(*next);
            *next = at + pace.every;
            at
        };
        sleep_until(at).await;
        permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn neither_limit_is_exceeded_and_nobody_waits_for_ever() {
        let pace = Pace::new(3, Duration::from_millis(50));
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let begun = Instant::now();
        let work = (0..20).map(async |_| {
            let _turn = Pace::turn(Some(&pace)).await;
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            now.fetch_sub(1, Ordering::SeqCst);
        });
        join_all(work).await;
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert!(begun.elapsed() >= Duration::from_millis(19 * 50 + 100), "{:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert!(Pace::turn(None).await.is_none());
    }
}
