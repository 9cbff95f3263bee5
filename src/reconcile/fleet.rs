//! The hosts of a run: connected, locked, and closed again.
//!
//! In: the desired state, and a `Connect`. Out: the agents of the hosts that answer, and the reason for every other
//! host. Stragglers are admitted later, so that they do not delay other hosts.

use super::Failure;
use super::apart::Apart;
use super::joining::{Arrival, Joining, Outcome};
use crate::model::desired::{Desired, Host, Role};
use crate::model::event::{Event, Sink};
use crate::model::facts::{ClusterId, Etcd, Facts, Unreachable};
use crate::model::names::{HostName, PeerUrl};
use crate::model::plan::Plan;
use crate::model::refusal::Refusal;
use crate::observe::{Stragglers, TO_CONNECT, Wait, carries, decides};
use crate::protocol::{Op, Reply};
use crate::report::words::count;
use crate::transport::{Agent, Agents, Connect, HostError, Payload};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Timeout of taking the lock on one host.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The prefix of the reason.
const NO_LOCK: &str = "could not take the lock: ";

/// The hosts of a run: connections, and the reasons for missing ones.
pub struct Fleet {
    /// The desired state.
    pub desired: Arc<Desired>,
    /// Hosts that are connected.
    pub machines: Agents,
    /// Hosts that are not, with the reason.
    pub unreachable: BTreeMap<HostName, Unreachable>,
    /// How many hosts are processed in parallel.
    pub at_once: usize,
    /// The receiver of events.
    pub sink: Arc<dyn Sink>,
    /// Cancelled by the first interrupt.
    pub stop: CancellationToken,
    /// The members of etcd without a peer connection, as this run knows already.
    pub(super) apart: Apart,
    joining: Joining,
    /// The holder of the lock, once it is taken.
    holder: Option<String>,
    /// Every host that became unreachable, and why.
    failed: Vec<(HostName, Box<HostError>)>,
}

/// On how many of etcd's hosts this run holds the lock.
#[derive(Debug, Clone, Copy)]
pub struct Locked {
    etcd: usize,
    of: usize,
}

impl Locked {
    /// Only a run with the lock on a majority of the etcd hosts may change members, so there is at most one such run.
    /// Inventories may differ, so the run also needs the lock on a majority of the voters in the member list, which was
    /// read after locking. The list changes by one member at a time, so majorities before and after a change overlap.
    ///
    /// # Errors
    /// [`Refusal::NoMajorityLock`], [`Refusal::NoVoterLock`].
    pub fn allows(self, plan: &Plan, fleet: &Fleet, facts: &Facts) -> Result<(), Refusal> {
        self.allow(plan, &Self::holds(fleet, facts), &facts.etcd)
    }

    /// Whether this run has the lock on both majorities, so that no other run has.
    ///
    /// # Errors
    /// [`Refusal::NoMajorityLock`], [`Refusal::NoVoterLock`].
    pub fn is_majority(self, fleet: &Fleet, facts: &Facts) -> Result<(), Refusal> {
        self.counted(&Self::holds(fleet, facts), &facts.etcd)
    }

    /// Whether the run has the lock on the host of a member.
    fn holds<'a>(fleet: &'a Fleet, facts: &'a Facts) -> impl Fn(&PeerUrl, u64) -> bool + 'a {
        let held: Vec<&Host> = fleet.desired.entered().filter(|host| fleet.machines.contains_key(&host.name)).collect();
        // If the host of a member has another address now, it is found by the member id that it reports.
        let named = move |peer: &PeerUrl| fleet.desired.entered().any(|host| &host.peer_url() == peer);
        let is = move |host: &Host, id: u64| {
            let etcd = facts.host(&host.name).or_else(|| facts.leaver(&host.name)).and_then(|f| f.etcd.as_ref());
            etcd.is_some_and(|e| {
                e.view.as_ref().is_some_and(|v| v.member == id) || e.disk.as_ref().is_some_and(|d| d.member == id)
            })
        };
        move |peer, id| held.iter().any(|host| &host.peer_url() == peer || !named(peer) && is(host, id))
    }

