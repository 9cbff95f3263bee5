//! Hosts that lie about etcd: false reports of a minority of the etcd hosts and of all other hosts change nothing for
//! honest hosts.

use crate::sim::World;
use crate::{Shape, converged};
use hactl::model::desired::Role;
use hactl::model::facts::{ClusterId, DiskFact, Etcd, EtcdFact, EtcdView, Facts, HostFacts};
use hactl::model::names::{Digest, HostName, PeerUrl};
use hactl::model::plan::{Action, Plan};
use hactl::model::plausible::MOST_AHEAD;
use hactl::model::recovery::{Diagnosis, LEAP};
use hactl::model::refusal::Refusal;
use hactl::observe::KnownCluster;
use hactl::plan::{RecoveryRequest, diagnose, up};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A host's false report about etcd.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "a lie is any combination of independent claims")]
struct Lie {
    /// Whether it names the right cluster.
    right: bool,
    /// The true members that it lists, by bits, and whether it lists itself.
    lists: u8,
    itself: bool,
    /// The other members that it lists at unknown addresses, and as learners, by bits.
    elsewhere: u8,
    learning: u8,
    /// The member that it claims to be: its own, one of the true ones, or a further one.
    is: Option<u8>,
    linearizable: bool,
    learner: bool,
    far: u64,
    revision: i64,
    /// Whether it reports data and a bootstrapped marker.
    data: bool,
    bootstrapped: bool,
    running: bool,
}

fn lie() -> impl Strategy<Value = Lie> {
    // Numbers that no cluster reaches are ignored, so most numbers are plausible ones.
    let beyond = prop_oneof![Just(i64::MAX), Just(-1), Just(1_i64 << 59), Just(0), any::<i64>()];
    let revision = prop_oneof![1 => beyond, 2 => 0..2_000_000_000_i64];
    let far = prop_oneof![1 => any::<u64>(), 3 => 0..2_000_000_000_u64];
    let bits = prop_oneof![Just(0_u8), Just(u8::MAX), any::<u8>()].boxed();
    // Most false reports are plausible.
    let [often, seldom] = [0.8, 0.3].map(proptest::bool::weighted);
    let flags = [often, seldom, often, seldom, seldom, seldom, often];
    let is = prop_oneof![Just(None), (0..9_u8).prop_map(Some)];
    (flags, [bits.clone(), bits.clone(), bits], is, far, revision).prop_map(
        |(flags, [lists, elsewhere, learning], is, far, revision)| {
            let [right, itself, linearizable, learner, data, bootstrapped, running] = flags;
            Lie {
                right,
                lists,
                itself,
                elsewhere,
                learning,
                is,
                linearizable,
                learner,
                far,
                revision,
                data,
                bootstrapped,
                running,
            }
        },
    )
}

impl Lie {
    fn apply(&self, world: &World, cluster: &str, host: &HostName, facts: &mut HostFacts) {
        let named = if self.right { cluster.to_owned() } else { "1".to_owned() };
        let etcd: Vec<HostName> = world.with(Role::Etcd);
        let truth = world.clusters.get(cluster).expect("a cluster that was");
        let mut members: Vec<(u64, String, PeerUrl, bool)> =
            truth.members.iter().map(|(id, m)| (*id, m.name.clone(), m.peer.clone(), m.learner)).collect();
        let own = || members.iter().find(|m| m.2 == world.peer(host)).map_or(900, |m| m.0);
        let other = |at: u8| members.get(usize::from(at)).map_or(u64::from(at) + 900, |m| m.0);
        let is = self.is.map_or_else(own, other);
        members.retain(|m| etcd.iter().position(|h| world.peer(h) == m.2).is_none_or(|at| self.lists >> at & 1 == 1));
        for (at, member) in members.iter_mut().enumerate().filter(|(_, member)| member.0 != is) {
            if self.elsewhere >> at & 1 == 1 {
                member.2 =
                    PeerUrl::of(std::net::Ipv4Addr::new(192, 0, 2, u8::try_from(at + 1).expect("few members")).into());
            }
            member.3 |= self.learning >> at & 1 == 1;
        }
        if self.itself {
            members.retain(|m| m.0 != is);
            members.push((is, host.to_string(), world.peer(host), false));
        }
        let view = EtcdView {
            cluster: named.clone(),
            member: is,
            leader: is,
            term: self.far,
            applied: self.far,
            revision: self.revision,
            version: "3.6.16".to_owned(),
            learner: self.learner,
            linearizable: self.linearizable,
            members: members.clone(),
            ..EtcdView::default()
        };
        let disk = DiskFact {
            cluster: named.clone(),
            member: is,
            term: self.far,
            index: self.far,
            revision: Some(self.revision),
            members: Some(members),
            ..DiskFact::default()
        };
        facts.etcd = Some(EtcdFact {
            data: self.data,
            bootstrapped: self.bootstrapped.then_some(named),
            view: self.running.then_some(view),
            disk: self.data.then_some(disk),
            high_water: Some(self.revision),
            // It claims to hear nobody.
            peers: Some(BTreeSet::new()),
            ..EtcdFact::default()
        });
        facts.judge(host);
    }
}

