//! Snapshots as sources of a recovery: which one is chosen, and which one only when it is named.

use super::recovering::{diagnosed, two_sources};
use super::*;
use hactl::model::authentic::Authenticity;
use hactl::model::plan::{Action, Step};
use hactl::model::snapshot::{BundleFact, BundlesFact, Point, Proof};
use hactl::model::target::FileSet;
use hactl::plan::Away;

/// The etcd version of the snapshots.
const ETCD: &str = "3.6.16";

/// Puts a snapshot onto a host's disk.
fn with_snapshot(world: &World, facts: &mut Facts, host: &HostName, point: Point) -> String {
    let ca = world.intent.cluster_id.ca;
    let found = facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).expect("it answers");
    let name = format!("lab-1-{host}.hactl");
    let taken_ms = found.now_ms - 60_000;
    let proof = Proof { keys: 1, hash: 1, restored_ms: 1 };
    let (etcd, authenticity) = (ETCD.to_owned(), Authenticity::Signed(host.clone()));
    let bundle = BundleFact {
        name: name.clone(),
        bytes: 1,
        taken_ms,
        authority: ca,
        point,
        etcd,
        proof,
        signed: None,
        authenticity,
    };
    found.bundles = Some(BundlesFact { bundles: vec![bundle], ..BundlesFact::default() });
    name
}

/// The members lose the data on their disks.
fn lose_disks(facts: &mut Facts, hosts: &[HostName]) {
    for host in hosts {
        let etcd = facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).and_then(|f| f.etcd.as_mut());
        etcd.expect("an etcd host").disk = None;
    }
}

fn point(cluster: &str, (term, index): (u64, u64), revision: i64) -> Point {
    Point { cluster: cluster.to_owned(), term, index, revision, high_water: revision }
}

#[test]
fn a_snapshot_is_restored_only_when_no_newer_data_is_left() {
    let (world, mut facts, hosts) = two_sources(|_, disk| {
        (disk.cluster, disk.term, disk.index, disk.revision) = ("c".to_owned(), 4, 900, Some(800));
    });
    let name = with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_eq!(proposal.recovery.source, Origin::Data(hosts[0].clone()));
    let listed: Vec<Origin> = proposal.sources.iter().map(hactl::model::recovery::Source::origin).collect();
    assert_eq!(listed.last(), Some(&Origin::Bundle(name.clone())), "and all sources are shown, the newest first");
    lose_disks(&mut facts, &hosts);
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a snapshot is there") };
    assert_eq!(proposal.recovery.source, Origin::Bundle(name));
    assert_eq!(proposal.loss, Loss::Since { ms: 60_000, revisions: 0 });
    assert_eq!(proposal.recovery.base, 1_000_000_600);
}

#[test]
fn the_loss_with_a_snapshot_is_counted_from_known_revisions_and_never_across_a_recovery() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    let loss = |cluster: &str, high_water: i64| {
        let mut facts = facts.clone();
        let older = Point { high_water, ..point(cluster, (4, 600), 500) };
        with_snapshot(&world, &mut facts, &hosts[4], older);
        let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a snapshot is there") };
        assert_eq!(proposal.recovery.source, Origin::Bundle(format!("lab-1-{}.hactl", hosts[3])));
        proposal.loss
    };
    assert_eq!(loss("c", 720), Loss::Since { ms: 60_000, revisions: 120 });
    assert_eq!(loss("c", 1_000_000_600), Loss::Since { ms: 60_000, revisions: 0 });
    assert_eq!(
        loss("other", 720),
        Loss::Since { ms: 60_000, revisions: 0 },
        "another cluster says nothing about the loss"
    );
}

