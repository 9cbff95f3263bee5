//! `hactl up` and `hactl plan`.

use super::preflight::Shown;
use super::{Failure, Session, State, serving};
use crate::model::check::{Check, Outcome};
use crate::model::difference::Difference;
use crate::model::event::Event;
use crate::model::facts::Facts;
use crate::model::names::HostName;
use crate::model::plan::{Action, Plan, Stage};
use crate::model::refusal::Refusal;
use crate::model::rotation::Rotatable;
use crate::model::survey::Finding;
use crate::observe::Wait;
use crate::pki;
use crate::reconcile::Round;
use crate::reconcile::{Ask, Choices, Run};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of the checks after the last step: pods start, leases are acquired.
const VERIFY_WITHIN: Duration = Duration::from_secs(180);
/// The same if nothing was changed, so that nothing is starting.
const UNCHANGED_WITHIN: Duration = Duration::from_secs(10);
/// The same if unreachable hosts explain all failures: the other hosts may still need some time.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);
/// How long a run waits if only blocked steps remain: a process that starts is up by then.
const BLOCKED_WITHIN: Duration = Duration::from_secs(30);
/// After changes, two observations this far apart must pass: a kubelet that was just started briefly reports the
/// previous status of its pods.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
/// The checks that fail because of an unreachable host, besides those of the host itself.
const SUMMARIES: [&str; 6] =
    ["hosts answer", "etcd members healthy", "API servers ready", "endpoint ready", "nodes Ready", "system pods Ready"];
/// The interval of the checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The most plans of a run before it gives up; a healthy cluster needs two, a stopped one three.
const MOST_ROUNDS: usize = 8;

/// The result of `up`.
#[derive(Debug)]
pub struct Summary {
    /// Whether anything was changed.
    pub changed: bool,
    /// The last observation.
    pub facts: Facts,
    /// The checks, all passing.
    pub checks: Vec<Check>,
    /// The path of the kubeconfig.
    pub kubeconfig: PathBuf,
}

/// The plan of `up`, and the differences in files. Changes nothing.
///
/// # Errors
/// See [`Failure`].
pub async fn pending(session: &Session, choices: &Choices) -> Result<(Plan, Vec<Difference>), Failure> {
    let mut state = session.state(false).await?;
    let begins = serving::lacks(&state);
    if begins {
        let what = Rotatable::KubeletServingCa;
        state.suppose(|cluster, contents, now| pki::rotate::begin(cluster, contents, what, now))?;
    }
    let look = Round::take(session, &state, Wait::ForAll).await?;
    let (look, mut plan) = look.planned(session, &state, choices, Wait::ForAll).await?;
    plan.warnings.extend(begins.then(|| serving::BEGINS.to_owned()));
    if !plan.is_empty() {
        let findings = super::preflight::findings(session, &look, choices).await;
        let stops = |f: &Finding| {
            if !f.stops {
                ""
            } else if super::preflight::spared(session, &look, f).is_empty() {
                "`up` will refuse: "
            } else {
                "`up` will leave this host out: "
            }
        };
        plan.warnings.extend(findings.iter().map(|f| format!("{}{f}", stops(f))));
    }
    let differences = super::differences::differences(session, &state, &look, &plan).await;
    Ok((plan, differences))
}

/// Converges the cluster to the inventory, and then introduces, stage by stage, a setting that older versions of hactl
/// did not have.
///
/// # Errors
/// See [`Failure`].
pub async fn up(session: &mut Session, choices: &Choices, ask: &dyn Ask) -> Result<Summary, Failure> {
    let (mut changed, mut shown) = (false, Shown::new());
    loop {
        let summary = converge(session, choices, ask, &mut shown).await?;
        changed |= summary.changed;
        if choices.limit.is_some() || !serving::advance(session, &summary.facts).await? {
            return Ok(Summary { changed, ..summary });
        }
    }
}

