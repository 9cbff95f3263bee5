//! Checks of guards: they work, they follow the inventory, and they report no fault.
//!
//! In: [`Guards`]. Out: named checks, one for each fault. `up` shows them and does not fail by them: it restarts
//! components, and a guard may report that for some seconds afterwards.

use crate::model::check::{Check, Outcome, UP, check};
use crate::model::duration::human_duration;
use crate::model::fault::FaultKind;
use crate::model::guards::{FaultView, GuardState, Guards};
use crate::model::names::HostName;
use crate::model::remedy::remedy;
use crate::model::repair::Decision;

/// Every guard reports.
const WORK: &str = "guards work";
/// All guards have the policy of the inventory and one release.
const AGREE: &str = "guards are up to date";
/// No guard reports a fault.
const FAULTS: &str = "guards report no fault";
/// The checks of this module, by which `up` does not fail.
pub const GUARD_CHECKS: [&str; 3] = [WORK, AGREE, FAULTS];

/// The checks.
pub fn of_guards(guards: &Guards) -> Vec<Check> {
    let mut list: Vec<Check> = guards.guards.iter().filter_map(|guard| works(&guard.host, &guard.state)).collect();
    let working = guards.working().count();
    if working == guards.guards.len() {
        list.push(check(WORK, None, Outcome::Pass, format!("all {working}"), None));
    }
    let current = list.len();
    for host in guards.outdated() {
        let detail = "its guard has another policy than the inventory asks for";
        list.push(check(AGREE, Some(host), Outcome::Warn, detail, Some(UP)));
    }
    let releases = guards.releases();
    if releases.len() > 1 {
        let names = |hosts: &Vec<&HostName>| hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>().join(" ");
        let detail = format!("they have {} releases: {}", releases.len(), joined(releases.values().map(names)));
        list.push(check(AGREE, None, Outcome::Warn, detail, Some(UP)));
    }
    if list.len() == current && working > 0 {
        list.push(check(AGREE, None, Outcome::Pass, "one policy, one release", None));
    }
    list.extend(guards.faults.iter().filter(|fault| !is_said_elsewhere(guards, fault)).map(open));
    if guards.faults.is_empty() && working > 0 {
        list.push(check(FAULTS, None, Outcome::Pass, "none", None));
    }
    list
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join("; ")
}

/// The check of a guard that does not work; a host that does not answer has a check of its own.
fn works(host: &HostName, state: &GuardState) -> Option<Check> {
    let on = format!("on {host}: systemctl status hactl-guard; journalctl -u hactl-guard -n 50");
    let clock = format!("check the clock of {host}");
    let (detail, hint) = match state {
        GuardState::Works | GuardState::Unknown(_) => return None,
        GuardState::Silent(ms) => (format!("its guard has not reported for {}", human_duration(*ms)), on.as_str()),
        GuardState::Ahead(ms) => {
            (format!("the last report of its guard is {} in the future", human_duration(*ms)), clock.as_str())
        }
        GuardState::Missing => ("its guard has no report: it does not run, or has just started".to_owned(), UP),
        GuardState::Unusable(why) => (format!("the report of its guard is not used: {why}"), on.as_str()),
    };
    Some(check(WORK, Some(host), Outcome::Fail, detail, Some(hint)))
}

/// Whether another check says the same: that the host does not answer.
fn is_said_elsewhere(guards: &Guards, fault: &FaultView) -> bool {
    let mut unknown = guards.guards.iter().filter(|guard| matches!(guard.state, GuardState::Unknown(_)));
    fault.kind == FaultKind::HostUnreachable && unknown.any(|guard| Some(&guard.host) == fault.host.as_ref())
}

/// The check of a fault. What only needs `up` some time soon is a warning.
fn open(fault: &FaultView) -> Check {
    let outcome = match fault.kind {
        kind if kind.is_warning() => Outcome::Warn,
        _ => Outcome::Fail,
    };
    let mended = matches!(fault.next, Some((Decision::Act { .. } | Decision::Wait { .. }, _)));
    let host = fault.host.as_ref().map(|host| format!(" {host}")).unwrap_or_default();
    let guard = if fault.kind == FaultKind::PowerDue { "another guard" } else { "its guard" };
    let hint = match &fault.next {
        _ if mended => format!("{guard} repairs it; hactl guard explain{host}"),
        Some((Decision::HeldBack { .. } | Decision::GaveUp { .. }, _)) => {
            format!("{guard} does not repair it: hactl guard explain{host}")
        }
        _ => remedy(fault.kind, fault.host.as_ref()),
    };
    check(FAULTS, fault.host.as_ref(), outcome, fault.to_string(), Some(&hint))
}
