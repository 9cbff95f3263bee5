//! Errors between hactl and the Kubernetes API.

/// Why an API call failed.
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
    /// An object lacks a field that identifies it.
    #[error("an object has no {field}, so it cannot be looked up in the API")]
    Nameless {
        /// The missing field.
        field: &'static str,
    },
    /// An expected object does not exist.
    #[error("{what} does not exist")]
    Missing {
        /// Which.
        what: String,
    },
    /// An object that was to be deleted contains other objects by now.
    #[error("{what} was not deleted: {why}; run hactl again to see the new plan")]
    Kept {
        /// Which.
        what: String,
        /// The objects in it.
        why: String,
    },
    /// The API server does not serve this kind.
    #[error("the API server has no kind {kind} in {api_version}; apply the CRD first, or correct the manifest")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The API server refused the request.
    #[error("{what}: the API server answered {status} {reason}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// The reason in Kubernetes' status.
        reason: String,
        /// The message in Kubernetes' status.
        message: String,
    },
    /// No answer arrived.
    #[error("{what}: no answer from the API server: {why}")]
    Unreachable {
        /// The request.
        what: String,
        /// The error of the connection.
        why: String,
    },
    /// The answer is not valid for an API server.
    #[error("{what}: the answer is invalid: {why}")]
    Garbled {
        /// The request.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A deadline passed.
    #[error("{what}: timed out; last observed: {seen}")]
    TimedOut {
        /// The awaited event, or the request.
        what: String,
        /// The last observed state.
        seen: String,
    },
}

/// Errors of etcd that the API server passes on while a member is replaced or an election is in progress: see etcd's
/// api/v3rpc/rpctypes/error.go.
const ETCD_SOON: [&str; 5] = [
    "rpc error: code = Unavailable",
    "etcdserver: leader changed",
    "etcdserver: request timed out",
    "etcdserver: no leader",
    "etcdserver: too many requests",
];

impl KubeError {
    /// Whether a retry may help: the server is starting or busy, or the connection broke.
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
    /// Whether the object, or its namespace or parent, does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
    /// Whether the API server understood the request and refuses it for good.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused { status: 400..=499, .. })
            && !matches!(self, Self::Refused { status: 409 | 429, .. })
    }
    /// Whether another client changed the object first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_of_etcd_are_retried_and_a_full_disk_is_not() {
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
