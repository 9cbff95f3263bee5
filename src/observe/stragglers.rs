//! Stragglers: how long a run waits for hosts that take longer than all others, and for which hosts it always waits.
//!
//! In: the hosts that are done, and how long each took. Out: the time at which the run stops waiting for the others. A
//! host that is left behind has not failed: it is queried again when there is nothing else to do.

use crate::model::desired::{Host, Role};
use std::time::Duration;
use tokio::time::Instant;

/// The additional time that every host always gets to connect.
pub const TO_CONNECT: Duration = Duration::from_secs(2);
/// The same to answer: a host with a component that hangs asks it for 5 s.
pub const TO_ANSWER: Duration = Duration::from_secs(6);

/// Which hosts a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// All hosts, each with its own deadlines.
    ForAll,
    /// All hosts except stragglers.
    ForMost,
    /// Only the hosts that are done already.
    ForNobody,
}

/// How long the hosts took that are done.
#[derive(Debug, Clone)]
pub struct Stragglers {
    grace: Duration,
    last: Instant,
    slowest: Duration,
}

impl Stragglers {
    /// No host is done yet; each gets at least this time.
    pub fn start(grace: Duration) -> Self {
        Self { grace, last: Instant::now(), slowest: Duration::ZERO }
    }

    /// A host is done after this time.
    pub fn through(&mut self, took: Duration) {
        self.last = Instant::now();
        self.slowest = self.slowest.max(took);
    }

    /// The deadline for the others: the time that the slowest took, counted from the host that was done last.
    pub fn until(&self) -> Instant {
        self.last + self.slowest.max(self.grace)
    }
}

/// Whether the plan for all other hosts depends on the answer of this one: then it is never left behind as a straggler.
pub fn decides(host: &Host) -> bool {
    host.may_vote() || [Role::ControlPlane, Role::LoadBalancer].iter().any(|role| host.is(*role))
}

/// Whether this host may stop a run for all others, by its lock, its key or its report: only if it runs etcd or the
/// API. Any other host is left out of the run and reported.
pub fn carries(host: &Host) -> bool {
    host.may_vote() || host.is(Role::ControlPlane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stragglers_get_as_long_again_as_the_slowest_and_never_less_than_the_grace() {
        let mut stragglers = Stragglers::start(TO_CONNECT);
        assert_eq!(stragglers.until() - stragglers.last, TO_CONNECT);
        stragglers.through(Duration::from_secs(7));
        stragglers.through(Duration::from_millis(10));
        assert_eq!(stragglers.until() - stragglers.last, Duration::from_secs(7));
    }
}
