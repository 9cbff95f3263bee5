//! Hosts that leave, hosts whose address changes, and disks that move to another host: no data is lost, and no host is
//! forgotten.

use crate::sim::{Ended, Script, World, make};
use crate::{Shape, converged, whole};
use hactl::model::desired::Role;
use hactl::model::facts::{Etcd, Unreachable};
use hactl::model::names::{HostName, PeerUrl};
use hactl::model::plan::{Action, NodeEnd, Plan};
use hactl::model::refusal::Refusal;
use hactl::model::target::FileSet;
use std::net::IpAddr;

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

fn peer(n: u8) -> PeerUrl {
    make::control_host(n).peer_url()
}

/// The plan of a world where no law is broken and nothing is refused.
pub fn planned(world: &mut World) -> Plan {
    world.plan().expect("a sound plan").0.expect("a plan")
}

/// The refusal of a world where no law is broken.
pub fn refused(world: &mut World) -> Refusal {
    world.plan().expect("a sound answer").0.expect_err("a refusal")
}

/// The first step with such an action.
pub fn position(plan: &Plan, is: impl Fn(&Action) -> bool) -> usize {
    plan.steps.iter().position(|s| is(&s.action)).expect("the plan has such a step")
}

/// Whether a step waits for another one, directly or indirectly.
pub fn follows(plan: &Plan, later: usize, earlier: usize) -> bool {
    plan.after[later].iter().any(|&before| before == earlier || follows(plan, before, earlier))
}

/// Nothing of the cluster is left on a host, and nothing of the host in the cluster.
fn gone(world: &World, host: &HostName) -> Result<(), String> {
    let found = world.host(host);
    if found.cluster_id.is_some() || found.disk.is_some() || found.units.values().any(|u| u.running) {
        return Err(format!("{host} is still part of the cluster"));
    }
    if world.unknown_nodes.contains_key(host) {
        return Err(format!("the Node {host} is still there"));
    }
    Ok(())
}

#[test]
fn a_live_host_leaves_once_its_replacement_votes() {
    let mut world = converged(Shape::Stacked(3));
    world.grow();
    world.leave(&cp(3));
    let plan = planned(&mut world);
    let votes = position(&plan, |a| a == &Action::Promote { peer: peer(4) });
    let drained = position(&plan, |a| matches!(a, Action::Drain { host, .. } if host == &cp(3)));
    let removed = position(&plan, |a| a == &Action::RemoveMember { peer: peer(3) });
    let wiped = position(&plan, |a| a == &Action::Wipe { host: cp(3), delete: false });
    let forgotten = position(&plan, |a| a == &Action::DeleteNode { node: cp(3), end: NodeEnd::Stopped });
    for pair in [votes, drained, removed, wiped, forgotten].windows(2) {
        assert!(
            follows(&plan, pair[1], pair[0]),
            "{} before {}",
            plan.steps[pair[1]].action,
            plan.steps[pair[0]].action
        );
    }
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
    assert_eq!(gone(&world, &cp(3)), Ok(()));
}

#[test]
fn working_balancers_get_an_api_server_only_once_it_serves() {
    let mut world = converged(Shape::Stacked(3));
    world.grow();
    let plan = planned(&mut world);
    let serves = position(&plan, |a| matches!(a, Action::AwaitServing { host, .. } if host == &cp(4)));
    for n in [1, 2, 3] {
        let configured = position(
            &plan,
            |a| matches!(a, Action::Configure { host, set: FileSet::LoadBalancer, .. } if host == &cp(n)),
        );
        assert!(follows(&plan, configured, serves), "cp{n}");
    }
    let own =
        position(&plan, |a| matches!(a, Action::Configure { host, set: FileSet::LoadBalancer, .. } if host == &cp(4)));
    assert!(!follows(&plan, own, serves), "a balancer that does not run yet forwards nothing");
}

