//! The budgets that refuse evictions of a drain: they are watched, so that the next pod is asked as soon as one allows it.
//!
//! In: budgets that the planner wants to read. Out: each change of them. Where there is no watch, they are read.

use super::AT_ONCE;
use crate::kube::BudgetChanges;
use crate::model::eviction::{BudgetFact, BudgetRef};
use futures::stream::{BoxStream, SelectAll, StreamExt as _, once};
use std::collections::BTreeSet;
use std::future::ready;

/// What a watch says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BudgetNews {
    /// How the budget is now; `None`: it does not exist any more.
    Is(Option<BudgetFact>),
    /// The watch has ended.
    Ended,
}

/// The watches of a drain.
#[derive(Default)]
pub(super) struct Budgets {
    pub changes: SelectAll<BoxStream<'static, (BudgetRef, BudgetNews)>>,
    pub watched: BTreeSet<BudgetRef>,
    /// Those that could not be watched.
    refused: BTreeSet<BudgetRef>,
}

impl Budgets {
    /// Whether a watch of it may be opened: only so many last at once.
    pub fn may_watch(&self, budget: &BudgetRef) -> bool {
        let is_known = self.watched.contains(budget) || self.refused.contains(budget);
        !is_known && self.watched.len() < AT_ONCE
    }

    /// Adds a watch that has begun; `None`: it has not.
    pub fn begins(&mut self, budget: BudgetRef, changes: Option<BudgetChanges>) {
        let Some(changes) = changes else {
            self.refused.insert(budget);
            return;
        };
        self.watched.insert(budget.clone());
        // After an error the watch is over.
        let live = changes
            .take_while(|change| ready(change.is_ok()))
            .map(|change| change.map_or(BudgetNews::Ended, BudgetNews::Is));
        let all = live.chain(once(ready(BudgetNews::Ended)));
        self.changes.push(all.map(move |news| (budget.clone(), news)).boxed());
    }
}
