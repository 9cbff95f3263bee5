//! Whether one load balancer has the VIP of the endpoint: keepalived gives it to one, and a keepalived that is frozen,
//! or hears no advertisement of the others, keeps it or takes it beside another one.
//!
//! In: the addresses that hosts report. Out: a failing check, or none. Hosts are asked at slightly different times, and
//! a failover takes some seconds: [`may_be_failover`] says that another look has to confirm the check.

use crate::model::check::{Check, Outcome, check};
use crate::model::desired::{Desired, EndpointKind, Role};
use crate::model::facts::{Facts, HostFacts};
use crate::model::fault::FaultKind;
use crate::model::names::HostName;
use crate::model::remedy::remedy;

/// One host has the VIP.
const NAME: &str = "one host has the VIP";

/// Whether these checks report what is also seen in the middle of a failover.
pub fn may_be_failover(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.name == NAME)
}

/// The check if several hosts have the VIP, or none has it although an API server `serves`: keepalived gives it to no
/// host without one.
pub(super) fn check_vip(desired: &Desired, facts: &Facts, serves: bool) -> Option<Check> {
    let EndpointKind::Vip { address: vip, .. } = desired.endpoint.kind else { return None };
    let has = |found: &HostFacts| found.addresses.iter().any(|one| one.address == vip);
    let entered = facts.hosts.iter().chain(&facts.leaving);
    let have = entered.filter(|(_, found)| found.as_ref().is_ok_and(has)).map(|(host, _)| host.as_str());
    let have: Vec<&str> = have.collect();
    // A host that does not answer may have it. Every host that answers has an address.
    let is_known = |host: &HostName| facts.host(host).is_some_and(|found| !found.addresses.is_empty());
    let (detail, hint) = match have.as_slice() {
        [_] => return None,
        [] if !serves || !desired.with(Role::LoadBalancer).all(|host| is_known(&host.name)) => return None,
        [] => (
            format!("no load balancer has {vip}: clients do not reach the API by it"),
            remedy(FaultKind::VipMissing, None),
        ),
        have => (
            format!(
                "{} have {vip} at the same time: clients reach one or the other, and their connections may break",
                have.join(", ")
            ),
            format!(
                "on one after the other: systemctl restart keepalived, which may be frozen; if it stays so, {}",
                remedy(FaultKind::VipDuplicate, None)
            ),
        ),
    };
    Some(check(NAME, None, Outcome::Fail, detail, Some(&hint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::facts::{InterfaceAddress, Unreachable};

    const VIP: [u8; 4] = [10, 88, 0, 100];

    /// What is said if each of these hosts, by number, has the VIP, has it not, or does not answer.
    fn said(desired: &Desired, have: &[Option<bool>], serves: bool) -> Option<String> {
        let one = |address: [u8; 4]| {
            let address = address.into();
            InterfaceAddress { interface: "eth0".to_owned(), address, prefix: 24 }
        };
        let found = |(at, have): (usize, &Option<bool>)| {
            let name = desired.hosts[at].name.clone();
            let own = one([10, 88, 0, 11]);
            let addresses = match have {
                None => return (name, Err(Unreachable { why: "no route".to_owned(), hint: None })),
                Some(true) => vec![own, one(VIP)],
                Some(false) => vec![own],
            };
            (name, Ok(HostFacts { addresses, ..HostFacts::default() }))
        };
        let facts = Facts::of(have.iter().enumerate().map(found).collect());
        let check = check_vip(desired, &facts, serves)?;
        assert!(check.outcome == Outcome::Fail && check.hint.is_some());
        assert!(may_be_failover(std::slice::from_ref(&check)));
        Some(check.detail)
    }

    #[test]
    fn several_hosts_with_the_vip_are_named() {
        let desired = sample(3);
        let detail = said(&desired, &[Some(true), Some(false), Some(true)], true).unwrap();
        assert!(detail.starts_with("cp1, cp3 have 10.88.0.100 at the same time: "), "{detail}");
        assert_eq!(said(&desired, &[Some(true), None, Some(true)], false).as_ref(), Some(&detail), "by any others");
        assert_eq!(said(&desired, &[Some(false), Some(true), Some(false)], true), None);
    }

    #[test]
    fn that_no_host_has_the_vip_is_said_only_if_all_balancers_answer_and_an_api_server_serves() {
        let mut desired = sample(3);
        let none = [Some(false), Some(false), Some(false)];
        assert!(said(&desired, &none, true).unwrap().starts_with("no load balancer has 10.88.0.100"));
        assert_eq!(said(&desired, &none, false), None, "keepalived gives it to no host without an API server");
        assert_eq!(said(&desired, &[Some(false), Some(false), None], true), None, "the third may have it");
        desired.hosts[2].roles = vec![Role::ControlPlane, Role::Etcd];
        assert!(said(&desired, &[Some(false), Some(false), None], true).is_some(), "the third is no balancer");
    }

    #[test]
    fn an_endpoint_without_a_vip_has_no_such_check() {
        let mut desired = sample(2);
        for kind in [EndpointKind::External("10.88.0.100".to_owned()), EndpointKind::Local { name: None }] {
            desired.endpoint.kind = kind;
            assert_eq!(said(&desired, &[Some(true), Some(true)], true), None);
            assert_eq!(said(&desired, &[Some(false), Some(false)], true), None);
        }
    }
}
