//! Guards that switch the power of a host, in a simulated world: hosts lose power, hang, boot slowly and fail again.
//! The guards' own state, decisions and records are the real ones; the world plays the program that they start.

use super::{name, setup};
use crate::guard::book::Book;
use crate::guard::ledger::Now;
use crate::guard::repair::{LocalHost, Repairs};
use crate::guard::shared::Shared;
use crate::guard::state::{Setup, State};
use crate::model::desired::sample;
use crate::model::fault::FaultKind;
use crate::model::healing::{Mode, Policy, Reboot};
use crate::model::hold::Hold;
use crate::model::names::HostName;
use crate::model::repair::{Decision, Gate, LocalStep, Outcome, RepairRecord, Runs, Switched};
use crate::protocol::{OpError, OpErrorKind};
use std::cell::RefCell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
const BEGIN_MS: i64 = 1_700_000_000_000;
/// From power to the first heartbeat, seconds.
const BOOTS: u64 = 60;

/// How a host is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Host {
    /// It is heard from this second on.
    Runs(u64),
    Off,
    Hangs,
}

struct World {
    at: u64,
    hosts: [Host; HOSTS],
    boots: [u32; HOSTS],
    held: [bool; HOSTS],
    /// What the plug-in says instead of doing anything.
    broken: &'static str,
    last: Switched,
    /// When, by which host, for which one, and what.
    did: Vec<(u64, usize, usize, Switched)>,
}

impl World {
    fn is_heard(&self, host: usize) -> bool {
        matches!(self.hosts[host], Host::Runs(from) if from <= self.at)
    }

    fn now(&self) -> Now {
        let steady = Duration::from_secs(self.at);
        Now { steady, wall_ms: BEGIN_MS + i64::try_from(self.at).unwrap() * 1000 }
    }

    /// What the program does, once all others agree.
    fn switch(&mut self, by: usize, host: usize, silent_s: u64) -> Result<(), OpError> {
        assert!(by != host && !self.is_heard(host) && silent_s >= 180, "{by} switches {host} at {} s", self.at);
        if !self.broken.is_empty() {
            self.last = Switched::Nothing;
            return Err(OpError { kind: OpErrorKind::Failed, what: self.broken.to_owned(), tail: vec![] });
        }
        self.last = match self.hosts[host] {
            Host::Off => Switched::On,
            _ if silent_s >= 600 => Switched::Cycled,
            _ => Switched::LeftOn,
        };
        self.did.push((self.at, by, host, self.last));
        if self.last.may_have_changed() {
            self.hosts[host] = Host::Runs(self.at + BOOTS);
            self.boots[host] += 1;
        }
        Ok(())
    }
}

struct Own<'a> {
    world: &'a RefCell<World>,
    shared: &'a Shared,
    host: usize,
}

impl LocalHost for Own<'_> {
    type Lock = ();

    async fn runs(&self, _: FaultKind) -> Result<Option<Runs>, OpError> {
        Ok(Some(Runs::Stopped(0)))
    }
    async fn is_usable(&self) -> bool {
        true
    }
    fn hold(&self, _: i64) -> Option<Hold> {
        self.world.borrow().held[self.host].then(Hold::unnamed)
    }
    fn retry_ms(&self) -> i64 {
        i64::MIN
    }
    async fn lock(&self, _: FaultKind, _: LocalStep) -> Result<Result<(), String>, OpError> {
        Ok(Ok(()))
    }
    async fn perform(&self, what: (FaultKind, LocalStep, Option<HostName>), (): &()) -> Result<(), OpError> {
        let (FaultKind::PowerDue, LocalStep::Power, Some(of)) = what else { panic!("{what:?}") };
        let report = self.shared.with(|state| state.report(self.world.borrow().now()));
        let unreachable =
            report.presumed.iter().find(|f| f.kind == FaultKind::HostUnreachable && f.host == of).unwrap();
        let silent_s = u64::try_from(report.at_ms - unreachable.since_ms).unwrap() / 1000;
        let host = (0..HOSTS).find(|host| name(&format!("cp{}", host + 1)) == of).unwrap();
        self.world.borrow_mut().switch(self.host, host, silent_s)
    }
    fn switched(&self) -> Switched {
        self.world.borrow().last
    }
}

