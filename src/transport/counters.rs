//! The cost of talking to a host: bytes, connections, processes.
//!
//! In: counts of the transports. Out: a [`Traffic`] for the summary of the run and for the tests that hold hactl to
//! its figures; and a wake-up once something has left for the network, so that a fast sender never gets far ahead of
//! it ([`Paced`]).

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The traffic so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to the host, encryption included.
    pub sent: u64,
    /// Bytes received from the host, encryption included.
    pub received: u64,
    /// Programs started on the host.
    pub execs: u64,
    /// Connections opened to the host.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    execs: AtomicU64,
    connections: AtomicU64,
    /// How often everything to be sent had been sent.
    flushes: AtomicU64,
    /// Live streams.
    streams: AtomicUsize,
    /// Tasks that wait for a flush.
    waiting: Mutex<Vec<Waker>>,
}

impl Counters {
    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }
    pub(super) fn exec(&self) {
        self.execs.fetch_add(1, Relaxed);
    }
    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            execs: self.execs.load(Relaxed),
            connections: self.connections.load(Relaxed),
        }
    }
}

/// A stream that counts what passes through it.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    counters: Arc<Counters>,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, counters: Arc<Counters>) -> Self {
        counters.streams.fetch_add(1, SeqCst);
        Self { stream, counters }
    }
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.counters.streams.fetch_sub(1, SeqCst);
        self.counters.wake();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.counters.received.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            self.counters.sent.fetch_add(written as u64, Relaxed);
        }
        outcome
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        if outcome.is_ready() {
            self.counters.flushes.fetch_add(1, SeqCst);
            self.counters.wake();
        }
        outcome
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How far a writer may be ahead of the network, bytes: enough that the network never waits for us.
const AHEAD: usize = 64 << 10;

/// The writer of a channel. It accepts nothing more before the network has taken some of its data. An SSH connection
/// buffers everything that its channels write and keeps the memory it once allocated: without this a hundred
/// deliveries cost the memory of a hundred windows. It waits before it accepts and never after: a request that is
/// written completely may be answered at once.
#[derive(Debug)]
pub(super) struct Paced<W> {
    writer: W,
    counters: Arc<Counters>,
    /// Bytes taken since the last wait, and flushes of the connection before the first of them.
    ahead: usize,
    before: u64,
}

impl<W> Paced<W> {
    pub(super) fn new(writer: W, counters: Arc<Counters>) -> Self {
        Self { writer, counters, ahead: 0, before: 0 }
    }

    /// Whether something was flushed since, or no stream is left to flush.
    fn through(&self) -> bool {
        let counters = &self.counters;
        counters.flushes.load(SeqCst) != self.before || counters.streams.load(SeqCst) == 0
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Paced<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.ahead >= AHEAD {
            if !self.through() {
                self.counters.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(cx.waker().clone());
                // The flush may have come in the meantime.
                if !self.through() {
                    return Poll::Pending;
                }
            }
            self.ahead = 0;
        }
        if self.ahead == 0 {
            // Read before writing: a flush in between may cover these bytes, and no other might follow.
            self.before = self.counters.flushes.load(SeqCst);
        }
        let outcome = Pin::new(&mut self.writer).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            self.ahead += written;
        }
        outcome
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::timeout;

    const MOMENT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_large_send_waits_for_the_network_and_ends_with_the_connection() {
        let counters = Arc::new(Counters::default());
        let mut network = Counted::new(Vec::new(), counters.clone());
        let mut paced = Paced::new(Vec::new(), counters.clone());
        let much = vec![0; AHEAD];
        paced.write_all(&much).await.unwrap();
        assert!(timeout(MOMENT, paced.write_all(b"more")).await.is_err(), "nothing has left yet");
        let (written, _) = tokio::join!(timeout(MOMENT * 100, paced.write_all(&much)), network.flush());
        written.unwrap().unwrap();
        let gone = async { drop(network) };
        let (written, ()) = tokio::join!(timeout(MOMENT * 100, paced.write_all(b"more")), gone);
        written.unwrap().unwrap();
    }
}
