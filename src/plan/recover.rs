//! Recovery: the diagnosis, the least intrusive remedy, and the steps from one source of data to a running cluster.
//!
//! Nothing is restored if a milder remedy is enough, or while unreachable members could keep running as the old
//! cluster. The newest source is selected by raft's rule for elections, the (term, index) of the last entry, never by
//! the revision.

use super::conditions::Observed;
use super::draft::Draft;
use super::etcd::{etcd_fact, ready_to_start};
use super::intent::Intent;
use super::sources::{Found, highest, of_host, reached, sources, untrusted, voters};
use super::steps::Steps;
use super::up::up;
use super::{configure, prepare, upgrade, versions};
use crate::model::authentic::Authenticity;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{DiskFact, Etcd, EtcdView, Evidence, Facts, HostFacts, NOSPACE, UnitFact};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Condition, HowToRun, InitialClusterState, Plan};
use crate::model::positions::{self, Unfit};
use crate::model::recovery::{ALONE_FROM, Diagnosis, Fullness, LEAP, Loss, Origin, Proposal, Recovery, far_below};
use crate::model::refusal::Refusal;
use crate::model::snapshot::BundleFact;
use crate::model::target::{FileSet, Target};
use crate::model::units::kubelet_unit;
use std::collections::BTreeSet;

/// A snapshot in object storage, or a copy in a directory of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Where it is stored: a URL, or `HOST:/DIRECTORY`.
    pub place: String,
    /// The host that took it.
    pub host: HostName,
    /// Its facts.
    pub bundle: BundleFact,
}

/// Input from the command line, and input that cannot be observed.
#[derive(Debug, Clone, Default)]
pub struct RecoveryRequest {
    /// The random id of a new recovery.
    pub id: String,
    /// The source to restore from; `None`: the newest.
    pub from: Option<Origin>,
    /// A snapshot that is on no host, and the host that took it.
    pub bundle: Option<(HostName, BundleFact)>,
    /// The newest snapshot of each host in directories and in object storage, and the one that `from` names. If several
    /// places have the same snapshot, the first one counts.
    pub away: Vec<Away>,
    /// Copies of snapshots that were decrypted and found damaged: the name, and the place unless it is a host.
    pub damaged: BTreeSet<(String, Option<String>)>,
    /// Hosts that do not answer and are known to be powered off.
    pub powered_off: Vec<String>,
    /// A recovery that was agreed to and is not finished.
    pub begun: Option<Recovery>,
    /// Whether to restore although etcd may have a quorum: the data that the last recovery moved aside, or `from`.
    pub undo: bool,
    /// Whether unsigned snapshots may be used.
    pub accept_unsigned: bool,
}

impl RecoveryRequest {
    /// Whether a snapshot may be used, judged by its signature.
    pub(super) fn takes(&self, bundle: &BundleFact) -> bool {
        bundle.authenticity.may_be_taken(self.accept_unsigned)
    }
}