#[test]
fn a_new_balancer_starts_keepalived_after_all_possible_holders_of_the_endpoints_address_know_it() {
    let mut world = converged(Shape::Stacked(3));
    world.grow();
    let plan = planned(&mut world);
    let keepalived = make::unit("keepalived.service");
    let run = |n: u8| {
        position(&plan, |a| matches!(a, Action::RunUnit { host, unit, .. } if host == &cp(n) && *unit == keepalived))
    };
    for n in [1, 2, 3] {
        assert!(follows(&plan, run(4), run(n)), "cp{n} knows it first");
    }
    let serves = position(&plan, |a| matches!(a, Action::AwaitServing { host, .. } if host == &cp(4)));
    assert!(!follows(&plan, run(1), serves), "a running holder of the address does not wait");
}

#[test]
fn a_run_killed_after_any_effect_of_removing_a_host_is_finished_by_the_next_one() {
    for grows in [true, false] {
        for crash in 0.. {
            let mut world = converged(Shape::Stacked(if grows { 3 } else { 5 }));
            if grows {
                world.grow();
            }
            world.leave(&cp(1));
            let script = Script { order: 7, crash_after: Some(crash), ..Script::default() };
            let end = world.round(&script).unwrap_or_else(|b| panic!("crash after {crash}: {b:?}"));
            assert_eq!(world.converge(7, 5), Ok(Ended::Converged), "crash after {crash}");
            assert_eq!(whole(&world).and_then(|()| gone(&world, &cp(1))), Ok(()), "crash after {crash}");
            if end != Ended::Crashed {
                assert!(crash > 10, "a removal has more effects than {crash}");
                break;
            }
        }
    }
}

