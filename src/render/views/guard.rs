//! Guards: which files one has, and those that it leaves on a host.

use crate::model::desired::Desired;
use crate::model::healing::{
    CA, CERT, HEAL_UNIT, KEY, Mode, PEER_PORT, PEER_SOCKET, PEER_UNIT, POLICY, SPEC, UNIT, heals, keeps_peer_snapshots,
};
use crate::model::units::{PEER_SNAPSHOTS_TIMER, PEER_SNAPSHOTS_UNIT};
use crate::render::Input;
use serde::Serialize;
use std::net::SocketAddr;

/// Whether the inventory asks for guards, and so for node agents, which act on maintenances.
pub(crate) fn wanted(desired: &Desired) -> bool {
    desired.healing.mode != Mode::Off
}

/// Whether guards repair.
pub(crate) fn repairing(desired: &Desired) -> bool {
    desired.healing.mode == Mode::On
}

/// Whether etcd hosts keep copies of one another's snapshots.
pub(crate) fn copying(desired: &Desired) -> bool {
    desired.hosts.iter().any(|host| keeps_peer_snapshots(desired, host))
}

/// Files that may be on a host from an earlier inventory: its units, settings, certificate and key.
pub(crate) fn own() -> Vec<String> {
    // A key without its certificate yet has a longer name.
    let made = [format!("/etc/systemd/system/{UNIT}"), format!("{KEY}.new")];
    let others = [POLICY, CA, CERT, KEY].map(str::to_owned);
    made.into_iter().chain(others).chain(own_of_repairs()).collect()
}

/// Those of them that a guard has only if it repairs.
pub(crate) fn own_of_repairs() -> Vec<String> {
    let units = [PEER_SOCKET, PEER_UNIT, HEAL_UNIT, PEER_SNAPSHOTS_UNIT, PEER_SNAPSHOTS_TIMER]
        .map(|unit| format!("/etc/systemd/system/{unit}"));
    units.into_iter().chain([SPEC.to_owned()]).collect()
}

/// For `guard/hactl-guard.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Unit {
    program: String,
    host: String,
    /// Whether it repairs its host.
    repairs: bool,
    /// The socket for requests of other guards; empty: it receives none.
    socket: String,
    /// The schedule of copies of other hosts' snapshots; empty: it makes none.
    copies: String,
}

/// For `guard/hactl-guard-peer.socket`, `guard/hactl-guard-peer@.service`, `guard/hactl-heal.service` and
/// `guard/hactl-peer-snapshots.service`.
#[derive(Debug, Serialize)]
pub(crate) struct Peer {
    program: String,
    host: String,
    listen: String,
}

pub(crate) fn peer(input: &Input<'_>) -> Peer {
    Peer {
        program: input.hactl_path.to_owned(),
        host: input.host.name.to_string(),
        listen: SocketAddr::new(input.host.address, PEER_PORT).to_string(),
    }
}

pub(crate) fn unit(input: &Input<'_>) -> Unit {
    Unit {
        program: input.hactl_path.to_owned(),
        host: input.host.name.to_string(),
        repairs: repairing(input.desired),
        socket: if heals(input.desired, input.host) { PEER_SOCKET.to_owned() } else { String::new() },
        copies: if keeps_peer_snapshots(input.desired, input.host) {
            PEER_SNAPSHOTS_TIMER.to_owned()
        } else {
            String::new()
        },
    }
}

/// The first copies are made so long after the start of the guard, seconds, when the other guards run as well.
const FIRST_S: u64 = 60;
/// Copies are made so many times while a host takes one snapshot: the hosts take turns.
const TIMES: u64 = 3;
/// But not more often than once in so many seconds.
const LEAST_S: u64 = 60;

/// For `guard/hactl-peer-snapshots.timer`.
#[derive(Debug, Serialize)]
pub(crate) struct Copies {
    first_s: u64,
    every_s: u64,
}

pub(crate) fn copies(input: &Input<'_>) -> Copies {
    Copies { first_s: FIRST_S, every_s: (input.desired.snapshots.every_s / TIMES).max(LEAST_S) }
}