    fn allow(self, plan: &Plan, holds: &dyn Fn(&PeerUrl, u64) -> bool, etcd: &Etcd) -> Result<(), Refusal> {
        if plan.changes_members() { self.counted(holds, etcd) } else { Ok(()) }
    }

    fn counted(self, holds: &dyn Fn(&PeerUrl, u64) -> bool, etcd: &Etcd) -> Result<(), Refusal> {
        if self.etcd * 2 <= self.of {
            return Err(Refusal::NoMajorityLock { locked: self.etcd, hosts: self.of });
        }
        if let Etcd::HasQuorum(members) = etcd {
            let votes = members.0.iter().filter(|(_, member)| !member.learner);
            let locked = votes.filter(|(peer, member)| holds(peer, member.id)).count();
            if locked < members.quorum() {
                return Err(Refusal::NoVoterLock { locked, voters: members.voters() });
            }
        }
        Ok(())
    }
}

/// Who runs hactl, as others see it in a lock or a pause: `user@machine`.
pub fn person() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned());
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

impl Fleet {
    /// Connects to every host, `at_once` of them at a time, and waits for all but stragglers: see [`Fleet::admit`].
    /// Hosts that cannot be reached are kept as unreachable. On a host with etcd or the API, a host key mismatch or a
    /// revoked host key is a failure, because it may be an impostor.
    ///
    /// # Errors
    /// A changed host key.
    pub async fn open(
        desired: Arc<Desired>,
        connect: &Arc<dyn Connect>,
        at_once: usize,
        sink: Arc<dyn Sink>,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        sink.emit(Event::Phase { doing: format!("connecting to {}", count(desired.entered().count(), "host")) });
        let mut joining = Joining::new(at_once, stop.clone());
        // Hosts for which the run always waits come first.
        let (first, then): (Vec<_>, Vec<_>) = desired.entered().partition(|h| decides(h));
        first.into_iter().chain(then).for_each(|host| joining.connect(host, connect));
        let mut fleet = Self {
            desired,
            machines: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            at_once: at_once.max(1),
            sink,
            stop,
            apart: Apart::default(),
            joining,
            holder: None,
            failed: Vec::new(),
        };
        fleet.admit(Wait::ForMost).await?;
        fleet.follow_votes().await;
        Ok(fleet)
    }

    /// Admits hosts whose connection was in progress. A host that takes much longer than all others counts as
    /// unreachable until a later call admits it; hosts on which the plan depends are always waited for. A changed host
    /// key, or another run's lock, stops the run on a host with etcd or the API. Any other host is left out: a run that
    /// changes it also needs the locks of the former.
    ///
    /// # Errors
    /// A changed host key, or the lock of another run, on such a host.
    pub async fn admit(&mut self, wait: Wait) -> Result<(), Failure> {
        let mut stragglers = Stragglers::start(TO_CONNECT);
        let mut failed = Vec::new();
        loop {
            let until = match wait {
                Wait::ForAll => None,
                Wait::ForNobody => Some(tokio::time::Instant::now()),
                Wait::ForMost => {
                    let needed = |host: &HostName| self.desired.host(host).is_some_and(decides);
                    let may_go = !self.machines.is_empty() && !self.joining.under_way().iter().any(needed);
                    may_go.then(|| stragglers.until())
                }
            };
            let Some(Arrival { host, took, outcome }) = self.joining.next(until).await else { break };
            match outcome {
                Outcome::Entered(machine) => {
                    stragglers.through(took);
                    match &self.holder {
                        Some(holder) => self.joining.lock(machine, holder.clone()),
                        None => self.arrived(host, machine),
                    }
                }
                Outcome::Locked(machine) => {
                    stragglers.through(took);
                    self.arrived(host, machine);
                }
                Outcome::NotEntered(error)
                    if self.may_stop(&host)
                        && matches!(error.innermost(), HostError::KeyChanged { .. } | HostError::KeyRevoked { .. }) =>
                {
                    return Err(Failure::Host { host, error });
                }
                Outcome::NotEntered(error) => failed.push((host, "", error)),
                Outcome::NotLocked(error) => failed.push((host, NO_LOCK, error)),
                Outcome::Held { by, since } if self.may_stop(&host) => {
                    return Err(Refusal::Locked { host, holder: by, since }.into());
                }
                Outcome::Held { by, since } => failed.push((host, NO_LOCK, Box::new(HostError::Locked { by, since }))),
                Outcome::Interrupted => return Err(Failure::Interrupted { done: 0, left: 0 }),
            }
        }
        failed.sort_by(|a, b| a.0.cmp(&b.0));
        for (host, what, error) in failed {
            self.mark_unreachable(host, what, error);
        }
        for host in self.joining.under_way() {
            let why = "it takes longer to connect than all others; it is added when it answers".to_owned();
            self.unreachable.insert(host.clone(), Unreachable { why, hint: None });
        }
        Ok(())
    }

