//! `hactl up` and `hactl plan`.

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
use std::time::{Duration, Instant};

/// After the last step, how long the checks may take to pass: pods are pulled up, leases are taken.
const VERIFY_WITHIN: Duration = Duration::from_secs(180);
/// The same when nothing was changed: nothing is about to come up either.
const UNCHANGED_WITHIN: Duration = Duration::from_secs(10);
/// The same when all that fails is that some hosts are silent: the others may still need a moment.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing but steps that cannot begin may be left until they are given up: a process that starts comes up by then.
const BLOCKED_WITHIN: Duration = Duration::from_secs(30);
/// After changes, two looks this far apart must find all well: what a kubelet that was just started says of its pods is what it knew
/// before, for a moment.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
/// What a silent host alone makes fail, besides the checks of the host itself.
const SUMMARIES: [&str; 6] =
    ["hosts answer", "etcd members healthy", "API servers ready", "endpoint ready", "nodes Ready", "system pods Ready"];
/// The pause between two looks at what changes by itself.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Plans that follow one another before the run gives up; a healthy run needs two, a woken one three.
const MOST_ROUNDS: usize = 8;

/// How `up` ended well.
#[derive(Debug)]
pub struct Summary {
    /// Whether anything had to be done.
    pub changed: bool,
    /// What was observed last.
    pub facts: Facts,
    /// The checks, all passing.
    pub checks: Vec<Check>,
    /// Where the kubeconfig is.
    pub kubeconfig: PathBuf,
}

/// What `up` would do now, and how files would change. Changes nothing.
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
    let mut plan = look.plan(&state, choices, &session.desired)?;
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

/// Brings the cluster to what the inventory asks for, and then, stage by stage, what older versions of hactl did otherwise to what this one
/// does.
///
/// # Errors
/// See [`Failure`].
pub async fn up(session: &mut Session, choices: &Choices, ask: &dyn Ask) -> Result<Summary, Failure> {
    let mut changed = false;
    loop {
        let summary = converge(session, choices, ask).await?;
        changed |= summary.changed;
        if choices.limit.is_some() || !serving::advance(session, &summary.facts).await? {
            return Ok(Summary { changed, ..summary });
        }
    }
}

/// Lock, then rounds of observe, plan, consent and execute until there is nothing to do, then verify. Stragglers are left behind until
/// there is nothing to do for the others, and then waited for.
async fn converge(session: &mut Session, choices: &Choices, ask: &dyn Ask) -> Result<Summary, Failure> {
    let begun = Instant::now();
    let locked = session.lock("up").await?;
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
        let plan = look.plan(&*state, &choices, &session.desired)?;
        if plan.is_empty() && (look.hurried || session.expects()) {
            let doing = "the others are done, waiting for those who take longer".to_owned();
            session.sink.emit(Event::Phase { doing });
            wait = Wait::ForAll;
            continue;
        }
        if let Some(why) = plan.blocked.first().filter(|_| plan.is_empty()) {
            let since = *blocked.get_or_insert_with(|| {
                session.sink.emit(Event::Phase { doing: format!("looking again: {why}") });
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
                session.sink.emit(Event::Warning { text: warning.clone() });
            }
            let (checks, facts) = verified?;
            state.note_positions(&session.desired, &facts)?;
            if let Some(first) = plan.blocked.first().filter(|_| choices.limit.is_none()) {
                return Err(Refusal::Blocked { steps: plan.blocked.len(), first: first.clone() }.into());
            }
            if choices.limit.is_none() && plan.blocked.is_empty() {
                super::leaving::note_left(&state, &session.desired)?;
                state.made_whole()?;
            }
            converge.tell_times(session, begun);
            return Ok(Summary { changed, facts, checks, kubeconfig });
        }
        if last.as_ref().is_some_and(|l| l.steps == plan.steps) {
            let first = plan.steps.first().map(|s| s.action.to_string()).unwrap_or_default();
            return Err(Refusal::NoProgress { steps: plan.steps.len(), first }.into());
        }
        let without = super::preflight::preflight(session, &look, &choices).await?;
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
    Err(Refusal::NoProgress { steps: MOST_ROUNDS, first: "the same kind of work, round after round".to_owned() }.into())
}

/// Repeats the checks until all pass. When something was changed, a pod probes from the inside meanwhile and is deleted.
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

/// Checks as they stand when nothing is left to do.
fn beyond(checks: Vec<Check>) -> Vec<Check> {
    checks.into_iter().map(Check::beyond_up).collect()
}

/// What fails and would not have to after a run. That bundles are old or cannot be copied, or that a host lies, is shown,
/// and no run of `up` makes it better; nor does one mend certificates that it had nothing to do about: those of authorities, and of hosts
/// that it may not change.
fn mendable(checks: &[Check]) -> Vec<Check> {
    let told = [crate::observe::BUNDLES, crate::observe::CERTIFICATES, crate::observe::BELIEVED];
    checks.iter().filter(|c| c.outcome >= Outcome::Fail && !told.contains(&c.name)).cloned().collect()
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
            session.sink.emit(Event::Phase { doing: doing.clone() });
            said = doing;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        look = Round::take(session, state, Wait::ForAll).await?;
    }
}
