//! A server on this machine, which ends when its value is dropped.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long one may take until it listens.
const LISTENS: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server(Child);

impl Server {
    /// Starts a server with its errors in a file, and waits until it listens on its address.
    pub fn start(mut command: Command, at: SocketAddr, log: &Path) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(log).expect("writable"));
        let mut server = Self(command.spawn().unwrap_or_else(|e| panic!("{program}: {e}")));
        let said = || fs::read_to_string(log).unwrap_or_default();
        let begun = Instant::now();
        while TcpStream::connect(at).is_err() {
            let ended = server.0.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "{program} ended: {}", said());
            assert!(begun.elapsed() < LISTENS, "{program} does not listen on {at}: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        drop(ended);
    }
}

/// A free port of this address.
pub fn free(address: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).expect("a free port");
    listener.local_addr().expect("an address")
}
