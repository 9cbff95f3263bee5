//! After a step with files on trial: accepts the new files, or rolls back to the previous ones, with which the host
//! runs as before.

use super::act::{Actuator, failed, within_ms};
use super::walk::StepError;
use crate::model::names::HostName;
use crate::model::plan::{Action, HowToRun, Step};
use crate::observe::CrashLoopPolicy;
use crate::protocol::Op;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of restoring the previous files.
const PUT_BACK: Duration = Duration::from_secs(60);
/// Timeout until the unit runs with them again.
const RUN_AGAIN: Duration = Duration::from_secs(150);

/// Removes the previous files after success, and restores them after a failure.
pub(super) async fn conclude(
    actuator: &Actuator,
    index: usize,
    step: &Step,
    result: Result<(), StepError>,
) -> Result<(), StepError> {
    let Some(host) = step.action.host() else { return result };
    let sets = step.rollback.clone();
    let (what, tail) = match result {
        Ok(()) => return actuator.call(index, host, Op::Accept { sets }, PUT_BACK).await.map(drop),
        // Nothing was changed yet: the unit still runs with the previous files.
        Err(StepError::Refused(refusal)) => return Err(StepError::Refused(refusal)),
        Err(StepError::Overdue(timeout)) => (StepError::Overdue(timeout).to_string(), Vec::new()),
        Err(StepError::Failed { what, tail } | StepError::RolledBack { what, tail }) => (what, tail),
    };
    actuator.call(index, host, Op::RollBack { sets }, PUT_BACK).await.map_err(|e| stuck(&what, &tail, &e))?;
    run_again(actuator, index, host, step).await.map_err(|e| stuck(&what, &tail, &e))?;
    Err(StepError::RolledBack { what, tail })
}

/// Starts the unit again as it ran before.
async fn run_again(actuator: &Actuator, index: usize, host: &HostName, step: &Step) -> Result<(), StepError> {
    let op = match &step.action {
        Action::RunUnit { unit, .. } => Op::RunUnit { unit: unit.clone(), how: HowToRun::Restart, no_wait: false },
        Action::UpgradeKubelet { how, ready, .. } => {
            if *how == HowToRun::Start {
                return Ok(());
            }
            let unit = crate::plan::kubelet_unit();
            let op = Op::RunUnit { unit, how: HowToRun::Restart, no_wait: false };
            actuator.call(index, host, op, RUN_AGAIN).await?;
            actuator.shows(index, host, (None, *ready), Instant::now() + RUN_AGAIN).await?;
            // It was drained for an upgrade that failed.
            return actuator.uncordon(host, PUT_BACK).await;
        }
        Action::AwaitServing { .. } => {
            let condition = actuator.queries.serving(host, &actuator.target, CrashLoopPolicy::NEW).map_err(failed)?;
            Op::Await { condition, within_ms: within_ms(RUN_AGAIN) }
        }
        _ => return Ok(()),
    };
    actuator.call(index, host, op, RUN_AGAIN).await.map(drop)
}

fn stuck(what: &str, tail: &[String], why: &StepError) -> StepError {
    StepError::Failed {
        what: format!("{what}; the rollback to the previous files failed as well: {why}"),
        tail: tail.to_vec(),
    }
}
