//! Bundles: the pinned programs and images of one Kubernetes version, stored compressed on the administrator's machine.
//!
//! In: a directory of built components, the publishers' servers, a bundle file, or an existing store. Out: the
//! [`Part`]s that a host should have, in the order of sending, and the file of each. Hosts need no internet: they get
//! what was pinned when the bundle was built, checked here before sending and there before use.
//!
//! A store is `blobs/sha256/<digest of the content>.zst` and `bundles/<name>.lock.json`. It can have several versions
//! of Kubernetes, which share common files.
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
    /// A file system error.
    #[error("cannot {doing} {path}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file has invalid content.
    #[error("{path} is invalid: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no bundle of the required version.
    #[error("no bundle for Kubernetes {wanted} in {store}; there {}; create one with \
            `hactl bundle build --kubernetes VERSION` or `hactl bundle build --from DIR`",
        if .there.is_empty() { "is none".to_owned() } else { format!("are: {}", .there.join(", ")) })]
    NoSuchVersion {
        /// The required version.
        wanted: String,
        /// The store.
        store: PathBuf,
        /// The versions in it.
        there: Vec<String>,
    },
    /// The bundle lacks a component that a host needs.
    #[error("bundle {bundle} has no {component} for {architecture}; build it again with that component")]
    Lacks {
        /// Bundle name.
        bundle: String,
        /// Component.
        component: String,
        /// Architecture.
        architecture: String,
    },
    /// The inventory requires another version of a component than the bundle has.
    #[error(
        "the inventory requires {component} {wanted}, but bundle {bundle} has {there}; remove versions.{component}, or \
         build a bundle with it"
    )]
    OtherVersion {
        /// Bundle name.
        bundle: String,
        /// Component.
        component: String,
        /// The version in the inventory.
        wanted: String,
        /// The version in the bundle.
        there: String,
    },
    /// A blob has changed since the bundle was built.
    #[error("{path} ({component}) is damaged: {why}; build the bundle again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its expected content.
        component: String,
        /// What is wrong.
        why: String,
    },
    /// A download failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// An export or import failed.
    #[error(transparent)]
    Carry(#[from] CarryError),
    /// There are no built components, and no version was given.
    #[error(
        "there are no built components in {path}; download released ones with `--kubernetes VERSION`, or name a \
         directory with `--from DIR`"
    )]
    Nowhere {
        /// The directory.
        path: PathBuf,
    },
    /// There are several bundles, and none was named.
    #[error("there are several bundles: {}; name one, such as k8s-{}", .there.join(", "), .there.last().map_or("", String::as_str))]
    Which {
        /// Their versions.
        there: Vec<String>,
    },
    /// Another process uses the folder.
    #[error("another hactl is downloading into {path}")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// No bundle of this name has the digest.
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
