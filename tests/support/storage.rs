//! Object storage on this machine: a real S3 server on a folder, stopped when its value is dropped.

use super::served::Server;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its only access key.
pub const LOGIN: (&str, &str) = ("AKHACTLTEST", "the-key-of-the-object-storage");

/// A running server.
pub struct ObjectStorage {
    _server: Server,
}

impl ObjectStorage {
    /// Serves the folders of `root` as buckets over TLS with this certificate and its key.
    pub fn start(root: &Path, at: SocketAddr, (cert, key): (&str, &str)) -> Self {
        let program = std::env::var("OBJECT_STORAGE").expect("OBJECT_STORAGE names the server: `make test` builds it");
        let beside = |name: &str| root.with_extension(name);
        fs::write(beside("crt"), cert).expect("writable");
        fs::write(beside("key"), key).expect("writable");
        let mut command = Command::new(program);
        command.args(["--port", &at.to_string(), "--access", LOGIN.0, "--secret", LOGIN.1]);
        command.arg("--cert").arg(beside("crt")).arg("--key").arg(beside("key")).arg("posix").arg(root);
        Self { _server: Server::start(command, at, &beside("log")) }
    }
}

/// Makes a bucket of this name in the folder of a server.
pub fn bucket(root: &Path, name: &str) -> PathBuf {
    let at = root.join(name);
    fs::create_dir_all(&at).expect("writable");
    at
}
