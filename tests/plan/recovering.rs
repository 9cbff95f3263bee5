//! Recoveries and undos in the simulated world: which source is chosen, which one only by name, and a kill after every
//! effect.

use super::*;
use hactl::model::facts::{DiskFact, Unreachable};
use hactl::model::plan::Action;
use hactl::model::recovery::ALONE_FROM;

/// Recovers as `workflow::recover` does: the agreed recovery is remembered whatever is observed later. Hosts without
/// power are declared as powered off.
pub fn recovers(world: &mut World, agreed: &mut Option<Recovery>, script: &Script) -> Result<Ended, String> {
    let facts = world.observe();
    let restored = |r: &Recovery| world.hosts.values().any(|h| h.token.as_ref() == Some(&r.id) && h.disk.is_some());
    let begun = agreed.clone();
    let begun = begun.filter(|r| if r.is_local() { restored(r) } else { world.snapshots.contains_key(&r.id) });
    let powered_off = world.hosts.iter().filter(|(_, h)| !h.on).map(|(name, _)| name.to_string()).collect();
    let request = RecoveryRequest { id: "recovery1".to_owned(), begun, powered_off, ..RecoveryRequest::default() };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let Ok(Diagnosis::Lost(proposal)) = found else { return Err(format!("{found:?}")) };
    let recovery = proposal.recovery.clone();
    *agreed = Some(recovery.clone());
    let taken = proposal.begun;
    let plan = hactl::plan::recover(&world.desired, &world.target, &facts, &world.intent, &recovery, taken);
    world.run(&plan.map_err(|e| e.to_string())?, script).map_err(|b| format!("{b:?}"))
}

/// A cluster of so many members that has lost the disks of this many of them.
pub fn without_majority(voters: u8, lost: usize) -> World {
    let mut world = converged(Shape::Stacked(voters));
    lose_disks(&mut world, lost);
    world
}

/// So many members lose their disks.
pub fn lose_disks(world: &mut World, lost: usize) {
    for host in world.with(Role::Etcd).into_iter().take(lost) {
        let found = world.host_mut(&host);
        found.without_data();
        found.units.get_mut(&sim::make::unit("etcd.service")).expect("it has run").running = false;
    }
    world.settle();
}

/// Kills a recovery after each of its effects: the next one and `up` must make the cluster whole, and then this must hold.
pub fn recovery_killed_after_any_effect(start: &World, order: u64, well: impl Fn(&World) -> bool) {
    for crash in 0.. {
        let place = format!("order {order}, crash after {crash}");
        let (mut world, mut agreed) = (start.clone(), None);
        let script = Script { order, crash_after: Some(crash), ..Script::default() };
        let first = recovers(&mut world, &mut agreed, &script).unwrap_or_else(|e| panic!("{place}: {e}"));
        let calm = Script { order, ..Script::default() };
        if first == Ended::Crashed && world.living().is_none() {
            // If enough members are restored and only have to be started, `up` starts them without a loss.
            let facts = world.observe();
            let starts = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).is_ok();
            if !starts {
                let second = recovers(&mut world, &mut agreed, &calm);
                assert!(matches!(second, Ok(Ended::Done(_))), "{place}: {second:?}");
            }
        }
        assert_eq!(ends_well(&mut world, order), Ok(()), "{place}");
        let living = world.living().expect("ends_well says so");
        assert!(world.clusters[&living].restored, "{place}: the old cluster answers again");
        assert!(well(&world), "{place}");
        if first != Ended::Crashed {
            assert!(crash > 10, "it has more effects than {crash}");
            break;
        }
    }
}

#[test]
fn a_recovery_killed_after_any_effect_is_finished_by_the_next_one_and_up_makes_the_cluster_whole() {
    for (voters, lost) in [(3, 2), (5, 3), (5, 4)] {
        for order in 0..3 {
            recovery_killed_after_any_effect(&without_majority(voters, lost), order, |_| true);
        }
    }
}

#[test]
fn a_recovery_of_a_large_database_killed_after_any_effect_is_finished_and_no_old_member_is_left() {
    for (voters, lost) in [(3, 2), (5, 3), (5, 4)] {
        for order in 0..3 {
            let mut world = without_majority(voters, lost);
            world.db_bytes = ALONE_FROM;
            recovery_killed_after_any_effect(&world, order, |_| true);
        }
    }
}

