//! `hactl status`: the checks that end every `up`, without changes and without quorum.

use super::{Choices, Failure, Session};
use crate::model::check::{Check, Outcome};
use crate::model::facts::{Etcd, Facts};
use crate::observe::{QueryScope, Wait};
use crate::reconcile::Round;
use std::time::Duration;

/// The longest failover of the VIP: a keepalived that is stopped leaves it in place for three seconds.
const FAILOVER: Duration = Duration::from_secs(5);

/// The result of `status`.
pub struct Status {
    /// All observed facts.
    pub facts: Facts,
    /// The named checks.
    pub checks: Vec<Check>,
}

impl Status {
    /// The worst outcome of all checks.
    pub fn worst(&self) -> Outcome {
        self.checks.iter().map(|c| c.outcome).max().unwrap_or(Outcome::Pass)
    }
}

/// Observes and checks.
///
/// # Errors
/// The state or the bundle cannot be used; a cluster that is down is a result, not an error.
pub async fn status(session: &Session) -> Result<Status, Failure> {
    let state = session.state(false).await?;
    let mut look = Round::with(session, &state, Wait::ForAll, QueryScope::Presented).await?;
    let mut checks = look.checks(session).await;
    if crate::observe::may_be_failover(&checks) {
        tokio::time::sleep(FAILOVER).await;
        look = Round::with(session, &state, Wait::ForAll, QueryScope::Presented).await?;
        checks = look.checks(session).await;
    }
    // Whether `up` would have nothing to do; without quorum the checks have hints of their own.
    let plan =
        matches!(look.facts.etcd, Etcd::HasQuorum(_)).then(|| look.plan(&state, &Choices::default(), &session.desired));
    if plan.is_some_and(|plan| plan.is_ok_and(|plan| plan.is_empty())) {
        checks = checks.into_iter().map(Check::beyond_up).collect();
    }
    Ok(Status { facts: look.facts, checks })
}
