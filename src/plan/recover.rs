//! Recovery: what is wrong, the least that helps, and the steps from one member's data to a cluster.
//!
//! Nothing is restored while anything milder would do, nor while those who do not answer could go on as the old cluster. The newest
//! source is told by raft's own rule for elections, the last entry's (term, index), never by the revision.

use super::draft::Draft;
use super::etcd::ready_to_start;
use super::{Intent, configure, prepare};
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{DiskFact, Etcd, Facts, HostFacts};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Birth, Guard, Mark, Plan};
use crate::model::recovery::{Diagnosis, LEAP, Loss, Proposal, Recovery, Source};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Target};

/// What a person said on the command line, and what cannot be observed.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// A new recovery's name, drawn at random.
    pub id: String,
    /// The host whose data is to be taken; `None`: the newest.
    pub from: Option<HostName>,
    /// Hosts that do not answer and are known to be powered off.
    pub powered_off: Vec<String>,
    /// A recovery that was agreed to and not finished.
    pub begun: Option<Recovery>,
}

/// What is wrong, and what would help.
///
/// # Errors
/// A [`Refusal`] where nothing can be brought back, or where it would not be safe.
pub fn diagnose(
    desired: &Desired,
    target: &Target,
    facts: &Facts,
    intent: &Intent,
    wish: &Wish,
) -> Result<Diagnosis, Refusal> {
    match &facts.etcd {
        Etcd::Speaks(members) => {
            return Ok(Diagnosis::Serves { healthy: members.healthy(), voters: members.voters() });
        }
        Etcd::NeverBorn if !intent.born => return Ok(Diagnosis::NeverBorn),
        Etcd::Founding { .. } if !intent.born => return Ok(Diagnosis::NeverBorn),
        Etcd::NeverBorn | Etcd::Founding { .. } | Etcd::Silent(_) => {}
    }
    if super::up(desired, target, facts, intent).is_ok_and(|plan| !plan.is_empty()) {
        return Ok(Diagnosis::Asleep);
    }
    // Whatever belongs to another cluster is refused before anything else is said.
    let draft = Draft::new(desired, target, facts, intent)?;
    let hosts = draft.reachable_with(Role::Etcd);
    if let Some(recovery) = &wish.begun {
        return Ok(Diagnosis::Lost(Box::new(resumed(desired, facts, &hosts, recovery)?)));
    }
    let mut found: Vec<(Source, &DiskFact)> =
        hosts.iter().filter_map(|h| source(&h.name, draft.host_facts(&h.name)?)).collect();
    found.sort_by(|(a, _), (b, _)| b.reach.cmp(&a.reach).then_with(|| a.host.cmp(&b.host)));
    let chosen = match &wish.from {
        Some(from) => found.iter().find(|(s, _)| &s.host == from),
        None => found.first(),
    };
    let Some((chosen, disk)) = chosen else {
        return Err(Refusal::NoSource { asked: wish.from.clone(), hosts: evidence(facts) });
    };
    if let Some((other, _)) = found.iter().find(|(_, d)| d.cluster != disk.cluster)
        && wish.from.is_none()
    {
        return Err(Refusal::TwoOrigins { hosts: (chosen.host.clone(), other.host.clone()) });
    }
    let voters = voters(desired, disk);
    let quorum = voters.len() / 2 + 1;
    let intact =
        found.iter().filter(|(_, d)| d.cluster == disk.cluster && voters.iter().any(|(id, ..)| *id == Some(d.member)));
    let intact = intact.count().max(usize::from(voters.iter().any(|(id, ..)| id.is_none())));
    if intact >= quorum && wish.from.is_none() {
        return Err(Refusal::NotLost { intact, voters: voters.len() });
    }
    let dark = dark(desired, facts, &voters);
    let may_live: Vec<String> = dark.iter().filter(|h| !wish.powered_off.contains(h)).cloned().collect();
    if may_live.len() >= quorum {
        return Err(Refusal::MayLive { dark: may_live, quorum, voters: voters.len() });
    }
    let newest = found.first().map_or(chosen.reach, |(s, _)| s.reach);
    let loss = if newest > chosen.reach {
        Loss::Chosen { entries: newest.1.saturating_sub(chosen.reach.1) }
    } else if voters.len() - intact < quorum {
        Loss::Nothing
    } else {
        Loss::CannotBeKnown
    };
    let members: Vec<(HostName, PeerUrl)> =
        hosts.iter().filter(|h| fit(&draft, h)).map(|h| (h.name.clone(), h.peer_url())).collect();
    let recovery = Recovery {
        id: wish.id.clone(),
        source: chosen.host.clone(),
        reach: chosen.reach,
        base: highest(facts).saturating_add(LEAP),
        members,
    };
    Ok(Diagnosis::Lost(Box::new(Proposal {
        later: later(desired, &recovery),
        recovery,
        begun: false,
        sources: found.into_iter().map(|(source, _)| source).collect(),
        voters: voters.len(),
        dark,
        loss,
    })))
}

