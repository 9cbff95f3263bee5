//! Repairs on the own host, one at a time: each second, what the guard does about each fault of its host is decided,
//! and the first step that is due is performed.
//!
//! In: the shared state, the files of [`Book`], how components run. Out: decisions for the report, steps on the host,
//! records.

use super::Shared;
use super::book::Book;
use crate::agent::{self, Root, StepLock, probe};
use crate::model::fault::{Fault, FaultKind, evidence};
use crate::model::healing::Policy;
use crate::model::repair::{Decided, Decision, Gate, LocalStep, Outcome, RepairRecord, deed};
use crate::plan::local_repair::{self, Situation};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Between two decisions.
const EVERY: Duration = Duration::from_secs(1);

/// Repairs until the guard ends.
pub(super) async fn keep(shared: Arc<Shared>, root: Root, policy: Policy) {
    let mut book = Book::open(&root);
    let mut locked_by = None;
    let mut turn = interval(EVERY);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        let faults = shared.state().seen_here();
        let now_ms = shared.now().wall_ms;
        let over = |record: &RepairRecord| {
            let is_over = record.outcome == Outcome::Done && !faults.iter().any(|fault| fault.kind == record.kind);
            is_over.then(|| Outcome::Helped(now_ms.saturating_sub(record.begun_ms)))
        };
        shared.warn(book.go_on(over));
        let mut decided = Vec::new();
        let mut due = None;
        for fault in &faults {
            let mut decision = decide(&shared, &root, &policy, &book, fault).await;
            if let Decision::Act { step } = decision {
                due = due.or(Some((fault, step)));
                if let Some(by) = &locked_by {
                    decision = Decision::HeldBack { step, gate: Gate::Lock { by: String::clone(by) } };
                }
            }
            decided.push(Decided { kind: fault.kind, decision });
        }
        shared.state().repairs(decided, book.hold(now_ms), book.records(), now_ms);
        let Some((fault, step)) = due else {
            locked_by = None;
            continue;
        };
        match agent::lock_for(&root, fault.kind, step).await {
            Ok(Ok(lock)) => {
                locked_by = None;
                act(&shared, &root, &policy, &mut book, (fault, step), &lock).await;
            }
            Ok(Err(by)) => locked_by = Some(by),
            Err(error) => shared.say_once(&format!("cannot lock this host: {}", error.what)),
        }
    }
}

/// What to do about a fault now.
async fn decide(shared: &Shared, root: &Root, policy: &Policy, book: &Book, fault: &Fault) -> Decision {
    let runs = match agent::runs(root, policy, &shared.own, fault.kind).await {
        Ok(runs) => runs,
        Err(error) => {
            shared.say_once(&format!("{}: cannot tell how it runs: {}", fault.kind, error.what));
            return Decision::Person;
        }
    };
    let usable = fault.kind != FaultKind::VipMissing || probe::is_usable().await;
    let now = shared.now();
    let (etcd, repairing) = shared.state().around(now);
    let situation = Situation {
        policy,
        own: &shared.own,
        held: book.hold(now.wall_ms).is_some(),
        runs,
        etcd: &etcd,
        usable,
        repairing: &repairing,
        records: book.records(),
        retry_ms: book.retry_ms(),
        now_ms: now.wall_ms,
    };
    local_repair::decide(fault, &situation)
}

/// Performs a step, with a record before and after it.
async fn act(
    shared: &Shared,
    root: &Root,
    policy: &Policy,
    book: &mut Book,
    (fault, step): (&Fault, LocalStep),
    lock: &StepLock,
) {
    let begun_ms = shared.now().wall_ms;
    let after_ms = begun_ms.saturating_sub(fault.since_ms).max(0);
    let record = RepairRecord { kind: fault.kind, step, begun_ms, after_ms, outcome: Outcome::Open };
    shared.warn(book.begin(record));
    let deed = deed(step, fault.kind);
    shared.say(&format!("{}: {deed}, because of {}", shared.own.name, fault.kind));
    let outcome = match agent::repair(root, policy, &shared.own, (fault.kind, step), lock).await {
        Ok(()) => Outcome::Done,
        Err(error) => {
            let why = error.tail.last().map_or_else(|| error.what.clone(), |line| format!("{}: {line}", error.what));
            shared.say(&format!("{}: cannot {deed}: {why}", shared.own.name));
            Outcome::Failed(evidence(&why))
        }
    };
    shared.warn(book.go_on(|record| (record.outcome == Outcome::Open).then(|| outcome.clone())));
}
