//! Reconciles the members of an etcd cluster with a quorum: removes lost members, starts stopped ones, adds learners
//! one at a time, and restarts members with older files while the others keep quorum.
//!
//! Every change of the member list follows the previous one and has the list it assumes as its precondition: quorum
//! after each change needs a total order. Restarts follow the last change.

use super::conditions::Observed;
use super::draft::Draft;
use super::etcd::{etcd_fact, ready_to_start, seal};
use super::move_member::{Moved, move_member, moved};
use super::steps::Steps;
use super::versions;
use crate::model::desired::{Host, Role};
use crate::model::facts::{DiskFact, EtcdFact, EtcdView, Members};
use crate::model::names::PeerUrl;
use crate::model::plan::{Action, Condition, HowToRun, InitialClusterState, Precondition, STAND_IN};
use crate::model::ports::reconnect;
use crate::model::positions::{self, Unfit};
use crate::model::refusal::Refusal;
use crate::model::target::FileSet;
use crate::model::units::{etcd_balancer_unit, etcd_unit};

/// The steps of this subject, the member list as it will be after them, and the last change of it.
#[derive(Default)]
pub(super) struct Chain {
    pub steps: Steps,
    pub list: Members,
    pub last: Option<Condition>,
    /// Members that count as healthy only once these conditions hold.
    pub woken: Vec<Condition>,
}

impl Chain {
    /// Whether the list tolerates the loss of one more member, without counting members that are yet to start.
    fn spares_one(&self) -> bool {
        self.list.connected(None).saturating_sub(self.woken.len()) > self.list.quorum()
    }
}

/// The state of an etcd host of the inventory in relation to the member list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// Nothing is known about etcd on it.
    Unknown,
    /// Listed, with data, and running.
    Runs,
    /// Listed, with data, and stopped.
    Still,
    /// Listed, but its disk is empty, damaged or of another member; or its member is to be replaced.
    Dead,
    /// Listed as a learner that was never started.
    Expected,
    /// Not listed.
    Absent,
}

/// etcd has a quorum: lost members are removed first, then learners are added, one at a time.
pub(super) fn reconcile_members(d: &Draft, hosts: &[Host], members: &Members) -> Result<Steps, Refusal> {
    one_cluster(d, hosts, members)?;
    let mut chain = Chain { list: members.clone(), ..Chain::default() };
    if !d.intent.bootstrapped {
        let why = "the journal does not record yet that this cluster was bootstrapped";
        chain.steps.must(Action::ProveQuorum, why, vec![]);
    }
    let followed = move_member(d, &mut chain, hosts, members)?;
    let others = hosts.iter().filter(|h| !followed.contains(&h.name));
    let stands: Vec<(&Host, Stand)> = others.map(|h| (h, stand(d, h, members))).collect();
    let listed = chain.list.clone();
    prune(d, &mut chain, &listed)?;
    for (host, stand) in &stands {
        let peer = host.peer_url();
        match stand {
            Stand::Unknown => {
                let text = format!("{} reports nothing about etcd: nothing is planned for its member", host.name);
                chain.steps.warnings.push(text);
            }
            // A voter that still serves is replaced in its turn below, once the others are healthy again.
            // Left as it is, but counted: quorum is calculated over all members, including those outside --limit.
            _ if !d.may_change(&host.name) => {}
            Stand::Dead if !chain.list.0.get(&peer).is_some_and(|m| m.healthy && !m.learner) => {
                let why = dead_because(d, host);
                change(&mut chain, &peer, Change::Remove, why, vec![])?;
            }
            Stand::Still => start_again(d, &mut chain, host),
            Stand::Dead | Stand::Runs | Stand::Expected | Stand::Absent => {}
        }
    }
    let waits = |(h, s): &&(&Host, Stand)| matches!(s, Stand::Dead | Stand::Absent) && d.may_change(&h.name);
    let mut joining: Vec<&Host> = stands.iter().filter(waits).map(|(h, _)| *h).collect();
    // A new member copies the leader's data: a leader that is to be replaced goes first.
    joining.sort_by_key(|h| !leads(d, h));
    if finish_learners(d, &mut chain, &stands, !joining.is_empty())? {
        for host in joining {
            join(d, &mut chain, host)?;
        }
    }
    for (host, stand) in &stands {
        let sealed = d.holds(&Condition::Sealed(host.name.clone()));
        if !sealed && matches!(stand, Stand::Runs | Stand::Still) && d.may_change(&host.name) {
            let started = awake(d, &mut chain, host);
            chain.steps.add(seal(d, &host.name, started));
        }
    }
    restarts(d, &mut chain, &stands);
    Ok(chain.steps)
}