/// A recovery that was agreed to is finished as it was agreed to.
fn resumed(desired: &Desired, facts: &Facts, hosts: &[Host], recovery: &Recovery) -> Result<Proposal, Refusal> {
    let absent = |(name, _): &&(HostName, PeerUrl)| !hosts.iter().any(|h| &h.name == name);
    let absent: Vec<&str> = recovery.members.iter().filter(absent).map(|(name, _)| name.as_str()).collect();
    if recovery.members.len() - absent.len() <= recovery.members.len() / 2 {
        let problem = format!(
            "recovery {} was begun with {} members, and {} of them do not answer: bring a majority of them back, {}",
            recovery.id,
            recovery.members.len(),
            absent.len(),
            absent.join(", ")
        );
        return Err(Refusal::Preflight { problems: vec![problem] });
    }
    let sources = hosts.iter().filter_map(|h| Some(source(&h.name, facts.host(&h.name)?)?.0));
    Ok(Proposal {
        recovery: recovery.clone(),
        begun: true,
        sources: sources.filter(|s| s.host == recovery.source).collect(),
        voters: 0,
        dark: Vec::new(),
        loss: Loss::CannotBeKnown,
        later: later(desired, recovery),
    })
}

/// Hosts of the inventory that the new cluster does not begin with.
fn later(desired: &Desired, recovery: &Recovery) -> Vec<HostName> {
    let begins = |h: &&Host| recovery.members.iter().any(|(name, _)| name == &h.name);
    desired.with(Role::Etcd).filter(|h| !begins(h)).map(|h| h.name.clone()).collect()
}

fn evidence(facts: &Facts) -> Vec<crate::model::facts::Evidence> {
    match &facts.etcd {
        Etcd::Silent(evidence) => evidence.clone(),
        Etcd::NeverBorn | Etcd::Founding { .. } | Etcd::Speaks(_) => Vec::new(),
    }
}

/// Data that a cluster could be brought back from: its log and its store can both be read.
fn source<'a>(host: &HostName, facts: &'a HostFacts) -> Option<(Source, &'a DiskFact)> {
    let disk = facts.etcd.as_ref()?.disk.as_ref()?;
    let found = Source {
        host: host.clone(),
        reach: disk.reach(),
        revision: disk.revision?,
        age_ms: u64::try_from(facts.now_ms.saturating_sub(disk.written_ms)).unwrap_or(0),
        db_bytes: disk.db_bytes,
        flaws: disk.flaws.clone(),
    };
    Some((found, disk))
}

/// Who had a vote, by the source's own list; where that cannot be read, the inventory's hosts.
fn voters(desired: &Desired, disk: &DiskFact) -> Vec<(Option<u64>, PeerUrl)> {
    match &disk.members {
        Some(members) => {
            members.iter().filter(|(.., learner)| !learner).map(|(id, _, peer, _)| (Some(*id), peer.clone())).collect()
        }
        None => desired.with(Role::Etcd).map(|h| (None, h.peer_url())).collect(),
    }
}

/// Voters whose hosts do not answer. One that the inventory does not name is not asked, so it may live; it goes by its URL's host.
fn dark(desired: &Desired, facts: &Facts, voters: &[(Option<u64>, PeerUrl)]) -> Vec<String> {
    let of = |(_, peer): &(Option<u64>, PeerUrl)| match desired.with(Role::Etcd).find(|h| &h.peer_url() == peer) {
        Some(host) => facts.host(&host.name).is_none().then(|| host.name.to_string()),
        None => Some(peer.as_str().trim_start_matches("https://").trim_end_matches(":2380").to_owned()),
    };
    let mut dark: Vec<String> = voters.iter().filter_map(of).collect();
    dark.sort();
    dark
}

