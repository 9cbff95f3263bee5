//! Who may say what the cluster should be: the seam between the engine and what only an administrator has.
//!
//! In: what the engine needs to know or to have signed. Out: that, or a [`Failure`]. The state directory implements it on an administrator's
//! machine (`workflow/state.rs`); a host that has no CA key can only answer that a person has to run `hactl up`.

use super::{Failure, Files};
use crate::execute::{Access, Recoveries};
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
    /// Whether it has left since.
    pub left: bool,
}

/// What only an administrator's side knows and may do.
pub trait Authority: Send + Sync {
    /// What each host is asked.
    ///
    /// # Errors
    /// State or bundle that cannot be used.
    fn queries(&self, desired: &Arc<Desired>) -> Result<Queries, Failure>;
    /// What each host that answered should hold, as digests, and the contents behind them. `paths`: where hactl itself is stored on each.
    ///
    /// # Errors
    /// State, bundle or template that cannot be used.
    fn target(
        &self,
        desired: &Desired,
        answers: &Answers,
        paths: &BTreeMap<HostName, String>,
    ) -> Result<(Target, Files), Failure>;
    /// Completes the facts by what hosts cannot be believed in: who signed their snapshots, and how far members were seen before.
    ///
    /// # Errors
    /// State that cannot be used.
    fn complete(&self, desired: &Desired, facts: &mut Facts) -> Result<(), Failure>;
    /// What the journal remembers, as a plan needs it, with nothing pruned and no choices of a person.
    ///
    /// # Errors
    /// State that cannot be used.
    fn intent(&self, cluster: &ClusterId) -> Result<Intent, Failure>;
    /// The initial cluster token, in the journal before this returns.
    ///
    /// # Errors
    /// State that cannot be used.
    fn bootstrap_token(&self) -> Result<String, Failure>;
    /// All hosts that ever joined.
    ///
    /// # Errors
    /// State that cannot be used.
    fn known_hosts(&self) -> Result<Vec<KnownHost>, Failure>;
    /// What cannot be as the inventory asks, for people.
    fn warnings(&self, desired: &Desired) -> Vec<String>;
    /// The contents of the files that the inventory names.
    fn attached(&self) -> &Attached;
    /// Signs a request made on a host; the CA's key never leaves this side. The error is in words.
    ///
    /// # Errors
    /// No such CA, or a request that is not signed.
    fn sign(&self, spec: &CertSpec, request: &str) -> Result<String, String>;
    /// The compressed, verified file of a part. The error is in words.
    ///
    /// # Errors
    /// It is not in the bundle, or not intact.
    fn artifact(&self, desired: &Desired, digest: &Digest) -> Result<PathBuf, String>;
    /// Records that a cluster answers, with its id and revision: that it was bootstrapped, or recovered. The error is in words.
    ///
    /// # Errors
    /// The journal cannot be written.
    fn record(&self, cluster: &str, revision: i64) -> Result<(), String>;
    /// Where the snapshots of recoveries are kept on this side.
    fn recoveries(&self) -> Recoveries;
    /// How the engine authenticates to the API: a short-lived credential, never written.
    ///
    /// # Errors
    /// State that cannot be used.
    fn access(&self) -> Result<Access, Failure>;
}