/// All members with a quorum must be of one cluster, and no host may be a member at another address than the
/// inventory's: in both cases hactl would move live data aside.
fn one_cluster(d: &Draft, hosts: &[Host], members: &Members) -> Result<(), Refusal> {
    let mut problems = Vec::new();
    let views = || hosts.iter().filter_map(|h| etcd_fact(d, &h.name)?.view.as_ref().map(|v| (&h.name, v)));
    let mut speaking = views().filter(|(_, v)| v.linearizable);
    if let Some((first, cluster)) = speaking.next().map(|(h, v)| (h, &v.cluster)) {
        for (host, view) in speaking.filter(|(_, v)| &v.cluster != cluster) {
            problems.push(format!(
                "two etcd clusters answer: {cluster} on {first}, {} on {host}; stop etcd on the hosts of the older one",
                view.cluster
            ));
        }
    }
    for host in hosts {
        let Some(fact) = etcd_fact(d, &host.name).filter(|e| e.data) else { continue };
        if members.0.contains_key(&host.peer_url()) {
            continue;
        }
        let read = fact.disk.as_ref().filter(|disk| Some(&disk.cluster) == d.facts.living_cluster());
        let ids = [fact.view.as_ref().map(|v| v.member), read.map(|disk| disk.member)];
        let own = |(_, m): &(&PeerUrl, &crate::model::facts::Member)| {
            ids.contains(&Some(m.id)) || m.name == host.name.as_str()
        };
        if matches!(moved(d, host, members), Some(Moved::From(_))) {
            continue;
        }
        if let Some((peer, member)) = members.0.iter().find(own).filter(|(_, m)| m.name != host.name.as_str()) {
            problems.push(format!(
                "{}: its disk holds the data of member {} at {peer}; if that host is lost for good, `hactl up --prune \
                 {}` continues with this disk; otherwise bring it back and clear this one",
                host.name, member.name, member.name
            ));
        } else if let Some((peer, _)) = members.0.iter().find(own) {
            problems.push(format!(
                "{}: its etcd member has the peer URL {peer}, but the inventory says {}; give the host its previous \
                 address, or run `hactl up --prune {}` while the other members have a quorum",
                host.name,
                host.peer_url(),
                host.name
            ));
        }
    }
    for (host, other) in positions::swapped(d.desired, d.facts) {
        problems.push(Unfit::Swapped(other).on(&host.name));
    }
    // A member that may be removed does not contradict the inventory.
    problems.retain(|p| !d.intent.prune.iter().any(|n| p.starts_with(&format!("{n}: "))));
    if problems.is_empty() { Ok(()) } else { Err(Refusal::Preflight { problems }) }
}

fn stand(d: &Draft, host: &Host, members: &Members) -> Stand {
    let Some(fact) = etcd_fact(d, &host.name) else { return Stand::Unknown };
    let Some(member) = members.0.get(&host.peer_url()) else { return Stand::Absent };
    if d.intent.replace.get(&host.name) == Some(&member.id) || unfit(d, host).is_some() {
        return Stand::Dead;
    }
    let unstarted = member.learner && member.name.is_empty();
    let unit = d.facts.host(&host.name).and_then(|f| f.units.get(&etcd_unit()));
    let process = unit.is_some_and(|u| u.started_ms > 0 && u.runs_or_starts());
    let ours = d.facts.living_cluster();
    // The bootstrapped marker may be missing, or the log unreadable; either one is enough.
    let mut of = fact.bootstrapped.iter().chain(fact.disk.as_ref().map(|disk| &disk.cluster));
    let foreign = ours.is_some_and(|ours| of.any(|cluster| cluster != ours)) && fact.view.is_none();
    match (fact.data, process) {
        (false, _) if unstarted => Stand::Expected,
        (false, _) => Stand::Dead,
        (true, _) if foreign => Stand::Dead,
        // A learner that never published its name cannot have written this data, unless it is just starting.
        (true, false) if unstarted => Stand::Dead,
        // Also a member that ends after each start, while its process runs. A process that has the database open may be
        // writing.
        (true, _) if damaged(fact) && fact.closed => Stand::Dead,
        (true, true) => Stand::Runs,
        (true, false) => Stand::Still,
    }
}

