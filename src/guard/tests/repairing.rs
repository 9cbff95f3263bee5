//! Guards that repair, in a simulated world: components freeze, fail, and are stopped by persons; hosts lose power;
//! heartbeats are cut; clocks jump; guards are killed. The guards' own state, decisions and records are the real ones.
//!
//! After each step of a guard, laws are checked. Each thing that a guard weighs is falsified in turn, and some law must
//! fail then.

use super::{name, setup};
use crate::guard::book::Book;
use crate::guard::ledger::Now;
use crate::guard::repair::{LocalHost, Repairs};
use crate::guard::shared::Shared;
use crate::guard::state::{Setup, State};
use crate::model::desired::sample;
use crate::model::fault::FaultKind;
use crate::model::healing::{Mode, Policy};
use crate::model::heartbeat::Heartbeat;
use crate::model::hold::Hold;
use crate::model::names::HostName;
use crate::model::repair::{Decided, Decision, Gate, LocalStep, Runs, Switched};
use crate::plan::local_repair::{BETWEEN_MS, STOPPED_FOR_MS, WINDOW_MS};
use crate::protocol::OpError;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
/// One step of the world, seconds: a probe, a heartbeat, a decision.
const STEP_S: i64 = 2;
/// How long things go wrong, and how long they are then left alone, seconds.
const TROUBLE_S: i64 = 1200;
const QUIET_S: i64 = 1500;
/// The clock of every host at the beginning.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// How old the knowledge of a guard may be: a heartbeat is used for 5 s, a probe is one step old.
const STALE_S: i64 = 10;

/// The components, each by the fault that it has when it does not serve.
const COMPONENTS: [FaultKind; 5] = [
    FaultKind::EtcdFrozen,
    FaultKind::ApiFrozen,
    FaultKind::KubeletFrozen,
    FaultKind::RuntimeFrozen,
    FaultKind::BalancerFrozen,
];

/// How a component is. Times are seconds since the beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Health {
    /// It serves.
    Works(i64),
    /// A signal suspended it.
    Suspended,
    /// It runs, does not answer its health check, and may still do its work.
    Hung,
    /// It is starting, until this time.
    Starting(i64),
    /// It ended, and systemd does not start it.
    Failed,
    /// A person stopped it.
    Stopped(i64),
    /// A person disabled it.
    Disabled,
}

/// Something that goes wrong, or right again.
#[derive(Debug, Clone)]
enum Event {
    /// A component gets another health.
    Becomes(usize, usize, Health),
    /// What starts a component fails, until it is mended.
    Broken(usize, usize, bool),
    /// A host loses power for so long, seconds.
    Off(usize, i64),
    /// Heartbeats of the first do not reach the second.
    Cut(usize, usize, bool),
    /// A person holds a host.
    Held(usize, bool),
    /// A run has the lock of a host.
    Locked(usize, bool),
    /// The guard is killed, and started again.
    Killed(usize),
    /// The clock jumps, seconds.
    Clock(usize, i64),
}

/// What a guard weighs, falsified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// No hold is seen.
    Hold,
    /// The lock is always free.
    Lock,
    /// Every component seems to run for long.
    Runs,
    /// Every member seems to serve.
    Quorum,
    /// Records are forgotten.
    Records,
    /// A raised fault counts as seen.
    Seen,
    /// What others repair is not heard.
    Turn,
}

/// Each, and the laws of which one must fail by it.
const MUTANTS: [(Mutant, &[&str]); 7] = [
    (Mutant::Hold, &["the host is held"]),
    (Mutant::Lock, &["a run has the lock"]),
    (Mutant::Runs, &["a person disabled it", "a person stopped it", "it is starting"]),
    (Mutant::Quorum, &["quorum"]),
    (Mutant::Records, &["twice in a minute"]),
    (Mutant::Seen, &["it serves"]),
    (Mutant::Turn, &["out of turn"]),
];

#[derive(Debug)]
struct SimHost {
    health: [Health; COMPONENTS.len()],
    /// When each last served, seconds.
    good: [i64; COMPONENTS.len()],
    /// When each last did not serve, seconds.
    bad: [i64; COMPONENTS.len()],
    broken: [bool; COMPONENTS.len()],
    off_until: i64,
    held: bool,
    locked: bool,
    clock_ms: i64,
    /// Until when the present boot and the present clock are new to the laws about time.
    jumped: bool,
}

/// A step of a guard: when, where, what for, and whether it was suspended.
#[derive(Debug, Clone, PartialEq)]
struct Did {
    at: i64,
    host: usize,
    component: usize,
    suspended: bool,
}

