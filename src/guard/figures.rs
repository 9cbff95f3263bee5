//! What a guard counts and measures for its metrics alone: its repairs since its start, the end of certificates, the
//! age of snapshots, and the last drills.
//!
//! In: outcomes of repairs, files of the host. Out: numbers, read by `metrics`.

use super::shared::{Shared, turns};
use crate::agent::probe::first_to_renew;
use crate::agent::{Root, last_drills, newest_snapshot};
use crate::model::drill::LastDrill;
use crate::model::fault::FaultKind;
use crate::model::maintained::Maintained;
use crate::model::repair::LocalStep;
use crate::plan::local_repair::step;
use crate::protocol::OpError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Between two measurements: reading some small files.
const EVERY: Duration = Duration::from_secs(60);

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The fault is over.
    Helped,
    /// The step failed.
    Failed,
    /// The step is done, and the fault lasts: the next attempt begins.
    Unhelpful,
}

impl Effect {
    const ALL: [Self; 3] = [Self::Helped, Self::Failed, Self::Unhelpful];

    /// As a label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Helped => "helped",
            Self::Failed => "failed",
            Self::Unhelpful => "unhelpful",
        }
    }
}

/// The snapshots of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshots {
    /// When the newest was taken, milliseconds since 1970; `None`: there is none.
    pub newest_ms: Option<i64>,
    /// The interval of the host, seconds.
    pub every_s: u64,
}

/// The numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Attempts since the start of the guard, each counted once, when its outcome is known. Empty: it repairs nothing.
    pub repairs: BTreeMap<(FaultKind, LocalStep, Effect), u64>,
    /// When the first certificate expires that hactl renews, seconds since 1970.
    pub certificate_ends_s: Option<i64>,
    /// The snapshots; `None`: the host takes none.
    pub snapshots: Option<Snapshots>,
    /// The last drills on the host, at most one with each identity.
    pub drills: Vec<LastDrill>,
    /// What the maintenances come to; `None`: another guard acts on them.
    pub maintained: Option<Maintained>,
}

impl Figures {
    /// Of a guard that repairs. Every counter exists from the start: Prometheus sees no increase in one that appears.
    pub fn of_repairs() -> Self {
        let steps = FaultKind::ALL.iter().filter_map(|kind| Some((*kind, step(*kind)?)));
        let zeros = steps.flat_map(|(kind, step)| Effect::ALL.map(|effect| ((kind, step, effect), 0)));
        Self { repairs: zeros.collect(), ..Self::default() }
    }

    /// Counts an attempt.
    pub fn count(&mut self, kind: FaultKind, step: LocalStep, effect: Effect) {
        let count = self.repairs.entry((kind, step, effect)).or_default();
        *count = count.saturating_add(1);
    }
}

/// Measures until the guard ends.
pub(super) async fn measure(shared: Arc<Shared>, root: Root) {
    let mut turn = turns(EVERY);
    loop {
        turn.tick().await;
        let certificate = first_to_renew(&root).await;
        let snapshots = or_none(&shared, "the age of the snapshots", newest_snapshot(&root).await);
        let snapshots = snapshots.map(|(every_s, newest_ms)| Snapshots { newest_ms, every_s });
        let drills = or_none(&shared, "the last drills", last_drills(&root).await);
        shared.with(|state| {
            let figures = &mut state.figures;
            (figures.certificate_ends_s, figures.snapshots, figures.drills) = (certificate, snapshots, drills);
        });
    }
}

/// What was found; after an error, which the guard says once, nothing.
fn or_none<T: Default>(shared: &Shared, what: &str, found: Result<T, OpError>) -> T {
    found.unwrap_or_else(|error| {
        shared.say_once(&format!("cannot tell {what} of this host: {}", error.what));
        T::default()
    })
}
