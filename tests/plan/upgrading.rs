//! Upgrades of Kubernetes: the order, the refusals, and runs that were interrupted.

use crate::leaving::follows;
use crate::sim::{Broken, Ended, Script, World, config, make};
use crate::{Shape, check, ends_well, suffer};
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Condition, Plan};
use hactl::model::refusal::Refusal;
use hactl::model::target::FileSet;
use hactl::model::version::Version;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const OLD: &str = "1.34.4";
const NEXT: &str = "1.35.4";
const NEWEST: &str = "1.36.3";

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

/// A converged cluster of this version.
pub fn of(shape: Shape, version: &str) -> World {
    let mut world = shape.bare();
    world.kubernetes(version);
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world
}

/// Three control-plane hosts and so many workers of the older version, which are to get the next one, two at once.
fn with_workers(count: u8) -> World {
    let mut world = World::bare(3, count);
    world.kubernetes(OLD);
    world.desired.upgrade.max_unavailable = 2;
    assert_eq!(world.converge(3, 4), Ok(Ended::Converged));
    world.kubernetes(NEXT);
    world
}

fn version(text: &str) -> Version {
    Version::parse(text).expect("a version")
}

fn planned(world: &mut World) -> Plan {
    world.plan().expect("no law is broken").0.expect("a plan")
}

fn at(plan: &Plan, is: impl Fn(&Action) -> bool) -> Vec<usize> {
    (0..plan.steps.len()).filter(|at| is(&plan.steps[*at].action)).collect()
}

fn provides(plan: &Plan, condition: &Condition) -> usize {
    plan.steps.iter().position(|s| &s.provides == condition).unwrap_or_else(|| panic!("no step provides {condition}"))
}

fn kubelet(host: &HostName) -> Condition {
    Condition::Running(host.clone(), make::unit("kubelet.service"))
}

/// The version of every program, by host.
fn versions(world: &World) -> Vec<String> {
    let all = world
        .hosts
        .iter()
        .flat_map(|(host, found)| found.ran.iter().map(move |(what, v)| format!("{host} {what} {v}")));
    all.collect()
}

fn all_of(world: &World, version: &str) -> bool {
    versions(world).iter().all(|text| text.ends_with(version))
}

#[test]
fn an_upgrade_takes_a_snapshot_then_changes_api_servers_their_clients_and_kubelets_one_host_after_the_other() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let plan = planned(&mut world);
    let saved = provides(&plan, &Condition::Saved);
    let servers: Vec<usize> = (1..=3).map(|n| provides(&plan, &Condition::ApiServer(cp(n)))).collect();
    let beside: Vec<usize> = (1..=3).map(|n| provides(&plan, &Condition::Serving(cp(n)))).collect();
    let kubelets: Vec<usize> = (1..=3).map(|n| provides(&plan, &kubelet(&cp(n)))).collect();
    let worker = provides(&plan, &kubelet(&make::host_name("w1")));
    let manifests: Vec<usize> = (1..=3).map(|n| provides(&plan, &Condition::Manifest(cp(n)))).collect();
    for (n, manifest) in manifests.iter().enumerate() {
        assert!(follows(&plan, *manifest, saved), "a snapshot comes first");
        assert!(n == 0 || follows(&plan, *manifest, servers[n - 1]), "one API server after the other");
    }
    let chain = [servers, beside, kubelets, vec![worker]].concat();
    for pair in chain.windows(2) {
        assert!(
            follows(&plan, pair[1], pair[0]),
            "{} before {}",
            plan.steps[pair[0]].provides,
            plan.steps[pair[1]].provides
        );
    }
    assert_eq!(world.converge(5, 3), Ok(Ended::Converged));
    assert!(all_of(&world, NEXT), "{:?}", versions(&world));
}

