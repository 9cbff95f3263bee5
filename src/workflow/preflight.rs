//! Preflight: surveys new hosts and tests connectivity before anything is changed, and reports every finding.
//!
//! In: a session and an observation. Out: warnings as events; hosts to leave out of the run; or one refusal with
//! everything that stops the run. Work that makes CAs or certificates first compares clocks.

use super::{Choices, Session};
use crate::model::desired::{EndpointKind, Host, Role};
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::model::survey::Finding;
use crate::model::timestamp::millis;
use crate::observe::carries;
use crate::observe::preflight::{Seen, ahead_ms, judge, own_clock};
use crate::protocol::{ObserveAsk, Op, Reply};
use crate::reconcile::Round;
use crate::transport::Payload;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use time::OffsetDateTime;

/// Timeout of a host that checks whether another machine answers for the endpoint's address.
const STRANGER: Duration = Duration::from_secs(5);
/// Timeout of a host that tells the time.
const CLOCK: Duration = Duration::from_secs(10);

/// All findings; those that stop the run first.
pub async fn findings(session: &Session, look: &Round, choices: &Choices) -> Vec<Finding> {
    let desired = &session.desired;
    let seen = crate::observe::preflight::survey(desired, &session.machines, &look.facts, &look.target);
    let away = crate::observe::preflight::registries(desired, &session.machines, &look.facts, &look.target);
    let (surveyed, stranger, away, ahead_ms) = tokio::join!(seen, stranger(session, look), away, clocks(session));
    let (target, facts) = (&look.target, &look.facts);
    let mut findings = judge(&Seen {
        desired,
        target,
        facts,
        surveys: &surveyed.surveys,
        tried: &surveyed.tried,
        away: &away,
        stranger,
        ahead_ms: &ahead_ms,
    });
    // Hosts that are only observed need not pass.
    let changed = |host: &HostName| choices.limit.as_ref().is_none_or(|limit| limit.contains(host));
    findings.retain(|f| f.hosts.is_empty() || f.hosts.iter().any(changed));
    findings
}

/// How far the clocks of the hosts with etcd or the API are ahead of the clock of this machine, milliseconds. A host
/// that does not answer is reported elsewhere.
async fn clocks(session: &Session) -> Vec<i64> {
    let hosts = session.desired.hosts.iter().filter(|host| carries(host));
    let ahead_ms = session.each(hosts, async |host| clock_of(session, host).await).await;
    ahead_ms.into_iter().filter_map(|(_, ahead_ms)| ahead_ms).collect()
}

async fn clock_of(session: &Session, host: &Host) -> Option<i64> {
    let now_ms = || millis(OffsetDateTime::now_utc()).unwrap_or(0);
    let before_ms = now_ms();
    let facts = session.observe(&host.name, ObserveAsk::default(), CLOCK).await.ok()?;
    Some(ahead_ms(facts.now_ms, (before_ms, now_ms())))
}

/// A difference between the clock of this machine and those of the hosts.
pub(super) async fn clock(session: &Session) -> Option<Finding> {
    own_clock(&clocks(session).await)
}

/// Allows to make CAs and certificates, which hosts accept only if their clocks agree with the clock of this machine.
///
/// # Errors
/// [`Refusal::Preflight`], unless the inventory ignores the check.
pub(super) async fn may_issue(session: &Session) -> Result<(), Refusal> {
    let stops = |finding: &Finding| finding.stops && !session.desired.ignored_checks.contains(finding.check);
    match clock(session).await.filter(stops) {
        Some(finding) => Err(Refusal::Preflight { problems: vec![finding.to_string()] }),
        None => Ok(()),
    }
}

/// The hosts of a finding that a run can leave out: in a cluster with quorum, those without etcd and the API.
pub fn spared(session: &Session, look: &Round, finding: &Finding) -> Vec<HostName> {
    let without = |host: &&HostName| session.desired.host(host).is_some_and(|host| !carries(host));
    let lives = look.facts.living().is_some();
    finding.hosts.iter().filter(|_| finding.stops && lives).filter(without).cloned().collect()
}

