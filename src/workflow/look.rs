//! One look at the world: what should be, as digests; what is, as facts; and the contents to close the gap with.

use super::converge::Choices;
use super::{Failure, Session, State};
use crate::component::Bundle;
use crate::model::check::Check;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{ClusterId, DiskFact, Etcd, Facts, UnitFact};
use crate::model::leaf::Renewal;
use crate::model::names::HostName;
use crate::model::plan::Plan;
use crate::model::rotation::Rotatable;
use crate::model::target::{CaId, CertSpec, FileSet, HostTarget, Part, Target};
use crate::observe::{Answers, HashCheck, Queries, QueryScope, Wait};
use crate::plan::Intent;
use crate::protocol::{FilePut, ObserveAsk};
use crate::render::{Input, Keys, Sealed, Trust};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After a cold start members elect a leader within seconds; until then silence is not yet a loss of quorum.
const ELECTION_PATIENCE: Duration = Duration::from_secs(20);

/// Contents of files by host and set.
pub type Files = BTreeMap<HostName, BTreeMap<FileSet, Vec<FilePut>>>;

/// One look at the world.
pub struct Round {
    /// What was asked.
    pub queries: Queries,
    /// What should be.
    pub target: Arc<Target>,
    /// File contents behind the target.
    pub files: Files,
    /// What is.
    pub facts: Facts,
    /// Whether somebody counts as silent who only took longer than all others.
    pub hurried: bool,
}

impl Round {
    /// Observes all hosts, or all but stragglers, and renders what they should hold.
    ///
    /// # Errors
    /// A bundle or template that cannot be used; silence of hosts is a fact, not an error.
    pub async fn take(session: &Session, state: &State, wait: Wait) -> Result<Self, Failure> {
        Self::with(session, state, wait, QueryScope::Usual).await
    }