struct Cluster {
    policy: Policy,
    world: RefCell<World>,
    guards: Vec<(Shared, Repairs)>,
}

impl Cluster {
    fn new() -> Self {
        let mut desired = sample(u8::try_from(HOSTS).unwrap());
        (desired.healing.mode, desired.healing.reboot) = (Mode::On, Reboot::Power);
        desired.hosts.iter_mut().for_each(|host| host.power = Some("bmc".parse().unwrap()));
        let policy = Policy { vip: None, ..Policy::of(&desired) };
        let world = World {
            at: 0,
            hosts: [Host::Runs(0); HOSTS],
            boots: [0; HOSTS],
            held: [false; HOSTS],
            broken: "",
            last: Switched::Nothing,
            did: vec![],
        };
        let guards = (1..=HOSTS).map(|host| {
            let setup = setup(&policy, &format!("cp{host}"));
            let shared = Shared {
                own: setup.own.clone(),
                guards: policy.guards.clone(),
                api_port: policy.api_port,
                state: Mutex::new(State::new(Setup { started: world.now(), ..setup })),
                begun: Instant::now(),
                said: Mutex::default(),
                refused: Mutex::default(),
                say: |_| (),
                events: tokio::sync::mpsc::channel(1).0,
            };
            (shared, Repairs::of(Book::in_memory()))
        });
        Self { guards: guards.collect(), policy, world: RefCell::new(world) }
    }

    /// Lets so many seconds pass.
    fn passes(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.world.borrow_mut().at += 1;
            let (now, heard) = {
                let world = self.world.borrow();
                (world.now(), [0, 1, 2].map(|host| world.is_heard(host)))
            };
            let beats: Vec<_> = self
                .guards
                .iter()
                .zip(self.world.borrow().boots)
                .map(|((shared, _), boot)| {
                    let mut beat = shared.with(|state| state.heartbeat(now));
                    beat.boot = format!("{boot:08x}");
                    beat
                })
                .collect();
            for (host, (shared, repairs)) in self.guards.iter_mut().enumerate().filter(|(host, _)| heard[*host]) {
                for (from, beat) in beats.iter().enumerate().filter(|(from, _)| *from != host) {
                    let from_name = name(&format!("cp{}", from + 1));
                    shared.with(|state| state.dialled(&from_name, heard[from]));
                    if heard[from] {
                        shared.with(|state| state.received(&from_name, beat.clone(), now)).unwrap();
                    }
                }
                let serving = heard.iter().filter(|heard| **heard).count() >= 2;
                shared.with(|state| state.serves(Some(serving)));
                shared.with(|state| state.judge(now));
                let own = Own { world: &self.world, shared, host };
                futures::executor::block_on(repairs.turn(shared, &self.policy, &own, now));
            }
        }
    }

    fn becomes(&self, host: usize, is: Host) {
        self.world.borrow_mut().hosts[host] = is;
    }

    fn did(&self) -> Vec<(usize, usize, Switched)> {
        self.world.borrow().did.iter().map(|(_, by, host, what)| (*by, *host, *what)).collect()
    }

    fn decision(&self, host: usize) -> Option<Decision> {
        let report = self.guards[host].0.with(|state| state.report(self.world.borrow().now()));
        report.decided.into_iter().find(|decided| decided.kind == FaultKind::PowerDue).map(|decided| decided.decision)
    }

    fn records(self, host: usize) -> Vec<RepairRecord> {
        self.guards.into_iter().nth(host).unwrap().1.into_book().records().to_vec()
    }
}

#[test]
fn a_host_that_lost_its_power_is_switched_on_once_it_is_unreachable_by_one_guard() {
    for (host, by) in [(2, 0), (0, 1)] {
        let mut cluster = Cluster::new();
        cluster.passes(100);
        cluster.becomes(host, Host::Off);
        cluster.passes(180);
        assert_eq!(cluster.did(), [], "it is not unreachable yet");
        cluster.passes(30);
        assert_eq!(cluster.did(), [(by, host, Switched::On)]);
        cluster.passes(400);
        assert_eq!(cluster.did().len(), 1);
        let [record] = &cluster.records(by)[..] else { panic!("one record") };
        let of = record.power.as_ref().map(|power| (power.host.to_string(), power.switched));
        assert_eq!(of, Some((format!("cp{}", host + 1), Switched::On)));
        assert!(matches!(record.outcome, Outcome::Helped(ms) if ms >= 60_000), "{record:?}");
    }
}

