//! The agent from its client's point of view: real sessions over an in-memory stream, on test directories.

mod certificates;
mod delivery;
mod filesystem;
mod foreign;
mod gather;
mod member;
mod pki;
mod relay;
mod renew;
mod session;

use crate::agent::{Root, ServeError, serve_at};
use crate::protocol::frame::{Frame, read_frame, write_end, write_json, write_piece};
use crate::protocol::{Op, OpError, Reply, Request, Response};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The only possible owner of files in a test: its own user.
fn me() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

/// A test directory that replaces the host.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }
    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap()
    }
    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), content).unwrap();
    }
    /// Everything below a folder, hidden files too, by path.
    fn list(&self, folder: &str) -> Vec<String> {
        fn walk(at: &Path, base: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() && !path.is_symlink() => walk(&path, base, found),
                    path => found.push(path.strip_prefix(base).unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.at(folder), &self.at(folder), &mut found);
        found.sort();
        found
    }
    fn client(&self) -> Client {
        Client::new(self.0.path())
    }
    /// A client with the lock.
    async fn locked(&self) -> Client {
        let mut client = self.client();
        client.lock("test").await.unwrap();
        client
    }
}

/// The other end of a session.
struct Client {
    from: ReadHalf<DuplexStream>,
    to: WriteHalf<DuplexStream>,
    serving: JoinHandle<Result<(), ServeError>>,
    epoch: u64,
    id: u64,
}

impl Client {
    fn new(root: &Path) -> Self {
        let (near, far) = duplex(256 << 10);
        let (stdin, stdout) = split(far);
        let serving = tokio::spawn(serve_at(Root::at(root), stdin, stdout));
        let (from, to) = split(near);
        Self { from, to, serving, epoch: 0, id: 0 }
    }

    async fn send(&mut self, op: Op) -> u64 {
        self.id += 1;
        write_json(&mut self.to, &Request { id: self.id, epoch: self.epoch, op: Some(op) }).await.unwrap();
        self.id
    }

    /// The next answer, which must be to request `id`.
    async fn answer(&mut self, id: u64) -> Result<Reply, OpError> {
        loop {
            let frame =
                timeout(Duration::from_secs(20), read_frame(&mut self.from)).await.expect("no answer within 20 s");
            let Some(Frame::Json(text)) = frame.unwrap() else { panic!("the session ended without an answer") };
            match serde_json::from_slice(&text).unwrap() {
                Response::Heartbeat { .. } => {}
                Response::Answer { id: answered, outcome } => {
                    assert_eq!(answered, id);
                    return outcome;
                }
            }
        }
    }

    async fn ask(&mut self, op: Op) -> Result<Reply, OpError> {
        let id = self.send(op).await;
        self.answer(id).await
    }

    async fn lock(&mut self, holder: &str) -> Result<u64, (String, String)> {
        match self.ask(Op::Lock { holder: holder.to_owned() }).await.unwrap() {
            Reply::Locked { epoch, .. } => {
                self.epoch = epoch;
                Ok(epoch)
            }
            Reply::Held { by, since, .. } => Err((by, since)),
            other => panic!("{other:?}"),
        }
    }

    async fn piece(&mut self, bytes: &[u8]) {
        write_piece(&mut self.to, bytes).await.unwrap();
    }
    async fn end(&mut self) {
        write_end(&mut self.to).await.unwrap();
    }

    /// Closes the stream and returns how the session ended.
    async fn close(self) -> Result<(), ServeError> {
        let Self { mut from, mut to, serving, .. } = self;
        to.shutdown().await.unwrap();
        let draining = tokio::spawn(async move { while let Ok(Some(_)) = read_frame(&mut from).await {} });
        let ended =
            timeout(Duration::from_secs(5), serving).await.expect("the session did not end with its stream").unwrap();
        draining.abort();
        ended
    }
}
