//! The interface between the engine and everything that only an administrator has: the wanted state and the CA keys.
//!
//! In: requests of the engine. Out: targets, records and signatures, or a [`Failure`]. On an administrator's machine
//! the state directory implements it (`workflow/authority.rs`); a host without a CA key can only answer that a person
//! has to run `hactl up`.

use super::{Failure, Files};
use crate::execute::{ConnectApi, Recoveries};
use crate::model::attached::Attached;
use crate::model::desired::{Desired, Host};
use crate::model::facts::{ClusterId, Facts};
use crate::model::names::{Digest, HostName};
use crate::model::target::{CertSpec, Target};
use crate::observe::{Answers, Queries};
use crate::plan::Intent;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A host that joined the cluster at some time, as the inventory had it last.
#[derive(Debug, Clone)]
pub struct KnownHost {
    /// The host.
    pub host: Host,
    /// Whether it was removed since.
    pub left: bool,
}

/// The knowledge and rights of an administrator.
pub trait Authority: Send + Sync {
    /// The queries for each host.
    ///
    /// # Errors
    /// The state or the bundle cannot be used.
    fn queries(&self, desired: &Arc<Desired>) -> Result<Queries, Failure>;
    /// The target of each host that answered, as digests, and the contents behind them. `paths`: the path of hactl
    /// itself on each host.
    ///
    /// # Errors
    /// The state, the bundle or a template cannot be used.
    fn target(
        &self,
        desired: &Desired,
        answers: &Answers,
        paths: &BTreeMap<HostName, String>,
    ) -> Result<(Target, Files), Failure>;
    /// Completes the facts with those for which hosts are not trusted: the signers of their snapshots, and the recorded
    /// positions of members.
    ///
    /// # Errors
    /// The state cannot be used.
    fn complete(&self, desired: &Desired, facts: &mut Facts) -> Result<(), Failure>;
    /// The intent according to the journal, with nothing pruned and without the choices of a person.
    ///
    /// # Errors
    /// The state cannot be used.
    fn intent(&self, cluster: &ClusterId) -> Result<Intent, Failure>;
    /// The initial cluster token, in the journal before this returns.
    ///
    /// # Errors
    /// The state cannot be used.
    fn bootstrap_token(&self) -> Result<String, Failure>;
    /// All hosts that ever joined.
    ///
    /// # Errors
    /// The state cannot be used.
    fn known_hosts(&self) -> Result<Vec<KnownHost>, Failure>;
    /// Warnings about settings of the inventory without effect.
    fn warnings(&self, desired: &Desired) -> Vec<String>;
    /// The contents of the files that the inventory names.
    fn attached(&self) -> &Attached;
    /// Signs a CSR of a host; the CA's key never leaves this machine. The error is a message.
    ///
    /// # Errors
    /// There is no such CA, or the request is refused.
    fn sign(&self, spec: &CertSpec, request: &str) -> Result<String, String>;
    /// The compressed, verified file of a component. The error is a message.
    ///
    /// # Errors
    /// It is not in the bundle, or damaged.
    fn artifact(&self, desired: &Desired, digest: &Digest) -> Result<PathBuf, String>;
    /// Records that a cluster answers, after a bootstrap or recovery, with its id and revision. The error is a message.
    ///
    /// # Errors
    /// The journal cannot be written.
    fn record(&self, cluster: &str, revision: i64) -> Result<(), String>;
    /// The snapshots of recoveries on this machine.
    fn recoveries(&self) -> Recoveries;
    /// The engine's credential for the API: short-lived, and never stored.
    ///
    /// # Errors
    /// The state cannot be used.
    fn access(&self) -> Result<Arc<dyn ConnectApi>, Failure>;
}
