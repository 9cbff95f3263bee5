//! Inventories that name no version of Kubernetes: the default of another hactl upgrades no cluster to another minor
//! version.

use crate::recovering::{diagnosed, lose_disks};
use crate::sim::{Ended, Script, World, make};
use crate::spec::spec;
use crate::upgrading::{of, with_parts};
use crate::{SHAPES, Shape};
use hactl::model::desired::Versions;
use hactl::model::facts::Facts;
use hactl::model::plan::Plan;
use hactl::model::recovery::Diagnosis;
use hactl::model::refusal::Refusal;
use hactl::model::target::FileSet;
use hactl::model::version::Version;
use hactl::reconcile::{EtcdPast, RepairSpec};

const OLD: &str = "1.35.4";
const NEXT: &str = "1.36.3";

fn version(text: &str) -> Version {
    Version::parse(text).expect("a version")
}

/// A converged cluster of this version, whose inventory names none; the default is the other one.
fn unnamed(shape: Shape, runs: &str, default: &str) -> World {
    let mut world = of(shape, runs);
    world.desired.versions.is_default = true;
    world.kubernetes(default);
    world
}

/// The answer of `up` to these facts, and the answer if the inventory named the version.
fn answers(world: &World, facts: &Facts) -> (Result<Plan, Refusal>, Result<Plan, Refusal>) {
    let up = |is_default| {
        let mut desired = world.desired.clone();
        desired.versions.is_default = is_default;
        hactl::plan::up(&desired, &world.target, facts, &world.intent)
    };
    (up(true), up(false))
}

fn is_refused(answer: &Result<Plan, Refusal>) -> bool {
    matches!(answer, Err(Refusal::VersionNotNamed { .. }))
}

#[test]
fn a_default_of_another_minor_version_is_refused_with_the_version_that_runs() {
    for shape in [Shape::Stacked(1), Shape::Stacked(3), Shape::Apart, Shape::Local] {
        for (runs, default) in [(OLD, NEXT), ("1.34.4", NEXT), (NEXT, OLD)] {
            let mut world = unnamed(shape, runs, default);
            let facts = world.observe();
            let (answer, named) = answers(&world, &facts);
            let (host, component) = (make::host_name("cp1"), "kube-apiserver".to_owned());
            let refusal = Refusal::VersionNotNamed { host, component, runs: version(runs), wanted: version(default) };
            assert_eq!(answer, Err(refusal), "{shape:?}");
            assert!(!is_refused(&named), "{shape:?}: {runs} to {default}");
        }
    }
}

#[test]
fn a_default_of_the_same_minor_version_changes_the_patch_and_bare_hosts_get_the_default() {
    let mut world = unnamed(Shape::Stacked(3), "1.36.0", NEXT);
    let facts = world.observe();
    let (answer, named) = answers(&world, &facts);
    assert!(answer == named && answer.is_ok_and(|plan| !plan.is_empty()));
    for shape in SHAPES {
        let mut world = shape.bare();
        world.desired.versions.is_default = true;
        assert_eq!(world.converge(7, 4), Ok(Ended::Converged), "{shape:?}");
    }
}

#[test]
fn an_upgrade_that_lost_its_name_is_refused_only_until_an_api_server_of_the_new_version_is_ready() {
    let mut start = unnamed(Shape::Stacked(3), OLD, NEXT);
    start.desired.versions.is_default = false;
    let (mut refused, mut finished) = (0, 0);
    for crash in 0.. {
        let mut world = start.clone();
        let script = Script { crash_after: Some(crash), ..Script::default() };
        let end = world.round(&script).unwrap_or_else(|broken| panic!("crash after {crash}: {broken:?}"));
        let facts = world.observe();
        let apis = facts.hosts.values().filter_map(|found| found.as_ref().ok()?.api.as_ref());
        let mut ready = apis.filter(|api| api.own_trouble.is_none());
        let begun = ready.any(|api| Version::parse(&api.version) == Some(version(NEXT)));
        let (answer, named) = answers(&world, &facts);
        if begun {
            assert_eq!(answer, named, "crash after {crash}");
            finished += 1;
        } else {
            assert!(is_refused(&answer) && !is_refused(&named), "crash after {crash}: {answer:?}");
            refused += 1;
        }
        if end != Ended::Crashed {
            break;
        }
    }
    assert!(refused > 0 && finished > 0, "{refused} refused, {finished} finished");
}