#[test]
fn a_large_database_is_restored_on_its_own_host_alone_after_the_data_of_all_others_is_moved_aside() {
    for (bytes, alone) in [(ALONE_FROM - 1, false), (ALONE_FROM, true)] {
        let mut world = without_majority(5, 3);
        world.db_bytes = bytes;
        let facts = world.observe();
        let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
        let recovery = &proposal.recovery;
        let Origin::Data(source) = &recovery.source else { panic!("{recovery:?}") };
        assert_eq!((recovery.is_local(), recovery.members.len() == 1), (alone, alone), "{bytes} bytes: {recovery:?}");
        let plan = hactl::plan::recover(&world.desired, &world.target, &facts, &world.intent, recovery, false).unwrap();
        let of = |which: &dyn Fn(&Action) -> Option<HostName>| -> Vec<HostName> {
            plan.steps.iter().filter_map(|step| which(&step.action)).collect()
        };
        let archived = of(&|a| if let Action::ArchiveData { host } = a { Some(host.clone()) } else { None });
        let taken = of(&|a| if let Action::TakeSnapshot { host, .. } = a { Some(host.clone()) } else { None });
        let restored = of(&|a| if let Action::Restore { host, .. } = a { Some(host.clone()) } else { None });
        let started = plan.steps.iter().filter(|step| matches!(step.action, Action::StartMember { .. }));
        let started: Vec<_> = started.collect();
        if !alone {
            assert_eq!((archived.len(), taken.len(), restored.len(), started.len()), (0, 1, 5, 5), "{plan:?}");
            continue;
        }
        let other = world.with(Role::Etcd).into_iter().find(|h| world.host(h).disk.is_some() && h != source).unwrap();
        assert_eq!((archived, taken, restored), (vec![other.clone()], vec![], vec![source.clone()]));
        assert!(started.len() == 1 && started[0].requires.contains(&Condition::Cleared(other)), "{started:?}");
    }
}

#[test]
fn a_running_member_that_is_to_be_replaced_joins_again_once_wherever_the_run_is_killed() {
    for crash in 0.. {
        let mut world = converged(Shape::Stacked(3));
        let host = world.with(Role::Etcd)[0].clone();
        let was = world.host(&host).disk.clone().expect("it is a member");
        world.intent.replace = [(host.clone(), was.member)].into();
        let facts = world.observe();
        let plan = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("the others carry it");
        let script = Script { crash_after: Some(crash), ..Script::default() };
        let ran = world.run(&plan, &script).unwrap_or_else(|broken| panic!("crash after {crash}: {broken:?}"));
        assert_eq!(ends_well(&mut world, u64::from(crash)), Ok(()), "crash after {crash}");
        let now = world.host(&host).disk.clone().expect("it is a member again");
        assert!(now.member != was.member && now.cluster == was.cluster, "crash after {crash}: {now:?}");
        assert_eq!(world.host(&host).aside.len(), 1, "crash after {crash}: its old data is archived, and nothing else");
        if ran != Ended::Crashed {
            break;
        }
    }
}

/// Whether `up` would remove the member of a host.
fn removes(world: &World, facts: &Facts, host: &HostName) -> bool {
    let plan = hactl::plan::up(&world.desired, &world.target, facts, &world.intent).expect("a quorum answers");
    let peer = world.desired.host(host).expect("it is there").peer_url();
    plan.steps.iter().any(|step| step.action == Action::RemoveMember { peer: peer.clone() })
}

#[test]
fn a_stopped_member_is_started_unless_its_data_is_damaged() {
    let mut world = converged(Shape::Stacked(3));
    let hosts = world.with(Role::Etcd);
    world.host_mut(&hosts[1]).units.get_mut(&sim::make::unit("etcd.service")).expect("it has run").running = false;
    let mut facts = world.observe();
    let removes = |facts: &Facts| removes(&world, facts, &hosts[1]);
    assert!(!removes(&facts));
    let disk = |facts: &mut Facts, change: &dyn Fn(&mut Option<DiskFact>)| {
        let found = facts.hosts.get_mut(&hosts[1]).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
        change(&mut found.expect("an etcd host").disk);
    };
    disk(&mut facts, &|disk| disk.as_mut().expect("its data is read").damaged = true);
    assert!(removes(&facts), "etcd would not start from its log");
    disk(&mut facts, &|disk| disk.as_mut().expect("its data is read").damaged = false);
    assert!(!removes(&facts));
    disk(&mut facts, &|disk| disk.as_mut().expect("its data is read").revision = None);
    assert!(removes(&facts), "its store cannot be read");
    disk(&mut facts, &|disk| *disk = None);
    assert!(removes(&facts), "neither can its log");
}

