//! A plan as a value: typed steps, what each requires and provides, and the precondition checked again just before it
//! runs.
//!
//! In: built by `plan/`. Out: printed by `report/`, run by `execute/`. A plan holds no content, no secret and no
//! closure; two plans can be compared.

pub use super::action::{
    Action, Disturbs, HowToRun, Impact, InitialClusterState, NodeEnd, Profile, Several, Stage, counted, object_in_words,
};
pub use super::condition::Condition;
use super::facts::{Member, Members};
use super::names::{HostName, PeerUrl};
use super::refusal::Refusal;
use super::target::FileSet;
use serde::Serialize;
use std::collections::BTreeMap;

/// Prefix of the name that stands in for a member without a usable name in etcd's initial cluster. No member has such a
/// name.
pub const STAND_IN: &str = "other-";

/// What must still be true just before a step runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Precondition {
    /// Nothing to check.
    None,
    /// The member list is exactly as forecast, and a quorum of it is healthy without counting on `without`.
    Members {
        /// Peer URLs with their right to vote.
        list: BTreeMap<PeerUrl, bool>,
    },
    /// The cluster tolerates losing the member or API server of this host right now.
    Tolerates {
        /// The host about to be restarted.
        down: HostName,
    },
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Why, for people.
    pub why: String,
    /// Conditions that must hold first.
    pub requires: Vec<Condition>,
    /// The condition that holds afterwards.
    pub provides: Condition,
    /// What is checked live just before it runs.
    pub precondition: Precondition,
    /// Sets that are rolled back to their previous files on the host if the step fails; their processes then use those
    /// again. If it succeeds, the previous files are deleted.
    pub rollback: Vec<FileSet>,
}

impl Step {
    /// How much it disturbs. A step that must be tolerated is a restart, whatever causes it (such as writing a
    /// manifest).
    pub fn impact(&self) -> Impact {
        let guarded =
            if matches!(self.precondition, Precondition::Tolerates { .. }) { Impact::Restart } else { Impact::None };
        self.action.profile().impact.max(guarded)
    }
}

/// Steps in an order that respects what they require, with the graph made explicit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// For each step, the indices of the steps it waits for.
    pub after: Vec<Vec<usize>>,
    /// For each step, the etcd membership once it is done; `None` while there is no cluster.
    pub forecast: Vec<Option<Members>>,
    /// Why the plan ends before everything converged, if it does.
    pub horizon: Option<String>,
    /// What a person should know although nothing is done about it.
    pub warnings: Vec<String>,
    /// Why steps are left out: a sentence for each that requires a condition that neither holds nor is provided.
    pub blocked: Vec<String>,
}

impl Plan {
    /// Whether nothing can be done now. There may be steps that cannot start: see [`Plan::blocked`].
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
    /// Whether the member list of a running etcd is changed.
    pub fn changes_members(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.precondition, Precondition::Members { .. }))
    }
    /// The most disturbing impact of all steps.
    pub fn impact(&self) -> Impact {
        self.steps.iter().map(Step::impact).max().unwrap_or(Impact::None)
    }
}

impl Members {
    /// The list as a precondition compares it: peer URL and right to vote.
    pub fn shape(&self) -> BTreeMap<PeerUrl, bool> {
        self.0.iter().map(|(url, m)| (url.clone(), !m.learner)).collect()
    }
    /// Refuses what would lead to this list, if too few of its members are healthy for a quorum.
    ///
    /// # Errors
    /// [`Refusal::WouldLoseQuorum`].
    pub fn quorate(&self, what: &Action) -> Result<(), Refusal> {
        if self.connected(None) >= self.quorum() {
            return Ok(());
        }
        // One that moves has answered: it is only not reached at its new address yet.
        let moves = if let Action::MoveMember { to, .. } = what { Some(to) } else { None };
        Err(self.would_lose_quorum(what.to_string(), moves))
    }
    /// The refusal of what leaves these voters without a quorum. One that stops, or moves, is counted, but neither
    /// relied on nor named.
    pub fn would_lose_quorum(&self, what: String, away: Option<&PeerUrl>) -> Refusal {
        let unhealthy = self.0.iter().filter(|(url, m)| !m.learner && !m.healthy && Some(*url) != away);
        Refusal::WouldLoseQuorum {
            what,
            healthy: self.connected(away),
            voters: self.voters(),
            quorum: self.quorum(),
            unhealthy: unhealthy.map(|(url, _)| self.name_of(url)).collect(),
            apart: self.apart_by_name(away),
        }
    }
    /// The pairs of healthy voters without a peer connection, leaving out those of the voter that stops, if one does.
    pub fn apart_by_name(&self, stops: Option<&PeerUrl>) -> Vec<(String, String)> {
        let pairs = self.apart().into_iter().filter(|(one, other)| ![Some(*one), Some(*other)].contains(&stops));
        pairs.map(|(one, other)| (self.name_of(one), self.name_of(other))).collect()
    }
    /// The name of a member, or its peer URL while it has no name.
    fn name_of(&self, url: &PeerUrl) -> String {
        let named = self.0.get(url).filter(|member| !member.name.is_empty());
        named.map_or_else(|| url.to_string(), |member| member.name.clone())
    }
    /// The list with one more learner.
    #[must_use]
    pub fn with_learner(&self, peer: &PeerUrl) -> Self {
        let mut next = self.clone();
        next.0.insert(peer.clone(), Member { learner: true, ..Member::default() });
        next
    }
    /// The list with a member at another peer URL, where it has not answered yet.
    #[must_use]
    pub fn moved(&self, from: &PeerUrl, to: &PeerUrl) -> Self {
        let mut next = self.clone();
        if let Some(member) = next.0.remove(from) {
            next.0.insert(to.clone(), Member { healthy: false, ..member });
        }
        next
    }
    /// The list without a member.
    #[must_use]
    pub fn without(&self, peer: &PeerUrl) -> Self {
        let mut next = self.clone();
        next.0.remove(peer);
        next
    }
    /// The list with a learner made a healthy voter.
    #[must_use]
    pub fn with_voter(&self, peer: &PeerUrl) -> Self {
        let mut next = self.clone();
        if let Some(member) = next.0.get_mut(peer) {
            member.learner = false;
            member.healthy = true;
        }
        next
    }
}
