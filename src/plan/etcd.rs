//! etcd without a quorum: bootstrap a cluster, start stopped members, or refuse to guess. A cluster with a quorum is in
//! `reconcile_members`.

use super::conditions::Observed;
use super::configure::write;
use super::draft::Draft;
use super::reconcile_members::reconcile_members;
use super::steps::Steps;
use crate::model::desired::{Host, Role};
use crate::model::facts::{DiskFact, Etcd, EtcdFact, Evidence, HostFacts, Member, Members, UnitFact, newest};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Condition, InitialClusterState};
use crate::model::positions;
use crate::model::recovery::{Fullness, far_below};
use crate::model::refusal::Refusal;
use crate::model::target::FileSet;
use crate::model::units::etcd_unit;
use std::collections::BTreeSet;

/// The conditions that an etcd host requires before its member can start.
pub(super) fn ready_to_start(o: &Observed, host: &HostName) -> Vec<Condition> {
    let mut requires = vec![
        Condition::ClusterIdWritten(host.clone()),
        Condition::Prepared(host.clone()),
        Condition::Configured(host.clone(), FileSet::Trust),
        Condition::Configured(host.clone(), FileSet::Etcd),
        Condition::Configured(host.clone(), FileSet::Fence),
        Condition::Certified(host.clone()),
    ];
    requires.extend(o.delivered(host, &["etcd"]));
    requires
}

/// The files of a member, and of the unit that records its position.
pub(super) fn files(d: &Draft, host: &Host) -> Steps {
    if !host.may_vote() {
        return Steps::default();
    }
    Steps::from_iter([FileSet::Etcd, FileSet::Fence].map(|set| write(d, &host.name, set, vec![])))
}

/// Plans etcd as the inventory asks for it, as far as the facts allow.
pub(super) fn members(d: &Draft) -> Result<Steps, Refusal> {
    let hosts = d.reachable_with(Role::Etcd);
    in_place(d, &hosts)?;
    match &d.facts.etcd {
        Etcd::Uninitialized => {
            if let Some(trace) = born_before(d) {
                return Err(Refusal::NoQuorum { evidence: evidence(d, &trace) });
            }
            let token = format!("{}-{}", d.intent.bootstrap_token, fingerprint(d));
            found(d, &hosts, &token)
        }
        // Once it was bootstrapped, empty disks beside an initial member's are lost data: members with data may start.
        Etcd::Bootstrapping { token } => match born_before(d) {
            Some(trace) => start_stopped(d, &hosts, &evidence(d, &trace)),
            None if !token.ends_with(&format!("-{}", fingerprint(d))) => Err(other_founders(d)),
            None => found(d, &hosts, &token.clone()),
        },
        Etcd::HasQuorum(members) => reconcile_members(d, &hosts, members),
        Etcd::NoQuorum(evidence) => start_stopped(d, &hosts, evidence),
        Etcd::Disputed(evidence) => Err(Refusal::Disputed { evidence: evidence.clone() }),
    }
}

/// A member that starts with a quota below the size of its database refuses writes, and so does the whole cluster:
/// refused before anything restarts. If the quota is unchanged, the remedy is to free space.
pub(super) fn room(o: &Observed) -> Result<(), Refusal> {
    let wanted = i64::from(o.desired.etcd.quota_gib) << 30;
    let view = |h: &Host| Some((h.name.clone(), etcd_fact(o, &h.name)?.view.as_ref()?));
    let views = o.desired.with(Role::Etcd).filter_map(view);
    let lowered = views.filter(|(_, v)| wanted <= v.db_bytes && (v.quota_bytes == 0 || wanted < v.quota_bytes));
    let members: Vec<Fullness> = lowered.map(|(host, view)| Fullness::of(host, view)).collect();
    let wanted = wanted.unsigned_abs();
    if members.is_empty() { Ok(()) } else { Err(Refusal::QuotaBelowStored { wanted, members }) }
}

/// Data stored elsewhere than the inventory says would be abandoned: each member would start with an empty directory.
fn in_place(o: &Observed, hosts: &[Host]) -> Result<(), Refusal> {
    let elsewhere = |h: &Host| Some((h.name.clone(), etcd_fact(o, &h.name)?.elsewhere.clone()?));
    let hosts: Vec<(HostName, String)> = hosts.iter().filter_map(elsewhere).collect();
    let wanted = o.desired.etcd.data_dir.display().to_string();
    if hosts.is_empty() { Ok(()) } else { Err(Refusal::DataElsewhere { hosts, wanted }) }
}