#[test]
fn a_member_that_ends_after_each_start_is_replaced_if_its_data_is_damaged_and_no_process_has_it_open() {
    let mut world = converged(Shape::Stacked(3));
    let host = world.with(Role::Etcd)[1].clone();
    let view = |facts: &Facts| facts.host(&host).and_then(|f| f.etcd.as_ref()?.view.clone());
    let serving = view(&world.observe()).expect("it serves");
    let unit = sim::make::unit("etcd.service");
    world.host_mut(&host).units.get_mut(&unit).expect("it has run").running = false;
    let facts = world.observe();
    let removes = |facts: Facts| removes(&world, &facts, &host);
    let etcd = |view: bool, closed: bool, damaged: bool| {
        let mut facts = facts.clone();
        let found = facts.hosts.get_mut(&host).and_then(|f| f.as_mut().ok()).expect("it answers");
        let process = found.units.get_mut(&unit).expect("it is asked for");
        (process.active, process.started_ms) = ("activating".to_owned(), 1);
        let etcd = found.etcd.as_mut().expect("an etcd host");
        (etcd.view, etcd.closed) = (view.then(|| serving.clone()), closed);
        if damaged {
            etcd.disk.as_mut().expect("its data is read").revision = None;
        }
        facts
    };
    assert!(removes(etcd(false, true, true)));
    assert!(!removes(etcd(true, true, true)), "it answers");
    assert!(!removes(etcd(false, false, true)), "a process may be writing it");
    assert!(!removes(etcd(false, true, false)), "its data is whole");
}

/// Goes back to the data that the last recovery archived, as the same command run again would.
fn undoes(world: &mut World, agreed: &mut Option<Recovery>, script: &Script) -> Result<Ended, String> {
    let facts = world.observe();
    // A quorum that answers ends the agreed recovery.
    let open = agreed.clone().filter(|_| !matches!(facts.etcd, Etcd::HasQuorum(_)));
    let begun = open.filter(|r| world.snapshots.contains_key(&r.id));
    let request = RecoveryRequest { id: "recovery2".to_owned(), begun, undo: true, ..RecoveryRequest::default() };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let Ok(Diagnosis::Lost(proposal)) = found else { return Err(format!("{found:?}")) };
    let recovery = proposal.recovery.clone();
    let taken = !matches!(facts.etcd, Etcd::HasQuorum(_)) && world.snapshots.contains_key(&recovery.id);
    *agreed = Some(recovery.clone());
    let plan = hactl::plan::recover(&world.desired, &world.target, &facts, &world.intent, &recovery, taken);
    world.standstill = true;
    let ran = world.run(&plan.map_err(|e| e.to_string())?, script).map_err(|b| format!("{b:?}"));
    world.standstill = false;
    ran
}

#[test]
fn an_undo_killed_after_any_effect_goes_back_to_the_archived_data_or_changes_nothing() {
    let mut recovered = without_majority(3, 2);
    let old = recovered.with(Role::Etcd).into_iter().find_map(|h| recovered.host(&h).disk.clone()).expect("a survivor");
    let script = Script::default();
    assert!(matches!(recovers(&mut recovered, &mut None, &script), Ok(Ended::Done(_))));
    assert_eq!(ends_well(&mut recovered, 0), Ok(()));
    let was = recovered.living().expect("it answers");
    for order in 0..3 {
        for crash in 0.. {
            let place = format!("order {order}, crash after {crash}");
            let (mut world, mut agreed) = (recovered.clone(), None);
            let script = Script { order, crash_after: Some(crash), ..Script::default() };
            let first = undoes(&mut world, &mut agreed, &script).unwrap_or_else(|e| panic!("{place}: {e}"));
            let Some(Origin::Aside(..)) = agreed.as_ref().map(|r| &r.source) else { panic!("{place}: {agreed:?}") };
            let now = |world: &World| world.living().filter(|id| world.clusters[id].revision > 2_000_000_000);
            if first == Ended::Crashed && now(&world).is_none() {
                let facts = world.observe();
                let restored = world.clusters.values().any(|c| c.revision > 2_000_000_000);
                let starts = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).is_ok();
                // `up` starts restored members that only have to be started.
                if !(restored && starts) {
                    let calm = Script { order, ..Script::default() };
                    let second = undoes(&mut world, &mut agreed, &calm);
                    assert!(matches!(second, Ok(Ended::Done(_))), "{place}: {second:?}");
                }
            }
            assert_eq!(ends_well(&mut world, order), Ok(()), "{place}");
            let living = now(&world).unwrap_or_else(|| panic!("{place}: it went back"));
            assert!(living != was && living != old.cluster, "{place}: a new cluster, unknown to all earlier members");
            if first != Ended::Crashed {
                break;
            }
        }
    }
}

