//! Who asks, and what a host permits to guards: to read its snapshots, which are encrypted; and only what it takes that
//! the etcd member of the host that asks joins again or hands over the lead, if this host itself sees that it is right.
//! No guard changes the member of another host, except that of a host that is gone: one without a vote takes it over,
//! and of five or seven hosts, two may be removed.
//!
//! In: an operation of a guard, whose certificate and address are checked already. Out: the operation as it is
//! performed, or a refusal. Nothing in it is believed: queries, paths and units are replaced by the host's own, and the
//! member list is read here, linearizably. A change of the lead and the end of the alarm CORRUPT are not checked: only the
//! host's own guard may ask for them, and etcd permits them to that host anyway. Over SSH, a person may ask for
//! everything.

mod change;

use super::etcd::member::{access, access_at};
use super::host::Host;
use super::lock::Rank;
use super::machine::root::Root;
use super::machine::when;
use super::observe::guard_fact;
use super::op_error::{Explain as _, Outcome, bad};
use super::repair::{annotated, hold};
use crate::etcd::{self, Election};
use crate::model::facts::{ETCD_UNIT, EtcdView};
use crate::model::names::{HostName, PeerUrl};
use crate::model::recovery::Room;
use crate::model::units::etcd_balancer_unit;
use crate::protocol::{Balancing, EtcdAsk, MemberChange, MemberStart, ObserveAsk, Op, PAUSE_MS};
use change::Asked;
use futures::future::join_all;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

/// How long a member may take to report its view.
const LOOK: Duration = Duration::from_secs(5);

/// How long a balancer bypasses a member at a guard's request, seconds.
const MOST_PASSED_OVER_S: u32 = 600;

/// Between two pauses of the balancer for guards. Each is below a second, so no guard can keep clients waiting.
const PAUSED_EVERY: Duration = Duration::from_secs(20);
/// When the balancer was paused last for a guard, by the time of this file.
const PAUSED: &str = "/run/hactl/paused-for-a-guard";

/// Takes note of a pause of the balancer, unless there was one just now.
fn may_pause(root: &Root) -> Outcome<()> {
    let file = root.own(PAUSED);
    // One of the future is none: the clock was set.
    let last = fs::metadata(&file).and_then(|meta| meta.modified()).ok().and_then(|last| last.elapsed().ok());
    if last.is_some_and(|since| since < PAUSED_EVERY) {
        return Err(bad(format!("the balancer was paused for a guard within the last {} s", PAUSED_EVERY.as_secs())));
    }
    fs::write(&file, "").explain("write", &file)
}

/// Who asks.
#[derive(Debug)]
pub enum Caller {
    /// A person, over SSH.
    Person,
    /// The guard of a host.
    Guard(Box<Admission>),
}

/// What the host knows by its own files when a guard asks.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The host of the guard that asks.
    pub by: HostName,
    /// This host.
    pub own: HostName,
    /// The etcd hosts, by the policy.
    pub members: Vec<(HostName, IpAddr)>,
    /// The query for this host.
    pub ask: ObserveAsk,
    /// How a member of this host is started.
    pub start: MemberStart,
    /// How many members etcd should have.
    pub votes: usize,
    /// For how long a host must have given no sign of life, until another one takes over its vote, seconds.
    pub host_dead_s: u32,
}

impl Caller {
    /// Whether a person asks.
    pub(super) fn is_person(&self) -> bool {
        matches!(self, Self::Person)
    }

    /// The holder and the rank of a lock.
    ///
    /// # Errors
    /// The host is held.
    pub(super) fn locks(&self, root: &Root, holder: String) -> Outcome<(String, Rank)> {
        match self {
            Self::Person => Ok((holder, Rank::Person)),
            Self::Guard(admission) => match hold(root, &admission.own, when::now_ms()) {
                Some(hold) => Err(bad(format!("{} is held by {hold}", admission.own))),
                None => {
                    let holder = format!("the guard of {} (a repair of etcd)", admission.by);
                    Ok((holder, Rank::Resident))
                }
            },
        }
    }

    /// The operation as it is performed.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) async fn admits(&self, host: &Host, op: Op) -> Outcome<Op> {
        match self {
            Self::Person => Ok(op),
            Self::Guard(admission) => admission.admit(&host.root, op).await,
        }
    }
}

