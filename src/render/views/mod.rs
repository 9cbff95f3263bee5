//! The values for each template: one typed view per template, made from the input.

pub(super) mod addons;
pub(super) mod balancer;
pub(super) mod control_plane;
pub(super) mod drain_rules;
pub(super) mod drills;
pub(super) mod etcd;
pub(super) mod guard;
pub(super) mod hosting;
pub(super) mod kubelet;
pub(super) mod maintenance;
pub(super) mod metrics;
pub(super) mod node_agent;
pub(super) mod os;
pub(super) mod quorum;
pub(super) mod registries;
pub(super) mod renewal;
pub(super) mod runtime;
pub(super) mod snapshots;

use crate::model::desired::{Desired, Host};
use crate::render::Input;
use serde::Serialize;
use std::collections::BTreeMap;

/// A name and a value, for templates that list them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

/// For templates without values.
#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

/// The flags of a program, one for each name: the inventory's replace `own` ones.
pub(super) fn flags<const N: usize>(desired: &Desired, program: &str, own: [(&str, String); N]) -> Vec<String> {
    let mut flags = BTreeMap::from(own);
    for (name, value) in desired.extra.args.get(program).into_iter().flatten() {
        flags.insert(name, value.clone());
    }
    flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

/// The part of a span before the turn of this host, so that the hosts of a kind are spread over it.
pub(super) fn turn(input: &Input<'_>, of_kind: impl Fn(&Host) -> bool, span: u64) -> u64 {
    let hosts: Vec<&Host> = input.desired.hosts.iter().filter(|host| of_kind(host)).collect();
    let turn = hosts.iter().position(|host| host.name == input.host.name).unwrap_or(0);
    span * turn as u64 / hosts.len().max(1) as u64
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