#[test]
fn nothing_is_undone_without_a_recovery_or_while_members_do_not_answer() {
    let mut world = converged(Shape::Stacked(3));
    let undo = |world: &mut World, undo| {
        let (facts, request) =
            (world.observe(), RecoveryRequest { id: "recovery2".to_owned(), undo, ..RecoveryRequest::default() });
        diagnose(&world.desired, &world.target, &facts, &world.intent, &request)
    };
    assert_eq!(undo(&mut world, true), Err(Refusal::NothingAside));
    world = without_majority(3, 2);
    assert!(matches!(recovers(&mut world, &mut None, &Script::default()), Ok(Ended::Done(_))));
    assert_eq!(ends_well(&mut world, 0), Ok(()));
    let found = undo(&mut world, true);
    let Ok(Diagnosis::Lost(proposal)) = found else { panic!("there is archived data: {found:?}") };
    let hosts = world.with(Role::Etcd);
    assert!(matches!(&proposal.recovery.source, Origin::Aside(host, _) if host == &hosts[2]));
    assert!(matches!(proposal.loss, Loss::Undone { .. }) && proposal.recovery.members.len() == 3, "{proposal:?}");
    assert_eq!(proposal.sources.len(), 1, "the running cluster is no source: {:?}", proposal.sources);
    assert_eq!(
        undo(&mut world, false),
        Ok(Diagnosis::Serves { healthy: 3, voters: 3 }),
        "an undo happens only on request"
    );
    for host in &hosts[..2] {
        world.host_mut(host).cut = true;
    }
    let found = undo(&mut world, true);
    assert!(matches!(found, Err(Refusal::MayLive { .. })), "{found:?}");
}

#[test]
fn nothing_is_restored_while_unreachable_members_could_have_a_quorum_of_their_own() {
    let mut world = converged(Shape::Stacked(3));
    let hosts = world.with(Role::Etcd);
    for host in &hosts[..2] {
        world.host_mut(host).on = false;
    }
    world.settle();
    let facts = world.observe();
    let ask = |powered_off: &[&HostName]| {
        let powered_off = powered_off.iter().map(ToString::to_string).collect();
        let request = RecoveryRequest { id: "recovery1".to_owned(), powered_off, ..RecoveryRequest::default() };
        diagnose(&world.desired, &world.target, &facts, &world.intent, &request)
    };
    assert!(matches!(ask(&[]), Err(Refusal::MayLive { quorum: 2, voters: 3, .. })), "{:?}", ask(&[]));
    let Ok(Diagnosis::Lost(proposal)) = ask(&[&hosts[0]]) else { panic!("one of them alone is no quorum") };
    assert_eq!(proposal.recovery.source, Origin::Data(hosts[2].clone()));
    assert_eq!(proposal.loss, Loss::CannotBeKnown);
    assert_eq!(proposal.later, hosts[..2], "they join when they are back");
}

#[test]
fn a_majority_that_has_its_data_is_never_restored() {
    let mut world = converged(Shape::Stacked(3));
    let hosts = world.with(Role::Etcd);
    // They were off and on again: their data is there, and they do not run.
    for host in &hosts {
        world.host_mut(host).units.get_mut(&sim::make::unit("etcd.service")).expect("it has run").running = false;
    }
    let facts = world.observe();
    let request = RecoveryRequest { id: "recovery1".to_owned(), ..RecoveryRequest::default() };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    assert_eq!(found, Ok(Diagnosis::Asleep));
    let asked = Origin::Data(hosts[0].clone());
    let request = RecoveryRequest { from: Some(asked.clone()), ..request };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    assert_eq!(
        found,
        Err(Refusal::NeedNot { asked: asked.clone(), serves: false, begun: None }),
        "and this is reported"
    );
    let living = converged(Shape::Stacked(3)).observe();
    let found = diagnose(&world.desired, &world.target, &living, &world.intent, &request);
    assert_eq!(found, Err(Refusal::NeedNot { asked, serves: true, begun: None }));
    let found =
        diagnose(&world.desired, &world.target, &facts, &world.intent, &RecoveryRequest { undo: true, ..request });
    assert!(matches!(found, Ok(Diagnosis::Lost(_))), "an undo was requested: {found:?}");
}

