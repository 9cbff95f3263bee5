//! Hosts that differ from the inventory: a mistyped name or address changes nothing.

use crate::sim::{World, make};
use crate::{Shape, converged};
use hactl::model::facts::{ClusterId, Facts, HostFacts, InterfaceAddress};
use hactl::model::names::HostName;
use hactl::model::node::NodeFact;
use hactl::model::plan::{Action, Plan};
use hactl::model::refusal::{Misnamed, Refusal};
use std::net::IpAddr;

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn up(world: &World, facts: &Facts) -> Result<Plan, Refusal> {
    hactl::plan::up(&world.desired, &world.target, facts, &world.intent)
}

fn host<'a>(facts: &'a mut Facts, name: &HostName) -> &'a mut HostFacts {
    facts.hosts.get_mut(name).and_then(|f| f.as_mut().ok()).expect("it answers")
}

/// The hosts that the refusal names, each with the host that it really is.
fn refused(asked: Result<Plan, Refusal>) -> Vec<(HostName, Option<HostName>)> {
    let Err(Refusal::OtherHost { hosts }) = asked else { panic!("{asked:?}") };
    hosts.into_iter().map(|Misnamed { host, is, .. }| (host, is)).collect()
}

/// The answers of two hosts, as if their addresses in the inventory had been exchanged.
fn exchanged(world: &mut World, one: &HostName, other: &HostName) -> Facts {
    let mut facts = world.observe();
    let first = facts.hosts.remove(one).expect("it was asked");
    let second = facts.hosts.remove(other).expect("it was asked");
    facts.hosts.extend([(one.clone(), second), (other.clone(), first)]);
    facts
}

#[test]
fn exchanged_addresses_of_two_hosts_are_refused_with_both_names() {
    for other in [cp(3), make::worker(1).name] {
        let mut world = converged(Shape::Stacked(3));
        let facts = exchanged(&mut world, &cp(1), &other);
        let wanted = [(cp(1), Some(other.clone())), (other.clone(), Some(cp(1)))];
        assert_eq!(refused(up(&world, &facts)), wanted);
        let Err(refusal) = up(&world, &facts) else { panic!() };
        let words = refusal.to_string();
        assert!(words.contains(&format!("is {other}, but the inventory calls it cp1")), "{words}");
        // Confirming one of the two hosts is not enough.
        world.intent.reassign = [cp(1)].into();
        assert_eq!(refused(up(&world, &facts)), [(other.clone(), Some(cp(1)))]);
        world.intent.reassign.insert(other);
        assert!(!matches!(up(&world, &facts), Err(Refusal::OtherHost { .. })), "it is confirmed");
    }
}

#[test]
fn a_host_with_the_cluster_id_of_another_machine_is_refused() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    for n in 1..=3 {
        let found = host(&mut facts, &cp(n));
        found.machine_id = format!("machine-{n}");
        found.cluster_id.as_mut().expect("it has one").machine = Some(format!("machine-{n}"));
    }
    assert!(up(&world, &facts).is_ok_and(|plan| plan.is_empty()));
    host(&mut facts, &cp(2)).machine_id = "another".to_owned();
    assert_eq!(refused(up(&world, &facts)), [(cp(2), None)]);
    world.intent.reassign = [cp(2)].into();
    let plan = up(&world, &facts).expect("it is confirmed");
    assert_eq!(plan.steps.iter().map(|s| &s.action).collect::<Vec<_>>(), [&Action::WriteClusterId { host: cp(2) }]);
}

#[test]
fn a_cluster_id_of_an_earlier_version_gets_its_names_unless_another_host_was_there() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    for n in 1..=3 {
        let cluster_id = host(&mut facts, &cp(n)).cluster_id.as_mut().expect("it has one");
        *cluster_id = ClusterId { host: None, machine: None, ..cluster_id.clone() };
    }
    let at = |n: u8| world.desired.host(&cp(n)).expect("it is in the inventory").address;
    let (one, two, three) = (at(1), at(2), at(3));
    for known in [vec![], vec![(cp(1), one), (cp(2), two), (cp(3), three)]] {
        world.intent.remembered = known.into_iter().collect();
        let plan = up(&world, &facts).expect("no refusal");
        assert_eq!(
            plan.steps.iter().filter(|s| matches!(s.action, Action::WriteClusterId { .. })).count(),
            3,
            "{plan:?}"
        );
    }
    world.intent.remembered = [(cp(1), three), (cp(2), two), (cp(3), one)].into();
    assert_eq!(refused(up(&world, &facts)), [(cp(1), Some(cp(3))), (cp(3), Some(cp(1)))]);
}

/// The Nodes as each API server shows them.
fn nodes(facts: &mut Facts) -> impl Iterator<Item = &mut Vec<NodeFact>> {
    facts.hosts.values_mut().filter_map(|answer| Some(&mut answer.as_mut().ok()?.api.as_mut()?.nodes))
}

#[test]
fn a_confirmed_host_is_refused_under_a_new_name_while_its_old_node_exists() {
    let mut world = converged(Shape::Stacked(3));
    let (named, was) = (make::worker(1).name, make::worker(9).name);
    let mut facts = world.observe();
    host(&mut facts, &named).cluster_id.as_mut().expect("it has one").host = Some(was.clone());
    assert_eq!(refused(up(&world, &facts)), [(named.clone(), Some(was.clone()))]);
    world.intent.reassign = [named.clone()].into();
    assert!(up(&world, &facts).is_ok(), "no Node of the old name is left");
    for all in nodes(&mut facts) {
        let old = NodeFact { name: was.to_string(), ..all[0].clone() };
        all.push(old);
    }
    assert_eq!(up(&world, &facts), Err(Refusal::Renamed { host: named, was }));
}

#[test]
fn a_new_host_is_refused_under_the_name_of_a_node_for_which_a_kubelet_elsewhere_reports() {
    let mut world = converged(Shape::Stacked(3));
    let (worker, other) = (make::worker(1).name, IpAddr::from([10, 99, 0, 9]));
    let mut answer = |is_new: bool, is_unreachable: bool, has_address: bool| {
        let mut facts = world.observe();
        let found = host(&mut facts, &worker);
        found.cluster_id = found.cluster_id.take().filter(|_| !is_new);
        let address = InterfaceAddress { interface: "eth0".to_owned(), address: other, prefix: 24 };
        found.addresses.extend(has_address.then_some(address));
        for node in nodes(&mut facts).flatten().filter(|node| node.name == worker.as_str()) {
            (node.address, node.unreachable) = (Some(other), is_unreachable);
        }
        up(&world, &facts)
    };
    let taken = Refusal::NameInUse { host: worker.clone(), at: other };
    assert_eq!(answer(true, false, false), Err(taken.clone()));
    for (is_new, is_unreachable, has_address) in [(false, false, false), (true, true, false), (true, false, true)] {
        let answered = answer(is_new, is_unreachable, has_address);
        assert_ne!(answered, Err(taken.clone()), "{is_new} {is_unreachable} {has_address}");
    }
}
