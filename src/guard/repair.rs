//! Repairs on the own host, one at a time: each second, what the guard does about each fault of its host is decided,
//! and the first step that is due is performed. A fault may also be that it is to switch the power of another host.
//!
//! In: the shared state, the records of [`Book`], how components run. Out: decisions for the report, steps on the host,
//! records.

use super::book::Book;
use super::events::{Occurrence, Reason};
use super::figures::Effect;
use super::ledger::Now;
use super::shared::Shared;
use crate::agent::{self, Root, StepLock, probe};
use crate::model::duration::human_duration;
use crate::model::fault::{Fault, FaultKind, evidence};
use crate::model::healing::{GuardedHost, Policy};
use crate::model::hold::Hold;
use crate::model::names::HostName;
use crate::model::repair::{
    Decided, Decision, Gate, LocalStep, Outcome, Power, RepairRecord, Runs, Switched, deed, done,
};
use crate::plan::local_repair::{self, Situation};
use crate::plan::power::Silent;
use crate::plan::votes::Votes;
use crate::protocol::OpError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Between two decisions.
const EVERY: Duration = Duration::from_secs(1);

/// So long after its start a guard has seen each fault for its delay.
const SETTLED: Duration = Duration::from_secs(60);

/// After this time, each probe of etcd has looked again: a member that is defragmented answers none meanwhile, and is
/// not frozen.
const LOOKED_AGAIN: Duration = Duration::from_secs(6);

/// The own host: what can be asked of it, and done on it.
pub(super) trait LocalHost {
    /// The lock of the host for one step.
    type Lock;
    /// How the component of a fault runs; `None`: the fault is about none.
    async fn runs(&self, kind: FaultKind) -> Result<Option<Runs>, OpError>;
    /// Whether the load balancer has a usable API server.
    async fn is_usable(&self) -> bool;
    /// The hold of a person.
    fn hold(&self, now_ms: i64) -> Option<Hold>;
    /// Attempts before this time do not count, milliseconds since 1970.
    fn retry_ms(&self) -> i64;
    /// Takes the lock; `Err` inside: the holder.
    async fn lock(&self, kind: FaultKind, step: LocalStep) -> Result<Result<Self::Lock, String>, OpError>;
    /// Performs a step, under the lock; the lead is handed over to a host, or the power of a host is switched.
    async fn perform(&self, what: (FaultKind, LocalStep, Option<HostName>), lock: &Self::Lock) -> Result<(), OpError>;
    /// What the last [`LocalStep::Power`] has done.
    fn switched(&self) -> Switched;
}

/// This host.
struct Here {
    root: Root,
    policy: Policy,
    own: GuardedHost,
}

impl LocalHost for Here {
    type Lock = StepLock;

    async fn runs(&self, kind: FaultKind) -> Result<Option<Runs>, OpError> {
        agent::runs(&self.root, &self.policy, &self.own, kind).await
    }
    async fn is_usable(&self) -> bool {
        probe::is_usable().await
    }
    fn hold(&self, now_ms: i64) -> Option<Hold> {
        agent::hold(&self.root, &self.own.name, now_ms)
    }
    fn retry_ms(&self) -> i64 {
        super::book::retry_ms(&self.root)
    }
    async fn lock(&self, kind: FaultKind, step: LocalStep) -> Result<Result<StepLock, String>, OpError> {
        agent::lock_for(&self.root, kind, step).await
    }
    async fn perform(&self, what: (FaultKind, LocalStep, Option<HostName>), lock: &StepLock) -> Result<(), OpError> {
        agent::repair(&self.root, &self.policy, &self.own, what, lock).await
    }
    fn switched(&self) -> Switched {
        agent::power_of(&self.root).map_or(Switched::Unknown, |power| power.switched)
    }
}

/// Repairs until the guard ends.
pub(super) async fn keep(shared: Arc<Shared>, root: Root, policy: Policy) {
    let mut repairs = Repairs::of(Book::open(&root));
    let here = Here { root, policy, own: shared.own.clone() };
    let mut turn = super::shared::turns(EVERY);
    loop {
        turn.tick().await;
        let step = repairs.turn(&shared, &here.policy, &here, shared.now()).await;
        if step == Some(LocalStep::FreeEtcdSpace) {
            turn.reset_after(LOOKED_AGAIN);
        }
    }
}

/// What all decisions of a turn weigh.
struct Around {
    hold: Option<Hold>,
    retry_ms: i64,
    etcd: BTreeMap<HostName, bool>,
    unwell: Option<HostName>,
    silent: Vec<Silent>,
    votes: Votes,
    repairing: BTreeMap<HostName, Vec<FaultKind>>,
}