/// The evidence of an earlier bootstrap, in words: the journal, or static pods, which are never written before every
/// member has the bootstrapped marker.
fn born_before(o: &Observed) -> Option<String> {
    if o.intent.bootstrapped {
        return Some("although this cluster was bootstrapped; is a volume not mounted?".to_owned());
    }
    let manifests = |h: &&Host| {
        let files = o.host_target(&h.name).sets.get(&FileSet::ControlPlane).map(|s| s.files.as_slice());
        let found = o.facts.host(&h.name);
        files.unwrap_or_default().iter().any(|f| found.is_some_and(|facts| facts.files.contains_key(&f.path)))
    };
    let host = o.desired.with(Role::ControlPlane).find(manifests)?;
    Some(format!("although an API server was set up on {}; is a volume not mounted?", host.name))
}

/// A fingerprint of the initial members, for the token: members started with different lists would bootstrap different
/// clusters.
fn fingerprint(o: &Observed) -> String {
    let initial_members = o.desired.with(Role::Etcd).flat_map(|h| format!("{}={},", h.name, h.peer_url()).into_bytes());
    // FNV-1a: it distinguishes the lists of one inventory, not those of an adversary.
    let hash = initial_members.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

fn other_founders(o: &Observed) -> Refusal {
    let begun = |h: &Host| etcd_fact(o, &h.name).is_some_and(|e| e.data || e.token.is_some());
    let begun: Vec<String> = o.desired.with(Role::Etcd).filter(|h| begun(h)).map(|h| h.name.to_string()).collect();
    Refusal::Preflight {
        problems: vec![format!(
            "{}: the bootstrap of this cluster was started with other etcd hosts than the inventory names now; name \
             the same hosts and addresses again, or start over with `hactl down`",
            begun.join(", ")
        )],
    }
}

pub(super) fn etcd_fact<'a>(o: &Observed<'a>, host: &HostName) -> Option<&'a EtcdFact> {
    o.facts.host(host).and_then(|f| f.etcd.as_ref())
}

/// What each etcd host has, for a refusal where empty disks are lost data.
fn evidence(o: &Observed, trace: &str) -> Vec<Evidence> {
    let of = |h: &Host| {
        let fact = etcd_fact(o, &h.name);
        let has_data = fact.is_some_and(|e| e.data);
        let what = match fact {
            None => "did not answer".to_owned(),
            Some(_) if has_data => "has data of an unfinished bootstrap".to_owned(),
            Some(_) => format!("its disk is empty, {trace}"),
        };
        Evidence { host: h.name.clone(), what, has_data, reachable: fact.is_some() }
    };
    o.desired.with(Role::Etcd).map(of).collect()
}

/// All initial members start together, with one list and one token; then quorum is confirmed and every member is marked
/// as bootstrapped.
fn found(d: &Draft, hosts: &[Host], token: &str) -> Result<Steps, Refusal> {
    let unreachable: Vec<HostName> =
        d.desired.with(Role::Etcd).filter(|h| etcd_fact(d, &h.name).is_none()).map(|h| h.name.clone()).collect();
    if !unreachable.is_empty() {
        return Err(Refusal::CannotTell { unreachable });
    }
    let left: Vec<HostName> = d.desired.with(Role::Etcd).map(|h| h.name.clone()).filter(|h| !d.may_change(h)).collect();
    if !left.is_empty() {
        return Err(Refusal::LimitedFounding { left });
    }
    let initial_members: Vec<(HostName, PeerUrl)> =
        d.desired.with(Role::Etcd).map(|h| (h.name.clone(), h.peer_url())).collect();
    let (mut steps, mut started) = (Steps::default(), Vec::new());
    for host in hosts {
        let state = InitialClusterState::New { token: token.to_owned(), initial_members: initial_members.clone() };
        let requires = ready_to_start(d, &host.name);
        let action = Action::StartMember { host: host.name.clone(), state };
        steps.add(d.ensure(action, "no cluster was bootstrapped here", requires));
        started.push(Condition::Started(host.name.clone()));
    }
    let member = |name: &HostName| Member { name: name.to_string(), healthy: true, ..Member::default() };
    steps.members = Some(Members(initial_members.iter().map(|(name, peer)| (peer.clone(), member(name))).collect()));
    steps.must(Action::ProveQuorum, "API servers need a quorum", started);
    steps.add(hosts.iter().map(|host| seal(d, &host.name, Condition::Quorum)).collect());
    Ok(steps)
}

/// Writes the bootstrapped marker of a member.
pub(super) fn seal(o: &Observed, host: &HostName, after: Condition) -> Steps {
    let action = Action::Seal { host: host.clone() };
    o.ensure(action, "a later start must not bootstrap a second cluster", vec![after])
}

/// Whether the data on a host is older than a completed recovery in the journal, or of an abandoned recovery. While no
/// member of the recovered cluster answers, etcd's own fence could not detect that.
pub(super) fn of_the_past(o: &Observed, host: &HostName) -> bool {
    if etcd_fact(o, host).is_some_and(|etcd| o.intent.gave_up(etcd)) {
        return true;
    }
    let revision = etcd_fact(o, host).and_then(|e| e.disk.as_ref()?.revision);
    o.intent.recovered.zip(revision).is_some_and(|(base, revision)| far_below(revision, base))
}