/// The facts about a world in which these hosts lie.
fn observed(world: &mut World, cluster: &str, lies: &[(HostName, &Lie)]) -> Facts {
    let mut hosts = world.observe().hosts;
    for (host, lie) in lies {
        let Some(Ok(facts)) = hosts.get_mut(host) else { continue };
        lie.apply(world, cluster, host, facts);
    }
    let known = KnownCluster { cluster: Some(cluster.to_owned()), recovering: false };
    hactl::observe::assemble(&world.desired, &known, hosts, &world.target.addons)
}

/// Steps that change etcd or its data on honest hosts.
fn harms(world: &World, plan: &Plan, liars: &BTreeSet<HostName>) -> Vec<String> {
    let honest = |host: &HostName| !liars.contains(host);
    let peers: Vec<PeerUrl> = liars.iter().map(|host| world.peer(host)).collect();
    let changed = |action: &Action| match action {
        Action::RemoveMember { peer } | Action::AddLearner { peer } | Action::Promote { peer } => !peers.contains(peer),
        Action::MoveMember { from, to } => !peers.contains(from) || !peers.contains(to),
        Action::ArchiveData { host }
        | Action::StartMember { host, .. }
        | Action::Seal { host }
        | Action::Defragment { host }
        | Action::Wipe { host, .. } => honest(host),
        Action::RunUnit { host, unit, .. } | Action::StopUnit { host, unit } => {
            unit.as_str() == "etcd.service" && honest(host)
        }
        _ => false,
    };
    plan.steps.iter().filter(|step| changed(&step.action)).map(|step| format!("{step:?}")).collect()
}

fn shape() -> impl Strategy<Value = Shape> {
    prop::sample::select(vec![Shape::Stacked(1), Shape::Stacked(3), Shape::Stacked(5), Shape::Stacked(7), Shape::Apart])
}