impl Around {
    fn of(shared: &Shared, host: &impl LocalHost, now: Now) -> Self {
        let (etcd, repairing) = shared.with(|state| state.around(now));
        let votes = shared.with(|state| state.votes(now));
        let unwell = shared.with(|state| state.unwell(now));
        let silent = shared.with(|state| state.silent(now));
        Self { votes, unwell, silent, hold: host.hold(now.wall_ms), retry_ms: host.retry_ms(), etcd, repairing }
    }
}

/// What outlives a turn.
pub(super) struct Repairs {
    book: Book,
    /// The holder of the lock, when it was last wanted.
    locked_by: Option<String>,
    /// Since when repairs of other hosts have held back the one for a fault.
    waits: BTreeMap<FaultKind, Duration>,
}

impl Repairs {
    /// With the records of the host.
    pub fn of(book: Book) -> Self {
        Self { book, locked_by: None, waits: BTreeMap::new() }
    }

    /// The records.
    #[cfg(test)]
    pub fn into_book(self) -> Book {
        self.book
    }

    /// Decides about each fault, and performs the first step that is due. Returns the step that it performed.
    pub async fn turn(
        &mut self,
        shared: &Shared,
        policy: &Policy,
        host: &impl LocalHost,
        now: Now,
    ) -> Option<LocalStep> {
        let faults = shared.with(|state| state.lasting_here());
        let seen = shared.with(|state| state.seen_here());
        // A guard that has just started, as after a reboot, has seen no fault for its delay yet: it cannot judge what the
        // one before it did.
        let started_ms = now.wall_ms.saturating_sub(i64::try_from(now.steady.as_millis()).unwrap_or(i64::MAX));
        let settled = now.steady >= SETTLED;
        // Of several attempts, the later ones win.
        let last: BTreeMap<_, _> = self.book.records().iter().map(|record| (record.kind, record.begun_ms)).collect();
        let mut helped = Vec::new();
        let over = |record: &RepairRecord| {
            // A guard that was killed during a step left it open.
            let may_help = matches!(record.outcome, Outcome::Done | Outcome::Open);
            let looked = settled || record.begun_ms >= started_ms;
            let is_over = match &record.power {
                Some(power) => shared.with(|state| state.hears(&power.host, now)),
                None => looked && !seen.contains(&record.kind),
            };
            (is_over && may_help).then(|| {
                helped.push((record.clone(), last.get(&record.kind) == Some(&record.begun_ms)));
                Outcome::Helped(now.wall_ms.saturating_sub(record.begun_ms))
            })
        };
        shared.warn(self.book.go_on(over));
        for (record, is_last) in helped {
            // An earlier one is counted already.
            if is_last {
                shared.with(|state| state.figures.count(record.kind, record.step, Effect::Helped));
            }
            let message = format!("{}, and the fault is over", done(&record));
            let host = record.other().unwrap_or(&shared.own.name);
            Self::occurred(shared, (host, record.kind, Reason::Repaired), message, now);
        }
        self.waits.retain(|kind, _| faults.iter().any(|fault| fault.kind == *kind));
        let around = Around::of(shared, host, now);
        let mut decided = Vec::new();
        let mut due = None;
        for fault in &faults {
            let mut decision = self.decide(shared, policy, host, (fault, &around), now).await;
            if let Decision::HeldBack { gate: Gate::Turn { .. }, .. } = decision {
                self.waits.entry(fault.kind).or_insert(now.steady);
            }
            if let Decision::Act { step } = decision {
                due = due.or(Some((fault, step)));
                if let Some(by) = self.locked_by.clone() {
                    decision = Decision::HeldBack { step, gate: Gate::Lock { by } };
                }
            }
            let host = (fault.host != shared.own.name).then(|| fault.host.clone());
            decided.push(Decided { kind: fault.kind, host, decision });
        }
        shared.with(|state| state.decides(decided, around.hold));
        shared.with(|state| state.repairs(self.book.records(), now.wall_ms));
        self.locked_by = None;
        let (fault, step) = due?;
        match host.lock(fault.kind, step).await {
            Ok(Ok(lock)) => {
                self.act(shared, host, (fault, step), &lock, now).await;
                return Some(step);
            }
            Ok(Err(by)) => self.locked_by = Some(by),
            Err(error) => shared.say_once(&format!("cannot lock this host: {}", error.what)),
        }
        None
    }

