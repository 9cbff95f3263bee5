//! etcd: founding a cluster, healing one, or refusing to guess.

use super::draft::Draft;
use super::holds::etcd_unit;
use crate::model::desired::{Host, Role};
use crate::model::facts::{Etcd, Evidence, Members};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::{Action, Birth, Guard, HowToRun, Mark};
use crate::model::refusal::Refusal;
use crate::model::target::FileSet;

/// What an etcd host needs before its member can start.
fn ready_to_start(d: &Draft, host: &HostName) -> Vec<Mark> {
    let mut needs = vec![
        Mark::Stamped(host.clone()),
        Mark::Prepared(host.clone()),
        Mark::Configured(host.clone(), FileSet::Trust),
        Mark::Configured(host.clone(), FileSet::Etcd),
        Mark::Certified(host.clone()),
    ];
    let parts = d.host_target(host).parts.iter().filter(|p| p.name == "etcd");
    needs.extend(parts.map(|p| Mark::Delivered(host.clone(), p.digest)));
    needs
}

/// Brings etcd to what the inventory asks for, as far as the facts allow.
pub(super) fn converge(d: &mut Draft) -> Result<(), Refusal> {
    let hosts = d.reachable_with(Role::Etcd);
    for host in &hosts {
        super::configure::write(d, &host.name, FileSet::Etcd, vec![]);
    }
    match &d.facts.etcd {
        Etcd::NeverBorn if d.intent.born => {
            let lost = |h: &Host| Evidence {
                host: h.name.clone(),
                what: "its disk is empty, although this cluster was born; is a volume not mounted?".to_owned(),
                has_data: false,
                reachable: d.host_facts(&h.name).is_some(),
            };
            Err(Refusal::NoQuorum { evidence: d.desired.with(Role::Etcd).map(lost).collect() })
        }
        Etcd::NeverBorn => {
            let silent: Vec<HostName> = d
                .desired
                .with(Role::Etcd)
                .filter(|h| d.host_facts(&h.name).is_none())
                .map(|h| h.name.clone())
                .collect();
            if !silent.is_empty() {
                return Err(Refusal::CannotTell { silent });
            }
            found(d, &hosts, &d.intent.genesis_token.clone());
            Ok(())
        }
        Etcd::Founding { token } => {
            found(d, &hosts, &token.clone());
            Ok(())
        }
        Etcd::Speaks(members) => heal(d, &hosts, &members.clone()),
        Etcd::Silent(evidence) => wake(d, &hosts, evidence),
    }
}

/// All founders start together, with one list and one token; then quorum is proven and every disk is sealed.
fn found(d: &mut Draft, hosts: &[Host], token: &str) {
    let founders: Vec<(HostName, PeerUrl)> =
        d.desired.with(Role::Etcd).map(|h| (h.name.clone(), h.peer_url())).collect();
    let mut started = Vec::new();
    for host in hosts {
        let mark = Mark::Started(host.name.clone());
        let birth = Birth::Genesis { token: token.to_owned(), founders: founders.clone() };
        let needs = ready_to_start(d, &host.name);
        d.ensure(
            Action::StartMember { host: host.name.clone(), birth },
            "no cluster was ever born here",
            needs,
            mark.clone(),
        );
        started.push(mark);
    }
    d.must(Action::ProveQuorum, "the API needs a quorum", started, Mark::Quorum, Guard::None);
    for host in hosts {
        seal(d, &host.name, Mark::Quorum);
    }
}

fn seal(d: &mut Draft, host: &HostName, after: Mark) {
    let action = Action::Seal { host: host.clone() };
    d.ensure(action, "a later start must never found a second cluster", vec![after], Mark::Sealed(host.clone()));
}

