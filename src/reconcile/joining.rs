//! Connects the hosts of a run, and locks them once the run has a lock.
//!
//! In: the hosts, then the holder of the lock. Out: the arrivals in the order in which they finish, so that a slow host
//! delays no other. Dropping it abandons all connections in progress.

use super::fleet::LOCK_TIMEOUT;
use crate::model::desired::Host;
use crate::model::names::HostName;
use crate::protocol::{Op, Reply};
use crate::transport::{Agent, Connect, HostError, Payload};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How long a run waits for a program of the host itself that has the lock: a guard that restarts a component, or the
/// renewal of certificates.
const YIELDS: Duration = Duration::from_secs(60);
/// Between two attempts.
const AGAIN: Duration = Duration::from_millis(250);

/// Connections in progress.
pub(super) struct Joining {
    tasks: JoinSet<Arrival>,
    under_way: BTreeSet<HostName>,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
}

/// A host that is done.
pub(super) struct Arrival {
    pub host: HostName,
    pub took: Duration,
    pub outcome: Outcome,
}

/// The result.
pub(super) enum Outcome {
    Entered(Arc<dyn Agent>),
    NotEntered(Box<HostError>),
    Locked(Arc<dyn Agent>),
    NotLocked(Box<HostError>),
    Held {
        by: String,
        since: String,
    },
    /// The person interrupted the run.
    Interrupted,
}

impl Joining {
    /// Empty; `at_once` is the number of connections in parallel.
    pub fn new(at_once: usize, stop: CancellationToken) -> Self {
        let slots = Arc::new(Semaphore::new(at_once.max(1)));
        Self { tasks: JoinSet::new(), under_way: BTreeSet::new(), slots, stop }
    }

    /// Connects to a host when a slot is free.
    pub fn connect(&mut self, host: &Host, connect: &Arc<dyn Connect>) {
        self.under_way.insert(host.name.clone());
        let (host, target, connect) = (host.name.clone(), host.ssh.clone(), Arc::clone(connect));
        let (slots, stop) = (Arc::clone(&self.slots), self.stop.clone());
        self.tasks.spawn(async move {
            // The semaphore is fair, and never closed.
            let _turn = slots.acquire_owned().await;
            let begun = Instant::now();
            let outcome = tokio::select! {
                result = connect.connect(&host, &target) => match result {
                    Ok(machine) => Outcome::Entered(machine),
                    Err(error) => Outcome::NotEntered(Box::new(error)),
                },
                () = stop.cancelled() => Outcome::Interrupted,
            };
            Arrival { host, took: begun.elapsed(), outcome }
        });
    }

    /// Takes the lock of a host.
    pub fn lock(&mut self, machine: Arc<dyn Agent>, holder: String) {
        self.under_way.insert(machine.name().clone());
        self.tasks.spawn(async move {
            let begun = Instant::now();
            let outcome = lock(&*machine, holder).await;
            let host = machine.name().clone();
            let outcome = match outcome {
                Ok(None) => Outcome::Locked(machine),
                Ok(Some((by, since))) => Outcome::Held { by, since },
                Err(error) => Outcome::NotLocked(error),
            };
            Arrival { host, took: begun.elapsed(), outcome }
        });
    }

    /// The next host that is done; `None` if nothing is in progress, or none was done before `until`.
    pub async fn next(&mut self, until: Option<Instant>) -> Option<Arrival> {
        let late = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let joined = tokio::select! {
            biased;
            joined = self.tasks.join_next() => joined?,
            () = late => return None,
        };
        match joined {
            Ok(arrival) => {
                self.under_way.remove(&arrival.host);
                Some(arrival)
            }
            // No task is aborted while this exists, so the task panicked: propagate the panic.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Hosts that are done but for which the run no longer waited.
    pub fn arrived(&mut self) -> Vec<Arc<dyn Agent>> {
        let mut there: Vec<Arc<dyn Agent>> = Vec::new();
        while let Some(joined) = self.tasks.try_join_next() {
            match joined.map(|arrival| arrival.outcome) {
                Ok(Outcome::Entered(machine) | Outcome::Locked(machine)) => there.push(machine),
                // There is no connection to close.
                Ok(_) => {}
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        there
    }

    /// The hosts in progress.
    pub fn under_way(&self) -> &BTreeSet<HostName> {
        &self.under_way
    }
}

/// Takes the lock of a host; `Some`: its holder, and since when. A program of the host itself that has it ends soon.
pub(super) async fn lock(machine: &dyn Agent, holder: String) -> Result<Option<(String, String)>, Box<HostError>> {
    let until = Instant::now() + YIELDS;
    loop {
        let asked = Op::Lock { holder: holder.clone() };
        match machine.call(asked, Payload::None, LOCK_TIMEOUT, &|_| {}).await {
            Ok(Reply::Held { yields: true, .. }) if Instant::now() < until => sleep(AGAIN).await,
            Ok(Reply::Held { by, since, .. }) => return Ok(Some((by, since))),
            Ok(_) => return Ok(None),
            Err(error) => return Err(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Stub;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The holder at the end of locking, if the lock is held for some attempts, and the seconds that it took.
    async fn locked(left: u32, yields: bool) -> (Option<String>, u64) {
        let left = AtomicU32::new(left);
        let answer = |_: Op| -> Result<Reply, HostError> {
            let free = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
            let held = Reply::Held { by: "its guard".to_owned(), since: "now".to_owned(), yields };
            Ok(if free { Reply::Locked { epoch: 1, wanted: false } } else { held })
        };
        let host = Stub("cp1".parse().unwrap(), answer);
        let begun = Instant::now();
        let held = lock(&host, "a run".to_owned()).await.unwrap();
        (held.map(|(by, _)| by), begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_a_minute_for_a_guard_and_not_for_another_run() {
        assert_eq!(locked(0, true).await, (None, 0));
        assert_eq!(locked(40, true).await, (None, 10));
        assert_eq!(locked(1000, true).await, (Some("its guard".to_owned()), 60));
        assert_eq!(locked(1, false).await, (Some("its guard".to_owned()), 0));
    }
}
