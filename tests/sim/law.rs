//! The laws: what must hold after every single effect of ours, whatever happens around it, and what must hold of every
//! plan before it is run.

use super::effect::Effect;
use super::make::MANIFESTS;
use super::world::World;
use hactl::model::action::Kind;
use hactl::model::desired::Role;
use hactl::model::names::{HostName, PeerUrl};
use hactl::model::plan::{Action, Condition, HowToRun, Plan, Precondition, Step};
use hactl::model::target::FileSet;
use hactl::model::version::{Minor, Version};
use std::collections::{BTreeMap, BTreeSet};

/// A law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// A quorum that was there before our effect is gone after it.
    QuorumLost { cluster: String },
    /// Two learners were in flight.
    TwoLearners { learners: Vec<PeerUrl> },
    /// A bootstrap began although a cluster had acknowledged writes.
    SecondCluster { first: String, host: HostName },
    /// Two clusters formed, and both still exist.
    TwoClusters { clusters: Vec<String> },
    /// A voter was started on an empty disk under an id that had voted.
    Amnesia { host: HostName },
    /// Data that was on a host is neither in place nor archived.
    DataDeleted { host: HostName },
    /// An API server could write before every reachable member was marked as bootstrapped.
    ManifestBeforeMarker { host: HostName, unmarked: HostName },
    /// Our effects took two API servers down at the same time.
    TwoDisturbed { hosts: Vec<HostName> },
    /// A kubelet got files before the balancer through which it reaches the API ran with its own.
    Unbalanced { host: HostName },
    /// A balancer knew others but not one that runs: both would take the address of the endpoint.
    TwoHolders { host: HostName, other: HostName },
    /// Our effect stopped the last serving API server although more than one host could serve.
    ApiLost,
    /// Our effect put two Kubernetes programs into a version skew that Kubernetes does not support.
    Skewed { what: String },
    /// The first API server got another version before a snapshot was taken.
    NotSaved { host: HostName },
    /// A step ran although a condition that it requires did not hold.
    NeedUnmet { step: String, need: Condition },
    /// A step that relies on the member list succeeded, and the list is not the one that the plan announces after it.
    NotAsAnnounced { step: String },
    /// A step succeeded, but the condition that it provides does not hold.
    GivesNothing { step: String, provides: Condition },
    /// The plan itself is invalid.
    BadPlan(String),
    /// An object was applied before it was recorded: a crash would leave it behind for ever.
    NotRecorded { key: String },
    /// Nothing is left to do, but a Node that hactl cordoned is still cordoned.
    LeftCordoned { host: HostName },
    /// Nothing is left to do, but previous files are still kept.
    LeftOnTrial { host: HostName },
    /// Something that must end did not end.
    Endless(String),
}

/// The actions whose steps may have a precondition. Each has a mutant in `tests/preconditions`.
pub const GUARDED: [Kind; 14] = [
    Kind::RemoveMember,
    Kind::MoveMember,
    Kind::AddLearner,
    Kind::StartMember,
    Kind::Promote,
    Kind::ArchiveData,
    Kind::RunUnit,
    Kind::Defragment,
    Kind::Configure,
    Kind::UpgradeKubelet,
    Kind::EndPods,
    Kind::Hold,
    Kind::HandOver,
    Kind::Wipe,
];

/// The state that the laws compare.
#[derive(Debug, Clone)]
pub struct Scene {
    quorum: BTreeMap<String, (bool, usize)>,
    data: BTreeSet<(HostName, String, u64)>,
    /// Hosts whose API server serves, whatever roles they have by now.
    serving: BTreeSet<HostName>,
    skewed: Option<String>,
    minors: BTreeSet<Minor>,
}