#[test]
fn a_snapshot_that_was_restored_before_gets_a_base_above_that_recovery_although_no_host_records_it() {
    let (mut world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    let name = with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    (world.intent.recovered, world.intent.leapt) = (Some(1_000_000_600), 1_000_000_600);
    let request =
        RecoveryRequest { id: "recovery2".to_owned(), from: Some(Origin::Bundle(name)), ..RecoveryRequest::default() };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let Ok(Diagnosis::Lost(proposal)) = found else { panic!("a person asked for it: {found:?}") };
    assert_eq!(
        proposal.recovery.base, 2_000_000_600,
        "otherwise the revisions of the first recovery would occur twice"
    );
}

#[test]
fn a_snapshot_of_a_newer_etcd_is_refused_with_both_versions_and_one_of_another_patch_is_not() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    let name = with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    let answer = |version: &str| {
        let target = super::upgrading::with_parts(&world, "etcd", version);
        let request = RecoveryRequest { id: "recovery1".to_owned(), ..RecoveryRequest::default() };
        diagnose(&world.desired, &target, &facts, &world.intent, &request)
    };
    for fine in ["3.6.0", "3.6.16", "3.7.1"] {
        assert!(matches!(answer(fine), Ok(Diagnosis::Lost(_))), "{fine}: {:?}", answer(fine));
    }
    let version = |text: &str| hactl::model::version::Version::parse(text).expect("a version");
    let refused = Refusal::NewerEtcd { bundle: name, of: version(ETCD), wanted: version("3.5.26") };
    assert_eq!(answer("3.5.26"), Err(refused));
}

#[test]
fn a_snapshot_from_before_a_recovery_is_older_than_data_from_after_it_whatever_its_entries_say() {
    let (world, mut facts, hosts) = two_sources(|_, disk| {
        (disk.cluster, disk.term, disk.index, disk.revision) = ("new".to_owned(), 2, 30, Some(1_000_000_900));
    });
    let old = with_snapshot(&world, &mut facts, &hosts[3], point("old", (9, 5_000), 800));
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_eq!(proposal.recovery.source, Origin::Data(hosts[0].clone()));
    let request =
        RecoveryRequest { id: "recovery1".to_owned(), from: Some(Origin::Bundle(old)), ..RecoveryRequest::default() };
    let asked = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let Ok(Diagnosis::Lost(proposal)) = asked else { panic!("a person asked for it: {asked:?}") };
    assert_eq!(proposal.loss, Loss::Abandoned);
    assert_eq!(proposal.recovery.base, 2_000_000_900, "above the revisions of the newer one");
}

/// A snapshot in object storage, taken by this host.
fn in_storage(world: &World, host: &HostName, name: &str, point: Point) -> Away {
    let proof = Proof { keys: 1, hash: 1, restored_ms: 1 };
    let bundle = BundleFact {
        name: name.to_owned(),
        bytes: 1,
        taken_ms: 1,
        authority: world.intent.cluster_id.ca,
        point,
        etcd: ETCD.to_owned(),
        proof,
        signed: None,
        authenticity: Authenticity::Signed(host.clone()),
    };
    Away { place: "s3://backup/lab-1".to_owned(), host: host.clone(), bundle }
}

fn with_storage(world: &World, facts: &Facts, away: Vec<Away>, from: Option<Origin>) -> Result<Diagnosis, Refusal> {
    let request = RecoveryRequest { id: "recovery1".to_owned(), away, from, ..RecoveryRequest::default() };
    diagnose(&world.desired, &world.target, facts, &world.intent, &request)
}

