//! The wait of a pod of a `DaemonSet` for the port of its component, before each start of it.
//!
//! In: an address and a port. Out: the end of the wait. The port is the lock: two servers never share it, and the pod
//! that waits shows the host that a successor is there.

use crate::agent::machine::ports::sockets_at;
use crate::agent::machine::root::Root;
use std::net::IpAddr;
use std::time::Duration;

/// Between two looks. What it takes is the gap of a hand-over.
const LOOK: Duration = Duration::from_millis(50);

/// Returns once nobody listens there.
pub fn await_turn(root: &Root, address: IpAddr, port: u16) {
    while !sockets_at(root, address, port).is_empty() {
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_wait_ends_with_the_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let waiting = std::thread::spawn(move || await_turn(&Root::host(), at.ip(), at.port()));
        std::thread::sleep(LOOK * 4);
        assert!(!waiting.is_finished());
        drop(listener);
        waiting.join().unwrap();
    }
}
