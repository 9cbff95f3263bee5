//! Renewal of certificates that are still valid: exactly the requested ones, one host after the other, each once, even
//! if the run is interrupted.

use crate::sim::{Ended, Script, World, law, make};
use crate::{Shape, converged, ends_well};
use hactl::model::certificate::CertFact;
use hactl::model::desired::Role;
use hactl::model::facts::Facts;
use hactl::model::leaf::Renewal;
use hactl::model::names::HostName;
use hactl::model::plan::{Action, Condition, HowToRun, Impact, Plan};
use hactl::model::refusal::Refusal;
use hactl::model::target::{CertId, FileSet, KUBELET_SERVES_WITH};
use std::collections::{BTreeMap, BTreeSet};

fn cp(n: u8) -> HostName {
    make::host_name(&format!("cp{n}"))
}

/// A converged world in which a renewal of these certificates was just requested.
fn asked(shape: Shape, leaves: &[(u8, &[CertId])]) -> World {
    let mut world = converged(shape);
    let leaves = leaves.iter().map(|(n, ids)| (cp(*n), ids.iter().copied().collect())).collect();
    world.intent.renew = Renewal { since_s: world.tick() / 1000, leaves };
    world
}

fn plan(world: &mut World) -> Plan {
    let facts = world.observe();
    plan_by(world, &facts)
}

fn plan_by(world: &World, facts: &Facts) -> Plan {
    let plan = hactl::plan::certs(&world.desired, &world.target, facts, &world.intent).expect("a plan");
    assert_eq!(law::lint(world, &plan), Ok(()));
    plan
}

/// The certificates that a plan issues, by host.
fn issued(plan: &Plan) -> BTreeMap<HostName, Vec<CertId>> {
    let certify = |action: &Action| match action {
        Action::Certify { host, leaves } => Some((host.clone(), leaves.clone())),
        _ => None,
    };
    plan.steps.iter().filter_map(|step| certify(&step.action)).collect()
}

fn run(world: &mut World, plan: &Plan, script: &Script) -> Ended {
    world.run(plan, script).expect("no law is broken")
}

#[test]
fn exactly_the_requested_certificates_are_issued_and_then_there_is_nothing_to_do() {
    let mut world = asked(Shape::Stacked(3), &[(1, &[CertId::EtcdPeer]), (3, &[CertId::Apiserver])]);
    let first = plan(&mut world);
    let wanted = BTreeMap::from([(cp(1), vec![CertId::EtcdPeer]), (cp(3), vec![CertId::Apiserver])]);
    assert_eq!(issued(&first), wanted);
    let (unit, how) = (make::unit("hactl-etcd-balancer.service"), HowToRun::Reload);
    let reload = Action::RunUnit { host: cp(3), unit, how };
    let others: Vec<&Action> =
        first.steps.iter().map(|step| &step.action).filter(|action| **action != reload).collect();
    assert_eq!(
        (first.steps.len(), others.len()),
        (3, 2),
        "only one unit has to reload one of these: {:?}",
        first.steps
    );
    assert!(first.steps.iter().all(|step| step.impact() == Impact::None));
    assert!(matches!(run(&mut world, &first, &Script::default()), Ended::Done(_)));
    assert!(plan(&mut world).is_empty());
    assert!(world.plan().expect("sound").0.expect("a plan").is_empty(), "and nothing is left to `up`");
}

#[test]
fn hosts_are_renewed_one_after_the_other_and_units_reload_a_certificate_before_the_next_host() {
    let id = CertId::ApiserverEtcdClient;
    let mut world = asked(Shape::Stacked(3), &[(1, &[id]), (2, &[id]), (3, &[id])]);
    let plan = plan(&mut world);
    let balancer = make::unit("hactl-etcd-balancer.service");
    let mut wanted = Vec::new();
    for n in 1..=3 {
        wanted.push(Action::Certify { host: cp(n), leaves: vec![id] });
        wanted.push(Action::RunUnit { host: cp(n), unit: balancer.clone(), how: HowToRun::Reload });
    }
    assert_eq!(plan.steps.iter().map(|s| s.action.clone()).collect::<Vec<_>>(), wanted);
    for (index, after) in plan.after.iter().enumerate().skip(1) {
        assert!(after.contains(&(index - 1)), "step {index} waits for the previous one: {after:?}");
    }
    assert!(matches!(run(&mut world, &plan, &Script::default()), Ended::Done(_)));
    assert!(self::plan(&mut world).is_empty());
}

