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
mod error;
mod fetch;
mod lock;
mod memory;
mod pack;
mod publishers;
mod store;
mod tar;
mod verify;

pub use crate::model::components::Kind;
pub use build::{Built, build};
pub use bundle::{Bundle, list};
pub use carry::{Carried, Exported, export, import};
pub use error::{BundleError, CarryError};
pub use fetch::{
    BadMirror, Downloaded, FetchError, Mirror, Mirrors, Moment, Order, Patience, Prospect, Source, Standing, download,
    prospect,
};
pub use lock::{Component, Lock};
pub use pack::Progress;
pub use publishers::{Arch, HOSTS, NoRelease};
pub use store::default_store;
pub use verify::{Problem, Verified, verify};

#[cfg(test)]
mod tests;
