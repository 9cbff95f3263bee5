//! `hactl host` as a child process of this machine: the same protocol without SSH, for tests and for the machine we run on.

use super::counters::{Counted, Counters};
use super::error::HostError;
use super::wire::{Exit, LastWords, Wire, intake};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio_util::bytes::Bytes;

/// Starts the program. It is killed when the wire is dropped.
pub(super) fn start(program: &Path, args: &[String], counters: &Arc<Counters>) -> Result<Wire, HostError> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| HostError::NotStarted { program: program.to_owned(), source })?;
    counters.exec();
    let stdin = child.stdin.take().expect("it was asked for");
    let stdout = Counted { stream: child.stdout.take().expect("it was asked for"), counters: counters.clone() };
    let stderr = child.stderr.take().expect("it was asked for");
    let (to, intake) = intake();
    let last_words = LastWords::default();
    let words = last_words.clone();
    tokio::spawn(async move {
        let closed = to.clone();
        tokio::select! {
            () = run(child, stdout, stderr, to, words) => {}
            () = closed.closed() => {}
        }
    });
    let writer = Box::new(Counted { stream: stdin, counters: counters.clone() });
    Ok(Wire { reader: Box::new(intake), writer, last_words })
}

async fn run(
    mut child: Child,
    mut stdout: impl AsyncRead + Unpin,
    mut stderr: impl AsyncRead + Unpin,
    to: mpsc::Sender<Bytes>,
    last_words: LastWords,
) {
    let saying = async {
        let mut piece = vec![0; 64 << 10];
        while let Ok(read @ 1..) = stdout.read(&mut piece).await {
            if to.send(Bytes::copy_from_slice(&piece[..read])).await.is_err() {
                return;
            }
        }
    };
    let complaining = async {
        let mut piece = [0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut piece).await {
            last_words.stderr(&piece[..read]);
        }
    };
    tokio::join!(saying, complaining);
    if let Ok(status) = child.wait().await {
        last_words.exit(match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default().to_string()),
        });
    }
}
