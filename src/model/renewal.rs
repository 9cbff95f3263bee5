//! What a host renews by itself, and what came of it: two files of one host, written by `up` and by `hactl host-renew`.
//!
//! In: the leaves that the host should have, issuers among them, and which units read them only at a start or reload. Out: JSON that
//! another version of hactl reads, too.

use super::names::UnitName;
use super::target::{CertId, CertSpec};
use serde::{Deserialize, Serialize};

/// Where the settings lie on a host.
pub const SETTINGS: &str = "/etc/hactl/renewal.json";
/// Where the issuers lie.
pub const ISSUERS: &str = "/etc/hactl/issuers";
/// What asks, day by day.
pub const TIMER: &str = "hactl-renew.timer";
/// What it starts.
pub const SERVICE: &str = "hactl-renew.service";

/// Where an issuer lies: its certificate and its key.
pub fn issuer_paths(id: CertId) -> (String, String) {
    (format!("{ISSUERS}/{id}.crt"), format!("{ISSUERS}/{id}.key"))
}

/// What a host may renew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Its leaves, as they should be, and its issuers.
    pub leaves: Vec<CertSpec>,
    /// Who has to be told.
    pub readers: Vec<Reader>,
}

/// A unit that reads certificates only when it starts or reloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reader {
    /// The unit; it takes new certificates by a reload.
    pub unit: UnitName,
    /// Which it reads.
    pub reads: Vec<CertId>,
}

/// What one turn did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewed {
    /// What was renewed, and why.
    pub leaves: Vec<(CertId, String)>,
    /// What is due and could not be renewed, and why not.
    pub left: Vec<(CertId, String)>,
    /// How many were looked at.
    pub looked_at: usize,
}