    /// Makes an Event about a repair of a host.
    fn occurred(shared: &Shared, (host, kind, reason): (&HostName, FaultKind, Reason), message: String, now: Now) {
        shared.occurred(Occurrence { host: host.clone(), kind, reason, message, at_ms: now.wall_ms });
    }

    /// What to do about a fault now.
    async fn decide(
        &self,
        shared: &Shared,
        policy: &Policy,
        host: &impl LocalHost,
        (fault, around): (&Fault, &Around),
        now: Now,
    ) -> Decision {
        let runs = match host.runs(fault.kind).await {
            Ok(runs) => runs,
            Err(error) => {
                shared.say_once(&format!("{}: cannot tell how it runs: {}", fault.kind, error.what));
                return Decision::Person;
            }
        };
        let usable = fault.kind != FaultKind::VipMissing || host.is_usable().await;
        let waited = self.waits.get(&fault.kind).map(|since| now.steady.saturating_sub(*since));
        let flaps = shared.with(|state| state.flaps(fault.kind, now));
        let healer = shared.with(|state| state.healer(fault.kind, now));
        let situation = Situation {
            policy,
            own: &shared.own,
            held: around.hold.is_some(),
            runs,
            etcd: &around.etcd,
            usable,
            unwell: around.unwell.as_ref(),
            silent: &around.silent,
            votes: &around.votes,
            flaps,
            healer,
            repairing: &around.repairing,
            waited_ms: i64::try_from(waited.unwrap_or_default().as_millis()).unwrap_or(i64::MAX),
            records: self.book.records(),
            retry_ms: around.retry_ms,
            now_ms: now.wall_ms,
        };
        local_repair::decide(fault, &situation)
    }

    /// The step of the last attempt at a fault that still lasts, unless it failed.
    fn last_in_vain(&self, kind: FaultKind) -> Option<LocalStep> {
        let last = self.book.records().iter().rev().find(|record| record.kind == kind)?;
        matches!(last.outcome, Outcome::Done | Outcome::Open).then_some(last.step)
    }

    /// Performs a step, with a record before and after it.
    async fn act<H: LocalHost>(
        &mut self,
        shared: &Shared,
        host: &H,
        (fault, step): (&Fault, LocalStep),
        lock: &H::Lock,
        now: Now,
    ) {
        self.waits.remove(&fault.kind);
        let begun_ms = now.wall_ms;
        let after_ms = begun_ms.saturating_sub(fault.since_ms).max(0);
        if let Some(unhelpful) = self.last_in_vain(fault.kind) {
            shared.with(|state| state.figures.count(fault.kind, unhelpful, Effect::Unhelpful));
        }
        let unknown = || Power { host: fault.host.clone(), switched: Switched::Unknown };
        let power = (step == LocalStep::Power).then(unknown);
        let record = RepairRecord { kind: fault.kind, step, begun_ms, after_ms, outcome: Outcome::Open, power };
        shared.warn(self.book.begin(record));
        // The others hear of it while it is done.
        shared.with(|state| state.repairs(self.book.records(), begun_ms));
        let deed = deed(step, fault.kind, Some(&fault.host));
        shared.say(&format!("{}: {deed}, because of {}", shared.own.name, fault.kind));
        let since = human_duration(after_ms);
        let message = format!("{deed}, because the fault has lasted for {since}");
        Self::occurred(shared, (&fault.host, fault.kind, Reason::RepairStarted), message, now);
        let to = match step {
            LocalStep::HandOverLead => shared.with(|state| state.fast(now)),
            LocalStep::Power => Some(fault.host.clone()),
            _ => None,
        };
        let performed = host.perform((fault.kind, step, to), lock).await;
        if step == LocalStep::Power {
            self.book.switched(host.switched());
        }
        let outcome = match performed {
            Ok(()) => Outcome::Done,
            Err(error) => {
                let why =
                    error.tail.last().map_or_else(|| error.what.clone(), |line| format!("{}: {line}", error.what));
                shared.say(&format!("{}: cannot {deed}: {why}", shared.own.name));
                let failed = format!("cannot {deed}: {why}");
                Self::occurred(shared, (&fault.host, fault.kind, Reason::RepairFailed), failed, shared.now());
                shared.with(|state| state.figures.count(fault.kind, step, Effect::Failed));
                Outcome::Failed(evidence(&why))
            }
        };
        shared.warn(self.book.go_on(|record| (record.outcome == Outcome::Open).then(|| outcome.clone())));
    }
}
