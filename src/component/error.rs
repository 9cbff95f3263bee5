//! Why a bundle cannot be built, found, used or carried.

use super::fetch::FetchError;
use std::io;
use std::path::{Path, PathBuf};

/// The format of a bundle as one file.
pub(super) const FORMAT: u32 = 1;

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
        "there are no built components in {0}; download released ones with `--kubernetes VERSION`, or name a \
         directory with `--from DIR`"
    )]
    Nowhere(PathBuf),
    /// There are several bundles, and none was named.
    #[error("there are several bundles: {}; name one, such as k8s-{}", .there.join(", "), .there.last().map_or("", String::as_str))]
    Which {
        /// Their versions.
        there: Vec<String>,
    },
    /// Another process uses the folder.
    #[error("another hactl is downloading into {0}")]
    Busy(PathBuf),
    /// No bundle of this name has the digest.
    #[error("bundle {bundle} has nothing with digest {digest}")]
    Unknown {
        /// Bundle name.
        bundle: String,
        /// The digest.
        digest: String,
    },
}

/// The error of an operation on a path.
pub fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BundleError {
    let path = path.to_owned();
    move |source| BundleError::Io { doing, path, source }
}

/// Why a bundle file is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// It is not a bundle file.
    #[error("{from} is not a hactl bundle: {why}")]
    NotABundle {
        /// The file, or standard input.
        from: String,
        /// What is wrong.
        why: String,
    },
    /// A newer hactl wrote it.
    #[error("{from} has format {format}, but this hactl reads format {FORMAT}; use a newer hactl")]
    Newer {
        /// The file, or standard input.
        from: String,
        /// Its format.
        format: u32,
    },
    /// It is incomplete.
    #[error("{from} is cut short: it ends after {at} bytes, in {within}")]
    CutShort {
        /// The file, or standard input.
        from: String,
        /// Bytes read.
        at: u64,
        /// The entry being read.
        within: String,
    },
    /// Its content does not match its digests.
    #[error("{from} was damaged or tampered with: {why}")]
    Tampered {
        /// The file, or standard input.
        from: String,
        /// What is wrong.
        why: String,
    },
    /// It is not the expected bundle.
    #[error("{from} is bundle {found}, but {expected} was expected")]
    Unexpected {
        /// The file, or standard input.
        from: String,
        /// Its identity.
        found: String,
        /// The expected identity.
        expected: String,
    },
    /// The store has another bundle of this version.
    #[error("{bundle} is in the store already with other content: {there} in the store, {coming} in {from}")]
    Different {
        /// The name of both.
        bundle: String,
        /// Identity of the one in the store.
        there: String,
        /// Identity of the one in the file.
        coming: String,
        /// The file, or standard input.
        from: String,
    },
}