/// A recovery of all members that was agreed to.
fn begun(world: &World, source: Origin, reach: (u64, u64)) -> Recovery {
    let members = world.desired.with(Role::Etcd).map(|host| (host.name.clone(), host.peer_url())).collect();
    Recovery { id: "recovery1".to_owned(), source, reach, base: 1_000_000_800, members, undo: false }
}

#[test]
fn a_begun_recovery_is_given_up_for_another_source_unless_unreachable_hosts_could_complete_it() {
    let (world, mut facts, hosts) = two_sources(|at, disk| {
        (disk.cluster, disk.term, disk.index, disk.revision) =
            ("c".to_owned(), 4, 900, Some(if at == 0 { 800 } else { 801 }));
    });
    let begun = begun(&world, Origin::Data(hosts[0].clone()), (4, 900));
    let other = Origin::Data(hosts[1].clone());
    let ask = |facts: &Facts, from: &Origin, powered_off: &[&HostName]| {
        let powered_off = powered_off.iter().map(ToString::to_string).collect();
        let (begun, from) = (Some(begun.clone()), Some(from.clone()));
        let request =
            RecoveryRequest { id: "recovery2".to_owned(), begun, from, powered_off, ..RecoveryRequest::default() };
        diagnose(&world.desired, &world.target, facts, &world.intent, &request)
    };
    let Ok(Diagnosis::Lost(same)) = ask(&facts, &begun.source, &[]) else { panic!("it is resumed") };
    assert_eq!((same.begun, same.gives_up.as_ref(), &same.recovery), (true, None, &begun));
    let Ok(Diagnosis::Lost(proposal)) = ask(&facts, &other, &[]) else { panic!("it is another one") };
    assert_eq!((proposal.begun, proposal.gives_up.as_ref()), (false, Some(&begun)));
    assert_eq!((&proposal.recovery.source, proposal.recovery.id.as_str()), (&other, "recovery2"));
    for host in &hosts[2..] {
        facts.hosts.insert(host.clone(), Err(Unreachable { why: "no route".to_owned(), hint: None }));
    }
    let unreachable: Vec<&HostName> = hosts[2..].iter().collect();
    assert!(matches!(ask(&facts, &other, &[]), Err(Refusal::MayLive { .. })), "three of five are a quorum of either");
    let found = ask(&facts, &other, &unreachable);
    assert!(matches!(&found, Ok(Diagnosis::Lost(p)) if p.gives_up.is_some()), "{found:?}");
}

#[test]
fn data_restored_by_a_recovery_that_is_given_up_is_no_source_and_no_loss() {
    let (world, mut facts, hosts) = two_sources(|at, disk| {
        let restored = ("restored".to_owned(), 1, 5, Some(1_000_000_800));
        let own = ("c".to_owned(), 4, 900, Some(801));
        (disk.cluster, disk.term, disk.index, disk.revision) = if at == 0 { restored } else { own };
    });
    let etcd = facts.hosts.get_mut(&hosts[0]).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
    let etcd = etcd.expect("an etcd host");
    (etcd.token, etcd.bootstrapped) = (Some("recovery1".to_owned()), None);
    let begun = begun(&world, Origin::Bundle("older.hactl".to_owned()), (3, 700));
    let ask = |from: &HostName| {
        let (begun, from) = (Some(begun.clone()), Some(Origin::Data(from.clone())));
        let request = RecoveryRequest { id: "recovery2".to_owned(), begun, from, ..RecoveryRequest::default() };
        diagnose(&world.desired, &world.target, &facts, &world.intent, &request)
    };
    let Ok(Diagnosis::Lost(proposal)) = ask(&hosts[1]) else { panic!("it is there") };
    assert_eq!((proposal.loss, proposal.gives_up.as_ref()), (Loss::CannotBeKnown, Some(&begun)));
    let found = ask(&hosts[0]);
    assert!(matches!(found, Err(Refusal::NoSource { asked: Some(_), .. })), "it is a copy of the snapshot: {found:?}");
    let etcd = facts.hosts.get_mut(&hosts[0]).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
    etcd.and_then(|etcd| etcd.disk.as_mut()).expect("its data is read").revision = Some(1_000_000_801);
    let request = RecoveryRequest {
        begun: Some(begun),
        from: Some(Origin::Data(hosts[1].clone())),
        ..RecoveryRequest::default()
    };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let reported =
        matches!(&found, Err(Refusal::Preflight { problems }) if problems[0].contains("already accepted writes"));
    assert!(reported, "the restored data was used: {found:?}");
}