/// Locks, repeats rounds of observe, plan, consent and execute until there is nothing to do, then verifies. Stragglers
/// are left behind until there is nothing to do for the other hosts; then the run waits for them.
async fn converge(
    session: &mut Session,
    choices: &Choices,
    ask: &dyn Ask,
    shown: &mut Shown,
) -> Result<Summary, Failure> {
    let begun = Instant::now();
    let locked = session.lock("up").await?;
    // Before CAs are made: later runs would keep those of a wrong clock.
    if session.kept()?.is_none_or(|state| serving::lacks(&state)) {
        super::preflight::may_issue(session).await?;
    }
    let mut state = session.state(true).await?;
    let _held = state.hold("up")?;
    serving::begin(session, &mut state)?;
    let state = Arc::new(state);
    let mut converge = Run::new(state.clone());
    let mut last: Option<Plan> = None;
    let (mut rounds, mut wait) = (0, Wait::ForMost);
    let mut blocked: Option<Instant> = None;
    let mut choices = choices.clone();
    while rounds < MOST_ROUNDS {
        session.admit(if wait == Wait::ForAll { wait } else { Wait::ForNobody }).await?;
        let look = Round::take(session, &*state, wait).await?;
        state.end_recovery(&look.facts)?;
        let (look, plan) = look.planned(session, &*state, &choices, wait).await?;
        if plan.is_empty() && (look.hurried || session.expects()) {
            session.sink.phase("the other hosts are done; waiting for slower hosts");
            wait = Wait::ForAll;
            continue;
        }
        if let Some(why) = plan.blocked.first().filter(|_| plan.is_empty()) {
            let since = *blocked.get_or_insert_with(|| {
                session.sink.phase(format!("waiting: {why}"));
                Instant::now()
            });
            if since.elapsed() < BLOCKED_WITHIN && !session.stop.is_cancelled() {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
        }
        if plan.is_empty() {
            let session = &*session;
            super::leaving::note_taken_in(&state, &session.desired, &look, &plan)?;
            let kubeconfig = state.keep_kubeconfig(&session.desired.url_for_people())?;
            let changed = last.is_some();
            let verified = verify(session, &state, look, &mut converge, changed).await;
            for warning in &plan.warnings {
                session.sink.warn(warning.clone());
            }
            let (checks, facts) = verified?;
            state.note_positions(&session.desired, &facts)?;
            if let Some(first) = plan.blocked.first().filter(|_| choices.limit.is_none()) {
                return Err(Refusal::Blocked { steps: plan.blocked.len(), first: first.clone() }.into());
            }
            if choices.limit.is_none() && plan.blocked.is_empty() {
                super::leaving::note_left(&state, &session.desired)?;
                state.note_url(&session.desired.url_for_people())?;
                state.made_whole()?;
            }
            converge.tell_times(session, begun);
            return Ok(Summary { changed, facts, checks, kubeconfig });
        }
        if last.as_ref().is_some_and(|l| l.steps == plan.steps) {
            let first = plan.steps.first().map(|s| s.action.to_string()).unwrap_or_default();
            return Err(Refusal::NoProgress { steps: plan.steps.len(), first }.into());
        }
        let without = super::preflight::preflight(session, &look, &choices, shown).await?;
        if !without.is_empty() {
            session.leave_out(without);
            continue;
        }
        locked.allows(&plan, session, &look.facts)?;
        super::leaving::note_taken_in(&state, &session.desired, &look, &plan)?;
        session.sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
        ask.consent(&plan, &choices)?;
        converge.run(session, look, &plan).await?;
        choices.unknown_nodes_stay |= plan.steps.iter().any(|s| matches!(s.action, Action::DeleteNode { .. }));
        last = Some(plan);
        (rounds, wait, blocked) = (rounds + 1, Wait::ForMost, None);
    }
    Err(Refusal::NoProgress { steps: MOST_ROUNDS, first: "the plans repeat the same steps".to_owned() }.into())
}

/// Repeats the checks until all pass. After changes, a pod tests the cluster from the inside and is then deleted.
async fn verify(
    session: &Session,
    state: &State,
    look: Round,
    converge: &mut Run,
    changed: bool,
) -> Result<(Vec<Check>, Facts), Failure> {
    let begun = Instant::now();
    let (host, target) = (Run::probed_host(session, &look), Arc::clone(&look.target));
    let probe = async {
        match host.filter(|_| changed) {
            Some(host) => converge.probe(session, &host, &target).await,
            None => Ok(Vec::new()),
        }
    };
    let (passed, probed) = tokio::join!(pass(session, state, look, changed), probe);
    let (mut checks, facts) = passed?;
    checks.extend(probed?);
    for check in beyond(checks.clone()) {
        session.sink.emit(Event::Checked { check });
    }
    converge.count(Stage::Cluster, begun);
    let failing = beyond(mendable(&checks));
    if failing.is_empty() { Ok((checks, facts)) } else { Err(Failure::Unverified { checks: failing }) }
}

/// Checks with the hints for when `up` has nothing left to do.
fn beyond(checks: Vec<Check>) -> Vec<Check> {
    checks.into_iter().map(Check::beyond_up).collect()
}

/// The failing checks that a run of `up` fixes. It cannot fix old snapshots, failed copies and hosts with false
/// reports, nor certificates of CAs and of hosts that it may not change, and a guard may still report what the run
/// itself restarted; these checks are only shown.
fn mendable(checks: &[Check]) -> Vec<Check> {
    let stated = [crate::observe::BUNDLES, crate::observe::CERTIFICATES, crate::observe::BELIEVED];
    let shown = |name| stated.contains(&name) || crate::observe::GUARD_CHECKS.contains(&name);
    checks.iter().filter(|c| c.outcome >= Outcome::Fail && !shown(c.name)).cloned().collect()
}

/// Repeats the checks until all pass, or until that can no longer be expected.
async fn pass(
    session: &Session,
    state: &State,
    mut look: Round,
    changed: bool,
) -> Result<(Vec<Check>, Facts), Failure> {
    let begun = Instant::now();
    let mut said = String::new();
    let mut well: Option<Instant> = None;
    loop {
        let looked = Instant::now();
        let checks = look.checks(session).await;
        let failing = mendable(&checks);
        if failing.is_empty() {
            let since = *well.get_or_insert(looked);
            let settled = SETTLED_AFTER.saturating_sub(since.elapsed());
            if !changed || (since < looked && settled.is_zero()) || session.stop.is_cancelled() {
                return Ok((checks, look.facts));
            }
            tokio::time::sleep(settled).await;
            look = Round::take(session, state, Wait::ForAll).await?;
            continue;
        }
        well = None;
        let unreachable = |host: &HostName| look.facts.host(host).is_none();
        let explained = |c: &Check| c.host.as_ref().map_or_else(|| SUMMARIES.contains(&c.name), unreachable);
        let anybody = session.desired.hosts.iter().any(|h| unreachable(&h.name));
        let timeout = match (changed, anybody && failing.iter().all(explained)) {
            (false, _) => UNCHANGED_WITHIN,
            (true, true) => SETTLE_WITHIN,
            (true, false) => VERIFY_WITHIN,
        };
        if begun.elapsed() > timeout || session.stop.is_cancelled() {
            for check in beyond(checks) {
                session.sink.emit(Event::Checked { check });
            }
            return Err(Failure::Unverified { checks: beyond(failing) });
        }
        let waiting: Vec<&str> = failing.iter().take(2).map(|c| c.name).collect();
        let doing = format!("verifying, waiting for: {}", waiting.join(", "));
        if said != doing {
            session.sink.phase(doing.clone());
            said = doing;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        look = Round::take(session, state, Wait::ForAll).await?;
    }
}
