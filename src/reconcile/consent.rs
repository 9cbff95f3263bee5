//! The choices of a person, and the questions to a person.
//!
//! In: flags, a plan. Out: consent, or a refusal. Separate from terminals, so that the engine runs without one.

use crate::model::names::{ClusterName, HostName};
use crate::model::plan::{Impact, Plan};
use crate::model::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// The choices on the command line.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Agreed in advance.
    pub yes: bool,
    /// Hosts that may be removed from the cluster.
    pub prune: Vec<HostName>,
    /// The hosts that may be changed; `None`: all.
    pub limit: Option<BTreeSet<HostName>>,
    /// Members to replace although they run, each by its current id.
    pub replace: BTreeMap<HostName, u64>,
    /// Hosts that are another machine on purpose, or were another host of the cluster.
    pub reassign: BTreeSet<HostName>,
    /// Whether unknown Nodes stay in this run, because it has already waited for their kubelets.
    pub unknown_nodes_stay: bool,
}

/// Asks the person. Separate, so that a workflow runs without a terminal.
pub trait Ask: Send + Sync {
    /// Asks whether to continue with a disruptive step.
    ///
    /// # Errors
    /// [`Refusal::NeedsConsent`] without a terminal, [`Refusal::Declined`] on any answer but yes.
    fn yes(&self, question: &str, what: &str) -> Result<(), Refusal>;
    /// Asks the person to type the cluster's name.
    ///
    /// # Errors
    /// [`Refusal::NeedsConsent`] without a terminal, [`Refusal::Declined`] if it is not typed.
    fn name(&self, cluster: &ClusterName, what: &str) -> Result<(), Refusal>;
}

impl dyn Ask + '_ {
    /// Asks for consent to a plan, if it has disruptive steps.
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
        self.yes("Continue?", &what)
    }
}