/// The diagnosis, and the recovery that would help.
///
/// # Errors
/// A [`Refusal`] where nothing can be recovered, or where it would not be safe.
pub fn diagnose(
    desired: &Desired,
    target: &Target,
    facts: &Facts,
    intent: &Intent,
    wish: &RecoveryRequest,
) -> Result<Diagnosis, Refusal> {
    // A named source is proof of a cluster, even if the journal ends with its removal.
    let bootstrapped = intent.bootstrapped || wish.from.is_some() || wish.begun.is_some();
    match &facts.etcd {
        // If the cluster still runs, a restored copy would be a second one.
        Etcd::Disputed(evidence) => return Err(Refusal::Disputed { evidence: evidence.clone() }),
        Etcd::HasQuorum(_) if wish.undo => {}
        // One member is enough to plan with while the others are unreachable; that nothing needs recovery, a majority
        // must report.
        Etcd::HasQuorum(members) if members.healthy() < members.quorum() => {
            return Err(Refusal::Disputed { evidence: alone(desired, facts) });
        }
        Etcd::HasQuorum(members) => {
            if let Some(asked) = wish.from.clone() {
                return Err(Refusal::NeedNot { asked, serves: true, begun: None });
            }
            let full = full(desired, facts);
            if !full.is_empty() {
                return Ok(Diagnosis::Full(full));
            }
            return Ok(Diagnosis::Serves { healthy: members.healthy(), voters: members.voters() });
        }
        Etcd::Uninitialized | Etcd::Bootstrapping { .. } if !bootstrapped => return Ok(Diagnosis::Uninitialized),
        Etcd::Uninitialized | Etcd::Bootstrapping { .. } | Etcd::NoQuorum(_) => {}
    }
    // After an interrupted bootstrap no write was ever acknowledged, so no data can be lost.
    let unborn = !intent.bootstrapped && wish.begun.is_none();
    // No new cluster is bootstrapped where one is to be recovered.
    let intent = &Intent { bootstrapped, ..intent.clone() };
    let (given_up, begun) = match (&wish.begun, &wish.from) {
        (Some(recovery), Some(from)) if from != &recovery.source => (Some(recovery), None),
        (begun, _) => (None, begun.as_ref()),
    };
    if let (Some(recovery), Some(asked)) = (given_up, &wish.from) {
        unserved(desired, facts, recovery, asked)?;
    }
    let as_begun = intent;
    let mut intent = intent.clone();
    intent.dropped.extend(given_up.map(|recovery| recovery.id.clone()));
    // A refusal of `up` because of CIDRs must not prevent the start of members.
    intent.ranges = None;
    let intent = &intent;
    if !wish.undo && !unborn && up(desired, target, facts, intent).is_ok_and(|plan| !plan.is_empty()) {
        // A recovery from the same source may have restored it already: then members only have to be started.
        return match wish.from.clone().filter(|_| begun.is_none()) {
            Some(asked) => {
                // If it has not restored data on any host yet, resuming it only starts the members as well.
                let wakes = up(desired, target, facts, as_begun).is_ok_and(|plan| !plan.is_empty());
                let begun = given_up.filter(|_| !wakes).map(|recovery| recovery.source.clone());
                Err(Refusal::NeedNot { asked, serves: false, begun })
            }
            None => Ok(Diagnosis::Asleep),
        };
    }
    // A host of another cluster is refused first of all.
    let draft = Draft::new(desired, target, facts, intent)?;
    // Members would start with the etcd of the default.
    upgrade::judge_default(desired, target, facts)?;
    // Afterwards, `up` would install the default.
    upgrade::judge_unknown(desired, facts)?;
    let hosts = draft.reachable_with(Role::Etcd);
    if let Some(recovery) = begun {
        return Ok(Diagnosis::Lost(Box::new(resumed(desired, facts, &hosts, recovery)?)));
    }
    // A host that stands by may have the newest snapshot or data.
    let keep: Vec<Host> = draft.reachable().into_iter().filter(Host::may_vote).collect();
    let found = sources(facts, &keep, intent, wish);
    let chosen = match &wish.from {
        Some(from) => found.iter().find(|f| &f.source.origin() == from),
        None => found.first(),
    };
    let Some(chosen) = chosen else {
        if wish.undo && wish.from.is_none() {
            return Err(Refusal::NothingAside);
        }
        if let Some(refused) = no_trust(&untrusted(facts, &keep, intent, wish)) {
            return Err(refused);
        }
        return Err(Refusal::NoSource { asked: wish.from.clone(), hosts: evidence(facts) });
    };
    if let (Some(of), Some(bundle)) = (&chosen.etcd, &chosen.source.bundle)
        && let Some((of, wanted)) = hosts.first().and_then(|host| versions::too_old_for(target, &host.name, of))
    {
        return Err(Refusal::NewerEtcd { bundle: bundle.clone(), of, wanted });
    }
    let data: Vec<(&Found, &DiskFact)> = found.iter().filter_map(|f| Some((f, f.in_place()?))).collect();
    if let Some((other, _)) = data.iter().find(|(f, _)| f.cluster != chosen.cluster)
        && wish.from.is_none()
        && chosen.in_place().is_some()
    {
        return Err(Refusal::TwoOrigins { hosts: (chosen.source.host.clone(), other.source.host.clone()) });
    }
    // The voters of a cluster that could keep running: those of the cluster that answers, or those listed in the
    // source.
    let voters = match &facts.etcd {
        Etcd::HasQuorum(now) => {
            now.0.iter().filter(|(_, m)| !m.learner).map(|(peer, m)| (Some(m.id), peer.clone())).collect()
        }
        _ => voters(desired, chosen, &found),
    };
    let quorum = voters.len() / 2 + 1;
    let votes = |id: u64| voters.iter().any(|(voter, ..)| voter.is_none_or(|voter| voter == id));
    // A member whose data is on two hosts has one vote; a member whose disk was rolled back has none.
    let counts = |f: &Found| {
        let host = desired.host(&f.source.host);
        host.is_none_or(|host| !matches!(positions::unfit(desired, facts, host), Some(Unfit::RolledBack { .. })))
    };
    let intact = data.iter().filter(|(f, d)| f.cluster == chosen.cluster && votes(d.member) && counts(f));
    let intact = intact.map(|(_, d)| d.member).collect::<BTreeSet<u64>>().len();
    let swapped = positions::swapped(desired, facts);
    if let (Some(_), None) = (swapped.first(), &wish.from) {
        let problems = swapped.into_iter().map(|(host, other)| Unfit::Swapped(other).on(&host.name)).collect();
        return Err(Refusal::Preflight { problems });
    }
    if intact >= quorum && wish.from.is_none() {
        return Err(Refusal::NotLost { intact, voters: voters.len() });
    }
    let unreachable = unreachable(desired, facts, &voters);
    // A snapshot, and data that was moved aside, does not list later voters: each of them may be a cluster of its own.
    let known = chosen.in_place().is_some() || matches!(facts.etcd, Etcd::HasQuorum(_));
    let enough = if known { quorum } else { 1 };
    all_off(&unreachable, wish, enough, voters.len())?;
    if let Some(recovery) = given_up {
        unfinished(desired, facts, recovery, wish)?;
    }
    let from = chosen.source.revision.max(intent.leapt);
    let (highest, beyond) = highest(desired, facts, wish, from);
    let newest = found.iter().max_by(|a, b| a.rank().cmp(&b.rank())).filter(|newest| newest.rank() > chosen.rank());
    // A snapshot that claims to be newer than live data: only a person can decide.
    let passed_over = newest.filter(|newest| wish.from.is_none() && newest.disk.is_none() && chosen.disk.is_some());
    let loss = match newest.filter(|_| passed_over.is_none()) {
        _ if wish.undo => Loss::Undone { revisions: since(desired, chosen.source.revision, facts, intent) },
        Some(newer) if newer.cluster == chosen.cluster => {
            let (newer, chosen) = (&newer.source, &chosen.source);
            Loss::Chosen {
                entries: newer.reach.1.saturating_sub(chosen.reach.1),
                revisions: ahead(chosen.revision, newer.revision),
                ms: chosen.age_ms.saturating_sub(newer.age_ms),
            }
        }
        Some(_) => Loss::Abandoned,
        None if chosen.in_place().is_none() => {
            let known = reached(desired, facts, wish, chosen.cluster);
            Loss::Since { ms: chosen.source.age_ms, revisions: ahead(chosen.source.revision, known) }
        }
        None if voters.len() - intact < quorum && passed_over.is_none() => Loss::Nothing,
        None => Loss::CannotBeKnown,
    };
    // Above the first revision of every recovery: data that is on no host any more is still in the journal.
    let base = highest.max(intent.leapt).saturating_add(LEAP);
    let source = chosen.source.clone();
    let fit: Vec<&Host> = hosts.iter().filter(|h| fit(&draft, h)).collect();
    let alone = |host: &&Host| host.name == source.host && chosen.in_place().is_some_and(|d| d.db_bytes >= ALONE_FROM);
    let members: Vec<&Host> = match fit.iter().copied().find(alone).filter(|_| !wish.undo) {
        Some(host) => vec![host],
        // If no host has any data, all of them are restored.
        None if fit.is_empty() => hosts.iter().collect(),
        None => fit,
    };
    let members = members.into_iter().map(|h| (h.name.clone(), h.peer_url())).collect();
    let (id, undo) = (wish.id.clone(), wish.undo);
    let passed_over = passed_over.map(|newest| newest.source.clone());
    let recovery = Recovery { id, source: source.origin(), reach: source.reach, base, members, undo };
    Ok(Diagnosis::Lost(Box::new(Proposal {
        later: later(desired, &recovery),
        recovery,
        begun: false,
        gives_up: given_up.cloned(),
        passed_over,
        sources: found.into_iter().map(|f| f.source).collect(),
        voters: voters.len(),
        unreachable,
        empty: empty(desired, facts),
        beyond,
        loss,
    })))
}