/// The facts of a cluster of three that lost one disk and one host; `change` changes the data of the two others.
pub fn two_sources(change: impl Fn(usize, &mut hactl::model::facts::DiskFact)) -> (World, Facts, Vec<HostName>) {
    let mut world = converged(Shape::Stacked(5));
    let hosts = world.with(Role::Etcd);
    for host in &hosts {
        let found = world.host_mut(host);
        found.units.get_mut(&sim::make::unit("etcd.service")).expect("it has run").running = false;
    }
    for host in &hosts[2..] {
        world.host_mut(host).without_data();
    }
    let mut facts = world.observe();
    for (at, host) in hosts[..2].iter().enumerate() {
        let found = facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
        change(at, found.and_then(|e| e.disk.as_mut()).expect("its data is read from its files"));
    }
    (world, facts, hosts)
}

pub fn diagnosed(world: &World, facts: &Facts, from: Option<&HostName>) -> Result<Diagnosis, Refusal> {
    let request = RecoveryRequest {
        id: "recovery1".to_owned(),
        from: from.cloned().map(Origin::Data),
        ..RecoveryRequest::default()
    };
    diagnose(&world.desired, &world.target, facts, &world.intent, &request)
}

#[test]
fn the_source_is_the_data_whose_log_goes_furthest_whatever_its_revision() {
    let (world, facts, hosts) = two_sources(|at, disk| {
        (disk.term, disk.index, disk.revision) = if at == 0 { (4, 900, Some(800)) } else { (5, 850, Some(700)) };
    });
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_eq!((&proposal.recovery.source, proposal.recovery.reach), (&Origin::Data(hosts[1].clone()), (5, 850)));
    assert_eq!(proposal.recovery.base, 1_000_000_800, "above every revision that was read, on whatever host");
    assert_eq!(proposal.recovery.members.len(), 5, "all answer and have what a member needs");
    let Ok(Diagnosis::Lost(older)) = diagnosed(&world, &facts, Some(&hosts[0])) else { panic!("it was asked for") };
    let loss = Loss::Chosen { entries: 0, revisions: 0, ms: 0 };
    assert_eq!((&older.recovery.source, older.loss), (&Origin::Data(hosts[0].clone()), loss));
}

#[test]
fn a_person_chooses_between_data_of_two_clusters_and_missing_data_is_reported() {
    let (world, mut facts, hosts) = two_sources(|at, disk| disk.cluster = format!("c{at}"));
    assert!(matches!(diagnosed(&world, &facts, None), Err(Refusal::TwoOrigins { .. })));
    assert!(matches!(diagnosed(&world, &facts, Some(&hosts[0])), Ok(Diagnosis::Lost(_))), "a person chose one");
    for host in &hosts {
        if let Some(Ok(found)) = facts.hosts.get_mut(host) {
            found.etcd.as_mut().expect("an etcd host").disk = None;
        }
    }
    assert!(matches!(diagnosed(&world, &facts, None), Err(Refusal::NoSource { asked: None, .. })));
}

#[test]
fn an_earlier_recovery_on_any_host_raises_the_next_ones_revision_above_its_own() {
    let (world, mut facts, hosts) = two_sources(|_, _| ());
    if let Some(Ok(found)) = facts.hosts.get_mut(&hosts[4]) {
        found.etcd.as_mut().expect("an etcd host").high_water = Some(3_000_000_000);
    }
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_eq!(proposal.recovery.base, 4_000_000_000);
}

