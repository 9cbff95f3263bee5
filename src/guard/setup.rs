//! What a guard reads at its start: the policy, its certificate, and what identifies the program and the boot. When one
//! of the files changes, the guard ends, and systemd starts it again with the new ones.
//!
//! In: the root of the file system, the name of the host. Out: a [`Setup`] and an [`Identity`], or why there are none.

use super::shared::now;
use super::state::Setup;
use crate::agent::{Root, certificates, private_key};
use crate::model::healing::{CA, CERT, KEY, Mode, POLICY, Policy, SPEC};
use crate::model::names::{Digest, HostName};
use crate::reconcile::RepairSpec;
use crate::transport::Peers;
use crate::transport::mtls::{Identity, MtlsError};
use serde::de::DeserializeOwned;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

/// Why a guard cannot work.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A file is missing or unreadable.
    #[error("cannot read {path}: {why}; `hactl up` writes it")]
    File {
        /// The file.
        path: &'static str,
        /// Why.
        why: String,
    },
    /// The policy is for other hosts.
    #[error("the policy {POLICY} does not name {0}; `hactl up` writes another one")]
    NotNamed(HostName),
    /// The inventory does not ask for repairs.
    #[error("healing is not on by the policy of this host")]
    NotOn,
    /// The certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] MtlsError),
    /// The files cannot be read.
    #[error("{0}")]
    Files(String),
}

/// The files that a guard reads only at its start.
const FILES: [&str; 4] = [POLICY, CERT, KEY, CA];
/// The kernel's name of the boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The program that runs.
const PROGRAM: &str = "/proc/self/exe";

impl Setup {
    /// Reaches the hosts of the policy.
    pub fn peers(&self, identity: &Identity) -> Result<Peers, GuardError> {
        Ok(Peers::new(self.own.address, identity, &self.policy)?)
    }
}

/// Everything that is read at the start, which is now.
pub fn read(root: &Root, own: &HostName) -> Result<(Setup, Identity), GuardError> {
    let policy: Policy = settings(root, POLICY)?;
    let host = policy.guard(own).ok_or_else(|| GuardError::NotNamed(own.clone()))?.clone();
    let boot = fs::read_to_string(BOOT).map_err(|e| file(BOOT, &e))?.trim().to_owned();
    let release = release().map_err(|e| file(PROGRAM, &e))?;
    Ok((Setup { own: host, policy, release, boot, started: now(Instant::now()) }, identity(root, [CA, CERT, KEY])?))
}

/// The certificates and the key in these files.
///
/// # Errors
/// One is missing or unreadable.
pub fn identity(root: &Root, [ca, cert, key]: [&str; 3]) -> Result<Identity, GuardError> {
    let unreadable = |error: crate::protocol::OpError| GuardError::Files(error.what);
    Ok(Identity {
        authorities: certificates(root, ca).map_err(unreadable)?,
        chain: certificates(root, cert).map_err(unreadable)?,
        key: private_key(root, key).map_err(unreadable)?,
    })
}

/// What a file of `hactl up` says.
///
/// # Errors
/// The file is missing or unreadable.
pub fn settings<T: DeserializeOwned>(root: &Root, path: &'static str) -> Result<T, GuardError> {
    let text = fs::read_to_string(root.own(path)).map_err(|e| file(path, &e))?;
    serde_json::from_str(&text).map_err(|e| file(path, &e))
}

/// As [`read`], if the policy asks for repairs.
pub fn healing(root: &Root, own: &HostName) -> Result<(Setup, Identity), GuardError> {
    let (setup, identity) = read(root, own)?;
    ensure_on(&setup.policy)?;
    Ok((setup, identity))
}

/// Refuses if the policy does not ask for repairs.
pub fn ensure_on(policy: &Policy) -> Result<(), GuardError> {
    if policy.healing.mode == Mode::On { Ok(()) } else { Err(GuardError::NotOn) }
}

/// What repairs of etcd members are planned from.
///
/// # Errors
/// The file is missing or unreadable.
pub fn spec(root: &Root) -> Result<RepairSpec, GuardError> {
    settings(root, SPEC)
}

fn file(path: &'static str, error: &dyn std::error::Error) -> GuardError {
    GuardError::File { path, why: error.to_string() }
}

/// The digest of the program: hosts keep each release in a folder that is named by it.
fn release() -> std::io::Result<Digest> {
    let program = fs::read_link(PROGRAM)?;
    let folder = program.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    match folder.and_then(|name| name.parse().ok()) {
        Some(digest) => Ok(digest),
        None => Ok(Digest::of(&fs::read(PROGRAM)?)),
    }
}

/// Changes with the files that a guard has read.
pub fn version(root: &Root) -> Vec<Option<(u64, i64, i64)>> {
    let of = |path| fs::metadata(root.own(path)).ok().map(|meta| (meta.ino(), meta.mtime(), meta.mtime_nsec()));
    FILES.into_iter().map(of).collect()
}
