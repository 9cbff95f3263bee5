//! `hactl runbook`: how to recover this cluster, with the current facts of its hosts.
//!
//! It needs neither quorum, nor the API, nor the administrator's state, nor a host that answers: it says which facts
//! are unknown.

use super::bundles::asked;
use super::{Failure, Session};
use crate::report::runbook::{About, Answers, runbook as printed};

/// Prints it.
///
/// # Errors
/// A value of the inventory that cannot be in it.
pub async fn runbook(session: &Session, about: &About) -> Result<String, Failure> {
    let mut answers: Answers =
        session.unreachable.iter().map(|(host, unreachable)| (host.clone(), Err(unreachable.why.clone()))).collect();
    for (host, answer) in asked(session, |_| true).await {
        answers.insert(host, answer.map_err(|failure| failure.to_string()));
    }
    Ok(printed(&session.desired, &answers, about)?)
}
