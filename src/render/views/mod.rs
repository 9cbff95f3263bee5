//! The values for each template: one typed view per template, made from the input.

pub(super) mod addons;
pub(super) mod balancer;
pub(super) mod control_plane;
pub(super) mod drills;
pub(super) mod etcd;
pub(super) mod kubelet;
pub(super) mod registries;
pub(super) mod renewal;
pub(super) mod runtime;
pub(super) mod snapshots;

use crate::render::Input;
use serde::Serialize;

/// A name and a value, for templates that list them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// For units that only run hactl.
#[derive(Debug, Serialize)]
pub(super) struct Program {
    program: String,
}

pub(super) fn program(input: &Input<'_>) -> Program {
    Program { program: input.hactl_path.to_owned() }
}

/// Cipher suites for TLS 1.2 (those of 1.3 are fixed): forward secret and authenticated, for ECDSA and RSA
/// certificates.
pub(super) const CIPHERS: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// An address as written in a URL or before a port.
pub(super) fn in_url(address: std::net::IpAddr) -> String {
    match address {
        std::net::IpAddr::V4(a) => a.to_string(),
        std::net::IpAddr::V6(a) => format!("[{a}]"),
    }
}
