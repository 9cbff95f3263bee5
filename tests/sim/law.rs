//! The laws: what must hold after every single effect of ours, whatever happens around it, and what must hold of every
//! plan before it is run.

use super::effect::Effect;
use super::make::MANIFESTS;
use super::world::World;
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
    /// A genesis began although a cluster had acknowledged writes.
    SecondCluster { first: String, host: HostName },
    /// Two clusters formed, and there is something left of both.
    TwoClusters { clusters: Vec<String> },
    /// A voter was started on an empty disk under an id that had voted.
    Amnesia { host: HostName },
    /// Data that was on a host is neither in place nor aside.
    DataDeleted { host: HostName },
    /// An API server was to write before every reachable member was sealed.
    ManifestBeforeSeal { host: HostName, unsealed: HostName },
    /// Two API servers were down at the same time by our doing.
    TwoDisturbed { hosts: Vec<HostName> },
    /// A balancer was told of others and not of one that runs: both would take the endpoint's address.
    TwoHolders { host: HostName, other: HostName },
    /// No API server serves any more, by our doing, although more than one host could.
    ApiLost,
    /// Two programs of Kubernetes are of versions that may not stand beside one another, by our doing.
    Skewed { what: String },
    /// The first API server was to get another version before there was a recovery bundle.
    NotSaved { host: HostName },
    /// A step ran although what it needs did not hold.
    NeedUnmet { step: String, need: Condition },
    /// A step succeeded and what it gives does not hold.
    GivesNothing { step: String, provides: Condition },
    /// A plan that is wrong in itself.
    BadPlan(String),
    /// An object was applied before it was on the record: a crash would leave it behind for ever.
    NotRecorded { key: String },
    /// Nothing is left to do, and a Node is still cordoned by us.
    LeftCordoned { host: HostName },
    /// Nothing is left to do, and previous files are still kept.
    LeftOnTrial { host: HostName },
    /// Something that must end did not.
    Endless(String),
}

/// What the laws look at.
#[derive(Debug, Clone)]
pub struct Scene {
    quorum: BTreeMap<String, (bool, usize)>,
    data: BTreeSet<(HostName, String, u64)>,
    api: bool,
    skewed: Option<String>,
    minors: BTreeSet<Minor>,
}

/// What may not stand beside one another: API servers two minor versions apart, and whatever is newer than the API server it asks.
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
    // Each asks the API server of its own host, and no other.
    for path in &MANIFESTS[1..] {
        let newer = |(name, found): &(HostName, Minor)| servers.iter().any(|(other, own)| other == name && found > own);
        if let Some((name, found)) = of(path).into_iter().find(newer) {
            return Some(format!("{path} ({found}) and the API server beside it on {name}"));
        }
    }
    for (name, host) in up().filter(|(_, host)| host.runs("kubelet.service")) {
        let Some(found) = host.ran.get("kubelet").and_then(|text| minor(text)) else { continue };
        // Beside an API server a kubelet asks that one alone, and none while there is none.
        let own = servers.iter().find(|(other, _)| other == name);
        let apart = world.desired.host(name).is_none_or(|host| !host.is(Role::ControlPlane));
        let Some(asked) = own.or(Some(oldest).filter(|_| apart)) else { continue };
        if found > asked.1 || asked.1.after(found) > Some(3) {
            return Some(format!("the kubelet of {name} ({found}) and the API server of {} ({})", asked.0, asked.1));
        }
    }
    None
}

/// The minor versions that API servers are of.
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
    let (skewed, minors) = (skewed(world), minors(world));
    Scene { quorum: quorum.collect(), data: disks.collect(), api: world.any_api(), skewed, minors }
}

/// Whether an effect that has just happened broke a law.
pub fn judge(before: &Scene, world: &World, effect: &Effect) -> Result<(), Broken> {
    let after = scene(world);
    let wiping = world.down_wipe || matches!(effect, Effect::Blank(_));
    for (cluster, (had, voters)) in &before.quorum {
        let has = after.quorum.get(cluster).is_some_and(|(has, _)| *has);
        // A lone member has nobody to stand in for it while it restarts.
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
    // A cluster that nobody used and of which no disk is left has never been, as far as anybody can tell.
    let left = |id: &String| world.hosts.values().any(|h| h.disk.as_ref().is_some_and(|d| &d.cluster == id));
    // One whose place a recovery has taken may lie about, and must not answer again.
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
        let unsealed = etcd.filter(|h| world.answered.contains(h)).find(|h| world.host(h).bootstrapped.is_none());
        // A host that was lost after the plan was made is not this step's fault: it cannot found anything by itself.
        if let Some(unsealed) = unsealed.filter(|h| world.host(h).disk.is_some() && world.host(h).answers()) {
            return Err(Broken::ManifestBeforeSeal { host: host.clone(), unsealed });
        }
    }
    if let Effect::File(host, FileSet::Keepalived, _) = effect {
        let told = world.with(hactl::model::desired::Role::LoadBalancer);
        let others = world.desired.hosts.iter().map(|h| &h.name).filter(|h| !told.contains(h));
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
        // A host that takes its bundles with it is none of our doing.
        && world.saved_ms.is_none_or(|at| world.now - at > 600_000)
    {
        return Err(Broken::NotSaved { host: host.clone() });
    }
    if world.disturbed.len() > 1 && !world.standstill {
        return Err(Broken::TwoDisturbed { hosts: world.disturbed.iter().cloned().collect() });
    }
    let control = world.with(hactl::model::desired::Role::ControlPlane).len();
    let alone = after.quorum.values().any(|(has, voters)| !has && *voters <= 1);
    if before.api && !after.api && control > 1 && !wiping && !alone && !world.standstill {
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
            return bad(format!("step {index} ({}) needs {need:?}, which neither holds nor is given", step.action));
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
            return bad(format!("step {index} ({}) changes members without a guard", step.action));
        }
    }
    serial(world, plan)
}

/// Disturbances come one after the other: of any two, one waits for what heals the other.
fn serial(world: &World, plan: &Plan) -> Result<(), Broken> {
    let members: Vec<usize> = (0..plan.steps.len()).filter(|i| disturbs_member(&plan.steps[*i])).collect();
    let waits = |steps: &[usize]| -> BTreeMap<usize, BTreeSet<usize>> {
        steps.iter().filter(|_| steps.len() > 1).map(|i| (*i, before(plan, *i))).collect()
    };
    let chained = waits(&members);
    for (at, a) in members.iter().enumerate() {
        for b in &members[at + 1..] {
            if !chained[b].contains(a) && !chained[a].contains(b) {
                let (a, b) = (&plan.steps[*a].action, &plan.steps[*b].action);
                return Err(Broken::BadPlan(format!("{a} and {b} may happen at the same time")));
            }
        }
    }
    let serving = |i: &usize| match &plan.steps[*i].action {
        Action::Configure { host, set: FileSet::ControlPlane, .. } => world.api_serves(host),
        _ => false,
    };
    let written: Vec<usize> = (0..plan.steps.len()).filter(serving).collect();
    let healed = |i: usize| {
        let host = plan.steps[i].action.host()?;
        let waits = |at: &usize| plan.after[*at].contains(&i);
        let marks = [Condition::ApiServer(host.clone()), Condition::Serving(host.clone())];
        (0..plan.steps.len()).filter(waits).find(|at| marks.contains(&plan.steps[*at].provides))
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
