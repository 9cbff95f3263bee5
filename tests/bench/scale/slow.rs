//! A slow connection to a host: connections are accepted at once, and the host's answers arrive late.
//!
//! In: where to listen, where it leads, how late. Out: a port. It ends with the process or with the value, whichever
//! ends first.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A relay that delays.
pub struct Slow {
    /// Where it listens.
    pub port: u16,
    address: String,
    stop: Arc<AtomicBool>,
}

impl Slow {
    /// Listens at `here` on a free port for connections to `there`.
    pub fn before(here: &str, there: &str, latency: Duration) -> Self {
        let listener = TcpListener::bind((here, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, there) = (Arc::clone(&stop), there.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if flag.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(host) = TcpStream::connect(&there) else { continue };
                let (to_host, to_client) = (host.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
                std::thread::spawn(move || carry(client, to_host, Duration::ZERO));
                std::thread::spawn(move || carry(host, to_client, latency));
            }
        });
        Self { port, address: here.to_owned(), stop }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it sees the flag.
        let _ = TcpStream::connect((self.address.as_str(), self.port));
    }
}

/// Forwards everything, each piece this long after it was read.
fn carry(mut from: TcpStream, mut to: TcpStream, latency: Duration) {
    let (put, take) = mpsc::sync_channel::<(Instant, Vec<u8>)>(1024);
    let writer = std::thread::spawn(move || {
        for (at, piece) in take {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        // The other end may be gone already.
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if put.send((Instant::now() + latency, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
    drop(put);
    let _ = writer.join();
}
