//! Packages of the bundle: a host gets them where a program is missing, and installs them from there alone. A host for
//! which the bundle has none is refused before anything is changed.

use crate::kills::killed_after_any_effect;
use crate::leaving::follows;
use crate::sim::{Ended, World, make};
use hactl::model::components::PACKAGES;
use hactl::model::desired::{Desired, Role};
use hactl::model::facts::Facts;
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Plan};
use hactl::model::refusal::Refusal;
use hactl::model::target::{INSTALLED, Place};

fn bundled(desired: Desired) -> World {
    World::of(Desired { bundled_packages: true, ..desired })
}

fn planned(world: &mut World) -> Plan {
    world.plan().expect("no law is broken").0.expect("a plan")
}

/// The steps that deliver packages to a host and install them, by their places in the plan.
fn steps(plan: &Plan, host: &HostName) -> (Option<usize>, Option<usize>) {
    let at = |is: fn(&Action) -> bool| plan.steps.iter().position(|s| s.action.host() == Some(host) && is(&s.action));
    let delivers = at(|action| matches!(action, Action::Deliver { part, .. } if part == PACKAGES));
    (delivers, at(|action| matches!(action, Action::InstallPackages { .. })))
}

#[test]
fn packages_are_delivered_before_they_are_installed_and_only_to_hosts_that_lack_them() {
    for desired in [make::desired(3, 1), make::apart(), make::local(3, 1)] {
        let mut world = bundled(desired);
        let plan = planned(&mut world);
        let hosts: Vec<HostName> = world.desired.hosts.iter().map(|host| host.name.clone()).collect();
        for host in &hosts {
            match steps(&plan, host) {
                (Some(delivers), Some(installs)) => assert!(follows(&plan, installs, delivers), "{host}"),
                found => assert!(found == (None, None) && world.host_target(host).packages.is_empty(), "{host}"),
            }
        }
        assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
        let balancer = world.with(Role::ControlPlane)[0].clone();
        assert!(world.host_mut(&balancer).programs.remove("/usr/sbin/haproxy"));
        let plan = planned(&mut world);
        for host in &hosts {
            let (delivers, installs) = steps(&plan, host);
            assert_eq!((delivers, installs.is_some()), (None, *host == balancer), "{host} has what was delivered");
        }
        assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    }
}

#[test]
fn a_bootstrap_with_packages_of_the_bundle_killed_after_any_effect_is_finished_by_the_next_runs() {
    killed_after_any_effect(&bundled(make::desired(3, 0)), 100);
}

#[test]
fn a_host_is_refused_if_it_lacks_packages_that_the_bundle_does_not_have_for_its_distribution() {
    let mut world = bundled(make::desired(1, 1));
    for host in world.target.hosts.values_mut() {
        host.parts.retain(|part| part.place != Place::Packages);
    }
    let mut facts = world.observe();
    for answer in facts.hosts.values_mut() {
        "ubuntu 24.04".clone_into(&mut answer.as_mut().expect("all answer").os);
    }
    let up = |world: &World, facts: &Facts| hactl::plan::up(&world.desired, &world.target, facts, &world.intent);
    let balancer = make::host_name("cp1");
    let lacks = ["haproxy", "keepalived", "nftables"].map(str::to_owned).into();
    let refusal = Refusal::NoPackages {
        hosts: vec![(balancer.clone(), "ubuntu-24.04".to_owned(), lacks)],
        there: [make::DISTRIBUTION.to_owned()].into(),
    };
    assert_eq!(up(&world, &facts), Err(refusal), "the worker needs none");

    let programs = world.host_target(&balancer).packages;
    let found = facts.hosts.get_mut(&balancer).and_then(|answer| answer.as_mut().ok()).expect("it answers");
    found.programs.extend(programs.into_keys());
    let plan = up(&world, &facts).expect("a host with all programs needs no packages");
    assert_eq!(steps(&plan, &balancer), (None, None));
    // hactl did not install them: they are held, and that is recorded.
    let target = world.target.hosts.get_mut(&balancer).expect("its target");
    target.packages.insert(format!("{INSTALLED}/haproxy"), "haproxy".to_owned());
    let (delivers, installs) = steps(&up(&world, &facts).expect("a plan"), &balancer);
    assert_eq!((delivers, installs.is_some()), (None, true));
}
