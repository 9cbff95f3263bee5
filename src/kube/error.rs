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

/// What the API server passes on from etcd while a member is changed for another or an election goes on: see etcd's
/// api/v3rpc/rpctypes/error.go.
const ETCD_SOON: [&str; 5] = [
    "rpc error: code = Unavailable",
    "etcdserver: leader changed",
    "etcdserver: request timed out",
    "etcdserver: no leader",
    "etcdserver: too many requests",
];

impl KubeError {
    /// Whether asking again may help: the server is starting, busy, or the connection broke.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { status: 429 | 503 | 504, .. } => true,
            Self::Refused { status: 500, reason, message, .. } => {
                reason == "ServerTimeout" || ETCD_SOON.iter().any(|soon| message.contains(soon))
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_will_do_in_a_moment_is_asked_again_and_a_full_disk_is_not() {
        let refused = |message: &str| KubeError::Refused {
            what: "apply".to_owned(),
            status: 500,
            reason: String::new(),
            message: message.to_owned(),
        };
        assert!(refused("rpc error: code = Unavailable desc = error reading from server: EOF").is_transient());
        assert!(refused("etcdserver: leader changed").is_transient());
        assert!(!refused("etcdserver: mvcc: database space exceeded").is_transient());
        assert!(!refused("Internal error occurred: failed calling webhook").is_transient());
    }
}