#[test]
fn a_patch_upgrade_has_the_same_order_and_drains_no_node() {
    let mut world = of(Shape::Stacked(3), "1.36.0");
    world.kubernetes(NEWEST);
    let plan = planned(&mut world);
    assert!(at(&plan, |a| matches!(a, Action::Drain { .. } | Action::Uncordon { .. })).is_empty());
    assert!(follows(&plan, provides(&plan, &kubelet(&cp(1))), provides(&plan, &Condition::ApiServer(cp(3)))));
    assert!(follows(&plan, provides(&plan, &Condition::Manifest(cp(1))), provides(&plan, &Condition::Saved)));
    world.kubernetes("1.36.0");
    assert_eq!(world.converge(5, 3), Ok(Ended::Converged), "nothing that was not begun is missing");
}

#[test]
fn a_worker_in_maintenance_is_left_out_and_counts_as_away() {
    let mut world = with_workers(3);
    let w1 = make::host_name("w1");
    world.maintained.insert(w1.clone());
    let plan = planned(&mut world);
    let of = |host: &HostName| at(&plan, |action| action.host() == Some(host));
    assert!(of(&w1).is_empty());
    assert!(!of(&make::host_name("w2")).is_empty() && !of(&make::host_name("w3")).is_empty());
    let left_out = "w1 is left out: it is in maintenance (disk); `hactl maintain finish w1` ends that";
    assert!(plan.warnings.iter().any(|warning| warning == left_out), "{:?}", plan.warnings);

    world.desired.upgrade.max_unavailable = 1;
    let plan = planned(&mut world);
    let drains = at(&plan, |action| matches!(action, Action::Drain { .. }));
    assert!(drains.is_empty(), "one is away, and one may be");
    assert!(plan.warnings.iter().any(|warning| warning.contains("2 of the workers keep")), "{:?}", plan.warnings);
}

#[test]
fn while_a_host_of_the_control_plane_is_in_maintenance_no_other_one_is_disturbed() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.maintained.insert(cp(1));
    assert!(planned(&mut world).is_empty(), "nothing is to be done");
    world.kubernetes(NEXT);
    let facts = world.observe();
    let answer = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
    let expected = |host: &HostName, maintained: &HostName| *host != cp(1) && *maintained == cp(1);
    assert!(
        matches!(&answer, Err(Refusal::InMaintenance { host, maintained, .. }) if expected(host, maintained)),
        "{answer:?}"
    );
    world.maintained.clear();
    assert!(!planned(&mut world).is_empty());
}

#[test]
fn workers_are_drained_for_another_minor_version_in_batches_and_uncordoned_again() {
    let mut world = with_workers(5);
    let plan = planned(&mut world);
    let drained = at(&plan, |a| matches!(a, Action::Drain { within_s: 300, .. }));
    assert_eq!(drained.len(), 5);
    for host in ["w1", "w2", "w3", "w4", "w5"].map(make::host_name) {
        let (drain, open) = (
            provides(&plan, &Condition::Drained(host.clone())),
            provides(&plan, &Condition::Schedulable(host.clone())),
        );
        let files = provides(&plan, &Condition::Configured(host.clone(), FileSet::Kubelet));
        assert!(follows(&plan, files, drain) && follows(&plan, provides(&plan, &kubelet(&host)), files));
        assert!(follows(&plan, open, provides(&plan, &kubelet(&host))));
    }
    let of = |n: u8| make::host_name(&format!("w{n}"));
    let (drain, open) =
        (|n| provides(&plan, &Condition::Drained(of(n))), |n| provides(&plan, &Condition::Schedulable(of(n))));
    assert!(!follows(&plan, drain(2), open(1)), "two at once");
    assert!([1, 2].iter().all(|before| [3, 4].iter().all(|next| follows(&plan, drain(*next), open(*before)))));
    assert!(follows(&plan, drain(5), open(3)) && follows(&plan, drain(5), open(4)));
    assert!(at(&plan, |a| matches!(a, Action::Drain { host, .. } if host.as_str().starts_with("cp"))).is_empty());
}

