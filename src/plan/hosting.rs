//! Decides when a host moves the manifest of a component to its kubelet and away from it: the reserve of a self-hosted
//! control plane.
//!
//! In: once a second, what the host sees of a component by itself, without the API. Out: nothing, place or withdraw.
//! Pure: times are those of a steady clock, passed in.
//!
//! The port is the lock. It is never shared, so a static pod and a pod of the `DaemonSet` cannot both serve, and one that
//! keeps its port has won. What counts is whether an answer comes, not whether somebody listens: an API server without
//! etcd listens for twenty seconds, ends and listens again.

#[cfg(test)]
mod tests;

use crate::model::hosting::{ComponentFact, Mode, Server};
use std::fmt;
use std::time::Duration;

/// How long nobody may serve the API until the static pod is placed. A slow start must not take longer.
const API_MISSING: Duration = Duration::from_secs(30);
/// The same for the others, whose leader on another host goes on.
const OTHERS_MISSING: Duration = Duration::from_secs(60);
/// The same after a static pod made way.
const HANDED: Duration = Duration::from_secs(60);
/// How long a pod must have kept the port from a static pod until that is withdrawn, and how long one must have waited
/// before it may take over.
const PROVEN: Duration = Duration::from_secs(10);
/// How often the delay doubles.
const MOST_DOUBLINGS: u32 = 3;
/// A component that was served for so long is well: the next delay is the first again.
const WELL: Duration = Duration::from_secs(600);
/// A turn, and the beginning of it in which an API server may make way: the others have leaders on other hosts. Clocks
/// differ, so it is a part of the turn only.
type Length = (Duration, Duration);
/// While every API server answers, none is in a hand-over: one that has begun is seen not to answer, long before the next
/// turn.
const SHORT: Length = (Duration::from_secs(25), Duration::from_secs(5));
/// Where one does not answer, another may take over only when a failure of the last one to do so is over. A pod takes
/// over in 6 to 12 seconds, and fails after a minute.
const LONG: Length = (Duration::from_secs(75), Duration::from_secs(15));

/// What a host sees besides the component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Around {
    /// Whether the inventory has other API servers.
    pub has_others: bool,
    /// Whether one of them answers.
    pub others_serve: bool,
    /// Whether the own one answers.
    pub own_serves: bool,
    /// What may make way now.
    pub turn: Turn,
}

/// Which static pods of a host may make way, by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// None: it is the turn of another host.
    None,
    /// All but the API server.
    Others,
    /// All.
    All,
}

/// What may make way on the host at this place among so many, if another API server has not answered for so long; `None`:
/// all answer. Turns need no agreement: they keep hosts that start together from handing over together.
pub fn turn_of(since_1970: Duration, (place, of): (u32, u32), missing: Option<Duration>) -> Turn {
    let (turn, begin) = match missing {
        None => SHORT,
        Some(lasts) if lasts >= LONG.0 => LONG,
        // It may be in a hand-over.
        Some(_) => return Turn::None,
    };
    let round = turn * of.max(1);
    let at = Duration::from_millis(u64::try_from(since_1970.as_millis() % round.as_millis().max(1)).unwrap_or(0));
    match at.checked_sub(turn * place) {
        Some(into) if into < begin => Turn::All,
        Some(into) if into < turn => Turn::Others,
        _ => Turn::None,
    }
}

/// Why a manifest is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Static pods run here.
    Held,
    /// Nobody served for this long.
    Missing(Duration),
    /// A pod that was to take over did not serve in time.
    NotTaken,
    /// A pod has the port and serves.
    Beaten,
    /// A pod waits to take over.
    Offered,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("static pods run on this host"),
            Self::Missing(delay) => write!(f, "nobody answered for {} s", delay.as_secs()),
            Self::NotTaken => f.write_str("the pod that was to take over did not answer in time"),
            Self::Beaten => f.write_str("a pod of the DaemonSet has the port and answers"),
            Self::Offered => f.write_str("a pod of the DaemonSet takes over"),
        }
    }
}

/// A move of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// To the kubelet.
    Place(Why),
    /// Away from it.
    Withdraw(Why),
}

/// What is remembered of one component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeper {
    api_server: bool,
    /// Since when nobody serves.
    missing: Option<Duration>,
    /// Since when somebody serves.
    serving: Option<Duration>,
    /// Since when a pod keeps the port from the static pod.
    beaten: Option<Duration>,
    /// The pod that waits, and since when.
    offered: Option<(String, Duration)>,
    /// The pod for which the static pod made way, until it has served.
    handing: Option<String>,
    /// The pod that did not take over: it gets no second turn.
    refused: Option<String>,
    /// How often a placed static pod was beaten: it was placed too early.
    beaten_times: u32,
}

