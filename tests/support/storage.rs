//! Object storage on this machine: a real S3 server on a folder, stopped when its value is dropped.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Its only access key.
pub const LOGIN: (&str, &str) = ("AKHACTLTEST", "the-key-of-the-object-storage");

/// A running server.
pub struct ObjectStorage(Child);

impl ObjectStorage {
    /// Serves the folders of `root` as buckets over TLS with this certificate and its key.
    pub fn start(root: &Path, at: SocketAddr, (cert, key): (&str, &str)) -> Self {
        let program = std::env::var("OBJECT_STORAGE").expect("OBJECT_STORAGE names the server: `make test` builds it");
        let beside = |name: &str| root.with_extension(name);
        fs::write(beside("crt"), cert).expect("writable");
        fs::write(beside("key"), key).expect("writable");
        let log = fs::File::create(beside("log")).expect("writable");
        let mut command = Command::new(&program);
        command.args(["--port", &at.to_string(), "--access", LOGIN.0, "--secret", LOGIN.1]);
        command.arg("--cert").arg(beside("crt")).arg("--key").arg(beside("key")).arg("posix").arg(root);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{program}: {e}"));
        let begun = Instant::now();
        while TcpStream::connect(at).is_err() {
            let said = || fs::read_to_string(beside("log")).unwrap_or_default();
            assert!(child.try_wait().expect("it can be asked").is_none(), "{}", said());
            assert!(begun.elapsed() < Duration::from_secs(20), "the object storage does not listen: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }
}

impl Drop for ObjectStorage {
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

/// Makes a bucket of this name in the folder of a server.
pub fn bucket(root: &Path, name: &str) -> PathBuf {
    let at = root.join(name);
    fs::create_dir_all(&at).expect("writable");
    at
}
