//! The power of a host that gives no sign of life is switched: on if it is off; off and on if it has hung for long.
//!
//! In: the host, and the other etcd hosts. Out: its power was switched, or why not. As every repair of `host-heal`, it
//! has the lock on a majority, so no other guard switches power at the same time, and no run of a person is under way.
//! Every locked host must see the silence itself, right before anything is switched. A host is switched on again only
//! once its plug-in has said twice that it is off: that is the proof that it no longer writes anything.

use super::book::{Book, retry_ms};
use super::heal::{HealError, wanted};
use super::on_host::OnHost;
use crate::agent::{PowerPlugin, Root, note_power};
use crate::model::facts::{Etcd, HostFacts, Members};
use crate::model::healing::{GuardedHost, Policy};
use crate::model::names::{HostName, PeerUrl};
use crate::model::repair::{Outcome, Power, RepairRecord, Switched};
use crate::observe::Wait;
use crate::plan::local_repair::HOUR_MS;
use crate::plan::power::was_switched;
use crate::protocol::{ObserveAsk, Op, OpError, Reply};
use crate::reconcile::{Fleet, LOCK_TIMEOUT, Locked, Round};
use crate::transport::Payload;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Between the two times that a host must be seen off, and between two attempts to switch it on.
const AGAIN: Duration = Duration::from_secs(5);
/// So often a host is looked at until it is seen off.
const LOOKS: usize = 12;
/// How often it is switched on, if that fails.
const TRIES: usize = 3;

/// Why the power of a host is not switched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PowerError {
    /// The inventory does not ask for it.
    #[error("the policy of this host does not let guards switch the power of {0}")]
    NotAsked(HostName),
    /// An earlier attempt did something, and its guard has not asked again.
    #[error("the guard of this host has not asked for it again")]
    Done,
    /// It is there.
    #[error("{0} answers")]
    Answers(HostName),
    /// Too few hosts have a word.
    #[error("{0} of the locked hosts reports about it, and two are needed")]
    Alone(usize),
    /// A guard hears it, or has not heard it for too short a time, or does not work.
    #[error("the guard of {by} does not say that {host} has given no sign of life for {for_s} s")]
    Disagrees {
        /// The guard.
        by: HostName,
        /// The host.
        host: HostName,
        /// For how long, seconds.
        for_s: u32,
    },
    /// The last `hactl up` did not reach one of the two.
    #[error("the guard of {0} has another policy than this host; `hactl up` makes them equal")]
    Policy(HostName),
    /// A person is working on it.
    #[error("{0} was held when its guard was last heard")]
    Held(HostName),
    /// A guard has just done it.
    #[error("it was switched on less than an hour ago, by the records of {0}")]
    Rests(HostName),
    /// Too few other members.
    #[error("without it, {healthy} voters of etcd serve, and quorum is {quorum}")]
    Quorum {
        /// Those that serve.
        healthy: usize,
        /// How many are needed.
        quorum: usize,
    },
    /// There is no list of members.
    #[error("etcd has no quorum")]
    NoQuorum,
    /// It may still run.
    #[error("it was switched off, but its plug-in did not say twice that it is off, so it is not switched on")]
    NotProven,
    /// The plug-in.
    #[error("{}", .0.what)]
    Plugin(OpError),
}

/// The power of a host, to be switched.
pub(super) struct Switching<'a> {
    root: &'a Root,
    policy: &'a Policy,
    own: &'a HostName,
    host: &'a GuardedHost,
    plugin: PowerPlugin,
    power: Power,
    say: fn(&str),
    again: Duration,
}

/// What the guards of the locked hosts say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Agreed {
    /// Whether the host may be switched off: it is dead by the word of all, and has had its time to boot.
    dead: bool,
    /// Whether it was switched off within the hour, and maybe not on again.
    left_off: bool,
}

impl<'a> Switching<'a> {
    /// As the guard of this host asks for it.
    pub fn of(
        root: &'a Root,
        policy: &'a Policy,
        own: &'a HostName,
        power: Power,
        say: fn(&str),
    ) -> Result<Self, PowerError> {
        let found = policy.switchable(&power.host).filter(|(host, _)| &host.name != own);
        let (host, name) = found.ok_or_else(|| PowerError::NotAsked(power.host.clone()))?;
        if power.switched != Switched::Nothing {
            return Err(PowerError::Done);
        }
        Ok(Self { root, policy, own, host, plugin: PowerPlugin::of(root, name, host), power, say, again: AGAIN })
    }

    /// Takes the locks, and switches.
    pub async fn locked(mut self, fleet: &mut Fleet, authority: &Arc<OnHost>) -> Result<(), HealError> {
        let locked = fleet.lock("heal").await?;
        let is_on = tokio::select! {
            is_on = self.may_act(fleet, authority, locked) => is_on?,
            () = wanted(&fleet.machines) => return Err(HealError::Yields),
        };
        // From here on, a person's run waits: the host must not stay off because of it.
        let agreed = self.agreed(fleet).await?;
        match is_on {
            false => self.on(Switched::On).await?,
            true if agreed.dead && !agreed.left_off => self.cycle().await?,
            true => {
                self.note(Switched::LeftOn).await?;
                (self.say)(&format!("heal: the power of {} is on; it is left alone for now", self.host.name));
            }
        }
        Ok(())
    }

