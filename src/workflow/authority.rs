//! Implements the engine's `Authority` with the state directory: the target of each host, the journal, signatures and
//! components.
//!
//! In: the state, the inventory's files and the bundle. Out: queries, targets with their contents, intents, signed
//! certificates.

use super::state::State;
use super::{Failure, authentic};
use crate::component::Bundle;
use crate::execute::{ConnectApi, Recoveries};
use crate::model::attached::Attached;
use crate::model::desired::{Desired, Host, Role};
use crate::model::facts::{ClusterId, Facts, HostFacts};
use crate::model::healing::{SPEC, heals, is_guarded};
use crate::model::leaf::Renewal;
use crate::model::names::{Digest, HostName};
use crate::model::rotation::Rotatable;
use crate::model::target::{Addon, CaId, CertSpec, FileSet, HostTarget, Part, Target, missing_packages};
use crate::observe::{Answers, Queries};
use crate::plan::Intent;
use crate::protocol::{FilePut, ObserveAsk};
use crate::reconcile::{Authority, EtcdPast, Failure as Stop, Files, KnownHost, RepairSpec, Spec, manifests};
use crate::render::{Input, Keys, Sealed, Trust};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

impl Authority for State {
    fn queries(&self, desired: &Arc<Desired>) -> Result<Queries, Stop> {
        Ok(self.questions(desired)?)
    }

    fn target(
        &self,
        desired: &Desired,
        answers: &Answers,
        paths: &BTreeMap<HostName, String>,
    ) -> Result<(Target, Files), Stop> {
        Ok(self.rendered(desired, answers, paths)?)
    }

    fn complete(&self, desired: &Desired, facts: &mut Facts) -> Result<(), Stop> {
        authentic::all(self, desired, facts);
        facts.noted = self.past()?.seen;
        Ok(())
    }

    fn intent(&self, cluster: &ClusterId) -> Result<Intent, Stop> {
        let past = self.past()?;
        let bootstrapped = past.bootstrapped.is_some();
        let known = self.known()?;
        Ok(Intent {
            // A recovery that was started creates a cluster, even if no run has observed it yet: hactl must not
            // bootstrap another one.
            bootstrapped: bootstrapped || past.open.is_some(),
            abandons: past.abandons(),
            recovered: past.recovered(),
            leapt: past.leapt,
            ranges: self.ranges()?.filter(|_| bootstrapped).map(|ranges| (ranges.pods, ranges.services)),
            dropped: past.dropped,
            lived: past.lived,
            taken_down_ms: past.taken_down_ms,
            cluster_id: cluster.clone(),
            bootstrap_token: String::new(),
            prune: vec![],
            removed_hosts: vec![],
            balanced: BTreeSet::new(),
            limit: None,
            replace: BTreeMap::new(),
            reassign: BTreeSet::new(),
            remembered: known.into_iter().map(|known| (known.host.name, known.host.address)).collect(),
            renew: Renewal::default(),
        })
    }

    fn bootstrap_token(&self) -> Result<String, Stop> {
        Ok(self.initial_token()?)
    }

    fn known_hosts(&self) -> Result<Vec<KnownHost>, Stop> {
        Ok(self.known()?.into_iter().map(|known| KnownHost { host: known.host, left: known.left }).collect())
    }

    fn warnings(&self, desired: &Desired) -> Vec<String> {
        let issuers = crate::pki::attended(desired, &self.publics()).into_iter().map(attended);
        // A state that cannot be read ends the run elsewhere.
        let known = self.known_url().ok().flatten();
        issuers.chain(known.and_then(|was| super::endpoint::moved(&was, desired))).collect()
    }

    fn attached(&self) -> &Attached {
        &self.given.attached
    }

    fn sign(&self, spec: &CertSpec, request: &str) -> Result<String, String> {
        self.sign_request(spec, request).map_err(|e| e.to_string())
    }

    fn artifact(&self, desired: &Desired, digest: &Digest) -> Result<PathBuf, String> {
        self.bundle(desired).and_then(|bundle| Ok(bundle.blob(digest)?)).map_err(|e| e.to_string())
    }

