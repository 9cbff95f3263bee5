//! Properties of the planner, judged in a simulated world: after any failure between two effects, the same command run
//! again converges, and no law is broken meanwhile.

mod bundled;
mod cases;
mod elections;
mod exits;
mod fencing;
mod hosting;
mod identity;
mod kills;
mod kubelets;
mod laws;
mod leaving;
mod lies;
mod packages;
mod preconditions;
mod recovering;
mod rejoining;
mod renewing;
mod roles;
mod rolled_back;
#[path = "../sim/mod.rs"]
mod sim;
mod spec;
mod standby;
mod trials;
mod unnamed;
mod upgrading;

use hactl::model::desired::{Host, Role};
use hactl::model::facts::{Etcd, Facts};
use hactl::model::names::HostName;
use hactl::model::plan::Condition;
use hactl::model::recovery::{Diagnosis, Loss, Origin, Recovery};
use hactl::model::refusal::Refusal;
use hactl::plan::{RecoveryRequest, diagnose};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sim::{Broken, Chaos, Ended, Release, Script, World};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The shapes of clusters under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    /// So many hosts with every control-plane role.
    Stacked(u8),
    /// Every role on hosts of its own.
    Apart,
    /// Three hosts and no virtual address.
    Local,
}

const SHAPES: [Shape; 6] =
    [Shape::Stacked(1), Shape::Stacked(3), Shape::Stacked(5), Shape::Stacked(7), Shape::Apart, Shape::Local];