/// The world, without the guards.
struct World {
    at: i64,
    hosts: Vec<SimHost>,
    /// Whether heartbeats of the first reach the second.
    reaches: [[bool; HOSTS]; HOSTS],
    /// When the other members of each last were a quorum without it, seconds.
    others_had: [i64; HOSTS],
    did: Vec<Did>,
    broke: Vec<String>,
    mutant: Mutant,
}

impl World {
    fn is_on(&self, host: usize) -> bool {
        self.at >= self.hosts[host].off_until
    }
    /// Whether the member takes part in consensus: one whose health check hangs still does.
    fn votes(&self, host: usize) -> bool {
        self.is_on(host) && matches!(self.hosts[host].health[0], Health::Works(_) | Health::Hung)
    }
    fn voters(&self, without: Option<usize>) -> usize {
        (0..HOSTS).filter(|host| Some(*host) != without && self.votes(*host)).count()
    }
    fn has_quorum(&self) -> bool {
        self.voters(None) > HOSTS / 2
    }
    /// Whether a component answers. Without etcd an API server may be silent, too.
    fn answers(&self, host: usize, component: usize) -> bool {
        let works = matches!(self.hosts[host].health[component], Health::Works(_));
        works && (COMPONENTS[component] != FaultKind::ApiFrozen || self.has_quorum())
    }
    fn now(&self, host: usize) -> Now {
        let steady = Duration::from_secs(u64::try_from(self.at).unwrap());
        Now { steady, wall_ms: BEGIN_MS + self.at * 1000 + self.hosts[host].clock_ms }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Becomes(host, component, health) => {
                self.hosts[host].health[component] = match health {
                    Health::Stopped(_) => Health::Stopped(self.at),
                    other => other,
                }
            }
            Event::Broken(host, component, broken) => self.hosts[host].broken[component] = broken,
            Event::Off(host, seconds) => {
                let off = &mut self.hosts[host];
                (off.off_until, off.locked, off.jumped) = (self.at + seconds, false, true);
                off.health = off.health.map(|health| match health {
                    Health::Disabled => Health::Disabled,
                    _ => Health::Starting(self.at + seconds + 10),
                });
            }
            Event::Cut(from, to, cut) => self.reaches[from][to] = !cut,
            Event::Held(host, held) => self.hosts[host].held = held,
            Event::Locked(host, locked) => self.hosts[host].locked = locked,
            Event::Killed(_) => {}
            Event::Clock(host, seconds) => {
                let moved = &mut self.hosts[host];
                (moved.clock_ms, moved.jumped) = (moved.clock_ms + seconds * 1000, true);
            }
        }
    }

    /// Lets time pass for components.
    fn passes(&mut self) {
        self.at += STEP_S;
        for host in 0..HOSTS {
            for component in 0..COMPONENTS.len() {
                if let Health::Starting(until) = self.hosts[host].health[component]
                    && self.at >= until
                {
                    let broken = self.hosts[host].broken[component];
                    self.hosts[host].health[component] = if broken { Health::Failed } else { Health::Works(self.at) };
                }
                let at = self.at;
                if self.answers(host, component) {
                    self.hosts[host].good[component] = at;
                } else {
                    self.hosts[host].bad[component] = at;
                }
            }
            if self.voters(Some(host)) > HOSTS / 2 {
                self.others_had[host] = self.at;
            }
        }
    }

    /// Checks the laws for a step that begins.
    fn check(&mut self, host: usize, component: usize) {
        let (at, own) = (self.at, &self.hosts[host]);
        let health = own.health[component];
        let kind = COMPONENTS[component];
        let mut broke = Vec::new();
        let mut law = |holds: bool, what: &str| {
            if !holds {
                broke.push(format!("{at} s, host {host}, {kind}, {health:?}: {what}"));
            }
        };
        law(!own.held, "the host is held");
        law(!own.locked, "a run has the lock of the host");
        law(health != Health::Disabled, "a person disabled it");
        law(!matches!(health, Health::Starting(_)), "it is starting");
        if let Health::Stopped(since) = health {
            law(own.jumped || at - since >= STOPPED_FOR_MS / 1000, "a person stopped it");
        }
        law(!self.answers(host, component) || at - own.bad[component] <= STALE_S, "it serves");
        if kind == FaultKind::ApiFrozen && matches!(health, Health::Works(_)) {
            law(self.has_quorum(), "etcd has no quorum");
        }
        if kind == FaultKind::EtcdFrozen && health == Health::Hung {
            let takes = self.has_quorum() && self.voters(Some(host)) <= HOSTS / 2;
            law(!takes || at - self.others_had[host] <= STALE_S, "quorum needs it");
        }
        let mine = self.did.iter().filter(|did| did.host == host && did.component == component);
        let ages: Vec<i64> = mine.map(|did| at - did.at).collect();
        let often = ages.iter().filter(|age| **age < WINDOW_MS / 1000).count();
        law(own.jumped || often < 3, "three times in ten minutes");
        law(own.jumped || ages.iter().all(|age| *age >= BETWEEN_MS / 1000), "twice in a minute");
        let suspended = health == Health::Suspended;
        let heard = |other: usize| self.reaches[other][host] && self.is_on(other);
        let together = self.did.iter().any(|did| {
            let begun = did.host != host && did.component == component && !did.suspended && at - did.at < 20;
            begun && heard(did.host) && !self.answers(did.host, component)
        });
        let turns = matches!(kind, FaultKind::EtcdFrozen | FaultKind::ApiFrozen) && !suspended;
        // Others may delay a repair by a minute for each host, and no longer.
        let delayed = at - own.good[component] > 3 * BETWEEN_MS / 1000;
        law(!turns || !together || delayed || self.hosts.iter().any(|host| host.jumped), "out of turn");
        self.broke.extend(broke);
        self.did.push(Did { at, host, component, suspended });
    }
}

