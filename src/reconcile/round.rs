//! One round of observation: the facts, the target as digests, and the file contents behind the target.
//!
//! In: a fleet, and an `Authority` that provides the target. Out: a [`Round`], and the plans that follow from it.

use super::{Authority, Choices, Failure, Fleet, manifests};
use crate::model::check::Check;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{DiskFact, Etcd, Facts, UnitFact};
use crate::model::leaf::Renewal;
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::model::recovery::{Diagnosis, Recovery};
use crate::model::refusal::Refusal;
use crate::model::target::{FileSet, Target};
use crate::observe::{Answers, HashCheck, Queries, QueryScope, Wait};
use crate::plan::{Intent, RecoveryRequest};
use crate::protocol::FilePut;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After a cold start members elect a leader within seconds; until then a missing quorum is not a loss.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(20);
/// How long too few members may be found healthy for a plan before that is believed: a busy member answers by then.
const BUSY: Duration = Duration::from_secs(10);
/// How long healthy members may lack a connection with one another before that is believed: a member that has just
/// started connects within a second.
const CONNECT: Duration = Duration::from_secs(5);
/// The interval of these looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Contents of files by host and set.
pub type Files = BTreeMap<HostName, BTreeMap<FileSet, Vec<FilePut>>>;

/// One round of observation.
pub struct Round {
    /// The queries.
    pub queries: Queries,
    /// The target.
    pub target: Arc<Target>,
    /// File contents behind the target.
    pub files: Files,
    /// The observed facts.
    pub facts: Facts,
    /// Whether a host counts as unreachable only because it took longer than all others.
    pub hurried: bool,
}

impl Round {
    /// Observes all hosts, or all but stragglers, and renders their target.
    ///
    /// # Errors
    /// An error of the `Authority`; an unreachable host is a fact, not an error.
    pub async fn take(fleet: &Fleet, authority: &dyn Authority, wait: Wait) -> Result<Self, Failure> {
        Self::with(fleet, authority, wait, QueryScope::Usual).await
    }

