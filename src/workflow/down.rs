//! `hactl down`: stops the cluster on every host that answers; archives the data, or deletes it with `--wipe`.

use super::{Failure, Session};
use crate::model::event::Event;
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::observe::Wait;
use crate::reconcile::Round;
use crate::reconcile::{Ask, Choices, Run};

/// Takes the cluster down. Returns the executed plan; it is empty if there was nothing to do.
///
/// # Errors
/// See [`Failure`].
pub async fn down(session: &mut Session, choices: &Choices, ask: &dyn Ask, delete: bool) -> Result<Plan, Failure> {
    session.lock("down").await?;
    // A host that is not taken down now would stay up.
    session.admit(Wait::ForAll).await?;
    let session = &*session;
    let state = std::sync::Arc::new(session.state(false).await?);
    let _held = state.hold("down")?;
    let look = Round::take(session, &*state, Wait::ForAll).await?;
    let plan = crate::plan::down(&session.desired, &look.target, &look.facts, &look.intent(&*state)?, delete)?;
    let left: Vec<HostName> =
        session.desired.hosts.iter().map(|h| &h.name).filter(|h| look.facts.host(h).is_none()).cloned().collect();
    if plan.is_empty() {
        // A run was killed between its last step and its journal entry, or a recovery of bare hosts is given up.
        let past = state.past()?;
        if left.is_empty() && (past.bootstrapped.is_some() || past.open.is_some()) {
            state.taken_down(delete)?;
        }
        return if left.is_empty() { Ok(plan) } else { Err(Failure::StillUp { hosts: left }) };
    }
    session.sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
    let cluster = &session.desired.cluster;
    let loss = if delete { "and deletes all its data, etcd included" } else { "and moves its data aside" };
    if !choices.yes {
        ask.name(cluster, &format!("the whole cluster {cluster}: it stops it {loss}"))?;
    }
    Run::new(state.clone()).run(session, look, &plan).await?;
    if !left.is_empty() {
        return Err(Failure::StillUp { hosts: left });
    }
    state.taken_down(delete)?;
    Ok(plan)
}