#[test]
fn a_worker_whose_kubelet_does_not_answer_is_not_drained_for_its_upgrade() {
    let mut world = with_workers(2);
    let of = |n: u8| make::host_name(&format!("w{n}"));
    world.host_mut(&of(1)).frozen.insert("kubelet.service".to_owned());
    let plan = planned(&mut world);
    let drained = |n: u8| !at(&plan, |a| matches!(a, Action::Drain { host, .. } if *host == of(n))).is_empty();
    assert!(drained(2) && !drained(1));
    // It is upgraded all the same.
    provides(&plan, &kubelet(&of(1)));
}

#[test]
fn an_api_server_gets_its_new_version_only_once_a_kubelet_that_did_not_answer_answers() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    world.host_mut(&cp(2)).frozen.insert("kubelet.service".to_owned());
    let plan = planned(&mut world);
    provides(&plan, &kubelet(&cp(2)));
    let writes = at(&plan, |a| matches!(a, Action::Configure { set: FileSet::ControlPlane, .. }));
    assert!(writes.is_empty() && plan.horizon.is_some(), "{:?}", plan.steps);
    assert_eq!(world.converge(3, 6), Ok(Ended::Converged));
}

#[test]
fn an_unreachable_worker_counts_as_unavailable_and_one_that_waits_for_its_kubelet_does_not() {
    let mut world = with_workers(4);
    let of = |n: u8| make::host_name(&format!("w{n}"));
    world.power_off(&of(1));
    let plan = planned(&mut world);
    let (drain, open) =
        (|n| provides(&plan, &Condition::Drained(of(n))), |n| provides(&plan, &Condition::Schedulable(of(n))));
    assert!(
        follows(&plan, drain(3), open(2)) && follows(&plan, drain(4), open(3)),
        "one is away, so it is one at a time"
    );
    world.desired.upgrade.max_unavailable = 1;
    let plan = planned(&mut world);
    assert!(at(&plan, |a| matches!(a, Action::Drain { .. })).is_empty(), "no other worker may be unavailable");
    let warned = plan.warnings.iter().any(|w| w.contains("3 of the workers keep") && w.contains("w1 is not Ready"));
    assert!(warned, "{:?}", plan.warnings);
    world.power_on(&of(1));
    assert_eq!(world.converge(7, 6), Ok(Ended::Converged));
    assert!(all_of(&world, NEXT));
}

#[test]
fn kube_proxy_is_not_newer_than_an_api_server_that_may_come_back() {
    let applies = |a: &Action| matches!(a, Action::Apply { addon, .. } if addon == "kube-proxy");
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let mut proxy = world.target.addons.iter().find(|addon| addon.name == "coredns").expect("it is there").clone();
    proxy.name = "kube-proxy".to_owned();
    proxy.objects[0]["metadata"]["name"] = "kube-proxy".into();
    world.target.addons.push(proxy);
    assert!(!at(&planned(&mut world), applies).is_empty(), "it is another one");
    let unreachable = make::host_name("cp3");
    world.power_off(&unreachable);
    assert!(at(&planned(&mut world), applies).is_empty(), "cp3 may come back with the API server that it had");
    world.power_on(&unreachable);
    assert_eq!(world.converge(5, 6), Ok(Ended::Converged));
    assert!(all_of(&world, NEXT));
}

#[test]
fn the_ranges_of_pods_and_services_never_change() {
    let mut world = of(Shape::Stacked(3), NEXT);
    let network = world.desired.network.clone();
    world.intent.ranges = Some((network.pods, network.services));
    assert!(planned(&mut world).is_empty());
    for setting in ["network.pods", "network.services"] {
        let mut desired = world.desired.clone();
        let range = if setting == "network.pods" { &mut desired.network.pods } else { &mut desired.network.services };
        range.prefix += 1;
        let facts = world.observe();
        let answer = hactl::plan::up(&desired, &world.target, &facts, &world.intent);
        assert!(
            matches!(&answer, Err(Refusal::RangeChanged { setting: found, .. }) if *found == setting),
            "{answer:?}"
        );
    }
}