/// An unsupported version skew: API servers two minor versions apart, or a client newer than its API server.
fn skewed(world: &World) -> Option<String> {
    let minor = |text: &str| Version::parse(text).map(|version| version.minor);
    let up = || world.hosts.iter().filter(|(_, host)| host.on);
    let of = |path: &'static str| {
        up().filter_map(move |(name, host)| Some((name.clone(), minor(host.version_of(path)?)?))).collect::<Vec<_>>()
    };
    let servers = of(MANIFESTS[0]);
    let (oldest, newest) = (servers.iter().min_by_key(|s| s.1)?, servers.iter().max_by_key(|s| s.1)?);
    if newest.1.after(oldest.1) > Some(1) {
        return Some(format!("the API servers of {} ({}) and {} ({})", oldest.0, oldest.1, newest.0, newest.1));
    }
    // Each program asks the API server of its own host, and no other.
    for path in &MANIFESTS[1..] {
        let newer = |(name, found): &(HostName, Minor)| servers.iter().any(|(other, own)| other == name && found > own);
        if let Some((name, found)) = of(path).into_iter().find(newer) {
            return Some(format!("{path} ({found}) and the API server beside it on {name}"));
        }
    }
    for (name, host) in up().filter(|(_, host)| host.runs("kubelet.service")) {
        let Some(found) = host.ran.get("kubelet").and_then(|text| minor(text)) else { continue };
        // On a control-plane host a kubelet asks its own API server, and those that its balancer has in reserve.
        let apart = world.desired.host(name).is_none_or(|host| !host.is(Role::ControlPlane));
        let may_ask = |(other, runs): &&(HostName, Minor)| apart || other == name || host.has_in_reserve(*runs);
        let skewed = |asked: &&(HostName, Minor)| found > asked.1 || asked.1.after(found) > Some(3);
        if let Some(asked) = servers.iter().filter(may_ask).find(skewed) {
            return Some(format!("the kubelet of {name} ({found}) and the API server of {} ({})", asked.0, asked.1));
        }
    }
    None
}

/// The minor versions of the API servers.
fn minors(world: &World) -> BTreeSet<Minor> {
    let of = |host: &super::world::SimHost| Version::parse(host.version_of(MANIFESTS[0])?).map(|v| v.minor);
    world.hosts.values().filter(|host| host.on).filter_map(of).collect()
}

/// Everything that must not get lost, as it is now.
pub fn scene(world: &World) -> Scene {
    let quorum = world.clusters.iter().map(|(id, c)| (id.clone(), (world.has_quorum(id), c.voters())));
    let disks = world.hosts.iter().flat_map(|(name, host)| {
        let all = host.disk.iter().chain(&host.aside);
        all.map(|d| (name.clone(), d.cluster.clone(), d.member)).collect::<Vec<_>>()
    });
    let serving = world.hosts.keys().filter(|name| world.api_serves(name)).cloned().collect();
    let (skewed, minors) = (skewed(world), minors(world));
    Scene { quorum: quorum.collect(), data: disks.collect(), serving, skewed, minors }
}