#[test]
fn units_that_must_restart_do_so_one_after_the_other() {
    let id = CertId::ApiserverEtcdClient;
    let mut world = asked(Shape::Stacked(3), &[(1, &[id]), (2, &[id]), (3, &[id])]);
    // Like a unit that cannot reload new certificates.
    for host in world.target.hosts.values_mut() {
        for set in host.sets.values_mut().filter(|set| !set.reads.is_empty()) {
            set.reload = false;
        }
    }
    let plan = plan(&mut world);
    let restarts: Vec<usize> = (0..plan.steps.len())
        .filter(|i| matches!(plan.steps[*i].action, Action::RunUnit { how: HowToRun::Restart, .. }))
        .collect();
    assert_eq!(restarts.len(), 3);
    for pair in restarts.windows(2) {
        let before = &plan.steps[pair[0]].provides;
        assert!(plan.steps[pair[1]].requires.contains(before), "{:?}", plan.steps[pair[1]].requires);
    }
}

#[test]
fn a_run_interrupted_anywhere_is_finished_by_the_next_and_issues_nothing_twice() {
    let both: &[CertId] = &[CertId::ApiserverEtcdClient, CertId::EtcdPeer];
    for order in 0..4 {
        for crash in 0.. {
            let mut world = asked(Shape::Stacked(3), &[(1, both), (2, both), (3, both)]);
            let first = plan(&mut world);
            let script = Script { order, crash_after: Some(crash), ..Script::default() };
            let end = run(&mut world, &first, &script);
            let since = world.intent.renew.since_s;
            let new = |world: &World| {
                let new = |n: u8| {
                    let leaves = world.host(&cp(n)).leaves.iter();
                    leaves.filter(|(id, f)| both.contains(id) && f.not_before_s >= since).map(move |(id, _)| (n, *id))
                };
                (1..=3).flat_map(new).collect::<BTreeSet<_>>()
            };
            let (before, rest) = (new(&world), plan(&mut world));
            let again: BTreeSet<(u8, CertId)> = (1..=3)
                .flat_map(|n| issued(&rest).remove(&cp(n)).into_iter().flatten().map(move |id| (n, id)))
                .collect();
            assert!(before.is_disjoint(&again), "crash after {crash}: {before:?}, and again {again:?}");
            assert_eq!(before.len() + again.len(), 6, "crash after {crash}");
            run(&mut world, &rest, &Script { order, ..Script::default() });
            assert!(plan(&mut world).is_empty(), "crash after {crash}, order {order}");
            assert_eq!(world.converge(order, 2), Ok(Ended::Converged));
            if end != Ended::Crashed {
                assert!(crash >= 9, "six certificates and three reloads are more effects than {crash}");
                break;
            }
        }
    }
}

#[test]
fn other_changes_of_the_inventory_are_left_to_up() {
    let mut world = asked(Shape::Stacked(3), &[(2, &[CertId::EtcdPeer])]);
    world.release(|r| (r.etcd, r.manifests, r.balancer) = (1, 1, 1));
    let plan = plan(&mut world);
    assert_eq!(plan.steps.len(), 1, "{:?}", plan.steps);
    assert!(!world.plan().expect("sound").0.expect("a plan").is_empty());
}