#[test]
fn snapshots_in_object_storage_are_sources_like_those_on_hosts_and_are_ranked_by_their_content() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    let older = in_storage(&world, &hosts[1], "lab-2-b.hactl", point("c", (4, 600), 500));
    let newest = in_storage(&world, &hosts[0], "lab-1-a.hactl", point("c", (4, 700), 600));
    let mut foreign = in_storage(&world, &hosts[2], "lab-3-c.hactl", point("f", (9, 900), 900));
    foreign.bundle.authority = hactl::model::names::Digest::of(b"another");
    let away = vec![older, newest.clone()];
    let with_foreign = [away.as_slice(), &[foreign]].concat();
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, with_foreign, None) else { panic!("a source") };
    assert_eq!(proposal.recovery.source, Origin::Bundle("lab-1-a.hactl".to_owned()));
    assert_eq!(
        proposal.sources.len(),
        1,
        "the newest of this place, and none of another cluster: {:?}",
        proposal.sources
    );
    assert_eq!(proposal.sources[0].away.as_deref(), Some("s3://backup/lab-1"));
    let named = Some(Origin::Bundle("lab-2-b.hactl".to_owned()));
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, away, named.clone()) else { panic!("a source") };
    assert_eq!(Some(proposal.recovery.source), named);
    assert_eq!(proposal.recovery.base, 1_000_000_600, "above the revisions of a newer one");
    // A snapshot on a host is not fetched from storage; one that only storage has is chosen if it is newer.
    let on_host = with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    let same = Away { bundle: BundleFact { name: on_host.clone(), ..newest.bundle }, ..newest };
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, vec![same], None) else { panic!("a source") };
    let from: Vec<_> = proposal.sources.iter().map(|s| (s.bundle.clone(), s.away.clone())).collect();
    assert_eq!(from, [(Some(on_host), None)]);
    let newer = in_storage(&world, &hosts[1], "lab-4-b.hactl", point("c", (4, 800), 700));
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, vec![newer], None) else { panic!("a source") };
    assert_eq!(proposal.recovery.source, Origin::Bundle("lab-4-b.hactl".to_owned()));
}

#[test]
fn a_damaged_copy_on_a_host_leaves_the_one_in_object_storage_and_both_leave_the_next_best() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    let newest = with_snapshot(&world, &mut facts, &hosts[0], point("c", (4, 700), 600));
    let next = with_snapshot(&world, &mut facts, &hosts[1], point("c", (4, 600), 500));
    let copy = in_storage(&world, &hosts[0], &newest, point("c", (4, 700), 600));
    let taken = |damaged: &[(&String, Option<&str>)]| {
        let damaged = damaged.iter().map(|(name, place)| ((*name).clone(), place.map(str::to_owned))).collect();
        let request = RecoveryRequest {
            id: "recovery1".to_owned(),
            away: vec![copy.clone()],
            damaged,
            ..RecoveryRequest::default()
        };
        let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
        let Ok(Diagnosis::Lost(proposal)) = found else { panic!("a source is left: {found:?}") };
        assert_eq!(proposal.recovery.base, 1_000_000_600, "the revisions of a damaged one still count");
        (proposal.sources[0].bundle.clone(), proposal.sources[0].away.clone())
    };
    let place = "s3://backup/lab-1";
    assert_eq!(taken(&[]), (Some(newest.clone()), None));
    assert_eq!(taken(&[(&newest, None)]), (Some(newest.clone()), Some(place.to_owned())));
    assert_eq!(taken(&[(&newest, None), (&newest, Some(place))]), (Some(next), None));
}

/// The same, as a copy in a directory that a host has mounted.
fn in_directory(world: &World, on: &HostName, taker: &HostName, name: &str, point: Point) -> Away {
    Away { place: format!("{on}:/mnt/backup"), ..in_storage(world, taker, name, point) }
}