/// The refusal, if all snapshots that were found are unsigned or forged.
fn no_trust(untrusted: &[&BundleFact]) -> Option<Refusal> {
    let unsigned = untrusted.iter().filter(|bundle| bundle.authenticity == Authenticity::Unsigned);
    let unsigned: BTreeSet<String> = unsigned.map(|bundle| bundle.name.clone()).collect();
    let forged = untrusted.iter().find_map(|bundle| match &bundle.authenticity {
        Authenticity::Forged(why) => Some((bundle.name.clone(), why.clone())),
        _ => None,
    });
    match forged {
        _ if !unsigned.is_empty() => Some(Refusal::Unsigned { bundles: unsigned.into_iter().collect() }),
        Some((bundle, why)) => Some(Refusal::Forged { bundle, why }),
        None => None,
    }
}

/// The number of revisions between one and the highest known; 0 if a recovery lies between them.
fn ahead(revision: i64, highest: i64) -> u64 {
    if far_below(revision, highest) { 0 } else { highest.saturating_sub(revision).max(0).unsigned_abs() }
}

/// The number of revisions since an earlier one, or since the recovery that raised the revision above it, as far as
/// members with data in place know.
fn since(desired: &Desired, revision: i64, facts: &Facts, intent: &Intent) -> u64 {
    let etcd = desired.with(Role::Etcd).filter_map(|h| facts.host(&h.name)?.etcd.as_ref());
    let known = etcd.filter_map(|e| e.view.as_ref().map(|v| v.revision).or_else(|| e.disk.as_ref()?.revision));
    let leapt = intent.recovered.filter(|base| far_below(revision, *base));
    known.max().unwrap_or(revision).saturating_sub(leapt.unwrap_or(revision)).max(0).unsigned_abs()
}

