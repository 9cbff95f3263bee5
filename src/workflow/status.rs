//! `hactl status`: the same checks that end every `up`, without changing anything and without needing quorum.

use super::look::Look;
use super::{Failure, Session};
use crate::model::check::{Check, Outcome};
use crate::model::facts::Facts;
use crate::observe::{Depth, Wait};

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
    let look = Look::with(session, &state, Wait::ForAll, Depth::Presented).await?;
    let checks = look.checks(session).await;
    Ok(Status { facts: look.facts, checks })
}