#[test]
fn a_copy_in_a_directory_is_a_source_when_hosts_have_nothing_better_and_all_copies_of_a_snapshot_are_one_source() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    let at = |term, index, revision| point("c", (term, index), revision);
    let newest = in_directory(&world, &hosts[1], &hosts[0], "lab-2-a.hactl", at(4, 700, 600));
    let older = in_directory(&world, &hosts[1], &hosts[2], "lab-1-c.hactl", at(4, 600, 500));
    let stored = in_storage(&world, &hosts[0], "lab-2-a.hactl", at(4, 700, 600));
    let all = vec![newest.clone(), older.clone(), stored];
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, all.clone(), None) else { panic!("a source") };
    let shown: Vec<_> = proposal.sources.iter().map(|s| (s.origin(), s.host.clone(), s.away.clone())).collect();
    let place = format!("{}:/mnt/backup", hosts[1]);
    assert_eq!(shown, [(Origin::Bundle("lab-2-a.hactl".to_owned()), hosts[0].clone(), Some(place.clone()))]);
    // If the copy is damaged, the one in object storage is used; if both are damaged, the next best snapshot is.
    let taken = |damaged: &[(&str, &str)]| {
        let damaged = damaged.iter().map(|(name, place)| ((*name).to_owned(), Some((*place).to_owned()))).collect();
        let request =
            RecoveryRequest { id: "recovery1".to_owned(), away: all.clone(), damaged, ..RecoveryRequest::default() };
        let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
        let Ok(Diagnosis::Lost(proposal)) = found else { panic!("a source is left: {found:?}") };
        (proposal.sources[0].bundle.clone().unwrap(), proposal.sources[0].away.clone().unwrap())
    };
    let one = ("lab-2-a.hactl", place.as_str());
    let storage = "s3://backup/lab-1";
    assert_eq!(taken(&[one]), ("lab-2-a.hactl".to_owned(), storage.to_owned()));
    assert_eq!(taken(&[one, ("lab-2-a.hactl", storage)]), ("lab-1-c.hactl".to_owned(), place.clone()));
    // A person may name an older one; a snapshot that is on a host is read from that host.
    let named = Some(Origin::Bundle("lab-1-c.hactl".to_owned()));
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, all, named.clone()) else { panic!("a source") };
    assert_eq!((Some(proposal.recovery.source), proposal.recovery.base), (named, 1_000_000_600));
    let own = with_snapshot(&world, &mut facts, &hosts[3], at(4, 700, 600));
    let same = Away { bundle: BundleFact { name: own.clone(), ..newest.bundle }, ..newest };
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, vec![same, older], None) else {
        panic!("a source")
    };
    assert_eq!((proposal.sources[0].bundle.as_ref(), &proposal.sources[0].away), (Some(&own), &None));
}

#[test]
fn a_copy_of_another_cluster_with_the_same_ca_is_no_source_while_data_is_there() {
    let (world, mut facts, hosts) = two_sources(|_, disk| {
        (disk.cluster, disk.term, disk.index, disk.revision) = ("c".to_owned(), 4, 900, Some(800));
    });
    let other = in_directory(&world, &hosts[1], &hosts[0], "lab-2-a.hactl", point("before", (9, 9_000), 9_000));
    let found = with_storage(&world, &facts, vec![other.clone()], None);
    let Ok(Diagnosis::Lost(proposal)) = found else { panic!("a majority is lost: {found:?}") };
    assert!(proposal.sources.iter().all(|source| source.away.is_none()), "{:?}", proposal.sources);
    lose_disks(&mut facts, &hosts);
    let mut foreign = other.clone();
    foreign.bundle.authority = hactl::model::names::Digest::of(b"another");
    assert!(matches!(with_storage(&world, &facts, vec![foreign], None), Err(Refusal::NoSource { .. })));
    assert!(matches!(with_storage(&world, &facts, vec![other], None), Ok(Diagnosis::Lost(_))));
}

#[test]
fn a_snapshot_in_object_storage_from_before_a_recovery_is_restored_only_when_it_is_named() {
    let (mut world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    world.intent.recovered = Some(1_000_000_800);
    let old = in_storage(&world, &hosts[0], "lab-1-a.hactl", point("c", (4, 700), 600));
    assert!(matches!(with_storage(&world, &facts, vec![old.clone()], None), Err(Refusal::NoSource { .. })));
    let named = Some(Origin::Bundle(old.bundle.name.clone()));
    assert!(matches!(with_storage(&world, &facts, vec![old], named), Ok(Diagnosis::Lost(_))));
}

#[test]
fn a_snapshot_of_another_cluster_is_no_source() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    for host in &hosts {
        let found = facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).expect("it answers");
        found.etcd.as_mut().expect("an etcd host").disk = None;
        for bundle in found.bundles.iter_mut().flat_map(|b| &mut b.bundles) {
            bundle.authority = hactl::model::names::Digest::of(b"another");
        }
    }
    assert!(matches!(diagnosed(&world, &facts, None), Err(Refusal::NoSource { .. })));
}

#[test]
fn a_snapshot_from_before_a_recovery_is_restored_only_when_it_is_named() {
    let (mut world, mut facts, hosts) = two_sources(|_, _| {});
    let old = with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    lose_disks(&mut facts, &hosts);
    world.intent.recovered = Some(1_000_000_800);
    assert!(matches!(diagnosed(&world, &facts, None), Err(Refusal::NoSource { .. })));
    let request =
        RecoveryRequest { id: "recovery1".to_owned(), from: Some(Origin::Bundle(old)), ..RecoveryRequest::default() };
    let asked = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    assert!(matches!(asked, Ok(Diagnosis::Lost(_))), "{asked:?}");
}