/// The own host of a guard.
struct Own<'a> {
    world: &'a RefCell<World>,
    host: usize,
}

/// The component of a fault; a wrong clock has none.
fn component_of(kind: FaultKind) -> Option<usize> {
    COMPONENTS.iter().position(|component| *component == kind)
}

impl LocalHost for Own<'_> {
    type Lock = ();

    async fn runs(&self, kind: FaultKind) -> Result<Option<Runs>, OpError> {
        let world = self.world.borrow();
        let Some(component) = component_of(kind) else { return Ok(None) };
        let wall = |at: i64| world.now(self.host).wall_ms - (world.at - at) * 1000;
        if world.mutant == Mutant::Runs {
            return Ok(Some(Runs::Since(wall(world.at - 10_000))));
        }
        Ok(Some(match world.hosts[self.host].health[component] {
            Health::Works(since) => Runs::Since(wall(since)),
            Health::Suspended => Runs::Suspended,
            Health::Hung => Runs::Since(wall(world.at - 10_000)),
            Health::Starting(_) => Runs::Changing,
            Health::Failed => Runs::Failed,
            Health::Stopped(since) => Runs::Stopped(wall(since)),
            Health::Disabled => Runs::Disabled,
        }))
    }

    async fn is_usable(&self) -> bool {
        true
    }

    fn hold(&self, _: i64) -> Option<Hold> {
        let world = self.world.borrow();
        (world.hosts[self.host].held && world.mutant != Mutant::Hold).then(Hold::unnamed)
    }

    fn retry_ms(&self) -> i64 {
        i64::MIN
    }

    async fn lock(&self, _: FaultKind, _: LocalStep) -> Result<Result<(), String>, OpError> {
        let world = self.world.borrow();
        let locked = world.hosts[self.host].locked && world.mutant != Mutant::Lock;
        Ok(if locked { Err("a run".to_owned()) } else { Ok(()) })
    }

    async fn perform(&self, (kind, _, _): (FaultKind, LocalStep, Option<HostName>), (): &()) -> Result<(), OpError> {
        let mut world = self.world.borrow_mut();
        let Some(component) = component_of(kind) else {
            assert_eq!(kind, FaultKind::ClockSkew, "no other fault of this world has a step");
            let own = &mut world.hosts[self.host];
            (own.clock_ms, own.jumped) = (0, true);
            return Ok(());
        };
        world.check(self.host, component);
        // An API server needs many seconds to start.
        let until = world.at + if kind == FaultKind::ApiFrozen { 13 } else { 3 };
        world.hosts[self.host].health[component] = Health::Starting(until);
        Ok(())
    }

    fn switched(&self) -> Switched {
        Switched::Nothing
    }
}

/// A guard, with what outlives it.
struct Guard {
    shared: Shared,
    repairs: Repairs,
}