/// No member has a quorum. Stopped members with data may be started, and members with expired certificates may get new
/// ones, which they read without a restart. Neither can do harm; everything else is for `hactl recover`.
fn start_stopped(d: &Draft, hosts: &[Host], evidence: &[Evidence]) -> Result<Steps, Refusal> {
    // A member to be removed still has its vote: it is needed like the others until there is a quorum that can remove
    // it.
    let still_votes = |h: &Host| !h.is(Role::Etcd) && etcd_fact(d, &h.name).is_some_and(|etcd| etcd.data);
    let hosts: Vec<Host> = hosts.iter().cloned().chain(d.reachable().into_iter().filter(still_votes)).collect();
    let hosts = hosts.as_slice();
    let mut still = Vec::new();
    let mut hopes = Vec::new();
    let mut geneses = BTreeSet::new();
    let mut births = BTreeSet::new();
    let mut clusters = BTreeSet::new();
    let mut holders = 0;
    // A host without any trace of etcd may be new in the inventory: it does not count as a member that lost its data.
    let bare = |h: &&Host| {
        d.facts.host(&h.name).is_some_and(|f| !f.ran_etcd())
            && etcd_fact(d, &h.name).is_some_and(|e| !e.data && e.bootstrapped.is_none())
    };
    // The newest data lists the voters; if it cannot be read, the inventory is used.
    let lists = |facts: &&HostFacts| facts.etcd.as_ref().is_some_and(|e| e.disk.as_ref().is_some_and(DiskFact::lists));
    let unfit = |host: &Host| positions::unfit(d.desired, d.facts, host);
    let of_now = hosts.iter().filter(|h| !of_the_past(d, &h.name)).filter_map(|h| d.facts.host(&h.name));
    let newest = newest(of_now.filter(lists));
    // Members reach one another only at these peer URLs: a changed one needs a recovery.
    let known: Option<BTreeSet<PeerUrl>> =
        newest.and_then(|disk| disk.members.as_ref()).map(|all| all.iter().map(|m| m.2.clone()).collect());
    let pod_cidr_mismatch = |host: &Host| known.as_ref().is_some_and(|known| !known.contains(&host.peer_url()));
    let voters = match newest.and_then(DiskFact::voters) {
        Some(listed) => listed.count(),
        None => d.desired.with(Role::Etcd).count() - hosts.iter().filter(bare).count(),
    };
    let majority = voters / 2 + 1;
    for host in hosts {
        let Some(fact) = etcd_fact(d, &host.name).filter(|e| e.data) else { continue };
        if of_the_past(d, &host.name) || pod_cidr_mismatch(host) || unfit(host).is_some() {
            continue;
        }
        holders += 1;
        geneses.extend(fact.token.as_ref());
        births.extend(fact.bootstrapped.as_ref());
        clusters.extend(fact.disk.as_ref().map(|disk| &disk.cluster));
        let certified = Condition::Certified(host.name.clone());
        let unit = d.facts.host(&host.name).and_then(|f| f.units.get(&etcd_unit()));
        if !unit.is_some_and(UnitFact::runs_or_starts) {
            if !d.may_change(&host.name) {
                continue;
            }
            still.push(host.name.clone());
        } else if d.plans(&certified) {
            hopes.push(certified);
        }
    }
    // Data of two clusters must never be mixed: one of them may be left over from a recovery, or about to be replaced
    // by one.
    let one_origin = geneses.len() <= 1 && births.len() <= 1 && clusters.len() <= 1;
    if (still.is_empty() && hopes.is_empty()) || holders < majority || !one_origin {
        let with_age = |found: &Evidence| {
            let mut found = found.clone();
            if of_the_past(d, &found.host) {
                found.what.push_str("; its data is older than the recovery, so it is not started");
            } else if let Some(unfit) = d.desired.host(&found.host).and_then(unfit) {
                found.what = format!("{}, so it is not started; {}", unfit.on(&found.host), found.what);
            } else if found.has_data && d.desired.host(&found.host).is_some_and(pod_cidr_mismatch) {
                found.what.push_str("; its peer URL in the member list is not the address in the inventory");
            }
            found
        };
        return Err(Refusal::NoQuorum { evidence: evidence.iter().map(with_age).collect() });
    }
    let mut steps = Steps::default();
    for host in still {
        let requires = ready_to_start(d, &host);
        let action = Action::StartMember { host, state: InitialClusterState::Restart };
        hopes.push(steps.must(action, "it has data and does not run", requires).provides());
    }
    steps.must(Action::ProveQuorum, "etcd has no quorum yet", hopes);
    steps.horizon = Some("the other steps are planned once etcd has a quorum".to_owned());
    Ok(steps)
}