#[test]
fn a_snapshot_is_not_restored_while_a_single_unreachable_host_may_be_a_cluster_of_its_own() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    lose_disks(&mut facts, &hosts);
    let unreachable = hactl::model::facts::Unreachable { why: "it does not answer".to_owned(), hint: None };
    facts.hosts.insert(hosts[0].clone(), Err(unreachable));
    let found = diagnosed(&world, &facts, None);
    assert!(
        matches!(&found, Err(Refusal::MayLive { unreachable, .. }) if unreachable == &[hosts[0].to_string()]),
        "{found:?}"
    );
}

#[test]
fn an_encrypted_state_that_merely_differs_is_replaced_with_other_changes_and_a_missing_one_on_its_own() {
    let mut world = converged(Shape::Stacked(3));
    let hosts = world.with(Role::Etcd);
    let encrypted = "/var/lib/hactl/state.age";
    let written = |world: &World, facts: &Facts| {
        let plan = hactl::plan::up(&world.desired, &world.target, facts, &world.intent).expect("nothing is refused");
        let state = |s: &&Step| matches!(s.action, Action::Configure { set: FileSet::State, .. });
        (plan.steps.iter().filter(state).count(), plan.steps.len())
    };
    let differing = |world: &mut World| {
        let mut facts = world.observe();
        for host in &hosts {
            let found = facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).expect("it answers");
            found.files.get_mut(encrypted).expect("it is there").digest = hactl::model::names::Digest::of(b"older");
        }
        facts
    };
    let older = differing(&mut world);
    assert_eq!(written(&world, &older), (0, 0));
    let mut missing = world.observe();
    let found = missing.hosts.get_mut(&hosts[0]).and_then(|f| f.as_mut().ok()).expect("it answers");
    found.files.remove(encrypted);
    assert_eq!(written(&world, &missing), (1, 1));
    world.release(|r| r.approver += 1);
    let older = differing(&mut world);
    let (state, all) = written(&world, &older);
    assert!(state == 3 && all > 3, "{state} of {all}");
}

#[test]
fn a_store_at_its_quota_is_no_loss_and_the_leader_is_stopped_last() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let Ok(Diagnosis::Serves { .. }) = diagnosed(&world, &facts, None) else { panic!("all is well") };
    let mut leader = None;
    for (host, found) in &mut facts.hosts {
        let etcd = found.as_mut().ok().and_then(|f| f.etcd.as_mut());
        let Some(view) = etcd.and_then(|e| e.view.as_mut()) else { continue };
        (view.db_bytes, view.alarms) = (100, vec!["NOSPACE".to_owned()]);
        leader = leader.or_else(|| (view.leader == view.member).then(|| host.clone()));
    }
    let Ok(Diagnosis::Full(full)) = diagnosed(&world, &facts, None) else { panic!("it takes no writes") };
    assert_eq!(full.len(), 3);
    assert_eq!(full.last().map(|f| &f.host), leader.as_ref());
    assert!(full.iter().all(|f| (f.db_bytes, f.quota_bytes) == (100, 8 << 30)));
}

#[test]
fn bare_hosts_of_former_members_do_not_make_a_stopped_minority_a_majority() {
    let mut world = converged(Shape::Stacked(5));
    let hosts = world.with(Role::Etcd);
    for host in &hosts[2..] {
        world.wipe(host);
        world.power_on(host);
    }
    world.host_mut(&hosts[0]).units.get_mut(&sim::make::unit("etcd.service")).expect("it has run").running = false;
    world.settle();
    let facts = world.observe();
    let found = diagnosed(&world, &facts, None);
    assert!(matches!(found, Ok(Diagnosis::Lost(_))), "two of five are no majority, stopped or not: {found:?}");
}