/// Why the data on a host must not be used, if there is a reason.
pub(super) fn unfit(d: &Draft, host: &Host) -> Option<Unfit> {
    positions::unfit(d.desired, d.facts, host)
}

/// Whether a stopped member could not start: its log or its database cannot be read to the end. The other members have
/// its data.
fn damaged(fact: &EtcdFact) -> bool {
    fact.data && fact.view.is_none() && !fact.disk.as_ref().is_some_and(DiskFact::is_usable)
}

/// Why a member is removed, in words.
fn dead_because(d: &Draft, host: &Host) -> String {
    let fact = etcd_fact(d, &host.name);
    if d.intent.replace.contains_key(&host.name) {
        return format!("the keys on {} differ from those of the other members", host.name);
    }
    if let Some(unfit) = unfit(d, host) {
        return unfit.on(&host.name);
    }
    match fact.filter(|fact| damaged(fact)) {
        Some(fact) => {
            let flaws = fact.disk.iter().flat_map(|disk| disk.flaws.iter()).chain(&fact.trouble);
            let said = flaws.map(String::as_str).collect::<Vec<_>>().join("; ");
            format!("its data on {} is damaged: {said}", host.name)
        }
        None => format!("the disk of {} does not hold this member's data", host.name),
    }
}

/// Members that the inventory no longer names: they are removed only when named with `--prune`.
fn prune(d: &Draft, chain: &mut Chain, members: &Members) -> Result<(), Refusal> {
    for (peer, member) in &members.0 {
        if d.desired.with(Role::Etcd).any(|h| &h.peer_url() == peer) {
            continue;
        }
        // A serving member whose host is removed in its turn goes last: new members are added first.
        if member.healthy && !member.learner && super::remove_hosts::carries(d, peer) {
            continue;
        }
        if let Some(host) = super::remove_roles::carries(d, peer) {
            // A serving member goes last here, too; a host outside --limit keeps its member.
            if d.may_change(&host) && (!member.healthy || member.learner) {
                change(
                    chain,
                    peer,
                    Change::Remove,
                    format!("{host} no longer has the role etcd, and its member does not serve"),
                    vec![],
                )?;
            }
            continue;
        }
        if d.intent.prune.iter().any(|p| p.as_str() == member.name) {
            let host = d.desired.hosts.iter().find(|host| &host.peer_url() == peer);
            let gone = host.map(|host| format!("{} is gone", host.name));
            change(chain, peer, Change::Remove, gone.unwrap_or("it was named with --prune".to_owned()), vec![])?;
        } else if member.learner && member.name.is_empty() {
            change(
                chain,
                peer,
                Change::Remove,
                "it never started, has no vote, and is not in the inventory".to_owned(),
                vec![],
            )?;
        } else {
            chain.steps.warnings.push(format!(
                "etcd member {} at {peer} is not in the inventory; it stays until `hactl up --prune {}`",
                member.name, member.name
            ));
        }
    }
    Ok(())
}

fn start_again(d: &Draft, chain: &mut Chain, host: &Host) {
    let started = Condition::Started(host.name.clone());
    if let Some(member) = chain.list.0.get_mut(&host.peer_url()).filter(|m| !m.learner) {
        member.healthy = true;
        chain.woken.push(started);
    }
    chain.steps.members = Some(chain.list.clone());
    from_its_data(d, &mut chain.steps, host, "it is a member and is stopped");
}

fn from_its_data(o: &Observed, steps: &mut Steps, host: &Host, why: &str) {
    let requires = ready_to_start(o, &host.name);
    let action = Action::StartMember { host: host.name.clone(), state: InitialClusterState::Restart };
    steps.must(action, why, requires);
}

/// The condition that a member with data was started. If systemd is still starting it, as after an interrupted run, it
/// is started again to wait for it: the steps that follow would otherwise have to wait for the next run.
fn awake(o: &Observed, chain: &mut Chain, host: &Host) -> Condition {
    let started = Condition::Started(host.name.clone());
    if !o.holds(&started) && !chain.steps.plans(&started) {
        from_its_data(o, &mut chain.steps, host, "it is still starting");
    }
    started
}

