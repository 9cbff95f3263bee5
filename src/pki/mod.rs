//! The certificates of a cluster: who signs, who is who, and how a request becomes a certificate.
//!
//! In: the desired state, the vault's authorities, requests from hosts. Out: the certificate table as target leaves,
//! signed certificates, credentials for people. Leaf keys never come here: hosts send requests, and of a request only
//! the public key is believed.

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
};
pub use found::found;
pub use places::{KUBELET_SERVING, Kind, authority_paths, certificates_ask, serving, serving_path};
pub use sign::{sign, sign_vouched};
pub use table::{
    ADMINISTRATORS, APPROVERS, KUBELET_API, LEAF_DAYS, OBSERVERS, attended, former_files, keep_addresses, leaf_ids,
    leaves,
};

use crate::issue::IssueError;
use crate::statedir::{BadAuthority, StateDirError};

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A key pair could not be made.
    #[error("cannot make a key pair for {what}")]
    MakeKey {
        /// For what.
        what: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A fresh authority is not one: a fault of this program.
    #[error("the new authority {what} is unusable")]
    Authority {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: BadAuthority,
    },
    /// A file of an authority or key of the administrator's own cannot be used.
    #[error("{}: {why}\n  do: {remedy}", .path.display())]
    Brought {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// The authority is not the one the leaf names.
    #[error("{leaf} is to be signed by authority {wanted}, not by {given}")]
    WrongAuthority {
        /// Which leaf.
        leaf: String,
        /// Key identifier asked for.
        wanted: String,
        /// Key identifier given.
        given: String,
    },
    /// It could not be signed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// No randomness.
    #[error("cannot draw a random number")]
    Random(#[source] StateDirError),
}

#[cfg(test)]
mod signed_tests;
#[cfg(test)]
mod tests;
