//! `hactl recover`: diagnose, propose the least that helps, ask, restore, and bring up what hangs on it.
//!
//! Nothing on any host is changed before a person agreed to what was shown. What was agreed to is in the journal before the first
//! step: a run that was cut off is finished as it was begun, by the same command.

use super::converge::{Ask, Choices, Converge};
use super::look::Look;
use super::up::{Summary, up};
use super::{Failure, Session, State};
use crate::execute::taken;
use crate::host::op::{Condition, Op};
use crate::host::{Feed, Machine};
use crate::model::desired::Role;
use crate::model::event::Event;
use crate::model::recovery::{Diagnosis, Proposal, Recovery};
use crate::model::refusal::Refusal;
use crate::observe::Wait;
use crate::plan::Wish;
use crate::vault::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the endpoint is looked at until it says ready: images may have to be imported again.
const SERVED_WITHIN: Duration = Duration::from_secs(300);

/// What the person said on the command line.
#[derive(Debug, Clone, Default)]
pub struct Recovering {
    /// What to recover from, and who is off.
    pub wish: Wish,
    /// Whether to stop after the proposal.
    pub dry_run: bool,
}

/// How `recover` ended well.
#[derive(Debug)]
pub enum Recovered {
    /// Nothing was to be recovered: this is why.
    Nothing(Diagnosis),
    /// This would be done.
    Proposed(Box<Proposal>),
    /// Members only had to be started.
    Woken {
        /// What `up` found at the end.
        summary: Box<Summary>,
        /// Whether that finished a recovery that was cut off.
        finished: bool,
    },
    /// It was done.
    Done {
        /// What was done.
        proposal: Box<Proposal>,
        /// From the first step until a quorum answered.
        quorum: Duration,
        /// From the first step until the endpoint said ready; `None`: it did not in time.
        endpoint: Option<Duration>,
        /// What `up` found at the end; an error says what is left, such as hosts that do not answer.
        after: Result<Box<Summary>, Box<Failure>>,
    },
}

/// Brings etcd back.
///
/// # Errors
/// See [`Failure`].
pub async fn recover(
    session: &mut Session,
    asked: &Recovering,
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Recovered, Failure> {
    if !asked.dry_run {
        session.lock("recover").await?;
    }
    // Who is not heard now counts as dark.
    session.admit(Wait::ForAll).await?;
    session.anybody().await?;
    let state = Arc::new(session.state(false).await?);
    let vault = state.vault().ok_or_else(|| Failure::NoState { state: session.places.state.clone() })?;
    let held = if asked.dry_run { None } else { state.hold("recover")? };
    let look = Look::take(session, &state, Wait::ForAll).await?;
    if !asked.dry_run {
        state.end_recovery(&look.facts)?;
    }
    // Before its snapshot was fetched no data was touched: then it is chosen anew, by what is there now.
    let fetched = |recovery: &Recovery| taken(&vault.dir().join("recovery"), &recovery.id).is_some();
    let wish =
        Wish { begun: state.open_recovery()?.filter(fetched), id: crate::vault::random_hex(16)?, ..asked.wish.clone() };
    let proposal = match look.diagnose(&state, &wish, &session.desired)? {
        Diagnosis::Lost(proposal) => proposal,
        Diagnosis::Asleep if !asked.dry_run => {
            drop(held);
            let finished = wish.begun.is_some();
            return Ok(Recovered::Woken { summary: Box::new(up(session, choices, ask).await?), finished });
        }
        other => return Ok(Recovered::Nothing(other)),
    };
    session.sink.emit(Event::Proposed { proposal: proposal.clone() });
    if asked.dry_run {
        return Ok(Recovered::Proposed(proposal));
    }
    consent(session, &proposal, choices, ask)?;
    let recovery = &proposal.recovery;
    if !proposal.begun {
        state.record(Entry::RecoveryChosen { recovery: recovery.clone() })?;
    }
    let begun = Instant::now();
    let plan = look.recovery(&state, recovery, proposal.begun, &session.desired)?;
    let asked_of: Vec<_> =
        session.desired.with(Role::ControlPlane).filter_map(|h| session.machines.get(&h.name)).cloned().collect();
    let endpoint = look.asks.endpoint();
    session.sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
    Converge::new(&state).run(session, look, &plan).await?;
    let quorum = begun.elapsed();
    drop(held);
    drop(state);
    // What else hangs on etcd is what `up` is for, and it was agreed to with the rest.
    let agreed = Choices { yes: true, ..choices.clone() };
    let served = async { served(&asked_of, &endpoint).await.then(|| begun.elapsed()) };
    // Whoever serves while `up` still works has served; afterwards nobody is waited for any more.
    let mut when = None;
    let after = {
        let working = up(session, &agreed, ask);
        tokio::pin!(working, served);
        loop {
            tokio::select! {
                after = &mut working => break after,
                at = &mut served, if when.is_none() => when = Some(at),
            }
        }
    };
    let after = match after {
        Ok(summary) => Ok(Box::new(summary)),
        Err(failure @ (Failure::Unverified { .. } | Failure::Refused(Refusal::Blocked { .. }))) => {
            Err(Box::new(failure))
        }
        Err(failure) => return Err(failure),
    };
    Ok(Recovered::Done { proposal, quorum, endpoint: when.flatten(), after })
}

/// Waits until the endpoint says ready to any of these hosts. Every API server was stopped before, so that whoever answers reads what
/// was restored.
async fn served(hosts: &[Arc<Machine>], endpoint: &Condition) -> bool {
    let within_ms = u64::try_from(SERVED_WITHIN.as_millis()).unwrap_or(u64::MAX);
    let ask = |host: &Arc<Machine>| {
        let (host, condition) = (Arc::clone(host), endpoint.clone());
        Box::pin(async move {
            host.call(Op::Await { condition, within_ms }, Feed::None, SERVED_WITHIN + Duration::from_secs(5), &|_| {})
                .await
        })
    };
    match hosts {
        [] => false,
        some => futures::future::select_ok(some.iter().map(ask)).await.is_ok(),
    }
}

/// Agreement to a recovery: by the cluster's name, for nothing that hactl does takes more away. One that was begun was agreed to.
fn consent(session: &Session, proposal: &Proposal, choices: &Choices, ask: &dyn Ask) -> Result<(), Failure> {
    if choices.yes || proposal.begun {
        return Ok(());
    }
    let cluster = &session.desired.cluster;
    let from = &proposal.recovery.source;
    Ok(ask.name(cluster, &format!("the whole etcd of {cluster}: it is restored from {from}'s data"))?)
}

impl Look {
    /// What is wrong with etcd, and what would help.
    ///
    /// # Errors
    /// What would not be safe.
    fn diagnose(
        &self,
        state: &State,
        wish: &Wish,
        desired: &crate::model::desired::Desired,
    ) -> Result<Diagnosis, Failure> {
        Ok(crate::plan::diagnose(desired, &self.target, &self.facts, &self.intent(state)?, wish)?)
    }

    /// The steps of a recovery.
    fn recovery(
        &self,
        state: &State,
        recovery: &Recovery,
        fetched: bool,
        desired: &crate::model::desired::Desired,
    ) -> Result<crate::model::plan::Plan, Failure> {
        Ok(crate::plan::recover(desired, &self.target, &self.facts, &self.intent(state)?, recovery, fetched)?)
    }

    fn intent(&self, state: &State) -> Result<crate::plan::Intent, Failure> {
        Ok(crate::plan::Intent {
            stamp: self.asks.stamp.clone(),
            genesis_token: String::new(),
            born: state.born()?,
            prune: vec![],
            limit: None,
        })
    }
}