/// A quorum speaks: dead members out first, then learners in, one at a time.
fn heal(d: &mut Draft, hosts: &[Host], members: &Members) -> Result<(), Refusal> {
    let mut list = members.clone();
    let mut last: Option<Mark> = None;
    for peer in members.0.keys() {
        let wanted = d.desired.with(Role::Etcd).any(|h| &h.peer_url() == peer);
        if wanted {
            continue;
        }
        let name = members.0.get(peer).map(|m| m.name.clone()).unwrap_or_default();
        if d.intent.prune.iter().any(|p| p.as_str() == name) {
            change(d, &mut list, &mut last, peer, Change::Remove, "it was named with --prune".to_owned(), vec![])?;
        } else {
            d.warn(format!(
                "etcd member {} at {peer} is not in the inventory; it stays until `hactl up --prune {name}`",
                if name.is_empty() { "(never started)" } else { &name }
            ));
        }
    }
    for host in hosts {
        let name = &host.name;
        let peer = host.peer_url();
        let fact = d.host_facts(name).and_then(|f| f.etcd.clone()).unwrap_or_default();
        let active = d.look().is_active(name, &etcd_unit()) && fact.view.is_some();
        match members.0.get(&peer) {
            Some(member) if fact.data => {
                if !active {
                    let action = Action::StartMember { host: name.clone(), birth: Birth::Again };
                    let needs = ready_to_start(d, name);
                    d.must(action, "it is a member and does not run", needs, Mark::Started(name.clone()), Guard::None);
                    if !member.learner {
                        let healthy = with_health(&list, &peer);
                        d.forecast(healthy.clone());
                        list = healthy;
                    }
                }
                let running = Mark::Started(name.clone());
                if member.learner {
                    let why = "it is a learner still".to_owned();
                    change(d, &mut list, &mut last, &peer, Change::Promote, why, vec![running.clone()])?;
                } else if active {
                    restart(d, name);
                }
                seal(d, name, running);
            }
            Some(member) => {
                let joining = member.learner && member.name.is_empty();
                if !joining {
                    let why = format!("its disk on {name} is empty, so this member is dead");
                    change(d, &mut list, &mut last, &peer, Change::Remove, why, vec![])?;
                    let why = format!("{name} is to be a member");
                    change(d, &mut list, &mut last, &peer, Change::Learn, why, vec![])?;
                }
                join(d, &mut list, &mut last, host)?;
            }
            None => {
                let mut needs = Vec::new();
                if fact.data {
                    let cleared = Mark::Cleared(name.clone());
                    let action = Action::MoveAside { host: name.clone() };
                    let why = "its data is of a member that is not in the list any more";
                    d.must(action, why, vec![Mark::Stamped(name.clone())], cleared.clone(), Guard::None);
                    needs.push(cleared);
                }
                let why = format!("{name} is to be a member");
                change(d, &mut list, &mut last, &peer, Change::Learn, why, needs)?;
                join(d, &mut list, &mut last, host)?;
            }
        }
    }
    Ok(())
}

fn with_health(list: &Members, peer: &PeerUrl) -> Members {
    let mut next = list.clone();
    if let Some(member) = next.0.get_mut(peer) {
        member.healthy = true;
    }
    next
}

/// A member that runs by older files is restarted, when the others can carry the cluster meanwhile.
fn restart(d: &mut Draft, host: &HostName) {
    let Some(set) = d.host_target(host).sets.get(&FileSet::Etcd) else { return };
    let Some(unit) = set.unit.clone() else { return };
    if d.look().runs(host, set) && !d.plans(&Mark::Configured(host.clone(), FileSet::Etcd)) {
        return;
    }
    let running = Mark::Running(host.clone(), unit.clone());
    let mut needs = ready_to_start(d, host);
    d.take_turn(&mut needs, running.clone());
    let action = Action::RunUnit { host: host.clone(), unit, how: HowToRun::Restart };
    d.must(action, "it runs by older files", needs, running, Guard::Tolerates { down: host.clone() });
}

enum Change {
    Remove,
    Learn,
    Promote,
}

