//! How the engine can fail. Messages, hints and exit codes are chosen in `report/`.

use crate::model::names::HostName;
use crate::model::refusal::Refusal;
use crate::transport::HostError;
use std::error::Error;

/// How the engine can fail.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Not safe.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An error of the `Authority`: state, artifacts or signatures cannot be provided.
    #[error(transparent)]
    Authority(Box<dyn Error + Send + Sync>),
    /// A host cannot be used, and nothing can be done without it.
    #[error("{host}: {error}")]
    Host {
        /// Which.
        host: HostName,
        /// Why.
        error: Box<HostError>,
    },
    /// No host could be reached.
    #[error("no host answered")]
    NoHost {
        /// Each with its reason.
        hosts: Vec<(HostName, Box<HostError>)>,
    },
    /// Files could not be rendered from the inventory.
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
        /// Whether the previous files were restored and the unit runs with them again.
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
    /// The user's manifests contain objects of hactl's own.
    #[error("{}", .problems.join("\n"))]
    Manifests {
        /// Each with file, line and reason.
        problems: Vec<String>,
    },
    /// The API could not be used.
    #[error(transparent)]
    Api(#[from] crate::kube::KubeError),
}
