//! Whether the control plane runs as the inventory asks for: in pods of `DaemonSets`, or in static pods.
//!
//! In: the desired state and facts. Out: checks. Static pods in place of pods are a warning: everything works, without
//! what the inventory asks for.

use crate::model::action::counted;
use crate::model::check::{Check, Outcome, UP, check};
use crate::model::control_plane::PROGRAMS;
use crate::model::desired::{Desired, Role};
use crate::model::facts::{Facts, HostFacts};
use crate::model::hosting::{Hosting, UNIT};
use crate::model::names::HostName;
use std::collections::BTreeSet;

/// The control plane is delivered as the inventory asks for.
const NAME: &str = "control plane in DaemonSets";

/// The checks; none for a cluster with static pods that was never self-hosted.
pub(super) fn checks(desired: &Desired, facts: &Facts) -> Vec<Check> {
    let planes = desired.with(Role::ControlPlane);
    let answers = planes.filter_map(|host| Some((&host.name, facts.host(&host.name)?)));
    let warn = |(host, detail): (&HostName, String)| check(NAME, Some(host), Outcome::Warn, detail, Some(UP));
    if desired.hosting == Hosting::Static {
        let left = answers.filter(|(_, facts)| facts.hosting.as_ref().is_some_and(|fact| !fact.is_held()));
        return left.map(|(host, _)| warn((host, "the inventory asks for static pods".to_owned()))).collect();
    }
    let (mut list, mut revisions, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for (host, facts) in answers {
        match trouble(facts) {
            Err(detail) => list.push(warn((host, detail))),
            Ok(revision) => {
                count += 1;
                revisions.insert(revision);
            }
        }
        if !keeper_runs(facts) {
            let hint = format!("on {host}: systemctl status hactl-hosting; journalctl -u hactl-hosting -n 50");
            let detail = format!("{UNIT} does not run: nothing replaces its pods");
            list.push(check(NAME, Some(host), Outcome::Fail, detail, Some(&hint)));
        }
    }
    // Static pods run where a pod is denied: nobody notices before the next one is to be created.
    for denier in facts.may_deny() {
        list.push(check(NAME, None, Outcome::Warn, format!("pods may be denied: {denier}"), None));
    }
    if revisions.len() > 1 {
        let detail = format!("hosts run {} revisions: {}", revisions.len(), join(revisions.iter().copied()));
        list.push(check(NAME, None, Outcome::Warn, detail, Some(UP)));
    } else if list.is_empty() && count > 0 {
        let hosts = counted(count, "host");
        list.push(check(NAME, None, Outcome::Pass, format!("{hosts}, revision {}", join(revisions.into_iter())), None));
    }
    list
}

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

fn keeper_runs(facts: &HostFacts) -> bool {
    facts.units.iter().any(|(unit, fact)| unit.as_str() == UNIT && fact.runs_or_starts())
}

/// The revision that runs, or what runs instead.
fn trouble(facts: &HostFacts) -> Result<&str, String> {
    let Some(fact) = &facts.hosting else { return Err("static pods run: no pods have taken over yet".to_owned()) };
    let Some(revision) = fact.revision() else { return Err("static pods run, and are held".to_owned()) };
    let left = PROGRAMS.iter().filter(|program| !fact.is_delegated(program)).copied();
    match join(left) {
        left if left.is_empty() => Ok(revision),
        left => Err(format!("not in pods of revision {revision}: {left}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::facts::UnitFact;
    use crate::model::hosting::{ComponentFact, HostingFact, Mode, Server, Workload};

    fn hosted(revision: &str) -> HostFacts {
        let pod = Workload { uid: "u".to_owned(), revision: revision.to_owned() };
        let component = ComponentFact {
            aside: true,
            server: Some(Server::Workload(pod)),
            answers: true,
            ..ComponentFact::default()
        };
        let components = PROGRAMS.iter().map(|program| ((*program).to_owned(), component.clone())).collect();
        let hosting = HostingFact { mode: Some(Mode::Workloads(revision.to_owned())), components };
        let unit = UnitFact { active: "active".to_owned(), enabled: true, started_ms: 1, reloaded_ms: 0 };
        let units = [(crate::model::units::unit(UNIT), unit)].into();
        HostFacts { hosting: Some(hosting), units, ..HostFacts::default() }
    }

    fn found(hosting: Hosting, hosts: [HostFacts; 2]) -> Vec<(Outcome, String)> {
        let desired = Desired { hosting, ..sample(2) };
        let names = desired.hosts.iter().map(|host| host.name.clone());
        let facts = Facts::of(names.zip(hosts.map(Ok)).collect());
        checks(&desired, &facts).into_iter().map(|check| (check.outcome, check.detail)).collect()
    }

    #[test]
    fn it_passes_with_one_revision_everywhere_and_says_what_runs_instead() {
        let own = Hosting::SelfHosted;
        assert_eq!(found(own, [hosted("a"), hosted("a")]), [(Outcome::Pass, "2 hosts, revision a".to_owned())]);
        let two = found(own, [hosted("a"), hosted("b")]);
        assert_eq!(two, [(Outcome::Warn, "hosts run 2 revisions: a, b".to_owned())]);
        let mut without = hosted("a");
        without.units.clear();
        assert!(found(own, [hosted("a"), without]).iter().any(|(outcome, _)| *outcome == Outcome::Fail));
        let mut placed = hosted("a");
        let fact = placed.hosting.as_mut().unwrap();
        fact.components.get_mut(PROGRAMS[0]).unwrap().placed = true;
        let warned = found(own, [hosted("a"), placed.clone()]);
        assert_eq!(warned, [(Outcome::Warn, format!("not in pods of revision a: {}", PROGRAMS[0]))]);
        placed.hosting = None;
        assert!(found(own, [hosted("a"), placed])[0].1.starts_with("static pods run"));
    }

    #[test]
    fn a_static_control_plane_has_no_such_check_unless_pods_are_left() {
        let fixed = HostFacts::default;
        assert_eq!(found(Hosting::Static, [fixed(), fixed()]), []);
        assert_eq!(found(Hosting::Static, [fixed(), hosted("a")]).len(), 1);
    }
}