/// All voters that answer, if a member has the alarm.
fn full(desired: &Desired, facts: &Facts) -> Vec<Fullness> {
    let view = |h: &Host| facts.host(&h.name)?.etcd.as_ref()?.view.as_ref();
    alarmed(desired.with(Role::Etcd).filter_map(|h| Some((&h.name, view(h)?))).collect())
}

/// All voters among these, if a member has the NOSPACE alarm. The leader comes last, because all writes wait while it
/// is defragmented.
pub fn alarmed(mut views: Vec<(&HostName, &EtcdView)>) -> Vec<Fullness> {
    if !views.iter().any(|(_, view)| view.alarms.iter().any(|alarm| alarm == NOSPACE)) {
        return Vec::new();
    }
    // A learner answers none of these requests, and replicates the data of the voters.
    views.retain(|(_, view)| !view.learner);
    views.sort_by_key(|(_, view)| view.leads());
    views.into_iter().map(|(host, view)| Fullness::of(host.clone(), view)).collect()
}

/// An unfinished recovery is resumed exactly as it was agreed to.
fn resumed(desired: &Desired, facts: &Facts, hosts: &[Host], recovery: &Recovery) -> Result<Proposal, Refusal> {
    let absent = |(name, _): &&(HostName, PeerUrl)| !hosts.iter().any(|h| &h.name == name);
    let absent: Vec<&str> = recovery.members.iter().filter(absent).map(|(name, _)| name.as_str()).collect();
    if recovery.members.len() - absent.len() <= recovery.members.len() / 2 {
        let problem = format!(
            "recovery {} was started with {} members, and {} of them do not answer ({}): bring a majority of them \
             back, or abandon this recovery for another source with --from",
            recovery.id,
            recovery.members.len(),
            absent.len(),
            absent.join(", ")
        );
        return Err(Refusal::Preflight { problems: vec![problem] });
    }
    let sources = hosts.iter().filter_map(|h| Some(of_host(&h.name, facts.host(&h.name)?))).flatten().map(|(s, _)| s);
    Ok(Proposal {
        recovery: recovery.clone(),
        begun: true,
        gives_up: None,
        passed_over: None,
        sources: sources.filter(|s| s.origin() == recovery.source).collect(),
        voters: 0,
        unreachable: Vec::new(),
        empty: Vec::new(),
        beyond: Vec::new(),
        loss: Loss::CannotBeKnown,
        later: later(desired, recovery),
    })
}

