//! The guard, `hactl host-guard`: a small resident program on every host of the control plane that detects faults and
//! reports them. With `healing: on` it also repairs what its own host can repair alone.
//!
//! In: the policy in `/etc/hactl/guard.json`, probes of the own host, heartbeats of the other guards. Out: a report in a
//! file that `hactl status` reads, lines in the journal, metrics. It needs certificates and the kernel only: no etcd, no
//! API, no containerd, no DNS.

mod api;
mod book;
mod crashes;
mod disk;
mod events;
mod heal;
mod ledger;
mod members;
mod metrics;
mod notify;
mod on_host;
mod peer;
mod peers;
mod repair;
mod setup;
mod state;
#[cfg(test)]
mod tests;

pub use heal::{HealError, heal};
pub use metrics::text as metrics_text;
pub use peer::{PeerError, peer};
pub use setup::GuardError;

use crate::agent::Root;
use crate::agent::probe::{Probe, is_own};
use crate::model::desired::Role;
use crate::model::duration::human_duration;
use crate::model::healing::{GuardedHost, Mode, REPORT};
use crate::model::names::HostName;
use crate::model::timestamp::rfc3339;
use events::{Occurrence, Reason};
use ledger::{Change, Now};
use state::State;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// Between two conclusions, each with a report.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at the files that it has read, in turns.
const FILES_EVERY: u32 = 5;
/// The most sentences that are remembered as said.
const MOST_SAID: usize = 200;

/// What the tasks of a guard share.
struct Shared {
    own: GuardedHost,
    guards: Vec<GuardedHost>,
    api_port: u16,
    state: Mutex<State>,
    begun: Instant,
    said: Mutex<BTreeSet<String>>,
    say: fn(&str),
    events: Sender<Occurrence>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        now(self.begun)
    }

    fn say(&self, line: &str) {
        (self.say)(&format!("guard: {line}"));
    }

    /// Says a sentence that a stranger could repeat without end.
    fn say_once(&self, line: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MOST_SAID && said.insert(line.to_owned()) {
            drop(said);
            self.say(line);
        }
    }

    /// Says why something did not go as it should; the same reason once.
    fn warn(&self, outcome: Result<(), String>) {
        if let Err(why) = outcome {
            self.say_once(&why);
        }
    }

    fn refused(&self, from: IpAddr, why: &str) {
        self.say_once(&format!("a connection from {from} was refused: {why}"));
    }

    /// Listens at an address; tries again until it can: at boot the host's own address may come later than the guard.
    async fn listen(&self, address: SocketAddr, to: &str, pause: Duration) -> TcpListener {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(error) => self.say_once(&format!("cannot {to} at {address}: {error}; trying again")),
            }
            sleep(pause).await;
        }
    }

    /// The other host of the policy with this address.
    fn host_at(&self, address: IpAddr) -> Option<GuardedHost> {
        let address = address.to_canonical();
        self.guards.iter().find(|guard| guard.address == address && guard.name != self.own.name).cloned()
    }

    /// Makes an Event of something, unless too many wait already.
    fn occurred(&self, occurrence: Occurrence) {
        if self.events.try_send(occurrence).is_err() {
            self.say_once("too many Events wait for an API server; some are only in this journal");
        }
    }

    fn report_changes(&self, changes: Vec<Change>) {
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
            if self.state().speaks_for(&fault, now) {
                self.occurred(Occurrence::of(&fault, reason, message, now.wall_ms));
            }
        }
    }
}

/// Turns that are never made up for: a late one delays the next.
fn turns(every: Duration) -> Interval {
    let mut turn = interval(every);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turn
}

fn now(begun: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { steady: begun.elapsed(), wall_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX) }
}

/// Watches until one of the files changes that it has read.
///
/// # Errors
/// The files cannot be used.
pub async fn run(root: Root, own: &HostName, say: fn(&str)) -> Result<(), GuardError> {
    let begun = Instant::now();
    let version = setup::version(&root);
    let (setup, identity) = setup::read(&root, own, now(begun))?;
    let (client, server) = (Arc::new(identity.client()?), identity.server()?);
    let policy = setup.policy.clone();
    let (events, occurrences) = channel(events::WAITING);
    let shared = Arc::new(Shared {
        own: setup.own.clone(),
        guards: policy.guards.clone(),
        api_port: policy.api_port,
        state: Mutex::new(State::new(setup)),
        begun,
        said: Mutex::default(),
        say,
        events,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(peers::receive(Arc::clone(&shared), server, identity.authorities.clone()));
    tasks.spawn(metrics::serve(Arc::clone(&shared)));
    tasks.spawn(api::read(Arc::clone(&shared), root.clone(), policy.clone()));
    tasks.spawn(events::publish(Arc::clone(&shared), root.clone(), policy.clone(), occurrences));
    for other in policy.others(own) {
        let authorities = identity.authorities.clone();
        tasks.spawn(peers::send(Arc::clone(&shared), other.clone(), Arc::clone(&client), authorities));
        tasks.spawn(peers::dial(Arc::clone(&shared), other.clone()));
    }
    for probe in Probe::of(&shared.own, &policy) {
        let (shared, root, policy) = (Arc::clone(&shared), root.clone(), policy.clone());
        tasks.spawn(async move {
            let mut turn = turns(probe.every());
            loop {
                turn.tick().await;
                let Some(found) = probe.look(&root, &policy, &shared.own).await else { continue };
                let found: Vec<_> = found.into_iter().map(|found| (found.kind, found.evidence)).collect();
                let changes = shared.state().probed(probe.kinds(), &found, shared.now());
                shared.report_changes(changes);
            }
        });
    }
    if shared.own.may_vote() {
        tasks.spawn(disk::watch(Arc::clone(&shared)));
    }
    if shared.own.is(Role::ControlPlane) {
        tasks.spawn(crashes::watch(Arc::clone(&shared), root.clone()));
    }
    members::ask(&mut tasks, &shared, &root, &policy);
    let others = policy.guards.len() - 1;
    shared.say(&if policy.healing.mode == Mode::On {
        tasks.spawn(repair::keep(Arc::clone(&shared), root.clone(), policy.clone()));
        format!("{own}: watching with {others} others; this host is repaired")
    } else {
        format!("{own}: watching with {others} others; nothing is repaired")
    });
    notify::ready();
    let mut turn = turns(EVERY);
    for count in 0_u32.. {
        tokio::select! {
            _ = turn.tick() => {}
            // No task ends but by a defect: systemd starts the guard again.
            Some(ended) = tasks.join_next() => {
                let why = ended.err().map_or_else(|| "it returned".to_owned(), |error| error.to_string());
                return Err(GuardError::Files(format!("a part of the guard ended: {why}")));
            }
        }
        if let Some(vip) = policy.vip {
            shared.state().has_vip(is_own(vip));
        }
        let changes = shared.state().judge(shared.now());
        shared.report_changes(changes);
        publish(&shared, &root);
        notify::alive();
        if count % FILES_EVERY == 0 && setup::version(&root) != version {
            shared.say("its policy or its certificate changed: starting again");
            return Ok(());
        }
    }
    Ok(())
}

/// Replaces a file at once: a reader sees the old content or the new one.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(&new, path)
}

/// Writes the report.
fn publish(shared: &Shared, root: &Root) {
    let report = shared.state().report(shared.now());
    let path = root.own(REPORT);
    let text = serde_json::to_vec(&report).map_err(std::io::Error::other);
    if let Err(error) = text.and_then(|text| replace(&path, &text)) {
        shared.say_once(&format!("cannot write {}: {error}; `hactl status` sees no report", path.display()));
    }
}
