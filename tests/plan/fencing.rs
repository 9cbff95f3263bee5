//! After a recovery the old cluster never answers again, although hosts that were powered off come back, in any number
//! and order, with the data of the old cluster on their disks.

use crate::recovering::recovers;
use crate::sim::{self, Broken, Ended, Script, World, config, make};
use crate::{Shape, check, converged, ends_well, whole};
use hactl::model::desired::Role;
use hactl::model::facts::{DiskFact, Etcd, EtcdFact};
use hactl::model::names::{HostName, PeerUrl};
use hactl::model::plan::{Action, Plan};
use hactl::model::refusal::Refusal;
use hactl::model::target::FileSet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A cluster with this many members powered off that was recovered from the others, and the hosts powered off.
fn recovered(voters: u8, lost: usize, order: u64) -> (World, Vec<HostName>) {
    let mut world = converged(Shape::Stacked(voters));
    let mut hosts = world.with(Role::Etcd);
    hosts.rotate_left(usize::try_from(order % u64::from(voters)).unwrap_or(0));
    hosts.truncate(lost);
    for host in &hosts {
        world.power_off(host);
    }
    let end = recovers(&mut world, &mut None, &Script { order, ..Script::default() });
    assert!(matches!(end, Ok(Ended::Done(_))), "{lost} of {voters}, order {order}: {end:?}");
    (world, hosts)
}

/// The old cluster that has a quorum again, if any.
fn revived(world: &World) -> Option<&String> {
    world.clusters.iter().find(|(id, c)| c.superseded && world.has_quorum(id)).map(|(id, _)| id)
}

#[derive(Debug, Clone)]
enum Back {
    On(u8),
    Off(u8),
    /// A person starts etcd by hand.
    Start(u8),
    Up {
        order: u64,
        crash_after: Option<u16>,
    },
}

fn back() -> impl Strategy<Value = Back> {
    prop_oneof![
        5 => (0..4_u8).prop_map(Back::On),
        2 => (0..4_u8).prop_map(Back::Off),
        2 => (0..4_u8).prop_map(Back::Start),
        2 => (any::<u64>(), option::of(0..80_u16)).prop_map(|(order, crash_after)| Back::Up { order, crash_after }),
    ]
}

fn happens(world: &mut World, old: &[HostName], act: &Back) -> Result<(), Broken> {
    let pick = |n: u8| &old[usize::from(n) % old.len()];
    match act {
        Back::On(n) => world.power_on(pick(*n)),
        // Only hosts that have not rejoined yet: failures of the new cluster's members are tested elsewhere.
        Back::Off(n) => {
            let host = pick(*n);
            let old = world.host(host).disk.as_ref().is_some_and(|d| world.clusters[&d.cluster].superseded);
            if old {
                world.power_off(host);
            }
        }
        Back::Start(n) => {
            let host = pick(*n);
            if world.host(host).on && world.host(host).disk.is_some() && !world.host(host).runs("etcd.service") {
                // It may be refused: this is the behaviour under test.
                let _ = world.etcd_process_starts(host);
            }
        }
        Back::Up { order, crash_after } => {
            world.round(&Script { order: *order, crash_after: *crash_after, ..Script::default() })?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(300, 4000))]

    #[test]
    fn old_members_that_come_back_together_never_answer_beside_the_recovered_cluster(
        (voters, lost) in prop::sample::select(vec![(3, 2), (5, 3), (5, 4), (7, 4)]),
        acts in vec(back(), 1..14),
        order: u64,
    ) {
        let (mut world, old) = recovered(voters, lost, order);
        for act in &acts {
            check(happens(&mut world, &old, act).map_err(|b| format!("{act:?}: {b:?}")))?;
            prop_assert_eq!(revived(&world), None, "after {:?}", act);
            prop_assert!(world.living().is_some_and(|id| world.clusters[&id].restored), "the recovered cluster has a quorum");
        }
        check(ends_well(&mut world, order))?;
        prop_assert_eq!(revived(&world), None);
    }
}

#[test]
fn two_old_members_of_three_without_the_fence_are_the_old_cluster_again() {
    let (mut world, old) = recovered(3, 2, 1);
    for host in &old {
        assert!(world.host_mut(host).files.remove(make::FENCE).is_some());
        world.power_on(host);
    }
    assert!(revived(&world).is_some(), "otherwise the property above proves nothing");
}