/// A recovery whose cluster has accepted writes has served clients: it must be finished before anything else is
/// restored.
fn unserved(desired: &Desired, facts: &Facts, recovery: &Recovery, asked: &Origin) -> Result<(), Refusal> {
    let written = |host: &&Host| {
        let etcd = facts.host(&host.name).and_then(|found| found.etcd.as_ref());
        let its = etcd.filter(|etcd| etcd.token.as_ref() == Some(&recovery.id));
        its.and_then(|etcd| etcd.disk.as_ref()?.revision).is_some_and(|revision| revision > recovery.base)
    };
    let Some(host) = desired.with(Role::Etcd).find(written) else { return Ok(()) };
    let problem = format!(
        "{}: recovery {} from {} is not finished, and its cluster already accepted writes: finish it with `hactl \
         recover` without --from, then restore {asked} with `hactl recover --undo` and the same --from",
        host.name, recovery.id, recovery.source
    );
    Err(Refusal::Preflight { problems: vec![problem] })
}

/// Refuses while unreachable hosts could be a majority of the cluster that an abandoned recovery had started.
fn unfinished(desired: &Desired, facts: &Facts, recovery: &Recovery, wish: &RecoveryRequest) -> Result<(), Refusal> {
    let members: Vec<_> = recovery.members.iter().map(|(_, peer)| (None, peer.clone())).collect();
    all_off(&unreachable(desired, facts, &members), wish, members.len() / 2 + 1, members.len())
}

/// Refuses while the unreachable hosts that are not confirmed as powered off could be a quorum.
fn all_off(unreachable: &[String], wish: &RecoveryRequest, quorum: usize, voters: usize) -> Result<(), Refusal> {
    let unreachable: Vec<String> =
        unreachable.iter().filter(|host| !wish.powered_off.contains(host)).cloned().collect();
    if unreachable.len() < quorum { Ok(()) } else { Err(Refusal::MayLive { unreachable, quorum, voters }) }
}

/// Hosts whose member has lost its data.
fn empty(desired: &Desired, facts: &Facts) -> Vec<HostName> {
    let misses = |h: &&Host| facts.host(&h.name).is_some_and(HostFacts::misses_data);
    desired.with(Role::Etcd).filter(misses).map(|h| h.name.clone()).collect()
}

/// etcd hosts of the inventory that are not initial members of the new cluster.
fn later(desired: &Desired, recovery: &Recovery) -> Vec<HostName> {
    let begins = |h: &&Host| recovery.members.iter().any(|(name, _)| name == &h.name);
    desired.with(Role::Etcd).filter(|h| !begins(h)).map(|h| h.name.clone()).collect()
}

