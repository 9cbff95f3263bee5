//! Recovery bundles: how a host takes them, when, and the sealed state that goes into each.

use crate::host::op::EtcdAsk;
use crate::model::desired::Role;
use crate::model::snapshot::Settings;
use crate::render::Input;
use serde::Serialize;

/// How long after the timer's start the first is taken at the earliest: there is a cluster by then.
const FIRST_S: u64 = 60;

/// `/etc/hactl/snapshots.json`.
pub(in crate::render) fn settings(input: &Input<'_>) -> String {
    let (desired, wanted) = (input.desired, &input.desired.snapshots);
    let EtcdAsk { url, data_dir, ca, cert, key } = crate::render::host::own_etcd(desired);
    let settings = Settings {
        cluster: desired.cluster.clone(),
        authority: input.sealed.authority,
        host: input.host.name.clone(),
        every_s: wanted.every_s,
        keep: wanted.keep,
        recipients: input.sealed.recipients.to_vec(),
        to: wanted.to.iter().map(|path| path.display().to_string()).collect(),
        url,
        data_dir,
        ca,
        cert,
        key,
    };
    serde_json::to_string_pretty(&settings).expect("texts and numbers are always JSON") + "\n"
}

/// For `snapshots/hactl-snapshot.service`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct Service {
    program: String,
}

pub(in crate::render) fn service(input: &Input<'_>) -> Service {
    Service { program: input.hactl_path.to_owned() }
}

/// For `snapshots/hactl-snapshot.timer`.
#[derive(Debug, Serialize)]
pub(in crate::render) struct Timer {
    program: String,
    first_s: u64,
    every_s: u64,
}

pub(in crate::render) fn timer(input: &Input<'_>) -> Timer {
    let every_s = input.desired.snapshots.every_s;
    let hosts: Vec<_> = input.desired.with(Role::Etcd).map(|h| &h.name).collect();
    let turn = hosts.iter().position(|name| **name == input.host.name).unwrap_or(0);
    let (turn, turns) = (u64::try_from(turn).unwrap_or(0), u64::try_from(hosts.len().max(1)).unwrap_or(1));
    Timer { program: input.hactl_path.to_owned(), first_s: FIRST_S + every_s * turn / turns, every_s }
}
