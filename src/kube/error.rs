//! What can go wrong between hactl and the API.

/// Why the API did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// Certificates or keys cannot be used.
    #[error("the certificates for the API cannot be used: {why}")]
    Credentials {
        /// What is wrong with them.
        why: String,
    },
    /// A file of certificates, keys or settings cannot be read.
    #[error("{path} cannot be read: {source}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// An object lacks what names it.
    #[error("an object has no {field}, so the API cannot be asked for it")]
    Nameless {
        /// The missing field.
        field: &'static str,
    },
    /// Something that should be there is not.
    #[error("{what} does not exist")]
    Missing {
        /// Which.
        what: String,
    },
    /// It was to be deleted, and holds something by now.
    #[error("{what} is not deleted: {why}; run it again to see what is to be done")]
    Kept {
        /// Which.
        what: String,
        /// What it holds.
        why: String,
    },
    /// The API server has no such kind.
    #[error("the API server knows no kind {kind} in {api_version}; apply the CRD first, or correct the manifest")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The API server said no.
    #[error("{what}: the API server answered {status} {reason}: {message}")]
    Refused {
        /// What was asked.
        what: String,
        /// HTTP status.
        status: u16,
        /// Kubernetes' word for it.
        reason: String,
        /// Its explanation.
        message: String,
    },
    /// No answer came.
    #[error("{what}: no answer from the API server: {why}")]
    Unreachable {
        /// What was asked.
        what: String,
        /// What happened to the connection.
        why: String,
    },
    /// The answer is not what an API server says.
    #[error("{what}: the answer makes no sense: {why}")]
    Garbled {
        /// What was asked.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A deadline passed.
    #[error("{what} did not come true in time; last seen: {seen}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// What was seen last.
        seen: String,
    },
}

impl KubeError {
    /// Whether asking again may help: the server is starting, busy, or the connection broke.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status: 429 | 503 | 504, .. } => true,
            Self::Refused { status: 500, reason, .. } => reason == "ServerTimeout",
            _ => false,
        }
    }
    /// Whether the object, or what it hangs on, is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
    /// Whether somebody else was faster.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }
}