    /// The same, at more or at less.
    ///
    /// # Errors
    /// As for [`Round::take`].
    pub async fn with(session: &Session, state: &State, wait: Wait, depth: QueryScope) -> Result<Self, Failure> {
        let desired = &session.desired;
        let bundle = session.bundle()?;
        let rotations = &state.contents().rotations;
        let stamp = ClusterId {
            cluster: desired.cluster.clone(),
            ca: rotations.founded,
            stages: rotations.stages,
            host: None,
            machine: None,
        };
        let mut addons = crate::render::addons(desired, &bundle.parts())?;
        addons.iter_mut().for_each(super::manifests::mark);
        let mut hosts = BTreeMap::new();
        for host in desired.entered() {
            hosts.insert(host.name.clone(), question(desired, host, state, &bundle, &addons)?);
        }
        let mut queries = Queries::new(Arc::clone(desired), stamp, state.known_cluster()?, hosts);
        let asked = queries.to(depth);
        let begun = Instant::now();
        let (answers, hurried) = loop {
            let (mut answers, hurried) =
                crate::observe::round(desired, &session.machines, &session.unreachable, &asked, session.at_once, wait)
                    .await;
            crate::observe::set_apart(desired, &queries.stamp, &mut answers);
            let electing = match crate::observe::classify(desired, &queries.known, &mut answers) {
                Etcd::NoQuorum(_) => may_elect(desired, &answers),
                // One of them may only be slow, or a change of the list is on its way.
                Etcd::Disputed(_) => true,
                _ => false,
            };
            for host in crate::observe::without_members(desired, &mut answers) {
                queries.forget_etcd(&host);
            }
            if !electing || begun.elapsed() > ELECTION_PATIENCE || session.stop.is_cancelled() {
                break (answers, hurried);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        };
        // Not before: what is the users' the hosts may not read.
        addons.extend(super::manifests::addon(&session.attached));
        let mut target = Target { addons, ..Target::default() };
        let (text, recipients) = state.sealed(&session.inventory, &desired.snapshots.recipients)?;
        let sealed = Sealed { text: &text, recipients: &recipients, authority: queries.stamp.ca };
        let mut files = Files::new();
        let parting = somebody_parts(desired, &answers);
        for host in &desired.hosts {
            let Some(Ok(facts)) = answers.get(&host.name) else { continue };
            let parts = bundle.parts_for(desired, host, &facts.architecture)?;
            let hactl = session.machines.get(&host.name).map(|m| m.hactl_path()).unwrap_or_default();
            let (publics, material) = (state.publics(), state.contents().material());
            let trust = Trust {
                cluster_ca: &publics.trusted.cluster,
                etcd_ca: &publics.trusted.etcd,
                front_proxy_ca: &publics.trusted.front_proxy,
                signing_ca: &publics.trusted.signing,
                signing_cert: &publics.signing.cert_pem,
                kubelet_serving_ca: &publics.trusted.kubelet_serving,
                kubelet_serving_cert: &publics.kubelet_serving.cert_pem,
                sa_public: &publics.trusted.service_account,
                signers: [&publics.cluster.id, &publics.signing.id],
            };
            let keys = Keys {
                signing_key: material.signing_key_pem,
                kubelet_serving_key: material.kubelet_serving_key_pem,
                sa_key: material.service_account_key_pem,
                encryption: &material.encryption,
            };
            let mut leaves = crate::pki::leaves(desired, host, &publics);
            crate::pki::keep_addresses(&mut leaves, facts);
            let rendered = crate::render::host_sets(&Input {
                desired,
                host,
                facts,
                parts: &parts,
                leaves: &leaves,
                trust: &trust,
                keys: host.is(Role::ControlPlane).then_some(&keys),
                sealed: &sealed,
                attached: &session.attached,
                hactl_path: &hactl,
            })?;
            let (mut host_target, contents) = split(desired, host, (parts, leaves), rendered);
            // What is open for who gives something up is closed once that is done: in the next round.
            if let (true, Some(wanted), Some(found)) = (parting, &mut host_target.openings, &facts.firewall) {
                wanted.extend(found.open.iter().copied());
            }
            target.hosts.insert(host.name.clone(), host_target);
            files.insert(host.name.clone(), contents);
        }
        let mut facts = crate::observe::assemble(desired, &queries.known, answers, &target.addons);
        super::authentic::all(state, desired, &mut facts);
        facts.noted = state.past()?.seen;
        super::manifests::look(session, state, &target, &mut facts).await?;
        Ok(Self { queries, target: Arc::new(target), files, facts, hurried })
    }

    /// What is to be done.
    ///
    /// # Errors
    /// What would not be safe.
    pub fn plan(&self, state: &State, choices: &Choices, desired: &Desired) -> Result<Plan, Failure> {
        let base = self.intent(state)?;
        let needs_token = matches!(self.facts.etcd, Etcd::Uninitialized);
        let intent = Intent {
            bootstrap_token: if needs_token { state.bootstrap_token()? } else { String::new() },
            prune: choices.prune.clone(),
            removed_hosts: super::leaving::removed_hosts(state, desired)?,
            balanced: super::leaving::balanced(state, desired)?,
            limit: choices.limit.clone(),
            replace: choices.replace.clone(),
            reassign: choices.reassign.clone(),
            abandons: base.abandons && !choices.unknown_nodes_stay,
            ..base
        };
        let mut plan = crate::plan::up(desired, &self.target, &self.facts, &intent)?;
        plan.warnings.extend(crate::pki::attended(desired, &state.publics()).into_iter().map(attended));
        Ok(plan)
    }

    /// What is to be done to have leaves anew, and nothing else.
    ///
    /// # Errors
    /// What would not be safe.
    pub fn renewing(&self, state: &State, renew: Renewal, desired: &Desired) -> Result<Plan, Failure> {
        let intent = Intent { renew, ..self.intent(state)? };
        Ok(crate::plan::certs(desired, &self.target, &self.facts, &intent)?)
    }

    /// What is meant where nothing may be founded, pruned or left out.
    pub(super) fn intent(&self, state: &State) -> Result<Intent, Failure> {
        let past = state.past()?;
        let bootstrapped = past.bootstrapped.is_some();
        Ok(Intent {
            // A recovery that was agreed to makes a cluster, though nobody has seen it yet: no other one is founded in its place.
            bootstrapped: bootstrapped || past.open.is_some(),
            abandons: past.abandons(),
            recovered: past.recovered(),
            leapt: past.leapt,
            ranges: state.ranges()?.filter(|_| bootstrapped).map(|ranges| (ranges.pods, ranges.services)),
            dropped: past.dropped,
            lived: past.lived,
            taken_down_ms: past.taken_down_ms,
            stamp: self.queries.stamp.clone(),
            bootstrap_token: String::new(),
            prune: vec![],
            removed_hosts: vec![],
            balanced: BTreeSet::new(),
            limit: None,
            replace: BTreeMap::new(),
            reassign: BTreeSet::new(),
            remembered: state.known_hosts()?.into_iter().map(|known| (known.host.name, known.host.address)).collect(),
            renew: Renewal::default(),
        })
    }

    /// Whether all members hold the same keys.
    pub async fn hashes(&self, session: &Session) -> HashCheck {
        match &self.facts.etcd {
            Etcd::HasQuorum(_) => crate::observe::hashes(&self.facts, &session.machines, &self.queries).await,
            _ => HashCheck::Unknown("no quorum answers".to_owned()),
        }
    }

    /// The named checks.
    pub async fn checks(&self, session: &Session) -> Vec<Check> {
        let hash = self.hashes(session).await;
        crate::observe::checks(&session.desired, &self.facts, &hash)
    }
}

/// Whether a host that answers is about to leave, or to give up a role: until that is done it is talked to as before.
fn somebody_parts(desired: &Desired, answers: &Answers) -> bool {
    let facts = |host: &Host| answers.get(&host.name).and_then(|answer| answer.as_ref().ok());
    let gives_up = |host: &Host| {
        let Some(facts) = facts(host).filter(|facts| facts.stamp.is_some()) else { return false };
        let there = |path: &String| facts.files.contains_key(path);
        let sets = crate::render::former_sets(desired, host);
        sets.values().any(|set| set.is_told(there) && set.own.iter().any(there))
    };
    desired.leaving.iter().any(|host| facts(host).is_some_and(|facts| facts.stamp.is_some()))
        || desired.hosts.iter().any(gives_up)
}

/// What cannot be as the inventory asks until an authority is replaced.
fn attended(ca: CaId) -> String {
    let (whose, rotated) = match ca {
        CaId::Cluster => ("the cluster's authority", Rotatable::ClusterCa),
        CaId::Etcd => ("etcd's authority", Rotatable::EtcdCa),
        CaId::FrontProxy => ("the front proxy's authority", Rotatable::FrontProxyCa),
    };
    format!(
        "certificates.unattended: {whose} may have no issuers below it (its path length is 0), so that what it signed is renewed by \
         `hactl up` alone; `hactl certs rotate {rotated}` replaces it by one that may"
    )
}

/// Whether the members that run may be a majority: of the inventory's, or, as after a recovery that began with fewer, of those that one of
/// them lists. Then their silence is an election, or a machine that is busy, and not yet a loss.
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

/// Everything asked of one host.
fn question(
    desired: &Desired,
    host: &Host,
    state: &State,
    bundle: &Bundle,
    addons: &[crate::model::target::Addon],
) -> Result<ObserveAsk, Failure> {
    let preparation = crate::render::preparation(desired, host);
    let directories = preparation.directories.iter().map(|(path, _, _)| path.clone());
    let mounts = crate::render::mounts(desired, host);
    let leaves = crate::pki::leaves(desired, host, &state.publics());
    Ok(ObserveAsk {
        certificates: crate::pki::certificates_ask(desired, host, &leaves),
        files: [crate::render::paths(desired, host), crate::render::former(desired, host), mounts.clone()].concat(),
        folders: crate::render::folders(),
        parts: bundle.parts_of_any(desired, host)?,
        units: [crate::render::units(desired, host), crate::render::former_units(desired, host)].concat(),
        leaves,
        images: host.is_node(),
        programs: crate::render::packages(desired, host).into_keys().chain(directories).chain(mounts).collect(),
        sysctls: preparation.sysctls.keys().cloned().collect(),
        ports: crate::render::ports(desired, host),
        firewall: preparation.openings.is_some(),
        etcd: Some(crate::render::own_etcd(desired)),
        disk: false,
        api: crate::render::api_ask(desired, host, addons),
        dns: crate::render::dns_ask(desired, host, addons),
    })
}

/// Splits rendered files into digests for the plan and contents for the executor.
fn split(
    desired: &Desired,
    host: &Host,
    (parts, leaves): (Vec<Part>, Vec<CertSpec>),
    rendered: Vec<crate::render::RenderedSet>,
) -> (HostTarget, BTreeMap<FileSet, Vec<FilePut>>) {
    let preparation = crate::render::preparation(desired, host);
    let mut target = HostTarget {
        parts,
        leaves,
        sysctls: preparation.sysctls,
        packages: crate::render::packages(desired, host),
        openings: preparation.openings,
        paths: preparation.directories.into_iter().map(|(path, _, _)| path).collect(),
        ..HostTarget::default()
    };
    let mut contents: BTreeMap<FileSet, Vec<FilePut>> = BTreeMap::new();
    for set in rendered {
        target.sets.insert(set.set, set.target());
        contents.insert(set.set, set.files.iter().map(crate::render::RenderedFile::put).collect());
    }
    target.sets.extend(crate::render::former_sets(desired, host));
    (target, contents)
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
