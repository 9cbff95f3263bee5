//! The keeper of a self-hosted control plane: which files it has, and those that self-hosting leaves on a host.

use crate::model::desired::{Desired, Role};
use crate::model::hosting::{Hosting, MODE, UNIT};
use crate::render::Input;
use serde::Serialize;

/// Whether the control plane is self-hosted.
pub(crate) fn wanted(desired: &Desired) -> bool {
    desired.hosting == Hosting::SelfHosted
}

/// Files that may be on a host from an earlier inventory. Manifests are not among them: they are where the kubelet reads
/// them before these are removed.
pub(crate) fn own() -> Vec<String> {
    vec![format!("/etc/systemd/system/{UNIT}"), MODE.to_owned()]
}

/// For `hosting/hactl-hosting.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    program: String,
    address: String,
    port: String,
    servers: Vec<String>,
}

pub(crate) fn unit(input: &Input<'_>) -> Unit {
    let servers = input.desired.with(Role::ControlPlane).map(|host| host.address.to_string());
    Unit {
        program: input.hactl_path.to_owned(),
        address: input.host.address.to_string(),
        port: input.desired.api_port.to_string(),
        servers: servers.collect(),
    }
}