#[test]
fn old_members_with_the_fence_stay_stopped_and_up_archives_their_data_and_lets_them_join() {
    let (mut world, old) = recovered(3, 2, 1);
    for host in &old {
        world.power_on(host);
        assert!(!world.host(host).runs("etcd.service"), "{host}");
    }
    assert_eq!(world.converge(3, 6), Ok(Ended::Converged));
    assert_eq!(whole(&world), Ok(()));
    for host in &old {
        assert_eq!(world.host(host).aside.len(), 1, "the old data on {host} is kept");
    }
}

#[test]
fn a_member_of_the_recovered_cluster_is_not_kept_down_by_an_old_one_that_never_stopped() {
    let (mut world, old) = recovered(3, 2, 1);
    let survivor = world.with(Role::Etcd).into_iter().find(|h| !old.contains(h)).expect("one of three");
    let disk = world.host(&old[0]).disk.clone().expect("its data");
    world.host_mut(&old[0]).on = true;
    world.unit_started(&old[0], &make::unit("etcd.service"));
    world.host_mut(&old[0]).units.get_mut(&make::unit("etcd.service")).expect("its unit").ready = true;
    assert!(world.clusters[&disk.cluster].superseded);
    world.unit_stopped(&survivor, &make::unit("etcd.service"), false);
    assert_eq!(world.fenced(&survivor), None);
    assert_eq!(world.etcd_process_starts(&survivor), Ok(()));
}

#[test]
fn up_does_not_start_old_members_while_no_member_of_the_recovered_cluster_answers() {
    let (mut world, old) = recovered(3, 2, 1);
    for host in &old {
        world.power_on(host);
    }
    let survivor = world.with(Role::Etcd).into_iter().find(|h| !old.contains(h)).expect("one of three");
    world.power_off(&survivor);
    let facts = world.observe();
    let asked = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
    let Err(Refusal::NoQuorum { evidence }) = asked else { panic!("{asked:?}") };
    for host in &old {
        let found = evidence.iter().find(|e| &e.host == host).expect("every host is listed");
        assert!(found.what.contains("older than the recovery"), "{found:?}");
    }
    world.intent.recovered = None;
    let asked = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
    assert!(asked.is_ok_and(|plan| !plan.is_empty()), "without the recovery in the journal, it cannot be detected");
}

fn planned(world: &World, facts: &hactl::model::facts::Facts) -> Plan {
    hactl::plan::up(&world.desired, &world.target, facts, &world.intent).expect("a sound plan")
}

#[test]
fn data_of_another_cluster_without_a_bootstrapped_marker_is_recognized_by_its_log_and_is_no_members_disk() {
    let mut world = converged(Shape::Stacked(3));
    let host = make::host_name("cp2");
    world.unit_stopped(&host, &make::unit("etcd.service"), false);
    let mut facts = world.observe();
    let found = facts.hosts.get_mut(&host).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut()).expect("etcd");
    let disk = found.disk.as_mut().expect("its data is read from its files");
    *found = EtcdFact {
        data: true,
        disk: Some(DiskFact { cluster: "c0ffee".to_owned(), ..disk.clone() }),
        ..EtcdFact::default()
    };
    let plan = planned(&world, &facts);
    let has = |action: &Action| plan.steps.iter().any(|s| &s.action == action);
    let peer: PeerUrl = world.peer(&host);
    assert!(matches!(&facts.etcd, Etcd::HasQuorum(m) if m.0.contains_key(&peer)), "it is still listed");
    assert!(has(&Action::RemoveMember { peer: peer.clone() }) && has(&Action::ArchiveData { host }), "{plan:?}");
    assert!(has(&Action::AddLearner { peer }), "{plan:?}");
}

#[test]
fn a_new_release_of_hactl_writes_the_fence_and_restarts_no_member() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.approver += 1);
    let facts = world.observe();
    let plan = planned(&world, &facts);
    let written =
        plan.steps.iter().filter(|s| matches!(s.action, Action::Configure { set: FileSet::Fence, .. })).count();
    let restarted: Vec<String> = plan
        .steps
        .iter()
        .filter_map(|s| match &s.action {
            Action::RunUnit { unit, .. } => Some(unit.to_string()),
            _ => None,
        })
        .collect();
    let units: std::collections::BTreeSet<&str> = restarted.iter().map(String::as_str).collect();
    assert_eq!((written, restarted.len()), (3, 9));
    let wanted = ["hactl-approver.service", "hactl-positions.service", "hactl-snapshot.timer"];
    assert_eq!(units.into_iter().collect::<Vec<_>>(), wanted);
    assert_eq!(sim::law::lint(&world, &plan), Ok(()));
}
