//! `hactl status`: the same checks that end every `up`, without changing anything and without needing quorum.

use super::{Choices, Failure, Session};
use crate::model::check::{Check, Outcome};
use crate::model::facts::{Etcd, Facts};
use crate::observe::{QueryScope, Wait};
use crate::reconcile::Round;

/// What `status` found.
pub struct Status {
    /// Everything observed.
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
/// State or bundle that cannot be used; a cluster that is down is a result, not an error.
pub async fn status(session: &Session) -> Result<Status, Failure> {
    let state = session.state(false).await?;
    let look = Round::with(session, &state, Wait::ForAll, QueryScope::Presented).await?;
    let mut checks = look.checks(session).await;
    // What `plan` says at the same moment; a cluster that does not answer is another matter, with hints of its own.
    let plan =
        matches!(look.facts.etcd, Etcd::HasQuorum(_)).then(|| look.plan(&state, &Choices::default(), &session.desired));
    if plan.is_some_and(|plan| plan.is_ok_and(|plan| plan.is_empty())) {
        checks = checks.into_iter().map(Check::beyond_up).collect();
    }
    Ok(Status { facts: look.facts, checks })
}