    /// Whether connections are still in progress.
    pub fn expects(&self) -> bool {
        !self.joining.under_way().is_empty()
    }

    fn may_stop(&self, host: &HostName) -> bool {
        self.desired.host(host).is_some_and(carries)
    }

    /// Leaves these hosts out of the run, for these reasons: from now on they count as unreachable.
    pub fn leave_out(&mut self, hosts: BTreeMap<HostName, String>) {
        for (host, why) in hosts {
            self.sink.emit(Event::Warning { text: format!("{host} is left out: {why}") });
            self.machines.remove(&host);
            self.unreachable.insert(host, Unreachable { why, hint: None });
        }
    }

    fn arrived(&mut self, host: HostName, machine: Arc<dyn Agent>) {
        self.unreachable.remove(&host);
        self.machines.insert(host, machine);
    }

    fn mark_unreachable(&mut self, host: HostName, what: &str, error: Box<HostError>) {
        self.sink.emit(Event::Warning { text: format!("{host}: {what}{error}") });
        self.machines.remove(&host);
        self.unreachable.insert(host.clone(), error.unreachable());
        self.failed.push((host, error));
    }

    /// Requires at least one host.
    ///
    /// # Errors
    /// [`Failure::NoHost`], with the reason of each.
    pub async fn anybody(&mut self) -> Result<(), Failure> {
        if self.machines.is_empty() {
            self.admit(Wait::ForAll).await?;
        }
        if self.machines.is_empty() {
            return Err(Failure::NoHost { hosts: std::mem::take(&mut self.failed) });
        }
        Ok(())
    }

    /// Takes the run's lock on every connected host. If another run holds the lock of a host with etcd or the API, the
    /// run is refused. Any other such host, and a host that cannot be locked (for example because its disk is
    /// read-only), counts as unreachable, so that it does not block the others. Hosts that connect later are locked
    /// then.
    ///
    /// # Errors
    /// The holder of a lock; no host can be locked.
    pub async fn lock(&mut self, verb: &str) -> Result<Locked, Failure> {
        let holder = format!("{}, process {}, hactl {verb}", person(), std::process::id());
        let desired = Arc::clone(&self.desired);
        // Hosts that matter are locked one after the other in a fixed order: two runs cannot hold half of the locks
        // each.
        let mut held = Vec::new();
        for host in desired.hosts.iter().filter(|h| decides(h)) {
            let Some(machine) = self.machines.get(&host.name) else { continue };
            match super::joining::lock(&**machine, holder.clone()).await {
                Ok(Some((by, since))) if !carries(host) => {
                    self.mark_unreachable(host.name.clone(), NO_LOCK, Box::new(HostError::Locked { by, since }));
                }
                Ok(Some((by, since))) => {
                    return Err(Refusal::Locked { host: host.name.clone(), holder: by, since }.into());
                }
                Ok(None) => held.push(&host.name),
                Err(error) => self.mark_unreachable(host.name.clone(), NO_LOCK, error),
            }
        }
        // A run with one of those locks is the only run, so the other hosts need no order. Without any of them two runs
        // may refuse each other, which does no harm.
        for host in desired.hosts.iter().filter(|h| !decides(h)).chain(&desired.leaving) {
            if let Some(machine) = self.machines.remove(&host.name) {
                self.joining.lock(machine, holder.clone());
            }
        }
        self.holder = Some(holder);
        self.admit(Wait::ForMost).await?;
        self.anybody().await?;
        self.follow_votes().await;
        let etcd = self.desired.with(Role::Etcd).filter(|host| held.contains(&&host.name)).count();
        Ok(Locked { etcd, of: self.desired.with(Role::Etcd).count() })
    }

