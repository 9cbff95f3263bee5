//! Unattended renewal of certificates on a host, and its result: two files of the host, written by `up` and by `hactl
//! host-renew`.
//!
//! In: the wanted certificates of the host, including its issuing CAs, and the units that read them only at a start or
//! reload. Out: JSON that other versions of hactl can read.

use super::names::UnitName;
use super::target::{CertId, CertSpec};
use serde::{Deserialize, Serialize};

/// Path of the settings on a host.
pub const SETTINGS: &str = "/etc/hactl/renewal.json";
/// Directory of the issuing CAs.
pub const ISSUERS: &str = "/etc/hactl/issuers";
/// The daily timer.
pub const TIMER: &str = "hactl-renew.timer";
/// The service that it starts.
pub const SERVICE: &str = "hactl-renew.service";

/// The paths of an issuing CA: its certificate and its key.
pub fn issuer_paths(id: CertId) -> (String, String) {
    (format!("{ISSUERS}/{id}.crt"), format!("{ISSUERS}/{id}.key"))
}

/// The certificates that a host may renew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Its wanted certificates and its issuing CAs.
    pub leaves: Vec<CertSpec>,
    /// The units to reload.
    pub readers: Vec<Reader>,
}

/// A unit that reads certificates only when it starts or reloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reader {
    /// The unit; it is reloaded to use new certificates.
    pub unit: UnitName,
    /// The certificates that it reads.
    pub reads: Vec<CertId>,
}

/// The result of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Renewed certificates, with the reason.
    pub leaves: Vec<(CertId, String)>,
    /// Certificates that are due and could not be renewed, with the reason.
    pub left: Vec<(CertId, String)>,
    /// How many certificates were checked.
    pub looked_at: usize,
}
