//! The administrator's state as the workflows use it: CAs and keys, from the state directory, or in memory for a plan
//! that must leave no trace.

use super::Failure;
use crate::component::Bundle;
use crate::execute::{Access, Recoveries};
use crate::model::attached::Attached;
use crate::model::desired::{Desired, Host, Network, Role};
use crate::model::facts::{Etcd, Facts};
use crate::model::names::{ClusterName, HostName};
use crate::model::positions::{MOST, Position};
use crate::model::recovery::Recovery;
use crate::model::refusal::Refusal;
use crate::model::rotation::Rotatable;
use crate::model::target::CertSpec;
use crate::observe::KnownCluster;
use crate::pki::brought::Brought;
use crate::pki::{self, Credential, PkiError};
use crate::statedir::{
    Carried, Contents, Entry, IDENTITY, Known, Past, Publics, Ranges, StateDir, StateDirError, StateDirLock,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

/// The shortest interval between two records of members' positions, milliseconds.
const NOTED_EVERY_MS: i64 = 3_600_000;

/// The administrator's files beside the state.
#[derive(Default, Clone)]
pub(super) struct Given {
    /// The contents of the files that the inventory names.
    pub attached: Arc<Attached>,
    /// The inventory as it was read.
    pub inventory: String,
    /// The store of bundles.
    pub bundles: PathBuf,
    /// Where the snapshots of recoveries are kept: below the state directory.
    pub recoveries: PathBuf,
}

/// The snapshots of recoveries below a state directory, encrypted to its identity.
pub(super) fn recoveries_of(state: &Path) -> Recoveries {
    Recoveries::of(state, &state.join(IDENTITY))
}

/// CAs and keys.
pub struct State {
    cluster: ClusterName,
    kept: Kept,
    pub(super) given: Given,
    /// Whether this run may write into the state directory.
    held: AtomicBool,
}

enum Kept {
    OnDisk(Box<StateDir>),
    InMemory(Box<Contents>),
}

impl State {
    fn of(cluster: ClusterName, kept: Kept) -> Self {
        Self { cluster, kept, given: Given::default(), held: AtomicBool::new(false) }
    }
    /// The same state with the administrator's other files.
    #[must_use]
    pub(super) fn with(mut self, given: Given) -> Self {
        self.given = given;
        self
    }
    /// The bundle of the wanted Kubernetes version.
    pub(super) fn bundle(&self, desired: &Desired) -> Result<Bundle, Failure> {
        Ok(Bundle::open(&self.given.bundles, &desired.versions.kubernetes)?)
    }
    /// The snapshots of recoveries on this machine.
    pub(super) fn recovery_snapshots(&self) -> Recoveries {
        recoveries_of(&self.given.recoveries)
    }
    /// The state in a directory; `None` if there is none.
    pub fn open(dir: &Path, cluster: &ClusterName) -> Result<Option<Self>, Failure> {
        let state_dir = StateDir::open(dir, cluster)?;
        Ok(state_dir.map(|state_dir| Self::of(cluster.clone(), Kept::OnDisk(Box::new(state_dir)))))
    }
    /// New CAs and keys, stored in a directory.
    pub fn create(dir: &Path, cluster: &ClusterName, brought: Brought) -> Result<Self, Failure> {
        let state_dir = StateDir::create(dir, cluster, pki::found(cluster, brought, OffsetDateTime::now_utc())?)?;
        Ok(Self::of(cluster.clone(), Kept::OnDisk(Box::new(state_dir))))
    }
    /// The current state on disk, held like this one.
    ///
    /// # Errors
    /// The state is lost or unusable.
    pub fn again(&self) -> Result<Self, Failure> {
        let Some(state_dir) = self.state_dir() else { return Err(Failure::NoState { state: PathBuf::from("memory") }) };
        let dir = state_dir.dir().to_owned();
        let again = Self::open(&dir, &self.cluster)?.ok_or(Failure::NoState { state: dir })?.with(self.given.clone());
        again.held.store(self.held.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(again)
    }
    /// Changes the stage of a rotation; on disk before this returns.
    ///
    /// # Errors
    /// A key or file cannot be created.
    pub fn rotate(
        &mut self,
        what: Rotatable,
        step: impl FnOnce(&ClusterName, &mut Contents, OffsetDateTime) -> Result<(), PkiError>,
    ) -> Result<(), Failure> {
        let cluster = self.cluster.clone();
        if let Kept::OnDisk(state_dir) = &mut self.kept {
            state_dir.change::<Failure>(|contents| Ok(step(&cluster, contents, OffsetDateTime::now_utc())?))?;
        }
        self.record(Entry::Rotation { what, stage: self.contents().stage(what) })
    }
    /// The same for a step that cannot fail.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn advance(
        &mut self,
        what: Rotatable,
        step: impl FnOnce(&mut Contents, OffsetDateTime),
    ) -> Result<(), Failure> {
        self.rotate(what, |_, contents, now| {
            step(contents, now);
            Ok(())
        })
    }
    /// The same in memory, for this run only.
    ///
    /// # Errors
    /// A key cannot be created.
    pub fn suppose(
        &mut self,
        step: impl FnOnce(&ClusterName, &mut Contents, OffsetDateTime) -> Result<(), PkiError>,
    ) -> Result<(), Failure> {
        let now = OffsetDateTime::now_utc();
        match &mut self.kept {
            Kept::OnDisk(state_dir) => state_dir.suppose(|contents| Ok(step(&self.cluster, contents, now)?)),
            Kept::InMemory(contents) => Ok(step(&self.cluster, contents, now)?),
        }
    }
    /// CAs and keys from a snapshot. They prove that there was a cluster, so empty disks are a loss.
    pub fn rebuilt(dir: &Path, carried: Carried) -> Result<Self, Failure> {
        let cluster = carried.cluster.clone();
        Ok(Self::of(cluster, Kept::OnDisk(Box::new(StateDir::recreate(dir, carried)?))))
    }
    /// New CAs and keys that are never stored.
    pub fn ephemeral(cluster: &ClusterName, brought: Brought) -> Result<Self, Failure> {
        let contents = Box::new(pki::found(cluster, brought, OffsetDateTime::now_utc())?);
        Ok(Self::of(cluster.clone(), Kept::InMemory(contents)))
    }

    /// CAs and keys.
    pub fn contents(&self) -> &Contents {
        match &self.kept {
            Kept::OnDisk(state_dir) => state_dir.contents(),
            Kept::InMemory(contents) => contents,
        }
    }
    /// The public parts.
    pub fn publics(&self) -> Publics {
        self.contents().publics()
    }
    /// The state directory, if there is one.
    pub fn state_dir(&self) -> Option<&StateDir> {
        match &self.kept {
            Kept::OnDisk(state_dir) => Some(state_dir),
            Kept::InMemory(_) => None,
        }
    }

    /// The result of the state directory; the default if there is none.
    fn on_disk<T: Default>(&self, ask: impl FnOnce(&StateDir) -> Result<T, StateDirError>) -> Result<T, Failure> {
        Ok(self.state_dir().map(ask).transpose()?.unwrap_or_default())
    }

    /// Locks the state until the value is dropped: one run at a time on this machine.
    pub fn hold(&self, verb: &str) -> Result<Option<StateDirLock>, Failure> {
        let Some(state_dir) = self.state_dir() else { return Ok(None) };
        let held = state_dir.lock(verb).map_err(|error| match error {
            StateDirError::Held { path, holder } => {
                Refusal::StateInUse { state: path.display().to_string(), holder }.into()
            }
            error => Failure::from(error),
        })?;
        self.held.store(true, Ordering::Relaxed);
        Ok(Some(held))
    }

    /// The token of the bootstrap in progress. Without a state directory nothing is bootstrapped.
    pub fn initial_token(&self) -> Result<String, Failure> {
        match self.state_dir() {
            Some(state_dir) => Ok(state_dir.bootstrap_token()?),
            None => Ok("chosen when the plan is run".to_owned()),
        }
    }
    /// The past according to the journal.
    pub fn past(&self) -> Result<Past, Failure> {
        self.on_disk(StateDir::past)
    }
    /// The cluster that answered last, according to the journal.
    pub fn known_cluster(&self) -> Result<KnownCluster, Failure> {
        let past = self.past()?;
        Ok(KnownCluster { cluster: past.bootstrapped, recovering: past.open.is_some() })
    }
    /// Messages on recoveries in the journal that began at an impossible revision; except in a dry run, closes them.
    pub fn close_impossible(&self, dry_run: bool) -> Result<Vec<String>, Failure> {
        let mut stated = Vec::new();
        for Recovery { id, base, source, .. } in self.past()?.impossible {
            stated.push(format!(
                "ignoring recovery {id} from {source} in the journal: no cluster reaches revision {base}, at which it \
                 began, so a host reported a false one. The data that it restored does not count; the data that it \
                 archived is considered again"
            ));
            if !dry_run {
                self.record(Entry::RecoveryDropped { id })?;
            }
        }
        Ok(stated)
    }
    /// Records that the last recovery is finished.
    pub fn made_whole(&self) -> Result<(), Failure> {
        match self.past()?.last {
            Some((recovery, false)) => self.record(Entry::RecoveryWhole { id: recovery.id }),
            _ => Ok(()),
        }
    }
    /// Records the positions of members, at most once an hour or when the members change. Positions beyond those of the
    /// members with quorum are not recorded.
    ///
    /// # Errors
    /// A journal that cannot be written.
    pub fn note_positions(&self, desired: &Desired, facts: &Facts) -> Result<(), Failure> {
        let (Etcd::HasQuorum(members), Some(living)) = (&facts.etcd, facts.living()) else { return Ok(()) };
        let hosts = desired.with(Role::Etcd).filter_map(|h| facts.host(&h.name)?.etcd.as_ref());
        let stated = hosts.flat_map(|etcd| etcd.positions.iter().take(MOST));
        let honest = |p: &&Position| {
            p.cluster == living.cluster && p.index <= living.applied && members.0.values().any(|m| m.id == p.member)
        };
        let mut positions = Vec::new();
        stated.filter(honest).cloned().for_each(|position| position.note(&mut positions));
        let past = self.past()?;
        let ids = |all: &[Position]| all.iter().map(|p| p.member).collect::<BTreeSet<u64>>();
        let now_ms = OffsetDateTime::now_utc().unix_timestamp().saturating_mul(1000);
        let recent = past.seen_ms.is_some_and(|at| (0..NOTED_EVERY_MS).contains(&now_ms.saturating_sub(at)));
        if positions.is_empty() || (recent && ids(&positions) == ids(&past.seen)) {
            return Ok(());
        }
        self.record(Entry::Seen { positions })
    }
    /// Ends an open recovery once a quorum answers, even if something else restored it: finishing it later would
    /// discard newer writes.
    pub fn end_recovery(&self, facts: &Facts) -> Result<(), Failure> {
        let (Some(state_dir), Etcd::HasQuorum(_)) = (self.state_dir(), &facts.etcd) else { return Ok(()) };
        let Some(living) = facts.living() else { return Ok(()) };
        Ok(end(state_dir, &living.cluster, living.revision)?)
    }
    /// Records that a quorum answers, after a bootstrap or a recovery, with the cluster's id and revision.
    pub fn answers(&self, cluster_id: &str, revision: i64) -> Result<(), StateDirError> {
        let Some(state_dir) = self.state_dir() else { return Ok(()) };
        let past = state_dir.past()?;
        if past.open.is_some() {
            return end(state_dir, cluster_id, revision);
        }
        // A cluster that was only started was bootstrapped before: its token is used up.
        if past.bootstrapped.is_some() { Ok(()) } else { state_dir.spend_genesis(cluster_id) }
    }
    /// All hosts on record, as the inventory had them last.
    pub fn known(&self) -> Result<Vec<Known>, Failure> {
        self.on_disk(StateDir::hosts)
    }
    /// Records hosts that were added and hosts that were removed.
    pub fn note_hosts(&self, taken_in: &[&Host], left: &[&HostName]) -> Result<(), Failure> {
        self.on_disk(|state_dir| state_dir.note_hosts(taken_in, left))
    }
    /// The Pod and Service CIDRs of the cluster, if they are on record.
    pub fn ranges(&self) -> Result<Option<Ranges>, Failure> {
        self.on_disk(StateDir::ranges)
    }
    /// Records the Pod and Service CIDRs of the cluster, unless some are on record; `replace`: replaces those.
    pub fn note_ranges(&self, network: &Network, replace: bool) -> Result<(), Failure> {
        let ranges = Ranges { pods: network.pods, services: network.services };
        self.on_disk(|state_dir| state_dir.note_ranges(ranges, replace))
    }
    /// The URL of the API in kubeconfigs of the cluster: as the last complete run recorded it, or else as the
    /// administrator's own one has it.
    pub fn known_url(&self) -> Result<Option<String>, Failure> {
        if self.past()?.bootstrapped.is_none() {
            return Ok(None);
        }
        let recorded = self.on_disk(StateDir::url)?;
        // Without the file there is nothing to compare.
        let read = |path: PathBuf| Some(Zeroizing::new(std::fs::read_to_string(path).ok()?));
        Ok(recorded.or_else(|| super::endpoint::in_kubeconfig(&self.kubeconfig_path().and_then(read)?)))
    }
    /// Records the URL of the API in kubeconfigs.
    pub fn note_url(&self, url: &str) -> Result<(), Failure> {
        self.on_disk(|state_dir| state_dir.note_url(url))
    }
    /// Records that the cluster was taken down on purpose: from now on empty disks are no loss, and it has no hosts.
    pub fn taken_down(&self, deleted: bool) -> Result<(), Failure> {
        self.record(Entry::TakenDown { deleted })?;
        self.on_disk(StateDir::forget_hosts)
    }
    /// Writes to the journal.
    pub fn record(&self, entry: Entry) -> Result<(), Failure> {
        self.on_disk(|state_dir| state_dir.record(entry))
    }

    /// Signs a request made on a host.
    pub fn sign_request(&self, leaf: &CertSpec, request: &str) -> Result<String, Failure> {
        let authority = self.contents().issuer(leaf)?;
        let vouched = self.contents().rotations.cross.as_ref();
        Ok(pki::sign_vouched(request, leaf, authority, vouched, OffsetDateTime::now_utc())?)
    }

    /// hactl's own credentials for the API: each valid for an hour, and never stored.
    pub fn api_access(&self) -> Access {
        let signer = self.contents().cluster.clone();
        let issue = move || {
            let credential =
                pki::own_credential(&signer, OffsetDateTime::now_utc()).map_err(|error| error.to_string())?;
            Ok((credential.cert_pem, credential.key_pem))
        };
        Access::new(self.publics().trusted.cluster, Arc::new(issue))
    }

    /// State and inventory as hosts store them: encrypted, with the recipients. A state in memory is not encrypted.
    pub fn sealed(&self, inventory: &str, named: &[String]) -> Result<(String, Vec<String>), Failure> {
        match self.state_dir() {
            Some(state_dir) => {
                let keep = self.held.load(Ordering::Relaxed);
                Ok((state_dir.sealed(&self.cluster, inventory, named, keep)?, state_dir.recipients(named)?))
            }
            None => Ok((String::new(), named.to_vec())),
        }
    }

    /// The path of the administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> Option<PathBuf> {
        self.state_dir().map(|v| v.dir().join("kubeconfig"))
    }

    /// The administrator's kubeconfig; created if there is none, it names another endpoint, or it is about to expire.
    pub fn keep_kubeconfig(&self, url: &str) -> Result<PathBuf, Failure> {
        let (Some(state_dir), Some(path)) = (self.state_dir(), self.kubeconfig_path()) else {
            return Err(Failure::NoState { state: PathBuf::from("memory") });
        };
        let end = state_dir.journal()?.into_iter().rev().find_map(|line| match line.entry {
            Entry::CredentialIssued { common_name, not_after, .. } if common_name == "admin" => Some(not_after),
            _ => None,
        });
        let end = end.and_then(|end| OffsetDateTime::parse(&end, &Rfc3339).ok());
        let left = end.map(|end| end - OffsetDateTime::now_utc());
        let fresh = left.is_some_and(|left| left > time::Duration::days(pki::list::RENEW_KUBECONFIG_DAYS));
        let (publics, text) = (self.publics(), Zeroizing::new(std::fs::read_to_string(&path).unwrap_or_default()));
        // It must be signed by the current CA and contain all trusted CAs, or it stops working before it expires.
        let signed = super::certs::in_kubeconfig(&text).is_some_and(|found| found.authority == publics.cluster.id);
        let names_it = text.contains(url) && text.contains(&STANDARD.encode(&publics.trusted.cluster));
        if fresh && names_it && signed { Ok(path) } else { self.renew_kubeconfig(url) }
    }

    /// Renews the administrator's kubeconfig in any case.
    pub fn renew_kubeconfig(&self, url: &str) -> Result<PathBuf, Failure> {
        let (Some(state_dir), Some(path)) = (self.state_dir(), self.kubeconfig_path()) else {
            return Err(Failure::NoState { state: PathBuf::from("memory") });
        };
        let credential = pki::admin_credential(&self.contents().cluster, OffsetDateTime::now_utc())?;
        let text = self.write_down(url, &credential)?;
        state_dir.replace("kubeconfig", text.reveal())?;
        Ok(path)
    }

    /// A credential that RBAC cannot revoke, valid for 8 hours.
    pub fn break_glass(&self, url: &str) -> Result<crate::model::secret::Secret<String>, Failure> {
        let credential = pki::break_glass_credential(&self.contents().cluster, OffsetDateTime::now_utc())?;
        self.write_down(url, &credential)
    }

    /// A credential that reads metrics, and the certificates of the CAs that hosts, and kubelets, have theirs from.
    pub fn reader(&self, name: &str) -> Result<(Credential, [String; 2]), Failure> {
        let credential = pki::reader_credential(&self.contents().cluster, name, OffsetDateTime::now_utc())?;
        self.issued(&credential)?;
        let trusted = self.publics().trusted;
        Ok((credential, [trusted.cluster, trusted.kubelet_serving]))
    }

    /// Records a credential in the journal.
    fn issued(&self, credential: &Credential) -> Result<(), Failure> {
        self.record(Entry::CredentialIssued {
            common_name: credential.common_name.clone(),
            organizations: credential.organizations.clone(),
            serial: credential.serial.clone(),
            not_after: credential.not_after.format(&Rfc3339).unwrap_or_default(),
        })
    }

    /// The kubeconfig of a credential, which is recorded in the journal first.
    fn write_down(&self, url: &str, credential: &Credential) -> Result<crate::model::secret::Secret<String>, Failure> {
        self.issued(credential)?;
        Ok(pki::kubeconfig(&self.cluster, url, &self.publics().trusted.cluster, credential))
    }
}

/// Ends the open recovery, now that this cluster answers. If its revision has leapt, the recovery created it; otherwise
/// the previous cluster is back, and the recovery is recorded as dropped.
fn end(state_dir: &StateDir, cluster_id: &str, revision: i64) -> Result<(), StateDirError> {
    let Some(recovery) = state_dir.past()?.open else { return Ok(()) };
    let (id, cluster_id) = (recovery.id, cluster_id.to_owned());
    let made = revision >= recovery.base;
    state_dir.record(if made { Entry::RecoveryEnded { id, cluster_id } } else { Entry::RecoveryDropped { id } })
}
