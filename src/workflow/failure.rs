//! How a workflow can fail. Messages, hints and exit codes are chosen in `report/`.

use crate::component::BundleError;
use crate::kube::KubeError;
use crate::model::check::Check;
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::reconcile::Failure as Stop;
use crate::render::RenderError;
use crate::statedir::StateDirError;
use crate::transport::HostError;

/// How a workflow can fail.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The engine failed, or refused.
    #[error(transparent)]
    Engine(Stop),
    /// The administrator's state cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// hactl could not read itself.
    #[error(transparent)]
    Access(Box<HostError>),
    /// A required host is not connected.
    #[error("cannot query {host}: {why}")]
    NotConnected {
        /// Which.
        host: HostName,
        /// Why.
        why: String,
    },
    /// A host sent a reply of the wrong kind.
    #[error("{0} sent an unexpected reply")]
    Odd(HostName),
    /// No host that answers has a member that answers.
    #[error("no etcd member answers on any host")]
    NoMember,
    /// A snapshot cannot be used.
    #[error(transparent)]
    Recovery(#[from] super::Unusable),
    /// There is no state for this cluster.
    #[error("there is no state at {}", .state.display())]
    NoState {
        /// Where it should be.
        state: std::path::PathBuf,
    },
    /// A key or certificate could not be made.
    #[error(transparent)]
    Pki(#[from] crate::pki::PkiError),
    /// The named certificate is not renewed by hactl.
    #[error(transparent)]
    NotRenewable(#[from] crate::pki::NotRenewable),
    /// The cluster was taken down only in part.
    #[error("{} did not answer and may still run the cluster", .hosts.iter().map(HostName::as_str).collect::<Vec<_>>().join(", "))]
    StillUp {
        /// Hosts that did not answer.
        hosts: Vec<HostName>,
    },
    /// All steps are done, but a check fails.
    #[error("{} check(s) do not pass", .checks.len())]
    Unverified {
        /// The checks that do not pass.
        checks: Vec<Check>,
    },
    /// A maintenance does not go on.
    #[error(transparent)]
    Maintenance(#[from] crate::controllers::MaintenanceError),
    /// A support bundle cannot be written.
    #[error(transparent)]
    Support(#[from] crate::support::SupportError),
    /// A local file or program could not be used.
    #[error("{what}")]
    Local {
        /// What was tried, with the path.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

impl Failure {
    /// A host cannot be used, and nothing can be done without it.
    pub(super) fn of_host(host: &HostName, error: HostError) -> Self {
        Self::Engine(Stop::Host { host: host.clone(), error: Box::new(error) })
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        match stop {
            // This error came from the state's implementation of `Authority`.
            Stop::Authority(error) => match error.downcast::<Self>() {
                Ok(own) => *own,
                Err(error) => Self::Engine(Stop::Authority(error)),
            },
            stop => Self::Engine(stop),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Engine(refusal.into())
    }
}

impl From<RenderError> for Failure {
    fn from(error: RenderError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<KubeError> for Failure {
    fn from(error: KubeError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Engine(stop) => stop,
            own => Self::Authority(Box::new(own)),
        }
    }
}