#[test]
fn five_members_become_three_one_after_the_other_and_the_leader_moves_leadership_first() {
    let mut world = converged(Shape::Stacked(5));
    world.lead(&cp(1), &peer(1)).expect("a voter can lead");
    world.leave(&cp(1));
    world.leave(&cp(5));
    let plan = planned(&mut world);
    let handed = position(&plan, |a| matches!(a, Action::MoveLeader { host, .. } if host == &cp(1)));
    let first = position(&plan, |a| a == &Action::RemoveMember { peer: peer(1) });
    let wiped = position(&plan, |a| a == &Action::Wipe { host: cp(1), delete: false });
    let second = position(&plan, |a| matches!(a, Action::Drain { host, .. } if host == &cp(5)));
    assert!(follows(&plan, first, handed) && follows(&plan, second, wiped), "one host at a time");
    let after = plan.forecast.last().and_then(Clone::clone).expect("a forecast");
    assert_eq!((after.voters(), after.healthy()), (3, 3));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_dead_host_leaves_before_its_replacement_joins() {
    let mut world = converged(Shape::Stacked(3));
    world.grow();
    world.power_off(&cp(2));
    world.leave(&cp(2));
    world.unknown_nodes.insert(cp(2), (false, true));
    let plan = planned(&mut world);
    let removed = position(&plan, |a| a == &Action::RemoveMember { peer: peer(2) });
    let listed = position(&plan, |a| a == &Action::AddLearner { peer: peer(4) });
    assert!(follows(&plan, listed, removed));
    assert!(!plan.steps.iter().any(|s| s.action.host() == Some(&cp(2))), "nothing is done on it");
    // It was on until now: deleting its Node waits as long as its kubelet may still report.
    position(&plan, |a| a == &Action::DeleteNode { node: cp(2), end: NodeEnd::Asked });
    assert!(
        plan.warnings.iter().any(|w| w.contains("cp2 did not answer") && w.contains("keep it off")),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn the_endpoints_address_leaves_a_host_before_the_others_stop_counting_on_it() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.balancer += 1);
    world.grow();
    world.leave(&cp(3));
    let plan = planned(&mut world);
    let stopped = position(
        &plan,
        |a| matches!(a, Action::StopUnit { host, unit } if host == &cp(3) && unit.as_str() == "keepalived.service"),
    );
    let writes = |at: &usize| matches!(&plan.steps[*at].action, Action::Configure { set: FileSet::Keepalived, .. });
    let written: Vec<usize> = (0..plan.steps.len()).filter(writes).collect();
    assert!(!written.is_empty());
    for at in written {
        assert!(follows(&plan, at, stopped), "{}", plan.steps[at].action);
    }
}

#[test]
fn a_balancer_that_is_taken_out_of_the_inventory_and_not_named_is_not_left_behind() {
    let mut world = converged(Shape::Stacked(3));
    world.intent.removed_hosts.push(make::control_host(9));
    assert_eq!(refused(&mut world), Refusal::LeftBehind { host: cp(9) });
    // After a recovery from a snapshot it counts as lost, and a host that cannot hold the address does no harm.
    world.intent.abandons = true;
    assert!(planned(&mut world).warnings.iter().any(|w| w.contains("cp9") && w.contains("--prune cp9")));
    world.intent.abandons = false;
    world.intent.removed_hosts = vec![make::worker(9)];
    assert!(planned(&mut world).warnings.iter().any(|w| w.contains("w9") && w.contains("--prune w9")));
}

#[test]
fn a_worker_leaves_without_waiting_for_another_one_whose_kubelet_does_not_report() {
    let mut world = World::bare(3, 2);
    assert_eq!(world.converge(7, 4), Ok(Ended::Converged));
    let (stays, leaves) = (make::worker(1).name, make::worker(2).name);
    world.leave(&leaves);
    for is_unreachable in [true, false] {
        let mut facts = world.observe();
        let apis = facts.hosts.values_mut().filter_map(|answer| answer.as_mut().ok()?.api.as_mut());
        for node in apis.flat_map(|api| &mut api.nodes).filter(|node| node.name == stays.as_str()) {
            (node.ready, node.unreachable) = (false, is_unreachable);
        }
        let plan = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("a plan");
        let awaited = position(&plan, |a| matches!(a, Action::AwaitNode { host } if host == &stays));
        let drained = position(&plan, |a| matches!(a, Action::Drain { host, .. } if host == &leaves));
        assert_eq!(follows(&plan, drained, awaited), !is_unreachable, "unreachable: {is_unreachable}");
    }
}

#[test]
fn a_prune_name_without_a_host_that_can_leave_is_reported() {
    let mut world = converged(Shape::Stacked(3));
    world.intent.prune = vec![cp(2), make::host_name("nobody")];
    let plan = planned(&mut world);
    assert!(plan.is_empty());
    assert!(plan.warnings[0].contains("--prune cp2: the inventory names it"), "{:?}", plan.warnings);
    assert!(plan.warnings[1].contains("--prune nobody: no host, member or Node of this name"), "{:?}", plan.warnings);
}

#[test]
fn the_last_control_plane_host_that_answers_does_not_leave() {
    let mut world = converged(Shape::Stacked(3));
    world.leave(&cp(1));
    let mut facts = world.observe();
    for n in [2, 3] {
        let unreachable = Unreachable { why: "no route".to_owned(), hint: None };
        facts.hosts.insert(cp(n), Err(unreachable));
    }
    let answer = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
    assert!(
        matches!(&answer, Err(Refusal::CannotLeave { host, role: Role::ControlPlane, others: 2, answer: 0 }) if host == &cp(1)),
        "{answer:?}"
    );
}

#[test]
fn the_last_balancer_that_answers_does_not_leave_with_the_endpoints_address() {
    let mut world = converged(Shape::Apart);
    let balancers = world.with(Role::LoadBalancer);
    let (leaves, unreachable) = (&balancers[0], &balancers[1]);
    world.leave(leaves);
    assert!(
        planned(&mut world)
            .steps
            .iter()
            .any(|step| matches!(&step.action, Action::Wipe { host, .. } if host == leaves))
    );
    world.power_off(unreachable);
    let refusal = refused(&mut world);
    assert!(
        matches!(&refusal, Refusal::CannotLeave { host, role: Role::LoadBalancer, others: 1, answer: 0 } if host == leaves),
        "{refusal:?}"
    );
}

#[test]
fn the_lost_quorum_and_not_the_host_left_behind_is_reported_when_every_host_was_replaced() {
    let mut world = converged(Shape::Stacked(3));
    world.intent.removed_hosts.push(make::control_host(9));
    for n in 1..=3 {
        world.wipe(&cp(n));
    }
    world.settle();
    let refusal = refused(&mut world);
    assert!(matches!(refusal, Refusal::NoQuorum { .. }), "{refusal:?}");
}

#[test]
fn a_member_does_not_leave_when_the_others_would_have_no_quorum_and_the_unhealthy_one_is_named() {
    let mut world = converged(Shape::Stacked(3));
    world.power_off(&cp(2));
    world.leave(&cp(3));
    let refusal = refused(&mut world);
    let Refusal::WouldLoseQuorum { healthy: 1, voters: 2, quorum: 2, unhealthy, .. } = &refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(*unhealthy, ["cp2"]);
}

#[test]
fn a_cluster_of_one_moves_to_another_host() {
    let mut world = converged(Shape::Stacked(1));
    world.grow();
    world.leave(&cp(1));
    assert!(matches!(world.observe().etcd, Etcd::HasQuorum(_)), "the leaving host is the cluster");
    assert_eq!(world.converge(5, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world).and_then(|()| gone(&world, &cp(1))), Ok(()));
}

#[test]
fn a_member_whose_address_changed_keeps_its_data_and_its_id() {
    for off in [true, false] {
        let mut world = converged(Shape::Stacked(3));
        let before = world.host(&cp(2)).disk.clone();
        if off {
            world.unit_stopped(&cp(2), &make::unit("etcd.service"), true);
            world.settle();
        }
        let to = IpAddr::from([10, 88, 0, 77]);
        world.rehost(|d| d.hosts[1].address = to);
        let plan = planned(&mut world);
        let moved = position(&plan, |a| a == &Action::MoveMember { from: peer(2), to: PeerUrl::of(to) });
        let starts = |a: &Action| match a {
            Action::RunUnit { host, unit, .. } => host == &cp(2) && unit.as_str() == "etcd.service",
            Action::StartMember { host, .. } => host == &cp(2),
            _ => false,
        };
        assert!(follows(&plan, position(&plan, starts), moved));
        assert!(
            !plan.steps.iter().any(|s| matches!(s.action, Action::RemoveMember { .. } | Action::AddLearner { .. }))
        );
        assert_eq!(world.converge(2, 4), Ok(Ended::Converged));
        assert_eq!(whole(&world), Ok(()));
        assert_eq!(world.host(&cp(2)).disk, before, "nothing was copied");
    }
}

#[test]
fn two_addresses_do_not_change_at_once_when_the_third_member_has_no_quorum() {
    let mut world = converged(Shape::Stacked(3));
    for n in [1, 2] {
        world.unit_stopped(&cp(n), &make::unit("etcd.service"), true);
    }
    world.settle();
    world.rehost(|d| {
        d.hosts[0].address = IpAddr::from([10, 88, 0, 76]);
        d.hosts[1].address = IpAddr::from([10, 88, 0, 77]);
    });
    assert!(matches!(refused(&mut world), Refusal::NoQuorum { .. }));
}

#[test]
fn a_disk_that_moved_to_another_host_is_adopted_once_its_former_host_is_pruned() {
    let mut world = converged(Shape::Stacked(3));
    world.power_off(&cp(3));
    let (disk, bootstrapped) = (world.host(&cp(3)).disk.clone(), world.host(&cp(3)).bootstrapped.clone());
    world.wipe(&cp(3));
    world.grow();
    let new = world.host_mut(&cp(4));
    (new.disk, new.bootstrapped) = (disk.clone(), bootstrapped);
    world.rehost(|d| d.hosts.retain(|h| h.name != cp(3)));
    assert!(matches!(refused(&mut world), Refusal::Preflight { problems } if problems[0].contains("--prune cp3")));
    world.intent.prune = vec![cp(3)];
    let plan = planned(&mut world);
    position(&plan, |a| a == &Action::MoveMember { from: peer(3), to: peer(4) });
    assert_eq!(world.converge(2, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
    assert_eq!(world.host(&cp(4)).disk, disk, "nothing was copied");
}