impl Guard {
    fn start(policy: &Policy, host: usize, book: Book, now: Now) -> Self {
        let setup = setup(policy, &format!("cp{}", host + 1));
        let shared = Shared {
            own: setup.own.clone(),
            guards: policy.guards.clone(),
            api_port: policy.api_port,
            state: Mutex::new(State::new(Setup { started: now, ..setup })),
            begun: Instant::now(),
            said: Mutex::default(),
            refused: Mutex::default(),
            say: |_| (),
            events: tokio::sync::mpsc::channel(1).0,
        };
        Self { shared, repairs: Repairs::of(book) }
    }

    /// Whether it has given up a component, or leaves it alone because another host's member is missing.
    fn gave_up(&self, kind: FaultKind, now: Now) -> bool {
        let gave_up = |decided: &Decided| {
            decided.kind == kind
                && matches!(
                    decided.decision,
                    Decision::GaveUp { .. } | Decision::HeldBack { gate: Gate::Quorum { .. } | Gate::NoQuorum, .. }
                )
        };
        self.shared.with(|state| state.report(now)).decided.iter().any(gave_up)
    }
}

/// Plays events, then peace, and returns what broke a law.
fn play(events: &[(i64, Event)], mutant: Mutant) -> Vec<String> {
    let mut desired = sample(u8::try_from(HOSTS).unwrap());
    desired.healing.mode = Mode::On;
    // Without a VIP: the world has none.
    let policy = Policy { vip: None, ..Policy::of(&desired) };
    let fresh = || SimHost {
        health: [Health::Works(-1000); COMPONENTS.len()],
        good: [0; COMPONENTS.len()],
        bad: [-1000; COMPONENTS.len()],
        broken: [false; COMPONENTS.len()],
        off_until: 0,
        held: false,
        locked: false,
        clock_ms: 0,
        jumped: false,
    };
    let hosts = (0..HOSTS).map(|_| fresh()).collect();
    let reaches = [[true; HOSTS]; HOSTS];
    let world = World { at: 0, hosts, reaches, others_had: [0; HOSTS], did: vec![], broke: vec![], mutant };
    let world = RefCell::new(world);
    let mut guards: Vec<Option<Guard>> =
        (0..HOSTS).map(|host| Some(Guard::start(&policy, host, Book::in_memory(), world.borrow().now(host)))).collect();
    let mut books: BTreeMap<usize, Book> = BTreeMap::new();
    let mut left = events.iter().peekable();
    loop {
        let at = world.borrow().at;
        while let Some((_, event)) = left.next_if(|(due, _)| *due <= at) {
            world.borrow_mut().happens(event);
            if let Event::Killed(host) | Event::Off(host, _) = event
                && let Some(killed) = guards[*host].take()
            {
                books.insert(*host, killed.repairs.into_book());
            }
        }
        if at == TROUBLE_S {
            peace(&mut world.borrow_mut());
        }
        for (host, guard) in guards.iter_mut().enumerate() {
            if guard.is_none() && world.borrow().is_on(host) {
                let book = books.remove(&host).expect("its book outlived it");
                *guard = Some(Guard::start(&policy, host, book, world.borrow().now(host)));
            }
        }
        second(&policy, &world, &mut guards);
        world.borrow_mut().passes();
        if !world.borrow().broke.is_empty() || at > TROUBLE_S + QUIET_S {
            break;
        }
    }
    let mut world = world.into_inner();
    if world.broke.is_empty() {
        for (host, guard) in guards.iter().enumerate() {
            for (component, kind) in COMPONENTS.into_iter().enumerate() {
                let now = world.now(host);
                let gave_up = guard.as_ref().is_some_and(|guard| guard.gave_up(kind, now));
                if !world.answers(host, component) && !gave_up {
                    let health = world.hosts[host].health[component];
                    world.broke.push(format!("in the end, host {host}: {kind} is not repaired: {health:?}"));
                }
            }
        }
    }
    world.broke
}

/// Persons go home: nothing is held, locked, cut, disabled, stopped or broken any more.
fn peace(world: &mut World) {
    world.reaches = [[true; HOSTS]; HOSTS];
    for host in &mut world.hosts {
        (host.held, host.locked, host.broken) = (false, false, [false; COMPONENTS.len()]);
        host.health = host.health.map(|health| match health {
            Health::Disabled => Health::Failed,
            other => other,
        });
    }
}

