//! Plans as text for an inventory and a situation, step by step, with the reason, the precondition and the steps that
//! each step waits for. A change of the planner shows here as a difference that a person can judge.
//! `SNAPSHOTS=overwrite` writes the files again.

mod sim;

use hactl::model::action::Impact;
use hactl::model::facts::{Facts, Stale};
use hactl::model::plan::{InitialClusterState, Plan, Precondition, Step};
use hactl::model::refusal::Refusal;
use sim::{Ended, Script, World, make};
use std::fmt::Write as _;

fn precondition(precondition: &Precondition) -> String {
    match precondition {
        Precondition::None => String::new(),
        Precondition::Tolerates { down } => format!("; only while the cluster can lose {down}"),
        Precondition::Members { list } => {
            let member = |(peer, votes): (&hactl::model::names::PeerUrl, &bool)| {
                let address = peer.as_str().trim_start_matches("https://").trim_end_matches(":2380").to_owned();
                if *votes { address } else { format!("{address} (learner)") }
            };
            format!("; only while the members are {}", list.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The plan, one step a line, in an order in which they can run.
fn text(plan: &Plan) -> String {
    let mut out = String::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let host = step.action.host().map_or("cluster", |h| h.as_str());
        let waits: Vec<String> = plan.after[index].iter().map(ToString::to_string).collect();
        let waits = if waits.is_empty() { String::new() } else { format!(" [after {}]", waits.join(" ")) };
        let quorum = match &plan.forecast[index] {
            Some(m) => format!(" ({} of {} voters healthy)", m.healthy(), m.voters()),
            None => String::new(),
        };
        let membership = step.action.profile().impact >= hactl::model::plan::Impact::Restart;
        let quorum = if membership { quorum } else { String::new() };
        let _ = writeln!(
            out,
            "{index:>3} {host:<8} {}{quorum}: {}{waits}{}",
            step.action,
            step.why,
            precondition(&step.precondition)
        );
        if let hactl::model::plan::Action::StartMember { state: InitialClusterState::Existing { members }, .. } =
            &step.action
        {
            let list: Vec<String> = members.iter().map(|(name, peer)| format!("{name}={peer}")).collect();
            let _ = writeln!(out, "             parameters: {}", list.join(","));
        }
    }
    if plan.is_empty() {
        out.push_str("nothing to do\n");
    }
    if let Some(horizon) = &plan.horizon {
        let _ = writeln!(out, "then: {horizon}");
    }
    for warning in &plan.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

fn answer(world: &mut World) -> String {
    match world.plan().expect("no law is broken").0 {
        Ok(plan) => text(&plan),
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> String {
    let mut out = format!("refused: {refusal}\n");
    if let Refusal::NoQuorum { evidence } = refusal {
        for item in evidence {
            let _ = writeln!(out, "  {}: {}", item.host, item.what);
        }
    }
    out
}

fn cp(n: u8) -> hactl::model::names::HostName {
    make::host_name(&format!("cp{n}"))
}

fn converged(control: u8, workers: u8) -> World {
    let mut world = World::bare(control, workers);
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    world
}

fn golden(name: &str, actual: String) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    let expected = snapbox::Data::read_from(&path, Some(snapbox::data::DataFormat::Text)).raw();
    snapbox::assert_data_eq!(actual, expected);
}

#[test]
fn three_bare_hosts() {
    golden("fresh-3", answer(&mut World::bare(3, 0)));
}

#[test]
fn bare_hosts_with_one_role_each() {
    golden("fresh-apart", answer(&mut World::of(make::apart())));
}

#[test]
fn bare_hosts_without_a_virtual_address() {
    golden("fresh-local", answer(&mut World::of(make::local(1, 1))));
}

#[test]
fn every_example_is_planned_from_bare_hosts_and_comes_to_rest() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("inventories");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the examples are there") {
        let path = entry.expect("a readable entry").path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let source = hactl::inventory::Source::Path(path.clone());
        let loaded = hactl::inventory::load(&source).unwrap_or_else(|e| panic!("{}:\n{e}", path.display()));
        let hosts = loaded.desired.hosts.len();
        let mut world = World::of(loaded.desired);
        let plan = world.plan().expect("no law is broken").0;
        let plan = plan.unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()));
        let touched: std::collections::BTreeSet<_> = plan.steps.iter().filter_map(|step| step.action.host()).collect();
        assert_eq!(touched.len(), hosts, "{}: every host gets steps", path.display());
        assert_eq!(world.converge(1, 4), Ok(Ended::Converged), "{}", path.display());
        assert_eq!(answer(&mut world), "nothing to do\n", "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 12, "only {seen} examples");
}

#[test]
fn one_bare_host() {
    golden("fresh-1", answer(&mut World::bare(1, 0)));
}

#[test]
fn a_converged_cluster_has_nothing_to_do() {
    golden("converged", answer(&mut converged(3, 1)));
}

#[test]
fn one_of_five_hosts_comes_back_as_a_new_machine() {
    let mut world = converged(5, 0);
    world.wipe(&cp(2));
    golden("wiped-1-of-5", answer(&mut world));
}

#[test]
fn one_host_is_off() {
    let mut world = converged(3, 0);
    world.power_off(&cp(3));
    golden("host-off", answer(&mut world));
}

#[test]
fn the_settings_of_etcd_change() {
    let mut world = converged(3, 0);
    world.release(|r| r.etcd += 1);
    golden("etcd-change", answer(&mut world));
}

#[test]
fn the_settings_of_etcd_change_while_a_member_is_off() {
    let mut world = converged(3, 0);
    world.power_off(&cp(3));
    world.release(|r| r.etcd += 1);
    golden("etcd-change-host-off", answer(&mut world));
}

#[test]
fn the_api_server_gets_a_new_manifest() {
    let mut world = converged(3, 0);
    world.release(|r| r.manifests += 1);
    golden("manifest-change", answer(&mut world));
}

#[test]
fn the_registries_change_and_nothing_is_restarted() {
    let mut world = converged(1, 1);
    world.release(|r| r.registries = 1);
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    world.release(|r| r.registries = 2);
    golden("registries-change", answer(&mut world));
}

#[test]
fn hosts_renew_their_own_certificates_until_the_inventory_no_longer_asks_for_it() {
    let mut world = converged(1, 1);
    world.release(|r| r.renewal = 1);
    let wanted = answer(&mut world);
    golden("renewal-wanted", wanted);
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    let runs = |world: &World| world.host(&cp(1)).units.get(&make::unit(make::RENEWS)).is_some_and(|u| u.running);
    assert!(runs(&world));
    world.release(|r| r.renewal = 2);
    let unwanted = answer(&mut world);
    golden("renewal-not-wanted", unwanted);
    assert!(matches!(world.converge(2, 3), Ok(Ended::Converged)));
    assert!(!runs(&world));
}

#[test]
fn hosts_of_the_control_plane_have_guards_until_the_inventory_no_longer_asks_for_it() {
    let mut world = converged(1, 1);
    world.release(|r| r.guards = 1);
    let wanted = answer(&mut world);
    golden("guards-wanted", wanted);
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    let runs = |world: &World| world.host(&cp(1)).units.get(&make::unit(make::GUARDS)).is_some_and(|u| u.running);
    assert!(runs(&world));
    world.release(|r| r.leaves += 1);
    let plan = world.plan().expect("a sound plan").0.expect("a plan");
    let touching = plan.steps.iter().filter(|step| step.action.to_string().contains(make::GUARDS));
    assert_eq!(touching.map(Step::impact).collect::<Vec<_>>(), [Impact::None], "no component depends on it");
    let renewed = answer(&mut world);
    golden("guards-certificates-renewed", renewed);
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    world.release(|r| r.guards = 2);
    let unwanted = answer(&mut world);
    golden("guards-not-wanted", unwanted);
    assert!(matches!(world.converge(2, 3), Ok(Ended::Converged)));
    assert!(!runs(&world));
}

#[test]
fn hosts_hold_restore_drills_until_the_inventory_no_longer_asks_for_it() {
    let mut world = converged(1, 1);
    world.release(|r| r.drills = 1);
    let wanted = answer(&mut world);
    golden("drills-wanted", wanted);
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    let runs = |world: &World| world.host(&cp(1)).units.get(&make::unit(make::DRILLS)).is_some_and(|u| u.running);
    assert!(runs(&world));
    world.release(|r| r.drills = 2);
    let unwanted = answer(&mut world);
    golden("drills-not-wanted", unwanted);
    assert!(matches!(world.converge(2, 3), Ok(Ended::Converged)));
    assert!(!runs(&world));
}

#[test]
fn objects_of_the_users_come_and_go() {
    let mut world = converged(1, 0);
    world.release(|r| r.users = 1);
    golden("manifests-new", answer(&mut world));
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    world.release(|r| r.users = 2);
    golden("manifests-change", answer(&mut world));
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    world.release(|r| r.users = 0);
    golden("manifests-gone", answer(&mut world));
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    assert!(!world.objects.keys().any(|key| key.contains("user-")), "all of them are gone");
}

#[test]
fn an_object_that_holds_others_is_no_longer_managed_and_stays() {
    let mut world = converged(1, 0);
    let facts = world.observe();
    let stale = |key: &str, kept: Option<&str>| Stale { key: key.to_owned(), kept: kept.map(str::to_owned) };
    let gone = vec![
        stale("v1|ConfigMap|shop|settings", None),
        stale("v1|Namespace||shop", Some("it still holds Deployment theirs")),
    ];
    let facts = Facts { stale: [("manifests".to_owned(), gone)].into(), ..facts };
    let plan = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect("a plan");
    golden("manifests-kept", text(&plan));
}

#[test]
fn etcds_data_is_stored_elsewhere() {
    let mut world = converged(3, 0);
    let mut facts = world.observe();
    for answer in facts.hosts.values_mut() {
        let etcd = answer.as_mut().expect("all answer").etcd.as_mut().expect("all have etcd");
        (etcd.data, etcd.elsewhere) = (false, Some("/var/lib/other".to_owned()));
    }
    let refusal = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent).expect_err("it is refused");
    golden("data-elsewhere", refused(&refusal));
}

#[test]
fn a_worker_is_added() {
    let mut world = converged(3, 0);
    world.rehost(|d| d.hosts.push(make::worker(1)));
    golden("worker-added", answer(&mut world));
}

#[test]
fn a_member_is_added() {
    let mut world = converged(3, 0);
    world.grow();
    golden("member-added", answer(&mut world));
}

#[test]
fn hosts_give_up_roles() {
    use hactl::model::desired::Role::{ControlPlane, Etcd, LoadBalancer, Spare, Worker};
    for (name, host, roles) in [
        ("role-balancer-lost", cp(1), vec![ControlPlane, Etcd]),
        ("role-control-plane-lost", cp(2), vec![Worker, Etcd, LoadBalancer]),
        ("role-etcd-lost", cp(1), vec![ControlPlane, LoadBalancer]),
        ("role-node-lost", make::worker(1).name, vec![Spare]),
        ("roles-all-lost", cp(3), vec![Spare]),
    ] {
        let mut world = converged(3, 1);
        world.reassign(&host, &roles);
        golden(name, answer(&mut world));
        assert_eq!(world.converge(1, 4), Ok(Ended::Converged), "{name}");
        assert_eq!(answer(&mut world), "nothing to do\n", "{name}");
    }
}

#[test]
fn quorum_is_lost() {
    let mut world = converged(3, 0);
    world.wipe(&cp(1));
    world.wipe(&cp(2));
    golden("quorum-lost", answer(&mut world));
}

#[test]
fn all_members_are_stopped_with_their_data() {
    let mut world = converged(3, 0);
    for n in 1..=3 {
        world.unit_stopped(&cp(n), &make::unit("etcd.service"), false);
    }
    golden("all-still", answer(&mut world));
}

#[test]
fn a_bootstrap_was_interrupted() {
    let mut world = World::bare(3, 0);
    let plan = world.plan().expect("sound").0.expect("a plan");
    let starts = |s: &hactl::model::plan::Step| matches!(s.action, hactl::model::plan::Action::StartMember { .. });
    let first = plan.steps.iter().position(starts).expect("it starts a member");
    let until = Plan { steps: plan.steps[..=first].to_vec(), after: plan.after[..=first].to_vec(), ..Plan::default() };
    assert!(matches!(world.run(&until, &Script::default()), Ok(Ended::Done(_))));
    golden("founding-interrupted", answer(&mut world));
}

#[test]
fn a_bootstrap_does_not_begin_while_an_etcd_host_is_unreachable() {
    let mut world = World::bare(3, 0);
    world.power_off(&cp(2));
    golden("fresh-host-off", answer(&mut world));
}

#[test]
fn a_host_has_the_cluster_id_of_another_cluster() {
    let mut world = World::bare(3, 0);
    let mut theirs = world.intent.cluster_id.clone();
    theirs.ca = make::digest("another authority");
    world.host_mut(&cp(2)).cluster_id = Some(theirs);
    golden("other-cluster", answer(&mut world));
}

#[test]
fn a_member_outside_the_inventory_stays_until_it_is_named() {
    let mut world = converged(5, 0);
    world.rehost(|d| d.hosts.retain(|h| h.name != cp(5)));
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    golden("orphan", answer(&mut world));
    world.intent.prune = vec![cp(5)];
    golden("orphan-pruned", answer(&mut world));
}

#[test]
fn a_node_outside_the_inventory_is_deleted_when_it_is_named_and_its_kubelet_does_not_report() {
    let mut world = converged(3, 0);
    world.unknown_nodes = [(cp(8), (true, true)), (cp(9), (false, true))].into();
    assert!(world.plan().expect("sound").0.expect("a plan").is_empty(), "none was named");
    world.intent.prune = vec![cp(8), cp(9)];
    golden("node-pruned", answer(&mut world));
    assert!(matches!(world.converge(1, 3), Ok(Ended::Converged)));
    assert_eq!(world.unknown_nodes.keys().collect::<Vec<_>>(), [&cp(9)], "a Node that reports stays");
}

#[test]
fn former_nodes_of_hactl_are_deleted_after_a_recovery_from_a_snapshot_and_those_of_others_stay() {
    let mut world = converged(3, 0);
    world.unknown_nodes = [(cp(8), (false, true)), (cp(9), (true, false))].into();
    world.intent.abandons = true;
    golden("node-forsaken", answer(&mut world));
}

fn limit(world: &mut World, hosts: &[u8]) {
    world.intent.limit = Some(hosts.iter().map(|n| cp(*n)).collect());
}

#[test]
fn new_settings_of_etcd_go_to_one_host_first() {
    let mut world = converged(3, 0);
    world.release(|r| r.etcd += 1);
    limit(&mut world, &[2]);
    golden("limit-etcd-change", answer(&mut world));
}

#[test]
fn new_manifests_go_to_one_host_first_and_to_the_others_afterwards() {
    let mut world = converged(3, 1);
    world.release(|r| r.manifests += 1);
    limit(&mut world, &[2]);
    let (plan, _) = world.plan().expect("no law is broken");
    let plan = plan.expect("it is safe");
    assert!(!plan.is_empty());
    let hosts: std::collections::BTreeSet<_> = plan.steps.iter().filter_map(|s| s.action.host()).cloned().collect();
    assert_eq!(hosts, std::collections::BTreeSet::from([cp(2)]), "nothing else is touched");
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    golden("limit-converged", answer(&mut world));
    world.intent.limit = None;
    assert_eq!(world.converge(1, 4), Ok(Ended::Converged));
    golden("limit-lifted", answer(&mut world));
}

#[test]
fn a_host_that_lost_its_disks_waits_for_a_run_that_may_change_it() {
    let mut world = converged(3, 0);
    world.wipe(&cp(2));
    limit(&mut world, &[1]);
    golden("limit-wiped-other", answer(&mut world));
    limit(&mut world, &[2]);
    golden("limit-wiped", answer(&mut world));
    assert_eq!(world.converge(1, 6), Ok(Ended::Converged));
}

#[test]
fn a_cluster_is_not_bootstrapped_by_some_of_its_initial_members() {
    let mut world = World::bare(3, 0);
    limit(&mut world, &[1, 2]);
    golden("limit-founding", answer(&mut world));
    limit(&mut world, &[1, 2, 3]);
    assert!(world.plan().expect("no law is broken").0.is_ok(), "all initial members together may");
}

#[test]
fn a_certificate_is_renewed_on_every_host() {
    let mut world = converged(3, 1);
    let id = hactl::model::target::CertId::ApiserverEtcdClient;
    let leaves = [1, 2, 3].map(|n| (cp(n), [id].into())).into();
    world.intent.renew = hactl::model::leaf::Renewal { since_s: world.tick() / 1000, leaves };
    world.power_off(&cp(2));
    let facts = world.observe();
    let plan = hactl::plan::certs(&world.desired, &world.target, &facts, &world.intent);
    golden("certs-renew", plan.map_or_else(|refusal| refused(&refusal), |plan| text(&plan)));
}