/// Promotes the current learner. Returns whether another learner may follow: one that cannot be promoted blocks the
/// next, and is removed if another host waits, because it has no vote to lose.
fn finish_learners(
    d: &Draft,
    chain: &mut Chain,
    stands: &[(&Host, Stand)],
    others_wait: bool,
) -> Result<bool, Refusal> {
    let learners: Vec<PeerUrl> = chain.list.0.iter().filter(|(_, m)| m.learner).map(|(p, _)| p.clone()).collect();
    let mut free = true;
    for peer in learners {
        let stand = stands.iter().find(|(h, _)| h.peer_url() == peer);
        if let Some((host, _)) = stand.filter(|(h, _)| !d.may_change(&h.name)) {
            if others_wait {
                let text =
                    format!("no host can become a member while {} is a learner that was not promoted", host.name);
                chain.steps.warnings.push(text);
                free = false;
            }
            continue;
        }
        match stand {
            Some((host, Stand::Expected)) => start_learner(d, chain, host)?,
            Some((host, Stand::Runs | Stand::Still)) => {
                let why = "it is still a learner".to_owned();
                let started = awake(d, chain, host);
                change(chain, &peer, Change::Promote, why, vec![started])?;
            }
            Some((_, Stand::Dead)) => {}
            Some((_, Stand::Unknown | Stand::Absent)) | None => {
                let wanted = d.desired.with(Role::Etcd).any(|h| h.peer_url() == peer);
                if others_wait {
                    // A learner has no vote to lose; only a voter has to be named with --prune.
                    let what = if wanted { "does not answer" } else { "is not in the inventory" };
                    let why = format!("this learner {what}, and another host is to become a member");
                    change(chain, &peer, Change::Remove, why, vec![])?;
                }
            }
        }
    }
    Ok(free)
}

/// Makes a host a member: data of an older member is moved aside, then etcd starts as a learner on an empty disk.
fn join(d: &Draft, chain: &mut Chain, host: &Host) -> Result<(), Refusal> {
    let peer = host.peer_url();
    if chain.list.0.contains_key(&peer) {
        let why = dead_because(d, host);
        let mut requires: Vec<Condition> = chain.last.iter().cloned().collect();
        if leads(d, host) {
            hand_over(d, chain, host, &mut requires);
        }
        change(chain, &peer, Change::Remove, why, requires)?;
    }
    // Added only once it can start immediately: a learner that does not start blocks all other changes.
    let mut requires = ready_to_start(d, &host.name);
    if etcd_fact(d, &host.name).is_some_and(|e| e.data) {
        let mut first = vec![Condition::ClusterIdWritten(host.name.clone())];
        first.extend(chain.last.clone());
        let precondition = Precondition::Members { list: chain.list.shape() };
        let action = Action::ArchiveData { host: host.name.clone() };
        let why =
            unfit(d, host).map_or("its data belongs to no current member".to_owned(), |unfit| unfit.on(&host.name));
        requires.push(chain.steps.must(action, why, first).guarded(precondition).provides());
    }
    change(chain, &peer, Change::Learn, format!("{} is to become a member", host.name), requires)?;
    start_learner(d, chain, host)
}

/// The learner starts on an empty disk, catches up, is promoted, and is marked as bootstrapped.
fn start_learner(d: &Draft, chain: &mut Chain, host: &Host) -> Result<(), Refusal> {
    let peer = host.peer_url();
    let mut requires = ready_to_start(d, &host.name);
    requires.extend(chain.last.clone());
    let members = initial_cluster(d, &chain.list);
    let action = Action::StartMember { host: host.name.clone(), state: InitialClusterState::Existing { members } };
    let precondition = Precondition::Members { list: chain.list.shape() };
    let started = chain.steps.must(action, "new members join as learners", requires).guarded(precondition).provides();
    change(chain, &peer, Change::Promote, "a learner has no vote".to_owned(), vec![started])?;
    // Also if the disk is marked: the mark is that of the member whose data is gone.
    let action = Action::Seal { host: host.name.clone() };
    chain.steps.must(action, "a later start must not bootstrap a second cluster", vec![Condition::Voter(peer)]);
    Ok(())
}

/// Name and peer URL of every member. etcd treats a repeated name as one member and refuses an empty one.
fn initial_cluster(d: &Draft, list: &Members) -> Vec<(String, PeerUrl)> {
    let known = |url: &PeerUrl| d.desired.with(Role::Etcd).find(|h| &h.peer_url() == url).map(|h| h.name.to_string());
    let taken: Vec<String> = list.0.keys().filter_map(known).collect();
    let other = |(at, (url, member)): (usize, (&PeerUrl, &crate::model::facts::Member))| {
        let name = known(url).unwrap_or_else(|| {
            let free = !member.name.is_empty() && !taken.contains(&member.name);
            if free { member.name.clone() } else { format!("{STAND_IN}{at}") }
        });
        (name, url.clone())
    };
    list.0.iter().enumerate().map(other).collect()
}

