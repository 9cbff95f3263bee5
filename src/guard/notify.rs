//! Messages to systemd: that the guard is ready, and that it is alive (`sd_notify(3)`).
//!
//! In: the socket in `$NOTIFY_SOCKET`. Out: datagrams. Without a socket there is nobody to tell.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The guard is ready.
pub(super) fn ready() {
    send("READY=1");
}

/// The guard is alive: without this, systemd starts it again after a minute.
pub(super) fn alive() {
    send("WATCHDOG=1");
}

fn send(text: &str) {
    let Ok(path) = std::env::var("NOTIFY_SOCKET") else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // If systemd does not hear it, the watchdog ends the guard: a message about it would come every second.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address));
}