#[test]
fn a_cluster_that_is_gone_is_restored_only_from_a_snapshot_that_is_named() {
    let mut world = Shape::Stacked(3).bare();
    let mut facts = world.observe();
    let hosts = world.with(Role::Etcd);
    assert_eq!(facts.etcd, Etcd::Uninitialized);
    let name = with_snapshot(&world, &mut facts, &hosts[0], point("c", (4, 700), 600));
    // As `down` leaves it: the data on the disks is from a cluster that was taken down.
    world.intent.taken_down_ms = Some(i64::MAX);
    let request = |from: Option<&str>| RecoveryRequest {
        id: "recovery1".to_owned(),
        from: from.map(|name| Origin::Bundle(name.to_owned())),
        ..RecoveryRequest::default()
    };
    let diagnosed = |facts: &Facts, from| diagnose(&world.desired, &world.target, facts, &world.intent, &request(from));
    assert_eq!(diagnosed(&facts, None), Ok(Diagnosis::Uninitialized));
    let found = diagnosed(&facts, Some(&name));
    let Ok(Diagnosis::Lost(proposal)) = found else { panic!("a person named it: {found:?}") };
    assert_eq!(proposal.recovery.source, Origin::Bundle(name.clone()));
    assert_eq!(proposal.recovery.members.len(), 3, "all of them are bare, and all of them are members");
    let refused = diagnosed(&facts, Some("lab-9-cp1.hactl"));
    assert!(matches!(refused, Err(Refusal::NoSource { asked: Some(_), .. })), "{refused:?}");
    // A run that was interrupted before it changed any host is resumed.
    let request = RecoveryRequest { begun: Some(proposal.recovery.clone()), ..request(None) };
    let found = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    assert!(matches!(&found, Ok(Diagnosis::Lost(again)) if again.begun), "{found:?}");
    // A host that was not taken down may still run as the old cluster.
    facts
        .hosts
        .insert(hosts[2].clone(), Err(hactl::model::facts::Unreachable { why: "no answer".to_owned(), hint: None }));
    let refused = diagnosed(&facts, Some(&name));
    assert!(matches!(refused, Err(Refusal::MayLive { .. })), "{refused:?}");
}

/// Changes the verdict on the signatures of the snapshots on a host.
fn judge(facts: &mut Facts, host: &HostName, authenticity: &Authenticity) {
    let found = facts.hosts.get_mut(host).and_then(|f| f.as_mut().ok()).and_then(|f| f.bundles.as_mut());
    found.into_iter().flat_map(|b| &mut b.bundles).for_each(|b| b.authenticity = authenticity.clone());
}

#[test]
fn live_data_is_never_passed_over_for_a_snapshot_and_the_claimed_position_of_the_snapshot_is_reported() {
    let (world, mut facts, hosts) = two_sources(|_, disk| {
        (disk.cluster, disk.term, disk.index, disk.revision) = ("c".to_owned(), 4, 900, Some(800));
    });
    let name = with_snapshot(&world, &mut facts, &hosts[3], point("c", (50, 200_000), 90_000));
    let Ok(Diagnosis::Lost(proposal)) = diagnosed(&world, &facts, None) else { panic!("a majority is lost") };
    assert_eq!(proposal.recovery.source, Origin::Data(hosts[0].clone()));
    let further = proposal.passed_over.as_ref().expect("a person must be able to see it");
    assert_eq!((further.bundle.as_ref(), further.reach, further.revision), (Some(&name), (50, 200_000), 90_000));
    assert_eq!(proposal.loss, Loss::CannotBeKnown);
    let style = hactl::report::Style { colour: false, unicode: true, width: 4000, verbosity: 0 };
    let text = hactl::report::recovery::proposal_text(&proposal, &style);
    for said in ["term 50, entry 200000, revision 90000", "term 4, entry 900, revision 800", &format!("--from {name}")]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("There is no newer readable data"), "{text}");
    // Naming it is enough.
    let request = RecoveryRequest {
        id: "recovery1".to_owned(),
        from: Some(Origin::Bundle(name.clone())),
        ..RecoveryRequest::default()
    };
    let asked = diagnose(&world.desired, &world.target, &facts, &world.intent, &request);
    let Ok(Diagnosis::Lost(proposal)) = asked else { panic!("a person asked for it: {asked:?}") };
    assert_eq!((&proposal.recovery.source, &proposal.passed_over), (&Origin::Bundle(name), &None));
    // The same holds in object storage; a snapshot that goes no further is not reported.
    let away = in_storage(&world, &hosts[3], "lab-9-z.hactl", point("c", (60, 1), 1));
    facts.hosts.get_mut(&hosts[3]).and_then(|f| f.as_mut().ok()).expect("it answers").bundles = None;
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, vec![away], None) else { panic!("a source") };
    assert_eq!(proposal.recovery.source, Origin::Data(hosts[0].clone()));
    let older = in_storage(&world, &hosts[3], "lab-9-z.hactl", point("c", (4, 1), 1));
    let Ok(Diagnosis::Lost(proposal)) = with_storage(&world, &facts, vec![older], None) else { panic!("a source") };
    assert_eq!(proposal.passed_over, None);
}

