//! Bundles: the pinned programs and images of one Kubernetes version, kept compressed on the administrator's machine.
//!
//! In: a directory of built components, the publishers' servers, a bundle in one file, or a store made earlier. Out: the [`Part`]s a host should have, in the
//! order they are best sent, and the file to send for each. Hosts need no internet; what was pinned when the bundle was
//! built is what they get, checked here before it is sent and there before it is used.
//!
//! A store is `blobs/sha256/<digest of the content>.zst` and `bundles/<name>.lock.json`. Versions of Kubernetes lie side
//! by side and share what is the same.
//!
//! [`Part`]: crate::model::target::Part

mod build;
mod bundle;
mod carry;
mod fetch;
mod lock;
mod memory;
mod pack;
mod publishers;
mod tar;
mod verify;

pub use crate::model::components::Kind;
pub use build::{Built, build};
pub use bundle::{Bundle, default_store, list};
pub use carry::{Carried, CarryError, Exported, export, import};
pub use fetch::{
    BadMirror, Downloaded, FetchError, Mirror, Mirrors, Moment, Order, Patience, Prospect, Source, Standing, download,
    prospect,
};
pub use lock::{Component, Lock};
pub use pack::Progress;
pub use publishers::{Arch, HOSTS, NoRelease};
pub use verify::{Problem, Verified, verify};

use crate::model::components as table;
use std::io;
use std::path::PathBuf;

/// Why a bundle cannot be built, found or used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file system said no.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file does not say what it should.
    #[error("{path} cannot be understood: {why}")]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The version that is asked for is not there.
    #[error("no bundle for Kubernetes {wanted} in {store}; there {}; make it with `hactl bundle build --kubernetes VERSION` or `hactl bundle build --from DIR`",
        if .there.is_empty() { "is none".to_owned() } else { format!("are: {}", .there.join(", ")) })]
    NoSuchVersion {
        /// What is asked for.
        wanted: String,
        /// Where was looked.
        store: PathBuf,
        /// Which versions are there.
        there: Vec<String>,
    },
    /// The bundle lacks a component that a host needs.
    #[error("bundle {bundle} has no {component} for {architecture}; build it again from a directory that has")]
    Lacks {
        /// Bundle name.
        bundle: String,
        /// Component.
        component: String,
        /// Architecture.
        architecture: String,
    },
    /// The inventory names another version of a component than the bundle has.
    #[error(
        "the inventory asks for {component} {wanted}, but bundle {bundle} has {there}; leave versions.{component} out, or build a bundle with it"
    )]
    OtherVersion {
        /// Bundle name.
        bundle: String,
        /// Component.
        component: String,
        /// What the inventory says.
        wanted: String,
        /// What the bundle has.
        there: String,
    },
    /// A blob is not what it was when the bundle was built.
    #[error("{path} ({component}) is damaged: {why}; build the bundle again")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What it should hold.
        component: String,
        /// What is wrong.
        why: String,
    },
    /// Something could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A bundle in one file could not be written or taken.
    #[error(transparent)]
    Carry(#[from] CarryError),
    /// Nothing was built, and nothing to fetch was named.
    #[error(
        "there are no built components in {path}: `--kubernetes VERSION` fetches released ones, `--from DIR` names another place"
    )]
    Nowhere {
        /// Where was looked.
        path: PathBuf,
    },
    /// Several bundles are there, and none was named.
    #[error("there are several bundles: {}; name one, such as k8s-{}", .there.join(", "), .there.last().map_or("", String::as_str))]
    Which {
        /// Their versions.
        there: Vec<String>,
    },
    /// Another process works there.
    #[error("another hactl is fetching into {path}")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A digest that is in no bundle of this name.
    #[error("bundle {bundle} has nothing with digest {digest}")]
    Unknown {
        /// Bundle name.
        bundle: String,
        /// The digest.
        digest: String,
    },
}

pub(crate) fn io_error(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| BundleError::Io { doing, path, source }
}

#[cfg(test)]
mod tests;
