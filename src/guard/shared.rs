//! What the tasks of a guard share: its state, what it has said, and the way to Events.
//!
//! In: findings and sentences of all tasks. Out: lines in the journal, Events, the state.

use super::events::{Occurrence, Reason};
use super::ledger::{Change, Now};
use super::state::State;
use crate::agent::probe::Found;
use crate::model::duration::human_duration;
use crate::model::fault::FaultKind;
use crate::model::healing::GuardedHost;
use crate::model::timestamp::rfc3339;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::mpsc::Sender;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// The most sentences that are remembered as said.
const MOST_SAID: usize = 200;

/// What the tasks of a guard share.
pub(super) struct Shared {
    pub(super) own: GuardedHost,
    pub(super) guards: Vec<GuardedHost>,
    pub(super) api_port: u16,
    pub(super) state: Mutex<State>,
    pub(super) begun: Instant,
    pub(super) said: Mutex<BTreeSet<String>>,
    /// What was said about refused connections of other guards.
    pub(super) refused: Mutex<BTreeSet<String>>,
    pub(super) say: fn(&str),
    pub(super) events: Sender<Occurrence>,
}

impl Shared {
    /// Asks or changes the state. Without a guard of the lock that outlives a statement, no two of them meet in one.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn now(&self) -> Now {
        now(self.begun)
    }

    pub(super) fn say(&self, line: &str) {
        (self.say)(&format!("guard: {line}"));
    }

    /// Says a sentence that a stranger could repeat without end.
    pub(super) fn say_once(&self, line: &str) {
        if is_new(&self.said, line) {
            self.say(line);
        }
    }

    /// Says why something did not go as it should; the same reason once.
    pub(super) fn warn(&self, outcome: Result<(), String>) {
        if let Err(why) = outcome {
            self.say_once(&why);
        }
    }

    pub(super) fn refused(&self, from: IpAddr, why: &str) {
        if let Some(line) = refusal(&self.refused, from, why) {
            self.say(&line);
        }
    }

    /// Listens at an address; tries again until it can: at boot the host's own address may come later than the guard.
    pub(super) async fn listen(&self, address: SocketAddr, to: &str, pause: Duration) -> TcpListener {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(error) => self.say_once(&format!("cannot {to} at {address}: {error}; trying again")),
            }
            sleep(pause).await;
        }
    }

    /// The other host of the policy with this address.
    pub(super) fn host_at(&self, address: IpAddr) -> Option<GuardedHost> {
        let address = address.to_canonical();
        self.guards.iter().find(|guard| guard.address == address && guard.name != self.own.name).cloned()
    }

    /// Makes an Event of something, unless too many wait already.
    pub(super) fn occurred(&self, occurrence: Occurrence) {
        if self.events.try_send(occurrence).is_err() {
            self.say_once("too many Events wait for an API server; some are only in this journal");
        }
    }

    /// Records what was found of these kinds on the own host, at the end of the look, and reports what changes by it.
    pub(super) fn found(&self, kinds: &[FaultKind], found: &[(FaultKind, String)]) {
        let now = self.now();
        let changes = self.with(|state| state.probed(kinds, found, now));
        self.report_changes(changes);
    }

    /// The same, of what a probe found.
    pub(super) fn probed(&self, kinds: &[FaultKind], found: Vec<Found>) {
        let found: Vec<_> = found.into_iter().map(|found| (found.kind, found.evidence)).collect();
        self.found(kinds, &found);
    }

    pub(super) fn report_changes(&self, changes: Vec<Change>) {
        for change in changes {
            let now = self.now();
            let (fault, reason, line, message) = match change {
                Change::Raised(fault) => {
                    let message = format!("{} ({})", fault.kind.meaning(), fault.evidence);
                    let since = rfc3339(fault.since_ms);
                    let line = format!("{}: {} since {since}: {message}", fault.host, fault.kind);
                    (fault, Reason::Fault, line, message)
                }
                Change::Cleared(fault, lasted) => {
                    let lasted = human_duration(i64::try_from(lasted.as_millis()).unwrap_or(i64::MAX));
                    let message = format!("is over; it lasted {lasted}");
                    let line = format!("{}: {} {message}", fault.host, fault.kind);
                    (fault, Reason::FaultCleared, line, message)
                }
            };
            self.say(&line);
            if self.with(|state| state.speaks_for(&fault, now)) {
                self.occurred(Occurrence::of(&fault, reason, message, now.wall_ms));
            }
        }
    }
}

/// The sentence about a refused connection, if it was not said yet.
pub(super) fn refusal(said: &Mutex<BTreeSet<String>>, from: IpAddr, why: &str) -> Option<String> {
    // What follows are the seconds of now: another sentence each time.
    let why = why.split_once(": verification time").map_or(why, |(why, _)| why);
    let line = format!("a connection from {from} was refused: {why}");
    is_new(said, &line).then_some(line)
}

/// Whether a sentence was not said yet, and there is room to remember it.
fn is_new(said: &Mutex<BTreeSet<String>>, line: &str) -> bool {
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    said.len() < MOST_SAID && said.insert(line.to_owned())
}

/// Turns that are never made up for: a late one delays the next.
pub(super) fn turns(every: Duration) -> Interval {
    let mut turn = interval(every);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turn
}

pub(super) fn now(begun: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { steady: begun.elapsed(), wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX) }
}

/// Replaces a file at once: a reader sees the old content or the new one.
pub(super) fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(&new, path)
}
