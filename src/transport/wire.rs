//! The stdin, stdout, stderr and exit status of one process on the host.
//!
//! In: pieces from the task that reads an SSH channel or the pipes of a child. Out: a reader, a writer and, once the
//! reader has ended, the stderr and exit status of the process. Dropping the reader makes that task hang up.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio_util::bytes::{Buf, Bytes};

/// The buffer for a slow reader of a tunnel, bytes.
pub(super) const ROOM: usize = 32 << 20;
/// How much is kept of stderr.
const LAST_WORDS: usize = 2048;

/// One process on the host.
pub(super) struct Wire {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub(super) exit_report: ExitReport,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exit {
    Code(i32),
    Signal(String),
}

/// The stderr of a process and its exit; complete once the reader of its [`Wire`] has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct ExitReport(Arc<Mutex<Words>>, Arc<Notify>);

#[derive(Debug, Default)]
struct Words {
    stderr: VecDeque<u8>,
    exit: Option<Exit>,
}

impl ExitReport {
    pub(super) fn stderr(&self, bytes: &[u8]) {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.stderr.extend(bytes);
        let excess = words.stderr.len().saturating_sub(LAST_WORDS);
        words.stderr.drain(..excess);
        drop(words);
        self.1.notify_waiters();
    }
    /// Waits until stderr contains some words so many times. Never ends if it does not.
    pub(super) async fn received(&self, words: &str, times: usize) {
        loop {
            let more = self.1.notified();
            if self.count(words) >= times {
                return;
            }
            more.await;
        }
    }
    /// How often stderr contains some words.
    pub(super) fn count(&self, words: &str) -> usize {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (a, b) = said.stderr.as_slices();
        let all = [a, b].concat();
        all.windows(words.len()).filter(|window| *window == words.as_bytes()).count()
    }
    pub(super) fn exit(&self, exit: Exit) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).exit = Some(exit);
    }
    pub(super) fn exited(&self) -> Option<Exit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).exit.clone()
    }
    /// Stderr as printable text on one line.
    pub(super) fn said(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (a, b) = words.stderr.as_slices();
        printable(&[a, b].concat(), LAST_WORDS)
    }
    /// Exit and stderr in one sentence; empty when neither is known.
    pub(super) fn sentence(&self) -> String {
        let mut text = match self.exited() {
            Some(Exit::Code(code)) => format!("hactl on the host exited with code {code}"),
            Some(Exit::Signal(name)) => format!("hactl on the host was killed by signal {name}"),
            None => String::new(),
        };
        let said = self.said();
        if !said.is_empty() {
            let _ = write!(text, "{}{said}", if text.is_empty() { "" } else { ": " });
        }
        text
    }
}

/// At most `most` bytes as text that is safe to print: each run of control characters becomes one space.
pub(super) fn printable(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(most)]);
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_control() {
            clean.push(c);
        } else if !clean.ends_with(' ') {
            clean.push(' ');
        }
    }
    clean.trim().to_owned()
}

/// The reading end of a task that reads a process.
pub(super) struct Intake {
    pieces: mpsc::Receiver<Bytes>,
    current: Bytes,
}

/// The sender of such a task and the reader it fills.
pub(super) fn intake() -> (mpsc::Sender<Bytes>, Intake) {
    let (sender, pieces) = mpsc::channel(32);
    (sender, Intake { pieces, current: Bytes::new() })
}

impl AsyncRead for Intake {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.current.is_empty() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(piece) => self.current = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = self.current.len().min(buf.remaining());
        buf.put_slice(&self.current[..n]);
        self.current.advance(n);
        Poll::Ready(Ok(()))
    }
}