/// Whether an effect that has just happened broke a law.
pub fn judge(before: &Scene, world: &World, effect: &Effect) -> Result<(), Broken> {
    let after = scene(world);
    let wiping = world.down_wipe || matches!(effect, Effect::Blank(_));
    for (cluster, (had, voters)) in &before.quorum {
        let has = after.quorum.get(cluster).is_some_and(|(has, _)| *has);
        // No other member can take over from a lone member while it restarts.
        if *had && !has && *voters > 1 && !wiping && !world.standstill {
            return Err(Broken::QuorumLost { cluster: cluster.clone() });
        }
    }
    for cluster in world.clusters.values() {
        let learners: Vec<PeerUrl> = cluster.members.values().filter(|m| m.learner).map(|m| m.peer.clone()).collect();
        if learners.len() > 1 {
            return Err(Broken::TwoLearners { learners });
        }
    }
    // A cluster without an acknowledged write and without a remaining disk is the same as no cluster.
    let left = |id: &String| world.hosts.values().any(|h| h.disk.as_ref().is_some_and(|d| &d.cluster == id));
    // A cluster that a recovery replaced may remain on disks, but must not answer again.
    let counts = |id: &String, c: &super::member::Cluster| {
        if c.superseded { world.has_quorum(id) } else { c.acknowledged || (c.formed && left(id)) }
    };
    let formed = world.clusters.iter().filter(|(id, c)| counts(id, c));
    let formed: Vec<String> = formed.map(|(id, _)| id.clone()).collect();
    if formed.len() > 1 {
        return Err(Broken::TwoClusters { clusters: formed });
    }
    let gone = before.data.iter().find(|d| !after.data.contains(*d));
    if let Some((host, _, _)) = gone.filter(|_| !wiping) {
        return Err(Broken::DataDeleted { host: host.clone() });
    }
    if let Effect::File(host, FileSet::ControlPlane, _) = effect {
        let etcd = world.with(hactl::model::desired::Role::Etcd).into_iter();
        let unmarked = etcd.filter(|h| world.answered.contains(h)).find(|h| world.host(h).bootstrapped.is_none());
        // A host that was lost after planning is not this step's fault: it cannot bootstrap anything on its own.
        if let Some(unmarked) = unmarked.filter(|h| world.host(h).disk.is_some() && world.host(h).answers()) {
            return Err(Broken::ManifestBeforeMarker { host: host.clone(), unmarked });
        }
    }
    if let Effect::File(host, FileSet::Kubelet, _) = effect
        && world.with(Role::ControlPlane).contains(host)
        && (world.stale_files(host, FileSet::EtcdBalancer) > 0
            || !world.holds(&Condition::Running(host.clone(), super::make::unit(super::make::BALANCES))))
    {
        return Err(Broken::Unbalanced { host: host.clone() });
    }
    if let Effect::File(host, FileSet::Keepalived, _) = effect {
        let balancers = world.with(hactl::model::desired::Role::LoadBalancer);
        let others = world.desired.hosts.iter().map(|h| &h.name).filter(|h| !balancers.contains(h));
        if let Some(other) = others.into_iter().find(|h| world.host(h).runs("keepalived.service")) {
            return Err(Broken::TwoHolders { host: host.clone(), other: other.clone() });
        }
    }
    if let (None, Some(what)) = (&before.skewed, &after.skewed) {
        return Err(Broken::Skewed { what: what.clone() });
    }
    if let Effect::File(host, FileSet::ControlPlane, path) = effect
        && path == MANIFESTS[0]
        && let Some(named) = world.host(host).names.get(path).and_then(|(text, _)| Version::parse(text))
        && !before.minors.is_empty()
        && before.minors.iter().all(|minor| *minor < named.minor)
        // A host that is lost together with its snapshots is not the fault of the step.
        && world.saved_ms.is_none_or(|at| world.now - at > 600_000)
    {
        return Err(Broken::NotSaved { host: host.clone() });
    }
    if world.disturbed.len() > 1 && !world.standstill {
        return Err(Broken::TwoDisturbed { hosts: world.disturbed.iter().cloned().collect() });
    }
    let control: BTreeSet<HostName> =
        world.with(Role::ControlPlane).into_iter().chain(before.serving.iter().cloned()).collect();
    let alone = after.quorum.values().any(|(has, voters)| !has && *voters <= 1);
    let lost = !before.serving.is_empty() && after.serving.is_empty();
    if lost && control.len() > 1 && !wiping && !alone && !world.standstill {
        return Err(Broken::ApiLost);
    }
    Ok(())
}

/// Which steps a step waits for, directly or not.
fn before(plan: &Plan, step: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![step];
    while let Some(next) = open.pop() {
        for &other in plan.after.get(next).into_iter().flatten() {
            if found.insert(other) {
                open.push(other);
            }
        }
    }
    found
}

fn disturbs_member(step: &Step) -> bool {
    match &step.action {
        Action::RunUnit { unit, how: HowToRun::Restart, .. } => unit.as_str() == "etcd.service",
        Action::RemoveMember { .. }
        | Action::MoveMember { .. }
        | Action::Defragment { .. }
        | Action::AddLearner { .. }
        | Action::Promote { .. } => true,
        _ => false,
    }
}