#[test]
fn certificates_due_on_the_same_host_are_renewed_too_and_other_hosts_are_left_alone() {
    let mut world = asked(Shape::Stacked(3), &[(2, &[CertId::Apiserver])]);
    world.release(|r| r.leaves += 1);
    let plan = plan(&mut world);
    let hosts: Vec<HostName> = issued(&plan).into_keys().collect();
    assert_eq!(
        (hosts, issued(&plan)[&cp(2)].len()),
        (vec![cp(2)], 3),
        "all but those of the kubelet, which have a new name"
    );
}

#[test]
fn kubelets_own_certificates_are_never_issued_on_request() {
    let mut world = asked(Shape::Stacked(3), &[(1, &[CertId::Kubelet])]);
    assert!(plan(&mut world).is_empty());
}

#[test]
fn an_unreachable_host_is_reported_and_a_host_outside_the_cluster_gets_nothing() {
    let all: &[CertId] = &[CertId::Apiserver];
    let mut world = asked(Shape::Stacked(3), &[(1, all), (2, all), (3, all)]);
    world.power_off(&cp(1));
    world.wipe(&cp(2));
    let plan = plan(&mut world);
    assert_eq!(issued(&plan).into_keys().collect::<Vec<_>>(), [cp(3)], "no other host waits for it");
    assert!(plan.warnings.iter().any(|w| w.contains("cp1 is left out")), "{:?}", plan.warnings);
    assert!(
        plan.blocked.iter().any(|b| b.contains("cp2") && b.contains(&Condition::ClusterIdWritten(cp(2)).to_string()))
    );
}

#[test]
fn certificates_are_renewed_even_without_a_quorum() {
    let mut world = asked(Shape::Stacked(3), &[(1, &[CertId::EtcdPeer, CertId::EtcdServer])]);
    for n in 2..=3 {
        world.power_off(&cp(n));
    }
    assert_eq!(
        issued(&plan(&mut world)),
        BTreeMap::from([(cp(1), vec![CertId::EtcdPeer])]),
        "it has no other certificate here"
    );
}

/// Facts after a change of the signing CAs: the previous CAs signed the kubelets' certificates.
fn signed_by_others(world: &mut World) -> Facts {
    let mut facts = world.observe();
    for found in facts.hosts.values_mut().filter_map(|f| f.as_mut().ok()) {
        let kubelet = found.leaves.get_mut(&CertId::Kubelet).expect("every Node has one");
        "the previous CA".clone_into(&mut kubelet.authority);
    }
    facts
}

#[test]
fn a_kubelet_with_a_new_certificate_restarts_after_the_api_servers_that_sign_for_it() {
    let mut world = converged(Shape::Stacked(3));
    world.release(|r| r.manifests += 1);
    let facts = signed_by_others(&mut world);
    let plan = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("a plan");
    let kubelet = make::unit("kubelet.service");
    let at = |is: &dyn Fn(&Action) -> bool| plan.steps.iter().position(|s| is(&s.action)).expect("such a step");
    for n in 1..=3 {
        let restarts = at(
            &|a| matches!(a, Action::RunUnit { host, unit, how: HowToRun::Restart } if host == &cp(n) && *unit == kubelet),
        );
        let certified = at(&|a| matches!(a, Action::Certify { host, .. } if host == &cp(n)));
        assert!(before(&plan, certified, restarts), "cp{n}");
        for other in 1..=3 {
            let serves = at(&|a| matches!(a, Action::AwaitServing { host, .. } if host == &cp(other)));
            assert!(before(&plan, serves, restarts), "cp{n} after cp{other}");
        }
    }
}