#[test]
fn a_skipped_minor_version_and_an_older_one_are_refused_with_the_running_version_and_a_remedy() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEWEST);
    let (answer, _) = world.plan().expect("no law is broken");
    assert_eq!(
        answer.unwrap_err(),
        Refusal::SkipsMinor {
            host: cp(1),
            component: "kube-apiserver".to_owned(),
            runs: version(OLD),
            wanted: version(NEWEST),
            first: Some(version(NEXT).minor),
        }
    );
    let mut world = of(Shape::Stacked(3), NEXT);
    world.kubernetes(OLD);
    let (answer, _) = world.plan().expect("no law is broken");
    assert!(matches!(answer, Err(Refusal::OlderMinor { runs, .. }) if runs == version(NEXT)), "{answer:?}");
}

/// The same inventory with other versions of etcd and containerd in the bundle.
pub fn with_parts(world: &World, program: &str, version: &str) -> hactl::model::target::Target {
    let mut target = world.target.clone();
    for host in target.hosts.values_mut() {
        for part in host.parts.iter_mut().filter(|part| part.name == program) {
            version.clone_into(&mut part.version);
        }
    }
    target
}

#[test]
fn etcd_goes_up_one_minor_version_at_a_time_and_never_down_and_containerd_never_down() {
    let mut world = of(Shape::Stacked(3), NEXT);
    let facts = world.observe();
    let answer = |program: &str, version: &str| {
        hactl::plan::up(&world.desired, &with_parts(&world, program, version), &facts, &world.intent)
    };
    // etcd 3.6.16 and containerd 2.3.7 run.
    for (program, good) in [("etcd", "3.6.2"), ("etcd", "3.7.0"), ("containerd", "2.3.0"), ("containerd", "3.9.0")] {
        assert!(answer(program, good).is_ok(), "{program} {good}");
    }
    let skipped = answer("etcd", "3.8.1").unwrap_err();
    let (runs, wanted) = (version("3.6.16"), version("3.8.1"));
    let (host, component, first) = (cp(1), "etcd".to_owned(), Some(version("3.7.0").minor));
    assert_eq!(skipped, Refusal::SkipsMinor { host, component, runs, wanted, first });
    for (program, bad) in [("etcd", "3.5.26"), ("containerd", "2.2.9"), ("containerd", "1.7.30")] {
        let answer = answer(program, bad);
        let named = matches!(&answer, Err(Refusal::OlderMinor { component, .. }) if component == program);
        assert!(named, "{program} {bad}: {answer:?}");
    }
}

#[test]
fn etcd_members_get_another_version_one_after_the_other_after_a_snapshot() {
    let mut world = of(Shape::Stacked(3), NEXT);
    let mut target = with_parts(&world, "etcd", "3.6.17");
    for host in target.hosts.values_mut() {
        // Its unit names the program by its content.
        for file in host.sets.get_mut(&FileSet::Etcd).into_iter().flat_map(|set| set.files.iter_mut()) {
            file.digest = make::digest(&format!("{} of 3.6.17", file.path));
        }
    }
    world.now += 700_000;
    let facts = world.observe();
    let plan = hactl::plan::up(&world.desired, &target, &facts, &world.intent).expect("a plan");
    let saved = provides(&plan, &Condition::Saved);
    assert!(plan.steps[saved].why.starts_with("etcd changes from 3.6.16 to 3.6.17"), "{}", plan.steps[saved].why);
    let restarts: Vec<usize> =
        (1..=3).map(|n| provides(&plan, &Condition::Running(cp(n), make::unit("etcd.service")))).collect();
    for restart in &restarts {
        assert!(follows(&plan, *restart, saved), "a snapshot comes first");
        let others = restarts.iter().filter(|other| *other != restart);
        assert!(others.clone().all(|other| follows(&plan, *restart, *other) || follows(&plan, *other, *restart)));
    }
    let handed = at(&plan, |a| matches!(a, Action::MoveLeader { .. }));
    let Action::MoveLeader { host, .. } = &plan.steps[handed[0]].action else { unreachable!("just asked for") };
    let last = provides(&plan, &Condition::Running(host.clone(), make::unit("etcd.service")));
    assert_eq!(handed.len(), 1);
    assert!(follows(&plan, last, handed[0]), "the leader moves leadership before it is restarted");
    assert!(
        restarts.iter().all(|other| *other == last || follows(&plan, handed[0], *other)),
        "and after the others were restarted"
    );
}

