//! The certificates of a cluster: their signers and subjects, and how a request becomes a certificate.
//!
//! In: the desired state, the CAs of the state directory, requests from hosts. Out: the certificate table, signed
//! certificates, credentials for people. Private keys of hosts' certificates never get here: hosts send requests, and
//! only the public key of a request is used.

pub mod brought;
mod choice;
mod credential;
mod found;
pub mod list;
mod places;
pub mod rotate;
mod sign;
mod table;

pub use crate::statedir::{Authority, Contents, Publics};
pub use choice::{Chosen, NotRenewable, choose, renewable};
pub use credential::{
    Credential, admin_credential, break_glass_credential, client_credential, key_id, kubeconfig, own_credential,
    reader_credential,
};
pub use found::found;
pub use places::{KUBELET_SERVING, Kind, authority_paths, certificates_ask, serving, serving_path};
pub use sign::{sign, sign_vouched};
pub use table::{
    ADMINISTRATORS, APPROVERS, KUBELET_API, LEAF_DAYS, OBSERVERS, attended, current_files, former_files, has_issuer,
    keep_addresses, leaf_ids, leaves,
};

use crate::issue::IssueError;
use crate::statedir::{BadAuthority, StateDirError};

/// Why a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A key pair could not be created.
    #[error("cannot create a key pair for {what}")]
    MakeKey {
        /// Its purpose.
        what: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A new CA is invalid: a bug in hactl.
    #[error("the new CA {what} is unusable; this is a bug in hactl")]
    Authority {
        /// Which CA.
        what: String,
        /// Why.
        #[source]
        source: BadAuthority,
    },
    /// A supplied file with a CA or key cannot be used.
    #[error("{}: {why}\n  do: {remedy}", .path.display())]
    Brought {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: String,
        /// The remedy.
        remedy: String,
    },
    /// The CA is not the one that the certificate requires.
    #[error("{leaf} must be signed by CA {wanted}, not by {given}")]
    WrongAuthority {
        /// Which certificate.
        leaf: String,
        /// Key identifier of the required CA.
        wanted: String,
        /// Key identifier of the given CA.
        given: String,
    },
    /// Signing failed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The random number generator failed.
    #[error("the random number generator failed")]
    Random(#[source] StateDirError),
}

#[cfg(test)]
mod signed_tests;
#[cfg(test)]
mod tests;