#[test]
fn a_kubelet_with_a_serving_certificate_of_another_ca_gets_a_new_one_and_restarts() {
    let mut world = converged(Shape::Stacked(3));
    let mut facts = world.observe();
    let found = facts.hosts.get_mut(&cp(2)).and_then(|f| f.as_mut().ok()).expect("it answers");
    let shown = |ca: &str| CertFact {
        common_name: "system:node:cp2".to_owned(),
        key_id: String::new(),
        authority: ca.to_owned(),
        serial: "1".to_owned(),
        fingerprint: make::digest("shown"),
        not_before_s: 0,
        not_after_s: i64::MAX,
    };
    let own = found.leaves[&CertId::Kubelet].authority.clone();
    found.certificates.files.insert(KUBELET_SERVES_WITH.to_owned(), vec![shown(&own)]);
    let plan = |facts: &Facts| hactl::plan::up(&world.desired, &world.target, facts, &world.intent).expect("a plan");
    assert!(plan(&facts).is_empty(), "the current CA signed it");

    let found = facts.hosts.get_mut(&cp(2)).and_then(|f| f.as_mut().ok()).expect("it answers");
    found.certificates.files.insert(KUBELET_SERVES_WITH.to_owned(), vec![shown("the previous CA")]);
    let asked = plan(&facts);
    assert_eq!(issued(&asked), BTreeMap::from([(cp(2), vec![CertId::Kubelet])]));
    let restarts = asked.steps.iter().filter(|s| matches!(s.action, Action::RunUnit { how: HowToRun::Restart, .. }));
    assert_eq!(restarts.map(|s| s.action.host().cloned()).collect::<Vec<_>>(), [Some(cp(2))]);
}

/// Applies a stage of a rotation: the CAs that hosts trust, and the stage in their cluster ID.
fn another_stage(world: &mut World) {
    world.release(|r| r.trust += 1);
    world.intent.cluster_id.stages += 1;
}

#[test]
fn a_host_records_a_stage_after_the_encrypted_state_is_stored_and_before_it_gets_files_of_that_stage() {
    for shape in [Shape::Stacked(3), Shape::Apart] {
        let mut world = converged(shape);
        another_stage(&mut world);
        let plan = world.plan().expect("no law is broken").0.expect("a plan");
        let at = |condition: &Condition| {
            plan.steps.iter().position(|s| &s.provides == condition).unwrap_or_else(|| panic!("{condition}"))
        };
        let stored: Vec<usize> =
            world.with(Role::Etcd).into_iter().map(|h| at(&Condition::Configured(h, FileSet::State))).collect();
        assert_eq!(stored.len(), 3);
        for host in world.desired.hosts.iter().map(|h| h.name.clone()) {
            let recorded = at(&Condition::ClusterIdWritten(host.clone()));
            assert!(stored.iter().all(|stored| before(&plan, *stored, recorded)), "{shape:?}: {host}");
            assert!(
                before(&plan, recorded, at(&Condition::Configured(host.clone(), FileSet::Trust))),
                "{shape:?}: {host}"
            );
        }
        assert_eq!(world.converge(3, 3), Ok(Ended::Converged), "{shape:?}");
        assert!(world.hosts.values().all(|h| h.cluster_id.as_ref().is_some_and(|cluster_id| cluster_id.stages == 1)));
    }
}

#[test]
fn state_from_before_a_rotation_is_refused_wherever_the_rotation_was_interrupted() {
    for crash in 0.. {
        let mut world = converged(Shape::Stacked(3));
        another_stage(&mut world);
        let script = Script { order: 3, crash_after: Some(crash), ..Script::default() };
        let end = world.round(&script).expect("no law is broken");
        let recorded =
            world.hosts.values().any(|h| h.cluster_id.as_ref().is_some_and(|cluster_id| cluster_id.stages == 1));
        world.intent.cluster_id.stages = 0;
        let (answer, _) = world.plan().expect("no law is broken");
        assert_eq!(matches!(answer, Err(Refusal::StateBehind { .. })), recorded, "crash after {crash}: {answer:?}");
        world.intent.cluster_id.stages = 1;
        assert_eq!(ends_well(&mut world, 3), Ok(()), "crash after {crash}");
        if end != Ended::Crashed {
            assert!(recorded && crash > 4, "there are more effects than {crash}");
            break;
        }
    }
}

/// Whether a later step waits for an earlier one, directly or indirectly.
fn before(plan: &Plan, earlier: usize, later: usize) -> bool {
    plan.after[later].iter().any(|&step| step == earlier || before(plan, earlier, step))
}