/// Whether a plan is sound in itself.
pub fn lint(world: &World, plan: &Plan) -> Result<(), Broken> {
    let bad = |text: String| Err(Broken::BadPlan(text));
    let count = plan.steps.len();
    if plan.after.len() != count || plan.forecast.len() != count {
        return bad(format!("{count} steps, {} waits, {} forecasts", plan.after.len(), plan.forecast.len()));
    }
    if let Some(stuck) = plan.warnings.iter().find(|text| text.contains("wait for one another")) {
        return bad(stuck.clone());
    }
    for (index, waits) in plan.after.iter().enumerate() {
        if let Some(other) = waits.iter().find(|w| **w >= index) {
            return bad(format!(
                "step {index} ({}) stands before step {other}, which it waits for",
                plan.steps[index].action
            ));
        }
    }
    for (index, step) in plan.steps.iter().enumerate() {
        let unmet = step.requires.iter().find(|need| {
            let given = plan.steps.iter().position(|s| &s.provides == *need);
            given.is_none_or(|g| g == index || !plan.after[index].contains(&g)) && !world.holds(need)
        });
        if let Some(need) = unmet {
            return bad(format!("step {index} ({}) needs {need:?}, which neither holds nor is provided", step.action));
        }
        if step.precondition != Precondition::None && !GUARDED.contains(&step.action.kind()) {
            return bad(format!("step {index} ({}) has a precondition without a mutant", step.action));
        }
        let membership = matches!(
            step.action,
            Action::RemoveMember { .. }
                | Action::MoveMember { .. }
                | Action::AddLearner { .. }
                | Action::Promote { .. }
                | Action::ArchiveData { .. }
        );
        if membership && !matches!(step.precondition, Precondition::Members { .. }) {
            return bad(format!("step {index} ({}) changes members without a precondition", step.action));
        }
    }
    serial(world, plan)
}

/// Disruptions come one after the other: of any two, one waits until the other host is healthy again.
fn serial(world: &World, plan: &Plan) -> Result<(), Broken> {
    let members: Vec<usize> = (0..plan.steps.len()).filter(|i| disturbs_member(&plan.steps[*i])).collect();
    let waits = |steps: &[usize]| -> BTreeMap<usize, BTreeSet<usize>> {
        steps.iter().filter(|_| steps.len() > 1).map(|i| (*i, before(plan, *i))).collect()
    };
    let ends = |i: &usize| matches!(plan.steps[*i].action, Action::AwaitServing { ends_hung: true, .. });
    for alike in [members, (0..plan.steps.len()).filter(ends).collect()] {
        let chained = waits(&alike);
        for (at, a) in alike.iter().enumerate() {
            for b in &alike[at + 1..] {
                if !chained[b].contains(a) && !chained[a].contains(b) {
                    let (a, b) = (&plan.steps[*a].action, &plan.steps[*b].action);
                    return Err(Broken::BadPlan(format!("{a} and {b} may happen at the same time")));
                }
            }
        }
    }
    let serving = |i: &usize| match &plan.steps[*i].action {
        Action::Configure { host, set: FileSet::ControlPlane, .. } | Action::HandOver { host, .. } => {
            world.api_serves(host)
        }
        _ => false,
    };
    let written: Vec<usize> = (0..plan.steps.len()).filter(serving).collect();
    let healed = |i: usize| {
        let host = plan.steps[i].action.host()?;
        let holds = |step: &Step| matches!(&step.action, Action::Hold { host: of } if of == host);
        let reserve = world.host(host).taken.is_some() && !plan.steps.iter().any(holds);
        // It waits itself until pods serve; and a manifest in reserve restarts none of them.
        if reserve || matches!(plan.steps[i].action, Action::HandOver { .. }) {
            return Some(i);
        }
        let waits = |at: &usize| plan.after[*at].contains(&i);
        let conditions = [Condition::ApiServer(host.clone()), Condition::Serving(host.clone())];
        (0..plan.steps.len()).filter(waits).find(|at| conditions.contains(&plan.steps[*at].provides))
    };
    let chained = waits(&written);
    for (at, a) in written.iter().enumerate() {
        for b in &written[at + 1..] {
            let fine = |x: usize, y: usize| healed(x).is_some_and(|h| chained[&y].contains(&h));
            if !fine(*a, *b) && !fine(*b, *a) {
                return Err(Broken::BadPlan("two API servers may restart at the same time".to_owned()));
            }
        }
    }
    Ok(())
}
