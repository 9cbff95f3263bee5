//! `hactl certs renew`: renews leaf certificates before they expire, for example after a suspicion or before a long
//! absence.
//!
//! In: names and hosts. Out: the issued certificates. The rounds are those of `up` (lock, observe, plan, consent, run),
//! but the plan only contains certificates and the restarts that load them. Then it waits until components present the
//! new ones. If it is killed, run the same command again.

use super::certs::of_hosts;
use super::kubeconfig::existing;
use super::{Failure, Places, Session, State};
use crate::model::certificate::{Certificate, Presented, Seen, issued_since};
use crate::model::check::{Check, Outcome};
use crate::model::desired::Desired;
use crate::model::event::{Event, Sink};
use crate::model::leaf::Renewal;
use crate::model::names::HostName;
use crate::model::plan::{Action, Plan};
use crate::model::refusal::Refusal;
use crate::observe::{CERTIFICATES, Wait};
use crate::pki::{Chosen, Publics};
use crate::reconcile::Round;
use crate::reconcile::{Ask, Choices, Run};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::Instant;

/// Timeout until components present the new certificates. API servers check their files at least once a minute, etcd at
/// every handshake.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(90);
/// The interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most plans of a run before it gives up; one is enough if nothing interferes.
const MOST_ROUNDS: usize = 4;
/// A note on every renewal, because it is easily mistaken for a revocation.
const NOT_REVOKED: &str =
    "replaced certificates stay valid until they expire, for anyone with a copy of their key: nothing revokes them";

/// The renewed certificates.
#[derive(Debug, Default)]
pub struct Renewed {
    /// How many certificates were issued, by host.
    pub issued: Vec<(HostName, usize)>,
    /// The path of the administrator's kubeconfig, if it was renewed.
    pub kubeconfig: Option<PathBuf>,
}

fn renewal(chosen: &Chosen) -> Renewal {
    Renewal { since_s: issued_since(OffsetDateTime::now_utc()), leaves: chosen.leaves.clone() }
}

/// The plan of [`renew`]. Changes nothing.
///
/// # Errors
/// See [`Failure`].
pub async fn would_renew(session: &Session, chosen: &Chosen) -> Result<Plan, Failure> {
    let state = kept(session.state(false).await?, &session.places)?;
    let look = Round::take(session, &state, Wait::ForMost).await?;
    Ok(look.renewing(&state, renewal(chosen), &session.desired)?)
}

fn kept(state: State, places: &Places) -> Result<State, Failure> {
    if state.state_dir().is_some() { Ok(state) } else { Err(places.no_state()) }
}