/// Members with older files, or that run without answering, are restarted one after the other, the leader last. So are
/// members whose database is to be defragmented.
fn restarts(d: &Draft, chain: &mut Chain, stands: &[(&Host, Stand)]) {
    let mut due = Vec::new();
    for (host, stand) in stands {
        let voter = chain.list.0.get(&host.peer_url()).is_some_and(|m| !m.learner);
        if *stand != Stand::Runs || !voter || !d.may_change(&host.name) {
            continue;
        }
        let Some(set) = d.host_target(&host.name).sets.get(&FileSet::Etcd) else { continue };
        let older = d.plans(&Condition::Configured(host.name.clone(), FileSet::Etcd)) || d.outdated(&host.name, set);
        let active = d.is_active(&host.name, &etcd_unit());
        let view = etcd_fact(d, &host.name).and_then(|e| e.view.as_ref());
        let deaf = active && view.is_none() && !d.plans(&Condition::Certified(host.name.clone()));
        let believed = d.facts.host(&host.name).is_some_and(|facts| facts.doubts.is_empty());
        if deaf && etcd_fact(d, &host.name).is_some_and(|etcd| etcd.slow) {
            chain.steps.warnings.push(format!(
                "etcd on {} is slow: it answers its own health check, but nothing else within seconds; it is left as \
                 it is",
                host.name
            ));
        }
        let deaf = deaf && believed && !etcd_fact(d, &host.name).is_some_and(|etcd| etcd.slow);
        let leads = view.is_some_and(EtcdView::leads);
        let loose = view.filter(|v| v.is_loose());
        // A member publishes its name and client URLs at each start; here another member, started from a copy of its
        // data, did that.
        let listed = chain.list.0.get(&host.peer_url()).filter(|m| view.is_some_and(|v| v.member == m.id));
        let misnamed = listed.filter(|m| !m.name.is_empty() && m.name != host.name.as_str());
        if older || deaf || misnamed.is_some() {
            let why = match versions::member_changes(d, host).filter(|_| older) {
                Some((runs, wanted)) => format!("etcd changes from {runs} to {wanted}"),
                None if older => "it runs with older files".to_owned(),
                None if deaf => "it runs but does not answer".to_owned(),
                None => format!("the member list names it {}", misnamed.map_or("", |m| m.name.as_str())),
            };
            due.push((leads, *host, why, false));
        } else if let Some(view) = loose {
            let megabytes = |bytes: i64| bytes >> 20;
            let why = format!(
                "{} of the {} MiB of its database are free pages",
                megabytes(view.db_bytes - view.in_use_bytes),
                megabytes(view.db_bytes)
            );
            due.push((leads, *host, why, true));
        }
    }
    due.sort_by_key(|(leads, ..)| *leads);
    let mut turn = d.turn.clone();
    for (leads, host, why, loose) in due {
        let healthy = chain.list.0.get(&host.peer_url()).is_some_and(|m| m.healthy);
        // Restarting a member that does not answer costs no quorum, unless too few others are known to answer.
        let (list, quorum) = (&chain.list, chain.list.quorum());
        let costs = list.healthy() < quorum || healthy && list.connected(Some(&host.peer_url())) < quorum;
        if list.voters() > 1 && costs {
            let until = match list.apart_by_name(Some(&host.peer_url())).as_slice() {
                [] => "another member is healthy".to_owned(),
                [(one, other), ..] => format!("{one} and {other} have a peer connection: {}", reconnect(one, other)),
            };
            chain
                .steps
                .warnings
                .push(format!("etcd on {} has to be restarted ({why}); the restart waits until {until}", host.name));
            continue;
        }
        let mut requires = ready_to_start(d, &host.name);
        requires.extend(balancers_first(d));
        requires.extend(chain.last.clone());
        if !chain.spares_one() {
            requires.extend(chain.woken.iter().cloned());
        }
        let precondition = Precondition::Tolerates { down: host.name.clone() };
        if !loose && versions::member_changes(d, host).is_some() {
            requires.push(Condition::Saved);
        }
        let name = host.name.clone();
        let (action, by) = if loose {
            (Action::Defragment { host: name }, vec![])
        } else {
            let by = Condition::Configured(name.clone(), FileSet::Etcd);
            (Action::RunUnit { host: name, unit: etcd_unit(), how: HowToRun::Restart }, vec![by])
        };
        // Leadership is not handed over before its turn, either.
        let healed = action.provides();
        requires.extend(turn.replace(healed.clone()));
        if leads {
            hand_over(d, chain, host, &mut requires);
        }
        let noted = chain.steps.must(action, why, requires).guarded(precondition);
        noted.step.rollback = if loose { vec![] } else { vec![FileSet::Etcd] };
        noted.turn = Some((by, healed));
    }
}