/// One change of the list, chained behind the one before: quorum after each needs a total order.
fn change(
    d: &mut Draft,
    list: &mut Members,
    last: &mut Option<Mark>,
    peer: &PeerUrl,
    what: Change,
    why: String,
    mut needs: Vec<Mark>,
) -> Result<(), Refusal> {
    needs.extend(last.clone());
    let guard = Guard::Members { list: list.shape() };
    let (next, action, gives) = match what {
        Change::Remove => (list.without(peer), Action::RemoveMember { peer: peer.clone() }, Mark::Gone(peer.clone())),
        Change::Learn => {
            (list.with_learner(peer), Action::AddLearner { peer: peer.clone() }, Mark::Listed(peer.clone()))
        }
        Change::Promote => (list.with_voter(peer), Action::Promote { peer: peer.clone() }, Mark::Voter(peer.clone())),
    };
    if next.healthy() < next.quorum() {
        return Err(Refusal::WouldLoseQuorum {
            what: action.to_string(),
            healthy: next.healthy(),
            voters: next.voters(),
            quorum: next.quorum(),
        });
    }
    d.forecast(next.clone());
    d.must(action, why, needs, gives.clone(), guard);
    *list = next;
    *last = Some(gives);
    Ok(())
}

/// The learner starts on an empty disk, catches up, votes, and is sealed.
fn join(d: &mut Draft, list: &mut Members, last: &mut Option<Mark>, host: &Host) -> Result<(), Refusal> {
    let peer = host.peer_url();
    let members = list
        .0
        .iter()
        .map(|(url, member)| {
            let known = d.desired.with(Role::Etcd).find(|h| &h.peer_url() == url).map(|h| h.name.to_string());
            (known.unwrap_or_else(|| member.name.clone()), url.clone())
        })
        .collect();
    let mut needs = ready_to_start(d, &host.name);
    needs.extend(last.clone());
    let started = Mark::Started(host.name.clone());
    let action = Action::StartMember { host: host.name.clone(), birth: Birth::Join { members } };
    d.must(action, "it joins as a learner", needs, started.clone(), Guard::Members { list: list.shape() });
    change(d, list, last, &peer, Change::Promote, "a learner does not vote".to_owned(), vec![started])?;
    seal(d, &host.name, Mark::Voter(peer));
    Ok(())
}

/// Nobody speaks. Members that lie still with their data may be started, which harms nothing; anything else is for
/// `hactl recover`.
fn wake(d: &mut Draft, hosts: &[Host], evidence: &[Evidence]) -> Result<(), Refusal> {
    let mut woken = Vec::new();
    for host in hosts {
        let fact = d.host_facts(&host.name).and_then(|f| f.etcd.clone()).unwrap_or_default();
        let unit = d.host_facts(&host.name).and_then(|f| f.units.get(&etcd_unit()));
        let still = unit.is_none_or(|u| !matches!(u.active.as_str(), "active" | "activating"));
        if fact.data && fact.token.is_none() && still {
            woken.push(host.name.clone());
        }
    }
    let data = hosts.iter().filter(|h| d.host_facts(&h.name).and_then(|f| f.etcd.as_ref()).is_some_and(|e| e.data));
    let majority = d.desired.with(Role::Etcd).count() / 2 + 1;
    if woken.is_empty() || data.count() < majority {
        return Err(Refusal::NoQuorum { evidence: evidence.to_vec() });
    }
    let mut started = Vec::new();
    for host in woken {
        let mark = Mark::Started(host.clone());
        let needs = ready_to_start(d, &host);
        let action = Action::StartMember { host, birth: Birth::Again };
        d.must(action, "it holds data and does not run", needs, mark.clone(), Guard::None);
        started.push(mark);
    }
    d.must(Action::ProveQuorum, "nobody answers yet", started, Mark::Quorum, Guard::None);
    d.stop_at("what else is to do shows once a quorum answers".to_owned());
    Ok(())
}