/// What each etcd host reports about a quorum.
fn alone(desired: &Desired, facts: &Facts) -> Vec<Evidence> {
    let of = |host: &Host| {
        let found = facts.host(&host.name);
        let etcd = found.and_then(|found| found.etcd.as_ref());
        let what = match (found, etcd.and_then(|etcd| etcd.view.as_ref())) {
            (None, _) => "did not answer",
            (_, Some(view)) if view.linearizable => "its member reports a quorum",
            _ => "reports no quorum",
        };
        let has_data = etcd.is_some_and(|etcd| etcd.data);
        Evidence { host: host.name.clone(), what: what.to_owned(), has_data, reachable: found.is_some() }
    };
    desired.with(Role::Etcd).map(of).collect()
}

fn evidence(facts: &Facts) -> Vec<Evidence> {
    match &facts.etcd {
        Etcd::NoQuorum(evidence) | Etcd::Disputed(evidence) => evidence.clone(),
        Etcd::Uninitialized | Etcd::Bootstrapping { .. } | Etcd::HasQuorum(_) => Vec::new(),
    }
}

/// Voters whose hosts do not answer. A voter that is not in the inventory is not queried, so it may be running; it is
/// named by the host of its URL.
fn unreachable(desired: &Desired, facts: &Facts, voters: &[(Option<u64>, PeerUrl)]) -> Vec<String> {
    let of = |(_, peer): &(Option<u64>, PeerUrl)| match desired.with(Role::Etcd).find(|h| &h.peer_url() == peer) {
        Some(host) => facts.host(&host.name).is_none().then(|| host.name.to_string()),
        None => Some(peer.as_str().trim_start_matches("https://").trim_end_matches(":2380").to_owned()),
    };
    let mut unreachable: Vec<String> = voters.iter().filter_map(of).collect();
    unreachable.sort();
    unreachable
}

/// Whether a host can become a member immediately: it was one, or has everything that a member requires.
fn fit(o: &Observed, host: &Host) -> bool {
    let has_data = etcd_fact(o, &host.name).is_some_and(|e| e.data);
    has_data || o.delivered(&host.name, &TOOLS).iter().all(|mark| o.holds(mark))
}

/// The parts that a restore requires on a host.
const TOOLS: [&str; 2] = ["etcd", "etcdutl"];

/// Starts one kubelet together with etcd: its API server takes the longest to start, and waits for etcd. One API server
/// is enough to serve, and does not compete with others for CPU and disks; `up` starts the others.
fn first_kubelet(o: &Observed, members: &[Host], restores: &[Condition]) -> Steps {
    let mut steps = Steps::default();
    let unit = kubelet_unit();
    let runs =
        |host: &HostName| o.facts.host(host).and_then(|f| f.units.get(&unit)).is_some_and(UnitFact::runs_or_starts);
    // The nearest to the data first.
    let is_member = |host: &Host| members.iter().any(|member| member.name == host.name);
    let hosts = o.reachable_with(Role::ControlPlane).into_iter().filter(|h| runs(&h.name));
    let Some(host) = hosts.min_by_key(|host| !is_member(host)) else { return steps };
    // Nothing runs on a halted host while data is restored anywhere. If all data is in place already, the remaining
    // steps start members, and the kubelet starts after the local member.
    let requires = match restores {
        [] if is_member(&host) => vec![Condition::Started(host.name.clone())],
        [] => vec![Condition::Halted(host.name.clone())],
        all => all.to_vec(),
    };
    let action = Action::RunUnit { host: host.name, unit, how: HowToRun::Start };
    steps.must(action, "its API server takes the longest to start, and waits for etcd", requires);
    steps
}