#[test]
fn an_unsigned_or_forged_snapshot_changes_nothing_in_a_recovery_wherever_it_is_stored() {
    let (world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    with_snapshot(&world, &mut facts, &hosts[0], point("c", (4, 700), 600));
    let Ok(Diagnosis::Lost(honest)) = diagnosed(&world, &facts, None) else { panic!("a source") };
    let far = || point("c", (99, 1_000_000), 1 << 50);
    for bad in [Authenticity::Forged("x".to_owned()), Authenticity::Unsigned, Authenticity::Unchecked] {
        let mut lied = facts.clone();
        with_snapshot(&world, &mut lied, &hosts[3], far());
        judge(&mut lied, &hosts[3], &bad);
        let mut away = in_storage(&world, &hosts[1], "lab-2-b.hactl", far());
        away.bundle.authenticity = bad.clone();
        let found = with_storage(&world, &lied, vec![away.clone()], None);
        assert_eq!(found, Ok(Diagnosis::Lost(honest.clone())), "{bad:?}: neither taken, nor counted, nor shown");
        // If it is the only one, it is named as the reason for the refusal.
        let only = |accept_unsigned, from: Option<&str>| {
            let mut lied = lied.clone();
            lied.hosts.get_mut(&hosts[0]).and_then(|f| f.as_mut().ok()).expect("it answers").bundles = None;
            let from = from.map(|name| Origin::Bundle(name.to_owned()));
            let request = RecoveryRequest {
                accept_unsigned,
                away: vec![away.clone()],
                from,
                id: "r".to_owned(),
                ..RecoveryRequest::default()
            };
            diagnose(&world.desired, &world.target, &lied, &world.intent, &request)
        };
        for from in [None, Some("lab-2-b.hactl")] {
            match &bad {
                Authenticity::Forged(_) => {
                    assert!(matches!(only(true, from), Err(Refusal::Forged { why, .. }) if why == "x"));
                }
                Authenticity::Unsigned => {
                    assert!(matches!(only(false, from), Err(Refusal::Unsigned { .. })));
                    let Ok(Diagnosis::Lost(taken)) = only(true, from) else { panic!("a person accepted it") };
                    assert!(taken.sources.iter().all(|source| source.flaws == ["it is not signed"]), "{taken:?}");
                }
                _ => assert!(matches!(only(true, from), Err(Refusal::NoSource { .. }))),
            }
        }
    }
}

#[test]
fn snapshots_on_hosts_that_take_no_snapshots_are_ignored() {
    let (mut world, mut facts, hosts) = two_sources(|_, _| {});
    lose_disks(&mut facts, &hosts);
    with_snapshot(&world, &mut facts, &hosts[3], point("c", (4, 700), 600));
    assert!(matches!(diagnosed(&world, &facts, None), Ok(Diagnosis::Lost(_))));
    let host = world.desired.hosts.iter_mut().find(|host| host.name == hosts[3]).expect("it is there");
    host.roles.retain(|role| *role != Role::Etcd);
    let found = diagnosed(&world, &facts, None);
    assert!(matches!(found, Err(Refusal::NoSource { .. })), "it is no longer an etcd host: {found:?}");
}