/// Whether a host can be a member at once: it was one, or has all that one needs.
fn fit(d: &Draft, host: &Host) -> bool {
    let has_data = d.host_facts(&host.name).and_then(|f| f.etcd.as_ref()).is_some_and(|e| e.data);
    let parts = d.host_target(&host.name).parts.iter().filter(|p| TOOLS.contains(&p.name.as_str()));
    has_data || parts.map(|p| Mark::Delivered(host.name.clone(), p.digest)).all(|mark| d.holds(&mark))
}

/// What a host needs to be restored to.
const TOOLS: [&str; 2] = ["etcd", "etcdutl"];

/// The highest revision that is known to have been given out.
fn highest(facts: &Facts) -> i64 {
    let etcd = facts.hosts.values().filter_map(|f| f.as_ref().ok()?.etcd.as_ref());
    let known = etcd
        .flat_map(|e| [e.high_water, e.disk.as_ref().and_then(|d| d.revision), e.view.as_ref().map(|v| v.revision)]);
    known.flatten().max().unwrap_or(0)
}

/// The steps from the source's data to a cluster that answers. What else is to do is for `up`.
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
    let mut halted = Vec::new();
    for host in d.reachable().into_iter().filter(|h| h.is(Role::ControlPlane) || h.is(Role::Etcd)) {
        let mark = Mark::Halted(host.name.clone());
        let why = "nobody may read or write what is about to be replaced";
        d.must(Action::Halt { host: host.name }, why, vec![], mark.clone(), Guard::None);
        halted.push(mark);
    }
    let snapshot = Mark::Taken(recovery.id.clone());
    if !taken {
        let action = Action::TakeSnapshot {
            host: recovery.source.clone(),
            recovery: recovery.id.clone(),
            reach: recovery.reach,
        };
        let (term, index) = recovery.reach;
        d.must(
            action,
            format!("its log goes up to term {term}, entry {index}"),
            halted.clone(),
            snapshot.clone(),
            Guard::None,
        );
    }
    let members: Vec<Host> = d
        .reachable_with(Role::Etcd)
        .into_iter()
        .filter(|h| recovery.members.iter().any(|(name, _)| name == &h.name))
        .collect();
    let mut restores = Vec::new();
    let mut starts = Vec::new();
    for host in &members {
        prepare::stamp(&mut d, host);
        prepare::prepare(&mut d, host);
        prepare::deliver_tools(&mut d, host, &TOOLS);
        configure::trust(&mut d, host);
        configure::write(&mut d, &host.name, FileSet::Etcd, vec![]);
        let restored = Mark::Restored(host.name.clone());
        let done = d
            .host_facts(&host.name)
            .and_then(|f| f.etcd.as_ref())
            .is_some_and(|e| e.data && e.born.is_none() && e.token.as_ref() == Some(&recovery.id));
        let mut ready = ready_to_start(&d, &host.name);
        let parts = d.host_target(&host.name).parts.iter().filter(|p| TOOLS.contains(&p.name.as_str()));
        ready.extend(parts.map(|p| Mark::Delivered(host.name.clone(), p.digest)));
        ready.push(Mark::Halted(host.name.clone()));
        if !done {
            let action = Action::Restore { host: host.name.clone(), recovery: recovery.clone() };
            let mut needs = ready.clone();
            needs.extend(halted.iter().cloned());
            needs.extend((!taken).then(|| snapshot.clone()));
            d.must(action, "its old data is moved aside, not deleted", needs, restored.clone(), Guard::None);
            restores.push(restored);
        }
        starts.push((host.name.clone(), ready));
    }
    // All at once, when all have the same data.
    let mut started = Vec::new();
    for (host, mut needs) in starts {
        needs.extend(restores.iter().cloned());
        let mark = Mark::Started(host.clone());
        let action = Action::StartMember { host, birth: Birth::Again };
        d.must(action, "its data is restored", needs, mark.clone(), Guard::None);
        started.push(mark);
    }
    d.must(Action::ProveQuorum, "the API needs a quorum", started, Mark::Quorum, Guard::None);
    for host in &members {
        let action = Action::Seal { host: host.name.clone() };
        let why = "a later start must never found a second cluster";
        d.must(action, why, vec![Mark::Quorum], Mark::Sealed(host.name.clone()), Guard::None);
    }
    d.stop_at("API servers, Nodes and missing members follow once etcd answers".to_owned());
    Ok(d.finish())
}