    fn record(&self, cluster: &str, revision: i64) -> Result<(), String> {
        self.answers(cluster, revision).map_err(|e| e.to_string())
    }

    fn recoveries(&self) -> Recoveries {
        self.recovery_snapshots()
    }

    fn access(&self) -> Result<Arc<dyn ConnectApi>, Stop> {
        Ok(Arc::new(self.api_access()))
    }
}

impl State {
    /// The queries for each host.
    fn questions(&self, desired: &Arc<Desired>) -> Result<Queries, Failure> {
        let bundle = self.bundle(desired)?;
        let rotations = &self.contents().rotations;
        let (cluster, ca, stages) = (desired.cluster.clone(), rotations.founded, rotations.stages);
        let cluster = ClusterId { cluster, ca, stages, host: None, machine: None };
        let addons = own_addons(desired, &bundle)?;
        let ask = |host: &Host| Ok((host.name.clone(), question(desired, host, self, &bundle, &addons)?));
        let hosts = desired.entered().map(ask).collect::<Result<_, Failure>>()?;
        Ok(Queries::new(Arc::clone(desired), cluster, self.known_cluster()?, hosts))
    }

    /// The rendered target of each host that answered.
    fn rendered(
        &self,
        desired: &Desired,
        answers: &Answers,
        paths: &BTreeMap<HostName, String>,
    ) -> Result<(Target, Files), Failure> {
        let bundle = self.bundle(desired)?;
        let mut addons = own_addons(desired, &bundle)?;
        // Only now: the hosts may not read the objects of the users.
        addons.extend(manifests::addon(&self.given.attached));
        let mut target = Target { addons, ..Target::default() };
        let (text, recipients) = self.sealed(&self.given.inventory, &desired.snapshots.recipients)?;
        let sealed = Sealed { text: &text, recipients: &recipients, authority: self.contents().rotations.founded };
        let mut files = Files::new();
        let parting = somebody_parts(desired, answers);
        for host in &desired.hosts {
            let Some(Ok(facts)) = answers.get(&host.name) else { continue };
            let (bundled, packages) = bundled(&bundle, desired, host, facts);
            let mut parts = bundle.parts_for(desired, host, &facts.architecture)?;
            parts.extend(packages);
            let hactl = paths.get(&host.name).cloned().unwrap_or_default();
            let (publics, material) = (self.publics(), self.contents().material());
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
                attached: &self.given.attached,
                hactl_path: &hactl,
            })?;
            let (mut host_target, contents) = split(desired, host, (parts, leaves), rendered);
            host_target.bundled = bundled;
            // A port that a host still needs until it has given up a role is closed in the next round.
            if let (true, Some(wanted), Some(found)) = (parting, &mut host_target.openings, &facts.firewall) {
                wanted.extend(found.open.iter().copied());
            }
            target.hosts.insert(host.name.clone(), host_target);
            files.insert(host.name.clone(), contents);
        }
        add_daemon_sets(desired, &mut target, &files)?;
        self.add_spec(desired, &mut target, &mut files)?;
        Ok((target, files))
    }
}

impl State {
    /// Fills the file from which guards plan repairs of etcd members: it is made from the target of all hosts.
    fn add_spec(&self, desired: &Desired, target: &mut Target, files: &mut Files) -> Result<(), Failure> {
        if !desired.hosts.iter().any(|host| heals(desired, host)) {
            return Ok(());
        }
        let queries = self.questions(&Arc::new(desired.clone()))?;
        let past = EtcdPast::of(&self.intent(&queries.cluster_id)?);
        let text = RepairSpec::of(Spec::of(desired, target, &queries), past).to_text();
        let digest = Digest::of(text.as_bytes());
        let targets = target.hosts.values_mut().filter_map(|host| host.sets.get_mut(&FileSet::Guard));
        for file in targets.flat_map(|set| &mut set.files).filter(|file| file.path == SPEC) {
            file.digest = digest;
        }
        let contents = files.values_mut().filter_map(|sets| sets.get_mut(&FileSet::Guard));
        for file in contents.flatten().filter(|file| file.path == SPEC) {
            file.content.clone_from(&text);
        }
        Ok(())
    }
}