/// The steps from the data of the source to a cluster with a quorum. Everything else is left to `up`.
///
/// # Errors
/// A host that belongs to another cluster.
pub fn recover(
    desired: &Desired,
    target: &Target,
    facts: &Facts,
    intent: &Intent,
    recovery: &Recovery,
    taken: bool,
) -> Result<Plan, Refusal> {
    let mut d = Draft::new(desired, target, facts, intent)?;
    let snapshot = Condition::Taken(recovery.id.clone());
    // A snapshot is on this machine before the first step.
    let lies = match &recovery.source {
        Origin::Data(host) => Some((host, None)),
        Origin::Aside(host, name) => Some((host, Some(name.clone()))),
        Origin::Bundle(_) => None,
    };
    // No process writes to data that was moved aside: the running cluster serves until that data is known to be usable.
    let first = matches!(recovery.source, Origin::Aside(..)) && !taken;
    let mut halted = Vec::new();
    for host in d.reachable().into_iter().filter(|h| h.is(Role::ControlPlane) || h.is(Role::Etcd)) {
        let why = "its data is about to be replaced, so nothing may read or write it";
        let requires = first.then(|| snapshot.clone()).into_iter().collect();
        let action = Action::Halt { host: host.name, serves: recovery.undo };
        halted.push(d.must(action, why, requires));
    }
    let local = recovery.is_local();
    if let (false, false, Some((host, aside))) = (taken, local, lies) {
        let (host, id) = (host.clone(), recovery.id.clone());
        let stays = recovery.members.iter().any(|(name, _)| name == &host);
        let action = Action::TakeSnapshot { host, recovery: id, aside, reach: recovery.reach, stays };
        let (term, index) = recovery.reach;
        let requires = if first { Vec::new() } else { halted.clone() };
        d.must(action, format!("its log ends at raft term {term}, index {index}"), requires);
    }
    let members: Vec<Host> = d
        .reachable_with(Role::Etcd)
        .into_iter()
        .filter(|h| recovery.members.iter().any(|(name, _)| name == &h.name))
        .collect();
    let mut restores = Vec::new();
    let mut starts = Vec::new();
    for host in d.reachable_with(Role::Etcd).into_iter().filter(|h| !members.iter().any(|m| m.name == h.name)) {
        // Otherwise members of the old cluster could form a quorum again, once more of them are back.
        if etcd_fact(&d, &host.name).is_some_and(|etcd| etcd.data) {
            let why = "it joins the restored cluster as a new member";
            restores.push(d.must(Action::ArchiveData { host: host.name }, why, halted.clone()));
        }
    }
    for host in &members {
        d.join(prepare::cluster_id(&d, host));
        d.join(prepare::prepare(&d, host));
        d.join(prepare::deliver_tools(&d, host, &TOOLS));
        d.join(configure::trust(&d, host));
        // Its data is replaced as well, so there is nothing to roll back to.
        d.join(configure::replace(&d, &host.name, FileSet::Etcd, vec![], false));
        d.join(configure::write(&d, &host.name, FileSet::Fence, vec![]));
        let done = etcd_fact(&d, &host.name)
            .is_some_and(|e| e.data && e.bootstrapped.is_none() && e.token.as_ref() == Some(&recovery.id));
        let mut ready = ready_to_start(&d, &host.name);
        ready.extend(d.delivered(&host.name, &TOOLS));
        if !done {
            let action = Action::Restore { host: host.name.clone(), recovery: recovery.clone() };
            let mut requires = ready.clone();
            requires.extend(halted.iter().cloned());
            requires.extend((!taken && !local).then(|| snapshot.clone()));
            restores.push(d.must(action, "its previous data is moved aside, not deleted", requires));
        }
        starts.push((host.name.clone(), ready));
    }
    // All together, once all have the same data.
    let mut started = Vec::new();
    for (host, mut requires) in starts {
        requires.extend(restores.iter().cloned());
        if restores.is_empty() {
            requires.push(Condition::Halted(host.clone()));
        }
        let action = Action::StartMember { host, state: InitialClusterState::Restart };
        started.push(d.must(action, "its data is restored", requires));
    }
    d.join(first_kubelet(&d, &members, &restores));
    d.must(Action::ProveQuorum, "API servers need a quorum", started);
    for host in &members {
        let action = Action::Seal { host: host.name.clone() };
        let why = "a later start must not bootstrap a second cluster";
        d.must(action, why, vec![Condition::Quorum]);
    }
    d.horizon = Some("API servers, Nodes and missing members follow once etcd has a quorum".to_owned());
    Ok(d.finish())
}