#[test]
fn a_recent_snapshot_of_an_interrupted_run_is_not_taken_again_and_an_old_one_is() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let plan = planned(&mut world);
    let save = plan.steps[provides(&plan, &Condition::Saved)].action.clone();
    assert_eq!(world.force(&save), Ok(()));
    let taken = |plan: &Plan| at(plan, |a| matches!(a, Action::SaveBundle { .. })).len();
    assert_eq!(taken(&planned(&mut world)), 0);
    world.now += 700_000;
    assert_eq!(taken(&planned(&mut world)), 1);
}

#[test]
fn an_api_server_on_trial_that_never_came_up_can_be_rolled_back() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let mut facts = world.observe();
    let host = facts.hosts.get_mut(&cp(1)).and_then(|f| f.as_mut().ok()).expect("it answers");
    host.on_trial.insert(FileSet::ControlPlane);
    host.versions.insert("kube-apiserver".to_owned(), NEXT.to_owned());
    host.api.as_mut().expect("it was asked").own_trouble = Some("it ends again and again".to_owned());
    world.kubernetes(OLD);
    assert!(hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).is_ok());
    let host = facts.hosts.get_mut(&cp(1)).and_then(|f| f.as_mut().ok()).expect("it answers");
    let api = host.api.as_mut().expect("it was asked");
    (api.own_trouble, api.version) = (None, format!("v{NEXT}"));
    let answer = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
    assert!(matches!(answer, Err(Refusal::OlderMinor { .. })), "it served, so its writes are stored");
}

#[test]
fn an_api_server_that_passed_its_trial_before_the_interruption_is_never_rolled_back_for_later_failures() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let mut facts = world.observe();
    let manifest = world.target.hosts[&cp(1)].sets[&FileSet::ControlPlane].files[0].clone();
    let host = facts.hosts.get_mut(&cp(1)).and_then(|f| f.as_mut().ok()).expect("it answers");
    host.on_trial.insert(FileSet::ControlPlane);
    host.versions.insert("kube-apiserver".to_owned(), NEXT.to_owned());
    host.files.get_mut(&manifest.path).expect("it was there").digest = manifest.digest;
    host.api.as_mut().expect("it was asked").version = format!("v{NEXT}");
    let plan = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("a plan");
    let proven = provides(&plan, &Condition::ApiServer(cp(1)));
    assert!(plan.steps[proven].rollback.contains(&FileSet::ControlPlane), "its trial ends there");
    assert!(follows(&plan, provides(&plan, &Condition::Configured(cp(1), FileSet::ControlPlane)), proven));
    assert!(at(&plan, |a| matches!(a, Action::SaveBundle { .. })).is_empty(), "the upgrade has begun");
}

#[test]
fn settings_that_change_with_the_version_are_applied_with_the_api_server() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.release(|r| r.manifests += 1);
    world.kubernetes(NEXT);
    let plan = planned(&mut world);
    for n in 1..=3 {
        let config = provides(&plan, &Condition::Configured(cp(n), FileSet::ControlPlaneConfig));
        assert!(follows(&plan, provides(&plan, &Condition::Manifest(cp(n))), config));
        assert!(
            n == 1 || follows(&plan, config, provides(&plan, &Condition::ApiServer(cp(n - 1)))),
            "no host gets it before its turn"
        );
    }
    assert_eq!(world.converge(5, 3), Ok(Ended::Converged));
}