    /// The first cluster to which a host reports that it belongs.
    ///
    /// # Errors
    /// A host with etcd or the API cannot be queried.
    pub async fn cluster_id(&self) -> Result<Option<(HostName, ClusterId)>, Failure> {
        for (host, machine) in &self.machines {
            let op = Op::Observe(Box::default());
            match machine.call(op, Payload::None, LOCK_TIMEOUT, &|_| {}).await {
                Ok(Reply::Facts(facts)) => {
                    if let Some(id) = facts.cluster_id {
                        return Ok(Some((host.clone(), id)));
                    }
                }
                Ok(_) => {}
                Err(error) if self.may_stop(host) => {
                    return Err(Failure::Host { host: host.clone(), error: Box::new(error) });
                }
                // It is queried again with all others, and reported there.
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Closes all connections cleanly, which also releases the locks.
    pub async fn close(&mut self) {
        let late = self.joining.arrived();
        futures::future::join_all(self.machines.values().chain(&late).map(|m| m.close())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::sample;
    use crate::model::facts::{Member, Members};
    use crate::model::plan::{Action, Condition, Precondition, Step};

    fn members(hosts: &[&Host]) -> Etcd {
        let member = |host: &Host| Member { id: 1, name: host.name.to_string(), healthy: true, ..Member::default() };
        Etcd::HasQuorum(Members(hosts.iter().map(|host| (host.peer_url(), member(host))).collect()))
    }

    #[test]
    fn two_runs_whose_inventories_differ_never_both_change_members() {
        let all = sample(5);
        let hosts: Vec<&Host> = all.hosts.iter().collect();
        let peer = hosts[0].peer_url();
        let step = Step {
            action: Action::RemoveMember { peer: peer.clone() },
            why: String::new(),
            requires: vec![],
            provides: Condition::Gone(peer),
            precondition: Precondition::Members { list: std::collections::BTreeMap::new() },
            rollback: vec![],
        };
        let plan = Plan { steps: vec![step], ..Plan::default() };
        // The members are the first three. One inventory names those, another the last three; each run has all its
        // hosts.
        let (voters, locked) = (members(&hosts[..3]), Locked { etcd: 3, of: 3 });
        let allow = |plan: &Plan, held: &[&Host]| {
            locked.allow(plan, &|peer, _| held.iter().any(|host| &host.peer_url() == peer), &voters)
        };
        assert_eq!(allow(&plan, &hosts[..3]), Ok(()));
        let refused = allow(&plan, &hosts[2..]);
        assert_eq!(refused, Err(Refusal::NoVoterLock { locked: 1, voters: 3 }));
        // Of two runs without a common host, at most one may change the list.
        for bits in 0_u8..32 {
            let one: Vec<&Host> = (0..5).filter(|at| bits >> at & 1 == 1).map(|at| hosts[at]).collect();
            let other: Vec<&Host> = (0..5).filter(|at| bits >> at & 1 == 0).map(|at| hosts[at]).collect();
            let may = |held: &[&Host]| allow(&plan, held).is_ok();
            assert!(!(may(&one) && may(&other)), "{bits:05b}");
        }
        assert_eq!(allow(&Plan::default(), &[]), Ok(()), "a plan without changes of members needs no majority");
    }
}