/// Fills the add-on of a self-hosted control plane: it is made from the static pods of the hosts.
fn add_daemon_sets(desired: &Desired, target: &mut Target, files: &Files) -> Result<(), Failure> {
    let pods = desired.with(Role::ControlPlane).filter_map(|host| {
        let files = files.get(&host.name)?.get(&FileSet::ControlPlane)?;
        Some((host.address, files.as_slice()))
    });
    let pods: Vec<_> = pods.collect();
    let Some(mut made) = crate::render::daemon_sets(desired, &pods)? else { return Ok(()) };
    manifests::mark(&mut made);
    for addon in target.addons.iter_mut().filter(|addon| addon.name == made.name) {
        *addon = made.clone();
    }
    Ok(())
}

/// hactl's own add-ons, with its labels.
fn own_addons(desired: &Desired, bundle: &Bundle) -> Result<Vec<Addon>, Failure> {
    let mut addons = crate::render::addons(desired, &bundle.parts())?;
    addons.iter_mut().for_each(manifests::mark);
    Ok(addons)
}

/// The distributions whose packages the bundle has, if packages come from it, and those for a host that needs them:
/// programs are missing, or an installation by hactl was interrupted.
fn bundled(
    bundle: &Bundle,
    desired: &Desired,
    host: &Host,
    facts: &HostFacts,
) -> (Option<BTreeSet<String>>, Option<Part>) {
    if !desired.bundled_packages {
        return (None, None);
    }
    let wanted = crate::render::packages(desired, host);
    let is_interrupted = facts.cluster_id.is_some() && !wanted.keys().all(|path| facts.programs.contains(path));
    let is_needed = is_interrupted || missing_packages(&wanted, &facts.programs).next().is_some();
    let mut all = bundle.packages(&facts.architecture);
    let distributions = all.keys().cloned().collect();
    (Some(distributions), all.remove(&facts.distribution()).filter(|_| is_needed))
}

/// Whether a host that answers is about to be removed or to lose a role: until then no port is closed.
fn somebody_parts(desired: &Desired, answers: &Answers) -> bool {
    let facts = |host: &Host| answers.get(&host.name).and_then(|answer| answer.as_ref().ok());
    let gives_up = |host: &Host| {
        let Some(facts) = facts(host).filter(|facts| facts.cluster_id.is_some()) else { return false };
        let there = |path: &String| facts.files.contains_key(path);
        let sets = crate::render::former_sets(desired, host);
        sets.values().any(|set| set.is_told(there) && set.own.iter().any(there))
    };
    desired.leaving.iter().any(|host| facts(host).is_some_and(|facts| facts.cluster_id.is_some()))
        || desired.hosts.iter().any(gives_up)
}

/// The warning that a setting of the inventory has no effect until a CA is replaced.
fn attended(ca: CaId) -> String {
    let (whose, rotated) = match ca {
        CaId::Cluster => ("the cluster CA", Rotatable::ClusterCa),
        CaId::Etcd => ("the etcd CA", Rotatable::EtcdCa),
        CaId::FrontProxy => ("the front proxy CA", Rotatable::FrontProxyCa),
    };
    format!(
        "certificates.unattended: {whose} cannot have intermediate CAs (its path length is 0), so only `hactl up` \
         renews the certificates that it signed; `hactl certs rotate {rotated}` replaces it with a CA that can"
    )
}

/// The full query for one host.
fn question(
    desired: &Desired,
    host: &Host,
    state: &State,
    bundle: &Bundle,
    addons: &[Addon],
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
        guard: is_guarded(desired, host),
        hosting: Some((host.address, desired.api_port)),
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
        contents.insert(set.set, set.files);
    }
    target.sets.extend(crate::render::former_sets(desired, host));
    (target, contents)
}