#[test]
fn the_law_of_versions_fires_for_a_kubelet_that_is_newer_than_its_api_server() {
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let plan = planned(&mut world);
    for index in at(&plan, |a| matches!(a, Action::Deliver { host, .. } if *host == cp(1))) {
        assert_eq!(world.force(&plan.steps[index].action), Ok(()));
    }
    let balances = Condition::Running(cp(1), make::unit(make::BALANCES));
    let configured = |set| Condition::Configured(cp(1), set);
    for condition in [configured(FileSet::EtcdBalancer), balances, configured(FileSet::Kubelet)] {
        assert_eq!(world.force(&plan.steps[provides(&plan, &condition)].action), Ok(()), "{condition}");
    }
    let upgrade = plan.steps[provides(&plan, &kubelet(&cp(1)))].action.clone();
    assert!(matches!(world.force(&upgrade), Err(Broken::Skewed { .. })));
    let mut world = of(Shape::Stacked(3), OLD);
    world.kubernetes(NEXT);
    let manifest = planned(&mut world);
    let manifest = manifest.steps[provides(&manifest, &Condition::Manifest(cp(1)))].action.clone();
    assert!(matches!(world.force(&manifest), Err(Broken::NotSaved { .. })));
}

#[test]
fn an_upgrade_killed_after_any_effect_is_finished_by_the_next_run() {
    for order in 0..4 {
        for crash in 0.. {
            let mut world = of(Shape::Stacked(3), OLD);
            world.kubernetes(NEXT);
            let script = Script { order, crash_after: Some(crash), ..Script::default() };
            let end = world.round(&script).unwrap_or_else(|b| panic!("crash after {crash}, order {order}: {b:?}"));
            assert_eq!(ends_well(&mut world, order), Ok(()), "crash after {crash}, order {order}");
            assert!(all_of(&world, NEXT), "crash after {crash}, order {order}: {:?}", versions(&world));
            if end != Ended::Crashed {
                assert!(crash > 30, "an upgrade has more effects than {crash}");
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(config(400, 4000))]

    /// Every law is judged after every effect, including the law of versions.
    #[test]
    fn versions_always_fit_together_despite_any_failure_between_the_effects(
        shape in prop::sample::select(vec![Shape::Stacked(1), Shape::Stacked(3), Shape::Apart, Shape::Local]),
        first in option::of(0..90_u16),
        acts in vec(crate::act(), 0..5),
        second in option::of(0..90_u16),
        order: u64,
    ) {
        let mut world = of(shape, OLD);
        for (wanted, cut) in [(NEXT, first), (NEWEST, second)] {
            world.kubernetes(wanted);
            let script = Script { order, crash_after: cut, ..Script::default() };
            let end = world.round(&script).map_err(|b| TestCaseError::fail(format!("{b:?}")))?;
            prop_assert!(!matches!(end, Ended::Failed(_)), "{end:?}");
            check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
            check(ends_well(&mut world, order))?;
            if world.living().is_some() && !world.lost_for_good() {
                prop_assert!(all_of(&world, wanted), "{wanted}: {:?}", versions(&world));
            } else {
                return Ok(());
            }
        }
    }

    #[test]
    fn an_interrupted_upgrade_is_finished_by_another_hactl_with_files_of_its_own(
        cut in 0..90_u16,
        which in 0..64_u8,
        acts in vec(crate::act(), 0..3),
        order: u64,
    ) {
        let mut world = of(Shape::Stacked(3), OLD);
        world.kubernetes(NEXT);
        let script = Script { order, crash_after: Some(cut), ..Script::default() };
        world.round(&script).map_err(|b| TestCaseError::fail(format!("{b:?}")))?;
        world.release(|r| {
            let all = [&mut r.etcd, &mut r.balancer, &mut r.manifests, &mut r.runtime, &mut r.approver, &mut r.leaves];
            for (bit, release) in all.into_iter().enumerate() {
                *release += which >> bit & 1;
            }
        });
        check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
        check(ends_well(&mut world, order))?;
        if world.living().is_some() && !world.lost_for_good() {
            prop_assert!(all_of(&world, NEXT), "{:?}", versions(&world));
        }
    }
}