/// The warnings that a run has shown: each its check, and a host; `None`: it is of no host.
pub type Shown = BTreeSet<(&'static str, Option<HostName>)>;

/// The warnings to show now. A check warns once about a host: the next round finds the same, or what is left of it.
fn unshown(warnings: Vec<Finding>, shown: &mut Shown) -> Vec<Finding> {
    let about = |warning: &Finding| -> Shown {
        let none = warning.hosts.is_empty().then_some(None);
        warning.hosts.iter().cloned().map(Some).chain(none).map(|host| (warning.check, host)).collect()
    };
    let fresh: Vec<Finding> = warnings.into_iter().filter(|warning| !about(warning).is_subset(shown)).collect();
    shown.extend(fresh.iter().flat_map(about));
    fresh
}

/// Emits the warnings that this run has not shown yet, and returns the hosts that are left out of it, each with the
/// reason.
///
/// # Errors
/// [`Refusal::Preflight`] with every problem found.
pub async fn preflight(
    session: &Session,
    look: &Round,
    choices: &Choices,
    shown: &mut Shown,
) -> Result<BTreeMap<HostName, String>, Refusal> {
    let mut found = findings(session, look, choices).await;
    let of_paths = |f: &Finding| f.stops && f.check == crate::observe::preflight::PATHS;
    if found.iter().any(of_paths) {
        // A busy machine may lose a packet: a port counts as unreachable only after two failed tests.
        let again = findings(session, look, choices).await;
        found.retain(|f| !of_paths(f));
        found.extend(again.into_iter().filter(of_paths));
    }
    let (problems, warnings): (Vec<_>, Vec<_>) = found.into_iter().partition(|f| f.stops);
    for warning in unshown(warnings, shown) {
        session.sink.warn(warning.to_string());
    }
    let mut left_out: BTreeMap<HostName, String> = BTreeMap::new();
    for problem in &problems {
        for host in spared(session, look, problem) {
            let why = left_out.entry(host).or_default();
            why.push_str(if why.is_empty() { "" } else { "; " });
            why.push_str(&problem.to_string());
        }
    }
    // The next round shows the problems that remain without these hosts.
    if problems.is_empty() || !left_out.is_empty() {
        return Ok(left_out);
    }
    Err(Refusal::Preflight { problems: problems.iter().map(ToString::to_string).collect() })
}

/// A machine that answers at the endpoint's address although no host of the inventory holds it.
async fn stranger(session: &Session, look: &Round) -> Option<(HostName, String)> {
    let EndpointKind::Vip { address: IpAddr::V4(address), .. } = session.desired.endpoint.kind else { return None };
    let answered = || look.facts.hosts.values().filter_map(|f| f.as_ref().ok());
    if answered().any(|f| f.cluster_id.is_some() || f.addresses.iter().any(|a| a.address == address)) {
        return None;
    }
    let mut balancers = session.desired.with(Role::LoadBalancer);
    let (name, machine) = balancers.find_map(|h| Some((&h.name, session.machines.get(&h.name)?)))?;
    match machine.call(Op::WhoHas { address }, Payload::None, STRANGER, &|_| {}).await {
        Ok(Reply::Owner(owner)) => owner.map(|hardware| (name.clone(), hardware)),
        outcome => {
            let why = outcome.map_or_else(|error| error.to_string(), |other| format!("unexpected reply {other:?}"));
            session.sink.warn(format!("{name}: could not check whether {address} is in use: {why}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_warns_once_about_a_host_in_a_run_whatever_is_left_of_it_in_later_rounds() {
        let warning = |check, hosts: &[&str], what: &str| Finding {
            check,
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            stops: false,
            what: what.to_owned(),
            remedy: "nothing to do".to_owned(),
        };
        let both = warning("services-free", &["cp1", "cp2"], "no service uses it: /a, /b");
        let folder = warning("services-free", &["cp1"], "not empty before hactl: /c");
        let clock = warning("clocks-agree", &[], "this machine is 61.0 s behind");
        let mut shown = Shown::new();
        let first = vec![both, folder, clock];
        assert_eq!(unshown(first.clone(), &mut shown), first, "two of one check at once are different ones");
        let less = warning("services-free", &["cp2"], "no service uses it: /b");
        let later = warning("clocks-agree", &[], "this machine is 62.0 s behind");
        let other = warning("services-free", &["cp2", "cp3"], "no service uses it: /b");
        let again = vec![less, later, other.clone()];
        assert_eq!(unshown(again, &mut shown), [other], "cp3 is new");
    }
}
