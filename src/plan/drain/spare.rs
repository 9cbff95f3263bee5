//! Whether the control plane can spare one of its hosts now. The budget of the pods that stand for it decides; this says
//! why in words, before anything is changed.
//!
//! Pure. In: those pods, and the hosts that should have one. Out: a sentence that says what is in the way.

use crate::model::control_plane::QuorumPod;
use crate::model::eviction::BudgetFact;
use crate::model::names::HostName;

/// Whether a host may go. `hosts` are all that should have such a pod.
///
/// # Errors
/// What is in the way, with numbers.
pub fn spare(
    host: &HostName,
    hosts: &[HostName],
    pods: &[QuorumPod],
    budget: Option<&BudgetFact>,
) -> Result<(), String> {
    let Some(budget) = budget.filter(|_| !pods.is_empty()) else {
        return Err(format!(
            "the pods that stand for the control plane do not exist, or not their PodDisruptionBudget, so nothing says \
             whether it can spare {host}; `hactl up` creates them"
        ));
    };
    if budget.never() {
        return Err(format!(
            "without {host}, etcd would have no quorum, or there would be no API server: no host of this control plane \
             can be spared"
        ));
    }
    let ready = |one: &HostName| pods.iter().any(|pod| pod.node.as_ref() == Some(one) && pod.is_ready);
    let present = |one: &HostName| pods.iter().any(|pod| pod.node.as_ref() == Some(one));
    let others = || hosts.iter().filter(|one| *one != host);
    let reasons: Vec<String> = others()
        .filter(|one| !ready(one))
        .map(|one| {
            if present(one) {
                format!("etcd or the API server of {one} is not ready")
            } else {
                format!("{one} is in maintenance or cordoned")
            }
        })
        .collect();
    if reasons.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the control plane cannot spare {host} now: {}, and of its {} hosts one at a time may be away",
        reasons.join(", "),
        hosts.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(count: usize) -> Vec<HostName> {
        (1..=count).map(|n| format!("cp{n}").parse().unwrap()).collect()
    }

    fn budget(desired: u32, expected: u32) -> BudgetFact {
        BudgetFact { allowed: 0, healthy: 0, desired, expected, computed: true, always_allows_unready: false }
    }

    /// How the pod of a host is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Is {
        Ready,
        Unready,
        Away,
    }

    fn is() -> impl Strategy<Value = Is> {
        prop_oneof![Just(Is::Ready), Just(Is::Unready), Just(Is::Away)]
    }

    fn pods(hosts: &[HostName], states: &[Is]) -> Vec<QuorumPod> {
        let of = |(host, is): (&HostName, &Is)| QuorumPod {
            node: (*is != Is::Away).then(|| host.clone()),
            is_ready: *is == Is::Ready,
        };
        hosts.iter().zip(states).map(of).collect()
    }

    proptest! {
        #[test]
        fn a_host_is_spared_only_while_all_others_are_ready_and_each_that_is_not_is_named(
            states in proptest::collection::vec(is(), 3..8), at in 0..8_usize,
        ) {
            let (hosts, at) = (names(states.len()), at % states.len());
            let expected = u32::try_from(states.len()).unwrap();
            let result = spare(&hosts[at], &hosts, &pods(&hosts, &states), Some(&budget(expected - 1, expected)));
            let bad: Vec<usize> = (0..states.len()).filter(|n| *n != at && states[*n] != Is::Ready).collect();
            prop_assert_eq!(result.is_ok(), bad.is_empty());
            let said = result.err().unwrap_or_default();
            for n in bad {
                prop_assert!(said.contains(hosts[n].as_str()), "{}", said);
            }
        }
    }

    #[test]
    fn a_control_plane_that_can_spare_none_says_so_and_one_without_its_pods_names_the_command() {
        let hosts = names(1);
        let said = spare(&hosts[0], &hosts, &pods(&hosts, &[Is::Ready]), Some(&budget(1, 1))).unwrap_err();
        assert!(said.contains("without cp1, etcd would have no quorum"), "{said}");
        assert!(spare(&hosts[0], &hosts, &[], Some(&budget(1, 1))).unwrap_err().contains("hactl up"));
        assert!(spare(&hosts[0], &hosts, &pods(&hosts, &[Is::Ready]), None).unwrap_err().contains("hactl up"));
    }
}