/// A step of every guard that runs: probes, heartbeats, conclusions, and the repair that is due.
fn second(policy: &Policy, world: &RefCell<World>, guards: &mut [Option<Guard>]) {
    let mutant = world.borrow().mutant;
    for (host, guard) in guards.iter().enumerate() {
        let Some(Guard { shared, .. }) = guard else { continue };
        let world = world.borrow();
        let now = world.now(host);
        for (component, kind) in COMPONENTS.into_iter().enumerate() {
            let stale = mutant == Mutant::Seen && world.at - world.hosts[host].bad[component] <= 30;
            let found = stale || !world.answers(host, component);
            let found: Vec<_> = found.then(|| (kind, "silent".to_owned())).into_iter().collect();
            shared.with(|state| state.probed(&[kind], &found, now));
        }
        let serves = mutant == Mutant::Quorum || world.votes(host) && world.has_quorum();
        shared.with(|state| state.serves(Some(serves)));
    }
    let beat = |(host, guard): (usize, &Option<Guard>)| {
        guard.as_ref().map(|guard| guard.shared.with(|state| state.heartbeat(world.borrow().now(host))))
    };
    let sent: Vec<Option<Heartbeat>> = guards.iter().enumerate().map(beat).collect();
    for (host, guard) in guards.iter_mut().enumerate() {
        let Some(Guard { shared, repairs }) = guard else { continue };
        let now = world.borrow().now(host);
        for (from, beat) in sent.iter().enumerate() {
            let heard = from != host && world.borrow().reaches[from][host];
            if let Some(mut beat) = beat.clone().filter(|_| heard) {
                if mutant == Mutant::Turn {
                    beat.repairing.clear();
                }
                let from = name(&format!("cp{}", from + 1));
                shared.with(|state| state.received(&from, beat, now)).expect("a guard's own heartbeat is plausible");
            }
        }
        shared.with(|state| state.judge(now));
        if mutant == Mutant::Records {
            *repairs = Repairs::of(Book::in_memory());
        }
        futures::executor::block_on(repairs.turn(shared, policy, &Own { world, host }, now));
    }
}

fn health() -> impl Strategy<Value = Health> {
    prop_oneof![
        4 => Just(Health::Suspended),
        4 => Just(Health::Hung),
        2 => Just(Health::Failed),
        1 => Just(Health::Stopped(0)),
        1 => Just(Health::Disabled),
        2 => Just(Health::Works(0)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let host = || 0..HOSTS;
    let component = 0..COMPONENTS.len();
    prop_oneof![
        10 => (host(), component.clone(), health()).prop_map(|(host, component, health)| {
            Event::Becomes(host, component, health)
        }),
        2 => (host(), component, any::<bool>()).prop_map(|(host, component, is)| Event::Broken(host, component, is)),
        1 => (host(), 20_i64..200).prop_map(|(host, seconds)| Event::Off(host, seconds)),
        2 => (host(), host(), any::<bool>()).prop_map(|(from, to, cut)| Event::Cut(from, to, cut)),
        2 => (host(), any::<bool>()).prop_map(|(host, held)| Event::Held(host, held)),
        2 => (host(), any::<bool>()).prop_map(|(host, locked)| Event::Locked(host, locked)),
        2 => host().prop_map(Event::Killed),
        1 => (host(), -4000_i64..4000).prop_map(|(host, seconds)| Event::Clock(host, seconds)),
    ]
}

fn events() -> impl Strategy<Value = Vec<(i64, Event)>> {
    prop::collection::vec((0..TROUBLE_S / STEP_S, event()), 1..40).prop_map(|mut events| {
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(at, event)| (at * STEP_S, event)).collect()
    })
}

/// The cut plays a third of the cases.
fn cases() -> u32 {
    if std::env::var_os("HACTL_ALL_CASES").is_some() { 600 } else { 200 }
}

#[test]
fn guards_repair_what_they_can_and_break_no_law() {
    // The same cases in each run: a rare one must not fail the work of somebody else.
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let played = runner.run(&events(), |events| {
        let broke = play(&events, Mutant::None);
        if broke.is_empty() { Ok(()) } else { Err(TestCaseError::fail(format!("{broke:#?}"))) }
    });
    played.unwrap_or_else(|broke| panic!("{broke}"));
}

#[test]
fn without_any_one_thing_that_guards_weigh_some_law_fails() {
    let mut runner = TestRunner::deterministic();
    let mut left = MUTANTS.to_vec();
    for _ in 0..4 * cases() {
        let events = events().new_tree(&mut runner).expect("a strategy without filters").current();
        if !play(&events, Mutant::None).is_empty() {
            continue;
        }
        left.retain(|(mutant, laws)| {
            let broke = play(&events, *mutant);
            !broke.iter().any(|law| laws.iter().any(|words| law.contains(words)))
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("no law notices that these are missing: {left:?}");
}