    /// The same with another scope.
    ///
    /// # Errors
    /// As for [`Round::take`].
    pub async fn with(
        fleet: &Fleet,
        authority: &dyn Authority,
        wait: Wait,
        scope: QueryScope,
    ) -> Result<Self, Failure> {
        let desired = &fleet.desired;
        let mut queries = authority.queries(desired)?;
        let asked = queries.to(scope);
        let begun = Instant::now();
        let (answers, hurried) = loop {
            let (mut answers, hurried) =
                crate::observe::round(desired, &fleet.machines, &fleet.unreachable, &asked, fleet.at_once, wait).await;
            crate::observe::set_apart(desired, &queries.cluster_id, &mut answers);
            let mut apart = BTreeSet::new();
            let unsettled = match crate::observe::classify(desired, &queries.known, &mut answers) {
                Etcd::NoQuorum(_) => may_elect(desired, &answers),
                // A member may only be slow, or is about to apply a change of the list.
                Etcd::Disputed(_) => true,
                Etcd::HasQuorum(members) => {
                    apart = members.apart().into_iter().map(|(one, other)| (one.clone(), other.clone())).collect();
                    begun.elapsed() < CONNECT && fleet.apart.has_new(&apart)
                }
                _ => false,
            };
            for host in crate::observe::without_members(desired, &mut answers) {
                queries.forget_etcd(&host);
            }
            if !unsettled || begun.elapsed() > ELECTION_TIMEOUT || fleet.stop.is_cancelled() {
                fleet.apart.confirm(apart);
                break (answers, hurried);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        };
        let paths = fleet.machines.iter().map(|(host, agent)| (host.clone(), agent.hactl_path())).collect();
        let (target, files) = authority.target(desired, &answers, &paths)?;
        let mut facts = crate::observe::assemble(desired, &queries.known, answers, &target.addons);
        authority.complete(desired, &mut facts)?;
        manifests::complete(fleet, authority, &target, &mut facts).await?;
        Ok(Self { queries, target: Arc::new(target), files, facts, hurried })
    }

    /// The plan to reach the target.
    ///
    /// # Errors
    /// A plan would not be safe.
    pub fn plan(&self, authority: &dyn Authority, choices: &Choices, desired: &Desired) -> Result<Plan, Failure> {
        let base = self.intent(authority)?;
        let needs_token = matches!(self.facts.etcd, Etcd::Uninitialized);
        let intent = Intent {
            bootstrap_token: if needs_token { authority.bootstrap_token()? } else { String::new() },
            prune: choices.prune.clone(),
            removed_hosts: super::removed_hosts(authority, desired)?,
            balanced: super::balanced(authority, desired)?,
            limit: choices.limit.clone(),
            replace: choices.replace.clone(),
            reassign: choices.reassign.clone(),
            abandons: base.abandons && !choices.unknown_nodes_stay,
            ..base
        };
        let mut plan = crate::plan::up(desired, &self.target, &self.facts, &intent)?;
        plan.warnings.extend(authority.warnings(desired));
        Ok(plan)
    }

    /// The plan to reach the target, and the round that it follows from. A busy member may not answer at one look, so a
    /// plan is refused for the quorum only if further looks lead to the same.
    ///
    /// # Errors
    /// As for [`Round::take`] and [`Round::plan`].
    pub async fn planned(
        mut self,
        fleet: &Fleet,
        authority: &dyn Authority,
        choices: &Choices,
        wait: Wait,
    ) -> Result<(Self, Plan), Failure> {
        let until = Instant::now() + BUSY;
        loop {
            match self.plan(authority, choices, &fleet.desired) {
                Err(Failure::Refused(refusal @ Refusal::WouldLoseQuorum { .. }))
                    if Instant::now() < until && !fleet.stop.is_cancelled() =>
                {
                    fleet.sink.phase(format!("{refusal}; looking again"));
                    tokio::time::sleep(LOOK_AGAIN).await;
                    self = Self::take(fleet, authority, wait).await?;
                }
                planned => return planned.map(|plan| (self, plan)),
            }
        }
    }

    /// The plan that only renews certificates.
    ///
    /// # Errors
    /// A plan would not be safe.
    pub fn renewing(&self, authority: &dyn Authority, renew: Renewal, desired: &Desired) -> Result<Plan, Failure> {
        let intent = Intent { renew, ..self.intent(authority)? };
        Ok(crate::plan::certs(desired, &self.target, &self.facts, &intent)?)
    }

    /// The intent for plans that bootstrap, prune and leave out nothing.
    ///
    /// # Errors
    /// An error of the `Authority`.
    pub fn intent(&self, authority: &dyn Authority) -> Result<Intent, Failure> {
        authority.intent(&self.queries.cluster_id)
    }

    /// The diagnosis of etcd, and a proposal.
    ///
    /// # Errors
    /// A recovery would not be safe.
    pub fn diagnose(
        &self,
        authority: &dyn Authority,
        request: &RecoveryRequest,
        desired: &Desired,
    ) -> Result<Diagnosis, Failure> {
        Ok(crate::plan::diagnose(desired, &self.target, &self.facts, &self.intent(authority)?, request)?)
    }

    /// The plan of a recovery.
    ///
    /// # Errors
    /// The recovery would not be safe.
    pub fn recovery(
        &self,
        authority: &dyn Authority,
        recovery: &Recovery,
        fetched: bool,
        desired: &Desired,
    ) -> Result<Plan, Failure> {
        Ok(crate::plan::recover(desired, &self.target, &self.facts, &self.intent(authority)?, recovery, fetched)?)
    }

    /// Whether all members hold the same data.
    pub async fn hashes(&self, fleet: &Fleet) -> HashCheck {
        match &self.facts.etcd {
            Etcd::HasQuorum(_) => crate::observe::hashes(&self.facts, &fleet.machines, &self.queries).await,
            _ => HashCheck::Unknown("no quorum answers".to_owned()),
        }
    }

    /// The named checks.
    pub async fn checks(&self, fleet: &Fleet) -> Vec<Check> {
        let hash = self.hashes(fleet).await;
        crate::observe::checks(&fleet.desired, &self.facts, &hash)
    }
}

/// Whether the running members may be a majority: of those in the inventory or, as after a recovery that began with
/// fewer, of those that one of them lists. Then the missing quorum may be an election or a busy machine.
fn may_elect(desired: &Desired, answers: &Answers) -> bool {
    let unit = crate::plan::etcd_unit();
    let facts = |h: &Host| answers.get(&h.name).and_then(|f| f.as_ref().ok());
    let runs = |h: &Host| facts(h).and_then(|f| f.units.get(&unit)).is_some_and(UnitFact::runs_or_starts);
    let running: Vec<&Host> = desired.with(Role::Etcd).filter(|h| runs(h)).collect();
    let majority_by = |disk: &DiskFact| {
        let Some(voters) = disk.voters() else { return false };
        let (up, down): (Vec<_>, Vec<_>) = voters.partition(|(_, peer)| running.iter().any(|h| &h.peer_url() == *peer));
        up.len() > down.len()
    };
    running.len() > desired.with(Role::Etcd).count() / 2
        || running.iter().filter_map(|h| facts(h)?.etcd.as_ref()?.disk.as_ref()).any(majority_by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{EtcdFact, HostFacts};

    #[test]
    fn one_member_that_runs_may_be_a_majority_by_its_own_list_and_is_none_by_the_inventorys() {
        let desired = crate::model::desired::sample(3);
        let hosts: Vec<Host> = desired.with(Role::Etcd).cloned().collect();
        let answers = |voters: &[Host], learners: &[Host]| {
            let member = |h: &Host, learner| (1, h.name.to_string(), h.peer_url(), learner);
            let members = voters.iter().map(|h| member(h, false)).chain(learners.iter().map(|h| member(h, true)));
            let disk = DiskFact { members: Some(members.collect()), ..DiskFact::default() };
            let runs = UnitFact { active: "active".to_owned(), enabled: true, started_ms: 1, reloaded_ms: 0 };
            let facts = HostFacts {
                units: [(crate::plan::etcd_unit(), runs)].into(),
                etcd: Some(EtcdFact { data: true, disk: Some(disk), ..EtcdFact::default() }),
                ..HostFacts::default()
            };
            Answers::from([(hosts[2].name.clone(), Ok(facts)), (hosts[0].name.clone(), Ok(HostFacts::default()))])
        };
        assert!(may_elect(&desired, &answers(&hosts[2..], &[])), "as after a recovery that began with one");
        assert!(may_elect(&desired, &answers(&hosts[2..], &hosts[..1])), "learners have no vote");
        assert!(!may_elect(&desired, &answers(&hosts, &[])), "one of three");
        assert!(!may_elect(&desired, &answers(&hosts[1..], &[])), "one of two");
    }
}