impl Shape {
    fn bare(self) -> World {
        match self {
            Self::Stacked(control) => World::bare(control, 1),
            Self::Apart => World::of(sim::make::apart()),
            Self::Local => World::of(sim::make::local(3, 1)),
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(SHAPES.to_vec())
}

/// Converged worlds to start from.
static CONVERGED: LazyLock<HashMap<Shape, World>> = LazyLock::new(|| {
    let build = |shape: Shape| {
        let mut world = shape.bare();
        assert_eq!(world.converge(7, 4), Ok(Ended::Converged), "{shape:?}");
        (shape, world)
    };
    SHAPES.map(build).into()
});

fn converged(shape: Shape) -> World {
    CONVERGED[&shape].clone()
}

/// Three members, all of which get another address.
fn readdressed() -> World {
    let mut world = converged(Shape::Stacked(3));
    world.rehost(|d| {
        for host in &mut d.hosts {
            if let std::net::IpAddr::V4(address) = host.address {
                let [a, b, _, d] = address.octets();
                host.address = [a, b, 9, d].into();
            }
        }
    });
    world
}

#[derive(Debug, Clone)]
enum Act {
    Happens(Chaos),
    Run {
        order: u64,
        crash_after: Option<u16>,
        meanwhile: Vec<(u16, Chaos)>,
    },
    Release(u8),
    Grow,
    Shrink(u8),
    /// A host that stays gives up a role or gets one back, both by number.
    Reassign(u8, u8),
    /// From now on only these hosts, by their bits, may be changed; 0: all may.
    Limit(u8),
}

fn chaos() -> impl Strategy<Value = Chaos> {
    prop_oneof![
        4 => (0..7_u8).prop_map(Chaos::PowerOff),
        5 => (0..7_u8).prop_map(Chaos::PowerOn),
        2 => (0..7_u8).prop_map(Chaos::Wipe),
        2 => (0..7_u8).prop_map(Chaos::LoseData),
        2 => (0..7_u8).prop_map(Chaos::Cut),
        2 => (0..7_u8).prop_map(Chaos::Mend),
        2 => (0..7_u8).prop_map(Chaos::StopEtcd),
    ]
}

/// Like `act`, and the inventory may name other hosts.
fn act_and_rehost() -> impl Strategy<Value = Act> {
    prop_oneof![6 => act(), 1 => Just(Act::Grow), 1 => (0..7_u8).prop_map(Act::Shrink)]
}

/// Like `act`, and hosts may get other roles.
fn act_and_reassign() -> impl Strategy<Value = Act> {
    let reassign = (0..7_u8, 0..8_u8).prop_map(|(host, role)| Act::Reassign(host, role));
    prop_oneof![6 => act(), 4 => reassign]
}

/// Like `act`, and runs may be limited to some of the hosts.
fn act_and_limit() -> impl Strategy<Value = Act> {
    prop_oneof![6 => act(), 3 => any::<u8>().prop_map(Act::Limit)]
}

fn act() -> impl Strategy<Value = Act> {
    let run = (any::<u64>(), option::of(0..150_u16), vec((0..120_u16, chaos()), 0..3));
    prop_oneof![
        3 => chaos().prop_map(Act::Happens),
        4 => run.prop_map(|(order, crash_after, meanwhile)| Act::Run { order, crash_after, meanwhile }),
        1 => (0..12_u8).prop_map(Act::Release),
    ]
}

fn raise(release: &mut Release, which: u8) {
    let field = match which % 13 {
        0 => &mut release.etcd,
        1 => &mut release.manifests,
        2 => &mut release.runtime,
        3 => &mut release.balancer,
        4 => &mut release.approver,
        5 => &mut release.addons,
        6 => &mut release.registries,
        7 => &mut release.users,
        8 => &mut release.renewal,
        9 => &mut release.drills,
        10 => &mut release.guards,
        11 => &mut release.hosting,
        _ => &mut release.leaves,
    };
    *field += 1;
}

fn suffer(world: &mut World, acts: &[Act]) -> Result<(), Broken> {
    for act in acts {
        match act {
            Act::Happens(chaos) => world.suffer(*chaos),
            Act::Release(which) => world.release(|r| raise(r, *which)),
            Act::Grow => world.grow(),
            Act::Shrink(which) => world.shrink(*which),
            Act::Reassign(host, role) => roles::reassign(world, *host, *role),
            Act::Limit(bits) => {
                let hosts = world.desired.hosts.iter().enumerate();
                let chosen = hosts.filter(|(n, _)| bits >> (n % 8) & 1 == 1).map(|(_, h)| h.name.clone());
                world.intent.limit = (*bits > 0).then(|| chosen.collect());
            }
            Act::Run { order, crash_after, meanwhile } => {
                let script = Script {
                    order: *order,
                    crash_after: *crash_after,
                    meanwhile: meanwhile.clone(),
                    ..Script::default()
                };
                world.round(&script)?;
            }
        }
    }
    Ok(())
}

/// Everything matches the inventory, judged from the world.
fn whole(world: &World) -> Result<(), String> {
    let living = world.living().ok_or("no etcd cluster lives")?;
    let cluster = &world.clusters[&living];
    for host in world.with(Role::Etcd) {
        let member = cluster.by_peer(&world.peer(&host));
        if !member.is_some_and(|(id, m)| !m.learner && world.member_alive(&living, id)) {
            return Err(format!("{host} is no living voter"));
        }
        if world.host(&host).bootstrapped.as_ref() != Some(&living) {
            return Err(format!("{host} is not marked as bootstrapped"));
        }
    }
    if cluster.members.len() != world.with(Role::Etcd).len() {
        return Err("there are other members".to_owned());
    }
    if let Some(host) = world.with(Role::ControlPlane).into_iter().find(|h| !world.api_serves(h)) {
        return Err(format!("the API server on {host} is not ready"));
    }
    world.desired.hosts.iter().try_for_each(|host| roles::is_no_more_than(world, host))
}

/// Power and cables are back: either the cluster becomes whole, or `up` cannot restore the lost data.
fn ends_well(world: &mut World, order: u64) -> Result<(), String> {
    world.mend_everything();
    let lost = world.lost_for_good();
    let end = world.converge(order, 8).map_err(|b| format!("{b:?}"))?;
    let removed_hosts = world.removed_hosts();
    match end {
        Ended::Converged if removed_hosts.is_empty() => whole(world),
        Ended::Converged => {
            // Members outside the inventory are never counted as healthy, so too many of them cannot leave at once.
            let wanted = world.with(Role::Etcd).len();
            let carried = wanted > (wanted + removed_hosts.len() - 1) / 2;
            world.intent.prune = removed_hosts;
            match world.converge(order, 8).map_err(|b| format!("{b:?}"))? {
                Ended::Converged => whole(world),
                Ended::Refused(Refusal::WouldLoseQuorum { .. }) if !carried => Ok(()),
                other => Err(format!("pruning ended as {other:?}")),
            }
        }
        Ended::Refused(Refusal::NoQuorum { .. }) if lost => Ok(()),
        // A member outside the inventory cannot be asked, so it never counts as healthy.
        Ended::Refused(Refusal::WouldLoseQuorum { .. } | Refusal::NoQuorum { .. }) if !removed_hosts.is_empty() => {
            Ok(())
        }
        Ended::Refused(Refusal::Preflight { problems })
            if world.rehosted && !world.acknowledged() && problems[0].contains("was started with other etcd hosts") =>
        {
            Ok(())
        }
        other => Err(format!("lost for good: {lost}, and it ended as {other:?}")),
    }
}

fn check(result: Result<(), String>) -> Result<(), TestCaseError> {
    result.map_err(TestCaseError::fail)
}

#[test]
fn bare_hosts_become_a_cluster_and_then_nothing_is_left_to_do() {
    for shape in SHAPES {
        let mut world = shape.bare();
        assert_eq!(world.converge(1, 4), Ok(Ended::Converged), "{shape:?}");
        assert_eq!(whole(&world), Ok(()));
    }
}

#[test]
fn a_run_killed_after_any_effect_of_a_bootstrap_is_finished_by_the_next_one() {
    for order in 0..12 {
        for crash in 0.. {
            let mut world = World::bare(3, 0);
            let script = Script { order, crash_after: Some(crash), ..Script::default() };
            let end = world.round(&script).unwrap_or_else(|b| panic!("crash after {crash}, order {order}: {b:?}"));
            assert_eq!(ends_well(&mut world, order), Ok(()), "crash after {crash}, order {order}");
            if end != Ended::Crashed {
                assert!(crash > 100, "a bootstrap has more effects than {crash}");
                break;
            }
        }
    }
}

#[test]
fn keepalived_starts_only_once_its_package_is_back() {
    for order in 0..12 {
        let mut world = converged(Shape::Stacked(3));
        let host = world.with(Role::LoadBalancer)[1].clone();
        let found = world.host_mut(&host);
        assert!(found.programs.remove("/usr/sbin/keepalived"), "a host with a load balancer has it");
        let unit = found.units.get_mut(&sim::make::unit("keepalived.service")).expect("and its unit");
        unit.running = false;
        let end = world.round(&Script { order, ..Script::default() });
        assert!(matches!(end, Ok(Ended::Done(_))), "order {order}: {end:?}");
        assert_eq!(world.converge(order, 4), Ok(Ended::Converged), "order {order}");
    }
}

/// The facts about a member between its start and its first answer: a process, data, and no answer.
fn as_starting(facts: &Facts, host: &Host) -> Facts {
    let mut facts = facts.clone();
    if let Some(Ok(found)) = facts.hosts.get_mut(&host.name) {
        if let Some(unit) = found.units.get_mut(&sim::make::unit("etcd.service")) {
            "activating".clone_into(&mut unit.active);
        }
        if let Some(etcd) = &mut found.etcd {
            etcd.view = None;
        }
    }
    if let Etcd::HasQuorum(members) = &mut facts.etcd
        && let Some(member) = members.0.get_mut(&host.peer_url())
    {
        member.healthy = false;
    }
    facts
}

#[test]
fn a_member_that_is_starting_while_the_next_run_observes_it_blocks_nothing() {
    let (mut seen, mut unmarked) = (0, 0);
    for crash in 0.. {
        let mut world = World::bare(3, 0);
        let script = Script { order: 5, crash_after: Some(crash), ..Script::default() };
        let end = world.round(&script).expect("no law is broken");
        let facts = world.observe();
        let plan = |facts: &Facts| hactl::plan::up(&world.desired, &world.target, facts, &world.intent);
        let runs = |host: &&Host| world.host(&host.name).runs("etcd.service");
        for host in world.desired.with(Role::Etcd).filter(|_| matches!(facts.etcd, Etcd::HasQuorum(_))).filter(runs) {
            let asked = match plan(&as_starting(&facts, host)) {
                // An initial member without data cannot be removed while another one does not count as healthy yet.
                Err(Refusal::WouldLoseQuorum { .. })
                    if world.with(Role::Etcd).iter().any(|h| world.host(h).disk.is_none()) =>
                {
                    continue;
                }
                asked => asked.expect("a plan"),
            };
            assert_eq!(asked.blocked, Vec::<String>::new(), "crash after {crash}, {} is starting", host.name);
            let marked = world.host(&host.name).bootstrapped.is_some();
            let waits = asked.steps.iter().any(|s| s.provides == Condition::Started(host.name.clone()));
            assert_eq!(waits, !marked, "crash after {crash}: the plan waits for it only where a step requires it");
            seen += 1;
            unmarked += usize::from(!marked);
        }
        if end != Ended::Crashed {
            break;
        }
    }
    assert!(seen > 50 && unmarked > 5, "{seen} observations, {unmarked} of them before the marker");
}

#[test]
fn a_run_killed_after_any_effect_of_a_replacement_and_a_rolling_change_is_finished_by_the_next_one() {
    for order in 0..6 {
        for crash in 0.. {
            let mut world = converged(Shape::Stacked(3));
            world.wipe(&sim::make::host_name("cp2"));
            world.release(|r| (r.etcd, r.manifests, r.runtime) = (1, 1, 1));
            let script = Script { order, crash_after: Some(crash), ..Script::default() };
            let end = world.round(&script).unwrap_or_else(|b| panic!("crash after {crash}, order {order}: {b:?}"));
            assert_eq!(ends_well(&mut world, order), Ok(()), "crash after {crash}, order {order}");
            if end != Ended::Crashed {
                break;
            }
        }
    }
}

#[test]
fn roles_that_change_again_after_an_interrupted_run_leave_no_steps_that_wait_for_one_another() {
    let run = Act::Run { order: 16_350_336_736_795_622_146, crash_after: Some(13), meanwhile: vec![] };
    let acts = [Act::Reassign(1, 4), Act::Reassign(5, 6), run, Act::Reassign(0, 2)];
    let mut world = converged(Shape::Stacked(5));
    suffer(&mut world, &acts).unwrap_or_else(|b| panic!("{b:?}"));
    assert_eq!(ends_well(&mut world, 0), Ok(()));
}

proptest! {
    #![proptest_config(sim::config(600, 4000))]

    #[test]
    fn a_cluster_during_bootstrap_survives_any_failure_between_the_effects(
        shape in shape(),
        acts in vec(act(), 1..8),
        order: u64,
    ) {
        let mut world = shape.bare();
        check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
        check(ends_well(&mut world, order))?;
    }

    #[test]
    fn a_living_cluster_survives_any_failure_between_the_effects(
        shape in shape(),
        acts in vec(act(), 1..8),
        order: u64,
    ) {
        let mut world = converged(shape);
        check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
        check(ends_well(&mut world, order))?;
    }

    #[test]
    fn limited_runs_change_no_other_host_and_leave_nothing_that_a_full_run_cannot_fix(
        control in prop::sample::select(vec![0_u8, 1, 3, 3, 5]),
        acts in vec(act_and_limit(), 2..9),
        order: u64,
    ) {
        let mut world = if control == 0 { World::bare(3, 1) } else { converged(Shape::Stacked(control)) };
        for act in &acts {
            if let (Act::Run { .. }, Some(limit)) = (act, world.intent.limit.clone()) {
                let planned = world.plan().map_err(|b| TestCaseError::fail(format!("{b:?}")))?.0;
                for step in planned.iter().flat_map(|plan| &plan.steps) {
                    let others = step.action.host().is_some_and(|host| !limit.contains(host));
                    prop_assert!(!others, "{} on {:?} with --limit {limit:?}", step.action, step.action.host());
                }
            }
            check(suffer(&mut world, std::slice::from_ref(act)).map_err(|b| format!("{b:?}")))?;
        }
        world.intent.limit = None;
        check(ends_well(&mut world, order))?;
    }

    #[test]
    fn hosts_give_up_roles_and_get_them_back_despite_any_failure(
        shape in shape(),
        acts in vec(act_and_reassign(), 2..9),
        order: u64,
    ) {
        let mut world = converged(shape);
        check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
        check(ends_well(&mut world, order))?;
    }

    #[test]
    fn hosts_join_and_leave_the_inventory_despite_any_failure(
        control in prop::sample::select(vec![0_u8, 1, 3, 3, 5]),
        acts in vec(act_and_rehost(), 2..9),
        order: u64,
    ) {
        let mut world = if control == 0 { World::bare(3, 0) } else { converged(Shape::Stacked(control)) };
        check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
        check(ends_well(&mut world, order))?;
    }
}

#[test]
fn a_learner_whose_host_left_the_inventory_keeps_no_host_from_joining() {
    for order in 0..3 {
        for crash in 0..120 {
            let mut world = converged(Shape::Stacked(3));
            let acts = [
                Act::Happens(Chaos::Wipe(5)),
                Act::Run { order, crash_after: Some(crash), meanwhile: vec![] },
                Act::Shrink(4),
                Act::Grow,
            ];
            let suffered = suffer(&mut world, &acts).map_err(|b| format!("{b:?}"));
            assert_eq!(
                suffered.and_then(|()| ends_well(&mut world, order)),
                Ok(()),
                "order {order}, crash after {crash}"
            );
        }
    }
}

#[test]
fn flannels_interfaces_are_taken_down_on_the_host_whose_node_has_another_range_and_nowhere_else() {
    use hactl::model::desired::{Cidr, Cni};
    use hactl::model::facts::InterfaceAddress;
    use hactl::model::plan::Action;

    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let hosts = world.with(Role::ControlPlane);
    for (third, host) in [0_u8, 1, 2].into_iter().zip(&hosts) {
        let bridge = |third: u8| InterfaceAddress {
            interface: "cni0".to_owned(),
            address: [10, 244, third, 1].into(),
            prefix: 24,
        };
        // The last Node registered again and got the next range.
        let range = Cidr { base: [10, 244, if third == 2 { 3 } else { third }, 0].into(), prefix: 24 };
        for found in facts.hosts.values_mut().filter_map(|f| f.as_mut().ok()) {
            let nodes = found.api.iter_mut().flat_map(|api| &mut api.nodes);
            nodes.filter(|node| node.name == host.as_str()).for_each(|node| node.pods = Some(range));
        }
        facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).expect("it answers").addresses.push(bridge(third));
    }
    let steps = |world: &World| {
        let plan = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("a quorum answers");
        plan.steps.into_iter().map(|step| (step.action, step.why)).collect::<Vec<_>>()
    };
    let why = "cni0 has 10.244.2.1, but the Pod CIDR of its Node is 10.244.3.0/24: other hosts cannot reach its pods";
    assert_eq!(steps(&world), [(Action::RecreatePodNetwork { host: hosts[2].clone() }, why.to_owned())]);
    world.desired.network.cni = Cni::None;
    assert!(
        !steps(&world).iter().any(|(action, _)| matches!(action, Action::RecreatePodNetwork { .. })),
        "another network add-on is not hactl's to repair"
    );
}
