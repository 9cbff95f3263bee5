//! Hosts that stay and lose roles: everything that belonged to the lost roles is removed, in order, and nothing else.

use crate::leaving::{follows, planned, position, refused};
use crate::sim::{Broken, Ended, Script, World, make};
use crate::{Shape, converged, whole};
use hactl::model::desired::{EndpointKind, Host, Role};
use hactl::model::facts::Unreachable;
use hactl::model::names::HostName;
use hactl::model::plan::{Action, NodeEnd, Plan, Precondition};
use hactl::model::refusal::Refusal;
use hactl::model::target::FileSet;

const ROLES: [Role; 4] = [Role::ControlPlane, Role::Etcd, Role::LoadBalancer, Role::Worker];

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

/// A host gives up a role that others have, or gets one that it does not have. Only in a cluster that was used.
pub fn reassign(world: &mut World, host: u8, role: u8) {
    if !world.acknowledged() {
        return;
    }
    let hosts = &world.desired.hosts;
    let host = hosts[usize::from(host) % hosts.len()].clone();
    let role = ROLES[usize::from(role) % ROLES.len()];
    if role == Role::LoadBalancer && !matches!(world.desired.endpoint.kind, EndpointKind::Vip { .. }) {
        return;
    }
    let mut roles: Vec<Role> = host.roles.iter().copied().filter(|r| *r != Role::Spare).collect();
    if !host.is(role) {
        roles.push(role);
    } else if hosts.iter().filter(|h| h.is(role)).count() > 1 {
        roles.retain(|r| *r != role);
    }
    if roles.is_empty() {
        roles.push(Role::Spare);
    }
    world.reassign(&host.name, &roles);
}

/// Checks, from the world itself, that a host has nothing of roles that it does not have.
pub fn is_no_more_than(world: &World, host: &Host) -> Result<(), String> {
    let found = world.host(&host.name);
    if !found.answers() || found.cluster_id.is_none() {
        return Ok(());
    }
    let target = world.host_target(&host.name);
    let wanted = |unit: &str| target.sets.values().any(|s| s.unit.as_ref().is_some_and(|u| u.as_str() == unit));
    // A run interrupted between stopping such a unit and removing its last link leaves the link, which starts nothing
    // without the file.
    let on_demand = [make::RENEWS, make::DRILLS, make::GUARDS, make::KEEPS, make::NODE_AGENTS];
    if let Some((unit, _)) = found
        .units
        .iter()
        .find(|(unit, u)| (u.running || u.enabled) && !wanted(unit.as_str()) && !on_demand.contains(&unit.as_str()))
    {
        return Err(format!("{unit} runs on {}", host.name));
    }
    if let Some(set) = FileSet::FORMER.into_iter().find(|set| world.stale_files(&host.name, *set) > 0) {
        return Err(format!("{} has something of {set}", host.name));
    }
    if !host.is(Role::ControlPlane) && !found.processes.is_empty() {
        return Err(format!("a control plane runs on {}", host.name));
    }
    if !host.is(Role::Etcd) && found.disk.is_some() {
        return Err(format!("{} has the data of a member in its place", host.name));
    }
    if world.unknown_nodes.contains_key(&host.name) {
        return Err(format!("the Node {} is still there", host.name));
    }
    Ok(())
}

fn removes(plan: &Plan, host: &HostName, set: FileSet) -> usize {
    position(plan, |a| matches!(a, Action::Configure { host: h, set: s, .. } if h == host && *s == set))
}

fn stops(plan: &Plan, host: &HostName, unit: &str) -> usize {
    position(plan, |a| matches!(a, Action::StopUnit { host: h, unit: u } if h == host && u.as_str() == unit))
}

fn in_order(plan: &Plan, steps: &[usize]) {
    for pair in steps.windows(2) {
        let [earlier, later] = [pair[0], pair[1]];
        assert!(follows(plan, later, earlier), "{} before {}", plan.steps[earlier].action, plan.steps[later].action);
    }
}

