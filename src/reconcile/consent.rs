//! What a person chose, and what a person is asked.
//!
//! In: flags, a plan. Out: consent, or a refusal. Kept apart from terminals, so that the engine runs without one.

use crate::model::names::{ClusterName, HostName};
use crate::model::plan::{Impact, Plan};
use crate::model::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// What the person chose on the command line.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Agreed in advance.
    pub yes: bool,
    /// Hosts that may leave the cluster.
    pub prune: Vec<HostName>,
    /// The hosts that may be changed; `None`: all.
    pub limit: Option<BTreeSet<HostName>>,
    /// Members that are to leave and join anew though they run, each by the id that it has now.
    pub replace: BTreeMap<HostName, u64>,
    /// Hosts that are another machine on purpose, or were another host of the cluster.
    pub reassign: BTreeSet<HostName>,
    /// Whether Nodes that nobody names stay this time: whether their kubelets live was waited for already.
    pub unknown_nodes_stay: bool,
}

/// Asks the person. Kept apart so that a workflow runs without a terminal.
pub trait Ask: Send + Sync {
    /// Whether to go on with something disruptive.
    ///
    /// # Errors
    /// [`Refusal::NeedsConsent`] when nobody can be asked, [`Refusal::Declined`] on anything but yes.
    fn yes(&self, question: &str, what: &str) -> Result<(), Refusal>;
    /// Whether the person can type the cluster's name.
    ///
    /// # Errors
    /// [`Refusal::NeedsConsent`] when nobody can be asked, [`Refusal::Declined`] when it is not typed.
    fn name(&self, cluster: &ClusterName, what: &str) -> Result<(), Refusal>;
}

impl dyn Ask + '_ {
    /// Consent to a plan, asked only when it disturbs something.
    ///
    /// # Errors
    /// As for [`Ask::yes`].
    pub fn consent(&self, plan: &Plan, choices: &Choices) -> Result<(), Refusal> {
        if choices.yes || plan.impact() == Impact::None {
            return Ok(());
        }
        let disturbing = plan.steps.iter().filter(|s| s.impact() > Impact::None);
        let what: Vec<String> = disturbing
            .map(|s| match s.action.host() {
                Some(host) => format!("{} on {host}", s.action),
                None => s.action.to_string(),
            })
            .collect();
        let what = what.join(", ");
        self.yes("Go on?", &what)
    }
}
