//! After a step with files on trial: accepts the new files, or rolls back to the previous ones, with which the host
//! runs as before.

use super::act::{Doing, failed, within_ms};
use super::walk::StepError;
use crate::model::names::HostName;
use crate::model::plan::{Action, HowToRun, Step};
use crate::observe::CrashLoopPolicy;
use crate::protocol::Op;
use std::time::Duration;

/// Timeout of restoring the previous files.
const PUT_BACK: Duration = Duration::from_secs(60);
/// Timeout until the unit runs with them again.
const RUN_AGAIN: Duration = Duration::from_secs(150);

/// Removes the previous files after success, and restores them after a failure.
pub(super) async fn conclude(doing: Doing<'_>, step: &Step, result: Result<(), StepError>) -> Result<(), StepError> {
    let Some(host) = step.action.host() else { return result };
    let back = doing.within(PUT_BACK);
    let sets = step.rollback.clone();
    let (what, tail) = match result {
        Ok(()) => return back.call(host, Op::Accept { sets }).await.map(drop),
        // Nothing was changed yet: the unit still runs with the previous files.
        Err(StepError::Refused(refusal)) => return Err(StepError::Refused(refusal)),
        Err(StepError::Overdue(timeout)) => (StepError::Overdue(timeout).to_string(), Vec::new()),
        Err(StepError::Failed { what, tail } | StepError::RolledBack { what, tail }) => (what, tail),
    };
    back.call(host, Op::RollBack { sets }).await.map_err(|e| stuck(&what, &tail, &e))?;
    run_again(doing.within(RUN_AGAIN), host, step).await.map_err(|e| stuck(&what, &tail, &e))?;
    Err(StepError::RolledBack { what, tail })
}

/// Starts the unit again as it ran before.
async fn run_again(doing: Doing<'_>, host: &HostName, step: &Step) -> Result<(), StepError> {
    let op = match &step.action {
        Action::RunUnit { unit, .. } => Op::RunUnit { unit: unit.clone(), how: HowToRun::Restart, no_wait: false },
        Action::UpgradeKubelet { how, ready, .. } => {
            if *how == HowToRun::Start {
                return Ok(());
            }
            let unit = crate::plan::kubelet_unit();
            let op = Op::RunUnit { unit, how: HowToRun::Restart, no_wait: false };
            doing.call(host, op).await?;
            doing.shows(host, (None, *ready), doing.until()).await?;
            // It was drained for an upgrade that failed.
            return doing.within(PUT_BACK).uncordon(host).await;
        }
        Action::AwaitServing { .. } => {
            let condition = doing.queries.serving(host, &doing.target, CrashLoopPolicy::NEW).map_err(failed)?;
            Op::Await { condition, within_ms: within_ms(RUN_AGAIN) }
        }
        _ => return Ok(()),
    };
    doing.call(host, op).await.map(drop)
}

fn stuck(what: &str, tail: &[String], why: &StepError) -> StepError {
    StepError::Failed {
        what: format!("{what}; the rollback to the previous files failed as well: {why}"),
        tail: tail.to_vec(),
    }
}