#[test]
fn the_address_leaves_a_balancer_before_the_others_forget_it_and_its_haproxy_stops_last() {
    let mut world = converged(Shape::Stacked(3));
    world.reassign(&cp(1), &[Role::ControlPlane, Role::Etcd]);
    let plan = planned(&mut world);
    let stopped = stops(&plan, &cp(1), "keepalived.service");
    for n in [2, 3] {
        in_order(
            &plan,
            &[stopped, removes(&plan, &cp(n), FileSet::Keepalived), stops(&plan, &cp(1), "haproxy.service")],
        );
    }
    in_order(&plan, &[stops(&plan, &cp(1), "haproxy.service"), removes(&plan, &cp(1), FileSet::FormerBalancer)]);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_control_plane_stops_once_its_kubelet_uses_the_endpoint_and_its_keys_are_removed_last() {
    let mut world = converged(Shape::Stacked(3));
    world.reassign(&cp(2), &[Role::Worker, Role::Etcd, Role::LoadBalancer]);
    let plan = planned(&mut world);
    let ended = position(&plan, |a| a == &Action::EndPods { host: cp(2) });
    assert_eq!(plan.steps[ended].precondition, Precondition::Tolerates { down: cp(2) });
    for n in [1, 2, 3] {
        // Balancers no longer use an API server that is about to stop.
        in_order(&plan, &[removes(&plan, &cp(n), FileSet::LoadBalancer), ended]);
    }
    let balancer = stops(&plan, &cp(2), "hactl-etcd-balancer.service");
    in_order(&plan, &[ended, balancer, removes(&plan, &cp(2), FileSet::FormerControlPlane)]);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn the_leader_moves_leadership_before_its_member_is_removed_and_its_data_archived() {
    let mut world = converged(Shape::Stacked(5));
    world.lead(&cp(1), &make::control_host(1).peer_url()).expect("a voter can lead");
    world.reassign(&cp(1), &[Role::ControlPlane, Role::LoadBalancer]);
    let disk = world.host(&cp(1)).disk.clone().expect("a member has data");
    let plan = planned(&mut world);
    let handed = position(&plan, |a| matches!(a, Action::MoveLeader { host, .. } if host == &cp(1)));
    let removed = position(&plan, |a| a == &Action::RemoveMember { peer: make::control_host(1).peer_url() });
    let aside = position(&plan, |a| a == &Action::ArchiveData { host: cp(1) });
    let etcd = stops(&plan, &cp(1), "etcd.service");
    in_order(&plan, &[handed, removed, etcd, aside, removes(&plan, &cp(1), FileSet::FormerEtcd)]);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
    assert_eq!(world.host(&cp(1)).aside, [disk], "nothing is deleted");
}

#[test]
fn a_worker_that_becomes_a_spare_is_drained_and_its_node_is_deleted_once_its_kubelet_is_off() {
    let mut world = converged(Shape::Stacked(3));
    let worker = make::worker(1).name;
    world.reassign(&worker, &[Role::Spare]);
    let plan = planned(&mut world);
    let drained = position(&plan, |a| matches!(a, Action::Drain { host, .. } if host == &worker));
    let cleared = position(&plan, |a| a == &Action::ClearNode { host: worker.clone() });
    let gone = position(&plan, |a| a == &Action::DeleteNode { node: worker.clone(), end: NodeEnd::Stopped });
    in_order(&plan, &[drained, cleared, removes(&plan, &worker, FileSet::FormerNode), gone]);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn several_hosts_give_up_roles_one_after_the_other() {
    let mut world = converged(Shape::Stacked(5));
    for n in [4, 5] {
        world.reassign(&cp(n), &[Role::Worker]);
    }
    let plan = planned(&mut world);
    let ended = |n: u8| position(&plan, |a| a == &Action::EndPods { host: cp(n) });
    in_order(&plan, &[ended(4), removes(&plan, &cp(4), FileSet::FormerEtcd), ended(5)]);
    let after = plan.forecast.last().and_then(Clone::clone).expect("a forecast");
    assert_eq!((after.voters(), after.healthy()), (3, 3));
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn a_role_goes_to_another_host_before_this_one_gives_it_up() {
    let mut world = converged(Shape::Apart);
    let (from, to) = (make::host_name("etcd1"), make::worker(1).name);
    world.reassign(&to, &[Role::Worker, Role::Etcd]);
    world.reassign(&from, &[Role::Spare]);
    let plan = planned(&mut world);
    let votes = position(&plan, |a| a == &Action::Promote { peer: world.peer(&to) });
    let removed = position(&plan, |a| a == &Action::RemoveMember { peer: world.peer(&from) });
    in_order(&plan, &[votes, removed]);
    assert_eq!(world.converge(3, 5), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

/// All cases in which a host of a converged cluster gets fewer roles.
fn fewer() -> Vec<(Shape, HostName, Vec<Role>)> {
    use Role::{ControlPlane, Etcd, LoadBalancer, Spare, Worker};
    let stacked = [
        vec![ControlPlane, Etcd],
        vec![ControlPlane, LoadBalancer],
        vec![Etcd, LoadBalancer, Worker],
        vec![Etcd, LoadBalancer],
        vec![Etcd],
        vec![LoadBalancer],
        vec![ControlPlane],
        vec![Worker],
        vec![Spare],
    ];
    let stacked = stacked.into_iter().map(|roles| (Shape::Stacked(3), cp(1), roles));
    let local = [vec![Etcd], vec![Worker], vec![Spare]].into_iter().map(|roles| (Shape::Local, cp(1), roles));
    let worker = (Shape::Stacked(3), make::worker(1).name, vec![Spare]);
    stacked.chain(local).chain([worker]).collect()
}

#[test]
fn a_run_killed_after_any_effect_of_giving_up_roles_is_finished_by_the_next_one() {
    for (shape, host, roles) in fewer() {
        for crash in 0.. {
            let mut world = converged(shape);
            world.reassign(&host, &roles);
            let script = Script { order: 7, crash_after: Some(crash), ..Script::default() };
            let case = || format!("{host} as {roles:?}, crash after {crash}");
            let end = world.round(&script).unwrap_or_else(|b| panic!("{}: {b:?}", case()));
            assert_eq!(world.converge(7, 5), Ok(Ended::Converged), "{}", case());
            assert_eq!(whole(&world), Ok(()), "{}", case());
            assert!(world.plan().expect("sound").0.expect("a plan").is_empty(), "{}", case());
            if end != Ended::Crashed {
                assert!(crash > 3, "{}: it has more effects", case());
                break;
            }
        }
    }
}

#[test]
fn a_host_that_gets_its_roles_back_has_them_again() {
    for (shape, host, roles) in fewer() {
        let mut world = converged(shape);
        let before = world.desired.host(&host).expect("a host of the inventory").roles.clone();
        world.reassign(&host, &roles);
        assert_eq!(world.converge(5, 4), Ok(Ended::Converged), "{roles:?}");
        world.reassign(&host, &before);
        assert_eq!(world.converge(5, 6), Ok(Ended::Converged), "{roles:?}");
        assert_eq!(whole(&world), Ok(()), "{roles:?}");
    }
}

#[test]
fn the_last_reachable_host_gives_up_neither_the_api_nor_the_address() {
    for (role, rest) in [
        (Role::ControlPlane, [Role::Worker, Role::LoadBalancer]),
        (Role::LoadBalancer, [Role::ControlPlane, Role::Worker]),
    ] {
        let mut world = converged(Shape::Stacked(3));
        world.reassign(&cp(1), &[&rest[..], &[Role::Etcd]].concat());
        let mut facts = world.observe();
        for n in [2, 3] {
            let unreachable = Unreachable { why: "no route".to_owned(), hint: None };
            facts.hosts.insert(cp(n), Err(unreachable));
        }
        let answer = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
        assert_eq!(answer.unwrap_err(), Refusal::LastOfRole { host: cp(1), role, others: 2, answer: 0 });
    }
}

#[test]
fn a_vote_is_not_given_up_when_the_others_would_have_no_quorum() {
    let mut world = converged(Shape::Stacked(3));
    world.power_off(&cp(2));
    world.reassign(&cp(3), &[Role::ControlPlane, Role::LoadBalancer]);
    assert!(matches!(refused(&mut world), Refusal::WouldLoseQuorum { healthy: 1, voters: 2, quorum: 2, .. }));
}

#[test]
fn an_unreachable_former_balancer_counts_as_a_balancer_until_it_answers() {
    let mut world = converged(Shape::Stacked(3));
    world.host_mut(&cp(3)).cut = true;
    world.reassign(&cp(3), &[Role::ControlPlane, Role::Etcd]);
    let plan = planned(&mut world);
    let writes = |a: &Action| matches!(a, Action::Configure { set: FileSet::Keepalived, .. });
    assert!(!plan.steps.iter().any(|s| writes(&s.action)), "it may have the address");
    assert!(plan.blocked[0].contains("keepalived.service stopped on cp3"), "{:?}", plan.blocked);
    world.host_mut(&cp(3)).cut = false;
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
}

#[test]
fn an_unreachable_former_member_is_removed_only_by_name() {
    let mut world = converged(Shape::Stacked(5));
    world.power_off(&cp(3));
    world.reassign(&cp(3), &[Role::ControlPlane, Role::LoadBalancer]);
    let removes = |plan: &Plan| plan.steps.iter().any(|s| matches!(s.action, Action::RemoveMember { .. }));
    let plan = planned(&mut world);
    assert!(!removes(&plan) && plan.warnings.iter().any(|w| w.contains("--prune cp3")), "{:?}", plan.warnings);
    world.intent.prune = vec![cp(3)];
    assert!(removes(&planned(&mut world)));
}

#[test]
fn no_host_gives_up_a_role_in_a_limited_run() {
    let mut world = converged(Shape::Stacked(3));
    world.reassign(&cp(3), &[Role::Worker]);
    for limit in [1, 3] {
        world.intent.limit = Some([cp(limit)].into());
        let plan = planned(&mut world);
        let parts = |a: &Action| match a {
            Action::StopUnit { .. } | Action::EndPods { .. } | Action::RemoveMember { .. } => true,
            Action::Configure { set, .. } => *set == FileSet::Keepalived || set.is_former(),
            _ => false,
        };
        assert!(!plan.steps.iter().any(|s| parts(&s.action)), "--limit cp{limit}");
        assert!(plan.warnings.iter().any(|w| w.contains("cp3") && w.contains("--limit")), "{:?}", plan.warnings);
    }
}

#[test]
fn a_host_outside_the_cluster_keeps_its_files_at_hactls_paths() {
    let mut world = converged(Shape::Stacked(3));
    world.reassign(&make::worker(1).name, &[Role::Spare]);
    world.host_mut(&make::worker(1).name).cluster_id = None;
    let plan = planned(&mut world);
    assert!(!plan.steps.iter().any(|s| matches!(&s.action, Action::Configure { set, .. } if set.is_former())));
}

#[test]
fn two_balancers_that_do_not_know_each_other_never_share_the_address() {
    let mut world = converged(Shape::Stacked(3));
    world.reassign(&cp(1), &[Role::ControlPlane, Role::Etcd]);
    let path = "/etc/keepalived/keepalived.conf".to_owned();
    let forced =
        world.force(&Action::Configure { host: cp(2), set: FileSet::Keepalived, paths: vec![path], keep: false });
    assert_eq!(forced, Err(Broken::TwoHolders { host: cp(2), other: cp(1) }));
}