proptest! {
    #![proptest_config(crate::sim::config(400, 4000))]

    #[test]
    fn a_lying_minority_and_all_hosts_without_a_member_never_change_the_members_of_others(
        shape in shape(),
        lies in vec(lie(), 8),
        first in any::<usize>(),
    ) {
        let mut world = converged(shape);
        let cluster = world.living().expect("it answers");
        let etcd = world.with(Role::Etcd);
        let minority = (etcd.len() - 1) / 2;
        let some = (0..minority).map(|n| etcd[(first % etcd.len() + n) % etcd.len()].clone());
        let others = world.desired.hosts.iter().map(|h| h.name.clone()).filter(|h| !etcd.contains(h));
        let liars: BTreeSet<HostName> = some.chain(others).collect();
        let reports: Vec<(HostName, &Lie)> = liars.iter().cloned().zip(lies.iter().cycle()).collect();
        let facts = observed(&mut world, &cluster, &reports);
        match &facts.etcd {
            Etcd::HasQuorum(members) => {
                let listed: BTreeSet<&PeerUrl> = members.0.keys().collect();
                let truth: Vec<PeerUrl> = etcd.iter().map(|h| world.peer(h)).collect();
                prop_assert_eq!(listed, truth.iter().collect(), "the list is the honest one");
                let well = |h: &HostName| members.0[&world.peer(h)].healthy;
                prop_assert!(members.0.values().all(|member| !member.learner), "no voter is a learner: {:?}", members);
                prop_assert!(etcd.iter().filter(|h| !liars.contains(*h)).all(well), "healthy honest members count as healthy");
                prop_assert_eq!(facts.living_cluster(), Some(&cluster));
            }
            // The ID of a second cluster is a refusal, with names.
            Etcd::Disputed(evidence) => prop_assert_eq!(evidence.len(), etcd.len()),
            other => prop_assert!(false, "{:?}", other),
        }
        if let Ok(plan) = up(&world.desired, &world.target, &facts, &world.intent) {
            let harms = harms(&world, &plan, &liars);
            prop_assert!(harms.is_empty(), "{}", harms.join("\n"));
        }
    }

    #[test]
    fn only_the_honest_member_list_is_believed_while_honest_members_are_stopped(
        shape in prop::sample::select(vec![Shape::Stacked(3), Shape::Stacked(5)]),
        lies in vec(lie(), 8),
        first in any::<usize>(),
        stopped in 1..=4_usize,
    ) {
        let mut world = converged(shape);
        let cluster = world.living().expect("it answers");
        let mut etcd = world.with(Role::Etcd);
        let at = first % etcd.len();
        etcd.rotate_left(at);
        let truth: BTreeSet<PeerUrl> = etcd.iter().map(|host| world.peer(host)).collect();
        let (liars, honest) = etcd.split_at((etcd.len() - 1) / 2);
        let reports: Vec<(HostName, &Lie)> = liars.iter().cloned().zip(lies.iter()).collect();
        let mut facts = observed(&mut world, &cluster, &reports);
        for host in honest.iter().take(stopped) {
            etcd_of(&mut facts, host).view = None;
        }
        let known = KnownCluster { cluster: Some(cluster), recovering: false };
        let facts = hactl::observe::assemble(&world.desired, &known, facts.hosts, &world.target.addons);
        if let Etcd::HasQuorum(members) = &facts.etcd {
            let listed: BTreeSet<PeerUrl> = members.0.keys().cloned().collect();
            prop_assert_eq!(listed, truth);
            prop_assert!(members.0.values().all(|member| !member.learner), "no voter is a learner: {:?}", members);
        }
    }

    #[test]
    fn false_reports_of_a_host_without_its_disk_and_of_workers_are_no_quorum_and_do_not_poison_a_recovery(
        lies in vec(lie(), 4),
        shape in prop::sample::select(vec![Shape::Stacked(3), Shape::Stacked(5)]),
    ) {
        let mut world = converged(shape);
        let cluster = world.living().expect("it answers");
        let etcd = world.with(Role::Etcd);
        let (lost, _) = etcd.split_at(etcd.len() / 2 + 1);
        for host in lost {
            world.wipe(host);
        }
        let others = world.desired.hosts.iter().map(|h| h.name.clone()).filter(|h| !etcd.contains(h));
        let liars: Vec<HostName> = lost[..1].iter().cloned().chain(others).collect();
        let reports: Vec<(HostName, &Lie)> = liars.iter().cloned().zip(lies.iter().cycle()).collect();
        let facts = observed(&mut world, &cluster, &reports);
        let reached = world.clusters[&cluster].revision;
        let request = RecoveryRequest { id: "0123456789abcdef".to_owned(), ..RecoveryRequest::default() };
        match diagnose(&world.desired, &world.target, &facts, &world.intent, &request) {
            Ok(Diagnosis::Lost(proposal)) => {
                let base = proposal.recovery.base;
                prop_assert!(base >= reached + LEAP, "{base} is not above {reached}");
                let from = proposal.sources.iter().find(|s| s.origin() == proposal.recovery.source);
                let from = from.map_or(reached, |source| source.revision).max(reached);
                prop_assert!(base <= from + MOST_AHEAD + LEAP, "{base} is far above {from}");
            }
            Ok(Diagnosis::Serves { .. }) => prop_assert!(false, "there is no quorum"),
            // A host that claims to have data may cause a refusal that asks to examine it; nothing is restored.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Whether a plan touches no host and no member: these facts do not include objects of the API.
fn only_objects(plan: &Plan) -> bool {
    plan.steps.iter().all(|step| matches!(step.action, Action::Apply { .. }))
}

#[test]
fn false_reports_against_a_healthy_member_are_ignored_from_a_worker_and_outvoted_from_a_member() {
    let mut world = converged(Shape::Stacked(3));
    let cluster = world.living().expect("it answers");
    let etcd = world.with(Role::Etcd);
    let worker = world.desired.hosts.iter().find(|h| !h.is(Role::Etcd)).expect("a worker").name.clone();
    // The list lacks the first member and has a term that no member has reached.
    let claim = |right| Lie {
        right,
        lists: 0b110,
        itself: false,
        elsewhere: 0,
        learning: 0,
        is: Some(1),
        linearizable: true,
        learner: false,
        far: 999_999,
        revision: 99_999_999,
        data: false,
        bootstrapped: false,
        running: true,
    };
    for right in [true, false] {
        let facts = observed(&mut world, &cluster, &[(worker.clone(), &claim(right))]);
        let plan = up(&world.desired, &world.target, &facts, &world.intent).expect("the members are well");
        assert!(only_objects(&plan) && plan.warnings.iter().any(|w| w.starts_with(worker.as_str())), "{plan:?}");
    }
    let facts = observed(&mut world, &cluster, &[(etcd[1].clone(), &claim(true))]);
    let plan = up(&world.desired, &world.target, &facts, &world.intent).expect("two of three agree");
    assert!(only_objects(&plan) && plan.warnings.iter().any(|w| w.starts_with(etcd[1].as_str())), "{plan:?}");
    let facts = observed(&mut world, &cluster, &[(etcd[1].clone(), &claim(false))]);
    let refused = up(&world.desired, &world.target, &facts, &world.intent).expect_err("of another cluster");
    let Refusal::Disputed { evidence } = refused else { panic!("{refused:?}") };
    assert!(evidence.iter().any(|e| e.host == etcd[1] && e.what.contains("cluster 1")), "{evidence:?}");
}

#[test]
fn workers_that_repeat_a_members_false_list_as_its_invented_members_confirm_nothing() {
    let mut world = converged(Shape::Stacked(3));
    let cluster = world.living().expect("it answers");
    let etcd = world.with(Role::Etcd);
    let lie = Lie {
        right: true,
        lists: u8::MAX,
        itself: false,
        elsewhere: u8::MAX,
        learning: 0,
        is: None,
        linearizable: true,
        learner: false,
        far: 9,
        revision: 9,
        data: false,
        bootstrapped: false,
        running: true,
    };
    let mut facts = world.observe();
    let liar = facts.hosts.get_mut(&etcd[0]).and_then(|facts| facts.as_mut().ok()).expect("it answers");
    lie.apply(&world, &cluster, &etcd[0], liar);
    let said = etcd_of(&mut facts, &etcd[0]).clone();
    let view = said.view.clone().expect("it claims to run");
    let others: Vec<u64> = view.members.iter().map(|member| member.0).filter(|id| *id != view.member).collect();
    let workers = world.desired.hosts.iter().filter(|h| !h.is(Role::Etcd)).map(|h| h.name.clone());
    for (worker, member) in workers.zip(others) {
        let repeated = EtcdFact { view: Some(EtcdView { member, ..view.clone() }), ..said.clone() };
        facts.hosts.get_mut(&worker).and_then(|f| f.as_mut().ok()).expect("it answers").etcd = Some(repeated);
    }
    let known = KnownCluster { cluster: Some(cluster), recovering: false };
    let facts = hactl::observe::assemble(&world.desired, &known, facts.hosts, &world.target.addons);
    let Etcd::HasQuorum(members) = &facts.etcd else { panic!("two of three agree: {:?}", facts.etcd) };
    let truth: BTreeSet<PeerUrl> = etcd.iter().map(|host| world.peer(host)).collect();
    assert_eq!(members.0.keys().cloned().collect::<BTreeSet<_>>(), truth);
}

fn etcd_of<'a>(facts: &'a mut Facts, host: &HostName) -> &'a mut EtcdFact {
    let said = facts.hosts.get_mut(host).and_then(|facts| facts.as_mut().ok()).expect("it answers");
    said.etcd.as_mut().expect("an etcd host")
}

/// The same facts, assembled again.
fn again(world: &World, facts: Facts) -> Facts {
    hactl::observe::assemble(&world.desired, &KnownCluster::default(), facts.hosts, &world.target.addons)
}

#[test]
fn a_learner_without_any_data_yet_contradicts_no_list_but_one_with_log_entries_or_a_list_in_which_it_votes_does() {
    let mut world = converged(Shape::Stacked(3));
    let etcd = world.with(Role::Etcd);
    for (index, says) in [(0, false), (0, true), (9, false)] {
        let mut facts = world.observe();
        // As after a recovery that began with one member.
        let first = etcd_of(&mut facts, &etcd[0]).view.as_mut().expect("it answers");
        let true_list = first.members.clone();
        for member in &mut first.members {
            member.3 = member.0 != first.member;
        }
        let cluster = first.cluster.clone();
        let second = etcd_of(&mut facts, &etcd[1]);
        let member = second.view.take().expect("it answers").member;
        let members = says.then_some(true_list);
        second.disk = Some(DiskFact { cluster, member, index, members, ..DiskFact::default() });
        let third = etcd_of(&mut facts, &etcd[2]);
        (third.view, third.disk, third.data, third.bootstrapped) = (None, None, false, None);
        let facts = again(&world, facts);
        match &facts.etcd {
            Etcd::HasQuorum(members) if (index, says) == (0, false) => {
                assert_eq!((members.voters(), members.healthy()), (1, 1));
            }
            Etcd::Disputed(_) if (index, says) != (0, false) => {}
            other => panic!("entry {index}, with a list: {says}; {other:?}"),
        }
    }
}

#[test]
fn a_slow_member_is_left_alone_and_a_frozen_one_is_restarted_unless_the_others_are_too_few() {
    let mut world = converged(Shape::Stacked(3));
    let etcd = world.with(Role::Etcd);
    let restarted = |world: &World, facts: &Facts| {
        let plan = up(&world.desired, &world.target, facts, &world.intent)?;
        let restarts =
            |action: &Action| matches!(action, Action::RunUnit { unit, .. } if unit.as_str() == "etcd.service");
        let hosts =
            plan.steps.iter().filter(|step| restarts(&step.action)).filter_map(|step| step.action.host().cloned());
        Ok::<Vec<HostName>, Refusal>(hosts.collect())
    };
    for slow in [true, false] {
        let mut facts = world.observe();
        let first = etcd_of(&mut facts, &etcd[0]);
        (first.view, first.slow) = (None, slow);
        let facts = again(&world, facts);
        let wanted = if slow { vec![] } else { vec![etcd[0].clone()] };
        assert_eq!(restarted(&world, &facts), Ok(wanted), "slow: {slow}");
    }
    let mut facts = world.observe();
    for host in &etcd[..2] {
        etcd_of(&mut facts, host).view = None;
    }
    let refused = restarted(&world, &again(&world, facts.clone()));
    assert!(matches!(refused, Err(Refusal::Disputed { .. })), "one of three that answers is not believed: {refused:?}");
    // Even a list with too few healthy members causes no restart.
    let Etcd::HasQuorum(members) = &mut facts.etcd else { panic!("it answers") };
    for host in &etcd[..2] {
        members.0.get_mut(&world.peer(host)).expect("it is listed").healthy = false;
    }
    assert_eq!(restarted(&world, &facts), Ok(vec![]));
}

#[test]
fn a_quota_below_the_stored_size_is_refused_with_both_numbers_before_anything_restarts() {
    let mut world = converged(Shape::Stacked(3));
    let facts = world.observe();
    world.desired.etcd.quota_gib = 1;
    let refused = up(&world.desired, &world.target, &facts, &world.intent);
    let Err(Refusal::QuotaBelowStored { wanted, members }) = refused else { panic!("{refused:?}") };
    assert_eq!((wanted, members.len()), (1 << 30, 3));
    assert!(members.iter().all(|one| one.db_bytes == 1 << 30 && one.quota_bytes == 8 << 30), "{members:?}");
    // A member that is full at its current quota may get a larger one.
    let mut full = facts.clone();
    for host in world.with(Role::Etcd) {
        let view = etcd_of(&mut full, &host).view.as_mut().expect("it runs");
        (view.db_bytes, view.quota_bytes) = (2 << 30, 1 << 30);
    }
    assert!(up(&world.desired, &world.target, &full, &world.intent).is_ok());
}

#[test]
fn a_worker_that_claims_another_cluster_or_later_keys_is_left_out_and_named_and_a_host_with_a_role_is_not() {
    let mut world = converged(Shape::Stacked(3));
    let etcd = world.with(Role::Etcd);
    let workers: Vec<HostName> =
        world.desired.hosts.iter().filter(|h| h.roles == [Role::Worker]).map(|h| h.name.clone()).collect();
    let hosts = world.observe().hosts;
    let ours = hosts[&etcd[0]].as_ref().ok().and_then(|facts| facts.cluster_id.clone()).expect("it has a cluster ID");
    let of_another = ClusterId { ca: Digest::of(b"another"), ..ours.clone() };
    let of_later = ClusterId { stages: ours.stages + 1, ..ours.clone() };
    for (claim, says) in [(of_another, "another cluster"), (of_later, "keys that are newer")] {
        let mut answers = hosts.clone();
        for facts in answers.values_mut().flatten() {
            facts.cluster_id = Some(claim.clone());
        }
        hactl::observe::set_apart(&world.desired, &ours, &mut answers);
        for (host, facts) in answers {
            match facts {
                Err(left_out) => {
                    assert!(workers.contains(&host) && left_out.why.contains(says), "{host}: {left_out:?}");
                }
                Ok(_) => assert!(!workers.contains(&host), "{host} decides nothing and is left out"),
            }
        }
    }
}