/// etcd balancers that have to reload their files do so before a member is restarted: a balancer that reloads meanwhile
/// forgets which member it has taken out of service.
pub(super) fn balancers_first(d: &Draft) -> Vec<Condition> {
    let unit = etcd_balancer_unit();
    let there = d.reachable_with(Role::ControlPlane).into_iter().filter(|host| d.is_active(&host.name, &unit));
    there.map(|host| Condition::Running(host.name, unit.clone())).filter(|running| d.plans(running)).collect()
}

/// Whether the member on a host is the leader.
fn leads(d: &Draft, host: &Host) -> bool {
    etcd_fact(d, &host.name).and_then(|e| e.view.as_ref()).is_some_and(EtcdView::leads)
}

/// Transfers leadership away from the member on a host before it stops, to a healthy voter that stays.
fn hand_over(o: &Observed, chain: &mut Chain, host: &Host, requires: &mut Vec<Condition>) {
    let stays = |url: &PeerUrl| o.desired.with(Role::Etcd).any(|h| &h.peer_url() == url && h.name != host.name);
    let Some((to, _)) = chain.list.0.iter().find(|(url, m)| m.healthy && !m.learner && stays(url)) else { return };
    let action = Action::MoveLeader { host: host.name.clone(), to: to.clone() };
    let why = "it is the leader, and an election would delay writes";
    chain.steps.then(requires, action, why, Precondition::None);
}

/// Removes the serving member of a host that is removed or loses the role, if it has one: leadership is transferred
/// first.
pub(super) fn remove_member(d: &Draft, host: &Host, mut requires: Vec<Condition>) -> Result<Steps, Refusal> {
    let peer = host.peer_url();
    let Some(list) = d.members.as_ref().filter(|list| list.0.contains_key(&peer)) else { return Ok(Steps::default()) };
    let mut chain = Chain { list: list.clone(), ..Chain::default() };
    let facts = d.facts.leaver(&host.name).or_else(|| d.facts.host(&host.name));
    let view = facts.and_then(|f| f.etcd.as_ref()?.view.as_ref());
    if view.is_some_and(EtcdView::leads) {
        hand_over(d, &mut chain, host, &mut requires);
    }
    let why = match d.desired.host(&host.name) {
        Some(_) => format!("the inventory no longer gives {} the role etcd", host.name),
        None => format!("{} is removed from the cluster", host.name),
    };
    change(&mut chain, &peer, Change::Remove, why, requires)?;
    Ok(chain.steps)
}

#[derive(Clone)]
pub(super) enum Change {
    Remove,
    Move(PeerUrl),
    Learn,
    Promote,
}

/// One change of the member list, after the previous one: quorum after each change needs a total order.
pub(super) fn change(
    chain: &mut Chain,
    peer: &PeerUrl,
    what: Change,
    why: String,
    mut requires: Vec<Condition>,
) -> Result<(), Refusal> {
    requires.extend(chain.last.clone());
    let list = &chain.list;
    if matches!(what, Change::Remove | Change::Move(_))
        && list.0.get(peer).is_some_and(|m| m.healthy)
        && !chain.spares_one()
    {
        requires.extend(chain.woken.iter().cloned());
    }
    let precondition = Precondition::Members { list: list.shape() };
    let (next, action) = match what {
        Change::Remove => (list.without(peer), Action::RemoveMember { peer: peer.clone() }),
        Change::Move(to) => (list.moved(peer, &to), Action::MoveMember { from: peer.clone(), to }),
        Change::Learn => (list.with_learner(peer), Action::AddLearner { peer: peer.clone() }),
        Change::Promote => (list.with_voter(peer), Action::Promote { peer: peer.clone() }),
    };
    next.quorate(&action)?;
    chain.steps.members = Some(next.clone());
    chain.last = Some(chain.steps.must(action, why, requires).guarded(precondition).provides());
    chain.list = next;
    Ok(())
}
