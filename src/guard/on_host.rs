//! Implements the engine's `Authority` with a file of the host: what etcd members are started from, as the last complete
//! `hactl up` left it.
//!
//! In: the [`RepairSpec`]. Out: queries, targets, intents. There is no inventory, no bundle and no CA key: whatever
//! needs one is refused, and a person has to run `hactl up`.

use crate::execute::{ApiClient, ConnectApi, Recoveries};
use crate::kube::KubeError;
use crate::model::attached::Attached;
use crate::model::desired::Desired;
use crate::model::facts::{ClusterId, Facts};
use crate::model::names::{Digest, HostName};
use crate::model::target::{CertSpec, Target};
use crate::observe::{Answers, Queries};
use crate::plan::Intent;
use crate::reconcile::{Authority, Failure, Files, KnownHost, RepairSpec};
use crate::transport::Agent;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why something is refused.
const NEEDS_UP: &str = "no host has that; `hactl up` does it";

/// What a host knows.
pub(super) struct OnHost {
    spec: RepairSpec,
    nothing: Attached,
}

impl OnHost {
    /// By this file.
    pub fn of(spec: RepairSpec) -> Self {
        Self { spec, nothing: Attached::default() }
    }

    /// The file.
    pub fn spec(&self) -> &RepairSpec {
        &self.spec
    }
}

fn needs_up() -> Failure {
    Failure::Authority(NEEDS_UP.into())
}

impl Authority for OnHost {
    fn queries(&self, _: &Arc<Desired>) -> Result<Queries, Failure> {
        Ok(self.spec.spec.queries())
    }

    fn target(&self, _: &Desired, _: &Answers, _: &BTreeMap<HostName, String>) -> Result<(Target, Files), Failure> {
        Ok((self.spec.spec.target.clone(), Files::new()))
    }

    fn complete(&self, _: &Desired, _: &mut Facts) -> Result<(), Failure> {
        Ok(())
    }

    fn intent(&self, _: &ClusterId) -> Result<Intent, Failure> {
        Ok(self.spec.intent())
    }

    fn bootstrap_token(&self) -> Result<String, Failure> {
        Err(needs_up())
    }

    fn known_hosts(&self) -> Result<Vec<KnownHost>, Failure> {
        Ok(Vec::new())
    }

    fn warnings(&self, _: &Desired) -> Vec<String> {
        Vec::new()
    }

    fn attached(&self) -> &Attached {
        &self.nothing
    }

    fn sign(&self, _: &CertSpec, _: &str) -> Result<String, String> {
        Err(NEEDS_UP.to_owned())
    }

    fn artifact(&self, _: &Desired, _: &Digest) -> Result<PathBuf, String> {
        Err(NEEDS_UP.to_owned())
    }

    /// A host has no journal. The cluster was recorded before there was a file.
    fn record(&self, _: &str, _: i64) -> Result<(), String> {
        Ok(())
    }

    fn recoveries(&self) -> Recoveries {
        // No plan of a guard has a snapshot of a recovery.
        Recoveries::of(Path::new("/nonexistent"), Path::new("/nonexistent"))
    }

    fn access(&self) -> Result<Arc<dyn ConnectApi>, Failure> {
        Ok(Arc::new(NoApi))
    }
}

/// A repair of an etcd member uses no API server: it works without any.
struct NoApi;

impl ConnectApi for NoApi {
    fn connect<'a>(&'a self, _: &'a dyn Agent, _: IpAddr, _: u16) -> BoxFuture<'a, Result<ApiClient, KubeError>> {
        Box::pin(async { Err(KubeError::Credentials { why: NEEDS_UP.to_owned() }) })
    }
}