/// Renews leaf certificates, and the administrator's kubeconfig if it was chosen.
///
/// # Errors
/// See [`Failure`]; unreachable hosts, and components that do not load the new certificates, are failing checks.
pub async fn renew(
    session: &mut Session,
    chosen: &Chosen,
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Renewed, Failure> {
    let begun = Instant::now();
    let renewal = renewal(chosen);
    let locked = session.lock("certs renew").await?;
    super::preflight::may_issue(session).await?;
    let state = Arc::new(kept(session.state(false).await?, &session.places)?);
    let _held = state.hold("certs renew")?;
    let mut converge = Run::new(state.clone());
    let mut issued: BTreeMap<HostName, usize> = BTreeMap::new();
    let (mut last, mut rounds): (Option<Plan>, usize) = (None, 0);
    let (rest, unreachable) = loop {
        let look = Round::take(session, &*state, Wait::ForMost).await?;
        let plan = look.renewing(&*state, renewal.clone(), &session.desired)?;
        if plan.is_empty() {
            break (plan, unreachable(&look, chosen));
        }
        if rounds == MOST_ROUNDS || last.as_ref().is_some_and(|last| last.steps == plan.steps) {
            let first = plan.steps.first().map(|step| step.action.to_string()).unwrap_or_default();
            return Err(Refusal::NoProgress { steps: plan.steps.len(), first }.into());
        }
        locked.allows(&plan, session, &look.facts)?;
        session.sink.emit(Event::Planned { plan: Box::new(plan.clone()) });
        ask.consent(&plan, choices)?;
        converge.run(session, look, &plan).await?;
        for step in &plan.steps {
            if let Action::Certify { host, leaves } = &step.action {
                *issued.entry(host.clone()).or_default() += leaves.len();
            }
        }
        (last, rounds) = (Some(plan), rounds + 1);
    };
    let url = session.desired.url_for_people();
    let kubeconfig = chosen.admin.then(|| state.renew_kubeconfig(&url)).transpose()?;
    if !issued.is_empty() || kubeconfig.is_some() {
        session.sink.note(NOT_REVOKED.to_owned());
    }
    let mut failing = unreachable;
    failing.extend(taken_up(session, &state.publics(), chosen).await);
    if !failing.is_empty() {
        return Err(Failure::Unverified { checks: failing });
    }
    if let Some(first) = rest.blocked.first() {
        return Err(Refusal::Blocked { steps: rest.blocked.len(), first: first.clone() }.into());
    }
    converge.tell_times(session, begun);
    Ok(Renewed { issued: issued.into_iter().collect(), kubeconfig })
}

/// Renews the administrator's kubeconfig, for which no host is needed.
///
/// # Errors
/// State that is lost, unusable or in use.
pub fn renew_kubeconfig(desired: &Desired, places: &Places, sink: &Arc<dyn Sink>) -> Result<Renewed, Failure> {
    let state = existing(desired, places)?;
    let _held = state.hold("certs renew")?;
    let kubeconfig = Some(state.renew_kubeconfig(&desired.url_for_people())?);
    sink.note(NOT_REVOKED.to_owned());
    Ok(Renewed { kubeconfig, ..Renewed::default() })
}

/// Requested hosts that did not answer.
fn unreachable(look: &Round, chosen: &Chosen) -> Vec<Check> {
    let one = |host: &HostName| {
        let unreachable = look.facts.hosts.get(host)?.as_ref().err()?;
        let (host, detail, hint) = (Some(host.clone()), unreachable.why.clone(), unreachable.hint.clone());
        Some(Check { name: "host answers", host, outcome: Outcome::Fail, detail, hint })
    };
    chosen.leaves.keys().filter_map(one).collect()
}

/// Waits until components present the new certificates; returns a check for each that does not.
pub(super) async fn taken_up(session: &Session, publics: &Publics, chosen: &Chosen) -> Vec<Check> {
    let begun = Instant::now();
    let hosts: Vec<HostName> = chosen.leaves.keys().cloned().collect();
    let mut said = false;
    loop {
        let behind: Vec<(HostName, Certificate)> =
            if hosts.is_empty() { vec![] } else { behind(session, publics, &hosts).await };
        if behind.is_empty() {
            return vec![];
        }
        if begun.elapsed() > TAKEN_UP_WITHIN || session.stop.is_cancelled() {
            return behind.into_iter().map(|(host, certificate)| not_taken_up(host, &certificate)).collect();
        }
        if !said {
            session.sink.phase("waiting until components present the new certificates");
            said = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Certificates of these hosts for which components still present an older one; those that kubelets renew are left out.
async fn behind(session: &Session, publics: &Publics, hosts: &[HostName]) -> Vec<(HostName, Certificate)> {
    let older = |c: &Certificate| {
        let seen = c.presented.as_ref().map(|Presented { seen, .. }| seen);
        c.name != crate::pki::KUBELET_SERVING && matches!(seen, Some(Seen::Other { older: true, .. }))
    };
    let all = of_hosts(session, publics, hosts).await;
    let found = all.into_iter().filter_map(|(host, of)| Some((host, of.ok()?)));
    found.flat_map(|(host, of)| of.certificates.into_iter().filter(older).map(move |c| (host.clone(), c))).collect()
}

fn not_taken_up(host: HostName, certificate: &Certificate) -> Check {
    let (name, within) = (&certificate.name, TAKEN_UP_WITHIN.as_secs());
    let detail = format!("{name} was renewed, but its component still presents the older one after {within} s");
    let hint = Some("restart that component on this host, one host at a time; hactl certs list".to_owned());
    Check { name: CERTIFICATES, host: Some(host), outcome: Outcome::Fail, detail, hint }
}