#[test]
fn a_host_that_hangs_is_looked_at_and_power_cycled_once_it_counts_as_dead() {
    let mut cluster = Cluster::new();
    cluster.passes(100);
    cluster.becomes(2, Host::Hangs);
    cluster.passes(600);
    assert_eq!(cluster.did(), [(0, 2, Switched::LeftOn)]);
    assert!(matches!(cluster.decision(0), Some(Decision::Wait { .. })), "{:?}", cluster.decision(0));
    cluster.passes(30);
    assert_eq!(cluster.did(), [(0, 2, Switched::LeftOn), (0, 2, Switched::Cycled)]);
    cluster.passes(400);
    assert!(cluster.records(0).iter().all(|record| matches!(record.outcome, Outcome::Helped(_))));
}

#[test]
fn one_that_fails_again_is_switched_once_an_hour_and_left_to_a_person_after_two() {
    let mut cluster = Cluster::new();
    cluster.passes(100);
    cluster.becomes(2, Host::Off);
    cluster.passes(600);
    cluster.becomes(2, Host::Off);
    cluster.passes(3000);
    assert_eq!(cluster.did().len(), 1, "not twice in an hour");
    cluster.passes(600);
    assert_eq!(cluster.did(), [(0, 2, Switched::On); 2]);
    cluster.passes(300);
    cluster.becomes(2, Host::Off);
    cluster.passes(2 * 3600);
    assert_eq!(cluster.did().len(), 2);
    assert_eq!(cluster.decision(0), Some(Decision::GaveUp { step: LocalStep::Power, tries: 2 }));
}

/// With this guard paused, the third host goes silent.
fn nothing_is_switched_while_paused(paused: usize) {
    let mut cluster = Cluster::new();
    cluster.world.borrow_mut().held[paused] = true;
    cluster.passes(100);
    cluster.becomes(2, Host::Off);
    cluster.passes(1000);
    assert_eq!(cluster.did(), []);
    assert_eq!(cluster.decision(0), Some(Decision::HeldBack { step: LocalStep::Power, gate: Gate::Hold }));
}

#[test]
fn a_pause_of_the_guard_that_would_act_holds_it_back() {
    nothing_is_switched_while_paused(0);
}

#[test]
fn a_host_that_was_paused_before_it_went_silent_is_left_alone() {
    nothing_is_switched_while_paused(2);
}

#[test]
fn with_two_hosts_silent_there_is_no_quorum_and_nothing_is_switched() {
    let mut cluster = Cluster::new();
    cluster.passes(100);
    cluster.becomes(1, Host::Off);
    cluster.becomes(2, Host::Hangs);
    cluster.passes(3000);
    assert_eq!(cluster.did(), []);
}

#[test]
fn why_a_plug_in_does_nothing_is_part_of_the_fault() {
    let mut cluster = Cluster::new();
    cluster.world.borrow_mut().broken = "bmc status printed \"maybe\", neither on nor off";
    cluster.passes(100);
    cluster.becomes(2, Host::Off);
    cluster.passes(300);
    let report = cluster.guards[0].0.with(|state| state.report(cluster.world.borrow().now()));
    let fault = report.presumed.iter().find(|fault| fault.kind == FaultKind::PowerDue).unwrap();
    let said = "cp1 switches it by its plug-in bmc; the last attempt failed: bmc status printed \"maybe\"";
    assert!(fault.host == name("cp3") && fault.evidence.starts_with(said), "{fault:?}");
    assert!(matches!(cluster.decision(0), Some(Decision::Wait { .. })));
    cluster.world.borrow_mut().broken = "";
    cluster.passes(600);
    assert_eq!(cluster.did(), [(0, 2, Switched::On)], "the plug-in was mended");
}
