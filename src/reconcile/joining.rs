//! Hosts on their way into a run: being entered, and once the run has a lock, being locked.
//!
//! In: who is to be entered, then the name for the lock. Out: one arrival after the other, in the order of time, so that whoever takes
//! long holds up nobody. Dropping it gives up on all who are still under way.

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
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Hosts under way.
pub(super) struct Joining {
    tasks: JoinSet<Arrival>,
    under_way: BTreeSet<HostName>,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
}

/// A host that is through.
pub(super) struct Arrival {
    pub host: HostName,
    pub took: Duration,
    pub outcome: Outcome,
}

/// How it went.
pub(super) enum Outcome {
    Entered(Arc<dyn Agent>),
    NotEntered(Box<HostError>),
    Locked(Arc<dyn Agent>),
    NotLocked(Box<HostError>),
    Held {
        by: String,
        since: String,
    },
    /// The person interrupted meanwhile.
    Interrupted,
}

impl Joining {
    /// Nobody yet; so many are to be entered at once.
    pub fn new(at_once: usize, stop: CancellationToken) -> Self {
        let slots = Arc::new(Semaphore::new(at_once.max(1)));
        Self { tasks: JoinSet::new(), under_way: BTreeSet::new(), slots, stop }
    }

    /// Enters a host when it is its turn.
    pub fn connect(&mut self, host: &Host, connect: &Arc<dyn Connect>) {
        self.under_way.insert(host.name.clone());
        let (host, target, connect) = (host.name.clone(), host.ssh.clone(), Arc::clone(connect));
        let (slots, stop) = (Arc::clone(&self.slots), self.stop.clone());
        self.tasks.spawn(async move {
            // Turns are given in the order in which they were asked for; the semaphore is never closed.
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

    /// The next who is through; `None` when nobody is under way, or not before `until`.
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
            // None is ever aborted while this lives: it panicked, and so must we.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Those who are through and were not waited for any more.
    pub fn arrived(&mut self) -> Vec<Arc<dyn Agent>> {
        let mut there: Vec<Arc<dyn Agent>> = Vec::new();
        while let Some(joined) = self.tasks.try_join_next() {
            match joined.map(|arrival| arrival.outcome) {
                Ok(Outcome::Entered(machine) | Outcome::Locked(machine)) => there.push(machine),
                // Nobody to take leave of; as in `next` where one panicked.
                Ok(_) => {}
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        there
    }

    /// Who is under way.
    pub fn under_way(&self) -> &BTreeSet<HostName> {
        &self.under_way
    }
}

/// Takes the lock of a host; `Some`: who has it, and since when.
pub(super) async fn lock(machine: &dyn Agent, holder: String) -> Result<Option<(String, String)>, Box<HostError>> {
    match machine.call(Op::Lock { holder }, Payload::None, LOCK_TIMEOUT, &|_| {}).await {
        Ok(Reply::Held { by, since }) => Ok(Some((by, since))),
        Ok(_) => Ok(None),
        Err(error) => Err(Box::new(error)),
    }
}