#[test]
fn data_restored_by_an_abandoned_recovery_is_no_source_and_is_not_started() {
    let (mut world, mut facts, hosts) = two_sources(|at, disk| {
        (disk.cluster, disk.index) = ("c".to_owned(), 900);
        if at == 0 {
            (disk.cluster, disk.revision) = ("given-up".to_owned(), Some(1_000_000_900));
        }
    });
    let etcd = facts.hosts.get_mut(&hosts[0]).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
    let etcd = etcd.expect("an etcd host");
    (etcd.token, etcd.bootstrapped) = (Some("recovery0".to_owned()), None);
    let disk = etcd.disk.as_mut().expect("its data is read");
    let own = world.desired.host(&hosts[0]).expect("it is there").peer_url();
    disk.members = Some(vec![(disk.member, hosts[0].to_string(), own, false)]);
    let found = diagnosed(&world, &facts, None);
    assert!(
        !matches!(&found, Ok(Diagnosis::Lost(p)) if p.recovery.source == Origin::Data(hosts[1].clone())),
        "{found:?}"
    );
    world.intent.dropped = ["recovery0".to_owned()].into();
    let found = diagnosed(&world, &facts, None);
    let Ok(Diagnosis::Lost(proposal)) = found else { panic!("only the other data counts: {found:?}") };
    assert_eq!(proposal.recovery.source, Origin::Data(hosts[1].clone()));
}

#[test]
fn no_member_is_stopped_before_the_archived_data_is_saved() {
    let mut world = without_majority(3, 2);
    assert!(matches!(recovers(&mut world, &mut None, &Script::default()), Ok(Ended::Done(_))));
    assert_eq!(ends_well(&mut world, 0), Ok(()));
    let (facts, request) =
        (world.observe(), RecoveryRequest { id: "recovery2".to_owned(), undo: true, ..RecoveryRequest::default() });
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let Ok(Diagnosis::Lost(proposal)) = found else { panic!("{found:?}") };
    assert!(proposal.recovery.undo);
    let plan = hactl::plan::recover(&world.desired, &world.target, &facts, &world.intent, &proposal.recovery, false);
    let plan = plan.expect("all answer");
    let taken = Condition::Taken("recovery2".to_owned());
    let halts: Vec<_> = plan.steps.iter().filter(|s| matches!(s.action, Action::Halt { .. })).collect();
    assert!(halts.len() == 3 && halts.iter().all(|halt| halt.requires.contains(&taken)), "{halts:?}");
    world.intent.lived.clear();
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    assert_eq!(found, Err(Refusal::NothingAside), "a cluster that never answered cannot be restored by an undo");
}

#[test]
fn archived_data_of_a_cluster_without_current_data_is_restored_only_when_it_is_named() {
    let (world, mut facts, hosts) = two_sources(|_, disk| disk.cluster = "c".to_owned());
    let aside = |facts: &mut Facts, cluster: &str, revision, voter: &HostName| {
        let found = facts.hosts.get_mut(&hosts[0]).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
        let etcd = found.expect("an etcd host");
        let mut disk = etcd.disk.clone().expect("its data is read");
        let peer = world.desired.host(voter).expect("it is there").peer_url();
        (disk.cluster, disk.revision, disk.index) = (cluster.to_owned(), Some(revision), 5_000);
        disk.members = Some(vec![(7, voter.to_string(), peer, false)]);
        etcd.aside = [("member.moved-1".to_owned(), disk)].into();
    };
    let moved = Origin::Aside(hosts[0].clone(), "member.moved-1".to_owned());
    // As left by a recovery that was given up when the previous cluster came back.
    aside(&mut facts, "given-up", 1_000_000_900, &hosts[0]);
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_ne!(proposal.recovery.source, moved);
    let named = |facts: &Facts| {
        let request =
            RecoveryRequest { id: "recovery1".to_owned(), from: Some(moved.clone()), ..RecoveryRequest::default() };
        diagnose(&world.desired, &world.target, facts, &world.intent, &request)
    };
    let Ok(Diagnosis::Lost(proposal)) = named(&facts) else { panic!("a person named it") };
    assert_eq!((&proposal.recovery.source, proposal.recovery.reach.1), (&moved, 5_000));
    // Its own list has one member; a member that joined later may still run.
    facts.hosts.insert(hosts[4].clone(), Err(Unreachable { why: "no route".to_owned(), hint: None }));
    let Err(Refusal::MayLive { unreachable, quorum: 1, .. }) = named(&facts) else { panic!("{:?}", named(&facts)) };
    assert_eq!(unreachable, [hosts[4].to_string()]);
    // Data of the current cluster that goes further: raft would choose it, too.
    aside(&mut facts, "c", 900, &hosts[0]);
    facts.hosts.insert(hosts[4].clone(), Ok(facts.hosts[&hosts[3]].clone().expect("it answers")));
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_eq!(proposal.recovery.source, moved);
}