impl Admission {
    async fn admit(&self, root: &Root, op: Op) -> Outcome<Op> {
        match op {
            Op::Observe(ask) => Ok(Op::Observe(Box::new(self.own_query(*ask)))),
            Op::ArchiveData(_) | Op::StartMember(_) | Op::Seal { .. } | Op::Blame { .. } if self.by != self.own => {
                Err(bad(format!("only the guard of {} repairs its member", self.own)))
            }
            Op::ChangeMembers { change, .. } => {
                self.may_change(root, &change).await?;
                Ok(Op::ChangeMembers { etcd: self.etcd()?.clone(), change })
            }
            Op::ArchiveData(_) => {
                let seen = self.list(root).await?;
                match self.own_entry(&seen)? {
                    Some(_) => Err(bad(format!("{} is in the member list: its data stays in place", self.own))),
                    None => Ok(Op::ArchiveData(self.etcd()?.clone())),
                }
            }
            Op::StartMember(start) => self.may_start(root, start).await,
            Op::Seal { cluster, .. } => {
                let view = self.own_view(root).await?;
                if view.cluster != cluster {
                    return Err(bad(format!("the member of {} is of cluster {}", self.own, view.cluster)));
                }
                Ok(Op::Seal { data_dir: self.start.data_dir.clone(), cluster })
            }
            Op::EtcdHash { revision, .. } => Ok(Op::EtcdHash { etcd: self.etcd()?.clone(), revision }),
            Op::MakeRoom { room: room @ Room::Agreed, .. } if self.by == self.own => {
                Ok(Op::MakeRoom { etcd: self.etcd()?.clone(), room })
            }
            // The balancer of this host sends clients to other members than that of the host that asks.
            Op::Balance { how: Balancing::PassOver { member, most_s }, .. } if member == self.by => {
                let how = Balancing::PassOver { member, most_s: most_s.min(MOST_PASSED_OVER_S) };
                Ok(Op::Balance { unit: etcd_balancer_unit(), how })
            }
            Op::Balance { how: Balancing::PassTo { member }, .. } if member == self.by => {
                Ok(Op::Balance { unit: etcd_balancer_unit(), how: Balancing::PassTo { member } })
            }
            // While the lead of etcd moves, nothing is proposed.
            Op::Balance { how: Balancing::Pause { most_ms }, .. } => {
                may_pause(root)?;
                let how = Balancing::Pause { most_ms: most_ms.min(PAUSE_MS) };
                Ok(Op::Balance { unit: etcd_balancer_unit(), how })
            }
            Op::Balance { how: Balancing::Resume, .. } => {
                Ok(Op::Balance { unit: etcd_balancer_unit(), how: Balancing::Resume })
            }
            Op::Blame { unit } if unit.as_str() == ETCD_UNIT => Ok(Op::Blame { unit }),
            // They are encrypted: who reads one can decrypt nothing of it.
            Op::NewestBundle => Ok(Op::NewestBundle),
            Op::ReadBundle { name, from } => Ok(Op::ReadBundle { name, from }),
            _ => Err(bad(format!(
                "{} permits guards only what repairs of etcd members and copies of snapshots take",
                self.own
            ))),
        }
    }

    fn etcd(&self) -> Outcome<&EtcdAsk> {
        self.ask.etcd.as_ref().ok_or_else(|| bad(format!("{} has no etcd member", self.own)))
    }

    /// The parts of the host's own query that are asked for.
    fn own_query(&self, ask: ObserveAsk) -> ObserveAsk {
        let own = self.ask.clone();
        ObserveAsk {
            files: if ask.files.is_empty() { vec![] } else { own.files },
            parts: if ask.parts.is_empty() { vec![] } else { own.parts },
            units: if ask.units.is_empty() { vec![] } else { own.units },
            leaves: if ask.leaves.is_empty() { vec![] } else { own.leaves },
            etcd: ask.etcd.and(own.etcd),
            disk: ask.disk,
            guard: ask.guard,
            ..ObserveAsk::default()
        }
    }

    /// The view of the own member.
    async fn own_view(&self, root: &Root) -> Outcome<EtcdView> {
        match Box::pin(etcd::view(&access(root, self.etcd()?)?, LOOK, Election::NotAwaited)).await {
            Ok((view, None)) => Ok(view),
            Ok((_, Some(error))) | Err(error) => {
                Err(bad(format!("the member of {} does not serve: {error}", self.own)))
            }
        }
    }