impl Keeper {
    /// For a component.
    pub fn of(api_server: bool) -> Self {
        Self { api_server, ..Self::default() }
    }

    /// At the start of the host, before its kubelet. A cold start needs an API server, and pods that are bound to the
    /// host start as soon as there is one: static pods of the others would only be more to start.
    pub fn at_start(&self, mode: &Mode, seen: &ComponentFact, around: Around) -> Option<Move> {
        let reached = around.has_others && around.others_serve;
        match mode {
            _ if seen.placed => None,
            Mode::Held => Some(Move::Place(Why::Held)),
            Mode::Workloads(_) if self.api_server && !seen.answers && !reached => {
                Some(Move::Place(Why::Missing(Duration::ZERO)))
            }
            Mode::Workloads(_) => None,
        }
    }

    /// Once a second.
    pub fn judge(&mut self, now: Duration, mode: &Mode, seen: &ComponentFact, around: Around) -> Option<Move> {
        self.note(now, mode, seen, around);
        match mode {
            Mode::Held if seen.placed => None,
            Mode::Held => Some(self.place(Why::Held)),
            Mode::Workloads(_) if seen.placed => self.may_withdraw(now, around),
            Mode::Workloads(_) => self.may_place(now),
        }
    }

    /// Brings what is remembered up to date.
    fn note(&mut self, now: Duration, mode: &Mode, seen: &ComponentFact, around: Around) {
        let since = |was: Option<Duration>, is: bool| is.then(|| was.unwrap_or(now));
        // Without any API server, the others have nothing to do, and no pod can come.
        let is_missed = self.api_server || around.own_serves || around.others_serve;
        self.missing = since(self.missing, !seen.answers && is_missed);
        self.serving = since(self.serving, seen.answers);
        if self.serving.is_some_and(|at| now.saturating_sub(at) >= WELL) {
            self.beaten_times = 0;
        }
        let revision = match mode {
            Mode::Workloads(revision) => Some(revision),
            Mode::Held => None,
        };
        let wanted = |of: &String| Some(of) == revision;
        let has_port = matches!(&seen.server, Some(Server::Workload(pod)) if wanted(&pod.revision));
        self.beaten = since(self.beaten, seen.placed && has_port && seen.answers);
        let waits = seen.waits.as_ref().filter(|pod| seen.placed && wanted(&pod.revision)).map(|pod| &pod.uid);
        let waits = waits.filter(|uid| self.refused.as_ref() != Some(*uid));
        self.offered = waits.map(|uid| match self.offered.take() {
            Some((was, at)) if was == *uid => (was, at),
            _ => (uid.clone(), now),
        });
        if has_port && seen.answers && !seen.placed {
            self.handing = None;
        }
    }

    fn may_withdraw(&mut self, now: Duration, around: Around) -> Option<Move> {
        let lasted = |at: Duration| now.saturating_sub(at) >= PROVEN;
        if self.beaten.is_some_and(lasted) {
            self.beaten = None;
            self.beaten_times = (self.beaten_times + 1).min(MOST_DOUBLINGS);
            return Some(Move::Withdraw(Why::Beaten));
        }
        let alone = !around.has_others;
        let turn = around.turn == Turn::All || around.turn == Turn::Others && !self.api_server;
        let safe = alone || (turn && around.others_serve);
        let (uid, at) = self.offered.clone()?;
        if !safe || !lasted(at) {
            return None;
        }
        (self.handing, self.offered, self.missing) = (Some(uid), None, None);
        Some(Move::Withdraw(Why::Offered))
    }

    fn may_place(&mut self, now: Duration) -> Option<Move> {
        let lasted = now.saturating_sub(self.missing?);
        if let Some(uid) = self.handing.clone() {
            if lasted < HANDED {
                return None;
            }
            self.refused = Some(uid);
            return Some(self.place(Why::NotTaken));
        }
        let first = if self.api_server { API_MISSING } else { OTHERS_MISSING };
        let delay = first * 2_u32.pow(self.beaten_times);
        (lasted >= delay).then(|| self.place(Why::Missing(delay)))
    }

    fn place(&mut self, why: Why) -> Move {
        self.handing = None;
        Move::Place(why)
    }
}