#[test]
fn while_no_control_plane_answers_the_default_upgrades_no_member_to_another_minor_version() {
    let mut world = unnamed(Shape::Apart, NEXT, NEXT);
    // etcd 3.6.16 runs.
    world.target = with_parts(&world, "etcd", "3.7.3");
    let facts = world.observe();
    assert!(!is_refused(&answers(&world, &facts).0), "etcd of a bundle for the version that runs");
    for host in ["cp1", "cp2"] {
        world.power_off(&make::host_name(host));
    }
    let facts = world.observe();
    let (answer, named) = answers(&world, &facts);
    let (host, component) = (make::host_name("etcd1"), "etcd".to_owned());
    let refusal = Refusal::VersionNotNamed { host, component, runs: version("3.6.16"), wanted: version(NEXT) };
    assert_eq!(answer, Err(refusal));
    assert!(!is_refused(&named));
}

#[test]
fn a_recovery_starts_no_member_for_a_default_of_another_minor_version() {
    let mut world = unnamed(Shape::Stacked(3), OLD, NEXT);
    lose_disks(&mut world, 2);
    let facts = world.observe();
    let answer = diagnosed(&world, &facts, None);
    assert!(matches!(answer, Err(Refusal::VersionNotNamed { .. })), "{answer:?}");
    world.desired.versions.is_default = false;
    let named = diagnosed(&world, &facts, None);
    assert!(matches!(named, Ok(Diagnosis::Lost(_))), "{named:?}");
}

#[test]
fn while_no_control_plane_answers_a_default_whose_etcd_runs_is_refused_as_well() {
    let mut world = unnamed(Shape::Apart, NEXT, NEXT);
    let facts = world.observe();
    assert!(answers(&world, &facts).0.is_ok());
    for host in ["cp1", "cp2"] {
        world.power_off(&make::host_name(host));
    }
    let facts = world.observe();
    let (answer, named) = answers(&world, &facts);
    let refused = Err(Refusal::VersionUnknown { wanted: version(NEXT) });
    assert_eq!(answer, refused);
    assert_ne!(named, refused);
}

#[test]
fn manifests_on_trial_without_a_ready_api_server_show_the_version_too() {
    let mut world = unnamed(Shape::Stacked(1), OLD, NEXT);
    let mut facts = world.observe();
    let found = facts.hosts.get_mut(&make::host_name("cp1")).and_then(|found| found.as_mut().ok());
    let found = found.expect("it answers");
    found.on_trial.insert(FileSet::ControlPlane);
    found.api = None;
    let (answer, named) = answers(&world, &facts);
    assert!(is_refused(&answer) && !is_refused(&named), "{answer:?}");
}

#[test]
fn a_recovery_needs_a_named_version_if_no_host_has_a_manifest() {
    let mut world = unnamed(Shape::Stacked(3), NEXT, NEXT);
    lose_disks(&mut world, 2);
    let mut facts = world.observe();
    for found in facts.hosts.values_mut().filter_map(|found| found.as_mut().ok()) {
        found.versions.clear();
        found.api = None;
    }
    let answer = diagnosed(&world, &facts, None);
    assert!(matches!(answer, Err(Refusal::VersionUnknown { .. })), "{answer:?}");
    world.desired.versions.is_default = false;
    let named = diagnosed(&world, &facts, None);
    assert!(matches!(named, Ok(Diagnosis::Lost(_))), "{named:?}");
}

#[test]
fn naming_the_version_changes_no_file_on_hosts_and_files_of_earlier_versions_can_be_read() {
    let mut world = unnamed(Shape::Stacked(3), NEXT, NEXT);
    let file = |world: &World| RepairSpec::of(spec(world), EtcdPast::of(&world.intent)).to_text();
    let before = file(&world);
    world.desired.versions.is_default = false;
    assert_eq!(file(&world), before);
    let earlier = r#"{"kubernetes":"1.36.3","etcd":null,"containerd":null}"#;
    let read: Versions = serde_json::from_str(earlier).expect("it can be read");
    assert!(!read.is_default);
    assert_eq!(serde_json::to_string(&read).expect("it can be written"), earlier);
}