    /// What each member says that serves linearizable reads, by its address.
    async fn serving(&self, root: &Root) -> Outcome<Vec<(IpAddr, EtcdView)>> {
        let asked = self.members.iter().map(async |(_, address)| {
            let access = access_at(root, self.etcd()?, *address)?;
            let seen = Box::pin(etcd::view(&access, LOOK, Election::NotAwaited)).await;
            Ok(seen.ok().filter(|(_, trouble)| trouble.is_none()).map(|(view, _)| (*address, view)))
        });
        let seen: Outcome<Vec<_>> = join_all(asked).await.into_iter().collect();
        Ok(seen?.into_iter().flatten().collect())
    }

    /// The same; at least one.
    async fn list(&self, root: &Root) -> Outcome<Vec<(IpAddr, EtcdView)>> {
        let seen = self.serving(root).await?;
        if seen.is_empty() {
            Err(bad(format!("no etcd member that {} can ask has a quorum", self.own)))
        } else {
            Ok(seen)
        }
    }

    /// The entry of this host in the list: whether it is a learner. All that serve must agree.
    fn own_entry(&self, seen: &[(IpAddr, EtcdView)]) -> Outcome<Option<bool>> {
        let own = self.peer(&self.own).ok_or_else(|| bad(format!("the policy names no member of {}", self.own)))?;
        let mut entries = seen
            .iter()
            .map(|(_, view)| view.members.iter().find(|(.., peer, _)| *peer == own).map(|(.., learner)| *learner));
        let first = entries.next().flatten();
        if entries.all(|entry| entry == first) { Ok(first) } else { Err(bad("the members report different lists")) }
    }

    /// The peer URL of a host of the policy.
    fn peer(&self, host: &HostName) -> Option<PeerUrl> {
        let found = self.members.iter().find(|(name, _)| name == host);
        found.map(|(_, address)| PeerUrl::of(*address))
    }

    async fn may_change(&self, root: &Root, change: &MemberChange) -> Outcome<()> {
        let by = self.peer(&self.by).ok_or_else(|| bad(format!("the policy names no member of {}", self.by)))?;
        let asked = Asked { host: &self.by, by, of_itself: self.by == self.own, votes: self.votes };
        let gone = |peer: &PeerUrl| self.is_gone(root, peer);
        if !asked.may_ask(change, gone)? {
            return Ok(());
        }
        let own = self.own_view(root).await?;
        let members: Vec<(PeerUrl, bool)> = own.members.into_iter().map(|(.., url, learner)| (url, learner)).collect();
        if asked.fits(change, &members, gone)? {
            let seen = self.serving(root).await?;
            let serving: Vec<PeerUrl> = seen.into_iter().map(|(at, _)| PeerUrl::of(at)).collect();
            asked.leaves_quorum(change, &members, &serving)?;
        }
        Ok(())
    }

    /// Whether the guard of this host sees that the one with this peer URL is gone, so that its vote may be taken over.
    fn is_gone(&self, root: &Root, peer: &PeerUrl) -> Outcome<()> {
        let of = self.members.iter().find(|(_, address)| PeerUrl::of(*address) == *peer);
        let (host, _) = of.ok_or_else(|| bad(format!("the policy names no host at {peer}")))?;
        if let Some(hold) = annotated(root).hold(host) {
            return Err(bad(format!("{host} is held by {hold}")));
        }
        let report = guard_fact(root).report;
        if !report.is_some_and(|report| report.is_gone(host, self.host_dead_s, when::now_ms())) {
            let why = format!(
                "the guard of {} does not see that {host} has given no sign of life for {} s",
                self.own, self.host_dead_s
            );
            return Err(bad(why));
        }
        Ok(())
    }

    async fn may_start(&self, root: &Root, start: MemberStart) -> Outcome<Op> {
        let seen = self.list(root).await?;
        let entry = self.own_entry(&seen)?;
        if let Some(first) = &start.first {
            if first.token.is_some() {
                return Err(bad("no guard bootstraps etcd"));
            }
            if entry != Some(true) {
                return Err(bad(format!("{} is no learner in the member list: it does not join", self.own)));
            }
            let listed =
                |peer: &PeerUrl| seen.iter().all(|(_, view)| view.members.iter().any(|(.., url, _)| url == peer));
            if let Some((_, peer)) = first.members.iter().find(|(_, peer)| !listed(peer)) {
                return Err(bad(format!("{peer} is not in the member list")));
            }
        } else if entry.is_none() {
            return Err(bad(format!("{} is not in the member list", self.own)));
        }
        Ok(Op::StartMember(MemberStart { first: start.first, ..self.start.clone() }))
    }
}