    /// Whether the host has power, if this one may do something about it.
    async fn may_act(&self, fleet: &Fleet, authority: &Arc<OnHost>, locked: Locked) -> Result<bool, HealError> {
        if fleet.machines.contains_key(&self.host.name) {
            return Err(PowerError::Answers(self.host.name.clone()).into());
        }
        let round = Round::take(fleet, &**authority, Wait::ForAll).await?;
        locked.is_majority(fleet, &round.facts).map_err(crate::reconcile::Failure::from)?;
        let Etcd::HasQuorum(members) = &round.facts.etcd else { return Err(PowerError::NoQuorum.into()) };
        has_quorum_without(members, &PeerUrl::of(self.host.address))?;
        Ok(self.plugin.is_on().await.map_err(PowerError::Plugin)?)
    }

    /// What the guards of the locked hosts say now.
    async fn agreed(&self, fleet: &Fleet) -> Result<Agreed, PowerError> {
        let asked = fleet.machines.iter().map(async |(by, agent)| {
            let ask = ObserveAsk { guard: true, ..ObserveAsk::default() };
            match agent.call(Op::Observe(Box::new(ask)), Payload::None, LOCK_TIMEOUT, &|_| {}).await {
                Ok(Reply::Facts(facts)) => (by, Some(*facts)),
                _ => (by, None),
            }
        });
        let answers = futures::future::join_all(asked).await;
        let retry_ms = retry_ms(self.root);
        let mut mine: Vec<RepairRecord> = Book::open(self.root).records().to_vec();
        // This very attempt.
        mine.pop_if(|record| record.outcome == Outcome::Open);
        mine.retain(|record| record.begun_ms > retry_ms);
        agree(self.policy, (self.own, &mine), &self.host.name, &answers)
    }

    async fn note(&mut self, switched: Switched) -> Result<(), PowerError> {
        note_power(self.root, &mut self.power, switched).await.map_err(PowerError::Plugin)
    }

    /// Switches it on.
    async fn on(&mut self, switched: Switched) -> Result<(), PowerError> {
        self.note(switched).await?;
        (self.say)(&format!("heal: switching the power of {} on", self.host.name));
        for left in (0..TRIES).rev() {
            match self.plugin.switch(true).await {
                Err(error) if left > 0 => (self.say)(&format!("heal: {}; trying again", error.what)),
                done => return done.map_err(PowerError::Plugin),
            }
            sleep(self.again).await;
        }
        Ok(())
    }

    /// Switches it off, proves that it is off, and switches it on.
    async fn cycle(&mut self) -> Result<(), PowerError> {
        self.note(Switched::Off).await?;
        (self.say)(&format!("heal: switching the power of {} off: it is on, and the host hangs", self.host.name));
        self.plugin.switch(false).await.map_err(PowerError::Plugin)?;
        let mut was_off = false;
        for _ in 0..LOOKS {
            let is_off = match self.plugin.is_on().await {
                Ok(is_on) => !is_on,
                Err(error) => {
                    (self.say)(&format!("heal: {}", error.what));
                    false
                }
            };
            if was_off && is_off {
                (self.say)(&format!("heal: {} was seen off twice", self.host.name));
                return self.on(Switched::Cycled).await;
            }
            was_off = is_off;
            sleep(self.again).await;
        }
        Err(PowerError::NotProven)
    }
}

/// Whether the members of other hosts are a quorum.
fn has_quorum_without(members: &Members, peer: &PeerUrl) -> Result<(), PowerError> {
    let serves = members.0.iter().filter(|(of, member)| *of != peer && !member.learner && member.healthy);
    let (healthy, quorum) = (serves.count(), members.quorum());
    if healthy < quorum { Err(PowerError::Quorum { healthy, quorum }) } else { Ok(()) }
}

/// What guards say together about a host, with the closed records of the own one.
fn agree(
    policy: &Policy,
    (own, mine): (&HostName, &[RepairRecord]),
    host: &HostName,
    answers: &[(&HostName, Option<HostFacts>)],
) -> Result<Agreed, PowerError> {
    let (after, digest) = (policy.healing.after, policy.digest());
    if answers.len() < 2 || !answers.iter().any(|(by, _)| *by == own) {
        return Err(PowerError::Alone(answers.len()));
    }
    let mut agreed = Agreed { dead: true, left_off: false };
    for (by, facts) in answers {
        let disagrees =
            || PowerError::Disagrees { by: (*by).clone(), host: host.clone(), for_s: after.host_unreachable_s };
        let facts = facts.as_ref().ok_or_else(disagrees)?;
        let report = facts.guard.as_ref().and_then(|guard| guard.report.as_ref()).ok_or_else(disagrees)?;
        if !report.is_gone(host, after.host_unreachable_s, facts.now_ms) {
            return Err(disagrees());
        }
        if report.policy != digest {
            return Err(PowerError::Policy((*by).clone()));
        }
        agreed.dead &= report.is_gone(host, after.host_dead_s, facts.now_ms);
        let seen = report.others.get(host);
        if seen.is_some_and(|other| other.held_until_ms > facts.now_ms) {
            return Err(PowerError::Held(host.clone()));
        }
        let booted_ms = seen.map_or(0, |other| other.booted_ms);
        agreed.dead &= booted_ms == 0 || facts.now_ms.saturating_sub(booted_ms) >= HOUR_MS;
        let records = if *by == own { mine } else { &report.repairs };
        let recent = |wanted: fn(Switched) -> bool| {
            let of = records.iter().filter(|record| record.switched().is_some_and(wanted));
            was_switched(of, host, facts.now_ms)
        };
        if recent(Switched::is_on) {
            return Err(PowerError::Rests((*by).clone()));
        }
        agreed.left_off |= recent(|switched| matches!(switched, Switched::Off | Switched::Unknown));
    }
    Ok(agreed)
}

#[cfg(test)]
mod tests;
