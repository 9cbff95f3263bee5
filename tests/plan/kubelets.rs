//! Kubelets of control-plane hosts, which reach API servers through the balancer of their host: their own first, and the
//! others in reserve.

use crate::leaving::follows;
use crate::sim::{Broken, Ended, World, make};
use crate::{Shape, ends_well};
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Condition, Plan};
use hactl::model::target::FileSet;

const OLD: &str = "1.35.4";
const NEW: &str = "1.36.3";

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn of(version: &str) -> World {
    let mut world = Shape::Stacked(3).bare();
    world.kubernetes(version);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world
}

/// Only the API server of a host is removed.
fn remove_api_server(world: &mut World, host: &HostName) {
    world.host_mut(host).files.remove(make::MANIFESTS[0]);
    world.kubelet_acts(host);
    assert!(!world.api_serves(host));
}

fn planned(world: &mut World) -> Plan {
    world.plan().expect("no law is broken").0.expect("a plan")
}

fn provides(plan: &Plan, condition: &Condition) -> usize {
    plan.steps.iter().position(|s| &s.provides == condition).unwrap_or_else(|| panic!("no step provides {condition}"))
}

fn balances(host: &HostName) -> Condition {
    Condition::Running(host.clone(), make::unit(make::BALANCES))
}

#[test]
fn a_node_stays_ready_as_long_as_any_api_server_serves_and_up_restores_the_others() {
    let mut world = of(NEW);
    for n in 1..=3 {
        assert!((1..=3).all(|n| world.node_ready(&cp(n))), "{n}");
        remove_api_server(&mut world, &cp(n));
    }
    assert!(!(1..=3).any(|n| world.node_ready(&cp(n))), "none serves");
    assert_eq!(ends_well(&mut world, 5), Ok(()));
    assert!((1..=3).all(|n| world.node_ready(&cp(n)) && world.api_serves(&cp(n))));
}

#[test]
fn a_kubelet_has_no_api_server_in_reserve_that_is_older_than_itself_or_whose_balancer_does_not_run() {
    let mut world = of(OLD);
    world.power_off(&cp(3));
    world.kubernetes(NEW);
    let end = world.converge(3, 4);
    let waits = |why: &String| why.contains("on w1 has to wait: it requires the API server on cp3");
    assert!(matches!(&end, Err(Broken::Endless(why)) if waits(why) && !why.contains("on cp1")), "{end:?}");
    for n in 1..=2 {
        assert_eq!(world.host(&cp(n)).ran["kubelet"], NEW, "it does not wait for an API server that it does not use");
    }
    world.power_on(&cp(3));
    world.observe();
    assert_eq!(world.host(&cp(3)).ran["kube-apiserver"], OLD);
    remove_api_server(&mut world, &cp(1));
    assert!(world.node_ready(&cp(1)), "the one of cp2 is as new");
    remove_api_server(&mut world, &cp(2));
    assert!(world.api_serves(&cp(3)) && world.node_ready(&cp(3)));
    assert!(!world.node_ready(&cp(1)) && !world.node_ready(&cp(2)), "the one of cp3 is older");
    world.unit_stopped(&cp(3), &make::unit(make::BALANCES), true);
    assert!(!world.node_ready(&cp(3)));
    assert_eq!(ends_well(&mut world, 5), Ok(()));
}

#[test]
fn a_kubelet_gets_new_files_once_its_balancer_runs_with_new_ones() {
    let mut world = of(NEW);
    world.release(|r| (r.balancer, r.runtime) = (r.balancer + 1, r.runtime + 1));
    let plan = planned(&mut world);
    for n in 1..=3 {
        let files = provides(&plan, &Condition::Configured(cp(n), FileSet::Kubelet));
        let starts = provides(&plan, &Condition::Running(cp(n), make::unit("kubelet.service")));
        let balances = provides(&plan, &balances(&cp(n)));
        assert!(follows(&plan, files, balances) && follows(&plan, starts, balances), "cp{n}");
    }
    let write = plan.steps[provides(&plan, &Condition::Configured(cp(1), FileSet::Kubelet))].action.clone();
    assert_eq!(world.force(&write), Err(Broken::Unbalanced { host: cp(1) }), "the law fires");
}

#[test]
fn the_law_of_versions_fires_for_a_kubelet_that_is_newer_than_an_api_server_in_reserve() {
    let mut world = of(OLD);
    world.kubernetes(NEW);
    let plan = planned(&mut world);
    let on_cp1 = |a: &Action| a.host() == Some(&cp(1)) && !matches!(a, Action::UpgradeKubelet { .. });
    let upgrade =
        plan.steps.iter().find(|s| matches!(&s.action, Action::UpgradeKubelet { host, .. } if *host == cp(1)));
    let saves = |a: &Action| matches!(a, Action::SaveBundle { .. });
    for step in plan.steps.iter().filter(|s| on_cp1(&s.action) || saves(&s.action)) {
        assert_eq!(world.force(&step.action), Ok(()), "{}", step.action);
    }
    // As if the balancer had read its file before the upgrade.
    world.host_mut(&cp(1)).balances_for = Some(OLD.to_owned());
    let broken = world.force(&upgrade.expect("it is upgraded").action);
    assert!(matches!(&broken, Err(Broken::Skewed { what }) if what.contains("the kubelet of cp1")), "{broken:?}");
}
