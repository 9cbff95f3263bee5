//! Which components run and do not answer: systemd and the kubelet see their processes and call them active.
//!
//! In: the facts. Out: a failing check for each. A host asks each component twice before it says that it hangs.

use crate::model::check::{Check, Outcome, UP, check};
use crate::model::control_plane::API_SERVER;
use crate::model::facts::Facts;

/// The components that hosts ask, each with what it means that one hangs.
const COMPONENTS: &[(&str, &str)] = &[
    ("containerd.service", "no container starts or stops"),
    ("kubelet.service", "no pod starts or stops, and its Node becomes NotReady"),
    (API_SERVER, "requests to it hang"),
    ("haproxy.service", "clients do not reach the API through this host"),
    ("hactl-etcd-balancer.service", "its API server does not reach etcd"),
    ("keepalived.service", "the VIP does not leave this host if it fails, or two hosts have it"),
];

/// A check for each component of a host that answers.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let answered = facts.hosts.iter().filter_map(|(host, found)| Some((host, found.as_ref().ok()?)));
    let hung = answered.flat_map(|(host, found)| {
        COMPONENTS.iter().filter_map(move |(component, means)| {
            let detail = format!("{}: {means}", found.why_hung(component)?);
            Some(check("components answer", Some(host), Outcome::Fail, detail, Some(UP)))
        })
    });
    hung.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{HostFacts, UnitFact};

    #[test]
    fn a_component_that_runs_and_does_not_answer_is_a_failure_with_its_reason_and_one_that_does_not_run_is_none() {
        let unit = |active: &str| UnitFact { active: active.to_owned(), enabled: true, started_ms: 1, reloaded_ms: 0 };
        let said = |component: &str, active: Option<&str>, pods: &[&str]| {
            let mut found = HostFacts::default();
            found.hung.insert(component.to_owned(), "it is suspended".to_owned());
            if let Some(active) = active {
                found.units.insert(component.parse().unwrap(), unit(active));
            }
            found.processes = pods.iter().map(|program| ((*program).to_owned(), 1)).collect();
            let facts = Facts::of([("cp1".parse().unwrap(), Ok(found))].into());
            checks(&facts).into_iter().map(|check| check.detail).collect::<Vec<_>>()
        };
        let kubelet = "it is suspended: no pod starts or stops, and its Node becomes NotReady";
        assert_eq!(said("kubelet.service", Some("active"), &[]), [kubelet]);
        assert_eq!(said(API_SERVER, None, &[API_SERVER]), ["it is suspended: requests to it hang"]);
        let none = Vec::<String>::new();
        assert_eq!(said("kubelet.service", Some("activating"), &[]), none, "it is only starting");
        assert_eq!(said("kubelet.service", None, &[API_SERVER]), none);
        assert_eq!(said(API_SERVER, None, &[]), none);
        assert_eq!(said("sshd.service", Some("active"), &[]), none, "a host may say anything");
    }
}
