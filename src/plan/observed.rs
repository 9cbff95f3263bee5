//! What a plan is made from: the inventory, the target, the facts and the intent. Whether a condition holds is in
//! `conditions`.

use super::intent::Intent;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{Facts, HostFacts};
use crate::model::names::HostName;
use crate::model::plan::Condition;
use crate::model::target::{FileSet, HostTarget, Target};

/// Everything that a plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Observed<'a> {
    pub desired: &'a Desired,
    pub target: &'a Target,
    pub facts: &'a Facts,
    pub intent: &'a Intent,
}

impl<'a> Observed<'a> {
    /// Hosts that answered, in the inventory's order.
    pub fn reachable(&self) -> Vec<Host> {
        self.desired.hosts.iter().filter(|h| self.facts.host(&h.name).is_some()).cloned().collect()
    }
    /// Whether a host may be changed in this run.
    pub fn may_change(&self, host: &HostName) -> bool {
        self.intent.limit.as_ref().is_none_or(|limit| limit.contains(host))
    }
    /// Whether only some hosts may be changed.
    pub fn limited(&self) -> bool {
        self.intent.limit.is_some()
    }
    /// Hosts that answered and may be changed.
    pub fn changing(&self) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| self.may_change(&h.name)).collect()
    }
    /// Hosts that answered and have a role.
    pub fn reachable_with(&self, role: Role) -> Vec<Host> {
        self.reachable().into_iter().filter(|h| h.is(role)).collect()
    }
    pub fn host_target(&self, host: &HostName) -> &'a HostTarget {
        static NOTHING: std::sync::LazyLock<HostTarget> = std::sync::LazyLock::new(HostTarget::default);
        self.target.hosts.get(host).unwrap_or(&NOTHING)
    }
    /// The conditions that these parts are on a host, as far as it should have them.
    pub fn delivered(&self, host: &HostName, names: &[&str]) -> Vec<Condition> {
        let parts = self.host_target(host).parts.iter().filter(|part| names.contains(&part.name.as_str()));
        parts.map(|part| Condition::Delivered(host.clone(), part.digest)).collect()
    }
    /// The condition that the unit of a set runs, if the host should have that set and it has a unit.
    pub fn running(&self, host: &HostName, set: FileSet) -> Option<Condition> {
        let unit = self.host_target(host).sets.get(&set)?.unit.clone()?;
        Some(Condition::Running(host.clone(), unit))
    }
    pub fn host_facts(&self, host: &HostName) -> Option<&'a HostFacts> {
        self.facts.host(host)
    }
    /// Whether the API server of this host is ready now.
    pub fn serves_now(&self, host: &HostName) -> bool {
        self.host_facts(host).and_then(|f| f.api.as_ref()).is_some_and(|a| a.own_trouble.is_none())
    }
}
