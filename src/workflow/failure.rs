//! How a workflow can fail. Messages, hints and exit codes are chosen in `report/`.

use crate::component::BundleError;
use crate::model::check::Check;
use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::statedir::StateDirError;
use crate::transport::HostError;

/// How a workflow can fail.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Not safe.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The administrator's state cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A host cannot be used and nothing can be done without it.
    #[error("{host}: {error}")]
    Host {
        /// Which.
        host: HostName,
        /// Why.
        error: Box<HostError>,
    },
    /// hactl could not read itself.
    #[error(transparent)]
    Access(Box<HostError>),
    /// No host could be reached.
    #[error("no host answered")]
    NoHost {
        /// Each with its reason.
        hosts: Vec<(HostName, Box<HostError>)>,
    },
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
    /// Files could not be made from the inventory.
    #[error(transparent)]
    Render(#[from] crate::render::RenderError),
    /// Steps failed.
    #[error("{failed} steps failed; {done} are done")]
    Steps {
        /// How many failed.
        failed: usize,
        /// How many are done.
        done: usize,
        /// Where the first failed.
        host: Option<HostName>,
        /// What it tried.
        what: String,
        /// Why it failed.
        why: String,
        /// Whether the previous files were restored.
        rolled_back: bool,
    },
    /// The person interrupted.
    #[error("interrupted: {done} steps are done, {left} were not started")]
    Interrupted {
        /// How many are done.
        done: usize,
        /// How many were not started.
        left: usize,
    },
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
    /// A support bundle cannot be written.
    #[error(transparent)]
    Support(#[from] crate::support::SupportError),
    /// The user's manifests contain objects of hactl.
    #[error("{}", .problems.join("\n"))]
    Manifests {
        /// Each with file, line and reason.
        problems: Vec<String>,
    },
    /// The API could not be used.
    #[error(transparent)]
    Api(#[from] crate::kube::KubeError),
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

impl From<crate::reconcile::Failure> for Failure {
    fn from(failure: crate::reconcile::Failure) -> Self {
        use crate::reconcile::Failure as Stop;
        match failure {
            Stop::Refused(refusal) => Self::Refused(refusal),
            // This error came from the state's implementation of `Authority`.
            Stop::Authority(error) => match error.downcast::<Self>() {
                Ok(own) => *own,
                Err(error) => Self::Local { what: error.to_string(), source: std::io::Error::other(error) },
            },
            Stop::Host { host, error } => Self::Host { host, error },
            Stop::NoHost { hosts } => Self::NoHost { hosts },
            Stop::Render(error) => Self::Render(error),
            Stop::Steps { failed, done, host, what, why, rolled_back } => {
                Self::Steps { failed, done, host, what, why, rolled_back }
            }
            Stop::Interrupted { done, left } => Self::Interrupted { done, left },
            Stop::Manifests { problems } => Self::Manifests { problems },
            Stop::Api(error) => Self::Api(error),
        }
    }
}

impl From<Failure> for crate::reconcile::Failure {
    fn from(failure: Failure) -> Self {
        Self::Authority(Box::new(failure))
    }
}
